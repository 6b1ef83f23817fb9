# SPDX-License-Identifier: Apache-2.0
"""Every node and step in one matrix; nodes that are alike share a row. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from burnin.report import words
from burnin.report.blocks import Block, Cell, Section, Table, Text
from burnin.report.cells import Cell as State
from burnin.report.sections.view import View

#: Up to so many nodes each has a row of its own.
FOLD_FROM = 33
#: No more rows than this, whatever happened.
MOST_ROWS = 300


def section(view: View) -> Section:
    """Return the matrix, and how many nodes passed each workload of each step."""
    legend = "; ".join(f"{mark} {state}" for state, (mark, _) in words.MARKS.items())
    blocks: list[Block] = [matrix(view), Text(f"{legend}. A number behind a mark: in so many heats it ran.", "note")]
    blocks.append(by_workload(view))
    return Section("nodes", "Nodes and steps", blocks)


def matrix(view: View) -> Table:
    """Return nodes x steps. Rows that say the same are one row: the nodes folded, and how many they are."""
    facts = view.facts
    alone = len(facts.nodes) < FOLD_FROM
    rows: dict[tuple[object, ...], list[str]] = {}
    for node in facts.nodes:
        entry = view.entry(node)
        states = tuple(view.step_cell(node, s).state for s in facts.steps)
        key = (entry["status"], states, entry["fault"], entry["part"], len(entry["repairs"]), node if alone else "")
        rows.setdefault(key, []).append(node)
    order = sorted(rows.items(), key=lambda r: (r[0][0] == "accepted", 0)) if not alone else list(rows.items())
    out = []
    for _, names in order[:MOST_ROWS]:
        first = names[0]
        entry = view.entry(first)
        hours = [view.hours(n) for n in names]
        spent = words.span(3600 * min(hours), 3600 * max(hours))
        out.append((
            Cell(words.listed(names), href=f"#{view.anchor(first)}" if entry["status"] == "failed" and len(names) == 1 else ""),
            *([] if alone else [Cell(f"{len(names):,}")]),
            Cell(entry["status"], words.TONES[entry["status"]]),
            *(mark([view.step_cell(n, step) for n in names]) for step in facts.steps),
            Cell(spent),
            Cell(f"{entry['part'] or ''} {entry['fault'] or ''}".strip()),
        ))  # fmt: skip
    if len(order) > MOST_ROWS:
        left = sum(len(names) for _, names in order[MOST_ROWS:])
        more = Cell(f"and {left:,} nodes in {len(order) - MOST_ROWS} more rows: see summary.csv")
        out.append((more, *(Cell("") for _ in range(len(facts.steps) + 4))))
    head = ("Node" if alone else "Nodes", *([] if alone else ["Count"]), "Status", *facts.steps, "Under load", "Fault")
    return Table(head, out, numeric=frozenset({len(head) - 2} if alone else {1, len(head) - 2}), tight=True)


def mark(cells: Sequence[State]) -> Cell:
    """Return the mark of cells of one state; with the number of heats they ran in, if any ran more than once."""
    first = cells[0]
    sign, tone = words.MARKS[first.state]
    heats = sorted({c.heats for c in cells})
    again = "" if heats[-1] <= 1 else f" {heats[0]}" if len(heats) == 1 else f" {heats[0]}–{heats[-1]}"
    title = f"{first.state}: {first.text}" if first.text and len(cells) == 1 else first.state
    return Cell(f"{sign}{again}", tone, title=title)


def by_workload(view: View) -> Table:
    """Return a row for each step: its groups and heats, and how many nodes are in which state with each workload."""
    facts = view.facts
    workloads = list(dict.fromkeys(w for of in facts.steps.values() for w in of))
    rows = []
    for step, mine in facts.steps.items():
        heats = sorted({heat for name, heat in facts.plans if name == step})
        groups = [g for h in heats for g in facts.plans[step, h]["groups"].values()]
        sizes = "/".join(str(n) for n in sorted({len(g["nodes"]) for g in groups}))
        states = (Counter(view.cells[n][step, w].state for n in facts.nodes) if w in mine else None for w in workloads)
        rows.append((
            Cell(step), Cell(f"{len(groups):,} × {sizes}" if groups else "–"), Cell(f"{len(heats)}"),
            *(Cell(_told(of) if of else "–") for of in states),
        ))  # fmt: skip
    return Table(
        ("Step", "Groups × nodes", "Heats", *workloads), rows, "Steps and workloads", frozenset({2}), stack=True
    )


def _told(states: Counter[str]) -> str:
    return ", ".join(f"{states[s]:,} {s}" for s in words.MARKS if states[s])


def window(view: View, step: str, workload: str) -> str:
    """Return how long a workload runs in a step, as the config has it."""
    if step == "resume":
        return "two jobs"
    entry = view.facts.config["windows"][workload]
    found = entry.get(step, entry["default"])
    return f"{found['hours']:g} h" if "hours" in found else words.count(int(found["iterations"]), "iteration")
