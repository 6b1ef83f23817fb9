# SPDX-License-Identifier: Apache-2.0
"""A probe file: the output of several node tools of one node, each between two frame lines.

    #@burnin node dgx05 time 1794318425 up 52311.00 zone +0100 boot 2f9c9f1e-56a4-4c0b-93cb-6f0ce6e3c6ad
    #@burnin begin mlxlink mlxlink -d mlx5_3 -c
    ...
    #@burnin end 0
    #@burnin finished

`begin` names the tool as `burnin read` does and then the command; `end` has its exit status and may have `lines N`.
Every section goes to its tool's own parser with the line numbers of this file. A section whose `end` is missing is cut,
one whose exit status is not 0 is not whole: neither can pass, though a fault in it stays a fault. 124 and 137 are a
time-out, 126 and 127 a tool that is not there: `unknown`, with a problem. `finished`, which may give the number of tools
that ran, says that the probe ran to its end; without it only the option `expected` (tool names) can prove that no
section is missing. A file of several nodes (pdsh prefixes) is read too. A section `stack:NAME` is no tool: its text is
part of the stack as it stands, it decides nothing and makes nothing incomplete.

data: `node`, `time` (seconds since 1970 by the node's clock), `up` (seconds since its boot), which together give the
moment of a kernel stamp that counts from boot; `utc_offset` (seconds east of UTC, for stamps of local time); `boot` (the
kernel's boot id: another one says that the node booted in between, whatever its clock says); `tools`:
{key: verdict}, with keys `nvidia-smi`, `mlxlink:mlx5_3`, `ipmi`, `ipmi:sel` (the device or listing comes from the
command), a tool that was expected and not run is `unknown`; several hosts: `dgx05/nvidia-smi`. `sections`:
{key: {"tool", "argv", "status", "first_line", "last_line", "recognised", "complete", "verdict", "problems", "data"}}.
Signals carry `detail["tool"]` = key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from burnin.parsers.common import LINE_LIMIT, LineParser, peel
from burnin.parsers.hosted import DAMAGE, FRAME, MOST_PROBLEMS, worst
from burnin.parsers.reading import Reading, Signal, Verdict

#: Most sections read of one file.
MOST_SECTIONS = 20_000

_BEGIN = re.compile(r"#@burnin begin (\S+)(?: (.*))?$")
_END = re.compile(r"#@burnin end (-?\d{1,6})(?: lines (\d{1,9}))?\s*$")
_DONE = re.compile(r"#@burnin (?:finished|done)(?: (\d{1,6}))?\s*$")
_NODE = re.compile(
    r"#@burnin node (\S+)(?: time (\d{1,12}))?(?: up (\d{1,12}(?:\.\d+)?))?"
    r"(?: zone ([+-]\d{4}))?(?: boot (\S{1,64}))?\s*$"
)
_DEVICE = re.compile(r"(?:^|\s)-d\s+(\S+)")
_TIMED_OUT = frozenset({124, 137})
#: Begins the name of a section that is kept as it stands.
STACK = "stack:"
_NOT_THERE = frozenset({126, 127})


@dataclass(slots=True)
class _Section:
    key: str
    tool: str
    argv: str
    first: int
    host: str | None
    parser: LineParser | None
    last: int = 0
    lines: int = 0
    problems: list[str] = field(default_factory=list)
    damaged: bool = False


def _key(tool: str, argv: str) -> str:
    if tool == "mlxlink" and (m := _DEVICE.search(argv)):
        return f"mlxlink:{m[1].rpartition('/')[2]}"
    if tool == "ipmi" and re.search(r"\bsel\b", argv):
        return "ipmi:sel"
    if tool == "mlxlink" and "module" in argv:
        return "mlxlink:module"
    return tool


class Parser:
    """Streaming reader of probe files. Options: `host` (the node the file is of), `expected` (tools or keys)."""

    tool: ClassVar[str] = "probe"
    line_limit = max(LINE_LIMIT, 1 << 20)

    def __init__(self, *, host: str | None = None, expected: Iterable[str] = (), **_others: Any) -> None:
        self.host = host
        self.expected = list(expected)
        self.open: dict[str | None, _Section] = {}
        self.hosts: set[str | None] = set()
        self.done: set[str | None] = set()
        self.closed: dict[str | None, int] = {}
        self.sections: dict[str, dict[str, Any]] = {}
        self.signals: list[Signal] = []
        self.problems: list[str] = []
        self.recognised = False
        self.node: dict[str, Any] = {}

    # ------------------------------------------------------------------------------------------------------ lines

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line; return the signals that the section's own parser found in it."""
        host = self.host
        body = line
        frame = FRAME in line
        if frame or (self.open and None not in self.open and self.host not in self.open) or len(self.hosts) > 1:
            rest, prefix = peel(line)
            if prefix.host is not None and (frame or prefix.host in self.hosts):
                host, body = prefix.host, rest
        if frame and body.startswith(FRAME):
            return self._frame(number, body, host)
        section = self.open.get(host)
        if section is None:
            return []
        section.last = number
        section.lines += bool(body.strip())
        if section.parser is None:
            return []
        found = section.parser.feed(number, body)
        return [self._placed(s, section) for s in found]

    def _frame(self, number: int, body: str, host: str | None) -> list[Signal]:
        if m := _BEGIN.match(body):
            if host in self.open:
                self._close(self.open.pop(host), None)
            self.recognised = True
            self.hosts.add(host)
            self._begin(number, m[1], m[2] or "", host)
            if DAMAGE.search(body) and host in self.open:
                # The end of this line is damaged, so the section's first line may be in it.
                self.open[host].problems.append(f"line {number}: the section's first line is damaged")
                self.open[host].damaged = True
        elif m := _END.match(body):
            section = self.open.pop(host, None)
            if section is None:
                self._note(f"line {number}: a section ends that never began")
            else:
                section.last = number
                if m[2] is not None and int(m[2]) != number - section.first - 1:
                    section.problems.append(
                        f"line {number}: the section had {m[2]} lines, not {number - section.first - 1}"
                    )
                    section.damaged = True
                self.closed[host] = self.closed.get(host, 0) + 1
                self._close(section, int(m[1]))
        elif m := _NODE.match(body):
            self.recognised = True
            self.node = {"node": m[1], "time": int(m[2]) if m[2] else None, "up": float(m[3]) if m[3] else None}
            if m[4]:
                hours, minutes = int(m[4][:3]), int(m[4][0] + m[4][3:])
                self.node["utc_offset"] = 3600 * hours + 60 * minutes
            if m[5] and m[5] != "unknown":
                self.node["boot"] = m[5]
            if self.host is None and not self.hosts:
                self.host = m[1]
        elif m := _DONE.match(body):
            self.recognised = True
            self.hosts.add(host)
            closed = self.closed.get(host, 0)
            if m[1] is not None and int(m[1]) != closed:
                self._note(f"line {number}: the probe ran {m[1]} tools, {closed} are here: the file has a hole")
            else:
                self.done.add(host)
        else:
            self._note(f"line {number}: a frame line is damaged: {body[:80]}")
            if host in self.open:
                self._close(self.open.pop(host), None)
        return []

    def _begin(self, number: int, tool: str, argv: str, host: str | None) -> None:
        if len(self.sections) + len(self.open) >= MOST_SECTIONS:
            self._note(f"more than {MOST_SECTIONS} sections: the rest was not read")
            return
        # Imported here: the registry loads a tool's module when it is first needed.
        from burnin.parsers import TOOLS, parser_for

        key = _key(tool, argv)
        if host is not None and host != self.host:
            key = f"{host}/{key}"
        again, base = 2, key
        while key in self.sections:
            key, again = f"{base}#{again}", again + 1
        section = _Section(key, tool, argv[:500], number, host, None, last=number)
        if tool in TOOLS and tool != "probe":
            options: dict[str, Any] = {"host": host}
            if tool == "mlxlink":
                device = _DEVICE.search(argv)
                options["device"] = device[1].rpartition("/")[2] if device else None
                options["counters"] = bool(re.search(r"(?:^|\s)(?:-c|--show_counters|-\w*c\w*)(?:\s|$)", argv)) or None
                options["module"] = bool(re.search(r"(?:^|\s)(?:-m|--show_module)(?:\s|$)", argv)) or None
            section.parser = parser_for(tool, **options)
        elif not tool.startswith(STACK):
            section.problems.append(f"there is no reader for '{tool[:40]}'")
        self.open[host] = section

    def _close(self, section: _Section, status: int | None) -> None:
        parser = section.parser
        reading: Reading
        if parser is None:
            reading = Reading(section.tool)
        else:
            if status == 0 and hasattr(parser, "whole"):
                parser.whole = True
            elif status is None and hasattr(parser, "unterminated"):
                parser.unterminated(section.last)
            reading = parser.finish()
        problems = [*section.problems, *reading.problems]
        verdict: Verdict = reading.verdict
        if status is None:
            problems.insert(0, f"the section that begins at line {section.first} has no end: it is cut")
        elif status in _TIMED_OUT:
            problems.insert(0, f"line {section.last}: the tool was ended by its time limit (status {status})")
        elif status in _NOT_THERE:
            problems.insert(0, f"line {section.last}: the tool is not installed or cannot be started (status {status})")
        elif status != 0:
            problems.insert(0, f"line {section.last}: the tool ended with status {status}")
        elif section.lines == 0:
            problems.insert(0, f"line {section.first}: the tool printed nothing")
        complete = reading.complete and status == 0 and not section.damaged
        if verdict == "pass" and not complete:
            verdict = "unknown"
        self.sections[section.key] = {
            "tool": section.tool,
            "argv": section.argv,
            "status": status,
            "first_line": section.first,
            "last_line": section.last,
            "recognised": reading.recognised,
            "complete": complete,
            "verdict": verdict,
            "problems": problems,
            "data": reading.data,
        }
        self.signals += [self._placed(s, section) for s in reading.signals]
        if verdict != "pass" and not section.tool.startswith(STACK):
            for problem in problems[:5]:
                self._note(f"{section.key}: {problem}")

    def _placed(self, found: Signal, section: _Section) -> Signal:
        return replace(found, host=found.host or section.host, detail={**found.detail, "tool": section.key})

    def _note(self, sentence: str) -> None:
        if len(self.problems) < MOST_PROBLEMS and sentence not in self.problems:
            self.problems.append(sentence)

    # ------------------------------------------------------------------------------------------------------ result

    def finish(self) -> Reading:
        """Say what the whole file was."""
        for host in list(self.open):
            self._close(self.open.pop(host), None)
        read = {key: s for key, s in self.sections.items() if not s["tool"].startswith(STACK)}
        tools: dict[str, Verdict] = {key: s["verdict"] for key, s in read.items()}
        for wanted in self.expected:
            if not any(k == wanted or s["tool"] == wanted for k, s in self.sections.items()):
                tools[wanted] = "unknown"
                self._note(f"{wanted}: this tool was not run")
        reading = Reading(self.tool, recognised=self.recognised)
        all_there = bool(self.hosts) and (self.done >= self.hosts or bool(self.expected))
        reading.complete = all_there and bool(tools) and all(s["complete"] for s in read.values())
        reading.verdict = worst(list(tools.values()))
        if self.recognised and not all_there:
            self._note("the probe has no closing line: nothing proves that no tool is missing")
        if reading.verdict == "pass" and not reading.complete:
            reading.verdict = "unknown"
        if not self.recognised:
            self._note("nothing in this text is a section of a probe")
        elif not tools:
            self._note("the probe has no section: no tool was read")
        reading.problems = list(self.problems)
        reading.signals = self.signals
        reading.data = {**self.node, "tools": tools, "sections": self.sections}
        return reading
