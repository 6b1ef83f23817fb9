# SPDX-License-Identifier: Apache-2.0
"""Reader of training logs: NeMo 1 progress bars, NeMo 2, Megatron-LM, Megatron-Bridge, and what PyTorch adds to them.

Sources: NeMo nemo/lightning/pytorch/callbacks/progress_printer.py; Megatron-LM megatron/training/training.py and
megatron/core/rerun_state_machine.py; Megatron-Bridge train_utils.py; PyTorch Lightning's tqdm bar.

`Reading.data`:
  framework: "nemo2" | "megatron" | "nemo1" | null
  steps: {count, first, last, max_steps, step_time_median_s, step_time_first_quarter_s, step_time_last_quarter_s}:
  of the last run in the text; steps are counted as the log counts them (NeMo 2 from 0, Megatron from 1); the first
  record after every start is left out of the times, because it holds compilation
  step_series: at most 2000 of {step, step_time_s, loss, line}
  segments: the runs in the text: {line, first, last, count, max_steps, complete, loss_first, loss_last,
  consumed_first}
  loss_first, loss_last, consumed_samples_last, global_step_last, global_batch_size, tflops_per_gpu_median
  checkpoints: {iteration, duration_s, line, finalized, path}; resumed_from: {step, line, path} or null
  watchdog: rank -> newest state PyTorch told; stopped: why the trainer says it stopped, or null
  network, job_ended, signal_counts.
"""

from __future__ import annotations

import math
import re
from array import array
from statistics import median
from typing import Any, ClassVar

from burnin.parsers.common import LINE_LIMIT, Collector, Prefix, finite, integer, number, peel, signal
from burnin.parsers.joblines import FATAL, JobLines
from burnin.parsers.reading import Reading, Signal
from burnin.parsers.straggler import StragglerLines

#: Points of the thinned step series, runs in one text, checkpoints: kept at most.
SERIES = 2000
KEEP_SEGMENTS = 1000
KEEP_CHECKPOINTS = 5000
#: Step times kept for exact medians (8 bytes each).
KEEP_TIMES = 2_000_000
#: Part of the records that may be missing or unreadable (lines of ranks that ran into each other) in a passed log.
MISSING_SHARE = 0.01

_NEMO2 = re.compile(r"Training epoch (?P<e>\d{1,9}), iteration (?P<i>\d{1,12})/(?P<n>\d{1,12})\s*\|(?P<rest>.*)")
_NEMO2_CUT = re.compile(r"Training epoch \d")
_MEGATRON = re.compile(r"iteration\s+(?P<i>\d{1,12})/\s*(?P<n>\d{1,12})\s*\|(?P<rest>.*)")
_NEMO1 = re.compile(
    r"Epoch (?P<e>\d{1,9}):\s+(?P<pc>\d{1,3})%\|[^|]{0,400}\|\s*(?P<i>\d{1,12})/(?P<n>\d{1,12}) \[(?P<el>[\d:?]{1,20})"
    r"(?:<(?P<left>[\d:?]{1,20}))?,\s*(?P<rate>[\d.?]{1,20})\s?(?P<unit>it/s|s/it)(?:, (?P<rest>[^\]]{0,2000}))?"
)
_FIELD_LOSS = ("reduced_train_loss", "lm loss", "train_loss", "loss")
_FIELD_TIME = ("train_step_timing in s", "train_step_timing")
_NEMO_LOG = re.compile(r"\[NeMo [IWE] \d{4}-\d\d-\d\d")

