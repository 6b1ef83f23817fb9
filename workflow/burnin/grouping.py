# SPDX-License-Identifier: Apache-2.0
"""Who runs with whom. Pure. Without a topology: neighbours in the order given, halves interleaved.

With a topology small groups stay inside a leaf, then span as few units of each tier as possible, so that a drop at one
size points at one tier of the fabric; halves load every leaf, rail, rack, PDU and zone alike; borrowed nodes are near
and take turns; and a node that leaves or comes back moves as few others as possible.

How 1,024 nodes stay small: what counts of a leaf is only how many of its nodes remain after groups of its own (count
modulo size), so nodes are never variables. Those remainders have to be put together into sets whose sum is a multiple
of the group size; a set of k leaves costs k - 1 crossings however it is cut, so the fewest crossings are the most sets.
Two remainders that add up to the size may always be put together (exchange them out of any best solution); what is left
is a cover by patterns of remainders, equal ones counted, for all tiers at once: an integer programme of some dozens of
variables, solved by CBC. It is only started where the direct construction misses the bound, since importing PuLP and
starting CBC cost more than everything else and the ladder is walked in every dry run.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from burnin.topology import Topology

Method = Literal["direct", "ilp", "plain"]

#: CPU seconds of the solver for one plan. A safety net: NODE_LIMIT comes first, and does not depend on the machine.
TIME_LIMIT = 0.7
#: Branch-and-bound nodes of the solver for one plan.
NODE_LIMIT = 100
#: Steps of the pattern search for one plan (about 0.1 s), and most patterns given to the solver.
PATTERN_STEPS = 60_000
MOST_PATTERNS = 1500
#: How many times more often than needed a near node may be borrowed before a farther one takes its turn.
TURN = 1

_Unit = tuple[str, ...]  # the switches from the top tier down to this one; () is the root over everything


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups and how good they are.

    objective: for groups, for each tier from the top down to the leaf, the sum over all groups (and the nodes left
    over) of the units that it spans minus one; compared in that order. For halves: one number, the sum over all leaves,
    rails, racks, PDUs and zones of the difference between the halves beyond the one node that an odd number forces.
    Empty without a topology. bound: no plan has less (of a lower tier: no plan that is as good in the tiers above).
    method: `direct` = meets the bound without the solver; `ilp` = by the solver; `plain` = without the solver although
    it was wanted (the construction alone, or the nodes' order). `why`: a sentence, where the gap may not be 0.
    """

    groups: tuple[tuple[str, ...], ...]
    left: tuple[str, ...]
    objective: tuple[int, ...]
    bound: tuple[int, ...]
    method: Method
    why: str = ""

    @property
    def gap(self) -> int:
        """Return by how much the objective may be above the best possible: 0 is proven best."""
        return sum(self.objective) - sum(self.bound)


# --- what the ladder calls -----------------------------------------------------------------------------------------


def in_order(nodes: Sequence[str], size: int, topology: Topology | None = None) -> tuple[list[list[str]], list[str]]:
    """Return whole groups of `size` nodes and the fewer than `size` nodes left over.

    Without a topology: neighbours in the order given. With one: see `plan_groups`; the order given does not matter.
    """
    plan = plan_groups(nodes, size, topology)
    return [list(g) for g in plan.groups], list(plan.left)


def fill(
    members: Sequence[str],
    size: int,
    free: Sequence[str],
    topology: Topology | None = None,
    borrowed: Mapping[str, int] | None = None,
) -> tuple[list[str], list[str]]:
    """Return `members` filled up to `size` with nodes from `free`, and what is left of `free`.

    Never more than needed are borrowed; fewer free nodes than needed give a smaller group. The borrowed nodes stand
    behind the members and are missing in the returned rest, so that no node is borrowed twice in one heat. `borrowed`
    counts how often each node was borrowed so far: the least borrowed come first. With a topology, nodes of the same
    leaf, then of the same pod come first, but none that was borrowed over TURN times more often than the count up to
    which enough others are free.
    """
    need = min(max(0, size - len(members)), len(free))
    counts = borrowed or {}
    by_turn = sorted(range(len(free)), key=lambda i: (counts.get(free[i], 0), i))
    if topology is None or not topology.known or not need:
        chosen = [free[i] for i in by_turn[:need]]
    else:
        limit = counts.get(free[by_turn[need - 1]], 0) + TURN
        rank = _ranks(topology)
        candidates = [n for n in free if counts.get(n, 0) <= limit]
        chosen = _near(candidates, need, topology.tiers - 1, members, topology, counts)
        chosen.sort(key=rank.__getitem__)
    taken = set(chosen)
    return [*members, *chosen], [n for n in free if n not in taken]


