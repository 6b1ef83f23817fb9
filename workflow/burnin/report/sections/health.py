# SPDX-License-Identifier: Apache-2.0
"""What the probes read: temperatures and throttling, and the counters of the links. Pure."""

from __future__ import annotations

from burnin.report import svg, words
from burnin.report.blocks import Block, Cell, Figure, Figures, Section, Table, Text
from burnin.report.sections.speed import ranking
from burnin.report.sections.view import View

MOST_ROWS = 40
COUNTERS = {
    "link_down_count": "went down",
    "link_recovery_count": "recovered from errors",
    "link_effective_errors": "effective errors",
}


def temperatures(view: View) -> Section:
    """Return the hottest GPU and the inlet of each node, and every GPU that throttled."""
    facts = view.facts
    looks = sum(s.looks for s in facts.sensors.values())
    blocks: list[Block] = [
        Text(f"{looks:,} looks at {words.count(len(facts.sensors), 'node')}, before, while and after the runs.", "note")
    ]
    throttled = {n for n, s in facts.sensors.items() if s.throttles}
    figures: list[Figure] = []
    gpus = {n: s.gpu for n, s in facts.sensors.items() if s.gpu}
    if gpus:
        points = [(p.value, n, n in throttled) for n, p in gpus.items()]
        plot = ranking(points, "°C", None, "lower", "hottest first")
        caption = "Hottest reading of any GPU of each node, in the whole campaign" + (
            "; red: a GPU of it throttled." if throttled else "; no GPU throttled."
        )
        figures.append(Figure(plot, caption))
    inlets = {n: s.inlet for n, s in facts.sensors.items() if s.inlet}
    if inlets:
        plot = ranking([(p.value, n, False) for n, p in inlets.items()], "°C", None, "lower", "hottest first")
        figures.append(Figure(plot, "Hottest reading of the inlet air of each node."))
    if gpus and len(facts.steps) > 1:
        figures.append(_by_step(view))
    if figures:
        blocks.append(Figures(figures))
    else:
        blocks.append(Text("No temperature was read: the probes have no tool that tells any.", "warn"))
    hottest = sorted(gpus.items(), key=lambda p: -p[1].value)[:8]
    if hottest:
        rows = [
            (
                Cell(n),
                Cell(p.part),
                Cell(f"{p.value:g} °C"),
                Cell(
                    "–" if p.margin is None else f"{p.margin:g} °C",
                    "bad" if p.margin is not None and p.margin <= 0 else "",
                ),
                Cell(p.step),
                Cell(p.place, href=facts.link(p.place) or ""),
            )
            for n, p in hottest
        ]
        head = ("Node", "GPU", "Hottest", "Below its slowdown limit by", "Step", "Evidence")
        blocks.append(Table(head, rows, "The hottest GPUs", frozenset({2, 3}), stack=True))
    rows = []
    for node in facts.nodes:
        for (part, reason), event in (facts.sensors[node].throttles if node in facts.sensors else {}).items():
            rows.append((
                Cell(node), Cell(part), Cell(reason), Cell(f"{event.times:,}"), Cell(f"{event.step}, {words.when(event.time)}"),
                Cell(event.place, href=facts.link(event.place) or ""),
            ))  # fmt: skip
    if rows:
        head = ("Node", "GPU", "Reason", "Readings", "First seen", "Evidence")
        more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
        blocks.append(Table(head, rows[:MOST_ROWS], f"Throttling{more}", frozenset({3}), stack=True))
    elif facts.sensors:
        blocks.append(Text("No GPU was throttling in any reading."))
    return Section("temperatures", "Temperatures and throttling", blocks)


def _by_step(view: View) -> Figure:
    """Return the hottest GPU of each node step by step: the range over the nodes, and the median."""
    steps = [s for s in view.facts.steps if any(s in m.gpu_of_step for m in view.facts.sensors.values())]
    per = {s: sorted(m.gpu_of_step[s] for m in view.facts.sensors.values() if s in m.gpu_of_step) for s in steps}
    ys = svg.bounds([v for of in per.values() for v in of], 0.2)
    plot = svg.frame(
        (-0.5, len(steps) - 0.5), ys, "step of the ladder", "°C", x_ticks=[(float(i), s) for i, s in enumerate(steps)]
    )
    low, middle, high = ([(float(i), of(per[s])) for i, s in enumerate(steps)] for of in (min, _middle, max))
    layers = [
        svg.area(plot, low, high, svg.QUIET),
        svg.line(plot, middle, "#2f5d7c", "median"),
        svg.dots(plot, [(x, y, f"{y:g} °C") for x, y in (*low, *middle, *high)], "#2f5d7c", 1.8),
    ]
    title = "hottest GPU of a node by step"
    return Figure(
        svg.draw(plot, *layers, title=title),
        "Hottest GPU of each node by step: coolest and hottest node, and the median.",
    )


def _middle(values: list[float]) -> float:
    return values[len(values) // 2]


def links(view: View) -> Section:
    """Return what the link counters said: what is over its limit, what grew during the campaign."""
    facts = view.facts
    ports = sum(len(s.ports) for s in facts.sensors.values())
    if not ports:
        return Section(
            "links",
            "Link counters",
            [Text("No link counter was read (config key hcas, and mlxlink in the probes).", "warn")],
        )
    limit = float(facts.criteria["fabric_ber"])
    origin = f"criteria fabric_ber, {facts.criteria['source']}, {facts.criteria['date']}"
    rows = []
    bad: set[tuple[str, str]] = set()
    for node in facts.nodes:
        mine = facts.sensors.get(node)
        if mine is None:
            continue
        for port, peak in mine.worst_ber.items():
            bad.add((node, port))
            rows.append((Cell(node), Cell(port), Cell("effective bit error rate"), Cell("–"), Cell(f"{peak.value:.2g}"),
                         Cell(f"{limit:.2g} ({origin})"), Cell(peak.place, href=facts.link(peak.place) or "")))  # fmt: skip
        for (port, kind), counter in mine.counters.items():
            # a counter that is zero is not noted: one that was not there at the first look was zero then
            late = mine.first_look is not None and counter.first_time > mine.first_look
            before = 0.0 if late else counter.first
            if counter.last != before:
                bad.add((node, port))
            rows.append((Cell(node), Cell(port), Cell(COUNTERS[kind]), Cell(words.value(before)), Cell(words.value(counter.last)),
                         Cell("no growth (zero tolerance)" if kind != "link_effective_errors" else "none of its own"),
                         Cell(counter.place, href=facts.link(counter.place) or "")))  # fmt: skip
    clean = ports - len(bad)
    blocks: list[Block] = [
        Text(f"{words.count(ports, 'port')} of {words.count(sum(bool(s.ports) for s in facts.sensors.values()), 'node')} read at "
             f"every look; {clean:,} without an error that grew and with a bit error rate within {limit:.2g} ({origin}).")
    ]  # fmt: skip
    if rows:
        head = ("Node", "Port", "What", "First reading", "Last reading or worst", "Limit", "Evidence")
        more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
        blocks.append(
            Table(head, rows[:MOST_ROWS], f"Ports with errors on record{more}", frozenset({3, 4}), stack=True)
        )
    return Section("links", "Link counters", blocks)