_CKPT_SAVE = re.compile(
    r"Global Checkpoint Save\s*:\s*Rank\s*:\s*(?P<r>\d+)\s*:\s*(?:Iteration\s*:\s*(?P<i>\d+)\s*:\s*)?"
    r"Start time\s*:\s*(?P<t>[\d.]+)s?\s*:\s*Save duration\s*:\s*(?P<d>[\d.eE+-]+)s"
)
_CKPT_LOAD = re.compile(r"Global Checkpoint Load\s*:.{0,120}?Time spent in load_checkpoint\s*:\s*(?P<d>[\d.eE+-]+)s")
_CKPT_ASYNC = re.compile(r"Scheduled async checkpoint save for (?P<p>\S{1,500})")
_CKPT_ASYNC_DONE = re.compile(
    r"Async checkpoint save for step (?P<i>\d+) \((?P<p>[^)]{1,500})\) finalized successfully"
)
_CKPT_BEGIN = re.compile(r"saving checkpoint at iteration\s+(?P<i>\d+) to (?P<p>\S{1,500})")
_CKPT_END = re.compile(r"successfully saved checkpoint (?:at|from) iteration\s+(?P<i>\d+)(?: to (?P<p>\S{1,500}))?")
_CKPT_TIMER = re.compile(r"save-checkpoint\s*\.{3,}:\s*\((?P<a>[\d.]+),\s*(?P<b>[\d.]+)\)")
_CKPT_FAILED = re.compile(
    r"No space left on device|Disk quota exceeded|Stale file handle|Input/output error|CheckpointException"
    r"|(?i:(?:failed|unable|could not|error) (?:to |while |in )?(?:sav|writ|finali[sz])\w* .{0,40}checkpoint)"
    r"|(?i:checkpoint .{0,60}(?:save|write|finali[sz]ation) failed)"
)
_STEP_IN_PATH = re.compile(r"(?:step=|iter_0*|global_step)(?P<i>\d{1,12})")
_RESUME = re.compile(
    r"(?P<how>Restored all states from the checkpoint at|Restoring states from the checkpoint path at"
    r"|successfully loaded checkpoint from) (?P<p>\S{1,500})(?: \[[^\]]*\])?(?: at iteration (?P<i>\d+))?"
)
_SCRATCH = re.compile(
    r"will not load any checkpoints and will start from random|could not find the metadata file"
    r"|no checkpoints? found.{0,200}[Tt]raining from scratch|There were no checkpoints found"
)
_STOPPED = re.compile(r"`?Trainer\.fit`? stopped: (?P<why>`?[\w=.]+`? .{0,80}|.{1,80})")
_DONE = re.compile(
    r"\[after training is done\] datetime|\[exiting program .{0,80}\]|exiting program (?:at|after) .{0,60}"
)
_MAX_REACHED = re.compile(r"max_(?:steps|epochs)=-?\d+`? reached")
_RERUN = re.compile(
    r"Unexpected result (?P<what>\S{1,40}) on rank (?P<rank>\d+) at iteration #(?P<i>\d+) invocation #\d+"
    r"(?: \(message='(?P<msg>[^']{0,200})'\))?"
)
_RERUN_KIND = re.compile(r"Possible (?P<what>transient|persistent) error")
_RERUN_WHERE = re.compile(
    r"Rank (?P<rank>\d+), node (?P<node>[\w.-]{1,253}), device (?P<dev>\d+), iteration #?(?P<i>\d+)"
)
_VALIDATION = re.compile(r"validation loss at (?:iteration\s+(?P<i>\d+)|the end of training.{0,60}?) \| (?P<rest>.*)")
_BRIDGE_STEP = re.compile(r"Step Time : (?P<s>[\d.]+)s GPU utilization: (?P<t>[\d.]+)\s?(?:MODEL_)?TFLOP/s/GPU")
_QA = re.compile(r"val exact match|test exact match|exact_match\"|qa_model[.: ]|question_answering")
_START = re.compile(
    r"Experiments will be logged at|\[before the start of training step\]|training \.\.\.\s*$"
    r"|setting training iterations to"
)

_TEXT_GATE = re.compile(
    r"Epoch|iteration|heckpoint|Trainer|NeMo|Unexpected result|Possible|Rank |device|quota|handle|Input/output"
    r"|Step Time|validation loss|datetime|exiting|exact.match|metadata|Experiments|training \.\.\."
)


