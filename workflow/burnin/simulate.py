# SPDX-License-Identifier: Apache-2.0
"""Whole campaigns in memory: the real ladder and the real gates over random clusters, faults, repairs and operators.

No Snakemake, Slurm, clock or file. What a run would leave is a result as the runner writes it. `simulate` drives one
campaign from a seed; `violations` holds it against what must never happen:

(a) no node with an unrepaired fault that could show is accepted; (b) no healthy node is failed; (c) an accepted node
has, after its last repair, a passing run of full size in every step and workload; (d) groups only have nodes that
passed the step before; (e) every campaign ends; (f) verdicts do not depend on the order of results, nor on restarts;
(g) what the configuration or the operator did drops nobody.

What the truth is measured by: a fault that comes and goes counts for (a) if it showed in a run with nothing else wrong
and its node was not held for it; if the node only filled that run's group, then unless it passed the step again. A slow
node does not count (with few peers nobody can know), a node convicted for it must be slow.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.ladder import (
    Heat,
    Standing,
    heat_of_standing,
    is_gate,
    isolation_document,
    next_heat,
    repaired_by,
    replay,
)
from burnin.nodes import fold
from burnin.scenarios import (
    STICKS,
    Fault,
    Simulation,
    ladder_of,
    of_document,
    scenario,
    signal_of,
    with_another_node,
)

__all__ = ["Fault", "Simulation", "ladder_of", "of_document", "scenario", "simulate", "violations"]

DEFINITIONS: dict[str, dict[str, Any]] = {
    "nccl": {"commands": {"all_reduce": ""}, "metric": "busbw"},
    "hpl": {"commands": {"hpl": ""}, "metric": "gflops"},
}
VALUES = {"nccl": (373.0, "GB/s"), "hpl": (4.3e5, "GFLOPS")}
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


# ----------------------------------------------------------------------------------------------- what runs leave behind


def usual(workload: str, nodes: int) -> float:
    """Return the value of a healthy run: Gflops count all nodes, bandwidth does not."""
    return VALUES[workload][0] * (nodes if workload == "hpl" else 1)


def plan_of(heat: Heat, repeats: int | None = None, roster: Sequence[str] = ()) -> dict[str, Any]:
    """Return plan.json of a heat (what judging reads of it). `roster`: default, the nodes of the heat."""
    groups = {
        g.name: {
            "nodes": list(g.nodes),
            "owed": list(g.owed),
            "workloads": list(g.workloads),
            "isolation": isolation_document(g.isolation) if g.isolation else None,
            "unproven": list(g.unproven),
        }
        for g in heat.groups
    }
    plan = {
        "campaign": "test", "step": heat.step, "heat": heat.heat, "groups": groups,
        "roster": list(roster) or [n for g in heat.groups for n in g.nodes],
        "trials": [t.to_dict() for t in heat.trials],
    }  # fmt: skip
    return plan if repeats is None else {**plan, "repeats": repeats}


def iteration(number: int, workload: str, value: float | None = None, **changes: Any) -> dict[str, Any]:
    """Return a passing iteration."""
    value_of_one, unit = VALUES.get(workload, (1.0, ""))
    return {
        "iteration": number,
        "command": next(iter(DEFINITIONS[workload]["commands"])) if workload in DEFINITIONS else workload,
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
    value = usual(workload, len(nodes)) if workload in VALUES else None
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
        "iterations": [iteration(n, workload, value) for n in (0, 1)],
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


def hang(found: dict[str, Any]) -> dict[str, Any]:
    """Let a run hang, with no evidence of who it was."""
    found |= {"state": "stopped", "reason": "hang: no output for 300 s", "iterations": found["iterations"][:1]}
    return found


# ------------------------------------------------------------------------------------------------------------- faults


SIGNALS = (
    ("gpu_lost", {"text": "GPU is lost", "gpu": 5}),
    ("fan_failed", {"text": "FAN6_F | 0 RPM | cr", "device": "FAN6_F"}),
    ("link_down_count", {"text": "Link Down Counter : 2", "value": 2.0, "device": "mlx5_3"}),
)


def _show(found: dict[str, Any], fault: Fault) -> None:
    """Let a fault show in a result as the tools would show it."""
    node = fault.nodes[0]
    if fault.how == "unread":
        found["probes"].get("after", {}).pop(node, None)
        return
    if found["state"] != "complete":
        return
    if fault.how == "signal":
        kind, fields = SIGNALS[sum(map(ord, node)) % len(SIGNALS)]
        seen = (signal_of(fault.kind, fault.part) if fault.kind else None) or {"kind": kind, **fields}
        place = {"line": 9, "file": f"attempt0/probe-after/{node}.txt", "node": node, "when": "after"}
        found["signals"].append({**seen, **place})
    elif fault.how == "crash":
        death = {"state": "NODE_FAIL", "lost": [node], "text": "node down", "job_id": "1"}
        found |= {"state": "casualty", "casualty": death}
    elif fault.how == "slow":
        for item in found["iterations"]:
            if item["value"] is not None:
                item["value"] *= 0.7
    else:
        hang(found)


# ------------------------------------------------------------------------------------------------------- the campaign


def _run(sim: Simulation, step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Return what one run leaves behind."""
    found = result(step, heat, workload, group, nodes)
    names = [s.name for s in sim.config.steps()]
    at = names.index(step) if step in names else -1
    if step == "resume":
        _resumed(found)
    struck = sim.operator.get((step, heat)) if step != "retest" else None
    away = sorted(sim.drained().intersection(nodes)) if step != "retest" else []
    if away:
        death = {"state": "NOT_STARTED", "lost": away, "text": "the job cannot start: drained by alice", "job_id": "1"}
        return found | {"state": "casualty", "casualty": death, "iterations": [], "probes": {}}
    if moved := sorted(sim.moved().intersection(nodes)) if step != "retest" else []:
        found["signals"] += [_other_stack(n) for n in moved]
        if not sim.observes:
            return found | {"state": "stopped", "reason": "broken before the run", "iterations": []}
    if struck == "unread":
        del found["probes"]["after"][nodes[0]]
    elif struck:
        death = {"state": struck, "lost": [], "text": "ended from outside", "job_id": "1"}
        return found | {"state": "casualty", "casualty": death, "iterations": [], "probes": {}}
    if sim.config_fault and all(
        not only or v in only for only, v in zip(sim.config_fault, (step, workload), strict=True)
    ):
        signal = {"kind": "oom_gpu", "text": "CUDA out of memory", "line": 3, "file": "attempt0/out-00000.log"}
        failed = found["iterations"][0] | {"verdict": "fail", "exit": 1}
        return found | {"state": "stopped", "reason": "oom_gpu", "signals": [signal], "iterations": [failed]}
    here = set(nodes)
    showing = []
    for number, fault in enumerate(sim.everything):
        if fault.fixed or not fault.meets(here) or len(nodes) < fault.min_nodes:
            continue
        if fault.kind in STICKS and fault.shown:
            pass  # until a technician comes, everywhere
        elif step == "retest":
            if fault.first > 0 or fault.steps or fault.how in ("mute", "slow", "unread"):
                continue  # the diagnostic does not see everything
        elif at < fault.first or not fault.shows_in(step, workload):
            continue
        if (
            fault.chance < 1
            and random.Random(f"{sim.seed} {number} {step} {heat} {workload} {group}").random() > fault.chance
        ):
            continue
        showing.append(fault)
    for fault in showing:
        _show(found, fault)
    if len(showing) == 1 and not struck:
        showing[0].shown = (len(sim.events), tuple(nodes))
    return found


