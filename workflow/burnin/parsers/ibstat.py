# SPDX-License-Identifier: Apache-2.0
"""ibstat (infiniband-diags), and `ibdev2netdev`.

Verdict: `fail` if a port is not Active and LinkUp; `unknown` if a port lacks its state, or nothing proves that the text
is whole (no end mark: see `whole`); else `pass`. The rate is judged only of ports that are up, and only by judging
against peers: a port that is down shows 10, 2.5 or 40. `Initializing` means a good cable and no subnet manager.

data: `cas`: [{"ca", "type", "ports": [{"port", "state", "physical_state", "rate", "rate_text", "base_lid", "layer",
"guid", "line"}], "firmware", "line"}], `netdevs`: {"mlx5_0": {"port", "netdev", "up", "line"}}.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, integer, number, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

MOST_CAS = 4096

_CA = re.compile(r"CA '([^']+)'\s*$")
_PORT = re.compile(r"\s+Port (\d+):\s*$")
_PAIR = re.compile(r"\s+([A-Z][\w /]*?):\s*(.*?)\s*$")
_NETDEV = re.compile(r"(\w+) port (\d+) ==> (\S+) \((Up|Down)\)")


class Parser(HostedParser):
    """Streaming reader of ibstat. Options: `whole`, `host`."""

    tool: ClassVar[str] = "ibstat"
    program: ClassVar[str] = "ibstat"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.cas: list[dict[str, Any]] = []
        self.port: dict[str, Any] | None = None
        self.netdevs: dict[str, Any] = {}
        self.recognised = False
        self.raw: dict[int, str] = {}
        self.in_ca = False

    def line(self, line: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line."""
        if m := _CA.match(body.strip()):
            self.recognised = self.in_ca = True
            self.port = None
            if len(self.cas) < MOST_CAS:
                entry: dict[str, Any] = {"ca": m[1], "ports": [], "line": line}
                if prefix.host:
                    entry["host"] = prefix.host
                self.cas.append(entry)
            else:
                self.note(f"more than {MOST_CAS} adapters: the rest was not read", damage=True)
            return []
        if m := _NETDEV.match(body.strip()):
            self.recognised = True
            if len(self.netdevs) < MOST_CAS:
                self.netdevs[m[1]] = {"port": int(m[2][:6]), "netdev": m[3], "up": m[4] == "Up", "line": line}
            return []
        if not self.in_ca or not self.cas:
            return []
        ca = self.cas[-1]
        if m := _PORT.match(body):
            self.port = {"port": int(m[1][:6]), "line": line}
            if len(ca["ports"]) < 256:
                ca["ports"].append(self.port)
        elif m := _PAIR.match(body):
            self._pair(line, body, ca, m[1], m[2])
        return []

    def _pair(self, line: int, body: str, ca: dict[str, Any], key: str, value: str) -> None:
        if self.port is None:
            if key == "CA type":
                ca["type"] = value[:100]
            elif key == "Firmware version":
                ca["firmware"] = value[:100]
            return
        port = self.port
        if key == "State":
            port["state"], port["state_line"] = value[:60], line
            if len(self.raw) < MOST_CAS * 4:
                self.raw[line] = body
        elif key == "Physical state":
            port["physical_state"] = value[:60]
        elif key == "Rate":
            word = value.split(" ")[0]
            port["rate"], port["rate_text"] = number(word), value[:60]
        elif key == "Base lid":
            port["base_lid"] = integer(value)
        elif key == "Port GUID":
            port["guid"] = value[:60]
        elif key == "Link layer":
            port["layer"] = value[:60]

    def read(self) -> Reading:
        """Return the reading of all ports."""
        reading = Reading(self.tool, recognised=self.recognised, complete=self.whole)
        verdicts: list[Verdict] = []
        for ca in self.cas:
            if not ca["ports"]:
                self.note(f"line {ca['line']}: {ca['ca']} has no port in this text")
                verdicts.append("unknown")
            for port in ca["ports"]:
                state, physical = port.get("state"), port.get("physical_state")
                if not state or not physical:
                    self.note(f"line {port['line']}: port {port['port']} of {ca['ca']} lacks its state")
                    verdicts.append("unknown")
                elif state != "Active" or physical != "LinkUp":
                    at = port.get("state_line", port["line"])
                    self.found.add(
                        signal(
                            "link_state", at, self.raw.get(at, state), device=ca["ca"], host=ca.get("host"),
                            detail={"state": state, "physical_state": physical, "port": port["port"]},
                        )
                    )  # fmt: skip
                    verdicts.append("fail")
                else:
                    verdicts.append("pass")
        for name, dev in self.netdevs.items():
            if not dev["up"]:
                self.found.add(
                    signal("link_state", dev["line"], f"{name} port {dev['port']} ==> {dev['netdev']} (Down)",
                           device=name, detail={"netdev": dev["netdev"], "state": "Down"})
                )  # fmt: skip
                verdicts.append("fail")
            elif not self.cas:
                verdicts.append("pass")
        reading.verdict = worst(verdicts)
        if self.recognised and not self.whole and reading.verdict == "pass":
            reading.problems.append("this listing has no end mark: nothing proves that it is whole")
        reading.data = {"cas": self.cas}
        if self.netdevs:
            reading.data["netdevs"] = self.netdevs
        return reading
