# SPDX-License-Identifier: Apache-2.0
"""Reader of nccl-tests output (text of versions 1.0 to 2.19, forks, `-N` cycles, JSON of `-J`) and NCCL's own lines.

Source: nccl-tests src/common.cu and src/util.cu, NCCL src/debug.cc.

`Reading.data`:
  runs: list of {collective, ranks, nodes (hosts in device list order), devices (rank, host, device, bdf), validated,
        rows [{line, size, count, type, redop, root, oop {time_us, algbw, busbw, wrong}, ip {...}}] (first and last
        kept), row_count, avg_busbw, avg_line, busbw_max_size (mean of both placements at the largest size, over all
        cycles), busbw_line, max_size, complete, verdict, out_of_bounds, network, cycles [{line, busbw, wrong}],
        params, ended, line}; bandwidths in GB/s (1e9), times in microseconds, sizes in bytes.
  network, nccl_version, job_ended (Slurm's cancel messages), signal_counts.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, ClassVar

from burnin.parsers.common import (
    LINE_LIMIT,
    Collector,
    Prefilter,
    bdf,
    finite,
    integer,
    number,
    peel,
    signal,
)
from burnin.parsers.joblines import FATAL, JobLines
from burnin.parsers.reading import Reading, Signal, Verdict

#: Rows of one run kept at its beginning and at its end; sums are exact.
KEEP_ROWS = 40
#: Runs, cycles and devices kept in a reading (24 h of 5 s iterations are 17 280).
KEEP_RUNS = 20_000
KEEP_DEVICES = 16_384
#: Largest JSON file that is read (bytes); nccl-tests writes some kB.
JSON_LIMIT = 64 << 20

#: Tests that have no in-place reference, so that their in-place #wrong is N/A by design.
NO_IN_PLACE = frozenset({"alltoall", "alltoallv", "sendrecv"})

_VERSION = re.compile(r"#?\s*nccl-tests version (?P<v>[\w.+-]+)(?:.*nccl-library=(?P<lib>\d+))?")
_STARTING = re.compile(r"#?\s*Collective test starting: (?P<c>\w+)")
_PARAMS = re.compile(r"#?\s*nThreads?:? (?P<n>\d+) nGpus:? (?P<g>\d+)\b")
_PARAM = {
    "min_bytes": re.compile(r"minBytes:? (\d+)"),
    "max_bytes": re.compile(r"maxBytes:? (\d+)"),
    "iters": re.compile(r"(?<!warmup )(?<!agg )iters: (\d+)"),
    "warmup": re.compile(r"warmup iters: (\d+)"),
    "validation": re.compile(r"validation: (\d+)"),
    "cycles": re.compile(r"run cycles: (\d+)"),
    "ranks": re.compile(r"nRanks:? (\d+)"),
    "gpus": re.compile(r"nGpus:? (\d+)"),
}
_DEVICE = re.compile(
    r"#?\s*Rank\s+(?P<rank>\d{1,7})\s+(?:Group\s+(?P<group>\d+)\s+)?(?:Pid\s+(?P<pid>\d+)\s+)?on\s+(?P<host>\S{1,253})\s+"
    r"device\s+(?P<dev>\d{1,3})\s+\[(?P<bus>[^\]]{1,40})\]\s*(?P<name>.*)"
)
_HEADER = re.compile(r"#?\s*(?:size|bytes)\s+(?:count|N)\s+type\b.*\bbusbw\b")
_UNITS = re.compile(r"#?\s*\(B\)\s+\(elements\).*\((?P<unit>us|ms)\)")
_SIDES = re.compile(r"(?:in-place.*out-of-place|out-of-place.*in-place)")
_OOB = re.compile(r"#?\s*Out of bounds values\s*:\s*(?P<n>\d+)\s*(?P<v>OK|FAILED)?\s*(?P<rest>.*)")
_AVG = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(?P<n>\S+)\s*(?P<v>OK|FAILED)?\s*(?P<rest>.*)")
_ERROR = re.compile(r"#\s*error: (?P<text>.*)")
_REDUCED = re.compile(r"#?\s*Reducing maxBytes to (?P<n>\d+) due to memory limitation")
_NETWORK_LINE = re.compile(r"([^\s:]{1,253}):\d+:\d+ \[\d+\] NCCL INFO Using network ([\w./+-]+)\Z")
#: What an INFO message may be glued to, or say itself, that counts at any time, and what counts only before the rows.
_GLUED = re.compile(r"WARN|/Socket|Test |\*\*\* |CUDA ")
_SET_UP = re.compile(r"Using network|No device found")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?\s*$")
_VALUE = re.compile(r"[-+]?(?:\d|\.\d|nan|inf|NaN|N/A)", re.IGNORECASE)
_ROW_HEAD = re.compile(r"\s*\d{1,20}\s+\d{1,20}\s+[a-z]\w*(?:\s|$)")

# Column layout: (names of one side's columns, names of both sides' columns, trailing columns, in-place first).
_DEFAULT_SIDE = ("time", "algbw", "busbw", "#wrong")


class _Run:
    """One header's worth of output."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.collective: str | None = None
        self.version: str | None = None
        self.params: dict[str, int] = {}
        self.has_params = False
        self.headers = 0
        self.rows_since_header = 0
        self.header_cycles = 0
        self.devices: list[dict[str, Any]] = []
        self.hosts: dict[str, None] = {}
        self.ranks_seen: set[int] = set()
        self.duplicate_rank = False
        self.max_rank = -1
        self.elided = False
        self.side: tuple[str, ...] = _DEFAULT_SIDE
        self.two_sides = True
        self.in_place_first = False
        self.unit_ms = False
        self.rows_first: list[dict[str, Any]] = []
        self.rows_last: list[dict[str, Any]] = []
        self.row_count = 0
        self.any_busbw = False
        self.padding = 0
        self.padding_pending = 0
        self.max_size = -1
        self.max_sum = 0.0
        self.max_n = 0
        self.max_line: int | None = None
        self.wrong_total = 0.0
        self.wrong_rows = 0
        self.oop_numeric = 0
        self.oop_na = 0
        self.ip_numeric = 0
        self.ip_na = 0
        self.bad_rows = 0
        self.cycles: list[dict[str, Any]] = []
        self.cycle: dict[str, Any] | None = None
        self.cycle_count = 0
        self.short_cycles = 0
        self.last_size = -1
        self.oob: int | None = None
        self.oob_verdict: str | None = None
        self.avg: float | None = None
        self.avg_line: int | None = None
        self.avg_text: str | None = None
        self.avg_verdict: str | None = None
        self.end_line: int | None = None
        self.errors: list[str] = []
        self.network: str | None = None
        self.reduced: int | None = None
        self.cut_row: dict[str, Any] | None = None
        self.fatal = False
        self.invalid = False
        self.json = False
        self.ended: str | None = None
        self.validation_text: bool | None = None

    @property
    def fresh(self) -> bool:
        """Return whether nothing after the parameter lines was seen."""
        return not (self.has_params or self.headers or self.row_count or self.avg_line or self.devices)

    @property
    def counts_wrong(self) -> bool:
        """Return whether the last column counts wrong elements (`#wrong`), not a deviation."""
        return self.side[-1] not in ("error", "res")

    def ranks(self) -> int | None:
        """Return the number of ranks, as far as the text tells."""
        if "ranks" in self.params:
            return self.params["ranks"]
        return self.max_rank + 1 if self.max_rank >= 0 else None

    def sweep_ended(self) -> bool:
        """Return whether at least one whole sweep up to the largest size was seen."""
        top = self.params.get("max_bytes")
        if top is None:
            return self.max_size > 0
        # Sizes are rounded down to whole elements of every rank, so the last one may be a little below the top.
        return self.max_size * max(2, self.params.get("factor", 2)) > top

    def in_place_by_design(self) -> bool:
        """Return whether N/A in place is this test's normal form."""
        if self.collective is not None:
            return self.collective.removesuffix("_perf") in NO_IN_PLACE
        return self.ip_numeric == 0 and self.oop_numeric > 0

    def validated(self) -> bool:
        """Return whether every row was checked."""
        if not self.row_count or self.params.get("validation") == 0 or self.validation_text is False:
            return False
        if not self.oop_na and not self.oop_numeric and self.in_place_first:
            return self.ip_numeric > 0 and not self.ip_na  # only in place was run
        if self.oop_na or not self.oop_numeric:
            return self.two_sides is False and self.oop_numeric > 0 and not self.oop_na
        return not self.ip_na or (self.ip_numeric == 0 and self.in_place_by_design())

    def verdict(self) -> tuple[Verdict, bool, list[str]]:
        """Return (verdict, complete, why not pass)."""
        why: list[str] = []
        endless = self.params.get("cycles") == 0
        complete = self.avg_line is not None and self.oob is not None and self.avg is not None
        if endless and self.avg_line is None:
            complete = self.ended == "time limit" and self.sweep_ended()
            if not complete:
                why.append("the endless run (-N 0) was not ended by the time limit, or no whole cycle was seen")
        elif not complete:
            if self.avg_line is not None and self.oob is None:
                why.append("the line 'Out of bounds values' is missing")
            elif self.avg_line is not None:
                why.append(f"the average on line {self.avg_line} is not a number")
            else:
                why.append("the end mark 'Avg bus bandwidth' is missing: the run did not finish or the text is cut")
        failed = self.wrong_rows > 0 or (self.oob or 0) > 0 or self.oob_verdict == "FAILED" or self.fatal
        failed |= self.avg_verdict == "FAILED"
        if failed:
            return "fail", complete, why
        if complete and not self.row_count:
            why.append("no result row was seen")
        elif complete and not self.validated():
            why.append("results were not checked for wrong elements (validation off, or N/A in every row)")
        if not endless and self.oob is not None and self.oob_verdict != "OK":
            why.append("the line 'Out of bounds values' has no OK")
        if self.errors:
            why.append(f"nccl-tests says: {self.errors[0]}")
        if self.invalid:
            why.append("the launch is not valid: every process ran alone, or ranks are named twice")
        if self.reduced is not None:
            why.append(f"the largest size was reduced to {self.reduced} bytes for lack of memory")
        if ("min_bytes" in self.params) != ("max_bytes" in self.params):
            why.append("the line of parameters is damaged: it names only one end of the sweep")
        if self.bad_rows:
            why.append(f"{self.bad_rows} result rows could not be read")
        if self.row_count and not self.any_busbw:
            why.append("bus bandwidth is 0 in every row: nothing was exchanged between GPUs")
        elif self.ranks() == 1:
            why.append("only one rank took part: nothing was exchanged, bus bandwidth is 0 by definition")
        if complete and not endless and self.row_count and not self.sweep_ended() and not why and self.reduced is None:
            why.append("rows up to the largest requested size are missing")
        if self.ranks_seen and self.max_rank + 1 != len(self.ranks_seen) and not self.elided:
            why.append(f"the device list names {len(self.ranks_seen)} of {self.max_rank + 1} ranks: lines are missing")
        expected = self.expected_total()
        if complete and self.short_cycles:
            why.append(f"{self.short_cycles} cycles have fewer rows than the sweep has sizes")
        if complete and expected is not None and self.row_count + self.padding < expected:
            why.append(f"{self.row_count} rows of at least {expected} were seen")
        return ("pass" if complete and not why else "unknown"), complete, why

    def _expected_rows(self) -> int | None:
        low, high, factor = (self.params.get(k, 0) for k in ("min_bytes", "max_bytes", "factor"))
        if low <= 0 or self.json:
            return None
        if factor < 2 or high < low:
            return None
        n = 0
        while low <= high and n < 200:
            n += 1
            low *= factor
        return n

    def expected_total(self) -> int | None:
        """Return the least number of rows of the whole run, or None if the text does not say."""
        expected = self._expected_rows()
        return None if expected is None else expected * max(1, self.params.get("cycles", 1))

    def to_dict(self, network: str | None) -> dict[str, Any]:
        """Return the record described in the module's docstring."""
        verdict, complete, why = self.verdict()
        usable = not self.invalid
        mean = finite(self.max_sum / self.max_n) if self.max_n and usable else None
        out: dict[str, Any] = {
            "collective": self.collective.removesuffix("_perf") if self.collective else None,
            "ranks": self.ranks(),
            "nodes": list(self.hosts),
            "validated": self.validated(),
            "rows": self.rows_first + self.rows_last,
            "row_count": self.row_count,
            "avg_busbw": finite(self.avg) if usable else None,
            "avg_line": self.avg_line,
            "busbw_max_size": mean,
            "busbw_line": self.max_line,
            "max_size": self.max_size if self.max_size > 0 else None,
            "complete": complete,
            "verdict": verdict,
            "why": why,
            "out_of_bounds": self.oob,
            "wrong_elements": finite(self.wrong_total),
            "network": self.network or network,
            "cycles": self.cycles if self.cycle_count > 1 or self.params.get("cycles", 1) != 1 else [],
            "cycle_count": max(1, self.cycle_count) if self.row_count else 0,
            "params": self.params,
            "line": self.line,
            "devices": self.devices,
        }
        if self.ended:
            out["ended"] = self.ended
        if self.cut_row:
            out["cut_row"] = self.cut_row
        if self.version:
            out["nccl_tests_version"] = self.version
        if self.errors:
            out["errors"] = self.errors
        return out


