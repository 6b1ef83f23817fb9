# SPDX-License-Identifier: Apache-2.0
"""Where a campaign stands, from its files alone: steps x workloads, runs in progress, what is waited for, an estimate.

`collect` reads the gates, and of the heat in progress the end of each journal: it costs the same after an hour and after
a day. What it shows decides nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from burnin.campaign import Campaign
from burnin.config import Config
from burnin.forecast import expected
from burnin.judging.performance import better_of
from burnin.ladder import Heat, Standing, replay
from burnin.nodes import fold
from burnin.paths import RunRef
from burnin.runs import journal

#: Bytes of a journal's end that are read: some ten iterations, and a probe of each node between them.
TAIL, TAIL_OF_NODE = 32_768, 16_384
#: Runs that are listed one by one; of the others only how many there are.
MOST_RUNS = 30
#: Reasons of nodes that are out without blame that are told, and characters of each.
MOST_AWAY, MOST_WHY = 8, 300


@dataclass(frozen=True, slots=True)
class Progress:
    """A run of the heat in progress.

    `state`: queued (its turn has come, nothing is on record yet), waiting (another workload of its nodes is first), running,
    or the state of its result. `done`: share of its window (0 to 1). `hours`: mean of an iteration. `since`: the newest sign
    of life (seconds since the epoch), None if there is none.
    """

    run_id: str
    workload: str
    nodes: tuple[str, ...]
    state: str
    done: float = 0.0
    iterations: int = 0
    hours: float | None = None
    command: str = ""
    value: float | None = None
    unit: str = ""
    verdict: str = ""
    since: float | None = None
    ended: float | None = None
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether there is no result yet."""
        return self.state in ("queued", "waiting", "running")


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload in one step, in nodes. `ran`: its run is over, the gate is not. `to_come`: the ladder is not there yet."""

    passed: int = 0
    failed: int = 0
    owed: int = 0
    running: int = 0
    to_come: int = 0
    ran: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One step."""

    step: str
    heats: int
    heats_to_come: int
    cells: dict[str, Cell]

    @property
    def done(self) -> bool:
        """Whether nobody in the roster owes it any more."""
        return self.heats > 0 and not self.heats_to_come


@dataclass(slots=True)
class Status:
    """All of it. `eta_hours`: until the end if all pass, None if nobody can know yet; `current`: the heat in progress."""

    rows: list[Row]
    runs: list[Progress]
    current: Heat | None
    waits: str
    eta_hours: float | None
    standing: Standing
    gates: list[Mapping[str, Any]]
    outs: dict[str, list[str]] = field(default_factory=dict)  # status -> nodes that are not in any more


# --------------------------------------------------------------------------------------------------------------- pure


def table(
    config: Config,
    heats: Sequence[tuple[Heat, bool]],
    gates: Sequence[Mapping[str, Any]],
    standing: Standing,
    runs: Sequence[Progress],
) -> list[Row]:
    """Return a row for each step of the ladder (and the retest, if there was one), a cell for each of its workloads. Pure.

    `heats`: those decided and those to come if all pass, each with `has a gate`. A node counts as failed in the workload
    that its finding names.
    """
    counts = {True: Counter(h.step for h, d in heats if d), False: Counter(h.step for h, d in heats if not d)}
    at = next((h.step for h, decided in heats if not decided), None)
    roster = standing.roster(config.nodes)
    failed: dict[tuple[str, str], int] = Counter()
    for node, (step, heat) in standing.failed.items():
        gate = next((g for g in reversed(gates) if (g["step"], g["heat"]) == (step, heat)), None)
        findings = gate["findings"] if gate else []
        workload = next((f["workload"] for f in findings if f["node"] == node and f["scope"] == "node"), "")
        failed[step, workload] += 1
    running: dict[str, int] = Counter()
    ran: dict[str, int] = Counter()
    for run in runs:
        if run.state == "running":
            running[run.workload] += len(run.nodes)
        elif not run.open:
            ran[run.workload] += len(run.nodes)
    rows = []
    names = [s.name for s in config.ladder.steps()]
    retests = ["retest"] if counts[True]["retest"] or counts[False]["retest"] else []
    for step in [*retests, *names]:
        cells = {}
        for workload in config.ladder.workloads.get(step, ()):
            owing = [n for n in roster if step != "retest" or standing.repairs.get(n)]
            passed = sum((step, workload) in standing.passed[n] for n in config.nodes)
            left = sum((step, workload) not in standing.passed[n] for n in owing)
            busy = min(running.get(workload, 0), len(config.nodes)) if step == at else 0
            over = min(ran.get(workload, 0), max(0, left - busy)) if step == at else 0
            begun = step == at or counts[True][step] > 0
            cells[workload] = Cell(
                passed,
                failed.get((step, workload), 0),
                max(0, left - busy - over) if begun else 0,
                busy,
                0 if begun else left,
                over,
            )
        rows.append(Row(step, counts[True][step], counts[False][step], cells))
    return rows


