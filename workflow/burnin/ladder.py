# SPDX-License-Identifier: Apache-2.0
"""The ladder: which steps there are, who owes what, and which heat is next. Pure: what happened in, plan out.

One mechanism carries drop-outs, left-overs, isolation and repairs: a node *owes* every (step, workload) of the ladder
that it has not passed. The next heat is the first step that somebody in the roster owes. A repair brings a node back
with nothing passed: it owes its retest and then the whole ladder, the clock starts anew for it.

What happened is a list of events in order: gates (the content of gate.json), repairs of a node or of a link
(`{"repair": record}`), and nodes that were out without blame and that are back (`{"returned": record}`): somebody else had
taken them out of Slurm, or they showed another stack than the frozen one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from burnin import isolation as tracing
from burnin.grouping import fill, halves, in_order
from burnin.isolation import Trial
from burnin.paths import group_id
from burnin.topology import Topology

Outcome = Literal["passed", "failed", "owes", "suspect", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Step:
    """One rung. `size` is the number of nodes of a group, 0 where it depends on the roster (halves, full, resume)."""

    name: str
    size: int


def steps(nodes: int) -> list[Step]:
    """Return the ladder for `nodes` >= 1 nodes: single, x2, x4 ... up to N/2, halves, full, resume.

    One node has neither halves nor full: `single` was all of it already.
    """
    if nodes < 1:
        raise ValueError("a ladder needs at least one node")
    ladder = [Step("single", 1)]
    size = 2
    while size <= nodes // 2:
        ladder.append(Step(f"x{size}", size))
        size *= 2
    if nodes > 1:
        ladder += [Step("halves", 0), Step("full", 0)]
    return [*ladder, Step("resume", 0)]


@dataclass(frozen=True, slots=True)
class LadderConfig:
    """What the ladder needs of the config: the nodes in config order and the workloads of each step, in config order."""

    nodes: tuple[str, ...]
    workloads: Mapping[str, tuple[str, ...]]
    topology: Topology | None = None  # of exactly these nodes, in this order
    repeats: int = tracing.REPEATS  # how often a group that failed once must pass before the fault is given up
    short: frozenset[str] = (
        frozenset()
    )  # workloads whose windows are shortened in isolation groups: no pass of the step

    def steps(self) -> list[Step]:
        """Return the steps that have something to run."""
        return [s for s in steps(len(self.nodes)) if self.workloads.get(s.name)]


@dataclass(frozen=True, slots=True)
class Isolation:
    """What an isolation group tests: `suspects` out of the set `of` that failed together.

    `part`: 0 or 1. `pair`: not the nodes are tested, they passed with others, but the path between them. `counts`: the
    group is as large as the step wants, and so are its windows: a pass is one of the step.
    """

    of: tuple[str, ...]
    part: int
    suspects: tuple[str, ...]
    pair: bool = False
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one job. `owed` are those it runs for; the others are borrowed: they passed this step already.

    `unproven`: those borrowed that passed it only in smaller groups (fewer nodes were in), which says less of them.
    """

    nodes: tuple[str, ...]
    owed: tuple[str, ...]
    workloads: tuple[str, ...]
    isolation: Isolation | None = None
    unproven: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the group's name, a function of its nodes."""
        return group_id(self.nodes)


@dataclass(frozen=True, slots=True)
class Heat:
    """One attempt at a step by the nodes that still owe it."""

    step: str
    heat: int
    groups: tuple[Group, ...]
    trials: tuple[Trial, ...] = ()  # what is known of the step's open isolation cases


