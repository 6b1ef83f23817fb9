# SPDX-License-Identifier: Apache-2.0
"""Reader of straggler reports of the NVIDIA Resiliency Extension (NVRx), alone or inside a training log.

Source: nvidia-resiliency-ext, straggler detection, and NeMo's straggler callback, which prints the report.

`Reading.data`:
  reports: list of {line, relative, individual (lists of {rank, node, score, line}), ranks, affected, complete}
  worst: the entry with the lowest relative score, or null; report_count.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import LINE_LIMIT, Collector, Prefix, finite, number, peel, signal
from burnin.parsers.reading import Reading, Signal

#: Score below which NVRx calls a rank a straggler (its default threshold).
THRESHOLD = 0.7
#: Reports and entries of one report kept.
KEEP_REPORTS = 500
KEEP_ENTRIES = 4096

_SECTION = re.compile(r"GPU (?P<what>relative|individual) performance:")
_LIST = re.compile(r"(?P<which>Worst|Best) performing (?P<k>\d{1,7})/(?P<n>\d{1,7}) ranks:")
_ENTRY = re.compile(r"Rank=(?P<rank>\d{1,7}) Node=(?P<node>\S{1,253}) Score=(?P<score>\S{1,40})")
_ENTRY_CUT = re.compile(r"Rank=\d*|Node=|Score=")
_WARNING = re.compile(r"STRAGGLER DETECTION WARNING: (?P<text>.{0,400})")
_AFFECTED = re.compile(r"(?:[Rr]ank[=: ]\s*|[\[{(,]\s*|ranks: )(\d{1,7})")


class StragglerLines:
    """Scanner of report lines; `reports` grows, oldest first."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.count = 0
        self.worst: dict[str, Any] | None = None
        self.bad = 0
        self.below = False
        self.warned = False
        self.all_complete = True
        self._report: dict[str, Any] | None = None
        self._section: str | None = None
        self._lists: dict[str, list[tuple[int, int]]] = {}  # "relative worst" -> [(announced, seen)]
        self._list: str | None = None

    def scan(self, line_no: int, line: str, text: str, prefix: Prefix) -> list[Signal]:
        """Return the signals of one line."""
        if "erform" not in text and "Rank=" not in text and "STRAGGLER" not in text:
            if self._report is not None and _ENTRY_CUT.search(text):
                self.bad += 1
            return []
        if m := _SECTION.search(text):
            if m["what"] == "relative" or self._report is None:
                self._close()
                self._report = {"line": line_no, "relative": [], "individual": [], "affected": [], "ranks": None}
                self.count += 1
            self._section, self._list = m["what"], None
            return []
        if self._report is None and (_LIST.search(text) or _ENTRY.search(text)):
            # The heading is lost: believe nothing but the entries.
            self._report = {"line": line_no, "relative": [], "individual": [], "affected": [], "ranks": None}
            self.count += 1
            self.bad += 1
            self._section = "relative"
        if self._report is not None and (m := _LIST.search(text)):
            self._report["ranks"] = int(m["n"])
            self._list = f"{self._section} {m['which']}"
            self._lists.setdefault(self._list, []).append((int(m["k"]), 0))
            return []
        if self._report is not None and "Rank=" in text:
            return self._entry(line_no, line, text)
        if m := _WARNING.search(text):
            self.warned = True
            ranks = sorted({int(r) for r in _AFFECTED.findall(m["text"].partition("Affected")[2])})
            if self._report is not None:
                self._report["affected"] = ranks[:256]
            if not ranks:
                return [signal("straggler", line_no, line, prefix, detail={"warning": True})]
            return [signal("straggler", line_no, line, rank=r, detail={"warning": True}) for r in ranks[:64]]
        return []

    def _entry(self, line_no: int, line: str, text: str) -> list[Signal]:
        assert self._report is not None
        m = _ENTRY.search(text)
        score = finite(number(m["score"])) if m else None
        if m is None or score is None or score < 0:
            self.bad += 1
            return []
        entry = {"rank": int(m["rank"]), "node": m["node"], "score": score, "line": line_no}
        if self._list is not None:
            announced, seen = self._lists[self._list][-1]
            self._lists[self._list][-1] = (announced, seen + 1)
        section = self._section or "relative"
        if len(self._report[section]) < KEEP_ENTRIES:
            self._report[section].append(entry)
        if section == "relative" and (self.worst is None or score < self.worst["score"]):
            self.worst = entry
        if score >= THRESHOLD:
            return []
        self.below = True
        detail = {"section": section}
        return [
            signal(
                "straggler",
                line_no,
                line,
                host=m["node"],
                rank=entry["rank"],
                value=score,
                limit=THRESHOLD,
                detail=detail,
            )
        ]

    def _close(self) -> None:
        report = self._report
        self._report, self._section, self._list = None, None, None
        lists, self._lists = self._lists, {}
        if report is None:
            return
        if lists:
            counts = all(k == seen for pairs in lists.values() for k, seen in pairs)
            # Both parts belong to a report; one that stops after the first is cut.
            both = all(f"{part} {which}" in lists for part in ("relative", "individual") for which in ("Worst", "Best"))
            report["complete"] = counts and both
        else:
            # Few ranks are listed without headings; both sections must name the same ranks, all from 0.
            names = [sorted({e["rank"] for e in report[s]}) for s in ("relative", "individual")]
            whole = names[0] == list(range(len(names[0]))) and len(names[0]) > 0
            report["ranks"] = len(names[0]) if whole else None
            report["complete"] = whole and names[0] == names[1]
        self.all_complete &= report["complete"]
        if len(self.reports) < KEEP_REPORTS:
            self.reports.append(report)

    def finish(self) -> None:
        """Close the last report."""
        self._close()


class Parser:
    """Reader of one text with straggler reports."""

    tool: ClassVar[str] = "straggler"

    def __init__(self) -> None:
        self.lines = StragglerLines()
        self.found = Collector()
        self.damaged = False
        self.cut_at: int | None = None
        self.last_entry = 0

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line."""
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
        text, prefix = peel(line)
        if "Rank=" in text:
            self.last_entry = number
        return self.found.extend(self.lines.scan(number, line, text, prefix))

    def unterminated(self, number: int) -> None:
        """Note that the last line has no newline: a score on it may be cut."""
        self.cut_at = number

    def finish(self) -> Reading:
        """Return the reading of the whole text."""
        lines = self.lines
        lines.finish()
        cut = self.cut_at is not None and self.cut_at == self.last_entry
        reading = Reading(self.tool, recognised=lines.count > 0 or lines.warned)
        reading.complete = lines.count > 0 and lines.all_complete and not (lines.bad or self.damaged or cut)
        if lines.below or lines.warned:
            reading.verdict = "fail"
        elif reading.complete:
            reading.verdict = "pass"
        if not reading.recognised:
            reading.problems.append("no straggler report was found")
        elif not lines.count:
            reading.problems.append("only the warning of a report was found")
        elif not lines.all_complete:
            reading.problems.append(
                "a report does not list as many ranks as it announces, or one of its parts is missing"
            )
        if lines.bad:
            reading.problems.append(f"{lines.bad} lines of reports could not be read")
        if self.damaged:
            reading.problems.append("a line is too long; the rest of it was not read")
        if cut:
            reading.problems.append(f"the last line ({self.cut_at}) has no end: its score may be cut")
        reading.problems += self.found.problems()
        reading.signals = self.found.signals
        reading.data = {
            "reports": lines.reports,
            "worst": lines.worst,
            "report_count": lines.count,
            "signal_counts": self.found.counts,
        }
        return reading
