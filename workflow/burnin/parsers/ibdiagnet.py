# SPDX-License-Identifier: Apache-2.0
"""ibdiagnet2: the console log, with the table of stages at its end.

Rows of that table start with `-I-` even when their Errors are above 0, and a value may be `NA`. Lines such as `-E- Links
Check finished with errors` head the details below them and are not further errors.

Verdict: `fail` if a stage of the table has errors (or, in a cut log, a stage "finished with errors"); `unknown` if the
table is missing, lacks one of the stages that every version runs, a stage is `NA`, or discovery failed; `pass` if the
table was reached and every stage has 0 errors.
Warnings do not decide; they are in the data.

data: `version`, `nodes`, `switches`, `cas` (discovered), `stages`: [{"stage", "warnings", "errors", "comment", "line"}],
`errors`, `warnings` (sums), `messages`: first 200 `-E-` lines, `counters_cleared`: bool.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, integer, quote, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

_VERSION = re.compile(r"\s*ibdiagnet v?(\d[\w.]*)")
_LOADING = re.compile(r"(?:Loading|Running) (?:version: )?.*ibdiagnet", re.IGNORECASE)
_FOUND = re.compile(
    r"(\d+) nodes \((\d+) Switch(?:\(es\)|es)? ?& ?(\d+) CA(?:\(s\)|s|-s)?[^)]*\) discovered", re.IGNORECASE
)
_SUMMARY_HEAD = re.compile(r"-I-\s+Stage\s+Warnings\s+Errors\s+Comment")
_STAGE = re.compile(r"-[IWE]-\s+(\S.*?)\s{2,}(\d+|NA|N/A)\s+(\d+|NA|N/A)(?:\s+(\S.*?))?\s*$")
_BAD_END = re.compile(r"-E-\s+(.*?) finished with errors")
_CLEARED = re.compile(r"counters were cleared|counters clear(?:ed)? finished", re.IGNORECASE)
_CANNOT = re.compile(r"-E-\s+(?:Failed to initialize|Fabric Discover failed|Discovery failed|.*Fatal|.*failed to open)")
KEEP_MESSAGES = 200
#: Stages that every ibdiagnet2 runs, whatever its options: a table without one of them has lost a row.
ALWAYS = ("Discovery", "Lids Check", "Links Check")
MOST_STAGES = 500


class Parser(HostedParser):
    """Streaming reader of ibdiagnet's console log. Options: `whole`, `host`."""

    tool: ClassVar[str] = "ibdiagnet"
    program: ClassVar[str] = "ibdiagnet"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.recognised = False
        self.version: str | None = None
        self.found_nodes: tuple[int, int, int] | None = None
        self.stages: list[dict[str, Any]] = []
        self.in_summary = False
        self.after_summary = False
        self.messages: list[str] = []
        self.message_count = 0
        self.headings: list[tuple[str, int, str]] = []
        self.cleared = False
        self.broken = False

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line."""
        stripped = body.strip()
        if not stripped:
            if self.in_summary and self.stages:
                self.in_summary, self.after_summary = False, True
            return []
        if not stripped.startswith("-"):
            if m := _VERSION.match(stripped):
                self.recognised = True
                self.version = m[1]
            elif _LOADING.match(stripped):
                self.recognised = True
            if self.in_summary and self.stages:
                self.in_summary, self.after_summary = False, True
            return []
        if _SUMMARY_HEAD.match(stripped):
            self.recognised = True
            self.in_summary, self.after_summary = True, False
            self.stages = []
            return []
        if self.in_summary:
            if m := _STAGE.match(stripped):
                return self._stage(number, body, m)
            self.note(f"line {number}: a row of the summary is damaged: {stripped[:80]}", damage=True)
            return []
        if self.after_summary and _STAGE.match(stripped):
            self.note(f"line {number}: a row of the summary stands outside of it: {stripped[:80]}", damage=True)
        if m := _FOUND.search(stripped):
            self.recognised = True
            self.found_nodes = (int(m[1][:9]), int(m[2][:9]), int(m[3][:9]))
            return self.emit(
                signal("fabric_nodes", number, body, value=float(self.found_nodes[2]),
                       detail={"nodes": self.found_nodes[0], "switches": self.found_nodes[1]})
            )  # fmt: skip
        if stripped.startswith("-E-"):
            self.message_count += 1
            if len(self.messages) < KEEP_MESSAGES:
                self.messages.append(f"{number}: {quote(stripped)}")
            if m := _BAD_END.match(stripped):
                if len(self.headings) < MOST_STAGES:
                    self.headings.append((m[1], number, body))
            elif _CANNOT.match(stripped):
                self.broken = True
                self.note(f"line {number}: {stripped[:160]}")
        elif _CLEARED.search(stripped):
            self.cleared = True
        return []

    def _stage(self, number: int, body: str, m: re.Match[str]) -> list[Signal]:
        errors, warnings = integer(m[3]), integer(m[2])
        if len(self.stages) < MOST_STAGES:
            self.stages.append(
                {
                    "stage": m[1][:100],
                    "warnings": warnings,
                    "errors": errors,
                    "comment": (m[4] or "")[:200],
                    "line": number,
                }
            )
        if errors is None:
            self.note(f"line {number}: the stage {m[1][:60]} was not checked ({m[3]})")
        elif errors > 0:
            return self.emit(signal("fabric_check", number, body, value=float(errors), detail={"stage": m[1][:100]}))
        return []

    def read(self) -> Reading:
        """Return the reading of the log."""
        reading = Reading(self.tool, recognised=self.recognised)
        # The table is whole once something other than a row follows it, or the caller knows.
        reading.complete = bool(self.stages) and (self.after_summary or (self.whole and self.in_summary))
        verdicts: list[Verdict] = []
        for stage in self.stages:
            verdicts.append("unknown" if stage["errors"] is None else "fail" if stage["errors"] else "pass")
        if self.headings and not any(s["errors"] for s in self.stages):
            # The table that would say how many is missing, or contradicts: the stage's own word stands.
            for name, line, text in self.headings:
                self.found.add(signal("fabric_check", line, text, detail={"stage": name[:100]}))
            verdicts.append("fail")
        if self.broken:
            verdicts.append("unknown")
        lacking = [name for name in ALWAYS if not any(s["stage"] == name for s in self.stages)]
        if self.stages and lacking:
            reading.problems.append(f"the table of stages lacks {', '.join(lacking)}")
            verdicts.append("unknown")
        if self.recognised and not self.stages:
            reading.problems.append("the table of stages is missing: the log is cut, or ibdiagnet stopped early")
        if self.recognised and self.found_nodes is None:
            reading.problems.append("the number of discovered nodes is missing")
            verdicts.append("unknown")
        reading.verdict = worst(verdicts)
        found = self.found_nodes or (None, None, None)
        reading.data = {
            "version": self.version,
            "nodes": found[0],
            "switches": found[1],
            "cas": found[2],
            "stages": self.stages,
            "errors": sum(s["errors"] or 0 for s in self.stages),
            "warnings": sum(s["warnings"] or 0 for s in self.stages),
            "messages": self.messages,
            "message_count": self.message_count,
            "counters_cleared": self.cleared,
        }
        return reading
