# SPDX-License-Identifier: Apache-2.0
"""The course of the campaign: who ran where and when, drop-outs, repairs; casualties and what was owed. Pure."""

from __future__ import annotations

from markupsafe import Markup

from burnin.ladder import is_gate, repaired_by
from burnin.report import svg, words
from burnin.report.blocks import Block, Cell, Figure, Figures, Section, Table, Text
from burnin.report.facts import RunFacts
from burnin.report.sections.failures import repair_text
from burnin.report.sections.view import View

#: Up to so many nodes each has a lane; of more only those that something happened to.
MOST_LANES = 40
LANE, WIDE = 13.0, 1000.0
MOST_ROWS = 60


def section(view: View) -> Section:
    """Return the timeline, and the list of what happened."""
    blocks: list[Block] = []
    if figure := timeline(view):
        blocks.append(Figures([figure]))
    blocks += [_heats(view), *_casualties(view), *_owed(view)]
    if view.facts.reruns:
        rows = [
            (Cell(str(r.get("run", ""))), Cell(str(r.get("by", ""))), Cell(words.when(r.get("time"))))
            for r in view.facts.reruns[:MOST_ROWS]
        ]
        blocks.append(
            Table(
                ("Run", "By", "When"), rows, "Runs that an operator had run again; the first result is kept beside it"
            )
        )
    if view.facts.open_runs:
        rows = [
            (Cell(f"{r.step}/heat{r.heat}/{r.workload}/{r.group}"), Cell(words.listed(r.nodes, 10)),
             Cell(f"running since {words.when(r.started)}, {words.count(r.iterations, 'iteration')} whole" if r.started else "not started"))
            for r in view.facts.open_runs[:MOST_ROWS]
        ]  # fmt: skip
        more = (
            f", the first {MOST_ROWS} of {len(view.facts.open_runs)}" if len(view.facts.open_runs) > MOST_ROWS else ""
        )
        blocks.append(Table(("Run", "Nodes", "State"), rows, f"Planned, without a result{more}", stack=True))
    return Section("course", "Course of the campaign", blocks)


def _incidents(view: View) -> set[str]:
    """Return the nodes that something happened to."""
    found = {n for e in view.facts.gates for n, o in e["outcome"].items() if o in ("failed", "suspect", "withdrawn")}
    return found.union(*(repaired_by(e["repair"]) for e in view.facts.events if "repair" in e))


def timeline(view: View) -> Figure | None:
    """Return lanes of nodes over the time: a bar for each run, marks for failures and repairs."""
    facts = view.facts
    runs = [r for r in facts.runs if r.started is not None and r.ended is not None]
    if not runs:
        return None
    start, end = min(r.started or 0.0 for r in runs), max(r.ended or 0.0 for r in runs)
    fixes = [e["repair"] for e in facts.events if "repair" in e]
    end = max([end, *(float(r["time"]) for r in fixes if r["time"] <= facts.made)])
    if len(facts.nodes) <= MOST_LANES:
        lanes, rest = list(facts.nodes), set()
    else:
        incidents = _incidents(view)
        lanes = [n for n in facts.nodes if n in incidents][:MOST_LANES]
        rest = set(facts.nodes) - set(lanes)
    by, unit = (
        (86400.0, "days") if end - start > 3 * 86400 else (3600.0, "hours") if end - start > 7200 else (60.0, "minutes")
    )
    left = 14.0 + 6.4 * max(len(n) for n in [*lanes, f"{len(rest)} others" if rest else ""])
    top = 40.0
    height = top + LANE * (len(lanes) + bool(rest)) + 30
    x = svg.Scale(0.0, max((end - start) / by, 1e-9) * 1.01, left, WIDE - 8)
    parts = [Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="timeline">').format(WIDE, height)]
    base = height - 26
    for tick in svg.ticks(0.0, x.high, 10):
        line = '<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2:.1f}"/>'
        text = '<text class="tick" x="{0:.1f}" y="{3:.1f}" text-anchor="middle">{4}</text>'
        parts.append(Markup(line + text).format(x(tick), top - 4, base, base + 13, svg.number(tick)))
    parts.append(
        Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="end">{} since {}</text>').format(
            WIDE - 8, base + 25, unit, words.when(start)
        )
    )
    colours = {w: svg.COLOURS[i % len(svg.COLOURS)] for i, w in enumerate(dict.fromkeys(r.workload for r in runs))}
    parts += _steps(runs, start, by, x)
    row = {n: top + LANE * i for i, n in enumerate(lanes)}
    for node, y in row.items():
        parts.append(
            Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left - 6, y + LANE - 4, node
            )
        )
        parts.append(
            Markup('<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(
                left, WIDE - 8, y + LANE - 1, y + LANE - 1
            )
        )
    for run in runs:
        for node in run.nodes:
            if node in row:
                parts.append(_bar(view, run, node, row[node], start, by, x, colours))
    if rest:
        y = top + LANE * len(lanes)
        parts.append(
            Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="end">{:,} others</text>').format(
                left - 6, y + LANE - 4, len(rest)
            )
        )
        parts += _others(runs, rest, y, start, by, x, colours)
    for record in fixes:
        for node in repaired_by(record):
            if node in row and start <= record["time"] <= facts.made:
                mark = '<path d="M{0:.1f} {1:.1f}l4.5 8h-9z" fill="#1e6b34"><title>{2} repaired: {3}</title></path>'
                at = x((record["time"] - start) / by)
                parts.append(Markup(mark).format(at, row[node] + 2, node, record["fix"]))
    parts.append(Markup("</svg>"))
    legend = ", ".join(f"{w} {_named(c)}" for w, c in colours.items())
    caption = f"{legend}. A red ✕: the node failed in this run; pale: the job died; a green triangle: a repair."
    if rest:
        caption += f" Nodes to which nothing happened share the last lane ({len(rest):,})."
    return Figure(Markup("").join(parts), caption, wide=True)