def halves(nodes: Sequence[str], topology: Topology | None = None) -> list[list[str]]:
    """Return two halves that differ by one node at most.

    Without a topology: interleaved, so that neighbours land in different halves. With one: see `plan_halves`.
    """
    return [list(g) for g in plan_halves(nodes, topology).groups]


def plan_groups(
    nodes: Sequence[str], size: int, topology: Topology | None = None, time_limit: float = TIME_LIMIT
) -> Plan:
    """Return len(nodes) // size groups of `size` >= 1 nodes and the nodes left over.

    `nodes` are some of `topology.nodes`. Among the best plans the one is returned that keeps most of the groups that
    the whole cluster would have (those whose nodes are all here): who leaves or returns breaks or mends only his own.
    Nodes of a group stand leaf by leaf. `time_limit`: CPU seconds for the solver.
    """
    if size < 1:
        raise ValueError("a group needs at least one node")
    if topology is None or not topology.known:
        whole = len(nodes) - len(nodes) % size
        groups = tuple(tuple(nodes[i : i + size]) for i in range(0, whole, size))
        return Plan(groups, tuple(nodes[whole:]), (), (), "plain", "the topology is not known")
    return _plan_groups(topology, _in_rank(nodes, topology), size, time_limit)


def plan_halves(nodes: Sequence[str], topology: Topology | None = None, time_limit: float = TIME_LIMIT) -> Plan:
    """Return two halves that load everything from both sides as evenly as possible.

    Everything: each leaf, switch above, rail, rack, PDU and zone that the topology knows. Nodes stay in the half that
    they would have in the whole cluster as far as that allows. `time_limit`: CPU seconds for the solver.
    """
    if topology is None or not topology.places:
        return Plan((tuple(nodes[0::2]), tuple(nodes[1::2])), (), (), (), "plain", "the topology is not known")
    return _plan_halves(topology, _in_rank(nodes, topology), time_limit)


def spans(groups: Iterable[Sequence[str]], topology: Topology) -> tuple[int, ...]:
    """Return for each tier, top first, leaf last: the sum over the groups of the units spanned minus one."""
    groups = [g for g in groups if g]
    tiers = range(topology.tiers - 1, -1, -1)
    return tuple(sum(len({topology.unit(n, t) for n in g}) - 1 for g in groups) for t in tiers)


def uneven(parts: Sequence[Sequence[str]], topology: Topology) -> int:
    """Return the sum over all loads of the difference between two halves beyond what an odd number forces."""
    load = [Counter(v for n in part for v in topology.loads[n]) for part in parts]
    return sum(max(0, abs(load[0][v] - load[1][v]) - (load[0][v] + load[1][v]) % 2) for v in load[0] | load[1])


# --- order ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def _ranks(topology: Topology) -> dict[str, int]:
    """Return each node's position in the cluster's order: tier by tier from the top, units by their first node."""
    first: dict[_Unit, int] = {}
    keys = {}
    for i, node in enumerate(topology.nodes):
        path = topology.paths[node]
        keys[node] = (*(first.setdefault(path[: t + 1], i) for t in range(len(path))), i)
    return {n: i for i, n in enumerate(sorted(topology.nodes, key=keys.__getitem__))}


def _in_rank(nodes: Iterable[str], topology: Topology) -> tuple[str, ...]:
    """Return the nodes in the cluster's order. Raises ValueError for one that the topology does not list."""
    rank = _ranks(topology)
    try:
        return tuple(sorted(nodes, key=rank.__getitem__))
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is none of the topology's nodes") from None


# --- groups --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pool:
    """The units below one unit, each with a remainder; and how they are put together.

    closed: sets whose remainders add up to a multiple of the size. rest: the others; their sum is the parent's
    remainder. upper: at most so many closed sets (a rest that adds up to a multiple counts as one).
    """

    items: list[tuple[_Unit, int]]
    size: int
    closed: list[list[_Unit]] = field(default_factory=list)
    rest: list[tuple[_Unit, int]] = field(default_factory=list)
    upper: int = 0
    pairs: int = 0
    single: list[tuple[_Unit, int]] = field(default_factory=list)  # what pairing leaves

    @property
    def remainder(self) -> int:
        """Return the parent's remainder."""
        return sum(r for _, r in self.items) % self.size

    @property
    def value(self) -> int:
        """Return how many closed sets there are."""
        return len(self.closed) + (1 if self.rest and not self.remainder else 0)


