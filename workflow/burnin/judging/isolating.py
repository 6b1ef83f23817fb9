# SPDX-License-Identifier: Apache-2.0
"""Isolation at the gate: what the runs of a heat add to its open cases, and who is convicted, given up or a link. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.isolation import REPEATS, Case, Trial, conclude, sides
from burnin.judging.run import PARTNER, Run
from burnin.ladder import halves_differ
from burnin.nodes import fold
from burnin.topology import Topology


@dataclass(slots=True)
class Isolated:
    """Parts of the gate: `suspects`, `links` and `trials` of gate.schema.json."""

    suspects: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)


def isolate(
    plan: Mapping[str, Any],
    runs: Sequence[Run],
    convict: Callable[[Run, str], Mapping[str, Any]],
    topology: Topology | None = None,
) -> Isolated:
    """Read the heat's trials; `convict(run, node)` gives the finding on a node that only can have failed a run.

    The findings are added to the runs. Who fails alone, or with evidence, is the caller's business.
    """
    trials = [Trial.of(t) for t in plan.get("trials", [])]
    # what turns out to be the configuration's has explained what failed before: those nodes just run again; but for another
    # stack: what failed before ran on the frozen one
    explained = {
        run.workload for run in runs if any(f["scope"] == "config" and f["fault"] != "stack" for f in run.findings)
    }
    trials = [t for t in trials if not (t.failed and t.workload in explained)]
    out: set[str] = set()
    gone: set[str] = set()
    of_run: dict[Trial, Run] = {}
    for run in runs:
        out |= run.guilty()
        gone |= run.withdrawn.keys()
        trial = _trial(run, plan["groups"][run.group])
        if trial:
            trials.append(trial)
            of_run[trial] = run
    found = conclude(trials, plan["heat"], out, gone, halves_differ(plan["step"]), plan.get("repeats", REPEATS))
    for node, trial in found.convicted.items():
        run = of_run[trial]
        run.findings.append(dict(convict(run, node)))
    result = Isolated(trials=[t.to_dict() for t in found.trials])
    convicted = {*out, *found.convicted}
    for case in found.open:
        if not convicted & set(case.suspects):
            result.suspects.append(_suspect(plan, case, of_run))
    for case in found.given_up:
        entry = _suspect(plan, case, of_run)
        result.suspects.append(entry)
        parts = sides(case.pairs) or [(list(case.suspects), sorted(case.shared - set(case.suspects)))]
        result.links += [
            {
                "between": [list(one), list(two)],
                "fault": "fabric_slow",
                "reason": entry["reason"],
                "evidence": [f.where(plan["step"]) for f in case.fails],
                "leaves": [_leaves(one, topology), _leaves(two, topology)],
                "next_action": look_at(one, two, topology),
            }
            for one, two in parts
        ]
    return result


def _leaves(nodes: Sequence[str], topology: Topology | None) -> list[str]:
    """Return the leaf switches of nodes, as far as they are known."""
    return sorted({leaf for n in nodes if topology is not None and (leaf := topology.place(n).leaf)})


def look_at(one: Sequence[str], two: Sequence[str], topology: Topology | None) -> str:
    """Return what lies between two sides, tier by tier, and how the rail is found: a run uses all of them at once."""
    left, right = _leaves(one, topology), _leaves(two, topology)
    if not left or not right:
        where = "the cables and switches between them"
    elif left == right and len(left) == 1:
        where = f"the ports of both sides at {left[0]}"
    elif not set(left) & set(right):
        where = f"what lies between {', '.join(left)} and {', '.join(right)}: uplinks and switches above"
    else:
        where = f"the ports at {', '.join(sorted(set(left) | set(right)))}, then what lies above"
    rail = "to find the rail run nccl-tests between both sides once for each port (NCCL_IB_HCA=mlx5_0, then mlx5_1 ...)"
    return f"look at {where}; {rail}"


def _trial(run: Run, group: Mapping[str, Any]) -> Trial | None:
    """Return what a run tells of suspects, or None: outside isolation only failures open something.

    And one half that ran well while the other did not finish: it has not passed `halves`, but its nodes are partners for
    the tests of the other.
    """
    isolation = group["isolation"]
    config = any(f["scope"] == "config" for f in run.findings)
    half_alone = run.result["step"] == "halves" and run.cause == PARTNER and not isolation and not run.withdrawn
    troubled = bool(run.trouble or run.slow)
    failed: bool | None
    if run.guilty() or config or (run.cause and not (half_alone and not troubled)):
        failed = None
    elif troubled:
        failed = True
    else:
        failed = None if run.unread.keys() & set(isolation["suspects"] if isolation else run.nodes) else False
    # those who only fill the group have passed this step: they are partners, as in isolation
    suspects = tuple(isolation["suspects"] if isolation else group["owed"]) or tuple(run.nodes)
    trial = Trial(
        run.workload, int(run.result["heat"]), tuple(run.nodes), () if half_alone else suspects, failed,
        bool(isolation and isolation.get("pair")), tuple(group.get("unproven", ())),
    )  # fmt: skip
    tells = failed or (half_alone and failed is False)
    return trial if isolation or (tells and len(run.nodes) > 1) else None


def _suspect(plan: Mapping[str, Any], case: Case, of_run: Mapping[Trial, Run]) -> dict[str, Any]:
    """Return the entry of a case in gate.json."""
    last = max(case.fails, key=lambda f: f.heat)
    run = of_run.get(last)
    where = last.where(plan["step"]).removesuffix("/result.json:1")
    reason = f"{where}: {(run.trouble or [run.slow.reason if run.slow else 'slow'])[0]}" if run else f"{where} failed"
    if case.given_up:
        link = sides(case.pairs)
        who = " and ".join(fold(s) for s in (link[0] if len(link) == 1 else (case.suspects,)) if s)
        beside = [n for n in case.held if n not in case.suspects]
        company = (
            f"; {fold(beside)} passed since, but was in all that failed: a fault may come and go" if beside else ""
        )
        reason = f"{who}: {case.workload} in {plan['step']}: {case.given_up} ({reason}){company}"
    elif case.kind != "nodes":
        reason += "; all passed with others since: a path between them, or it comes and goes"
    return {
        "workload": case.workload,
        "nodes": list(case.held or case.suspects),
        "again": list(case.again),
        "size": case.size,
        "unresolved": bool(case.given_up),
        "reason": reason,
    }