class _Series:
    """A thinned record of steps: never more than `SERIES` points, evenly spread, the newest always there."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self.stride = 1
        self.n = 0
        self.last: dict[str, Any] | None = None

    def add(self, point: dict[str, Any]) -> None:
        """Add one point."""
        self.last = point
        if self.n % self.stride == 0:
            self.points.append(point)
            if len(self.points) >= SERIES:
                self.points = self.points[::2]
                self.stride *= 2
        self.n += 1

    def to_list(self) -> list[dict[str, Any]]:
        """Return the points, oldest first."""
        if self.last is not None and self.points and self.points[-1] is not self.last:
            return [*self.points, self.last]
        return self.points


class _Segment:
    """One run of the trainer in the text."""

    def __init__(self, line: int, style: str) -> None:
        self.line = line
        self.style = style
        self.first: int | None = None
        self.last: int | None = None
        self.last_line = line
        self.count = 0
        self.max_steps: int | None = None
        self.times = array("d")
        self.gaps: dict[int, int] = {}  # step distance -> how often
        self.rank: int | None = None  # the rank that prints the records, if lines carry it
        self.unreadable = 0
        self.complete = False
        self.resumed = False
        self.epoch: int | None = None
        self.had_loss = False
        self.loss_first: float | None = None
        self.loss_last: float | None = None
        self.consumed_first: float | None = None
        self.recent: list[float] = []

    def missing(self) -> int:
        """Return how many records seem to be missing: distances larger than the usual one."""
        if not self.gaps:
            return 0
        stride = max(self.gaps.items(), key=lambda g: (g[1], -g[0]))[0]
        return sum(n * ((gap - 1) // stride) for gap, n in self.gaps.items() if gap > stride)

    def quarter(self, first: bool) -> float | None:
        """Return the median step time of the first or the last quarter of the run (seconds)."""
        times = self.times[1:] if len(self.times) > 1 else self.times
        n = max(1, len(times) // 4)
        if not times:
            return None
        return median(times[:n] if first else times[-n:])

    def median(self) -> float | None:
        """Return the median step time without the first record (seconds)."""
        times = self.times[1:] if len(self.times) > 1 else self.times
        return median(times) if times else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "line": self.line,
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "max_steps": self.max_steps,
            "complete": self.complete,
            "loss_first": self.loss_first,
            "loss_last": self.loss_last,
            "consumed_first": self.consumed_first,
        }


class Parser:
    """Reader of one training log. Option: `max_steps` (configured; the log's own total is used otherwise)."""

    tool: ClassVar[str] = "nemo"

    def __init__(self, max_steps: int | None = None) -> None:
        self.max_steps = max_steps
        self.job = JobLines()
        self.straggler = StragglerLines()
        self.found = Collector()
        self.problems: list[str] = []
        self.damaged = False
        self.mine = 0
        self.segments: list[_Segment] = []
        self.segment: _Segment | None = None
        self.segment_count = 0
        self.framework: str | None = None
        self.series = _Series()
        self.loss_first: float | None = None
        self.loss_last: float | None = None
        self.consumed: float | None = None
        self.global_step: int | None = None
        self.batch: int | None = None
        self.tflops = array("d")
        self.checkpoints: list[dict[str, Any]] = []
        self.by_iteration: dict[int, dict[str, Any]] = {}
        self.async_seen = False
        self.sync_open: dict[str, Any] | None = None
        self.load_seconds: float | None = None
        self.resumed: dict[str, Any] | None = None
        self.resume_pending = False
        self.stopped: str | None = None
        self.fatal_after_start = False
        self.fatal_line: int | None = None
        self.validation: list[dict[str, Any]] = []
        self.qa = False
        self.rerun: tuple[int, str, int] | None = None
        self.bridge_times = 0
        self.cut_at: int | None = None
        self.nan_lines = 0

    # --------------------------------------------------------------------------------------------------- feeding

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line (or one piece of a progress bar line) of the log."""
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
        text, prefix = peel(line)
        out = self.job.scan(number, line, text, prefix)
        for s in out:
            if s.kind in FATAL:
                self.fatal_after_start = True
                self.fatal_line = self.fatal_line or number
        out += self.straggler.scan(number, line, text, prefix)
        if _TEXT_GATE.search(text):
            out += self._line(number, line, text, prefix)
        return self.found.extend(out)

    def unterminated(self, number: int) -> None:
        """Note that the last line has no newline: figures on it may be cut."""
        self.cut_at = number

    def _problem(self, sentence: str) -> None:
        if len(self.problems) < 50:
            self.problems.append(sentence)

    def _line(self, number_: int, line: str, text: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        if "iteration" in text:
            if m := _NEMO2.search(text):
                return self._nemo2(number_, line, m, prefix)
            if _NEMO2_CUT.search(text):
                self._unreadable(number_)
                return out
            if m := _MEGATRON.search(text):
                return self._megatron(number_, line, m, prefix)
        elif _NEMO2_CUT.search(text):
            self._unreadable(number_)
            return out
        if "Epoch " in text and "%|" in text:
            for m in _NEMO1.finditer(text):
                out += self._nemo1(number_, line, m)
            # Error text may be glued to the bar; the scanners above have read it already.
            if out or "Epoch" in text[:40]:
                return out
        if "heckpoint" in text or "metadata" in text:
            out += self._checkpoint(number_, line, text, prefix)
        if _CKPT_FAILED.search(text):
            out.append(signal("checkpoint_failed", number_, line, prefix))
        if "stopped: " in text and (m := _STOPPED.search(text)):
            self.mine += 1
            self.stopped = m["why"].strip()
        elif _DONE.search(text):
            self.mine += 1
            self.stopped = text.strip()[:120]
        if "Step Time" in text and (m := _BRIDGE_STEP.search(text)):
            self.mine += 1
            self.bridge_times += 1
            self._tflops(number(m["t"]))
        if "rror" in text or "Unexpected" in text or "Rank " in text:
            out += self._rerun(number_, line, text)
        if "validation loss at" in text and (m := _VALIDATION.search(text)):
            self._validation(number_, m)
        if _NEMO_LOG.search(text):
            self.mine += 1
        if not self.qa and _QA.search(text):
            self.qa = True
        if _START.search(text) and self.segment is not None and self.segment.count:
            # A trainer starts anew: the next record opens a new run even if its number goes on.
            self.segment = None
            self.stopped = None
        return out

    # ------------------------------------------------------------------------------------------------------ steps

    def _open(self, line_no: int, style: str, step: int, rank: int | None = None) -> _Segment:
        segment = self.segment
        if segment is not None and segment.last is not None and step < segment.last and rank in (None, segment.rank):
            segment = None
        if segment is None or segment.style != style:
            segment = _Segment(line_no, style)
            segment.resumed = self.resume_pending
            self.resume_pending = False
            self.segment = segment
            self.segment_count += 1
            if len(self.segments) < KEEP_SEGMENTS:
                self.segments.append(segment)
            else:
                self.segments[-1] = segment
        return segment

    def _unreadable(self, line_no: int) -> None:
        self.mine += 1
        if self.segment is not None:
            self.segment.unreadable += 1

    def _record(
        self,
        line_no: int,
        line: str,
        style: str,
        step: int,
        last: int,
        fields: dict[str, str],
        time_s: float | None,
        prefix: Prefix,
    ) -> list[Signal]:
        """Take one step record: `last` is the number that the last step will have."""
        self.mine += 1
        self.framework = style
        out: list[Signal] = []
        segment = self._open(line_no, style, step, prefix.any_rank)
        if segment.rank is None:
            segment.rank = prefix.any_rank
        if segment.last is not None and (step == segment.last or segment.rank != prefix.any_rank):
            # Another rank prints the same step; only what it says of its loss may be new.
            return self._loss(line_no, line, segment, step, fields, prefix)
        segment.count += 1
        segment.max_steps = last
        if segment.first is None:
            segment.first = step
            if self.resumed is not None and self.resumed.get("step") is None:
                self.resumed["step"] = step
        if segment.last is not None and style != "nemo1":
            gap = step - segment.last
            if gap in segment.gaps or len(segment.gaps) < 1000:
                segment.gaps[gap] = segment.gaps.get(gap, 0) + 1
        segment.last = step
        segment.last_line = line_no
        if step >= last:
            segment.complete = True
        if time_s is not None and math.isfinite(time_s) and len(segment.times) < KEEP_TIMES:
            segment.times.append(time_s)
        out += self._loss(line_no, line, segment, step, fields, prefix)
        loss_text = next((fields[k] for k in _FIELD_LOSS if k in fields), None)
        loss = finite(number(loss_text))
        if (value := finite(number(fields.get("consumed_samples", fields.get("consumed samples"))))) is not None:
            self.consumed = value
            if segment.consumed_first is None:
                segment.consumed_first = value
        if (batch := integer(fields.get("global_batch_size", fields.get("global batch size")))) is not None:
            self.batch = batch
        global_step = integer(fields.get("global_step"))
        if style == "nemo1":
            self.global_step = step  # the bar rounds global_step to 3 digits
        else:
            self.global_step = global_step if global_step is not None else step
        for key in ("TFLOPS_per_GPU", "throughput per GPU (TFLOP/s/GPU)", "tflops_per_sec_per_gpu"):
            if key in fields:
                self._tflops(number(fields[key]))
        self.series.add({"step": step, "step_time_s": finite(time_s), "loss": loss, "line": line_no})
        return out

    def _loss(
        self, line_no: int, line: str, segment: _Segment, step: int, fields: dict[str, str], prefix: Prefix
    ) -> list[Signal]:
        out: list[Signal] = []
        key = next((k for k in _FIELD_LOSS if k in fields), None)
        detail: dict[str, Any] = {"step": step}
        if key is None:
            if segment.style == "megatron" and segment.had_loss:
                skipped = integer(fields.get("number of skipped iterations"))
                if skipped is None:
                    segment.unreadable += 1
                elif skipped == 0:
                    # Megatron prints the loss only if it compares as a number, so a NaN loss makes it vanish.
                    self.nan_lines += 1
                    return [signal("loss_nan", line_no, line, prefix, detail=detail | {"what": "lm loss is missing"})]
            elif segment.style == "nemo2":
                segment.unreadable += 1
            return out
        value = number(fields[key])
        if value is None:
            segment.unreadable += 1
            return out
        segment.had_loss = True
        if not math.isfinite(value):
            self.nan_lines += 1
            return [signal("loss_nan", line_no, line, prefix, value=value, detail=detail)]
        norm = number(fields.get("grad norm", fields.get("grad_norm")))
        if norm is not None and not math.isfinite(norm):
            self.nan_lines += 1
            out.append(signal("loss_nan", line_no, line, prefix, detail=detail | {"what": "grad norm"}))
        if (nans := integer(fields.get("number of nan iterations"))) is not None and nans > 0:
            self.nan_lines += 1
            out.append(signal("loss_nan", line_no, line, prefix, detail=detail | {"what": f"{nans} nan iterations"}))
        if self.loss_first is None:
            self.loss_first = value
        if segment.loss_first is None:
            segment.loss_first = value
        self.loss_last = segment.loss_last = value
        if len(segment.recent) >= 8:
            usual = median(segment.recent)
            if value > usual + max(2.0, 0.5 * abs(usual)):
                out.append(signal("loss_jump", line_no, line, prefix, value=value, detail=detail | {"before": usual}))
        segment.recent.append(value)
        del segment.recent[:-16]
        return out

    def _nemo2(self, line_no: int, line: str, m: re.Match[str], prefix: Prefix) -> list[Signal]:
        fields = _fields(m["rest"])
        time_s = next((number(fields[k]) for k in _FIELD_TIME if k in fields), None)
        if time_s is None:
            # A record without its time is a cut or damaged one.
            self._open(line_no, "nemo2", int(m["i"]), prefix.any_rank).unreadable += 1
        return self._record(line_no, line, "nemo2", int(m["i"]), int(m["n"]), fields, time_s, prefix)

    def _megatron(self, line_no: int, line: str, m: re.Match[str], prefix: Prefix) -> list[Signal]:
        fields = _fields(m["rest"])
        ms = number(fields.get("elapsed time per iteration (ms)"))
        seconds = ms / 1000.0 if ms is not None else number(fields.get("elapsed time per iteration (s)"))
        if seconds is None:
            self._open(line_no, "megatron", int(m["i"]), prefix.any_rank).unreadable += 1
        return self._record(line_no, line, "megatron", int(m["i"]), int(m["n"]), fields, seconds, prefix)

    def _nemo1(self, line_no: int, line: str, m: re.Match[str]) -> list[Signal]:
        fields = {}
        for part in (m["rest"] or "").split(", "):
            key, eq, value = part.partition("=")
            if eq:
                fields[key.strip()] = value.strip()
        step, last, epoch = int(m["i"]), int(m["n"]), int(m["e"])
        rate = number(m["rate"])
        time_s = number(fields.get("train_step_timing in s", fields.get("train_step_timing")))
        if time_s is None and rate is not None and rate > 0:
            time_s = rate if m["unit"] == "s/it" else 1.0 / rate
        segment = self.segment
        if segment is not None and segment.style == "nemo1":
            if segment.epoch == epoch and segment.last == step:
                # The bar was drawn again for the same step: only newer figures on it count.
                return self._loss_again(line_no, line, segment, step, fields)
            if segment.epoch is not None and epoch > segment.epoch:
                segment.last = None  # counting starts again with every epoch
        if step == 0:
            self.mine += 1
            return []
        out = self._record(line_no, line, "nemo1", step, last, fields, time_s, Prefix())
        assert self.segment is not None
        self.segment.epoch = epoch
        self.segment.complete = False  # an epoch's end is not the trainer's; see `stopped`
        return out

    def _loss_again(
        self, line_no: int, line: str, segment: _Segment, step: int, fields: dict[str, str]
    ) -> list[Signal]:
        value = next((number(fields[k]) for k in _FIELD_LOSS if k in fields), None)
        if value is not None and not math.isfinite(value) and self.nan_lines == 0:
            self.nan_lines += 1
            return [signal("loss_nan", line_no, line, value=value, detail={"step": step})]
        if value is not None and math.isfinite(value):
            self.loss_last = value
        return []

    def _tflops(self, value: float | None) -> None:
        # Bridge printed 0 for models it could not count: unknown.
        if value is not None and math.isfinite(value) and value > 0 and len(self.tflops) < KEEP_TIMES:
            self.tflops.append(value)

    # ------------------------------------------------------------------------------------------------ checkpoints

    def _add_checkpoint(self, iteration: int | None, line_no: int) -> dict[str, Any]:
        record = self.by_iteration.get(iteration) if iteration is not None else None
        if record is None:
            record = {"iteration": iteration, "duration_s": None, "line": line_no, "finalized": False, "path": None}
            if len(self.checkpoints) < KEEP_CHECKPOINTS:
                self.checkpoints.append(record)
            if iteration is not None:
                if len(self.by_iteration) > KEEP_CHECKPOINTS:
                    self.by_iteration.clear()
                self.by_iteration[iteration] = record
        return record

    def _checkpoint(self, line_no: int, line: str, text: str, prefix: Prefix) -> list[Signal]:
        if m := _CKPT_SAVE.search(text):
            self.mine += 1
            iteration = int(m["i"]) if m["i"] else None
            record = self._add_checkpoint(iteration, line_no)
            duration = finite(number(m["d"]))
            # Several ranks may report one save: it takes as long as the slowest.
            if duration is not None:
                record["duration_s"] = max(duration, record["duration_s"] or 0.0)
            if not record.get("async"):
                record["finalized"] = True
            return []
        if m := _CKPT_ASYNC_DONE.search(text):
            self.mine += 1
            path = m["p"]
            iteration = _path_step(path)
            record = self._add_checkpoint(int(m["i"]) if iteration is None else iteration, line_no)
            record["finalized"], record["path"], record["async"] = True, path, True
            return []
        if m := _CKPT_ASYNC.search(text):
            self.mine += 1
            self.async_seen = True
            record = self._add_checkpoint(_path_step(m["p"]), line_no)
            record["finalized"], record["path"], record["async"] = False, m["p"], True
            return []
        if m := _CKPT_BEGIN.search(text):
            self.mine += 1
            self.sync_open = self._add_checkpoint(int(m["i"]), line_no)
            self.sync_open["path"] = m["p"]
            return []
        if m := _CKPT_END.search(text):
            self.mine += 1
            record = self._add_checkpoint(int(m["i"]), line_no)
            record["finalized"] = True
            if m["p"]:
                record["path"] = m["p"]
            self.sync_open = record
            return []
        if m := _CKPT_TIMER.search(text):
            self.mine += 1
            if self.sync_open is not None:
                slowest = finite(number(m["b"]))
                self.sync_open["duration_s"] = slowest / 1000.0 if slowest is not None else None
            return []
        if m := _CKPT_LOAD.search(text):
            self.mine += 1
            self.load_seconds = finite(number(m["d"]))
            return []
        if m := _RESUME.search(text):
            self.mine += 1
            step = int(m["i"]) if m["i"] else _path_step(m["p"])
            if self.resumed is None or step is not None or self.resumed.get("step") is None:
                self.resumed = {"step": step, "line": line_no, "path": m["p"]}
            self.resume_pending = True
            if self.segment is not None and self.segment.count:
                self.segment = None
            return []
        if _SCRATCH.search(text):
            self.mine += 1
            return [signal("resume_from_scratch", line_no, line, prefix)]
        return []

    # ------------------------------------------------------------------------------------------------------ other

    def _rerun(self, line_no: int, line: str, text: str) -> list[Signal]:
        if m := _RERUN.search(text):
            self.mine += 1
            rank = int(m["rank"])
            self.rerun = (line_no, line, rank)
            detail = {"what": m["what"], "step": int(m["i"]), "message": m["msg"] or ""}
            return [signal("persistent_error", line_no, line, rank=rank, detail=detail | {"class": "unexpected"})]
        if m := _RERUN_KIND.search(text):
            rank2 = self.rerun[2] if self.rerun is not None and line_no - self.rerun[0] <= 50 else None
            return [signal("persistent_error", line_no, line, rank=rank2, detail={"class": m["what"]})]
        if m := _RERUN_WHERE.search(text):
            rank, gpu = int(m["rank"]), int(m["dev"])
            detail = {"step": int(m["i"]), "class": "where"}
            return [signal("persistent_error", line_no, line, host=m["node"], rank=rank, gpu=gpu, detail=detail)]
        return []

    def _validation(self, line_no: int, m: re.Match[str]) -> None:
        fields = _fields(m["rest"])
        loss = finite(number(fields.get("lm loss value")))
        if len(self.validation) < 500:
            self.validation.append({"iteration": int(m["i"]) if m["i"] else None, "loss": loss, "line": line_no})

    # ----------------------------------------------------------------------------------------------------- finish

    def finish(self) -> Reading:
        """Return the reading of the whole log."""
        self.found.extend(self.job.finish())
        self.straggler.finish()
        recognised = self.mine > 0 and not self.qa
        reading = Reading(self.tool, recognised=recognised)
        segment = next((s for s in reversed(self.segments) if s.count), None)
        if self.qa:
            self._problem("this is the log of a question-answering run: read it as squad")
        elif self.mine == 0:
            self._problem("no line of a training log was found")
        elif segment is None:
            self._problem("the trainer started and no step was recorded")
        if segment is not None and recognised:
            self._judge(reading, segment)
        elif recognised and self.fatal_after_start:
            reading.verdict = "fail"
        for record in self.checkpoints:
            record.pop("async", None)
            if not record["finalized"]:
                self._problem(f"the checkpoint of step {record['iteration']} (line {record['line']}) was not finished")
        reading.signals = self.found.signals
        reading.problems = self.problems + self.found.problems()
        times = segment
        reading.data = {
            "framework": self.framework,
            "steps": {
                "count": times.count if times else 0,
                "first": times.first if times else None,
                "last": times.last if times else None,
                "max_steps": self._max(times),
                "step_time_median_s": times.median() if times else None,
                "step_time_first_quarter_s": times.quarter(True) if times else None,
                "step_time_last_quarter_s": times.quarter(False) if times else None,
            },
            "step_series": self.series.to_list(),
            "segments": [s.to_dict() for s in self.segments if s.count],
            "loss_first": self.loss_first,
            "loss_last": self.loss_last,
            "consumed_samples_last": self.consumed,
            "global_step_last": self.global_step,
            "global_batch_size": self.batch,
            "tflops_per_gpu_median": median(self.tflops) if self.tflops else None,
            "checkpoints": self.checkpoints,
            "load_seconds": self.load_seconds,
            "resumed_from": self.resumed,
            "validation": self.validation,
            "watchdog": {str(k): v for k, v in self.job.last_completed.items()},
            "straggler": self.straggler.worst,
            "stopped": self.stopped,
            "network": self.job.network(),
            "job_ended": self.job.ended,
            "signal_counts": self.found.counts,
        }
        return reading

    def _max(self, segment: _Segment | None) -> int | None:
        """Return the number of steps configured."""
        if segment is None or segment.max_steps is None:
            return self.max_steps
        return segment.max_steps + 1 if segment.style == "nemo2" else segment.max_steps

    def _judge(self, reading: Reading, segment: _Segment) -> None:
        reached = segment.complete
        if segment.style == "nemo1":
            reached = bool(self.stopped and _MAX_REACHED.search(self.stopped))
            segment.complete = reached
        if self.max_steps is not None and segment.style != "nemo1" and segment.last is not None:
            last = segment.last + 1 if segment.style == "nemo2" else segment.last
            if last < self.max_steps:
                reached = False
                self._problem(f"the log ends with step {last} of the {self.max_steps} that were configured")
        if self.cut_at is not None and self.cut_at == segment.last_line:
            reached = False
            self._problem(f"the last line ({self.cut_at}) has no end: its figures may be cut")
        why: list[str] = []
        if not reached:
            why.append(
                f"the last step ({segment.last} of {segment.max_steps}) is missing: not finished, or the text is cut"
            )
        for s in self.segments:
            missing = s.missing() + s.unreadable
            if missing:
                self._problem(f"{missing} step records are missing or unreadable between steps {s.first} and {s.last}")
                if missing > MISSING_SHARE * (s.count + missing):
                    why.append("")
        if not segment.had_loss:
            why.append("no step shows a loss")
        previous = None
        for s in self.segments:
            if not s.count:
                continue
            if previous is not None and not previous.complete and not s.resumed:
                why.append(
                    f"the run that began on line {previous.line} ended at step {previous.last} and was not resumed"
                )
            previous = s
        if self.segment_count > 1:
            self._problem(f"the text holds {self.segment_count} runs; the figures are of the last one")
        for sentence in why:
            if sentence:
                self._problem(sentence)
        reading.complete = reached and not self.damaged
        fatal = self.fatal_after_start and not (
            reading.complete and self.fatal_line is not None and self.fatal_line > segment.last_line
        )
        persistent = any(
            s.kind == "persistent_error" and s.detail.get("class") == "persistent" for s in self.found.signals
        )
        if fatal or self.nan_lines or persistent:
            reading.verdict = "fail"
        elif reading.complete and not why:
            reading.verdict = "pass"


def _fields(rest: str) -> dict[str, str]:
    """Split `key: value | key: value`; keys keep their words, values are stripped."""
    out: dict[str, str] = {}
    for part in rest.split("|"):
        key, colon, value = part.strip().partition(": ")
        if not colon:
            key, colon, value = part.strip().partition(":")
        if colon and key and len(out) < 64:
            out.setdefault(key.strip(), value.strip())
    return out


def _path_step(path: str) -> int | None:
    m = _STEP_IN_PATH.search(path)
    return int(m["i"]) if m else None
