# SPDX-License-Identifier: Apache-2.0
"""From a parser's reading to what the journal keeps of an iteration or a probe. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from burnin import statistics
from burnin.parsers.reading import Reading, Signal

#: So many signals of one kind are kept in the journal from either end of a file; the raw output keeps them all.
KEPT_OF_KIND = 30

#: Points kept of an iteration's step times, for trends.
TREND_POINTS = 100

UNITS = {"busbw": "GB/s", "gflops": "GFLOPS", "step_time": "s", "f1": "%"}


def iteration_summary(metric: str, reading: Reading, nodes: int, gpus_per_node: int) -> dict[str, Any]:
    """Return what one iteration showed: verdict, completion, the metric's value with its line, signals and facts.

    `verdict` is `pass` only if the reader passed it, it is complete, and the value that it is judged by was there and
    came from all ranks. Anything else that is no failure is `unknown`.
    """
    value, line, facts, problems = _METRICS[metric](reading)
    problems = [*reading.problems, *problems]
    verdict = reading.verdict
    ranks = facts.get("ranks")
    if ranks is not None and gpus_per_node and ranks != nodes * gpus_per_node:
        problems.append(f"ran on {ranks} ranks, expected {nodes * gpus_per_node}")
        verdict = "unknown" if verdict == "pass" else verdict
    if value is None or not math.isfinite(value) or value <= 0:
        value, line = None, None
        if verdict == "pass":
            verdict = "unknown"
            problems.append(f"no {metric} was found in the output")
    if verdict == "pass" and not reading.complete:
        verdict = "unknown"
    signals = reading.signals
    if facts.get("endless") and verdict == "pass":
        signals = [s for s in signals if s.kind not in OWN_END]
    return {
        "verdict": verdict,
        "complete": reading.complete,
        "value": value,
        "value_line": line,
        "unit": UNITS[metric],
        "problems": problems[:20],
        "signals": [s.to_dict() for s in bounded(signals)],
        "facts": facts,
    }


#: What an endless test (nccl-tests -N 0) that its own step's time limit has ended says of that end: it was to come.
OWN_END = frozenset({"time_limit", "step_cancelled", "task_exit"})


def bounded(signals: Sequence[Signal]) -> list[Signal]:
    """Return the first and the last few of each kind, in order.

    By kind, so that a flood of one never hides a single line of another; both ends, because the first error tells the
    cause and the last lines of a kernel log are those that are new in this run.
    """
    of_kind: dict[str, list[int]] = {}
    for number, found in enumerate(signals):
        of_kind.setdefault(found.kind, []).append(number)
    keep = {n for numbers in of_kind.values() for n in [*numbers[:KEPT_OF_KIND], *numbers[-KEPT_OF_KIND:]]}
    return [found for number, found in enumerate(signals) if number in keep]


def _busbw(reading: Reading) -> tuple[float | None, int | None, dict[str, Any], list[str]]:
    """Largest size's busbw of the last table in the file (the average over sizes is not comparable)."""
    runs = reading.data.get("runs") or []
    if not runs:
        return None, None, {}, []
    run = runs[-1]
    keep = ("collective", "ranks", "nodes", "network", "avg_busbw", "max_size", "validated", "cycles")
    facts = {k: run[k] for k in keep if run.get(k) not in (None, [])}
    if (run.get("params") or {}).get("cycles") == 0 and run.get("ended") == "time limit":
        facts["endless"] = True
    return run.get("busbw_max_size"), run.get("busbw_line"), facts, []


def _gflops(reading: Reading) -> tuple[float | None, int | None, dict[str, Any], list[str]]:
    """Gflops of the last result row."""
    runs = reading.data.get("runs") or []
    if not runs:
        return None, None, {}, []
    run = runs[-1]
    keep = ("n", "nb", "p", "q", "time_s", "gflops", "residual", "residual_line", "residual_verdict")
    facts = {k: run.get(k) for k in keep}
    facts["tests"] = len(runs)
    return run.get("gflops"), run.get("line"), facts, []


