# SPDX-License-Identifier: Apache-2.0
"""ibqueryerrors (infiniband-diags): error counters of every port of the fabric.

`port ALL` is a switch's total and is not added to its ports. The whole number counts, not the rounded `(3.000G)`.
PortXmitWait is congestion and never an error. The exit status is the number of bad ports, so no verdict.

Verdict: `fail` if a port has a counter of `FATAL` above 0 (the link went down, or integrity was lost); `unknown` if
PMA queries failed (not everything was read; the line that says so may follow the summary, so only the caller can know
that the text is whole), the summary line is missing (cut), or only counters that need a second reading to judge are
above 0; `pass` if the summary was reached, every query answered and no error counter is above 0.

data: `nodes_checked`, `bad_nodes`, `ports_checked`, `bad_ports`, `query_failures`, `ports`: [{"guid", "node", "port",
"counters": {name: n}, "link": text, "line"}], at most 5000.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, signal
from burnin.parsers.hosted import HostedParser
from burnin.parsers.reading import Reading, Signal

MOST_PORTS = 5000
#: Counters that mean a link failed, whatever their rate.
FATAL = frozenset({"LinkDownedCounter", "LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors"})
#: Counters that are traffic or congestion.
NOT_ERRORS = frozenset(
    {"PortXmitWait", "PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts", "PortUnicastXmitPkts",
     "PortUnicastRcvPkts", "PortMulticastXmitPkts", "PortMulticastRcvPkts", "QP1Dropped", "VL15Dropped"}
)  # fmt: skip

_NODE = re.compile(r'Errors for (?:(0x[0-9a-fA-F]+) )?"(.*)"\s*$')
_PORT = re.compile(r"\s+GUID (0x[0-9a-fA-F]+) port (ALL|\d+):(.*)$")
_COUNTER = re.compile(r"\[(\w+) == (\d+)(?: \([^)]*\))?\]")
_LINK = re.compile(r"\s+Link info:\s+(.*)$")
_SUMMARY = re.compile(r"##\s*Summary: (\d+) nodes checked, (\d+) bad nodes found")
_PORTS = re.compile(r"##\s*(\d+) ports checked, (\d+) ports have errors beyond threshold")
_FAILED = re.compile(r"##\s*(\d+) PMA query failures")
_HARMLESS = re.compile(r"##\s*(?:Thresholds:|Suppressed:|$)")
_NO = re.compile(r"(?i)ibwarn:.*|ibpanic:.*|.*(?:discover failed|Failed to open).*")


class Parser(HostedParser):
    """Streaming reader of ibqueryerrors. Options: `whole`, `host`."""

    tool: ClassVar[str] = "ibqueryerrors"
    program: ClassVar[str] = "ibqueryerrors"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.node: tuple[str | None, str] | None = None
        self.ports: list[dict[str, Any]] = []
        self.recognised = False
        self.summary: tuple[int, int] | None = None
        self.checked: tuple[int, int] | None = None
        self.failures = 0
        self.fatal = False
        self.errors = 0
        self.broken = 0

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line."""
        if m := _NODE.match(body):
            self.recognised = True
            self.node = (m[1], m[2])
        elif self.node is not None and (m := _PORT.match(body)):
            return self._port(number, body, m)
        elif self.ports and (m := _LINK.match(body)):
            self.ports[-1]["link"] = m[1][:300]
        elif m := _SUMMARY.match(body.strip()):
            self.recognised = True
            self.summary = (int(m[1][:12]), int(m[2][:12]))
        elif m := _PORTS.match(body.strip()):
            self.checked = (int(m[1][:12]), int(m[2][:12]))
        elif m := _FAILED.match(body.strip()):
            self.failures += int(m[1][:12])
        elif body.lstrip().startswith("##") and self.recognised and not _HARMLESS.match(body.strip()):
            self.broken += 1
            self.note(f"line {number} is not understood: {body.strip()[:80]}")
        elif _NO.match(body.strip()) and (self.recognised or "ibqueryerrors" in body or "iberror" in body):
            self.broken += 1
            self.note(f"line {number}: not everything was read: {body.strip()[:160]}")
        return []

    def _port(self, number: int, body: str, m: re.Match[str]) -> list[Signal]:
        guid, name = self.node or (None, "")
        counters = {c[1]: int(c[2][:20]) for c in _COUNTER.finditer(m[3])}
        if not counters or _COUNTER.sub("", m[3]).strip():
            self.note(f"line {number}: the counters of a port are damaged", damage=True)
        whole = m[2] == "ALL"
        if len(self.ports) < MOST_PORTS:
            self.ports.append(
                {"guid": m[1], "node": name, "node_guid": guid, "port": m[2], "counters": counters, "line": number}
            )
        else:
            self.note(f"more than {MOST_PORTS} ports with counters: the rest is not listed")
        out: list[Signal] = []
        for counter, value in counters.items():
            if counter in NOT_ERRORS or value == 0:
                continue
            if whole:
                continue
            self.errors += 1
            self.fatal |= counter in FATAL
            out += self.emit(
                signal(
                    "port_counter", number, body, device=f"{name}/{m[2]}", value=float(value),
                    detail={"counter": counter, "guid": m[1], "node": name, "port": m[2], "fatal": counter in FATAL},
                )
            )  # fmt: skip
        return out

    def read(self) -> Reading:
        """Return the reading of the report."""
        reading = Reading(self.tool, recognised=self.recognised, complete=self.summary is not None and self.whole)
        if self.recognised and self.summary is None:
            reading.problems.append("the summary is missing: the text is cut")
        if self.failures:
            reading.problems.append(f"{self.failures} ports did not answer: not everything was read")
        if self.fatal:
            reading.verdict = "fail"
        elif self.errors:
            reading.problems.append("counters above 0 need a second reading, or the time since they were cleared")
        elif self.summary is not None and not self.failures and not self.broken:
            # A summary that counts more bad nodes or ports than are described here belongs to a text with a hole.
            nodes = {p["node_guid"] or p["node"] for p in self.ports}
            bad_ports = sum(p["port"] != "ALL" for p in self.ports)
            hole = self.summary[1] > len(nodes) or (self.checked is not None and self.checked[1] > bad_ports)
            reading.verdict = "unknown" if hole or self.summary[0] == 0 else "pass"
            if hole:
                reading.problems.append("more bad nodes or ports are counted than described: the text has a hole")
        reading.data = {
            "nodes_checked": self.summary[0] if self.summary else None,
            "bad_nodes": self.summary[1] if self.summary else None,
            "ports_checked": self.checked[0] if self.checked else None,
            "bad_ports": self.checked[1] if self.checked else None,
            "query_failures": self.failures,
            "ports": self.ports,
        }
        return reading