def seen_hours(runs: Iterable[Progress]) -> dict[str, float]:
    """Return workload -> hours of an iteration, the median of what the runs of this heat took. Pure."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.hours is not None:
            found.setdefault(run.workload, []).append(run.hours)
    return {workload: median(values) for workload, values in found.items()}


def eta_hours(config: Config, current: Heat | None, to_come: Sequence[Heat], runs: Sequence[Progress]) -> float | None:
    """Return the hours until the end if all pass, from windows and what is done of them. Pure.

    None where windows count iterations of which none has been seen in this heat.
    """
    seen = seen_hours(runs)
    total = 0.0
    if current is not None:
        done = {(r.workload, r.nodes): 1.0 if not r.open else r.done for r in runs}
        left = []
        for group in current.groups:
            row, assumed = expected(config, Heat(current.step, current.heat, (group,)), seen)
            if assumed and any(done.get((w, group.nodes), 0.0) < 1 for w in group.workloads):
                return None
            left.append(sum(row.hours[w] * (1 - done.get((w, group.nodes), 0.0)) for w in group.workloads))
        total += max(left, default=0.0)
    for heat in to_come:
        row, assumed = expected(config, heat, seen)
        if assumed:
            return None
        total += row.total_hours
    return total


def against(config: Config, run: Progress, runs: Sequence[Progress]) -> tuple[float, str] | None:
    """Return (deviation as a fraction, good is positive; what from) of a run's value; None if nothing is known. Pure.

    From the baseline of its group's size where there is one, else from the median of the others with the same command.
    """
    if run.value is None:
        return None
    metric = config.definition(run.workload)["metric"]
    size = len(run.nodes)
    rows = config.criteria["baselines"]
    base = next(
        (b for b in rows if (b["workload"], b["command"], b["nodes"]) == (run.workload, run.command, size)), None
    )
    if base is not None:
        value, what = float(base["value"]), "baseline"
    else:
        alike = [
            r.value
            for r in runs
            if r is not run and r.command == run.command and r.workload == run.workload and len(r.nodes) == size
        ]
        others = [v for v in alike if v is not None]
        if len(others) < 2:
            return None
        value, what = median(others), "peers"
    if not value:
        return None
    change = (run.value - value) / abs(value)
    return (-change if better_of(metric) == "lower" else change), what


# -------------------------------------------------------------------------------------------------------------- files


def progress(ref: RunRef, nodes: Sequence[str], window: Mapping[str, float], first: bool) -> Progress:
    """Return how far an unfinished run is. `first`: no other workload of its nodes comes before it.

    Of a long journal only the end is read: iterations are then counted by their numbers, the time spent by their mean.
    """
    run = (ref.run_id, ref.workload, tuple(nodes))
    folder = _newest_attempt(ref)
    try:
        records, whole = (
            journal.tail(folder / "journal.jsonl", TAIL + len(nodes) * TAIL_OF_NODE) if folder else ([], True)
        )
    except FileNotFoundError:
        folder, records, whole = None, [], True
    if folder is None or any(r["type"] == "final" for r in records):
        # an attempt that is over without a result: the run was asked for again, and its job has not begun yet
        return Progress(*run, "queued" if first else "waiting", since=_newest(ref.run_dir / "submissions.jsonl"))
    pairs = journal.completed(records)
    spent = [max(0.0, e["time"] - s["time"]) for s, e in pairs]
    count = len(pairs) if whole else max((s["seq"] for s, _ in pairs), default=-1) + 1
    each = mean(spent) if spent else None
    total = sum(spent) if whole else count * (each or 0.0)
    done = count / window["iterations"] if "iterations" in window else total / (window["hours"] * 3600)
    last = {**pairs[-1][1]["summary"], "command": pairs[-1][0]["command"]} if pairs else {}
    writes = [folder / r["output"] for r in records if r["type"] == "start"][-1:]
    return Progress(
        *run,
        "running",
        min(done, 1.0),
        count,
        None if each is None else each / 3600,
        str(last.get("command", "")),
        last.get("value"),
        str(last.get("unit") or ""),
        str(last.get("verdict", "")),
        _newest(folder / "journal.jsonl", *writes),
    )


def _newest_attempt(ref: RunRef) -> Path | None:
    """Return the folder of a run's newest attempt."""
    prefix = "attempt" if ref.phase == "result" else "first-attempt"
    try:
        names = [m for p in ref.run_dir.iterdir() if (m := re.fullmatch(rf"{prefix}([0-9]+)", p.name))]
    except FileNotFoundError:
        return None
    return ref.run_dir / max(names, key=lambda m: int(m[1]))[0] if names else None