def _step_time(reading: Reading) -> tuple[float | None, int | None, dict[str, Any], list[str]]:
    """Median step time of the training log."""
    steps = reading.data.get("steps") or {}
    series = reading.data.get("step_series") or []
    keep = (
        "loss_first",
        "loss_last",
        "consumed_samples_last",
        "global_step_last",
        "resumed_from",
        "global_batch_size",
        "stopped",
    )
    facts: dict[str, Any] = {k: reading.data.get(k) for k in keep}
    facts["steps"] = dict(steps)
    facts["checkpoints"] = (reading.data.get("checkpoints") or [])[-50:]
    facts["step_times"] = _step_times(series)
    facts["spikes"] = _spikes(series, reading.data.get("checkpoints") or [])
    facts["curve"] = [(p.get("step"), p.get("loss")) for p in series[:: max(1, len(series) // 100)]]
    line = series[-1].get("line") if series else None
    return steps.get("step_time_median_s"), line, facts, []


def _step_times(series: Sequence[Mapping[str, Any]]) -> list[tuple[int | None, float, int | None]]:
    """Return at most `TREND_POINTS` of (step, seconds, line): medians of equal stretches, so no save stands out."""
    known = [p for p in series if p.get("step_time_s") is not None and math.isfinite(p["step_time_s"])]
    stretch = max(1, math.ceil(len(known) / TREND_POINTS))
    out = []
    for start in range(0, len(known), stretch):
        part = sorted(known[start : start + stretch], key=lambda p: p["step_time_s"])
        middle = part[(len(part) - 1) // 2]
        out.append((middle.get("step"), middle["step_time_s"], middle.get("line")))
    return out


def _spikes(series: Sequence[Mapping[str, Any]], checkpoints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many steps were slow without a checkpoint to explain it, of how many, and the line of the first."""
    known = [p for p in series if p.get("step_time_s") is not None and p.get("step") is not None]
    saves = [int(c["iteration"]) for c in checkpoints if c.get("iteration") is not None]
    found = statistics.spikes(
        [p["step"] for p in known], [p["step_time_s"] for p in known], unit="s", checkpoint_steps=saves
    )
    odd = found.detail.get("unexplained") or []
    line = next((p.get("line") for p in known if odd and p["step"] == odd[0]), None)
    return {"unexplained": int(found.value or 0), "steps": len(known), "line": line}


def _f1(reading: Reading) -> tuple[float | None, int | None, dict[str, Any], list[str]]:
    """F1 of the last evaluation."""
    data = reading.data
    return data.get("f1"), data.get("f1_line"), {k: data.get(k) for k in ("exact_match", "f1")}, []


_METRICS = {"busbw": _busbw, "gflops": _gflops, "step_time": _step_time, "f1": _f1}


def probe_summary(reading: Reading) -> dict[str, Any]:
    """Return what one node's probe showed: verdict for each tool, signals, and the numbers that are compared later."""
    return {
        "tools": dict(reading.data.get("tools", {})),
        "complete": reading.complete,
        "problems": reading.problems[:20],
        "signals": [s.to_dict() for s in bounded(reading.signals)],
        "gpus": gpu_places(reading),
        "clock": {k: reading.data[k] for k in ("time", "up", "utc_offset", "boot") if reading.data.get(k) is not None},
    }


def short(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the journal keeps of a probe during a run: of the tools those that did not pass, and no places of GPUs."""
    tools = {tool: verdict for tool, verdict in summary["tools"].items() if verdict != "pass"}
    return {**summary, "tools": tools, "gpus": {}}


def gpu_places(reading: Reading) -> dict[str, dict[str, Any]]:
    """Return PCI address -> {index, serial} of the GPUs that nvidia-smi listed: it is how an Xid finds its GPU."""
    section = reading.data.get("sections", {}).get("nvidia-smi", {})
    gpus = (section.get("data") or {}).get("gpus") or []
    return {g["bdf"]: {"index": g.get("index"), "serial": g.get("serial")} for g in gpus if g.get("bdf")}


def missing_probe(tools: list[str], why: str) -> dict[str, Any]:
    """Return the summary of a node whose probe left no file: everything unknown."""
    return {
        "tools": {t: "unknown" for t in tools},
        "complete": False,
        "problems": [why],
        "signals": [],
        "gpus": {},
        "clock": {},
    }


def probe_tools(commands: Mapping[str, str], hcas: list[str]) -> list[str]:
    """Return the names of the tools that a probe reads on a node, as in the summary's `tools`."""
    return [f"{t}:{h}" if h else t for t, line in commands.items() for h in (hcas if "{hca}" in line else [""])]