class Parser:
    """Reader of one nccl-tests log. Options: `expected_ranks` (of every run), `collective` (if the text has none)."""

    tool: ClassVar[str] = "nccl"
    line_limit: ClassVar[int] = 16 << 20  # a JSON document may be one line
    candidates: ClassVar[Prefilter] = Prefilter(
        boring=b" NCCL INFO ",
        sign=b"F",
        keep=(
            (b"W", b"WARN"),
            (b"S", b"/Socket"),
            (b"T", b"Test "),
            (b"*", b"*** "),
            (b"U", b"CUDA "),
            (b"E", b"srun: error: "),  # of a task that "Exited"
        ),
        seek=((b"U", b"Using network"), (b"T", b"No device found")),
        strange=b"#.",  # nccl-tests' own lines begin with the one, and every result has the other
    )

    def __init__(self, expected_ranks: int | None = None, collective: str | None = None) -> None:
        self.expected_ranks = expected_ranks
        self.collective = collective
        self.runs: list[_Run] = []
        self.dropped_runs = 0
        self.run: _Run | None = None
        self.job = JobLines()
        self.found = Collector()
        self.problems: list[str] = []
        self.pending: tuple[int, list[str]] | None = None
        self.version: str | None = None
        self.library: str | None = None
        self.starting: str | None = None
        self.tasks: set[int] = set()
        self.unfinished_headers = 0
        self.other_lines = 0
        self.skipped = 0  # lines of a big file that were not fed: NCCL's messages
        self.mine = 0
        self.damaged = False
        self.json_text: list[str] | None = None
        self.json_size = 0
        self.seen_text = False
        self.last_number = 0
        self.cut_at: int | None = None
        self.reduced: int | None = None

    # --------------------------------------------------------------------------------------------------- feeding

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line of the log."""
        self.last_number = number
        if self.json_text is not None:
            self._feed_json(line)
            return []
        if not self.seen_text:
            stripped = line.lstrip("\ufeff \t")
            if stripped.startswith("{"):
                self.json_text = []
                self._feed_json(line)
                return []
            self.seen_text = bool(stripped)
        if " NCCL INFO " in line and not _GLUED.search(line):
            # Big files are read without these lines, so they must say nothing here either.
            if not (self.watch() and _SET_UP.search(line)):
                self.job.nccl_lines += 1
                return []
            if self._known_network(line):
                return []
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
            self._problem(f"line {number} is longer than {LINE_LIMIT} characters; the rest of it was not read")
        text, prefix = peel(line)
        signals = self.job.scan(number, line, text, prefix)
        if signals or "NCCL " in line:
            self._job_signals(number, signals)
            if "NCCL " in text and "Avg bus" not in text:
                self._network()
                # A row whose first half stands before the message goes on after it.
                return self.found.extend(signals)
        signals += self._table_line(number, line, text, prefix.any_rank)
        return self.found.extend(signals)

    def watch(self) -> bool:
        """Say whether NCCL's set-up messages are expected: they stand between a run's parameters and its rows."""
        return self.run is None or self.run.row_count == 0

    def unterminated(self, number: int) -> None:
        """Note that the last line has no newline: a number on it may be cut."""
        self.cut_at = number

    def _problem(self, sentence: str) -> None:
        if len(self.problems) < 50:
            self.problems.append(sentence)

    def _job_signals(self, number: int, signals: list[Signal]) -> None:
        for s in signals:
            if s.kind in FATAL and self.run is not None and self.run.end_line is None:
                self.run.fatal = True
            if s.kind == "time_limit" and self.run is not None:
                self.run.ended = "time limit"
            elif s.kind in ("step_cancelled", "node_failure") and self.run is not None and self.run.ended is None:
                self.run.ended = str(s.detail.get("why") or s.kind.replace("_", " ")).lower()

    def _known_network(self, line: str) -> bool:
        """Return whether the line repeats a host's network: every rank of every run prints it, so be quick."""
        m = _NETWORK_LINE.match(line)
        if m is None or self.job.networks.get(m[1]) != m[2]:
            return False
        self.job.nccl_lines += 1
        self._network()
        return True

    def _network(self) -> None:
        if self.run is not None and self.run.end_line is None:
            self.run.network = self.job.network()

    def _start(self, number: int) -> _Run:
        if self.run is not None and self.run.end_line is None and not self.run.fresh:
            self.unfinished_headers += 1
        if len(self.runs) >= KEEP_RUNS:
            self.dropped_runs += 1
            if self.runs:
                # Judge before dropping: a bad run must not vanish; keep the first and the newest.
                dropped = self.runs.pop(-1)
                if dropped.verdict()[0] != "pass":
                    self.damaged = True
        self.run = _Run(number)
        self.run.version = self.version
        self.run.collective = self.starting or self.collective
        self.pending = None
        self.runs.append(self.run)
        return self.run

    def _table_line(self, line_no: int, line: str, text: str, rank: int | None) -> list[Signal]:
        stripped = text.strip()
        if not stripped or stripped == "#":
            return []
        c = stripped[0]
        head = stripped[1:].lstrip() if c == "#" else stripped
        first = head[:1]
        if first.isdigit() or first in "-.nN":
            out = self._row_line(line_no, line, text, rank)
            if out is not None:
                return out
        if first == "n" and (m := _VERSION.match(stripped)):
            self.mine += 1
            self.version = m["v"]
            self.library = m["lib"]
            self.starting = None
            self._start(line_no)
            return []
        if first == "C" and (m := _STARTING.match(stripped)):
            self.mine += 1
            self.starting = m["c"].removesuffix("_perf")
            run = self.run if self.run is not None and self.run.fresh and self.run.collective is None else None
            run = run or self._start(line_no)
            run.collective = self.starting
            return []
        if first == "n" and (m := _PARAMS.match(stripped)):
            self.mine += 1
            self._params(line_no, stripped, rank)
            return []
        if first == "R" and (m := _DEVICE.match(stripped)):
            self.mine += 1
            return self._device(line_no, line, m)
        if first in "sb" and (m := _HEADER.match(stripped)):
            self.mine += 1
            self._header(line_no, head)
            return []
        if first == "(" and (m := _UNITS.match(stripped)):
            if self.run is not None and m["unit"] == "ms":
                self.run.unit_ms = True
            return []
        if first in "io" and _SIDES.match(head):
            if self.run is not None and not self.run.row_count:
                self.run.in_place_first = head.startswith("in-place")
            self._in_place_first = head.startswith("in-place")
            return []
        if first == "O" and (m := _OOB.match(stripped)):
            self.mine += 1
            return self._out_of_bounds(line_no, line, m)
        if first == "A" and (m := _AVG.match(stripped)):
            self.mine += 1
            return self._average(line_no, line, m)
        if c == "#" and first == "e" and (m := _ERROR.match(stripped)):
            self.mine += 1
            if self.run is not None and m["text"].strip():
                self.run.errors.append(m["text"].strip()[:200])
            return []
        if first == "R" and (m := _REDUCED.match(stripped)):
            if self.run is not None and self.run.end_line is None:
                self.run.reduced = int(m["n"])
            else:
                self.reduced = int(m["n"])
            return []
        if head == "..." and c == "#" and self.run is not None:
            self.run.elided = True  # somebody left lines of the device list out, and says so
        self.other_lines += 1
        return []

    _in_place_first = False

    def _params(self, line_no: int, text: str, rank: int | None) -> None:
        run = self.run
        reuse = run is not None and run.fresh and not run.has_params and (run.version or run.collective)
        if run is None or not reuse or run.line < line_no - 50:
            if self.run is None or self.run.end_line is not None or not self.run.fresh:
                self.starting = None if self.run is not None and self.run.has_params else self.starting
            run = self._start(line_no)
        run.has_params = True
        if self.reduced is not None:
            run.reduced, self.reduced = self.reduced, None
        for key, pattern in _PARAM.items():
            if m := pattern.search(text):
                run.params[key] = int(m[1][:18])
        if m := re.search(r"step: (\d+)\s*\(factor\)", text):
            run.params["factor"] = int(m[1][:6])
        if rank is not None:
            self.tasks.add(rank)
            if len(self.tasks) > 1:
                run.invalid = True

    def _device(self, line_no: int, line: str, m: re.Match[str]) -> list[Signal]:
        run = self.run if self.run is not None and self.run.end_line is None else self._start(line_no)
        rank = int(m["rank"])
        out: list[Signal] = []
        if rank in run.ranks_seen and run.row_count == 0 and run.collective not in ("all",):
            if not run.duplicate_rank:
                out.append(
                    signal(
                        "invalid_launch", line_no, line, host=m["host"], detail={"why": f"rank {rank} is listed twice"}
                    )
                )
            run.duplicate_rank = run.invalid = True
        run.ranks_seen.add(rank)
        run.max_rank = max(run.max_rank, rank)
        if len(run.hosts) < KEEP_DEVICES:
            run.hosts.setdefault(m["host"])
        # Only the first run's list is kept in full: 24 h of runs repeat it thousands of times.
        if len(run.devices) < KEEP_DEVICES and len(self.runs) <= 50:
            run.devices.append(
                {"rank": rank, "host": m["host"], "device": int(m["dev"]), "bdf": _bus(m["bus"]), "line": line_no}
            )
        return out

    def _header(self, line_no: int, head: str) -> None:
        run = self.run
        if run is None or run.end_line is not None:
            run = self._start(line_no)
        elif run.headers and (run.row_count or run.headers):
            # The same header again without a footer between: next cycle of -N, or (no parameters) a trimmed log.
            if run.params.get("cycles", 1) == 1 and run.has_params and run.row_count == 0:
                run.invalid = True
            elif run.has_params or run.row_count:
                if not run.rows_since_header:
                    run.short_cycles += 1  # all rows of a cycle are missing
                self._end_cycle(run)
                run.header_cycles += 1
            else:
                run = self._start(line_no)
        run.headers += 1
        run.rows_since_header = 0
        tokens = head.split()
        first = next((i for i, t in enumerate(tokens) if t in ("time", "cputime")), None)
        if first is None:
            return
        rest = tokens[first:]
        second = next((i for i, t in enumerate(rest[1:], 1) if t in ("time", "cputime")), None)
        side = tuple(rest[:second]) if second is not None else tuple(rest)
        run.side = tuple("time" if t == "cputime" else t for t in side)
        run.two_sides = second is not None
        run.in_place_first = self._in_place_first
        if "res" in run.side:
            run.unit_ms = True  # 1.0 printed milliseconds
        run.cycle = None
        run.last_size = -1

    # ------------------------------------------------------------------------------------------------------ rows

    def _row_line(self, line_no: int, line: str, text: str, rank: int | None) -> list[Signal] | None:
        """Return the signals of a result row, [] for a part of one, None if the line is no row."""
        run = self.run
        text = _STAMP.sub("", text)
        tokens = text.split()
        if len(tokens) > 64:
            return None
        if self.pending is not None and all(_VALUE.match(t) for t in tokens) and not _ROW_HEAD.match(text):
            at, have = self.pending
            have = have + tokens
            self.pending = None
            done = self._row(at, line, have, run, partial=True)
            if done is None and len(have) < 32:
                self.pending = (at, have)
                return []
            return done if done is not None else []
        if not _ROW_HEAD.match(text):
            return None
        if run is None:
            run = self._start(line_no)
        if self.pending is not None:
            # The next row began before this one got its results.
            run.bad_rows += 1
            self.pending = None
        self.mine += 1
        done = self._row(line_no, line, tokens, run, partial=False)
        if done is None:
            self.pending = (line_no, tokens)
            return []
        return done

    def _row(self, line_no: int, line: str, tokens: list[str], run: _Run | None, partial: bool) -> list[Signal] | None:
        assert run is not None
        width = len(run.side)
        sides = 2 if run.two_sides else 1
        # Leading tokens: size count type [redop] [root]; then the two sides, read from the right.
        lead = len(tokens) - width * sides
        single = False
        if lead < 3:
            if run.in_place_first and 3 <= len(tokens) - width <= 5 and all(_VALUE.match(t) for t in tokens[-width:]):
                # MSCCL++ leaves the side that it did not run blank.
                lead, single = len(tokens) - width, True
            else:
                return None
        if lead > 5 or not all(_VALUE.match(t) for t in tokens[lead:]):
            run.bad_rows += 1
            return []
        size, count = integer(tokens[0]), integer(tokens[1])
        middle = tokens[3:lead]
        redop = next((t for t in middle if t[:1].isalpha()), None)
        root = next((t for t in middle if not t[:1].isalpha()), None)
        if size is None or count is None or (root is not None and integer(root) is None) or size > 1 << 60:
            run.bad_rows += 1
            return []
        one = self._side(run, tokens[lead : lead + width])
        two = None if single or sides == 1 else self._side(run, tokens[lead + width :])
        oop, ip = (two, one) if run.in_place_first else (one, two)
        return self._take_row(run, line_no, line, size, count, tokens[2], redop, root, oop, ip)

    @staticmethod
    def _side(run: _Run, tokens: list[str]) -> dict[str, Any]:
        cells = dict(zip(run.side, tokens, strict=False))
        time = number(cells.get("time"))
        wrong = cells["#wrong"] if "#wrong" in cells else cells.get(run.side[-1], "")
        return {
            "time_us": time * 1000.0 if time is not None and run.unit_ms else time,
            "algbw": number(cells.get("algbw")),
            "busbw": number(cells.get("busbw")),
            "wrong": number(wrong),
            "wrong_text": wrong,
        }

    def _take_row(
        self,
        run: _Run,
        line_no: int,
        line: str,
        size: int,
        count: int,
        type_: str,
        redop: str | None,
        root: str | None,
        oop: dict[str, Any] | None,
        ip: dict[str, Any] | None,
    ) -> list[Signal]:
        run.rows_since_header += 1
        if size == 0:
            # Padding where minBytes < element x ranks; it opens a sweep.
            run.padding += 1
            if run.cycle is not None and run.last_size > 0:
                Parser._end_cycle(run)
            run.padding_pending += 1
            return []
        out: list[Signal] = []
        if run.end_line is not None:
            # Rows after the footer: another copy's, or a header was lost. They belong to no known run.
            run.bad_rows += 1
        run.row_count += 1
        busbw = [s["busbw"] for s in (oop, ip) if s is not None and finite(s["busbw"]) is not None]
        if not busbw or any(s is not None and finite(s["busbw"]) is None for s in (oop, ip)):
            run.bad_rows += 1
        run.any_busbw |= any(b > 0 for b in busbw)
        wrong_here = 0.0
        for name, side in (("oop", oop), ("ip", ip)):
            if side is None:
                continue
            text = side.pop("wrong_text")
            wrong = side["wrong"]
            by_design = name == "ip" and run.collective in NO_IN_PLACE
            if wrong is None:
                if text.upper() != "N/A":
                    run.bad_rows += 1
                if name == "oop":
                    run.oop_na += 1
                else:
                    run.ip_na += 1
                continue
            if name == "oop":
                run.oop_numeric += 1
            else:
                run.ip_numeric += 1
            if math.isnan(wrong) or (run.counts_wrong and wrong > 0):
                if by_design and not run.counts_wrong:
                    continue
                wrong_here += finite(wrong) or 0.0
                run.wrong_rows += 1
                out.append(
                    signal(
                        "wrong_elements",
                        line_no,
                        line,
                        value=wrong,
                        detail={"size": size, "placement": name, "collective": run.collective},
                    )
                )
            side["wrong"] = finite(wrong)
        for side in (oop, ip):
            if side is not None:
                for key in ("time_us", "algbw", "busbw"):
                    side[key] = finite(side[key])
        run.wrong_total += wrong_here
        mean = sum(busbw) / len(busbw) if busbw else None
        # A sweep that starts again is the next cycle of -N (or another op/type of -o all, told apart by its words).
        words = (type_, redop, root)
        if run.cycle is None or (size <= run.last_size and run.cycle.get("_key") == words):
            self._end_cycle(run)
            run.cycle = {
                "_key": words,
                "line": line_no,
                "busbw": None,
                "wrong": 0.0,
                "_size": -1,
                "_rows": run.padding_pending,
            }
            run.padding_pending = 0
        run.last_size = size
        run.cycle["wrong"] += wrong_here
        run.cycle["_rows"] += 1
        if size > run.cycle["_size"]:
            run.cycle |= {"_size": size, "_n": 0, "_sum": 0.0, "line": line_no}
        if size == run.cycle["_size"] and mean is not None:
            run.cycle["_n"] += 1
            run.cycle["_sum"] += mean
        if size > run.max_size:
            run.max_size, run.max_sum, run.max_n, run.max_line = size, 0.0, 0, line_no
        if size == run.max_size and mean is not None:
            run.max_sum += mean
            run.max_n += 1
            run.max_line = line_no
        row: dict[str, Any] = {"line": line_no, "size": size, "count": count, "type": type_, "redop": redop}
        row |= {"root": integer(root) if root is not None else None, "oop": oop, "ip": ip}
        if len(run.rows_first) < KEEP_ROWS:
            run.rows_first.append(row)
        else:
            run.rows_last.append(row)
            if len(run.rows_last) > KEEP_ROWS:
                del run.rows_last[0]
        return out

    @staticmethod
    def _end_cycle(run: _Run, last: bool = False) -> None:
        cycle, run.cycle = run.cycle, None
        if cycle is None or not cycle.get("_n"):
            return
        expected = run._expected_rows()
        # The last cycle of an endless run is cut by the time limit, as it must be.
        if expected is not None and cycle["_rows"] < expected and not (last and run.params.get("cycles") == 0):
            run.short_cycles += 1
        run.cycle_count += 1
        if len(run.cycles) < KEEP_RUNS:
            busbw, wrong = finite(cycle["_sum"] / cycle["_n"]), finite(cycle["wrong"])
            record = {"line": cycle["line"], "busbw": busbw, "wrong": wrong}
            run.cycles.append(record | {"size": cycle["_size"]})

    # ---------------------------------------------------------------------------------------------------- footer

    def _finish_pending(self, run: _Run) -> None:
        if self.pending is not None:
            at, tokens = self.pending
            run.cut_row = {"line": at, "size": integer(tokens[0])}
            if run.end_line is None:
                run.bad_rows += 1
            self.pending = None

    def _out_of_bounds(self, line_no: int, line: str, m: re.Match[str]) -> list[Signal]:
        run = self.run if self.run is not None else self._start(line_no)
        if run.avg_line is not None:
            run = self._another_footer(run, line_no)
        self._finish_pending(run)
        if run.oob is not None:
            run.invalid = True
        run.oob = max(run.oob or 0, int(m["n"][:18]))
        run.oob_verdict = m["v"] if run.oob_verdict in (None, "OK") and not m["rest"].strip() else run.oob_verdict
        if run.oob > 0 or m["v"] == "FAILED":
            return [signal("out_of_bounds", line_no, line, value=float(run.oob))]
        return []

    def _average(self, line_no: int, line: str, m: re.Match[str]) -> list[Signal]:
        run = self.run if self.run is not None else self._start(line_no)
        if run.avg_line is not None:
            run = self._another_footer(run, line_no)
        self._finish_pending(run)
        self._end_cycle(run)
        run.avg = number(m["n"])
        run.avg_line = run.end_line = line_no
        run.avg_verdict = m["v"]
        if m["rest"].strip():
            run.avg = None
        if m["v"] == "FAILED":
            return [signal("below_limit", line_no, line, value=run.avg, unit="GB/s")]
        return []

    def _another_footer(self, run: _Run, line_no: int) -> _Run:
        """Handle a footer without a header: with open headers before it, copies of the test ran side by side."""
        new = self._start(line_no)
        if self.unfinished_headers > 0:
            for other in self.runs[-(self.unfinished_headers + 2) :]:
                other.invalid = True
        return new

    # ------------------------------------------------------------------------------------------------------ JSON

    def _feed_json(self, line: str) -> None:
        assert self.json_text is not None
        self.json_size += len(line) + 1
        if self.json_size <= JSON_LIMIT:
            self.json_text.append(line)
        elif not self.damaged:
            self.damaged = True
            self._problem(f"the JSON document is larger than {JSON_LIMIT} bytes; it was not read")

    def _finish_json(self) -> None:
        text = "\n".join(self.json_text or ()).lstrip("\ufeff \t\n")
        decoder = json.JSONDecoder(strict=False)
        at = 0
        while at < len(text):
            try:
                document, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if '"nccl_version"' in text or '"out_of_place"' in text:
                    self.mine += 1
                    run = self._start(1)
                    run.json = True
                    run.errors.append(f"the JSON document is cut or damaged ({str(error)[:80]})")
                else:
                    self._problem("the text begins like JSON and is none of nccl-tests")
                return
            self._json_run(document)
            while at < len(text) and text[at].isspace():
                at += 1

    def _json_run(self, doc: Any) -> None:
        if not isinstance(doc, dict) or not isinstance(doc.get("results"), list) or "config" not in doc:
            self._problem("a JSON document without nccl-tests' keys 'results' and 'config'")
            return
        self.mine += 1
        run = self._start(1)
        run.json = True
        args = doc.get("args")
        if run.collective is None and isinstance(args, list) and args and isinstance(args[0], str):
            name = args[0].rsplit("/", 1)[-1]
            if name.endswith("_perf"):
                run.collective = name.removesuffix("_perf")
        config = doc.get("config") if isinstance(doc.get("config"), dict) else {}
        assert isinstance(config, dict)
        wanted = {"minimum_bytes": "min_bytes", "maximum_bytes": "max_bytes", "iterations": "iters"}
        for key, name in (wanted | {"validation": "validation", "warmup_iters": "warmup", "ngpus": "gpus"}).items():
            value = config.get(key)
            if isinstance(value, bool | int | float) and math.isfinite(value):
                run.params[name] = int(value)
        run.has_params = True
        run.headers = 1
        for entry in _dicts(doc.get("devices")):
            rank, host = entry.get("rank"), entry.get("hostname")
            if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < 10_000_000:
                continue
            if rank in run.ranks_seen:
                run.invalid = True
            run.ranks_seen.add(rank)
            run.max_rank = max(run.max_rank, rank)
            if isinstance(host, str):
                run.hosts.setdefault(host[:253])
                device = entry.get("device") if isinstance(entry.get("device"), int) else None
                bus = _bus(str(entry.get("device_hex", "")))
                if len(run.devices) < KEEP_DEVICES:
                    run.devices.append({"rank": rank, "host": host[:253], "device": device, "bdf": bus, "line": 1})
        for result in _dicts(doc["results"]):
            self._json_row(run, result)
        self._end_cycle(run)
        bounds = doc.get("out_of_bounds")
        if isinstance(bounds, dict):
            run.oob = integer(str(bounds.get("count")))
            okay = str(bounds.get("okay")).lower()
            run.oob_verdict = {"true": "OK", "false": "FAILED"}.get(okay)
            if okay == "unchecked":
                run.validation_text = False
            if run.oob:
                self.found.add(signal("out_of_bounds", 1, f"out_of_bounds count {run.oob}", value=float(run.oob)))
        # Before 2.17.9 the key was spelt with one i too many.
        average = doc.get("average_bus_bandwidth", doc.get("average_bus_bandwidith"))
        if isinstance(average, dict) and doc.get("end_time"):
            run.avg = _json_number(average.get("bandwidth", average.get("bandwidith")))
            run.avg_line = run.end_line = 1
            if str(average.get("okay")).lower() == "false":
                run.avg_verdict = "FAILED"
                self.found.add(signal("below_limit", 1, f"average_bus_bandwidth {run.avg}", value=run.avg, unit="GB/s"))
        if not doc.get("end_time"):
            self._problem("the JSON document has no end_time: the run did not finish")
        errors = doc.get("errors")
        if isinstance(errors, list):
            run.errors.extend(str(e)[:200] for e in errors[:20] if e)
        version = doc.get("nccl_version")
        if version is not None:
            self.library = str(version)[:40]

    def _json_row(self, run: _Run, result: dict[str, Any]) -> None:
        size, count = integer(str(result.get("size"))), integer(str(result.get("count")))
        if size is None or count is None:
            run.bad_rows += 1
            return
        sides: list[dict[str, Any] | None] = []
        for name in ("out_of_place", "in_place"):
            side = result.get(name)
            if not isinstance(side, dict):
                sides.append(None)
                continue
            wrong = _json_number(side.get("nwrong"))
            sides.append(
                {
                    "time_us": _json_number(side.get("time", side.get("cpu_time"))),
                    "algbw": _json_number(side.get("alg_bw")),
                    "busbw": _json_number(side.get("bus_bw")),
                    "wrong": wrong,
                    "wrong_text": "N/A" if side.get("nwrong") is None else str(side.get("nwrong")),
                }
            )
        if sides[0] is None:
            run.bad_rows += 1
        redop = result.get("redop")
        signals = self._take_row(
            run,
            1,
            json.dumps(result)[:300],
            size,
            count,
            str(result.get("type"))[:20],
            str(redop).strip()[:20] if redop is not None else None,
            str(result.get("root", "")).strip()[:20] or None,
            sides[0],
            sides[1],
        )
        self.found.extend(signals)

    # ---------------------------------------------------------------------------------------------------- finish

    def finish(self) -> Reading:
        """Return the reading of the whole log."""
        if self.json_text is not None:
            self._finish_json()
        self.found.extend(self.job.finish())
        for run in self.runs:
            self._end_cycle(run, last=True)
        if self.run is not None:
            self._finish_pending(self.run)
            if self.cut_at is not None and self.run.avg_line == self.cut_at and not self.run.json:
                self.run.avg = None
                self._problem(f"the last line ({self.cut_at}) has no end: its number may be cut")
        self._check_launch()
        messages = self.job.nccl_lines + self.skipped
        nccl_only = messages > 0 and self.other_lines <= messages
        reading = Reading(self.tool, recognised=(bool(self.runs) and self.mine > 0) or nccl_only)
        records = []
        verdicts: list[Verdict] = []
        for i, run in enumerate(self.runs):
            verdict, _, why = run.verdict()
            verdicts.append(verdict)
            where = f"run {i + 1} (line {run.line}): " if len(self.runs) > 1 else ""
            for sentence in why:
                self._problem(where + sentence)
            if run.elided and run.max_rank + 1 != len(run.ranks_seen):
                self._problem(f"the device list names {len(run.ranks_seen)} of {run.max_rank + 1} ranks")
            records.append(run.to_dict(self.job.network()))
        reading.complete = bool(records) and all(r["complete"] for r in records) and not self.damaged
        if "fail" in verdicts or "out_of_bounds" in self.found.counts or "wrong_elements" in self.found.counts:
            reading.verdict = "fail"
        elif verdicts and all(v == "pass" for v in verdicts) and not self.damaged:
            reading.verdict = "pass"
        if not self.runs:
            self._problem(
                "only messages of NCCL itself were found, no test"
                if reading.recognised
                else "no line of nccl-tests was found"
            )
        if self.dropped_runs:
            self._problem(f"{self.dropped_runs} runs in the middle are counted and not listed")
        reading.problems = self.problems + self.found.problems()
        reading.signals = self.found.signals
        reading.data = {
            "runs": records,
            "network": self.job.network(),
            "nccl_version": self.library,
            "job_ended": self.job.ended,
            "signal_counts": self.found.counts,
        }
        return reading

    def _check_launch(self) -> None:
        for run in self.runs:
            ranks = run.ranks()
            if self.expected_ranks is not None and ranks is not None and ranks != self.expected_ranks:
                run.invalid = True
                text = f"{ranks} ranks took part, {self.expected_ranks} were expected"
                self.found.add(
                    signal("invalid_launch", run.line, text, value=float(ranks), limit=float(self.expected_ranks))
                )
            elif run.invalid and not run.duplicate_rank:
                text = "several copies of the test ran side by side (no MPI)"
                self.found.add(signal("invalid_launch", run.line, text, detail={"why": text}))


def _bus(text: str) -> str | None:
    """Return the PCI address of a device list entry: `0000:1b:00` in new versions, only the bus `0x1b` in old ones."""
    address = bdf(text)
    if address is not None:
        return address
    m = re.match(r"0x([0-9a-fA-F]{1,2})\Z", text.strip())
    return f"0000:{m[1].lower():>02}:00" if m else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _json_number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    return number(value) if isinstance(value, str) else None