@dataclass(slots=True)
class Standing:
    """Where everybody stands after the gates so far."""

    passed: dict[str, dict[tuple[str, str], int]]  # node -> (step, workload) -> nodes of the largest group it passed in
    failed: dict[str, tuple[str, int]] = field(default_factory=dict)  # node -> (step, heat)
    unresolved: dict[str, tuple[str, int]] = field(default_factory=dict)  # suspects that could not be cleared
    withdrawn: dict[str, tuple[str, int]] = field(default_factory=dict)  # out without blame: see `away`
    withdrawn_why: dict[str, str] = field(default_factory=dict)
    trials: dict[str, list[Trial]] = field(default_factory=dict)  # step -> what its open isolation cases know
    heats: dict[str, int] = field(default_factory=dict)  # step -> heats so far
    impossible: list[str] = field(default_factory=list)  # steps that the roster has become too small for
    repairs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)  # node -> its repairs so far
    borrowed: dict[str, int] = field(default_factory=dict)  # node -> groups it has filled without owing anything
    links: list[dict[str, Any]] = field(
        default_factory=list
    )  # all that were found, with `waits`: whose repair they wait for
    away: dict[str, list[dict[str, Any]]] = field(
        default_factory=dict
    )  # node -> when it was withdrawn, for what (slurm: somebody else took it out; stack), and when back

    def borrow(self, members: Iterable[str], step: str, workloads: Sequence[str]) -> None:
        """Count those of a group's members that had passed all of the step before they ran; call it before passing."""
        for node in members:
            if all((step, w) in self.passed[node] for w in workloads):
                self.borrowed[node] = self.borrowed.get(node, 0) + 1

    def credit(self, node: str, step: str, workloads: Iterable[str], size: int) -> None:
        """Note that a node has passed workloads of a step in a group of `size` nodes."""
        for workload in workloads:
            self.passed[node][step, workload] = max(size, self.passed[node].get((step, workload), 0))

    def assume(self, heat: Heat) -> None:
        """Let everybody of a heat pass."""
        self.heats[heat.step] = heat.heat + 1
        for group in heat.groups:
            self.borrow(group.nodes, heat.step, group.workloads)
            for node in group.nodes:
                self.credit(node, heat.step, group.workloads, len(group.nodes))
        self.trials.pop(heat.step, None)

    def roster(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes still in, in the order given."""
        return [n for n in nodes if n not in self.failed and n not in self.unresolved and n not in self.withdrawn]


def replay(config: LadderConfig, gates: Sequence[Mapping[str, Any]]) -> Standing:
    """Return the standing after `gates` (all events, in the order in which they happened)."""
    standing = Standing(passed={n: {} for n in config.nodes})
    for gate in gates:
        if not is_gate(gate):
            replay_record(standing, gate["repair"] if "repair" in gate else gate["returned"])
            continue
        step, heat = gate["step"], gate["heat"]
        standing.heats[step] = standing.heats.get(step, 0) + 1
        sizes: dict[str, int] = {}
        for members in gate.get("groups", {}).values():
            standing.borrow(members, step, config.workloads.get(step, ()))
            sizes.update(dict.fromkeys(members, len(members)))
        for node, workloads in gate["passed"].items():
            standing.credit(node, step, workloads, sizes.get(node, 1))
        for node, outcome in gate["outcome"].items():
            if outcome == "failed":
                standing.failed[node] = (step, heat)
            elif outcome == "withdrawn":
                standing.withdrawn[node] = (step, heat)
                standing.withdrawn_why[node] = why = gate.get("withdrawn", {}).get(node, "")
                stack = any(f["scope"] == "nobody" and f["node"] == node for f in gate.get("findings", ()))
                away = {"step": step, "heat": heat, "why": why, "cause": "stack" if stack else "slurm", "back": None}
                standing.away.setdefault(node, []).append(away)
        standing.trials[step] = _trials(gate)
        for suspect in gate["suspects"]:
            if suspect["unresolved"]:
                standing.unresolved.update((n, (step, heat)) for n in suspect["nodes"])
                for node in suspect.get("again", ()):
                    # it passed, and then something failed with it: the others' fault if it passes without them
                    standing.passed[node].pop((step, suspect["workload"]), None)
        held = {n for s in gate["suspects"] if s["unresolved"] for n in s["nodes"]}
        for link in gate.get("links", ()):
            ends = {n for side in link["between"] for n in side}
            found = {**link, "step": step, "heat": heat, "waits": sorted(ends & held) or sorted(ends), "repairs": []}
            standing.links.append(found)
    return standing


def is_gate(event: Mapping[str, Any]) -> bool:
    """Tell a gate from what was recorded between two gates."""
    return "step" in event


def event_of(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the event of a line of repairs.jsonl."""
    return {"returned": record} if record.get("kind") == "returned" else {"repair": record}


def repaired_by(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that a repair lets in again: one, or all that were out because of a link."""
    return tuple(record["nodes"]) if record.get("kind") == "link" else (record["node"],)


def _trials(gate: Mapping[str, Any]) -> list[Trial]:
    """Return what a gate leaves open. A gate without trials is of an older version: its suspects failed just now."""
    if "trials" in gate:
        return [Trial.of(t) for t in gate["trials"]]
    return [
        Trial(s["workload"], gate["heat"], tuple(s["nodes"]), tuple(s["nodes"]), True)
        for s in gate["suspects"]
        if not s["unresolved"]
    ]


def replay_record(standing: Standing, record: Mapping[str, Any]) -> None:
    """Bring nodes back. A repaired one has passed nothing since its repair; one that was only away keeps what it passed."""
    if record.get("kind") == "returned":
        if standing.withdrawn.pop(record["node"], None):
            standing.withdrawn_why.pop(record["node"], None)
            standing.away[record["node"]][-1]["back"] = record["time"]
        return
    nodes = {n for n in repaired_by(record) if n in standing.passed}  # the config may no longer have some of them
    for node in nodes:
        standing.repairs.setdefault(node, []).append(record)
        standing.passed[node] = {}
        for out in (standing.failed, standing.unresolved, standing.withdrawn):
            out.pop(node, None)
        if standing.withdrawn_why.pop(node, None) is not None:
            standing.away[node][-1]["back"] = record.get("time")
    for step, trials in standing.trials.items():
        # what was seen with the nodes before says nothing of them now, and they may have been what failed
        standing.trials[step] = [t for t in trials if not nodes & set(t.nodes)]
    for link in standing.links:
        if nodes & set(link["waits"]):
            link["waits"] = [n for n in link["waits"] if n not in nodes]
            link["repairs"].append(record)


def next_heat(config: LadderConfig, gates: Sequence[Mapping[str, Any]]) -> Heat | None:
    """Return the next heat to run, or None when nobody in the roster owes anything.

    A step is only entered when nobody owes the one before, so a heat never takes a node that has not passed the step
    before. A step that needs more nodes than are left is passed over.
    """
    standing = replay(config, gates)
    return heat_of_standing(config, standing)


def heat_of_standing(config: LadderConfig, standing: Standing) -> Heat | None:
    """Return the next heat for a standing (see `next_heat`); notes steps that became impossible in the standing."""
    roster = standing.roster(config.nodes)
    retest = config.workloads.get("retest", ())
    proven = [
        n
        for n in roster
        if standing.repairs.get(n) and not {("retest", w) for w in retest} <= standing.passed[n].keys()
    ]
    if proven:
        # a repaired node is proven alone, while it is still drained, before it meets anybody
        return Heat("retest", standing.heats.get("retest", 0), tuple(Group((n,), (n,), retest) for n in proven))
    for step in config.steps():
        workloads = config.workloads[step.name]
        needed = max(step.size, 2 if step.name in ("halves",) else 1)
        if len(roster) < needed:
            if roster and step.name not in standing.impossible:
                standing.impossible.append(step.name)
            continue
        done = {n: standing.passed[n] for n in roster}
        owed = {n: tuple(w for w in workloads if (step.name, w) not in done[n]) for n in roster}
        owing = [n for n in roster if owed[n]]
        known = _known(standing, step.name)
        if not owing and not any(t.failed for t in known):
            continue
        # whoever passed with others may still be suspect: a failure that nobody explained is followed to its end
        groups = _groups(step, roster, owing, owed, standing, config, known)
        if not groups:
            continue
        groups = [replace(g, unproven=_unproven(g, step.name, standing)) for g in groups]
        return Heat(step.name, standing.heats.get(step.name, 0), tuple(groups), tuple(known))
    return None


def _unproven(group: Group, step: str, standing: Standing) -> tuple[str, ...]:
    """Return who fills a group and has passed the step only in smaller ones."""
    borrowed = set(group.nodes) - set(group.owed)
    return tuple(
        n
        for n in group.nodes
        if n in borrowed and any(standing.passed[n].get((step, w), 0) < len(group.nodes) for w in group.workloads)
    )


def _known(standing: Standing, step: str) -> list[Trial]:
    """Return the trials of a step's open cases; a failure with a node that is out by now is explained."""
    out = {*standing.failed, *standing.unresolved}
    return [t for t in standing.trials.get(step, []) if not t.failed or not out & set(t.nodes)]


def _groups(
    step: Step,
    roster: list[str],
    owing: list[str],
    owed: Mapping[str, tuple[str, ...]],
    standing: Standing,
    config: LadderConfig,
    known: Sequence[Trial],
) -> list[Group]:
    """Return the groups of the next heat of a step: isolation first, then everybody else who owes."""
    topology = config.topology
    free = [n for n in roster if not owed[n]]
    groups: list[Group] = []
    suspected: set[str] = set()
    if any(t.failed for t in known):
        tests, suspected = tracing.propose(
            known,
            config.workloads[step.name],
            roster,
            free,
            topology,
            standing.borrowed,
            halves_differ(step.name),
            config.repeats,
            # who just runs the step beside the tests wants partners, too: its failure is then found in this heat, not later
            -len(set(owing) - {n for t in known if t.failed for n in t.suspects}) % step.size if step.size else 0,
        )
        for test in tests:
            # half of the nodes alone is not what `halves` wants: both at once
            large = step.name != "halves" and len(test.nodes) >= (step.size or len(roster))
            counts = large and not config.short & set(test.workloads)
            isolation = Isolation(test.of, test.part, test.suspects, test.pair, counts)
            groups.append(Group(test.nodes, test.suspects, test.workloads, isolation))
        if not groups:
            suspected = set()  # nothing can be tested: they run as everybody else
    busy = suspected.union(*(g.nodes for g in groups))
    free = [n for n in free if n not in busy]
    rest = [n for n in owing if n not in busy]
    if step.size == 0:
        # halves, full and resume load the whole cluster: who owes them runs them with everybody
        if groups or not rest:
            return groups
        runs = _all_owed(rest, owed)
        parts = halves(roster, topology) if step.name == "halves" else [roster]
        return [Group(tuple(p), tuple(n for n in p if n in set(rest)), runs) for p in parts]
    by_need: dict[tuple[str, ...], list[str]] = {}
    for node in rest:
        by_need.setdefault(owed[node], []).append(node)
    left: list[str] = []
    for need, members in by_need.items():
        whole, over = in_order(members, step.size, topology)
        groups += [Group(tuple(g), tuple(g), need) for g in whole]
        left += over
    whole, over = in_order(left, step.size, topology)
    groups += [Group(tuple(g), tuple(g), _all_owed(g, owed)) for g in whole]
    if over and len(free) >= step.size - len(over):
        everyone, free = fill(over, step.size, free, topology, standing.borrowed)
        groups.append(Group(tuple(everyone), tuple(over), _all_owed(over, owed)))
    return groups


def _all_owed(members: Sequence[str], owed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the workloads that anybody of `members` owes, in config order."""
    longest = max((owed[n] for n in members), key=len)
    extra = [w for n in members for w in owed[n] if w not in longest]
    return tuple(dict.fromkeys([*longest, *extra]))


def assume_passed(heat: Heat) -> dict[str, Any]:
    """Return the gate of a heat in which everybody passes: the projection that a dry run shows."""
    return {
        "step": heat.step,
        "heat": heat.heat,
        "outcome": {n: "passed" for g in heat.groups for n in g.owed},
        "passed": {n: list(g.workloads) for g in heat.groups for n in g.owed},
        "suspects": [],
        "stopped": None,
    }


def project(config: LadderConfig, gates: Sequence[Mapping[str, Any]]) -> list[Heat]:
    """Return all heats that remain if everybody passes from here on."""
    standing = replay(config, gates)
    heats: list[Heat] = []
    while (heat := heat_of_standing(config, standing)) is not None:
        heats.append(heat)
        standing.assume(heat)
    return heats


def halves_differ(step: str) -> int:
    """Return by how many nodes the groups of a step may differ."""
    return 1 if step == "halves" else 0


def step_number(name: str) -> tuple[int, int]:
    """Return a sort key that puts steps into ladder order."""
    match = re.fullmatch(r"x([0-9]+)", name)
    order = {"retest": -1, "single": 0, "halves": 2, "full": 3, "resume": 4}
    return (1, int(match[1])) if match else (order[name], 0)


def isolation_document(isolation: Isolation) -> dict[str, Any]:
    """Return what an isolation group tests, in the form of plan.json."""
    return {
        "of": list(isolation.of),
        "part": isolation.part,
        "suspects": list(isolation.suspects),
        "pair": isolation.pair,
        "counts": isolation.counts,
    }


def isolation_of(document: Mapping[str, Any]) -> Isolation:
    """Return what an isolation group of plan.json tests; plans of older versions only split nodes."""
    return Isolation(
        tuple(document["of"]),
        document["part"],
        tuple(document["suspects"]),
        document.get("pair", False),
        document.get("counts", True),
    )
