# SPDX-License-Identifier: Apache-2.0
"""What is wrong in a simulated campaign, and what people do to it: from a seed, or from a scenario file. Pure.

A scenario file is one of the lab's (`lab/scenarios/`), or a longer one with what only a campaign in memory has: `workloads`,
`windows`, `topology`, `operator` and `repairs` (simulation.schema.json).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnin.errors import ConfigError
from burnin.isolation import repeats_for
from burnin.judging.signatures import TABLE, signature_of
from burnin.ladder import Heat, LadderConfig, is_gate, steps
from burnin.nodes import expand
from burnin.topology import Place, Topology, from_document

RETEST = "diag"
WORKLOADS = ("nccl", "hpl")

#: Kinds of C4 that no tool names a node for: the group hangs or is slow. Everything else in the table of signatures that
#: names a node shows as such a line; what is in none of the three is the configuration's, and stops everybody.
HANGS = frozenset({"hang", "nan_loss", "oom_one_node"})
SLOW = frozenset({"fabric_slow", "storage_slow", "nccl_on_sockets", "checkpoint_fails"})
UNREADABLE = "probe_unreadable"
#: What stays broken once it has shown, until a technician comes.
STICKS = frozenset({"gpu_off_bus", "missing_gpu", "node_crash"})
#: Parts that a signal names by a number of a GPU, and values that make a row of the table match.
VARIATIONS: tuple[dict[str, Any], ...] = (
    {"value": 99.0, "limit": 10.0},
    {"value": 7.0, "detail": {"expected": 8, "status": "cr"}},
    {"value": 0.5, "limit": 0.7},
    {},
)


@dataclass(slots=True)
class Fault:
    """Something wrong. `nodes`: the one node, or all ends of a fault between them, whose `sides` they are.

    `how`: `signal` (a tool names the node), `crash` (the node dies), `mute` (the group hangs and nobody is named),
    `slow`, `unread` (its tools cannot be read). `workloads`, `steps`: where it shows, empty: everywhere; `first`: index of
    the first step in which it does.
    `chance`: with which it shows in a run. `shown`: the event and nodes of a run in which it showed alone.
    """

    nodes: tuple[str, ...]
    how: str
    workloads: tuple[str, ...]
    min_nodes: int
    first: int = 0
    chance: float = 1.0
    shown: tuple[int, tuple[str, ...]] | None = None
    steps: tuple[str, ...] = ()
    kind: str = ""
    part: str = ""
    sides: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    fixed: bool = False

    def meets(self, nodes: set[str]) -> bool:
        """Tell whether a group has what it takes: the node, or nodes of both sides."""
        if self.sides:
            return bool(nodes.intersection(self.sides[0]) and nodes.intersection(self.sides[1]))
        return nodes.issuperset(self.nodes)

    def shows_in(self, step: str, workload: str) -> bool:
        """Tell whether it shows in a workload of a step."""
        return (not self.steps or step in self.steps) and (not self.workloads or workload in self.workloads)

    def text(self) -> str:
        """Return it in words."""
        from burnin.nodes import fold

        often = "" if self.chance == 1 else f", in {self.chance:.0%} of the runs"
        where = f" in {', '.join(self.steps)}" if self.steps else ""
        what = " - ".join(fold(s) for s in self.sides) if self.sides else fold(self.nodes)
        name = f"{self.kind} {self.part}".strip() or self.how
        return f"{'link ' if len(self.nodes) > 1 else ''}{what} {name} at >= {self.min_nodes} nodes{where}{often}"


@dataclass(slots=True)
class Simulation:
    """A campaign that was driven to its end, and the truth about it."""

    seed: int
    config: LadderConfig
    everything: list[Fault]  # also what was repaired since
    events: list[dict[str, Any]] = field(default_factory=list)
    heats: list[tuple[Heat, int, int]] = field(default_factory=list)  # with events before it, and nodes in the roster
    configs: list[LadderConfig] = field(default_factory=list)  # with which each heat was planned
    config_fault: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # (steps, workloads), empty: all
    operator: dict[tuple[str, int], str] = field(default_factory=dict)  # (step, heat) -> what happens to its runs
    drains: list[tuple[str, int, int | None]] = field(default_factory=list)  # node, from and up to which heat of all
    stacks: list[tuple[str, int, int | None]] = field(default_factory=list)  # the same: shows another stack
    observes: bool = False  # a run goes on although its nodes show another stack
    grows: int | None = None  # the heat of all before which the config gets another node
    repairs: list[dict[str, Any]] | None = None  # of a file: node or link -> fixes; None: by chance
    windows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # workload -> step or default -> hours
    kept: list[dict[str, Any]] = field(default_factory=list)  # all results so far
    tests: int = 0
    rounds: int = 0
    hours: float = 0.0
    node_hours: float = 0.0
    stops: int = 0
    broken: list[str] = field(default_factory=list)  # violations seen on the way

    @property
    def faults(self) -> list[Fault]:
        """Return what is still wrong."""
        return [f for f in self.everything if not f.fixed]

    def gates(self) -> list[dict[str, Any]]:
        """Return the gates in order."""
        return [e for e in self.events if is_gate(e)]

    def drained(self) -> set[str]:
        """Return the nodes that somebody else has taken out at the moment."""
        return self._at_the_moment(self.drains)

    def moved(self) -> set[str]:
        """Return the nodes that show another stack than the frozen one at the moment."""
        return self._at_the_moment(self.stacks)

    def _at_the_moment(self, spans: Sequence[tuple[str, int, int | None]]) -> set[str]:
        now = len(self.heats)
        return {n for n, start, end in spans if start <= now and (end is None or now < end)}

    def window(self, workload: str, step: str, isolating: bool) -> float:
        """Return the hours of a run's window; 1 if nothing is known. A shortened one takes a fifth."""
        of = self.windows.get(workload, {})
        hours = of.get(step, of.get("default", 1.0))
        return hours / 5 if isolating and workload in self.config.short else hours


