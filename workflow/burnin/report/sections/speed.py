# SPDX-License-Identifier: Apache-2.0
"""How fast it was: NCCL's bandwidth over time, HPL by node and by size, training steps, losses and checkpoints. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from markupsafe import Markup

from burnin.judging.performance import better_of
from burnin.report import svg, words
from burnin.report.blocks import Block, Cell, Details, Figure, Figures, Section, Table, Text
from burnin.report.facts import Point, RunFacts
from burnin.report.sections.view import View

#: So many groups are drawn one by one; more are drawn as their range.
MOST_LINES = 16
#: Stretches of time of a range.
STRETCHES = 24
#: Least height of a plot, as a share of its values: noise of 1 % must look like noise.
LEAST_SHARE = 0.12
MOST_NOTES = 30
#: Checkpoints of a step that are drawn one by one.
MOST_SAVES = 60
WHAT = {"busbw": "busbw", "gflops": "", "step_time": "step time", "f1": "F1"}
LEGEND = (
    "One line a group; of more than 16 groups their range (pale), the middle half of them (darker) and the median. Green: "
    "what the median of the peers allows. Coloured and named: runs that a gate held something against."
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def sections(view: View) -> Iterator[Section]:
    """Yield a section for each kind of workload that the campaign has."""
    facts = view.facts
    for workload in facts.workloads_of("busbw"):
        yield _bandwidth(view, workload)
    for workload in facts.workloads_of("gflops"):
        yield _hpl(view, workload)
    for workload in facts.workloads_of("step_time"):
        yield _training(view, workload)
    for workload in facts.workloads_of("f1"):
        blocks: list[Block] = [_table(view, workload), *_notes(view, workload)]
        yield Section(workload, f"{workload}: answers", blocks)


# --------------------------------------------------------------------------------------------------------------- parts


def complete(view: View, step: str, workload: str, command: str = "") -> list[RunFacts]:
    """Return the runs of a step that filled their window and have a value of the command; none that look for a fault."""
    runs = view.runs.get((step, workload), [])
    return [r for r in runs if r.state == "complete" and (not command or command in r.medians) and not view.isolates(r)]


def per_node(metric: str, value: float, nodes: int) -> float:
    """Return a value that can be compared between sizes."""
    return value / nodes if metric == "gflops" and nodes else value


def peers(view: View, step: str, workload: str, command: str) -> tuple[float | None, float | None]:
    """Return the median of a step's groups and the limit that follows from it (None: too few groups)."""
    metric = view.facts.definition(workload)["metric"]
    values = [per_node(metric, r.medians[command][0], len(r.nodes)) for r in complete(view, step, workload, command)]
    spread = view.facts.criteria["spread"].get(workload)
    if not values:
        return None, None
    middle = median(values)
    if spread is None or len(values) <= spread["least_peers"]:
        return middle, None
    sign = -1 if better_of(metric) == "higher" else 1
    return middle, middle * (1 + sign * spread["tolerance"])


def baseline(view: View, workload: str, command: str, nodes: int) -> Mapping[str, Any] | None:
    """Return the pinned value of a command on so many nodes."""
    rows: Sequence[Mapping[str, Any]] = view.facts.criteria.get("baselines", [])
    return next((b for b in rows if (b["workload"], b["command"], b["nodes"]) == (workload, command, nodes)), None)