@dataclass(slots=True)
class _Layout:
    """One grouping problem: groups inside leaves, what remains of each leaf, and the pools of all tiers."""

    size: int
    tiers: int
    inside: list[tuple[str, ...]]
    remains: dict[_Unit, tuple[str, ...]]
    children: dict[_Unit, list[_Unit]]
    pools: dict[_Unit, _Pool]
    whole: list[_Pool]  # all units of a tier in one pool, whatever is above: for the bound only, top tier first
    total: int


@functools.lru_cache(maxsize=256)
def _plan_groups(topology: Topology, nodes: tuple[str, ...], size: int, time_limit: float) -> Plan:
    """Return the plan for nodes in the cluster's order (cached: the ladder is walked many times over)."""
    free = _layout(nodes, size, topology)
    layouts = [free]
    kept: tuple[tuple[str, ...], ...] = ()
    if len(nodes) < len(topology.nodes):
        here = set(nodes)
        home = _plan_groups(topology, _in_rank(topology.nodes, topology), size, time_limit)
        kept = tuple(g for g in home.groups if here.issuperset(g))
        held = {n for g in kept for n in g}
        layouts.insert(0, _layout([n for n in nodes if n not in held], size, topology))

    def built(layout: _Layout) -> tuple[tuple[int, ...], list[tuple[str, ...]], tuple[str, ...]]:
        groups, left = _compose(layout)
        groups += kept if layout is not free else ()
        return spans([*groups, left], topology), groups, left

    method: Method = "direct"
    why = ""
    best = min((built(x) for x in layouts), key=lambda b: b[0])  # the first, which keeps most, if they are as good
    bound = _bound(free, best[0])
    if best[0] != bound:
        pools = [*free.whole[1:], *(p for x in layouts for p in x.pools.values())]
        method, why = _improve(pools, time_limit)
        best = min((built(x) for x in layouts), key=lambda b: b[0])
        bound = _bound(free, best[0])
        by_number = sorted(nodes, key=topology.index.__getitem__)
        whole = len(nodes) - len(nodes) % size
        simple = [tuple(by_number[i : i + size]) for i in range(0, whole, size)]
        if (cost := spans([*simple, by_number[whole:]], topology)) < best[0]:
            best = (cost, [tuple(_in_rank(g, topology)) for g in simple], tuple(by_number[whole:]))
            bound = _bound(free, cost)
            method, why = "plain", "the order of the nodes is better than what was constructed"
    cost, groups, left = best
    rank = _ranks(topology)
    return Plan(tuple(sorted(groups, key=lambda g: rank[g[0]])), left, cost, bound, method, why)


def _layout(nodes: Sequence[str], size: int, topology: Topology) -> _Layout:
    """Return the grouping problem of nodes in the cluster's order."""
    leaves: dict[_Unit, list[str]] = {}
    for node in nodes:
        leaves.setdefault(topology.unit(node, 0), []).append(node)
    counts: dict[_Unit, int] = {}
    children: dict[_Unit, list[_Unit]] = {}
    inside, remains = [], {}
    for leaf, members in leaves.items():
        whole = len(members) - len(members) % size
        inside += [tuple(members[i : i + size]) for i in range(0, whole, size)]
        remains[leaf] = tuple(members[whole:])
        for t in range(len(leaf), -1, -1):
            if t < len(leaf) and leaf[: t + 1] not in children.setdefault(leaf[:t], []):
                children[leaf[:t]].append(leaf[: t + 1])
            counts[leaf[:t]] = counts.get(leaf[:t], 0) + len(members)
    pools = {}
    for parent, units in children.items():
        items = [(u, counts[u] % size) for u in units if counts[u] % size]
        pools[parent] = _Pool(items, size)
    tiers = [_Pool([i for u, p in pools.items() if len(u) == d for i in p.items], size) for d in range(topology.tiers)]
    for pool in [*pools.values(), *tiers]:
        _pair(pool)
    return _Layout(size, topology.tiers, inside, remains, children, pools, tiers, len(nodes))