def _newest(*files: Path) -> float | None:
    """Return when one of the files was last written, None if there is none."""
    times = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times, default=None)


def _finished(campaign: Campaign, ref: RunRef, nodes: Sequence[str]) -> Progress:
    """Return a run that has its result."""
    document = campaign.load(ref.result, "result")
    last = document["iterations"][-1] if document["iterations"] else {}
    spent = [i["end"] - i["start"] for i in document["iterations"]]
    return Progress(
        ref.run_id,
        ref.workload,
        tuple(nodes),
        document["state"],
        1.0,
        len(document["iterations"]),
        mean(spent) / 3600 if spent else None,
        str(last.get("command", "")),
        last.get("value"),
        str(last.get("unit") or ""),
        str(last.get("verdict", "")),
        document["ended"],
        document["ended"],
        document["reason"],
    )


def runs_of(campaign: Campaign, heat: Heat) -> list[Progress]:
    """Return the runs of a planned heat."""
    found = []
    windows = campaign.load(campaign.plan_path(heat.step, heat.heat), "plan")["windows"]
    for group in heat.groups:
        first = True
        for workload in group.workloads:
            ref = RunRef(campaign.dir, heat.step, heat.heat, workload, group.name)
            if ref.result.exists():
                found.append(_finished(campaign, ref, group.nodes))
                continue
            found.append(progress(ref, group.nodes, windows[workload], first))
            first = False
    return found


def collect(campaign: Campaign) -> Status:
    """Return where the campaign stands."""
    heats = campaign.projection()
    events = campaign.events()
    gates = [e for e in events if "repair" not in e]
    standing = replay(campaign.config.ladder, events)
    current = next((h for h, decided in heats if not decided), None)
    runs: list[Progress] = []
    if current is None:
        waits = "the ladder is done"
    elif not campaign.plan_path(current.step, current.heat).exists():
        waits = f"{current.step}, heat {current.heat}, is next"
    else:
        runs = runs_of(campaign, current)
        waits = _waits(current, runs)
    later = [h for h, decided in heats if not decided][1:]
    rows = table(campaign.config, heats, gates, standing, runs)
    outs = {
        "failed": list(standing.failed),
        "suspect": list(standing.unresolved),
        "withdrawn": list(standing.withdrawn),
    }
    eta = eta_hours(campaign.config, current, later, runs)
    return Status(rows, runs, current, waits, eta, standing, gates, {k: v for k, v in outs.items() if v})


def _waits(heat: Heat, runs: Sequence[Progress]) -> str:
    """Return what the campaign waits for."""
    where = f"{heat.step}, heat {heat.heat}"
    left = [r for r in runs if r.open]
    if not left:
        return f"waits for the gate of {where}"
    states = Counter(r.state for r in left)
    words = {
        "running": "running",
        "queued": "for Slurm to start them",
        "waiting": "behind another workload of their nodes",
    }
    told = ", ".join(f"{states[s]} {words[s]}" for s in words if states[s])
    running = [r for r in left if r.state == "running"]
    last = min(running, key=lambda r: r.done) if len(running) > 1 else None
    name = f"; furthest behind is {last.run_id} at {last.done:.0%}" if last else ""
    return f"waits for {len(left)} of {len(runs)} runs of {where}: {told}{name}"


# --------------------------------------------------------------------------------------------------------------- text


def _cell(cell: Cell) -> str:
    """Return a cell in words; what is zero is left out."""
    words = [
        f"{n} {w}"
        for n, w in (
            (cell.passed, "passed"), (cell.failed, "failed"), (cell.running, "running"), (cell.ran, "ran"), (cell.owed, "owed"),
        )
        if n
    ]  # fmt: skip
    return ", ".join(words) or ("-" if cell.to_come else ".")


def duration(hours: float) -> str:
    """Return a time for people: 40 s, 12 min, 5 h 10 min, 3 d 4 h."""
    seconds = max(0, round(hours * 3600))
    if seconds < 100:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    whole, rest = divmod(minutes, 60)
    if whole < 48:
        return f"{whole} h {rest} min" if rest else f"{whole} h"
    return f"{whole // 24} d {whole % 24} h"


