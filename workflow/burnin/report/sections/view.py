# SPDX-License-Identifier: Apache-2.0
"""What several sections need, derived once from the facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnin.report.cells import Cell, cells, worst
from burnin.report.facts import Facts, RunFacts


class View:
    """The facts, and what follows from them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.cells = cells(facts.events, facts.plans, facts.nodes, facts.steps)
        self.runs: dict[tuple[str, str], list[RunFacts]] = {}
        for run in facts.runs:
            self.runs.setdefault((run.step, run.workload), []).append(run)
        #: (step, heat, workload, group) -> nodes that a finding of that run convicts; empty: nobody in particular
        self.blamed: dict[tuple[str, int, str, str], list[str]] = {}
        for gate in facts.gates:
            for found in gate["findings"]:
                key = (found["step"], found["heat"], found["workload"], found["group"])
                names = self.blamed.setdefault(key, [])
                if found["scope"] == "node" and found["node"] not in names:
                    names.append(found["node"])
            for suspect in gate["suspects"]:
                for group, members in gate["groups"].items():
                    if set(suspect["nodes"]) & set(members):
                        self.blamed.setdefault((gate["step"], gate["heat"], suspect["workload"], group), [])

    def step_cell(self, node: str, step: str) -> Cell:
        """Return a node's cell of a whole step."""
        return worst(self.cells[node][step, w] for w in self.facts.steps[step])

    def isolates(self, run: RunFacts) -> bool:
        """Tell whether a run looks for a fault: its group is of another size, or made of suspects, and no peer of others."""
        plan = self.facts.plans.get((run.step, run.heat))
        group = plan["groups"].get(run.group) if plan else None
        return bool(group and group["isolation"])

    def is_blamed(self, run: RunFacts) -> bool:
        """Tell whether a gate held something against a run."""
        return (run.step, run.heat, run.workload, run.group) in self.blamed

    def name_of(self, run: RunFacts) -> str:
        """Return what a run is called in a plot: who is to blame, or its nodes."""
        from burnin.report.words import listed

        return listed(self.blamed.get((run.step, run.heat, run.workload, run.group)) or run.nodes, 4)

    def hours(self, node: str) -> float:
        """Return the hours under load that count for a node (since its last repair)."""
        per_step: Mapping[str, Mapping[str, float]] = self.facts.summary["nodes"][node]["hours"]
        return sum(h for of in per_step.values() for h in of.values())

    def by_status(self) -> dict[str, list[str]]:
        """Return status -> nodes, in config order."""
        out: dict[str, list[str]] = {}
        for name, entry in self.facts.summary["nodes"].items():
            out.setdefault(str(entry["status"]), []).append(name)
        return out

    def anchor(self, node: str, number: int = 0) -> str:
        """Return the page's anchor of a node's failure."""
        return f"failure-{node}" + (f"-{number}" if number else "")

    def entry(self, node: str) -> Mapping[str, Any]:
        """Return a node's entry of the summary."""
        found: Mapping[str, Any] = self.facts.summary["nodes"][node]
        return found