def _pair(pool: _Pool) -> None:
    """Put pairs together (always right), then equal remainders (often right); set the upper bound."""
    size = pool.size
    waiting: dict[int, list[_Unit]] = {}
    for unit, remainder in pool.items:
        partners = waiting.get(size - remainder)
        if partners:
            pool.closed.append([partners.pop(0), unit])
        else:
            waiting.setdefault(remainder, []).append(unit)
    pool.pairs = len(pool.closed)
    left = {u for units in waiting.values() for u in units}
    pool.single = [(u, r) for u, r in pool.items if u in left]
    for remainder, units in waiting.items():
        alike = size // math.gcd(size, remainder)
        while len(units) >= alike:
            pool.closed.append(units[:alike])
            del units[:alike]
    left = {u for units in waiting.values() for u in units}
    pool.rest = [(u, r) for u, r in pool.items if u in left]
    pool.upper = pool.pairs + _most_sets([r for _, r in pool.single], size)


def _most_sets(remainders: Sequence[int], size: int, shortest: int = 3) -> int:
    """Return an upper bound on the closed sets of at least `shortest` remainders each.

    By their number, and by their sum: each set adds up to one size at least, and so do the remainders' complements.
    If the whole does not add up to a multiple, the rest takes one unit and the remainder at least.
    """
    total = sum(remainders)
    over = total % size
    if not remainders:
        return 0
    number = (len(remainders) - (1 if over else 0)) // shortest
    by_sum = (total - over) // size
    complements = len(remainders) * size - total
    by_complement = (complements - (size - over if over else 0)) // size
    return max(0, min(number, by_sum, by_complement))


def _compose(layout: _Layout) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the groups and the left-over of a layout whose pools are put together."""
    chains: list[list[_Unit]] = []

    def gather(unit: _Unit) -> list[_Unit]:
        """Return the leaves of the unit that must go on to the tier above, unit by unit; collect closed chains."""
        if len(unit) == layout.tiers:
            return [unit] if layout.remains[unit] else []
        rests = {child: gather(child) for child in layout.children.get(unit, ())}
        pool = layout.pools.get(unit)
        if pool is None:
            return []

        def chain(units: Iterable[_Unit]) -> list[_Unit]:
            parts = [rests[u] for u in units]
            if len(unit) == layout.tiers - 2:
                parts = _cut_inside(parts, {leaf: len(layout.remains[leaf]) for p in parts for leaf in p}, layout.size)
            return [leaf for part in parts for leaf in part]

        chains.extend(chain(members) for members in pool.closed)
        rest = chain(u for u, _ in pool.rest)
        if rest and not pool.remainder:
            chains.append(rest)
            return []
        return rest

    rest = gather(())
    groups = list(layout.inside)
    left: tuple[str, ...] = ()
    for chain in [*chains, rest]:
        nodes = [n for leaf in chain for n in layout.remains[leaf]]
        whole = len(nodes) - len(nodes) % layout.size
        groups += [tuple(nodes[i : i + layout.size]) for i in range(0, whole, layout.size)]
        left = tuple(nodes[whole:]) or left
    return groups, left


def _cut_inside(parts: Sequence[list[_Unit]], weights: Mapping[_Unit, int], size: int) -> list[list[_Unit]]:
    """Return the parts (the leaves that go on to the next tier, pod by pod) in an order that crosses fewer leaves.

    Groups are cut off the chain of leaves one after the other. If a group ends between two leaves of a pod, it takes no
    part of the second one: look for a pod, and some of its leaves to come first, for which it does.
    """
    waiting, ordered, offset = list(parts), [], 0
    while waiting:
        chosen = next(((p, first) for p in waiting if (first := _subset(p, weights, -offset % size, size))), None)
        part, first = chosen or (waiting[0], [])
        waiting.remove(part)
        ordered.append([*first, *(leaf for leaf in part if leaf not in first)])
        offset += sum(weights[leaf] for leaf in part)
    return ordered


def _subset(part: Sequence[_Unit], weights: Mapping[_Unit, int], wanted: int, size: int) -> list[_Unit]:
    """Return some, not all, of the leaves with the sum `wanted` modulo size; [] if there are none or wanted is 0."""
    if not wanted:
        return []
    reached: dict[int, list[_Unit]] = {0: []}
    for leaf in part:
        for total, leaves in list(reached.items()):
            reached.setdefault((total + weights[leaf]) % size, [*leaves, leaf])
    found = reached.get(wanted, [])
    return found if len(found) < len(part) else []


def _bound(layout: _Layout, cost: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lower bound of each tier, top first, for plans that cost `cost` in the tiers above.

    Within a tier the cost is the units with a remainder minus the sets they are put into. A set lies inside one unit of
    the tier above, or one of its groups crosses there, which counts in that tier's cost; one more is the left-over's.
    """
    result: list[int] = []
    tight = True
    open_set = 1 if layout.total % layout.size else 0
    for depth in range(layout.tiers):
        pools = [p for u, p in layout.pools.items() if len(u) == depth]
        units = [r for p in pools for _, r in p.items]
        if depth == 0:
            most = pools[0].upper + open_set if pools else 0
        else:
            most = layout.whole[depth].upper + open_set
            if tight:
                most = min(most, sum(p.upper for p in pools) + result[-1] + open_set)
        result.append(max(0, len(units) - most))
        tight = tight and result[-1] == cost[depth]
    return tuple(result)