def ladder_of(count: int, workloads: Sequence[str] = WORKLOADS) -> LadderConfig:
    """Return a ladder of `count` nodes without a resume step."""
    per_step = {s.name: tuple(workloads) for s in steps(count) if s.name != "resume"}
    return LadderConfig(tuple(f"n{i:03d}" for i in range(count)), per_step)


# ---------------------------------------------------------------------------------------------------------- from a seed


def scenario(seed: int, nodes: int | None = None) -> Simulation:
    """Return a cluster with its faults and operators, all from the seed. `nodes`: its size, else 1 to 33."""
    chance = random.Random(seed)
    count = nodes or chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 12, 13, 16, 16, 17, 21, 24, 33])
    workloads = chance.choice([("nccl",), ("nccl", "hpl"), ("nccl", "hpl")])
    config = _config(chance, count, workloads)
    names = [s.name for s in config.steps()]
    done = Simulation(seed, config, [])
    either = [(), *((w,) for w in workloads)]
    world = chance.choice(["nodes", "nodes", "nodes", "links", "comes and goes", "operator", "operator"])
    if world == "nodes":
        for node in chance.sample(config.nodes, chance.randint(0, min(count, max(1, count // 4)))):
            how = chance.choice(["signal", "crash", "mute", "mute", "slow", "unread"])
            least = chance.choice([1, 1, 2, 2, 4, count // 2, count])
            least = 1 if how == "unread" else max(1, least)  # what cannot be read does not depend on others
            fault = Fault((node,), how, chance.choice(either), least, chance.randrange(len(names)))
            done.everything.append(fault)
    elif world == "links" and count > 1:
        ends = chance.sample(config.nodes, 2)
        done.everything.append(Fault(tuple(ends), "mute", chance.choice(either), chance.choice([2, 2, 4, count])))
        if chance.random() < 0.4:
            rest = [n for n in config.nodes if n not in ends]
            done.everything += [
                Fault((n,), "signal", (), 1, chance.randrange(len(names)))
                for n in chance.sample(rest, min(1, len(rest)))
            ]
    elif world == "comes and goes":
        node = chance.choice(config.nodes)
        how = chance.choice(["signal", "mute", "mute"])
        done.everything.append(Fault((node,), how, (), chance.choice([1, 2]), 0, chance.uniform(0.2, 0.9)))
    if world == "operator" and chance.random() < 0.5:
        done.config_fault = ((chance.choice(names),), (chance.choice(workloads),))
    if world == "operator" or chance.random() < 0.3:
        states = ["CANCELLED", "TIMEOUT", "FAILED", "VANISHED", "OUT_OF_MEMORY", "unread"]
        for name in chance.sample(names, chance.randint(1, min(3, len(names)))):
            done.operator[name, chance.choice([0, 0, 1, 2])] = chance.choice(states)
    if world == "operator" or chance.random() < 0.15:
        for node in chance.sample(config.nodes, chance.randint(0, min(2, count))):
            start = chance.randint(0, 6)
            done.drains.append((node, start, chance.choice([None, start + 1, start + 4])))
        if chance.random() < 0.2:
            done.grows = chance.randint(1, 6)
    _restack(done, random.Random(f"stack {seed}"))
    return done


def _restack(done: Simulation, chance: random.Random) -> None:
    """Let nodes boot into another kernel in mid-campaign; often one, now and then all."""
    if chance.random() >= 0.25:
        return
    count = len(done.config.nodes)
    some = chance.choice([1, 1, 1, 2, max(1, count // 2), count])
    start, after = chance.randint(1, 8), chance.choice([None, 1, 4])
    for node in chance.sample(done.config.nodes, min(count, some)):
        done.stacks.append((node, start, None if after is None else start + after))
    done.observes = chance.random() < 0.3


def _config(chance: random.Random, count: int, workloads: tuple[str, ...]) -> LadderConfig:
    """Return a ladder with or without a resume test, a topology, and shortened windows."""
    per_step: dict[str, tuple[str, ...]] = dict(ladder_of(count, workloads).workloads)
    per_step["retest"] = (RETEST,)
    if chance.random() < 0.5:
        per_step["resume"] = workloads[:1]
    nodes = ladder_of(count).nodes
    leaf, pod = chance.choice([0, 0, 2, 4, 5, 8]), chance.choice([1, 2, 100])
    topology = _topology(nodes, leaf, pod) if leaf else None
    short = frozenset(workloads) if chance.random() < 0.2 else frozenset[str]()
    return LadderConfig(nodes, per_step, topology, repeats_for(0.5, chance.choice([0.15, 0.15, 0.3])), short)


def _topology(nodes: Sequence[str], leaf: int, pod: int) -> Topology:
    """Return leaves of `leaf` nodes, `pod` leaves below each switch above."""
    places = {
        n: Place(leaf=f"leaf{i // leaf}", above=(f"pod{i // leaf // pod}", "core"), zone=f"zone{i * 2 // len(nodes)}")
        for i, n in enumerate(nodes)
    }
    return Topology(tuple(nodes), places, "file")


def with_another_node(config: LadderConfig) -> LadderConfig:
    """Return the config to which the operator has added a node (its place is not known)."""
    nodes = (*config.nodes, f"n{len(config.nodes):03d}")
    usual = config.workloads["single"]
    kept = {k: config.workloads[k] for k in ("retest", "resume") if k in config.workloads}
    topology = Topology(nodes, config.topology.places, "file") if config.topology else None
    return replace(config, nodes=nodes, workloads={**ladder_of(len(nodes), usual).workloads, **kept}, topology=topology)


# ---------------------------------------------------------------------------------------------------------- from a file


def of_document(document: Any, seed: int = 0, where: str = "scenario") -> Simulation:
    """Return the campaign of a scenario file's content. Raises ConfigError, naming the place in `where`."""
    from jsonschema.exceptions import best_match

    from burnin import storage

    error = best_match(storage.validator("simulation").iter_errors(document))
    if error is not None:
        place = ".".join([where, *(str(p) for p in error.absolute_path)])
        expected = error.schema.get("description") or error.message[:200]
        raise ConfigError(place, error.instance, expected, "correct the scenario (docs/architecture.md, Simulator)")
    listed = document["nodes"]
    nodes = tuple(expand(listed if isinstance(listed, str) else ",".join(listed), f"{where}.nodes"))
    workloads = tuple(document.get("workloads", WORKLOADS))
    per_step = {s.name: workloads for s in steps(len(nodes)) if s.name != "resume"} | {"retest": (RETEST,)}
    if document.get("resume", True):
        per_step["resume"] = workloads[:1]
    topology = document.get("topology")
    config = LadderConfig(
        nodes, per_step, from_document(topology, nodes, f"{where}.topology") if topology else None,
        repeats_for(), frozenset(workloads if document.get("shorten_isolation") else ()),
    )  # fmt: skip
    names = [s.name for s in config.steps()]
    done = Simulation(seed, config, [], repairs=list(document.get("repairs") or []))
    minutes = float(document.get("iteration_minutes", 10))
    done.windows = {
        w: {step: v.get("hours", v.get("iterations", 0) * minutes / 60) for step, v in entry.items()}
        for w, entry in document.get("windows", {}).items()
    }
    for number, entry in enumerate(document.get("faults") or []):
        _add(done, entry, names, f"{where}.faults.{number}")
    for number, entry in enumerate(document.get("operator") or []):
        key = f"{where}.operator.{number}"
        if "drain" in entry or "restack" in entry:
            start = int(entry.get("heat_of_all", 0))
            spans, who = (done.drains, entry["drain"]) if "drain" in entry else (done.stacks, entry["restack"])
            spans += [(n, start, entry.get("until")) for n in _known(who, nodes, key)]
        elif "add_node" in entry:
            done.grows = int(entry["add_node"])
        else:
            done.operator[entry["step"], int(entry.get("heat", 0))] = entry["ends_as"]
    return done


def _known(text: str | Sequence[str], nodes: Sequence[str], key: str) -> list[str]:
    """Return nodes of a scenario; raises ConfigError for one that it does not have."""
    names = expand(text if isinstance(text, str) else ",".join(text), key)
    for name in names:
        if name not in nodes:
            raise ConfigError(key, name, "a node of the scenario", "correct it")
    return names


def _add(done: Simulation, entry: Mapping[str, Any], names: Sequence[str], key: str) -> None:
    """Add a fault of C4."""
    kind, part = entry["kind"], str(entry.get("part", ""))
    steps_, only = _several(entry.get("step")), _several(entry.get("workload"))
    for step in steps_:
        if step not in names:
            raise ConfigError(f"{key}.step", step, f"a step of this ladder ({', '.join(names)})", "correct it")
    if only and not set(only) & set(done.config.workloads["single"]):
        only = done.config.workloads["single"][-1:]  # what runs in its place
    least, chance = int(entry.get("min_nodes", 1)), float(entry.get("intermittent", 1.0))
    if "between" in entry:
        one, two = (tuple(_known(side, done.config.nodes, key)) for side in entry["between"])
        how = "mute" if kind in HANGS else "slow"
        sides = (one, two)
        fault = Fault((*one, *two), how, only, max(2, least), 0, chance, None, steps_, kind, part, sides)
        done.everything.append(fault)
        return
    if entry.get("node") is None:
        done.config_fault = (steps_, only)
        return
    (node,) = _known(entry["node"], done.config.nodes, key)
    if kind == "node_crash":
        how = "crash"
    elif kind == UNREADABLE:
        how = "unread"
    elif kind in HANGS:
        how = "mute"
    else:
        how = "slow" if kind in SLOW or not signal_of(kind, part) else "signal"
    done.everything.append(Fault((node,), how, only, least, 0, chance, None, steps_, kind, part))


def _several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def signal_of(kind: str, part: str) -> dict[str, Any] | None:
    """Return the fields of a signal that names a node for a kind of fault, as a tool would give it; None: no tool does."""
    number = int(part.removeprefix("gpu")) if part.startswith("gpu") and part[3:].isdigit() else None
    for row in TABLE:
        if row.fault != kind or row.scope not in ("node", "config"):
            continue
        for extra in VARIATIONS:
            seen = {"kind": row.kind, "text": f"{kind} {part}".strip(), "device": part or None, "gpu": number, **extra}
            if signature_of({**seen, "node": "n", "when": "after"}) is row:
                return {k: v for k, v in seen.items() if v is not None}
    return None