def _table(view: View, workload: str) -> Table:
    """Return a row for each step and command: median, slowest and fastest group, limit, baseline."""
    facts = view.facts
    definition = facts.definition(workload)
    metric, unit = definition["metric"], words.UNITS[definition["metric"]]
    scaled = metric == "gflops"
    single = None
    rows = []
    for step in facts.steps:
        for command in definition["commands"]:
            runs = complete(view, step, workload, command)
            if not runs:
                continue
            values = sorted(
                ((per_node(metric, r.medians[command][0], len(r.nodes)), r) for r in runs), key=lambda v: v[0],
                reverse=better_of(metric) == "lower",
            )  # fmt: skip
            middle, bound = peers(view, step, workload, command)
            single = single or middle
            slow, run = values[0]
            sizes = sorted({len(r.nodes) for r in runs})
            base = baseline(view, workload, command, sizes[-1])
            rows.append((
                Cell(step), Cell(command), Cell(f"{len(runs):,} × {'/'.join(map(str, sizes))}"), Cell(words.value(middle)),
                Cell(words.percent(middle / single) if scaled and middle and single else ""), Cell(words.value(slow)),
                Cell(words.listed(run.nodes, 3), href=_evidence(view, run, command), tone="bad" if view.is_blamed(run) else ""),
                Cell(words.value(values[-1][0])), Cell(words.value(bound) if bound else "too few peers"),
                Cell(f"{words.value(base['value'])}, at most {words.percent(base['band'], 0)} worse ({base['origin']}, {base['date']})"
                     if base else "–"),
            ))  # fmt: skip
    # columns that have nothing to tell are left out
    keep = [
        i for i in range(10)
        if not (i == 1 and len(definition["commands"]) == 1) and (i != 4 or scaled) and (i != 9 or any(r[9].text != "–" for r in rows))
    ]  # fmt: skip
    head = ("Step", "Command", "Groups × nodes", f"Median{' per node' if scaled else ''}, {unit}", "Of single", "Slowest", "Its nodes",
            "Fastest", "Limit from peers", "Baseline")  # fmt: skip
    numeric = frozenset(n for n, i in enumerate(keep) if i in (3, 4, 5, 7, 8))
    note = f"Runs that filled their window; a run counts with its median. {_origin(view, workload)}"
    return Table([head[i] for i in keep], [[row[i] for i in keep] for row in rows], note, numeric)


def _origin(view: View, workload: str) -> str:
    """Return where the limit from peers comes from."""
    criteria = view.facts.criteria
    if workload not in criteria["spread"]:
        return "The criteria have no limit from peers."
    tolerance = words.percent(criteria["spread"][workload]["tolerance"], 0)
    return f"Limit from peers: {tolerance} from their median (spread.{workload}, {criteria['source']}, {criteria['date']})."


def _evidence(view: View, run: RunFacts, command: str) -> str:
    return view.facts.link(f"{run.where}/{run.medians[command][1]}") or ""


def _notes(view: View, workload: str) -> Iterator[Block]:
    """Yield what gates noted on a workload; notes that differ in their numbers only are one."""
    said: dict[str, list[tuple[list[str], str]]] = {}
    for gate in view.facts.gates:
        for note in gate["notes"]:
            if note.startswith((f"{workload}:", f"{workload} ")):
                where = gate["step"] + (f" heat {gate['heat']}" if gate["heat"] else "")
                said.setdefault(_NUMBER.sub("#", note), []).append((_NUMBER.findall(note), where))
    rows = []
    for form, found in said.items():
        numbers = ["/".join(dict.fromkeys(column)) for column in zip(*(n for n, _ in found), strict=True)]
        if any(n.count("/") > 6 for n in numbers) or len(found) == 1 or form.count("#") > 3:
            # many numbers are values, not sizes: they are told one by one
            rows += [(Cell(_fill(form, n)), Cell(where)) for n, where in found]
        else:
            where = ", ".join(dict.fromkeys(w for _, w in found))
            rows.append((Cell(_fill(form, numbers)), Cell(where)))
    if rows:
        more = f", the first {MOST_NOTES} of {len(rows)}" if len(rows) > MOST_NOTES else ""
        yield Table(("Note", "At the gate of"), rows[:MOST_NOTES], f"What the gates noted{more}", stack=True)


def _fill(form: str, numbers: Sequence[str]) -> str:
    """Return a form with its numbers put back."""
    pieces = form.split("#")
    return "".join(piece + (numbers[i] if i < len(numbers) else "") for i, piece in enumerate(pieces))


# -------------------------------------------------------------------------------------------------------- over the time