def _other_stack(node: str) -> dict[str, Any]:
    """Return the signal of a node that has booted into another kernel."""
    detail = {"what": "kernel", "before": "5.15", "now": "6.1"}
    place = {"line": 5, "file": f"attempt0/probe-before/{node}.txt", "node": node, "when": "before"}
    return {"kind": "stack_changed", "text": f"{node}: kernel is '6.1', was '5.15'", "detail": detail, **place}


def _resumed(found: dict[str, Any]) -> None:
    """Let a run be the second job of a resume test that went on where the first one's checkpoint was."""
    first = {"cancelled_after_step": 25, "checkpoints": [{"iteration": 20, "finalized": True}], "curve": [[21, 2.5]]}
    found["facts"] = {"first": first}
    found["iterations"][-1]["facts"] = {
        "resumed_from": "step=20",
        "steps": {"first": 21, "count": 5},
        "loss_first": 2.5,
    }


def simulate(seed: int, nodes: int | None = None, check: bool = True, most_heats: int = 400) -> Simulation:
    """Drive the campaign of a seed to its end. `check`: hold every heat against (d), (f) on the way."""
    return drive(scenario(seed, nodes), check, most_heats)


def drive(sim: Simulation, check: bool = True, most_heats: int = 400) -> Simulation:
    """Drive a campaign to its end: heats, gates, repairs, and what operators do in the meantime."""
    chance = random.Random(f"course {sim.seed}")
    repaired: dict[str, int] = {}
    while True:
        if sim.grows is not None and len(sim.heats) >= sim.grows:
            sim.config, sim.grows = with_another_node(sim.config), None
        standing = replay(sim.config, sim.events)
        if back := [n for n in standing.withdrawn if n not in sim.drained() | sim.moved()]:
            sim.events += [{"returned": {"kind": "returned", "node": n, "state": "IDLE", "time": 1.0}} for n in back]
            continue
        heat = heat_of_standing(sim.config, standing)
        if _repaired(sim, standing, heat is None, chance, repaired):
            continue
        if heat is None:
            now = len(sim.heats)
            spans = (*sim.drains, *sim.stacks)
            if not any(end is not None and end > now and n in standing.withdrawn for n, _, end in spans):
                return sim
            # time passes: whoever comes back some day is back at the next start
            sim.drains, sim.stacks = _over_by(sim.drains, now), _over_by(sim.stacks, now)
            continue
        if len(sim.heats) >= most_heats:
            sim.broken.append(f"(e) the campaign does not end: {len(sim.heats)} heats")
            return sim
        advance(sim, heat, standing, chance if check else None)
        if sim.stops > 10:
            sim.broken.append(f"(e) it stops again and again: {sim.gates()[-1]['stopped']['text']}")
            return sim