# --- the solver ----------------------------------------------------------------------------------------------------


def _patterns(counts: Mapping[int, int], size: int, steps: int) -> tuple[list[tuple[int, ...]], int, bool]:
    """Return the smallest sets of remainders that add up to a multiple, shortest first, at most `steps` tries.

    Also the length up to which none is missing, and whether none at all is missing. A set without a part that adds up
    to a multiple is extended by remainders not below its last one; bit i of its mask: some part has the sum i.
    """
    values = sorted(counts)
    full = (1 << size) - 1
    found: list[tuple[int, ...]] = []
    level: list[tuple[tuple[int, ...], int, int]] = [((), 1, 0)]
    length = 0
    while level:
        following = []
        for chosen, mask, total in level:
            for value in values:
                if chosen and value < chosen[-1]:
                    continue
                steps -= 1
                if steps < 0 or len(found) >= MOST_PATTERNS:
                    return found, length, False
                used = 0
                for other in reversed(chosen):
                    if other != value:
                        break
                    used += 1
                if used >= counts[value]:
                    continue
                moved = ((mask << value) | (mask >> (size - value))) & full
                if (total + value) % size == 0:
                    found.append((*chosen, value))
                elif not moved & 1:
                    following.append(((*chosen, value), mask | moved, (total + value) % size))
        length += 1
        level = following
    return found, length, True


