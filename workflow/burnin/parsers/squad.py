# SPDX-License-Identifier: Apache-2.0
"""Reader of BERT question-answering logs: exact match (EM) and F1 of SQuAD, in percent (0 to 100).

Sources: NeMo 1 examples/nlp/question_answering (qa_model), NVIDIA's BERT example (run_squad.py), HuggingFace run_qa.

`Reading.data`:
  exact_match, f1: the newest pair (percent), with exact_match_line, f1_line; version: "1.1" | "2.0" | null
  history: [{exact_match, f1, line, split}] of every evaluation (at most 500)
  stopped; files: the data files the log names; network, job_ended, signal_counts.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, ClassVar

from burnin.parsers.common import LINE_LIMIT, NUMBER, Collector, Prefix, number, peel
from burnin.parsers.joblines import FATAL, JobLines
from burnin.parsers.reading import Reading, Signal

_METRIC = re.compile(
    rf"\b(?P<split>val|test|validation|eval)[ _](?P<what>exact[ _]match|f1)\s*[:=]?\s+(?P<v>{NUMBER})(?=\s|,|\Z)",
    re.IGNORECASE,
)
_METRIC_CUT = re.compile(r"\b(?:val|test|validation|eval)[ _](?:exact[ _]match|f1)\b", re.IGNORECASE)
_JSON = re.compile(r"\{[^{}]{0,4000}\"(?:exact_match|exact|eval_exact_match)\"[^{}]{0,4000}\}")
_HF = re.compile(rf"^\s*eval_(?P<what>exact_match|exact|f1)\s+=\s+(?P<v>{NUMBER})\s*\Z")
_HF_END = re.compile(r"^\s*eval_samples\s+=\s+\d+\s*\Z")
_STOPPED = re.compile(r"`?Trainer\.fit`? stopped: (?P<why>.{1,80})")
_MAX = re.compile(r"max_(?:epochs|steps)=\d+`? reached")
_HINT = re.compile(r"qa_model|question_answering|run_squad|run_qa\.py|SQuAD")
_FILES = re.compile(r"(?:train|dev)-v(?P<v>1\.1|2\.0)\.json")


class Parser:
    """Reader of one question-answering log."""

    tool: ClassVar[str] = "squad"

    def __init__(self) -> None:
        self.job = JobLines()
        self.found = Collector()
        self.problems: list[str] = []
        self.damaged = False
        self.mine = 0
        self.fatal = False
        self.history: list[dict[str, Any]] = []
        self.total = 0
        self.open: dict[str, Any] | None = None
        self.stopped: str | None = None
        self.versions: set[str] = set()
        self.cut_at: int | None = None
        self.last_line = 0
        self.json_end = False

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line of the log."""
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
        text, prefix = peel(line)
        out = self.job.scan(number, line, text, prefix)
        if any(s.kind in FATAL for s in out):
            self.fatal = True
        if "f1" in text or "exact" in text or "F1" in text:
            self._scores(number, text, prefix)
        if "stopped: " in text and (m := _STOPPED.search(text)):
            self.stopped = m["why"].strip()
        if "eval_samples" in text and _HF_END.match(text) and self.open is not None:
            self.json_end = True
        if _HINT.search(text):
            self.mine += 1
        for m in _FILES.finditer(text):
            self.versions.add(m["v"])
        return self.found.extend(out)

    def unterminated(self, number: int) -> None:
        """Note that the last line has no newline: a figure on it may be cut."""
        self.cut_at = number

    def _problem(self, sentence: str) -> None:
        if len(self.problems) < 50:
            self.problems.append(sentence)

    def _scores(self, line_no: int, text: str, prefix: Prefix) -> None:
        seen = False
        for m in _METRIC.finditer(text):
            seen = True
            self.mine += 1
            what = "f1" if m["what"].lower() == "f1" else "exact_match"
            self._score(line_no, what, number(m["v"]), m["split"].lower(), prefix)
        if not seen and (m2 := _HF.match(text)):
            seen = True
            self.mine += 1
            what = "f1" if m2["what"] == "f1" else "exact_match"
            self._score(line_no, what, number(m2["v"]), "eval", prefix)
        if not seen and "exact" in text and (m3 := _JSON.search(text)):
            seen = self._json(line_no, m3[0], prefix)
        if not seen and _METRIC_CUT.search(text):
            self.mine += 1
            self._problem(f"the score on line {line_no} could not be read")
            self.damaged = True

    def _json(self, line_no: int, text: str, prefix: Prefix) -> bool:
        try:
            doc = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(doc, dict):
            return False
        self.mine += 1
        if "exact" in doc and "exact_match" not in doc:
            self.versions.add("2.0")
        for keys, what in ((("exact_match", "exact", "eval_exact_match"), "exact_match"), (("f1", "eval_f1"), "f1")):
            value = next((doc[k] for k in keys if k in doc), None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._score(line_no, what, float(value), "eval", prefix)
        self.json_end = True
        return True

    def _score(self, line_no: int, what: str, value: float | None, split: str, prefix: Prefix) -> None:
        if value is None:
            return
        if value < 0:
            return  # ranks other than 0 log -1
        self.last_line = line_no
        record = self.open
        if (
            record is not None
            and record[what] is not None
            and line_no - record["line"] <= 200
            and record["split"] == split
        ):
            other = "f1" if what == "exact_match" else "exact_match"
            if record[other] is None:
                # Another rank's copy of the same evaluation: the largest counts.
                if math.isfinite(value):
                    record[what] = max(record[what], value)
                return
        if record is None or record[what] is not None or record["split"] != split:
            record = {"exact_match": None, "f1": None, "line": line_no, "split": split}
            record |= {"exact_match_line": None, "f1_line": None}
            self.open = record
            self.total += 1
            self.history.append(record)
            if len(self.history) > 500:
                del self.history[250]
        record[what] = value if math.isfinite(value) else None
        record[f"{what}_line"] = line_no
        if not math.isfinite(value):
            record["nan"] = True

    def finish(self) -> Reading:
        """Return the reading of the whole log."""
        self.found.extend(self.job.finish())
        reading = Reading(self.tool, recognised=self.mine > 0)
        last = self.history[-1] if self.history else None
        whole = last is not None and last["exact_match"] is not None and last["f1"] is not None
        # Several ranks log one evaluation one after the other: the pair of the largest figures is rank 0's.
        finished = self.json_end or bool(self.stopped and _MAX.search(self.stopped))
        cut = self.cut_at is not None and self.cut_at == self.last_line
        reading.complete = whole and finished and not self.damaged and not cut
        nan = any(r.get("nan") for r in self.history)
        strange = [r for r in self.history for k in ("exact_match", "f1") if r[k] is not None and r[k] > 100]
        swapped = whole and last is not None and last["exact_match"] > last["f1"] + 1e-6
        if not reading.recognised:
            self._problem("no line of a question-answering run was found")
        elif last is None:
            self._problem("the run shows no exact match and no F1: it did not reach an evaluation")
        elif not whole:
            self._problem("the last evaluation shows only one of exact match and F1")
        elif not finished:
            self._problem("the run does not say that it finished: scores may be of an earlier epoch")
        if cut:
            self._problem(f"the last line ({self.cut_at}) has no end: its figure may be cut")
        if strange:
            self._problem(f"a score on line {strange[0]['line']} is above 100 %")
        if swapped:
            self._problem("exact match is larger than F1, which cannot be: the text is damaged")
        if self.fatal or nan:
            reading.verdict = "fail"
        elif reading.complete and not strange and not swapped and not self.problems:
            reading.verdict = "pass"
        reading.signals = self.found.signals
        reading.problems = self.problems + self.found.problems()
        reading.data = {
            "exact_match": last["exact_match"] if last else None,
            "f1": last["f1"] if last else None,
            "exact_match_line": last["exact_match_line"] if last else None,
            "f1_line": last["f1_line"] if last else None,
            "version": sorted(self.versions)[0] if len(self.versions) == 1 else None,
            "history": self.history,
            "evaluations": self.total,
            "stopped": self.stopped,
            "network": self.job.network(),
            "job_ended": self.job.ended,
            "signal_counts": self.found.counts,
        }
        return reading