def _over_by(spans: Sequence[tuple[str, int, int | None]], now: int) -> list[tuple[str, int, int | None]]:
    """Return spans of time of which those that end some day have ended."""
    return [(n, start, None if end is None else min(end, now)) for n, start, end in spans]


def advance(sim: Simulation, heat: Heat, standing: Standing, chance: random.Random | None) -> None:
    """Run a heat and its gate; with `chance` it is held against (d) and, now and then, (f)."""
    gate, results = _gate(sim, heat, sim.kept)
    if chance:
        _check_heat(sim, heat, standing.passed, standing.roster(sim.config.nodes))
        if chance.random() < 0.3:
            _check_order(sim, heat, gate, results, sim.kept, chance)
    _count(sim, heat, results)
    for node, outcome in gate["outcome"].items():
        if outcome == "failed" and not any(f.nodes == (node,) for f in sim.faults):
            sim.broken.append(f"(b) {node} failed in {heat.step}/heat{heat.heat} and is healthy")
    for (workload, name), found in results.items():
        mixed = any(s["kind"] == "stack_changed" for s in found["signals"])
        if mixed and any(workload in gate["passed"].get(n, []) for n in found["nodes"]):
            sim.broken.append(f"(c) {name} passed {workload} in {heat.step}/heat{heat.heat} on another stack")
    sim.heats.append((heat, len(sim.events), len(standing.roster(sim.config.nodes))))
    sim.configs.append(sim.config)
    sim.events.append(gate)
    sim.kept += results.values()
    if gate["stopped"]:
        sim.stops += 1
        if gate["stopped"]["kind"] == "stack":
            now = len(sim.heats)
            sim.stacks = [(n, start, min(now, end or now)) for n, start, end in sim.stacks]  # it is put back
        elif gate["stopped"]["kind"] not in ("cancelled", "time_limit", "died", "inconclusive"):
            sim.config_fault = None  # the operator follows the cure
        elif gate["stopped"]["kind"] == "inconclusive":
            for fault in (f for f in sim.faults if f.how == "unread"):
                fault.fixed = True  # ... and makes the tools work


