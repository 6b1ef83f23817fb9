# SPDX-License-Identifier: Apache-2.0
"""A world in memory: results as runs would leave them, and whole campaigns without Snakemake, Slurm or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.ladder import Heat, LadderConfig, isolation_document, next_heat, replay, steps

DEFINITIONS: dict[str, dict[str, Any]] = {
    "nccl": {"commands": {"all_reduce": ""}, "metric": "busbw"},
    "hpl": {"commands": {"hpl": ""}, "metric": "gflops"},
    "nemo": {"commands": {"pretrain": ""}, "metric": "step_time"},
}
VALUES = {"nccl": (373.0, "GB/s"), "hpl": (4.3e5, "GFLOPS"), "nemo": (2.1, "s")}
CRITERIA: dict[str, Any] = {
    "source": "test",
    "date": "2026-01-01",
    "spread": {w: {"tolerance": 0.05, "least_peers": 3} for w in DEFINITIONS},
    "mad_factor": 5,
    "baselines": [],
    "halves_overlap": 0.9,
    "loss_band": 0.1,
    "fabric_ber": 1e-12,
    "xid": {},
}
TOOLS = {"dmesg": "pass", "nvidia-smi": "pass", "ipmi": "pass"}


def usual(workload: str, nodes: int) -> float:
    """Return the value of a healthy run: Gflops count all nodes, bandwidth does not."""
    return VALUES[workload][0] * (nodes if workload == "hpl" else 1)


def ladder(count: int, workloads: Sequence[str] = ("nccl", "hpl")) -> LadderConfig:
    """Return a ladder of `count` nodes; the resume step is left out, as with `resume_test.workload: null`."""
    per_step = {s.name: tuple(workloads) for s in steps(count) if s.name != "resume"}
    return LadderConfig(tuple(f"n{i:03d}" for i in range(count)), per_step)


def plan_of(heat: Heat) -> dict[str, Any]:
    """Return plan.json of a heat (what judging reads of it)."""
    groups = {
        g.name: {
            "nodes": list(g.nodes),
            "owed": list(g.owed),
            "workloads": list(g.workloads),
            "isolation": isolation_document(g.isolation) if g.isolation else None,
        }
        for g in heat.groups
    }
    trials = [t.to_dict() for t in heat.trials]
    return {"campaign": "test", "step": heat.step, "heat": heat.heat, "groups": groups, "trials": trials}


def iteration(number: int, workload: str, value: float | None = None, **changes: Any) -> dict[str, Any]:
    """Return a passing iteration."""
    value_of_one, unit = VALUES[workload]
    return {
        "iteration": number,
        "command": next(iter(DEFINITIONS[workload]["commands"])),
        "start": 1000.0 + number * 10,
        "end": 1010.0 + number * 10,
        "exit": 0,
        "output": f"attempt0/out-{number:05d}.log",
        "verdict": "pass",
        "complete": True,
        "value": value_of_one if value is None else value,
        "value_line": 7,
        "unit": unit,
        "problems": [],
        "ended": "itself",
        "facts": {},
    } | changes


def result(step: str, heat: int, workload: str, group: str, nodes: Sequence[str], **changes: Any) -> dict[str, Any]:
    """Return a passing result; `changes` replace its keys."""
    probe = {n: {"tools": dict(TOOLS), "problems": [], "file": f"attempt0/probe/{n}.txt", "time": 1.0} for n in nodes}
    return {
        "campaign": "test",
        "step": step,
        "heat": heat,
        "workload": workload,
        "group": group,
        "phase": "result",
        "nodes": list(nodes),
        "state": "complete",
        "reason": "the window is full",
        "casualty": None,
        "window": {"iterations": 2},
        "attempt": 0,
        "iterations": [iteration(n, workload, usual(workload, len(nodes))) for n in (0, 1)],
        "interrupted": [],
        "signals": [],
        "probes": {"before": probe, "after": {n: dict(p) for n, p in probe.items()}},
        "facts": {},
        "started": 1000.0,
        "ended": 1020.0,
        "hours": 20 / 3600,
        "jobs": [],
        "earlier_attempts": 0,
        "spec": "0",
    } | changes


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
            gates = [g for g in self.gates if g["step"] == heat.step]
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