def over_time(view: View, step: str, workload: str, command: str) -> Figure | None:
    """Return a command's values over the time of its runs, one line a group, or the range of many groups."""
    runs = [r for r in view.runs.get((step, workload), []) if command in r.series and not view.isolates(r)]
    if not runs:
        return None
    definition = view.facts.definition(workload)
    metric, unit = definition["metric"], words.UNITS[definition["metric"]]
    lines = [(r, _relative(r, command)) for r in runs]
    longest = max(t for _, points in lines for t, _ in points)
    by, name = (3600.0, "hours") if longest > 7200 else (60.0, "minutes") if longest > 120 else (1.0, "seconds")
    lines = [(r, [(t / by, v) for t, v in points]) for r, points in lines]
    middle, bound = peers(view, step, workload, command)
    base = baseline(view, workload, command, max(len(r.nodes) for r in runs))
    sizes = "/".join(str(s) for s in sorted({len(r.nodes) for r in runs}))
    scale = max(len(r.nodes) for r in runs) if metric == "gflops" else 1
    levels = [v for v in (base["value"] if base else None, middle * scale if middle else None) if v]
    ys = svg.bounds([*(v for _, points in lines for _, v in points), *levels], LEAST_SHARE)
    xs = svg.bounds([0.0, longest / by], pad=0.03)
    plot = svg.frame(
        (0.0, xs[1]), ys, f"{name} since the run's start", f"{WHAT[metric]}, {unit}" if WHAT[metric] else unit
    )
    layers: list[Markup] = []
    if middle and bound:
        other = 2 * middle - bound
        layers.append(svg.band(plot, min(bound, other) * scale, max(bound, other) * scale))
    odd = [(r, p) for r, p in lines if view.is_blamed(r)]
    plain = [(p, r) for r, p in lines if not view.is_blamed(r)]
    layers += _lines(plot, plain)
    for number, (run, points) in enumerate(odd[:MOST_LINES]):
        layers.append(
            svg.line(plot, points, svg.BAD if number == 0 else svg.COLOURS[number % 8], view.name_of(run), 1.8)
        )
    layers.append(svg.names(plot, [(*p[-1], view.name_of(r)) for r, p in odd if p]))
    if base:
        layers.append(svg.level(plot, base["value"], f"baseline {words.value(base['value'])}"))
    caption = f"{step}: {command}, {words.count(len(runs), 'group')} of {sizes}"
    if odd:
        caption += f"; {words.count(len(odd), 'run')} that a gate held something against"
    title = f"{command} over time in step {step}"
    return Figure(svg.draw(plot, *layers, title=title), f"{caption}.")


def _relative(run: RunFacts, command: str) -> list[Point]:
    start = run.span[0] if run.span else 0.0
    return [(max(0.0, t - start), v) for t, v in run.series[command]]