def _improve(pools: Sequence[_Pool], time_limit: float) -> tuple[Method, str]:
    """Put the pools that may be below their bound together better: greedily by patterns, then by the solver.

    Returns how it was done, and a sentence if it may not be the best.
    """
    waiting = [p for p in pools if p.value < p.upper]
    models = []
    for pool in waiting:
        counts = Counter(r for _, r in pool.single)
        patterns, length, complete = _patterns(counts, pool.size, PATTERN_STEPS // len(waiting))
        model = _Model(pool, counts, patterns, length, complete)
        model.use(model.greedy())
        if pool.value < pool.upper:
            models.append(model)
    if not models:
        return "direct", ""
    try:
        import pulp
    except ImportError as error:
        return "plain", f"the solver cannot be loaded ({error})"
    problem = pulp.LpProblem("groups", pulp.LpMaximize)
    goal, chosen = [], []
    for number, model in enumerate(models):
        counts, patterns = model.counts, model.patterns
        variables = [
            problem.add_variable(f"y_{number}_{i}", 0, min(counts[v] // p.count(v) for v in p), "Integer")
            for i, p in enumerate(patterns)
        ]
        for value in sorted(counts):
            used = [p.count(value) * y for p, y in zip(patterns, variables, strict=True) if value in p]
            if used:
                problem += pulp.lpSum(used) <= counts[value]
        goal += variables
        if not model.pool.remainder:
            # what no pattern takes is a set too; half a point, so that it never replaces a pattern
            rest = problem.add_variable(f"rest_{number}", 0, 1, "Integer")
            taken = [len(p) * y for p, y in zip(patterns, variables, strict=True)]
            problem += pulp.lpSum([*taken, rest]) <= len(model.pool.single)
            goal.append(0.5 * rest)
        chosen.append(variables)
    problem += pulp.lpSum(goal)
    found, why = _solve(problem, time_limit)
    if not found:
        return "plain", why
    for model, variables in zip(models, chosen, strict=True):
        numbers = [round(y.value() or 0) for y in variables]
        if not why:
            model.prove(sum(numbers))
        model.use(numbers)
    return "ilp", why


@dataclass(slots=True)
class _Model:
    """The choice of patterns for one pool. `length`: no pattern up to this length is missing."""

    pool: _Pool
    counts: Counter[int]
    patterns: list[tuple[int, ...]]
    length: int
    complete: bool

    def greedy(self) -> list[int]:
        """Return how often each pattern is taken if the shortest are taken first."""
        left = self.counts.copy()
        numbers = []
        for pattern in self.patterns:
            need = Counter(pattern)
            numbers.append(min(left[v] // n for v, n in need.items()))
            for value, n in need.items():
                left[value] -= n * numbers[-1]
        return numbers

    def prove(self, most: int) -> None:
        """Lower the pool's upper bound, given that at most `most` of the patterns can be taken together."""
        pool = self.pool
        if self.complete:
            # a rest that adds up to a multiple but is not empty would hold a further pattern
            pool.upper = min(pool.upper, pool.pairs + most)
        else:
            spare = len(pool.single) - 3 * most - (1 if pool.remainder else 0)
            pool.upper = min(pool.upper, pool.pairs + most + max(0, spare) // (self.length + 1))

    def use(self, numbers: Sequence[int]) -> None:
        """Put the pool together in this way if that is not worse than it is now."""
        pool = self.pool
        waiting: dict[int, list[_Unit]] = {}
        for unit, remainder in pool.single:
            waiting.setdefault(remainder, []).append(unit)
        closed = pool.closed[: pool.pairs]
        for pattern, number in zip(self.patterns, numbers, strict=True):
            closed += [[waiting[v].pop(0) for v in pattern] for _ in range(number)]
        left = {u for units in waiting.values() for u in units}
        better = _Pool(pool.items, pool.size, closed, [(u, r) for u, r in pool.items if u in left])
        if better.value >= pool.value:
            pool.closed, pool.rest = better.closed, better.rest


def _solve(problem: Any, time_limit: float) -> tuple[bool, str]:
    """Solve with CBC. Return whether there is a solution, and '' or why it is not proven best."""
    import pulp

    solver = pulp.COIN_CMD(
        path=pulp.PULP_CBC_CMD.pulp_cbc_path,
        msg=False,
        timeLimit=time_limit,
        timeMode="cpu",  # the same plan on a busy machine
        maxNodes=NODE_LIMIT,  # no `threads`: even with 1, CBC sometimes waits 10 s for a lost wake-up
    )
    try:
        problem.solve(solver)
    except (pulp.PulpSolverError, OSError) as error:
        return False, f"the solver failed ({str(error)[:100]})"
    if problem.sol_status == pulp.LpSolutionOptimal:
        return True, ""
    why = f"the solver stopped after {NODE_LIMIT} nodes or {time_limit:g} s without a proof"
    return problem.sol_status == pulp.LpSolutionIntegerFeasible, why


# --- halves --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _plan_halves(topology: Topology, nodes: tuple[str, ...], time_limit: float) -> Plan:
    """Return the halves of nodes in the cluster's order (cached)."""
    places = {n: topology.place(n) for n in nodes}
    orders = [
        nodes,
        sorted(nodes, key=lambda n: (places[n].zone or "", places[n].pdus, places[n].rack or "", places[n].leaf or "")),
    ]
    candidates = [(list(o[0::2]), list(o[1::2])) for o in orders]
    if len(nodes) < len(topology.nodes):
        home = _plan_halves(topology, _in_rank(topology.nodes, topology), time_limit)
        first = set(home.groups[0])
        stay = ([n for n in nodes if n in first], [n for n in nodes if n not in first])
        if abs(len(stay[0]) - len(stay[1])) <= 1 and uneven(stay, topology) == 0:
            return Plan((tuple(stay[0]), tuple(stay[1])), (), (0,), (0,), "direct")
    else:
        stay = min(candidates, key=lambda c: uneven(c, topology))
        if uneven(stay, topology) == 0:
            return Plan(_sorted_halves(stay, topology), (), (0,), (0,), "direct")
    parts, why = _even(topology, nodes, set(stay[0]), time_limit)
    method: Method = "ilp"
    if parts is None:
        method, parts = "plain", min(candidates, key=lambda c: uneven(c, topology))
    cost = uneven(parts, topology)
    return Plan(_sorted_halves(parts, topology), (), (cost,), (0 if why else cost,), method, why)


def _sorted_halves(parts: tuple[list[str], list[str]], topology: Topology) -> tuple[tuple[str, ...], ...]:
    """Return both halves in the cluster's order."""
    return tuple(_in_rank(p, topology) for p in parts)


def _even(
    topology: Topology, nodes: Sequence[str], first: set[str], time_limit: float
) -> tuple[tuple[list[str], list[str]] | None, str]:
    """Return the most even halves, with as few nodes as possible moved out of or into `first`; or None and why.

    Nodes that load the same things are interchangeable, so a variable is how many of a kind go into the first half.
    """
    try:
        import pulp
    except ImportError as error:
        return None, f"the solver cannot be loaded ({error})"
    kinds: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node in nodes:
        kinds.setdefault(topology.loads[node], []).append(node)
    problem = pulp.LpProblem("halves", pulp.LpMinimize)
    shares, moves, excesses = [], [], []
    by_load: dict[tuple[str, str], list[tuple[Any, int]]] = {}
    for i, (loads, members) in enumerate(kinds.items()):
        share = problem.add_variable(f"x_{i}", 0, len(members), "Integer")
        now = sum(n in first for n in members)
        moved = problem.add_variable(f"m_{i}", 0, len(members))
        problem += moved >= share - now
        problem += moved >= now - share
        shares.append(share)
        moves.append(moved)
        for load in loads:
            by_load.setdefault(load, []).append((share, len(members)))
    problem += pulp.lpSum(shares) >= len(nodes) // 2
    problem += pulp.lpSum(shares) <= (len(nodes) + 1) // 2
    for i, parts in enumerate(by_load.values()):
        number = sum(n for _, n in parts)
        if number < 2:
            continue
        excess = problem.add_variable(f"e_{i}", 0)
        twice = pulp.lpSum(2 * x for x, _ in parts)
        problem += twice - number <= number % 2 + excess
        problem += number - twice <= number % 2 + excess
        excesses.append(excess)
    problem += pulp.lpSum([(len(nodes) + 1) * e for e in excesses] + moves)
    found, why = _solve(problem, time_limit)
    if not found:
        return None, why
    halves_: tuple[list[str], list[str]] = ([], [])
    for share, members in zip(shares, kinds.values(), strict=True):
        # those of the first half stay, the last of the others come in (or the last of the first go out)
        staying = [n for n in members if n in first] + [n for n in reversed(members) if n not in first]
        count = round(share.value() or 0)
        halves_[0].extend(staying[:count])
        halves_[1].extend(staying[count:])
    return halves_, why


# --- borrowing -----------------------------------------------------------------------------------------------------


def _near(
    candidates: Sequence[str],
    need: int,
    tier: int,
    members: Sequence[str],
    topology: Topology,
    counts: Mapping[str, int],
) -> list[str]:
    """Return `need` of the candidates that make `members` span as few units as possible, from `tier` down.

    Units where members stand come first; then the fewest other units, which are the fullest, but for the last one,
    which is the one with the least borrowed nodes among those that suffice.
    """
    rank = _ranks(topology)
    if tier < 0:
        return sorted(candidates, key=lambda n: (counts.get(n, 0), rank[n]))[:need]
    units: dict[_Unit, list[str]] = {}
    for node in sorted(candidates, key=lambda n: (counts.get(n, 0), rank[n])):
        units.setdefault(topology.unit(node, tier), []).append(node)
    own = {topology.unit(n, tier) for n in members}
    inside = [n for unit, there in units.items() if unit in own for n in there]
    if len(inside) >= need:
        return _near(inside, need, tier - 1, members, topology, counts)
    chosen = inside
    others = {u: there for u, there in units.items() if u not in own}
    while len(chosen) < need:
        missing = need - len(chosen)
        enough = [u for u, there in others.items() if len(there) >= missing]
        if enough:
            unit = min(
                enough,
                key=lambda u: (sum(counts.get(n, 0) for n in others[u][:missing]), min(rank[n] for n in others[u])),
            )
            return chosen + _near(others[unit], missing, tier - 1, members, topology, counts)
        unit = max(others, key=lambda u: (len(others[u]), -min(rank[n] for n in others[u])))
        chosen += others.pop(unit)
    return chosen


def forget() -> None:
    """Forget cached plans (for measurements)."""
    for cached in (_ranks, _plan_groups, _plan_halves):
        cached.cache_clear()
