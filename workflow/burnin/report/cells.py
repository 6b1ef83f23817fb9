# SPDX-License-Identifier: Apache-2.0
"""Where every node stands in every (step, workload), from what happened in order. Pure.

The report's matrix, the table for spreadsheets and JUnit's test cases are this, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from burnin.ladder import is_gate, repaired_by

#: What a cell may say, the worst first: a step is as bad as its worst workload.
STATES = ("failed", "suspect", "unknown", "owes", "withdrawn", "not counted", "not run", "passed")
WORST = {state: number for number, state in enumerate(STATES)}


class Cell(NamedTuple):
    """A node in one workload of a step.

    `state`: passed; failed; suspect (its group failed, not cleared); unknown (evidence is missing); owes (must run
    again, not to blame); withdrawn (taken out by somebody else, or on another stack); not counted (ran in a heat in which the node failed
    with another workload); not run. `heats`: in how many heats it ran since the last repair. `text`: why not passed.
    """

    state: str
    heats: int = 0
    text: str = ""
    heat: int | None = None
    group: str = ""


def cells(
    events: Iterable[Mapping[str, Any]],
    plans: Mapping[tuple[str, int], Mapping[str, Any]],
    nodes: Iterable[str],
    steps: Mapping[str, Sequence[str]],
) -> dict[str, dict[tuple[str, str], Cell]]:
    """Return node -> (step, workload) -> cell. A repair begins a node anew; what was passed since stays passed."""
    empty = {(step, w): Cell("not run") for step, workloads in steps.items() for w in workloads}
    out = {node: dict(empty) for node in nodes}
    for event in events:
        if not is_gate(event):
            for node in repaired_by(event["repair"]) if "repair" in event else ():
                if node in out:
                    out[node] = dict(empty)
            continue
        plan = plans.get((event["step"], event["heat"]))
        failures: dict[tuple[str, str], str] = {}
        for found in event["findings"]:
            if found["scope"] == "node":
                failures.setdefault((found["node"], found["workload"]), found["reason"])
        for group, members in event["groups"].items():
            ran = plan["groups"][group]["workloads"] if plan and group in plan["groups"] else None
            for node in members:
                if node not in out:
                    continue
                for workload in ran if ran is not None else event["passed"].get(node, []):
                    key = (event["step"], workload)
                    before = out[node].get(key, Cell("not run"))
                    state, text = _state(event, node, workload, failures)
                    if before.state == "passed" and state != "failed":
                        state, text = "passed", ""  # a node that filled up a group of others keeps what it passed
                    out[node][key] = Cell(state, before.heats + 1, text, event["heat"], group)
    return out


def _state(
    gate: Mapping[str, Any], node: str, workload: str, failures: Mapping[tuple[str, str], str]
) -> tuple[str, str]:
    """Return a gate's word on a node in a workload, and why."""
    outcome = gate["outcome"].get(node)
    if outcome == "failed":
        if (node, workload) in failures:
            return "failed", failures[node, workload]
        return "not counted", "the node failed in this heat with another workload"
    if workload in gate["passed"].get(node, []):
        return "passed", ""
    owed = gate["owes"].get(node, {})
    if outcome == "suspect":
        why = next((s["reason"] for s in gate["suspects"] if node in s["nodes"]), "its group failed")
        return "suspect", why
    if outcome == "withdrawn":
        return "withdrawn", gate.get("withdrawn", {}).get(node, "")
    if owed.get("cause") == "inconclusive":
        return "unknown", owed["text"]
    if outcome == "owes":
        return "owes", owed.get("text", "")
    return "passed", ""  # borrowed to fill a group, and not to blame for anything


def worst(found: Iterable[Cell]) -> Cell:
    """Return the cell of a step: the worst of its workloads, with the most heats. `not run` only if all are."""
    all_of = list(found)
    if not all_of:
        return Cell("not run")
    lead = min(all_of, key=lambda c: WORST[c.state])
    if lead.state == "not run" and any(c.state == "passed" for c in all_of):
        lead = Cell("owes", lead.heats, "not all workloads of the step have been run")
    return lead._replace(heats=max(c.heats for c in all_of))
