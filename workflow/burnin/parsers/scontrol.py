# SPDX-License-Identifier: Apache-2.0
"""scontrol: `show node` (multi-line and `-o`), and `show topology` (see `topology`).

Values may contain blanks (`OS=`, `Reason=`, `Comment=`), so a value ends where the next known-shaped ` Key=` begins.
States: before Slurm 21.08 `DOWN*+DRAIN`, since then `DOWN+DRAIN+NOT_RESPONDING`; both give base and flags.

Verdict: `fail` if a node is DOWN, FAIL, does not answer, or has an invalid registration (a GPU count below slurm.conf
shows only there); `unknown` if a record lacks its State, a state word is not known, or nothing proves that the text
is whole (no end mark: see `whole`); else `pass`. DRAIN alone is an operator's decision, not a fault: it is in the
signal. Every node gives one `node_state` signal.

data: `nodes`: [{"name", "state" (as printed), "base", "flags": [...], "drained" (DRAIN and no job), "draining",
"reason", "reason_user", "reason_time", "boot_time", "slurmd_start_time", "gres", "cpus", "free_mem", "partitions",
"line"}]. Unset values (`None`, `N/A`, `Unknown`) are null.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, integer, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

#: Most nodes kept, and longest value.
MOST_NODES = 50_000
VALUE_LIMIT = 4000

# Each state word of Slurm's node states and flags (slurm.h, slurm_protocol_defs.c), as scontrol or sinfo print it.
_BASES = frozenset(
    re.findall(
        r"\w+",
        """IDLE ALLOCATED ALLOC MIXED MIX DOWN ERROR FUTURE UNKNOWN COMPLETING COMP FAIL FAILING INVAL MAINT PLANNED
        RESERVED POWERED_DOWN POWERING_DOWN POWERING_UP NO_RESPOND REBOOT""",
    )
)
_FLAGS = frozenset(
    re.findall(
        r"\w+",
        """COMPLETING DRAIN DYNAMIC_NORM DYNAMIC_FUTURE FAIL INVALID_REG MAINTENANCE NOT_RESPONDING PLANNED POWERED_DOWN
        POWERING_DOWN POWERING_UP POWER_DOWN POWER_UP POWER_DRAIN REBOOT_ISSUED REBOOT_REQUESTED REBOOT_CANCEL RESERVED
        CLOUD BLOCKED EXTERNAL PERFCTRS RES UNDRAIN RUN_EPILOG RESUME""",
    )
)
_SUFFIX = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN", "!": "POWER_DOWN",
    "$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED", "&": "EXTERNAL",
}  # fmt: skip
_KEY = re.compile(r"(?:^|\s)([A-Z]\w*(?:\\?/\w+)?)=")
_REASON_END = re.compile(r"\s*\[([^\[\]@\s]+)@([^\[\]]*)\]\s*$")
_BAD = frozenset({"NOT_RESPONDING", "INVALID_REG", "FAIL"})


def split_state(text: str) -> tuple[str, list[str]]:
    """Return (base state, flags) of a state as scontrol or sinfo prints it, for example `IDLE+DRAIN` or `DOWN*`."""
    flags: list[str] = []
    first, *rest = text.split("+")
    parts = [first, *rest]
    for i, part in enumerate(parts):
        while part and part[-1] in _SUFFIX:
            if _SUFFIX[part[-1]] not in flags:
                flags.append(_SUFFIX[part[-1]])
            part = part[:-1]
        parts[i] = part
    for part in parts[1:]:
        if part and part not in flags:
            flags.append(part)
    base = parts[0].upper()
    if base in ("DRAINED", "DRAINING"):
        flags.append("DRAIN")
        base = "IDLE" if base == "DRAINED" else "ALLOCATED"
    return base, flags


def _value(text: str | None) -> str | None:
    return None if text is None or text in ("(null)", "N/A", "None", "Unknown", "") else text


def fields(record: str) -> dict[str, str]:
    """Split one record `Key=value Key=value with blanks Key=…` into its fields (first occurrence of a key wins)."""
    out: dict[str, str] = {}
    found = list(_KEY.finditer(record))
    for i, m in enumerate(found):
        end = found[i + 1].start() if i + 1 < len(found) else len(record)
        if m[1] not in out and len(out) < 200:
            out[m[1]] = record[m.end() : end].strip()[:VALUE_LIMIT]
    return out


class Parser(HostedParser):
    """Streaming reader of `scontrol show node`. Options: `whole`, `host`."""

    tool: ClassVar[str] = "scontrol"
    program: ClassVar[str] = "scontrol"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.nodes: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.current: dict[str, str] = {}
        self.start = 0
        self.state_at: tuple[int, str] = (1, "")
        self.in_reason = False
        self.recognised = False

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line."""
        stripped = body.strip()
        if stripped.startswith("NodeName="):
            out = self._close()
            self.recognised = True
            self.start, self.state_at = number, (number, stripped[:VALUE_LIMIT])
            self.current = fields(stripped)
            self.in_reason = "Reason" in self.current
            if "State" in self.current:
                self.state_at = number, f"NodeName={self.current['NodeName']} State={self.current['State']}"
            return out
        if not self.current:
            if re.match(r"Node \S+ not found|slurm_load_node error|scontrol: error", stripped):
                self.recognised = True
                self.note(f"line {number}: {stripped[:160]}")
                self.verdicts.append("unknown")
            return []
        if not stripped:
            return self._close()
        # Reason is free text: inside it a ` Key=` of its own is text, unless the line starts with a key.
        if stripped.startswith("Reason="):
            self.current.setdefault("Reason", stripped[7:][:VALUE_LIMIT])
            self.in_reason = True
            return []
        if self.in_reason and not re.match(r"[A-Z]\w*=", stripped):
            self.current["Reason"] = (self.current.get("Reason", "") + "\n" + stripped)[:VALUE_LIMIT]
            return []
        self.in_reason = False
        for key, value in fields(stripped).items():
            if key == "State" and "State" not in self.current:
                self.state_at = number, stripped
            self.current.setdefault(key, value)
        return []

    def _close(self) -> list[Signal]:
        record, self.current = self.current, {}
        self.in_reason = False
        if not record:
            return []
        name = record.get("NodeName", "")
        printed = record.get("State", "")
        base, flags = split_state(printed.split()[0] if printed.split() else "")
        reason = _value(record.get("Reason"))
        entry: dict[str, Any] = {"name": name, "state": printed or None, "base": base or None, "flags": flags}
        if reason and (m := _REASON_END.search(reason)):
            entry["reason_user"], entry["reason_time"] = m[1], _value(m[2])
            reason = reason[: m.start()]
        entry["reason"] = reason
        drain = "DRAIN" in flags
        busy = base in ("ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING") or "COMPLETING" in flags
        entry["drained"], entry["draining"] = drain and not busy, drain and busy
        for key, short in (
            ("BootTime", "boot_time"), ("SlurmdStartTime", "slurmd_start_time"), ("Gres", "gres"),
            ("Partitions", "partitions"), ("Version", "version"), ("NodeHostName", "host_name"),
        ):  # fmt: skip
            if key in record:
                entry[short] = _value(record[key])
        for key, short in (("CPUTot", "cpus"), ("FreeMem", "free_mem"), ("RealMemory", "real_memory")):
            if key in record:
                entry[short] = integer(record[key])
        entry["line"] = self.start
        bad = base in ("DOWN", "ERROR", "FAIL", "INVAL", "NO_RESPOND") or bool(_BAD.intersection(flags))
        unknown = not name or base not in _BASES or any(f not in _FLAGS for f in flags)
        if unknown and not bad:
            self.note(f"line {self.start}: the state '{printed[:60]}' of node {name[:60]} is missing or not known")
        self.verdicts.append("fail" if bad else "unknown" if unknown else "pass")
        if len(self.nodes) < MOST_NODES:
            self.nodes.append(entry)
        else:
            self.note(f"more than {MOST_NODES} nodes: the rest was not kept")
        detail = {
            k: entry.get(k) for k in ("base", "flags", "reason", "boot_time", "drained", "draining") if entry.get(k)
        }
        detail.setdefault("base", base)
        detail.setdefault("flags", flags)
        return self.emit(signal("node_state", *self.state_at, host=name or None, detail=detail))

    def read(self) -> Reading:
        """Return the reading of all records."""
        if self.cut and self.current and not self.whole:
            self.note("the last record has no end: the text is cut")
            self.verdicts.append("unknown")
        self._close()
        reading = Reading(self.tool, recognised=self.recognised)
        reading.complete = self.whole
        reading.verdict = worst(self.verdicts)
        if self.recognised and not self.whole and reading.verdict == "pass":
            reading.problems.append("this listing has no end mark: nothing proves that it is whole")
        reading.data = {"nodes": self.nodes}
        return reading


def topology(text: str) -> list[dict[str, Any]]:
    """Read `scontrol show topology`: [{"switch", "level", "link_speed", "nodes" (host list text), "switches"}].

    Tree and block plug-ins; lines that are neither are left out. Never raises.
    """
    out: list[dict[str, Any]] = []
    for line in text.splitlines():
        record = fields(line.strip())
        if "SwitchName" in record:
            out.append(
                {
                    "switch": record["SwitchName"],
                    "level": integer(record.get("Level")),
                    "link_speed": integer(record.get("LinkSpeed")),
                    "nodes": _value(record.get("Nodes")),
                    "switches": _value(record.get("Switches")),
                }
            )
        elif "BlockName" in record:
            out.append(
                {
                    "block": record["BlockName"],
                    "index": integer(record.get("BlockIndex")),
                    "nodes": _value(record.get("Nodes")),
                    "size": integer(record.get("BlockSize")),
                }
            )
    return out
