# SPDX-License-Identifier: Apache-2.0
"""Reader of HPL output: netlib, Intel, NVIDIA (20.10 to 26), AMD, HPL-MxP, and the HPL section of hpcc.

Source: netlib hpl 2.3 testing/ptest/HPL_pdtest.c and HPL_pddriver.c, and published outputs of the vendors' builds.

`Reading.data`:
  runs: list of {n, nb, p, q, tv, time_s, gflops, gflops_per_gpu (printed, or total/(P*Q)), line, residual,
        residual_line, residual_verdict "PASSED" | "FAILED" | null, start_time, end_time, file}
  finished: {tests, passed, failed, skipped, unchecked} summed over all footers, or null
  sections: number of whole outputs in the text; mxp, hpcc: bool; threshold; banner; progress: the newest progress
  line {percent, gflops, line}; gpu_warnings: HPL's own warnings about single GPUs; job_ended; signal_counts.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from burnin.parsers.common import (
    LINE_LIMIT,
    NUMBER,
    Collector,
    Prefix,
    bdf,
    finite,
    number,
    peel,
    signal,
)
from burnin.parsers.joblines import FATAL, JobLines
from burnin.parsers.reading import Reading, Signal

#: Runs and sections kept in a reading; more are counted.
KEEP_RUNS = 20_000

_BANNER = re.compile(r"(HPLinpack \d\S*.{0,80}|HPL-NVIDIA \S+.{0,80}|HPL-MxP\S* .{0,60}|HPL-AI.{0,60})")
_HEADER = re.compile(r"T/V\s+(?:\S+\s+)?N\s+NB\s+P\s+Q\s+Time\s+Gflops")
_ROW = re.compile(
    r"(?P<tv>W[RC]{1,2}\w*)\s+(?:(?P<swp>[A-Za-z]\w*|\d+)\s+)?(?P<n>\d{1,12})\s+(?P<nb>\d{1,7})\s+(?P<p>\d{1,7})\s+(?P<q>\d{1,7})\s+"
    rf"(?P<t>{NUMBER})\s+(?P<gf>{NUMBER})(?:\s*\(\s*(?P<per>{NUMBER})\s*\))?\s*\Z"
)
_ROW_CUT = re.compile(r"W[RC]{1,2}\d\w*\s+\d")
_RESIDUAL = re.compile(r"\|\|Ax-b\|\|_oo\s*/\s*\(.{1,120}\)\s*=\s*(?P<rest>.*)")
_RESIDUAL_REST = re.compile(r"(?P<r>\S+)\s*\.{3,}\s*(?P<v>PASSED|FAILED)\s*\Z")
_FINISHED = re.compile(r"Finished\s+(?P<n>\d{1,9}) tests with the following results")
_COUNT = re.compile(
    r"(?P<n>\d{1,9}) tests? (?P<what>completed and passed residual checks|completed and failed residual checks"
    r"|completed without checking|skipped because of illegal input values)"
)
_WHAT = {
    "completed and p": "passed",
    "completed and f": "failed",
    "completed witho": "unchecked",
    "skipped because": "skipped",
}
_END = re.compile(r"End of Tests\.")
_THRESHOLD = re.compile(rf"scaled residuals? (?:are|is) less than\s+(?P<n>{NUMBER})")
_ERROR = re.compile(r"HPL ERROR(?: from process #\s*(?P<proc>\d+))?,? on line (?P<line>\d+) of function (?P<fn>\w+)")
_ERROR_TEXT = re.compile(r">>>\s*(?P<text>.*?)\s*(?:<<<|\Z)")
_TIMES = re.compile(r"HPL\w*\(\)\s+(?P<what>start|end) time\s+(?P<t>\S.{5,60})")
_PROG_NV = re.compile(rf"Prog=\s*(?P<pc>{NUMBER})%.{{0,200}}?\bGF=\s*(?P<gf>{NUMBER})")
_PROG_NETLIB = re.compile(
    rf"Column=\d+\s+Fraction=\s*(?P<f>{NUMBER})(?P<pc>%?)\s+(?:Kernel=\s*\S+\s+)?(?P<u>[MG])flops=\s*(?P<gf>{NUMBER})"
)
_WARMUP = re.compile(r"Warm-up done")
_GPU_WARNING = re.compile(
    r"!!!! WARNING: (?:Rank|RANK): (?P<rank>\d+)\s*:?\s+(?:HOST: )?(?P<host>[\w.-]{1,253})\s*:?"
    r"\s+GPU:? (?P<bus>[0-9a-fA-F:.]+)\s*(?P<rest>.*)"
)
_MXP_BANNER = re.compile(r"\*{3,}\s*HPL[ -]MxP Result\s*\*{3,}|\*{3,}\s*HPL-AI Result\s*\*{3,}")
_MXP_GFLOPS = re.compile(rf"(?P<lu>LU )?\s*GFLOPS = (?P<gf>{NUMBER}), per GPU =\s*(?P<per>{NUMBER})")
_PARAMETER = re.compile(r"\s*(?P<k>N|NB|P|Q)\s+:\s+(?P<v>\d{1,12})\s*\Z")
_HPCC = re.compile(r"(?P<w>Begin|End) of HPL section")
_HPCC_TEXT = re.compile(r"HPC Challenge Benchmark|(?:Begin|End) of \w+ section|HPL_Tflops=")
_SUMMARY = re.compile(rf"HPL_Tflops=(?P<n>{NUMBER})")


class _Section:
    """One whole output: runs up to its footer."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.runs = 0
        self.run_records: list[dict[str, Any]] = []
        self.footer: dict[str, int] | None = None
        self.tests: int | None = None
        self.ended = False
        self.mxp = False
        self.mxp_banners = 0
        self.errors: list[str] = []
        self.bad = 0
        self.failed = 0
        self.passed = 0
        self.hpcc_open = False
        self.banner = False
        self.started = False  # progress was seen
        self.old_residuals = 0  # of HPL 1.0, which prints three a run, and all must pass

    def complete(self) -> bool:
        """Return whether the end mark of this output was seen."""
        if self.mxp:
            return self.mxp_banners >= 2
        return self.tests is not None and self.ended and not self.hpcc_open

    def good(self) -> bool:
        """Return whether every test was run, checked and passed, and rows, residuals and footer agree."""
        if self.errors or self.bad or self.failed or not self.complete() or not self.runs:
            return False
        if self.mxp:
            return self.passed == self.runs
        if self.old_residuals and self.old_residuals != 3 * self.runs:
            return False
        footer = self.footer or {}
        if {"passed", "failed", "skipped"} - set(footer) or footer.get("unchecked"):
            return False
        if footer["failed"] or footer["skipped"]:
            return False
        return footer["passed"] == self.tests == self.runs == self.passed


