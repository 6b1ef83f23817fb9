# SPDX-License-Identifier: Apache-2.0
"""The two tests that are no windows: the resume test, and whether the halves ran together. Pure."""

from __future__ import annotations

from burnin.judging.heat import together
from burnin.report import svg, words
from burnin.report.blocks import Block, Cell, Figure, Figures, Section, Table, Text
from burnin.report.facts import RunFacts
from burnin.report.sections.view import View


def resume(view: View) -> Section:
    """Return what the resume test showed: every condition with its value."""
    facts = view.facts
    title = "Resume test"
    if "resume" not in facts.steps:
        return Section("resume", title, [Text("Not part of this campaign (config key resume_test).", "note")])
    runs = [r for r in facts.runs if r.step == "resume"]
    if not runs:
        return Section("resume", title, [Text("It has not been run: the campaign did not come that far.", "warn")])
    blocks: list[Block] = []
    for run in runs:
        blocks += _resumed(view, run)
    return Section("resume", title, blocks)


def _resumed(view: View, run: RunFacts) -> list[Block]:
    """Return the conditions of one resume test."""
    gate = next((g for g in view.facts.gates if (g["step"], g["heat"]) == (run.step, run.heat)), None)
    passed = gate is not None and all(run.workload in gate["passed"].get(n, []) for n in run.nodes)
    first = run.first or {}
    saves = [c for c in first.get("checkpoints") or [] if c.get("finalized")]
    saved = saves[-1]["iteration"] if saves else None
    start = (run.details.get("steps") or {}).get("first")
    resumed = (run.details.get("resumed_from") or {}).get("step")
    curve = {float(s): float(v) for s, v in first.get("curve") or [] if s is not None and v is not None}
    near = min(curve, key=lambda s: abs(s - start), default=None) if start is not None else None
    loss = run.details.get("loss_first")
    band = float(view.facts.criteria["loss_band"])
    rows = [
        ("First job: last whole checkpoint at step", words.value(saved), "there is one", saved is not None),
        ("First job: cancelled behind step", words.value(first.get("cancelled_after_step")), "behind the checkpoint",
         saved is not None and (first.get("cancelled_after_step") or 0) >= saved),
        ("Second job: says it resumed from step", words.value(resumed), "it says so", resumed is not None),
        ("Second job: first step", words.value(start), f"not before {words.value(saved)}",
         start is not None and saved is not None and start >= saved),
    ]  # fmt: skip
    if loss is not None and near is not None:
        limit = (
            f"within {words.percent(band, 0)} of {words.value(curve[near])} (step {near:g} before; criteria loss_band)"
        )
        rows.append(
            (
                "Second job: first loss",
                words.value(float(loss)),
                limit,
                abs(float(loss) - curve[near]) <= band * abs(curve[near]),
            )
        )
    cells = [
        (Cell(a), Cell(b), Cell(c), Cell("✓ yes" if ok else "✕ no", "ok" if ok else "bad")) for a, b, c, ok in rows
    ]
    word = "passed" if passed else "not decided yet" if gate is None else f"not passed: {run.reason}"
    blocks: list[Block] = [
        Text(f"{run.workload} on {words.listed(run.nodes)}, heat {run.heat}: {word}."),
        Table(("Condition", "Value", "Wanted", "Holds"), cells, numeric=frozenset({1}), stack=True),
    ]
    after = run.details.get("curve") or []
    if curve and after:
        before = sorted(curve.items())
        xs = svg.bounds([s for s, _ in (*before, *after)], pad=0.03)
        plot = svg.frame(xs, svg.bounds([v for _, v in (*before, *after)], 0.12), "training step", "loss")
        layers = [
            svg.line(plot, before, svg.COLOURS[4], "first job", 2.4),
            svg.line(plot, after, svg.COLOURS[0], "second job"),
        ]
        figure = Figure(svg.draw(plot, *layers, title="loss before and after the resume"),
                        "Loss of the first job (orange) until it was cancelled, and of the second (blue).")  # fmt: skip
        blocks.append(Figures([figure]))
    return blocks


def halves(view: View) -> Section:
    """Return for each pair of halves how long they ran together."""
    facts = view.facts
    if "halves" not in facts.steps:
        return Section("halves", "Halves at the same time", [Text("One node has no halves.", "note")])
    limit = float(facts.criteria["halves_overlap"])
    rows = []
    for heat in sorted({h for s, h in facts.plans if s == "halves"}):
        for workload in facts.steps["halves"]:
            pair = [
                r for r in view.runs.get(("halves", workload), [])
                if r.heat == heat and not facts.plans["halves", heat]["groups"].get(r.group, {}).get("isolation")
            ]  # fmt: skip
            spans = [r.span for r in pair if r.span]
            share = together(spans[0], spans[1]) if len(spans) == 2 else None
            ok = share is not None and share >= limit
            unit = words.UNITS[facts.definition(workload)["metric"]]
            values = [
                f"{words.listed(r.nodes, 4)}: {words.value(next(iter(r.medians.values()))[0], unit)}"
                for r in pair
                if r.medians
            ]
            rows.append((
                Cell(f"{heat}"), Cell(workload), Cell("; ".join(values) or "–"),
                Cell(words.percent(share), "ok" if ok else "bad" if share is not None else "quiet"),
                Cell(f"at least {words.percent(limit, 0)} (criteria halves_overlap)"),
            ))  # fmt: skip
    if not rows:
        return Section("halves", "Halves at the same time", [Text("They have not been run yet.", "warn")])
    head = ("Heat", "Workload", "Each half: median of its first command", "Together", "Limit")
    note = Text(
        "Both halves under load at once test what they share: spines, power, cooling. If they did not run together for long "
        "enough, the step was not tested, and is owed.", "note"
    )  # fmt: skip
    return Section(
        "halves", "Halves at the same time", [note, Table(head, rows, numeric=frozenset({0, 3}), stack=True)]
    )
