# SPDX-License-Identifier: Apache-2.0
"""A world in memory: results as runs would leave them, and whole campaigns without Snakemake, Slurm or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.ladder import Heat, LadderConfig, next_heat, replay
from burnin.simulate import CRITERIA, DEFINITIONS, TOOLS, iteration, ladder_of, plan_of, result, usual

__all__ = [
    "CRITERIA",
    "DEFINITIONS",
    "TOOLS",
    "Campaign",
    "context",
    "iteration",
    "ladder",
    "plan_of",
    "result",
    "usual",
]


def ladder(count: int, workloads: Sequence[str] = ("nccl", "hpl")) -> LadderConfig:
    """Return a ladder of `count` nodes; the resume step is left out, as with `resume_test.workload: null`."""
    return ladder_of(count, workloads)


def context(**changes: Any) -> Context:
    """Return a context for judging."""
    fields: dict[str, Any] = {
        "gpus_per_node": 8,
        "criteria": CRITERIA,
        "criteria_digest": "c",
        "definitions": DEFINITIONS,
        "rerun_limit": 2,
    }
    return Context(**(fields | changes))


#: (step, heat, workload, group name, nodes) -> result
Runner = Callable[[str, int, str, str, Sequence[str]], dict[str, Any]]


@dataclass
class Campaign:
    """A campaign driven in memory to its end."""

    config: LadderConfig
    run: Runner
    gates: list[dict[str, Any]] = field(default_factory=list)
    heats: list[Heat] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    most_heats: int = 400
    stopped: dict[str, Any] | None = None

    def to_end(self) -> Campaign:
        """Run heats until the ladder wants no more or a gate stops the campaign."""
        while (heat := next_heat(self.config, self.gates)) is not None:
            assert len(self.heats) < self.most_heats, "the campaign does not end"
            self.heats.append(heat)
            plan = plan_of(heat)
            results: dict[tuple[str, str], Mapping[str, Any]] = {}
            for name, group in plan["groups"].items():
                for workload in group["workloads"]:
                    results[workload, name] = self.run(heat.step, heat.heat, workload, name, group["nodes"])
            earlier = [r for r in self.results if r["step"] == heat.step]
            gates = [g for g in self.gates if g.get("step") == heat.step]
            gate = judge_heat(plan, results, context(earlier=earlier, gates=gates))
            self.results += [dict(r) for r in results.values()]
            self.gates.append(gate)
            if gate["stopped"]:
                self.stopped = gate["stopped"]
                break
        return self

    @property
    def failed(self) -> set[str]:
        """Return the failed nodes."""
        return set(replay(self.config, self.gates).failed)

    @property
    def accepted(self) -> set[str]:
        """Return the nodes that are still in when the ladder is over."""
        return set(replay(self.config, self.gates).roster(self.config.nodes)) if self.stopped is None else set()

    @property
    def suspects(self) -> set[str]:
        """Return the suspects that could not be cleared."""
        return set(replay(self.config, self.gates).unresolved)