class Parser:
    """Reader of one HPL output. Option: `gpus` (number of GPUs, if not P*Q)."""

    tool: ClassVar[str] = "hpl"

    def __init__(self, gpus: int | None = None) -> None:
        self.gpus = gpus
        self.sections: list[_Section] = []
        self.section: _Section | None = None
        self.runs: list[dict[str, Any]] = []
        self.run: dict[str, Any] | None = None
        self.dropped = 0
        self.job = JobLines()
        self.found = Collector()
        self.problems: list[str] = []
        self.mine = 0
        self.damaged = False
        self.fatal = False
        self.pending_residual: tuple[int, str, str] | None = None
        self.pending_lines = 0
        self.pending_error: tuple[int, str, dict[str, Any]] | None = None
        self.banner: str | None = None
        self.threshold: float | None = None
        self.progress: dict[str, Any] | None = None
        self.warmup_done = False
        self.gpu_warnings: list[dict[str, Any]] = []
        self.parameters: dict[str, int] = {}
        self.hpcc = False
        self.hpcc_text = False  # the whole output of hpcc, of which HPL is one section
        self.hpcc_ended = False
        self.summary_tflops: float | None = None
        self.start_time: str | None = None
        self.totals: dict[str, int] = {}

    # --------------------------------------------------------------------------------------------------- feeding

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line of the output."""
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
        text, prefix = peel(line)
        out = self.job.scan(number, line, text, prefix)
        if self.section is None or not self.section.complete():
            self.fatal |= any(s.kind in FATAL for s in out)
        out += self._line(number, line, text, prefix)
        return self.found.extend(out)

    def _problem(self, sentence: str) -> None:
        if len(self.problems) < 50:
            self.problems.append(sentence)

    def _open(self, line_no: int) -> _Section:
        """Return the section that a new result belongs to."""
        if self.section is None or self.section.ended or (self.section.mxp and self.section.mxp_banners >= 2):
            self.section = _Section(line_no)
            self.sections.append(self.section)
            if len(self.sections) > KEEP_RUNS:
                # Sums stay exact: a dropped section that was not good spoils the whole reading.
                old = self.sections.pop(0)
                self.damaged |= not old.good()
        return self.section

    def _new_output(self, line_no: int) -> None:
        """Begin a new section at a banner, unless it is the second banner of one that has just begun."""
        s = self.section
        if s is not None and not s.ended:
            fresh = not (s.runs or s.tests is not None or s.errors or s.started or s.mxp)
            if fresh and line_no - s.line <= 60:
                s.banner = True
                return
            self._close_residual()
            self.run = None
            self.section = None  # the one before never ended
        self._open(line_no).banner = True

    def _line(self, number: int, line: str, text: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        if self.pending_residual is not None and (done := self._join_residual(number, text)) is not None:
            return done
        if self.pending_error is not None:
            out += self._error_text(number, line, text)
        if "||Ax-b||" in text and (m := _RESIDUAL.search(text)):
            return out + self._residual(number, line, m["rest"])
        stripped = text.strip()
        if not stripped:
            return out
        c = stripped[0]
        if c == "W":
            if m := _ROW.match(stripped):
                return out + self._row(number, m, prefix)
            if _ROW_CUT.match(stripped):
                self.mine += 1
                self._open(number).bad += 1
                self.run = None
                self._problem(f"the result row on line {number} could not be read")
                return out
            if _WARMUP.match(stripped):
                self.progress, self.warmup_done = None, True
                return out
        if c == "T" and _HEADER.match(stripped):
            self.mine += 1
            self._close_residual()
            self._open(number)
            self.run = None
            return out
        if c == "F" and (m := _FINISHED.match(stripped)):
            self.mine += 1
            self._close_residual()
            section = self._open(number)
            if section.tests is not None:
                # A second footer without an end between them: text of two runs, or lost lines.
                section.bad += 1
            section.tests = int(m["n"])
            section.footer = section.footer or {}
            return out
        if c.isdigit() and (m := _COUNT.match(stripped)):
            self._count(m)
            return out
        if c == "E" and _END.match(stripped):
            if self.section is not None and self.section.tests is not None:
                self.mine += 1
                self.section.ended = True
                self.run = None
            return out
        if "GFLOPS = " in text and (m := _MXP_GFLOPS.search(text)):
            self._mxp_gflops(number, m)
            return out
        if c == "*" and _MXP_BANNER.search(stripped):
            self.mine += 1
            self._mxp_banner(number)
            return out
        if not self.hpcc_text and ("section" in text or "HPC" in text or "HPL_T" in text) and _HPCC_TEXT.search(text):
            self.hpcc_text = True
        if "HPL" in text:
            out += self._hpl_words(number, line, stripped)
        elif c in "NPQ" and (m := _PARAMETER.match(text)):
            self.parameters[m["k"]] = int(m["v"])
        if "flops=" in text or "Prog=" in text:
            self._progress(number, text)
        elif "scaled residual" in text and (m := _THRESHOLD.search(text)):
            self.threshold = finite(float(m["n"]))
        elif "!!!! WARNING" in text and (m := _GPU_WARNING.search(text)):
            out += self._gpu_warning(number, line, m)
        elif "Warm-up done" in text:
            self.progress, self.warmup_done = None, True
        elif "Memory allocation failed" in text and self.pending_error is None and not out:
            self.mine += 1
            self._open(number).errors.append(stripped[:200])
            out.append(signal("hpl_error", number, line, prefix, detail={"message": stripped[:200]}))
        return out

    # ------------------------------------------------------------------------------------------------------ rows

    def _row(self, number: int, m: re.Match[str], prefix: Prefix) -> list[Signal]:
        self.mine += 1
        self._close_residual()
        section = self._open(number)
        gflops, time_s = finite(float(m["gf"])), finite(float(m["t"]))
        p, q = int(m["p"]), int(m["q"])
        per = finite(float(m["per"])) if m["per"] else None
        gpus = self.gpus or p * q
        if per is None and gflops is not None and gpus > 0:
            per = gflops / gpus
        run: dict[str, Any] = {
            "tv": m["tv"],
            "n": int(m["n"]),
            "nb": int(m["nb"]),
            "p": p,
            "q": q,
            "time_s": time_s,
            "gflops": gflops,
            "gflops_per_gpu": per,
            "line": number,
            "residual": None,
            "residual_line": None,
            "residual_verdict": None,
        }
        if prefix.file:
            run["file"] = prefix.file
        if prefix.host:
            run["host"] = prefix.host
        if self.start_time:
            run["start_time"], self.start_time = self.start_time, None
        if gflops is None or time_s is None or gflops <= 0 or p * q == 0:
            section.bad += 1
            self._problem(f"the result row on line {number} has no usable figures")
        self._add_run(section, run)
        return []

    def _add_run(self, section: _Section, run: dict[str, Any]) -> None:
        section.runs += 1
        self.run = run
        if len(self.runs) < KEEP_RUNS:
            self.runs.append(run)
        else:
            self.dropped += 1

    # ------------------------------------------------------------------------------------------------- residuals

    def _residual(self, number: int, line: str, rest: str) -> list[Signal]:
        self.mine += 1
        self._close_residual()
        if m := _RESIDUAL_REST.match(rest.strip()):
            return self._take_residual(number, line, m["r"], m["v"])
        # Mailers and huge numbers wrap the line, so that the verdict stands on the next one.
        self.pending_residual = (number, line, rest.strip())
        self.pending_lines = 0
        return []

    def _join_residual(self, number: int, text: str) -> list[Signal] | None:
        assert self.pending_residual is not None
        at, line, rest = self.pending_residual
        stripped = text.strip()
        if not stripped:
            return []
        self.pending_lines += 1
        joined = f"{rest} {stripped}" if rest.endswith(".") or stripped[0] == "." else f"{rest}{stripped}"
        if len(joined) < 500 and (
            (m := _RESIDUAL_REST.match(joined)) or (m := _RESIDUAL_REST.match(f"{rest} {stripped}"))
        ):
            self.pending_residual = None
            return self._take_residual(at, f"{line} {stripped}", m["r"], m["v"])
        if (
            self.pending_lines >= 2
            or _HEADER.match(stripped)
            or "||" in stripped
            or not re.match(r"[\d.PFnN-]", stripped)
        ):
            self._close_residual()
            return None
        self.pending_residual = (at, line, joined)
        return []

    def _close_residual(self) -> None:
        if self.pending_residual is None:
            return
        at, _, _ = self.pending_residual
        self.pending_residual = None
        self._open(at).bad += 1
        self._problem(f"the residual line {at} has no verdict")

    def _take_residual(self, number_: int, line: str, text: str, verdict: str) -> list[Signal]:
        section = self._open(number_)
        value = number(text)
        if "||b||" not in line.replace("|| b ||", "||b||"):
            section.old_residuals += 1
        run = self.run
        if run is None:
            # Inside HPL-MxP's block the residual stands before the figures; elsewhere a row was lost.
            if section.mxp:
                run = self._mxp_run(number_)
            else:
                section.bad += 1
                self._problem(f"the residual on line {number_} belongs to no result row")
                run = {}
        worst = run.get("residual_verdict") == "FAILED"
        first = run.get("residual_verdict") is None
        if not worst:
            run["residual"] = finite(value)
            run["residual_line"] = number_
            run["residual_verdict"] = verdict
        if value is None:
            section.bad += 1
            self._problem(f"the residual on line {number_} is no number")
        elif verdict == "PASSED" and (
            not math.isfinite(value) or (self.threshold is not None and 0 < self.threshold <= value)
        ):
            section.bad += 1
            self._problem(f"the residual on line {number_} is {text} and yet PASSED: the text contradicts itself")
        if verdict == "FAILED":
            if not worst:
                section.failed += 1
                if not first:
                    section.passed -= 1
            detail = {k: run[k] for k in ("n", "p", "q", "file") if run.get(k) is not None}
            host = run.get("host")
            return [
                signal("residual_failed", number_, line, host=host, value=value, limit=self.threshold, detail=detail)
            ]
        if first:
            section.passed += 1
        return []

    def _count(self, m: re.Match[str]) -> None:
        section = self.section
        if section is None or section.tests is None:
            return
        assert section.footer is not None
        key = _WHAT[m["what"][:15]]
        section.footer[key] = section.footer.get(key, 0) + int(m["n"])

    # ---------------------------------------------------------------------------------------------------- errors

    def _hpl_words(self, number: int, line: str, text: str) -> list[Signal]:
        out: list[Signal] = []
        if m := _ERROR.search(text):
            self.mine += 1
            detail: dict[str, Any] = {"function": m["fn"], "source_line": int(m["line"][:9])}
            if m["proc"]:
                detail["process"] = int(m["proc"][:9])
            out += self._close_error()
            self.pending_error = (number, line, detail)
            if ">>>" in text:
                out += self._error_text(number, line, text)
            return out
        if (m := _TIMES.search(text)) is not None:
            if m["what"] == "start":
                self.start_time = m["t"].strip()
                if self.run is not None and "start_time" not in self.run and "end_time" not in self.run:
                    self.run["start_time"], self.start_time = self.start_time, None
            elif self.run is not None:
                self.run["end_time"] = m["t"].strip()
        if m := _BANNER.search(text):
            self.mine += 1
            self._new_output(number)
            if self.banner is None or self.banner.startswith("HPLinpack"):
                self.banner = m[1].strip(" =*")
        if m := _HPCC.match(text):
            self.hpcc = True
            self.mine += 1
            if m["w"] == "Begin":
                self._open(number).hpcc_open = True
            else:
                self.hpcc_ended = True
                for section in self.sections:
                    section.hpcc_open = False
        if m := _SUMMARY.match(text):
            self.summary_tflops = finite(float(m["n"]))
        return out

    def _error_text(self, number: int, line: str, text: str) -> list[Signal]:
        if not text.strip():
            return []
        assert self.pending_error is not None
        m = _ERROR_TEXT.search(text)
        if m is None and ">" not in text:
            # peel() takes ">>> " for a mail quotation.
            m = re.match(r"(?P<text>.*?)\s*(?:<<<|\Z)", text.strip())
        at, first, detail = self.pending_error
        self.pending_error = None
        message = m["text"] if m else text.strip()
        self._open(at).errors.append(message[:200])
        return [signal("hpl_error", at, f"{first.rstrip()} {line.strip()}", detail=detail | {"message": message[:200]})]

    def _close_error(self) -> list[Signal]:
        if self.pending_error is None:
            return []
        at, line, detail = self.pending_error
        self.pending_error = None
        self._open(at).errors.append("HPL ERROR")
        return [signal("hpl_error", at, line, detail=detail)]

    def _gpu_warning(self, number_: int, line: str, m: re.Match[str]) -> list[Signal]:
        detail: dict[str, Any] = {}
        for key, pattern in (
            ("clock_mhz", r"Clock:\s*(\d+) MHz"),
            ("temperature_c", r"Temp:\s*(\d+) C"),
            ("power_w", r"Power:\s*(\d+) W"),
            ("gpu_bw", r"GPU_BW .*?(\d+)\s*\Z"),
        ):
            if f := re.search(pattern, m["rest"][:200].strip()):
                detail[key] = float(f[1])
        address = bdf(m["bus"])
        if len(self.gpu_warnings) < 200:
            self.gpu_warnings.append(
                {"host": m["host"], "rank": int(m["rank"][:7]), "bdf": address, "line": number_, **detail}
            )
        rank = int(m["rank"][:7])
        return [signal("hpl_gpu_warning", number_, line, host=m["host"], rank=rank, bdf=address, detail=detail)]

    # -------------------------------------------------------------------------------------------- progress, MxP

    def _progress(self, number_: int, text: str) -> None:
        if m := _PROG_NV.search(text):
            self.mine += 1
            self._open(number_).started = True
            self.progress = {"percent": finite(float(m["pc"])), "gflops": finite(float(m["gf"])), "line": number_}
        elif m := _PROG_NETLIB.search(text):
            self.mine += 1
            self._open(number_).started = True
            fraction, rate = float(m["f"]), float(m["gf"])
            percent = fraction if m["pc"] else fraction * 100.0
            gflops = rate / 1000.0 if m["u"] == "M" else rate
            self.progress = {"percent": finite(percent), "gflops": finite(gflops), "line": number_}

    def _mxp_banner(self, line_no: int) -> None:
        section = self._open(line_no)
        if section.runs and not section.mxp and (section.tests is not None):
            section.ended = True
            section = self._open(line_no)
        section.mxp = True
        section.mxp_banners += 1
        if section.mxp_banners == 1:
            self.run = None

    def _mxp_run(self, line_no: int) -> dict[str, Any]:
        section = self._open(line_no)
        if self.run is None:
            run: dict[str, Any] = {
                "tv": "MxP",
                "n": self.parameters.get("N"),
                "nb": self.parameters.get("NB"),
                "p": self.parameters.get("P"),
                "q": self.parameters.get("Q"),
                "time_s": None,
                "gflops": None,
                "gflops_per_gpu": None,
                "line": line_no,
                "residual": None,
                "residual_line": None,
                "residual_verdict": None,
            }
            self._add_run(section, run)
        assert self.run is not None
        return self.run

    def _mxp_gflops(self, line_no: int, m: re.Match[str]) -> None:
        self.mine += 1
        section = self._open(line_no)
        if not section.mxp:
            # The banner that opens the block was lost.
            section.mxp = True
            section.bad += 1
        run = self._mxp_run(line_no)
        gflops, per = finite(float(m["gf"])), finite(float(m["per"]))
        if m["lu"]:
            run["lu_gflops"] = gflops  # without the iterative solver: not the result
            return
        run["gflops"], run["gflops_per_gpu"], run["line"] = gflops, per, line_no

    # ---------------------------------------------------------------------------------------------------- finish

    def finish(self) -> Reading:
        """Return the reading of the whole output."""
        self.found.extend(self._close_error())
        self._close_residual()
        self.found.extend(self.job.finish())
        if self.hpcc_text and not self.hpcc_ended:
            for section in self.sections:
                section.hpcc_open = True
        reading = Reading(self.tool, recognised=self.mine > 0)
        sections = [s for s in self.sections if s.runs or s.tests is not None or s.errors or s.mxp or s.bad]
        if sections:
            # A banner without anything after it is a run that died early.
            known = {id(s) for s in sections}
            sections = [s for s in self.sections if id(s) in known or s.banner or s.started]
        no_figure = any(r["gflops"] is None for r in self.runs if r["tv"] == "MxP")
        finished: dict[str, int] | None = None
        for i, section in enumerate(sections):
            where = f"output {i + 1} (line {section.line}): " if len(sections) > 1 else ""
            if section.mxp and no_figure:
                section.bad += 1
            if section.tests is not None:
                finished = finished or {"tests": 0, "passed": 0, "failed": 0, "skipped": 0, "unchecked": 0}
                finished["tests"] += section.tests
                for key, n in (section.footer or {}).items():
                    finished[key] += n
            self._explain(section, where)
        if not sections:
            if not reading.recognised:
                self._problem("no line of HPL was found")
            else:
                self._problem("no result row was found: the run did not finish, or its output went to another file")
        reading.complete = bool(sections) and all(s.complete() for s in sections) and not self.damaged
        footer_failed = any((s.footer or {}).get("failed") for s in sections)
        if self.found.counts.get("residual_failed") or footer_failed or self.fatal:
            reading.verdict = "fail"
        elif sections and all(s.good() for s in sections) and not self.damaged:
            reading.verdict = "pass"
        reading.signals = self.found.signals
        reading.problems = self.problems + self.found.problems()
        reading.data = {
            "runs": self.runs,
            "finished": finished,
            "sections": len(sections),
            "mxp": any(s.mxp for s in sections),
            "hpcc": self.hpcc,
            "threshold": self.threshold,
            "banner": self.banner,
            "progress": self.progress,
            "gpu_warnings": self.gpu_warnings,
            "job_ended": self.job.ended,
            "network": self.job.network(),
            "signal_counts": self.found.counts,
        }
        if self.summary_tflops is not None:
            reading.data["summary_tflops"] = self.summary_tflops
        if self.dropped:
            reading.data["runs_not_listed"] = self.dropped
        if not reading.recognised:
            reading.verdict = "unknown"  # whatever else stands in it, it says nothing about HPL
        return reading

    def _explain(self, section: _Section, where: str) -> None:
        footer = section.footer or {}
        for text in section.errors[:5]:
            self._problem(f"{where}HPL ERROR: {text}")
        if section.mxp:
            if section.mxp_banners < 2:
                self._problem(f"{where}the second banner 'HPL MxP Result' is missing: the text is cut")
            return
        if section.tests is None:
            self._problem(
                f"{where}the footer 'Finished ... tests' is missing: the run did not finish or the text is cut"
            )
            return
        if not section.ended:
            self._problem(f"{where}the end mark 'End of Tests.' is missing")
        if section.hpcc_open:
            self._problem(f"{where}'End of HPL section' is missing")
        if footer.get("skipped"):
            self._problem(f"{where}{footer['skipped']} tests were skipped: they were not run")
        if footer.get("unchecked"):
            self._problem(f"{where}{footer['unchecked']} tests completed without checking the residual")
        missing = (
            {"passed", "failed", "skipped"} - set(footer) - ({"passed", "failed"} if "unchecked" in footer else set())
        )
        if missing:
            self._problem(f"{where}the footer does not say how many tests {' / '.join(sorted(missing))}")
        if section.old_residuals and section.old_residuals != 3 * section.runs:
            self._problem(f"{where}{section.old_residuals} residual lines where HPL 1.0 prints three a run")
        if section.runs != section.tests:
            self._problem(f"{where}{section.runs} result rows for {section.tests} tests")
        elif section.passed + section.failed != section.runs and not footer.get("unchecked"):
            self._problem(f"{where}{section.runs} result rows and {section.passed + section.failed} residual verdicts")