def _named(colour: str) -> str:
    names = ("blue", "orange", "green", "pink", "yellow", "light blue", "brown", "dark grey")
    return names[svg.COLOURS.index(colour)]


def _steps(runs: list[RunFacts], start: float, by: float, x: svg.Scale) -> list[Markup]:
    """Return the heats as a band over the lanes, each named where there is room."""
    spans: dict[tuple[str, int], tuple[float, float]] = {}
    for run in runs:
        low, high = spans.get((run.step, run.heat), (run.started or 0.0, run.ended or 0.0))
        spans[run.step, run.heat] = min(low, run.started or 0.0), max(high, run.ended or 0.0)
    out = []
    for number, ((step, heat), (low, high)) in enumerate(sorted(spans.items(), key=lambda s: s[1])):
        a, b = x((low - start) / by), x((high - start) / by)
        name = f"{step} heat {heat}" if heat else step
        out.append(Markup('<rect x="{:.1f}" y="8" width="{:.1f}" height="16" fill="{}"><title>{}</title></rect>').format(
            a, max(1.0, b - a), "#dfe6eb" if number % 2 else "#eef2f5", name))  # fmt: skip
        text = name if 6.0 * len(name) < b - a else step if 6.0 * len(step) < b - a else ""
        if text:
            out.append(
                Markup('<text class="label" x="{:.1f}" y="20" text-anchor="middle">{}</text>').format((a + b) / 2, text)
            )
    return out


def _bar(
    view: View, run: RunFacts, node: str, y: float, start: float, by: float, x: svg.Scale, colours: dict[str, str]
) -> Markup:
    """Return the bar of a run in a node's lane."""
    a, b = x(((run.started or 0.0) - start) / by), x(((run.ended or 0.0) - start) / by)
    hint = f"{node}: {run.step} heat {run.heat}, {run.workload} with {len(run.nodes)} nodes, {run.state}"
    bar = Markup(
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}" opacity="{}"><title>{}</title></rect>'
    ).format(a, y + 1, max(0.8, b - a), LANE - 4, colours[run.workload], 0.4 if run.state == "casualty" else 0.85, hint)
    if node in view.blamed.get((run.step, run.heat, run.workload, run.group), []):
        bar += Markup(
            '<path d="M{0:.1f} {1:.1f}l7 7m0 -7l-7 7" stroke="#b3261e" stroke-width="2.4"><title>{2}</title></path>'
        ).format(b - 2, y + 2, f"{node} failed in {run.where}")
    return bar


def _others(
    runs: list[RunFacts], rest: set[str], y: float, start: float, by: float, x: svg.Scale, colours: dict[str, str]
) -> list[Markup]:
    """Return the lane of all nodes to which nothing happened: one bar for each heat and workload."""
    spans: dict[tuple[str, int, str], tuple[float, float]] = {}
    for run in runs:
        if rest.isdisjoint(run.nodes):
            continue
        key = (run.step, run.heat, run.workload)
        low, high = spans.get(key, (run.started or 0.0, run.ended or 0.0))
        spans[key] = min(low, run.started or 0.0), max(high, run.ended or 0.0)
    return [
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}" opacity="0.85"><title>{}</title></rect>').format(
            x((low - start) / by), y + 1, max(0.8, x((high - start) / by) - x((low - start) / by)), LANE - 4, colours[w],
            f"{step} heat {heat}, {w}"
        )
        for (step, heat, w), (low, high) in spans.items()
    ]  # fmt: skip