def _lines(plot: svg.Frame, lines: Sequence[tuple[Sequence[Point], RunFacts]]) -> list[Markup]:
    """Return lines one by one, or the range of many."""
    if len(lines) <= MOST_LINES:
        return [svg.line(plot, p, "#5f87a3", f"{words.listed(r.nodes, 6)} ({r.step})") for p, r in lines]
    stretches: dict[int, list[float]] = {}
    width = (plot.x.high - plot.x.low) / STRETCHES or 1.0
    for points, _ in lines:
        for t, v in points:
            stretches.setdefault(min(STRETCHES - 1, int((t - plot.x.low) / width)), []).append(v)
    low: list[Point] = []
    high: list[Point] = []
    first: list[Point] = []
    third: list[Point] = []
    middle: list[Point] = []
    for number in sorted(stretches):
        values = sorted(stretches[number])
        at = plot.x.low + (number + 0.5) * width
        low.append((at, values[0]))
        high.append((at, values[-1]))
        first.append((at, values[len(values) // 4]))
        third.append((at, values[(3 * len(values)) // 4]))
        middle.append((at, median(values)))
    return [
        svg.area(plot, low, high, svg.QUIET, 0.35), svg.area(plot, first, third, "#5f87a3", 0.45),
        svg.line(plot, middle, "#2f5d7c", "median"),
    ]  # fmt: skip


def _all_over_time(view: View, workload: str, command: str) -> list[Figure]:
    return [f for step in view.facts.steps if (f := over_time(view, step, workload, command))]


def _behind(view: View, step: str, workload: str, command: str) -> bool:
    """Tell whether a group of a step is beyond the limit from peers with a command."""
    _, bound = peers(view, step, workload, command)
    if bound is None:
        return False
    metric = view.facts.definition(workload)["metric"]
    values = [per_node(metric, r.medians[command][0], len(r.nodes)) for r in complete(view, step, workload, command)]
    return min(values) < bound if better_of(metric) == "higher" else max(values) > bound


def _bandwidth(view: View, workload: str) -> Section:
    """Return the bandwidth over time per group, and its table."""
    commands = list(view.facts.definition(workload)["commands"])
    lead, *others = commands
    figures = _all_over_time(view, workload, lead)
    # a fault need not show in the first command: those that a group fell behind in are shown as well
    figures += [
        figure
        for step in view.facts.steps
        for command in others
        if _behind(view, step, workload, command) and (figure := over_time(view, step, workload, command))
    ][:12]
    blocks: list[Block] = [
        Text(
            f"Bus bandwidth of the largest message size; each step is judged against groups of its own size. {LEGEND}",
            "note",
        ),
        Figures(figures),
        _table(view, workload),
    ]
    for command in others:
        figures = _all_over_time(view, workload, command)
        if figures:
            blocks.append(Details(f"{command} over time", [Figures(figures)], screen=True))
    return Section(workload, f"{workload}: bandwidth", [*blocks, *_notes(view, workload)])


# ----------------------------------------------------------------------------------------------------------------- HPL


def ranking(points: Sequence[tuple[float, str, bool]], unit: str, bound: float | None, better: str, what: str,
            level_name: str = "median") -> Markup:  # fmt: skip
    """Return values sorted, the worst at the left, with their median; bad ones (and those beyond the bound) named."""
    ordered = sorted(points, key=lambda p: p[0], reverse=better == "lower")
    values = [v for v, _, _ in ordered]
    fits = sum(len(n) + 1 for _, n, _ in ordered) * 6.2 < svg.WIDTH - 60
    marks = [(i + 1.0, n) for i, (_, n, _) in enumerate(ordered)] if fits else None
    bottom, top = svg.bounds([*values, *([bound] if bound else [])], LEAST_SHARE)
    plot = svg.frame((0.0, len(values) + 1.0), (bottom, top), f"nodes, {what}", unit, x_ticks=marks)
    middle = median(values)
    layers = []
    if bound is not None:
        layers.append(svg.band(plot, min(bound, 2 * middle - bound), max(bound, 2 * middle - bound)))
    odd = {
        i for i, (v, _, bad) in enumerate(ordered)
        if bad or (bound is not None and (v < bound if better == "higher" else v > bound))
    }  # fmt: skip
    layers.append(svg.dots(plot, [(i + 1.0, v, f"{n}: {words.value(v, unit)}") for i, (v, n, _) in enumerate(ordered) if i not in odd],
                           "#2f5d7c", 2.4 if len(values) < 200 else 1.5))  # fmt: skip
    layers.append(svg.level(plot, middle, f"{level_name} {words.value(middle, unit)}"))
    layers.append(svg.dots(plot, [(i + 1.0, ordered[i][0], ordered[i][1]) for i in sorted(odd)], svg.BAD, 3))
    layers.append(svg.names(plot, [(i + 1.0, ordered[i][0], ordered[i][1]) for i in sorted(odd)]))
    return svg.draw(plot, *layers, title=f"{what}, one dot a node")


def _hpl(view: View, workload: str) -> Section:
    """Return HPL per node, sorted, and the efficiency over the size of the groups."""
    facts = view.facts
    figures = []
    command = next(iter(facts.definition(workload)["commands"]))
    alone = [r for r in view.runs.get(("single", workload), []) if command in r.medians]
    if alone:
        middle, bound = peers(view, "single", workload, command)
        points = [(r.medians[command][0], r.nodes[0], view.is_blamed(r)) for r in alone]
        plot = ranking(points, "GFLOPS", bound, "higher", "sorted by GFLOPS")
        out = [n for v, n, bad in points if bad or (bound is not None and v < bound)]
        caption = f"single: GFLOPS of each node, sorted. Outliers: {words.listed(out, 12) if out else 'none'}."
        figures.append(Figure(plot, caption + (" Green: what the peers' median allows." if bound else "")))
        if middle and (curve := _efficiency(view, workload, command, middle)):
            figures.append(curve)
    table = _table(view, workload)
    residuals = [
        (float(r.details["residual"]), r)
        for r in facts.runs
        if r.workload == workload and r.details.get("residual") is not None
    ]
    blocks: list[Block] = [Figures(figures), table]
    if residuals:
        worst, run = max(residuals, key=lambda p: p[0])
        blocks.append(Text(
            f"Highest scaled residual of a last iteration: {worst:.3g} ({run.where}); limit 16 (HPL's own). "
            f"Largest problem: N = {max(int(r.details.get('n') or 0) for _, r in residuals):,}."
        ))  # fmt: skip
    return Section(workload, f"{workload}: GFLOPS", [*blocks, *_notes(view, workload)])


def _efficiency(view: View, workload: str, command: str, single: float) -> Figure | None:
    """Return GFLOPS per node as a share of single's median, over the size of the groups."""
    good: list[tuple[float, float, RunFacts]] = []
    odd: list[tuple[float, float, RunFacts]] = []
    for step in view.facts.steps:
        for run in view.runs.get((step, workload), []):
            if command in run.medians and not view.isolates(run):
                share = 100 * run.medians[command][0] / len(run.nodes) / single
                (odd if view.is_blamed(run) else good).append((math.log2(len(run.nodes)), share, run))
    if not good:
        return None
    sizes = sorted({x for x, _, _ in [*good, *odd]})
    ys = svg.bounds([100.0, *(y for _, y, _ in [*good, *odd])], LEAST_SHARE)
    marks = [(x, f"{2**x:.0f}") for x in sizes]
    shown = [m for i, m in enumerate(marks) if i == 0 or m[0] - marks[i - 1][0] > 0.35 or len(marks) < 6]
    plot = svg.frame((sizes[0] - 0.3, sizes[-1] + 0.3), ys, "nodes in the group", "% of single's median", x_ticks=shown)
    middles = [(x, median(y for at, y, _ in good if at == x)) for x in sizes if any(at == x for at, _, _ in good)]
    layers = [
        svg.level(plot, 100.0, ""), svg.line(plot, middles, svg.QUIET),
        svg.dots(plot, [(x, y, f"{view.name_of(r)} ({r.step}): {y:.1f} %") for x, y, r in _thin_dots(good)], "#2f5d7c"),
        svg.dots(plot, [(x, y, f"{view.name_of(r)} ({r.step}): {y:.1f} %") for x, y, r in odd[:60]], svg.BAD),
    ]  # fmt: skip
    caption = "GFLOPS per node over the size of the group, as a share of the median of single nodes"
    return Figure(
        svg.draw(plot, *layers, title="efficiency over size"),
        f"{caption}{'; red: a gate held something against it' if odd else ''}.",
    )


def _thin_dots(points: Sequence[tuple[float, float, RunFacts]], most: int = 40) -> list[tuple[float, float, RunFacts]]:
    """Return at most `most` dots of each x, evenly out of the sorted values, both ends among them."""
    by: dict[float, list[tuple[float, float, RunFacts]]] = {}
    for point in points:
        by.setdefault(point[0], []).append(point)
    out = []
    for of in by.values():
        of.sort(key=lambda p: p[1])
        count = min(most, len(of))
        out += [of[round(i * (len(of) - 1) / max(1, count - 1))] for i in range(count)]
    return out


# ------------------------------------------------------------------------------------------------------------ training


def _training(view: View, workload: str) -> Section:
    """Return step time over time, losses, and the durations of checkpoints."""
    facts = view.facts
    command = next(iter(facts.definition(workload)["commands"]))
    blocks: list[Block] = [
        Text(f"Time of a training step. {LEGEND}", "note"),
        Figures(_all_over_time(view, workload, command)),
    ]
    figures = [f for f in (_losses(view, workload), _saves(view, workload)) if f]
    if figures:
        blocks.append(Figures(figures))
    blocks.append(_table(view, workload))
    rows = []
    for step in facts.steps:
        saves = [s for r in view.runs.get((step, workload), []) for _, s in r.saves]
        ends = [
            float(r.details["loss_last"])
            for r in complete(view, step, workload)
            if r.details.get("loss_last") is not None
        ]
        if saves or ends:
            rows.append((
                Cell(step), Cell(words.value(median(ends)) if ends else "–"),
                Cell(f"{min(ends):.4g} to {max(ends):.4g}" if ends else "–"), Cell(f"{len(saves):,}"),
                Cell(words.value(median(saves), "s") if saves else "–"), Cell(words.value(max(saves), "s") if saves else "–"),
            ))  # fmt: skip
    if rows:
        limits = facts.criteria.get("checkpoints", {})
        note = "Losses at the end, and checkpoints" + (
            f" (limit: {words.percent(limits['growth'], 0)} growth in a run, criteria checkpoints)" if limits else ""
        )
        head = ("Step", "Last loss, median", "Range", "Checkpoints", "Median", "Longest")
        blocks.append(Table(head, rows, note, frozenset({1, 2, 3, 4, 5})))
    return Section(workload, f"{workload}: training", [*blocks, *_notes(view, workload)])


def _losses(view: View, workload: str) -> Figure | None:
    """Return the loss over the training steps of every group: with the same recipe all curves are one."""
    lines = [(r, r.details["curve"]) for r in view.facts.runs if r.workload == workload and r.details.get("curve")]
    if not lines:
        return None
    ys = svg.bounds([v for _, c in lines for _, v in c], LEAST_SHARE)
    xs = svg.bounds([s for _, c in lines for s, _ in c], pad=0.02)
    plot = svg.frame(xs, ys, "training step", "loss")
    odd = [(r, c) for r, c in lines if view.is_blamed(r)]
    layers = _lines(plot, [(c, r) for r, c in lines if not view.is_blamed(r)])
    layers += [svg.line(plot, c, svg.BAD, view.name_of(r), 1.8) for r, c in odd[:MOST_LINES]]
    caption = f"Loss of the last iteration of {words.count(len(lines), 'run')}, all steps together."
    return Figure(svg.draw(plot, *layers, title="loss over training steps"), caption)


def _saves(view: View, workload: str) -> Figure | None:
    """Return the durations of checkpoints, step by step in the order in which they were written."""
    steps = [s for s in view.facts.steps if any(r.saves for r in view.runs.get((s, workload), []))]
    if not steps:
        return None
    ranges: list[tuple[list[Point], list[Point], list[Point]]] = []
    drawn: list[tuple[float, float, str]] = []
    odd: list[tuple[float, float, str]] = []
    values: list[float] = []
    for number, step in enumerate(steps):
        saves = sorted(((t, s, r) for r in view.runs[step, workload] for t, s in r.saves), key=lambda p: p[:2])
        values += [s for _, s, _ in saves]
        places = [(number + 0.1 + 0.8 * i / max(1, len(saves) - 1), s, r) for i, (_, s, r) in enumerate(saves)]
        good = [(x, s, r) for x, s, r in places if not view.is_blamed(r)]
        odd += [(x, s, f"{view.name_of(r)} ({step}): {s:.4g} s") for x, s, r in places if view.is_blamed(r)][:40]
        if len(good) <= MOST_SAVES:
            drawn += [(x, s, f"{words.listed(r.nodes, 4)} ({step}): {s:.4g} s") for x, s, r in good]
        else:
            ranges.append(_range([(x, s) for x, s, _ in good]))
    ticks = [(i + 0.5, s) for i, s in enumerate(steps)]
    plot = svg.frame(
        (0.0, float(len(steps))), svg.bounds(values, LEAST_SHARE), "step of the ladder", "save, s", x_ticks=ticks
    )
    layers: list[Markup] = []
    for low, middle, high in ranges:
        layers += [svg.area(plot, low, high, svg.QUIET), svg.line(plot, middle, "#2f5d7c", "median")]
    layers += [svg.dots(plot, drawn, "#2f5d7c", 2), svg.dots(plot, odd, svg.BAD, 2.4)]
    caption = f"Duration of {words.count(len(values), 'checkpoint')}, step by step in the order of writing"
    many = "; of many their range and median" if ranges else ""
    return Figure(svg.draw(plot, *layers, title="durations of checkpoints"), f"{caption}{many}.")


def _range(points: Sequence[Point], stretches: int = 10) -> tuple[list[Point], list[Point], list[Point]]:
    """Return lowest, median and highest of stretches of a series."""
    length = -(-len(points) // stretches)
    parts = [points[i : i + length] for i in range(0, len(points), length)]
    places = [(p[0][0] + p[-1][0]) / 2 for p in parts]
    values = [[v for _, v in p] for p in parts]
    low = [(x, min(v)) for x, v in zip(places, values, strict=True)]
    middle = [(x, median(v)) for x, v in zip(places, values, strict=True)]
    return low, middle, [(x, max(v)) for x, v in zip(places, values, strict=True)]