def render(campaign: Campaign, now: float | None = None) -> str:
    """Return the status as text for a terminal."""
    return text_of(campaign.config, collect(campaign), time.time() if now is None else now)


def text_of(config: Config, status: Status, now: float) -> str:
    """Return a status as text for a terminal."""
    lines = [f"campaign {config.campaign}: {status.waits}"]
    if status.current is not None:
        if status.eta_hours is None:
            lines.append("the end is not known yet: windows count iterations, and none of a workload has been seen")
        else:
            end = time.strftime("%a %Y-%m-%d %H:%M", time.localtime(now + status.eta_hours * 3600))
            lines.append(f"if all pass it ends in {duration(status.eta_hours)} ({end}), without queues and probes")
    lines += [f"{len(names)} {word}: {fold(names)}" for word, names in status.outs.items()]
    lines += _away(status.standing)
    workloads = list(dict.fromkeys(w for row in status.rows for w in row.cells))
    cells = [
        [
            row.step,
            str(row.heats + row.heats_to_come),
            *(_cell(row.cells[w]) if w in row.cells else "" for w in workloads),
        ]
        for row in status.rows
    ]
    heads = ["step", "heats", *workloads]
    widths = [max(len(heads[i]), *(len(c[i]) for c in cells)) if cells else len(heads[i]) for i in range(len(heads))]
    for line in (heads, *cells):
        lines.append("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    lines.insert(len(lines) - len(cells) - 1, "")
    early = [r for r in status.runs if not r.open and r.state != "complete"]
    if early:
        lines += [
            "",
            f"{len(early)} run{'s' if len(early) > 1 else ''} of this heat ended early; the gate will say whose fault it is:",
        ]
        lines += [f"  {r.run_id}: {r.state}, {r.reason[:160]}" for r in early[:10]]
        lines += [f"  ... and {len(early) - 10} more"] if len(early) > 10 else []
    shown = [r for r in status.runs if r.state == "running"] or [r for r in status.runs if r.state == "queued"][:5]
    if shown:
        lines += ["", *_runs(config, shown, status.runs, now)]
    # reasons quote logs: nothing of them may steer the terminal
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def _away(standing: Standing) -> list[str]:
    """Return why nodes are out without blame, what is said alike of several once."""
    alike: dict[str, list[str]] = {}
    for node in standing.withdrawn:
        alike.setdefault(standing.withdrawn_why.get(node, ""), []).append(node)
    lines = [f"  {fold(nodes)}: {why[:MOST_WHY]}" for why, nodes in alike.items()]
    return [*lines[:MOST_AWAY], *([f"  ... and {len(lines) - MOST_AWAY} more"] if len(lines) > MOST_AWAY else [])]


def _runs(config: Config, shown: Sequence[Progress], runs: Sequence[Progress], now: float) -> list[str]:
    """Return the list of runs: those furthest behind their reference first, if there are too many for a screen."""
    told = [(run, against(config, run, runs)) for run in shown]
    if len(told) > MOST_RUNS:
        told.sort(key=lambda t: (t[0].verdict in ("pass", ""), t[1][0] if t[1] else 0.0, t[0].done))
    width = max(3, *(len(r.run_id) for r, _ in told[:MOST_RUNS]))
    lines = [f"{'run':{width}}  {'window':>7} {'iterations':>11}  last iteration"]
    for run, compared in told[:MOST_RUNS]:
        if run.state == "queued":
            ago = "" if run.since is None else f", submitted {duration((now - run.since) / 3600)} ago"
            lines.append(f"{run.run_id:{width}}  {'-':>7} {'-':>11}  not started{ago}")
            continue
        value = "" if run.value is None else f" {run.value:.4g} {run.unit}"
        worth = f", {compared[0]:+.1%} to {compared[1]}" if compared else ""
        verdict = "" if run.verdict in ("pass", "") else f" {run.verdict.upper()}"
        last = f"{run.command}{value}{worth}{verdict}" if run.command else "none yet"
        quiet = "" if run.since is None else f" ({duration((now - run.since) / 3600)} ago)"
        lines.append(f"{run.run_id:{width}}  {run.done:>7.0%} {run.iterations:>11}  {last}{quiet}")
    if len(told) > MOST_RUNS:
        lines.append(f"... and {len(told) - MOST_RUNS} more; shown are those furthest behind")
    return lines