def _heats(view: View) -> Table:
    """Return what happened, heat by heat, with the repairs between."""
    facts = view.facts
    rows = []
    spans: dict[tuple[str, int], list[float]] = {}
    for run in facts.runs:
        if run.started is not None and run.ended is not None:
            spans.setdefault((run.step, run.heat), []).extend((run.started, run.ended))
    whole = [t for of in spans.values() for t in of]
    form = "%Y-%m-%d %H:%M:%S" if whole and max(whole) - min(whole) < 3600 else "%Y-%m-%d %H:%M"
    for event in facts.events:
        if not is_gate(event):
            record = event["repair"] if "repair" in event else event["returned"]
            back = f"in service again ({record.get('state', '')})"
            who = repaired_by(record) if "repair" in event else (record["node"],)
            rows.append((
                Cell(words.when(record["time"], form)), Cell("repair" if "repair" in event else "return"), Cell(""),
                Cell(words.listed(who)), Cell(repair_text(record) if "repair" in event else back),
            ))  # fmt: skip
            continue
        times = spans.get((event["step"], event["heat"]), [])
        by: dict[str, list[str]] = {}
        for node, outcome in event["outcome"].items():
            by.setdefault(outcome, []).append(node)
        told = "; ".join(
            f"{outcome}: {words.listed(by[outcome], 8)}"
            for outcome in ("failed", "suspect", "withdrawn", "owes")
            if outcome in by
        )
        rows.append((
            Cell(words.when(min(times, default=None), form)), Cell(f"{event['step']}, heat {event['heat']}"),
            Cell(words.duration(max(times) - min(times)) if times else "–"),
            Cell(f"{words.count(len(event['groups']), 'group')}, {len(by.get('passed', [])):,} of {len(event['outcome']):,} nodes passed"),
            Cell(told or "all passed", "ok" if not told else ""),
        ))  # fmt: skip
    return Table(
        ("Began (UTC)", "Heat", "Took", "Who", "Outcome"),
        rows,
        "Heats and repairs, in order",
        frozenset({2}),
        stack=True,
    )


def _casualties(view: View) -> list[Block]:
    """Return the runs that did not end by themselves, and those that were begun more than once."""
    rows = []
    order = {s: i for i, s in enumerate(["retest", *view.facts.steps])}
    for run in sorted(view.facts.runs, key=lambda r: (order[r.step], r.heat, r.group, r.started or 1e18)):
        again = f"{run.earlier_attempts} earlier attempts" if run.earlier_attempts else ""
        broken = f"{run.interrupted} interrupted iterations" if run.interrupted else ""
        if run.state == "complete" and not again and not broken:
            continue
        lost = f"; lost: {words.listed(run.casualty['lost'], 8)}" if run.casualty and run.casualty["lost"] else ""
        state = f"{run.state} ({run.casualty['state']})" if run.casualty else run.state
        why = f"{run.reason}{lost}" if run.state != "complete" else ""
        rows.append((
            Cell(run.where, href=f"{run.where}/" if view.facts.link(f"{run.where}/result.json:1") else ""),
            Cell(words.listed(run.nodes, 8)), Cell(state), Cell("; ".join(t for t in (why, again, broken) if t)),
        ))  # fmt: skip
    if not rows:
        return [Text("No job died, was stopped or was begun twice.")]
    more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    return [
        Table(
            ("Run", "Nodes", "State", "Why"),
            rows[:MOST_ROWS],
            f"Runs that were stopped, died, or were begun again{more}",
        )
    ]


def _owed(view: View) -> list[Block]:
    """Return what had to be run again by nodes that were not to blame, and why."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for gate in view.facts.gates:
        for node, owed in gate["owes"].items():
            rows.setdefault((f"{gate['step']}, heat {gate['heat']}", owed["cause"], owed["text"]), []).append(node)
    if not rows:
        return [Text("Nobody had to run anything again.")]
    cells = [
        (Cell(where), Cell(words.listed(n, 12)), Cell(cause), Cell(text)) for (where, cause, text), n in rows.items()
    ]
    return [Table(("Heat", "Nodes", "Cause", "Why"), cells[:MOST_ROWS], "Owed: ran again, not to blame", stack=True)]