def _context(heat: Heat, events: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]]) -> Context:
    return Context(
        gpus_per_node=8,
        criteria=CRITERIA,
        criteria_digest="c",
        definitions=DEFINITIONS,
        rerun_limit=2,
        earlier=[r for r in kept if r["step"] == heat.step],
        gates=[e for e in events if e.get("step") == heat.step],
    )


def _gate(
    sim: Simulation, heat: Heat, kept: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    """Run a heat and judge it."""
    plan = plan_of(heat, sim.config.repeats, replay(sim.config, sim.events).roster(sim.config.nodes))
    results = {
        (w, name): _run(sim, heat.step, heat.heat, w, name, g["nodes"])
        for name, g in plan["groups"].items()
        for w in g["workloads"]
    }
    return judge_heat(plan, results, _context(heat, sim.events, kept)), results


def _repaired(sim: Simulation, standing: Standing, over: bool, chance: random.Random, repaired: dict[str, int]) -> bool:
    """Record the next repair, if there is one: of a file in its order, else by chance. Tell whether there was."""
    if sim.repairs is not None:
        while over and sim.repairs:
            wanted = sim.repairs.pop(0)
            nodes = [
                n for n in wanted.get("link", [wanted.get("node")]) if n in standing.failed or n in standing.unresolved
            ]
            if nodes:  # a repair of a node that is not out is refused
                _repair(sim, nodes, "link" in wanted, wanted.get("fixes", True))
                return True
        return False
    out = [n for n in (*standing.failed, *standing.unresolved) if repaired.get(n, 0) < 2]
    if not out or not (over or chance.random() < 0.15) or chance.random() >= 0.5:
        return False
    node = chance.choice(sorted(out))
    waits = next((link["waits"] for link in standing.links if node in link["waits"]), [node])
    nodes = waits if len(waits) <= 4 and chance.random() < 0.7 else [node]
    for one in nodes:
        repaired[one] = repaired.get(one, 0) + 1
    _repair(sim, nodes, len(nodes) > 1, chance.random() < 0.7)
    return True


def _repair(sim: Simulation, nodes: Sequence[str], link: bool, fixes: bool) -> None:
    """Record the repair of a node or of a link, which fixes what is wrong, or does not."""
    for fault in sim.faults:
        if set(nodes) & set(fault.nodes):
            fault.shown = fault.shown if fault.kind in STICKS else None
            # a link is repaired at either end, and what is wrong with a node is not repaired by its cable
            fault.fixed = fixes and (not link or len(fault.nodes) > 1)
    base = {"fix": "reseated", "by": "op", "time": 1.0}
    if link:
        sim.events.append({"repair": {"kind": "link", "part": f"{nodes[0]}/mlx5_3", "nodes": list(nodes), **base}})
    else:
        sim.events.append({"repair": {"node": nodes[0], "part": "gpu5", **base}})


def _count(sim: Simulation, heat: Heat, results: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Count tests, hours (the window of a run; one that stops early takes a tenth) and node-hours."""
    tests = sum(len(g.workloads) for g in heat.groups if g.isolation)
    sim.tests += tests
    sim.rounds += tests > 0
    spent: dict[str, float] = {}
    isolating = {g.name for g in heat.groups if g.isolation}
    for (workload, name), found in results.items():
        hours = sim.window(workload, heat.step, name in isolating) if heat.step != "retest" else 0.25
        hours *= 1.0 if found["state"] == "complete" else 0.1
        spent[name] = spent.get(name, 0.0) + hours
        sim.node_hours += hours * len(found["nodes"])
    sim.hours += max(spent.values(), default=0.0)


# ---------------------------------------------------------------------------------------------------------- invariants


def _check_heat(
    sim: Simulation, heat: Heat, passed: Mapping[str, Mapping[tuple[str, str], int]], roster: Sequence[str]
) -> None:
    """Check (d): nobody runs who has not passed the step before, nobody runs twice."""
    members = [n for g in heat.groups for n in g.nodes]
    if len(members) != len(set(members)):
        sim.broken.append(f"(d) a node is in two groups of {heat.step}/heat{heat.heat}")
    if not set(members) <= set(roster):
        sim.broken.append(f"(d) {heat.step}/heat{heat.heat} has a node that is out")
    if heat.step == "retest":
        return
    for step in sim.config.steps():
        if step.name == heat.step:
            return
        if len(roster) < max(step.size, 2 if step.name == "halves" else 1):
            continue
        for node in members:
            if not {(step.name, w) for w in sim.config.workloads[step.name]} <= passed[node].keys():
                sim.broken.append(f"(d) {node} is in {heat.step}/heat{heat.heat} without {step.name}")


def _check_order(
    sim: Simulation,
    heat: Heat,
    gate: Mapping[str, Any],
    results: Mapping[tuple[str, str], Any],
    kept: Sequence[Mapping[str, Any]],
    chance: random.Random,
) -> None:
    """Check (f): another order of finishing, and a restart that has only the files, give the same."""
    keys = list(results)
    chance.shuffle(keys)
    events = json.loads(json.dumps(sim.events))
    again = next_heat(sim.config, events)
    if again != heat:
        sim.broken.append(f"(f) a restart plans {heat.step}/heat{heat.heat} differently")
        return
    roster = replay(sim.config, events).roster(sim.config.nodes)
    plan = json.loads(json.dumps(plan_of(heat, sim.config.repeats, roster)))
    judged = judge_heat(plan, {k: results[k] for k in keys}, _context(heat, events, list(kept)))
    if json.dumps(judged, sort_keys=True) != json.dumps(gate, sort_keys=True):
        sim.broken.append(f"(f) {heat.step}/heat{heat.heat} is judged differently in another order")


def violations(sim: Simulation) -> list[str]:
    """Return what must never happen and did: sentences with the invariant's letter."""
    found = list(sim.broken)
    standing = replay(sim.config, sim.events)
    if heat_of_standing(sim.config, standing) is not None:
        return found  # it did not end, and that is said
    accepted = standing.roster(sim.config.nodes)
    for fault in sim.faults:
        if not fault.meets(set(accepted)) or fault.how == "slow":
            continue
        if fault.chance < 1 and not _unanswered(sim, fault):
            continue
        if not _could_show(sim, fault, accepted):
            continue
        found.append(f"(a) {fault.text()} is accepted")
    since: dict[str, set[tuple[str, str]]] = {n: set() for n in sim.config.nodes}
    sizes = {s.name: s.size for s in sim.config.steps()} | {"retest": 1}
    rosters = {at: size for _, at, size in sim.heats}
    for at, event in enumerate(sim.events):
        if not is_gate(event):
            for node in repaired_by(event["repair"]) if "repair" in event else ():
                since[node] = set()
            continue
        of = {n: len(g) for g in event["groups"].values() for n in g}
        for node, workloads in event["passed"].items():
            for workload in workloads:
                key = (event["step"], workload)
                least = sizes.get(event["step"]) or rosters[at] // (2 if event["step"] == "halves" else 1)
                if of[node] >= min(least, rosters[at]):
                    since[node].add(key)
    for node in accepted:
        for step in sim.config.steps():
            if len(accepted) < max(step.size, 2 if step.name == "halves" else 1):
                continue
            for workload in sim.config.workloads[step.name]:
                if (step.name, workload) not in since[node]:
                    found.append(f"(c) {node} is accepted without {workload} in {step.name}")
    if not sim.everything:
        if standing.failed or standing.unresolved:
            found.append("(g) the configuration or the operator dropped a node")
        if back := sorted(set(standing.withdrawn) - sim.drained() - sim.moved()):
            found.append(f"(g) {fold(back)} stayed out although it is in service again")
    return found


def _unanswered(sim: Simulation, fault: Fault) -> bool:
    """Tell whether a fault that comes and goes showed, and none of its nodes was held for it since, or cleared."""
    if fault.shown is None:
        return False
    at, nodes = fault.shown
    heat = next(h for h, event, _ in sim.heats if event == at)
    owed = next(set(g.owed) for g in heat.groups if set(g.nodes) == set(nodes))
    for number, gate in ((i, e) for i, e in enumerate(sim.events) if i >= at and is_gate(e)):
        held = {n for n, o in gate["outcome"].items() if o == "failed"}
        held |= {n for s in gate["suspects"] if s["unresolved"] for n in s["nodes"]}
        if held & set(fault.nodes):
            return False
        if (
            number > at
            and gate["step"] == heat.step
            and not owed & set(fault.nodes)
            and set(fault.nodes) & set(gate["passed"])
        ):
            return False
    return True


def _could_show(sim: Simulation, fault: Fault, accepted: Sequence[str]) -> bool:
    """Tell whether those accepted must have met in a run that shows the fault."""
    for number, step in enumerate(sim.config.steps()):
        size = step.size or (len(accepted) // 2 if step.name == "halves" else len(accepted))
        if len(fault.nodes) > 1 and step.name not in ("full", "resume"):
            continue
        if not any(fault.shows_in(step.name, w) for w in sim.config.workloads[step.name]):
            continue
        fits = len(accepted) >= max(step.size, 2 if step.name == "halves" else 1)
        if fits and size >= fault.min_nodes and number >= fault.first:
            return True
    return False


def report(sim: Simulation) -> str:
    """Return a campaign in words: what it took, and the truth against the verdict."""
    standing = replay(sim.config, sim.events)
    accepted = standing.roster(sim.config.nodes)
    windows = "windows of the scenario" if sim.windows else "1 h a run"
    lines = [
        f"{len(sim.config.nodes)} nodes, seed {sim.seed}: {len(sim.heats)} heats, {sim.hours:.1f} h in all, "
        f"{sim.node_hours:.0f} node-hours ({windows}), {sim.tests} isolation tests in {sim.rounds} rounds, "
        f"{sum('repair' in e for e in sim.events)} repairs, {sim.stops} stops",
        f"  still wrong:  {'; '.join(f.text() for f in sim.faults) or 'nothing'}",
        f"  accepted:     {fold(accepted)}",
    ]
    for title, nodes in (
        ("failed", standing.failed),
        ("suspect", standing.unresolved),
        ("withdrawn", standing.withdrawn),
    ):
        if nodes:
            lines.append(f"  {title + ':':13} {fold(nodes)}")
    for link in standing.links:
        one, two = link["between"]
        state = "" if link["waits"] else " (repaired since)"
        lines.append(f"  link:         {fold(one)} - {fold(two) if two else 'its partners'}{state}")
    for fault in sim.everything:
        lines.append(f"  truth:        {fault.text()}: {found_as(sim, fault)}")
    return "\n".join(lines)


def found_as(sim: Simulation, fault: Fault) -> str:
    """Return what the gates said of a fault: found, as what and in which step; or why not."""
    gates = sim.gates()
    for gate in gates:
        for node in fault.nodes:
            if gate["outcome"].get(node) == "failed":
                best = next(f for f in gate["findings"] if f["node"] == node and f["scope"] == "node")
                return f"found in {gate['step']} as {best['fault']} on {best['part']} of {node}"
        for link in gate["links"]:
            one, two = (set(side) for side in link["between"])
            if len(fault.nodes) > 1 and fault.meets(one | two) and not fault.meets(one) and not fault.meets(two):
                return f"found in {gate['step']} as a link, {fold(one)} - {fold(two)}"
    held = [g["step"] for g in gates for s in g["suspects"] if s["unresolved"] and set(fault.nodes) & set(s["nodes"])]
    if held:
        return f"suspected since {held[0]}, not told apart"
    return "seen, and not found" if fault.shown else "it never showed"


def check(seed: int, nodes: int | None = None) -> tuple[int, list[str], dict[str, float]]:
    """Return (seed, violations, figures) of one campaign; for many processes."""
    sim = simulate(seed, nodes)
    standing = replay(sim.config, sim.events)
    figures: dict[str, float] = {
        "heats": len(sim.heats),
        "tests": sim.tests,
        "returns": sum("returned" in e for e in sim.events),
        "suspects": len(standing.unresolved),
        "failed": len(standing.failed),
        "accepted": len(standing.roster(sim.config.nodes)),
        "nodes": len(sim.config.nodes),
    }
    return seed, violations(sim), figures
