# SPDX-License-Identifier: Apache-2.0
"""Grouping: every node once, near nodes together, halves even, borrowed nodes in turn, plans that stay as they are."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
from burnin import grouping
from burnin.grouping import Plan, fill, halves, in_order, plan_groups, plan_halves, spans, uneven
from burnin.topology import Place, Topology, unknown
from hypothesis import given, settings
from hypothesis import strategies as st

quick = settings(max_examples=60, deadline=None)


def cluster(leaves: Sequence[int], pods: Sequence[int] = (), rack: int = 2) -> Topology:
    """Return a cluster with leaves of the given sizes; pods[i] is the pod of leaf i; racks of `rack` nodes."""
    places: dict[str, Place] = {}
    for number, size in enumerate(leaves):
        above = (f"spine{pods[number]}", "core") if pods else ()
        for _ in range(size):
            i = len(places)
            places[f"n{i:03d}"] = Place(
                f"leaf{number}", above, (), f"rack{i // rack}", (f"pdu{i % 3}", f"pdu{3 + i // 6}"), f"zone{i % 2}"
            )
    return Topology(tuple(places), places, "file")


@st.composite
def clusters(draw: st.DrawFn, most: int = 8, leaf: int = 9) -> Topology:
    sizes = draw(st.lists(st.integers(1, leaf), min_size=1, max_size=most))
    tiered = draw(st.booleans())
    pods = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes))) if tiered else ()
    return cluster(sizes, pods)


@st.composite
def rosters(draw: st.DrawFn, **limits: int) -> tuple[Topology, list[str]]:
    topology = draw(clusters(**limits))
    gone = draw(st.sets(st.sampled_from(topology.nodes), max_size=max(0, len(topology.nodes) - 1)))
    return topology, [n for n in topology.nodes if n not in gone]


def check_plan(plan: Plan, nodes: Sequence[str], size: int) -> None:
    placed = [n for g in plan.groups for n in g] + list(plan.left)
    assert sorted(placed) == sorted(nodes), "every node exactly once"
    assert all(len(g) == size for g in plan.groups)
    assert len(plan.left) == len(nodes) % size
    assert len(plan.objective) == len(plan.bound)
    assert plan.gap >= 0


# --- groups --------------------------------------------------------------------------------------------------------


def test_without_a_topology_neighbours_run_together() -> None:
    assert in_order(["a", "b", "c", "d", "e"], 2) == ([["a", "b"], ["c", "d"]], ["e"])
    plan = plan_groups(["b", "a"], 2, unknown(["a", "b"]))
    assert (plan.groups, plan.method, plan.objective, plan.gap) == ((("b", "a"),), "plain", (), 0)
    with pytest.raises(ValueError, match="at least one node"):
        in_order(["a"], 0)


def test_small_groups_stay_inside_a_leaf_and_larger_ones_inside_a_pod() -> None:
    topology = cluster([5, 3, 4, 4], pods=[0, 0, 1, 1])
    pairs = plan_groups(topology.nodes, 2, topology)
    # the odd nodes of leaf0 and leaf1 meet inside their pod
    assert (pairs.objective, pairs.bound, pairs.method) == ((0, 1), (0, 1), "direct")
    fours = plan_groups(topology.nodes, 4, topology)
    assert fours.objective == fours.bound == (0, 1)
    eights = plan_groups(topology.nodes, 8, topology)
    assert [sorted({topology.place(n).above[0] for n in g}) for g in eights.groups] == [["spine0"], ["spine1"]]


def test_config_order_across_leaves_is_put_right() -> None:
    places = {f"n{i}": Place(f"leaf{i % 2}") for i in range(8)}
    topology = Topology(tuple(places), places, "file")
    groups, left = in_order(list(places), 4, topology)
    assert (groups, left) == ([["n0", "n2", "n4", "n6"], ["n1", "n3", "n5", "n7"]], [])


@quick
@given(rosters(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_every_node_once_deterministic_and_never_worse_than_plain(
    roster: tuple[Topology, list[str]], size: int, random: object
) -> None:
    topology, nodes = roster
    plan = plan_groups(nodes, size, topology)
    check_plan(plan, nodes, size)
    assert plan.objective == spans([*plan.groups, plan.left], topology)
    groups, left = in_order(nodes, size)
    assert plan.objective <= spans([*groups, left], topology)
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    grouping.forget()
    assert plan_groups(shuffled, size, topology) == plan


def cheapest(topology: Topology, nodes: Sequence[str], size: int) -> tuple[int, ...]:
    """Return the best objective by trying everything: an oracle that shares nothing with the planner but the count."""
    leaves = sorted({topology.unit(n, 0) for n in nodes})
    counts = Counter(topology.unit(n, 0) for n in nodes)

    def cost(take: tuple[int, ...]) -> tuple[int, ...]:
        used = [leaf for leaf, k in zip(leaves, take, strict=True) if k]
        return tuple(len({leaf[:depth] for leaf in used}) - 1 for depth in range(1, topology.tiers + 1))

    @functools.cache
    def best(left: tuple[int, ...]) -> tuple[int, ...]:
        total = sum(left)
        if not total:
            return (0,) * topology.tiers
        part = total % size or size  # the left-over is the first to go
        options = []
        for take in product(*(range(min(k, part) + 1) for k in left)):
            if sum(take) == part:
                rest = best(tuple(k - t for k, t in zip(left, take, strict=True)))
                options.append(tuple(a + b for a, b in zip(cost(take), rest, strict=True)))
        return min(options)

    return best(tuple(counts[leaf] for leaf in leaves))


@settings(max_examples=80, deadline=None)
@given(rosters(most=5, leaf=4), st.integers(2, 5))
def test_bound_best_and_objective_are_in_order(roster: tuple[Topology, list[str]], size: int) -> None:
    topology, nodes = roster
    plan = plan_groups(nodes, size, topology)
    best = cheapest(topology, nodes, size)
    assert plan.bound <= best <= plan.objective
    if topology.tiers <= 1:
        assert plan.objective == best


@pytest.mark.parametrize(
    ("leaves", "size"),
    [([6, 5, 3, 1, 3, 3, 1, 3, 1], 7), ([3, 5, 1, 3, 3, 3, 5, 1, 2], 7), ([9, 2, 9, 7, 7, 4, 4], 10)],
)
def test_the_solver_finds_what_the_construction_misses(
    leaves: list[int], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = cluster(leaves)
    grouping.forget()
    plan = plan_groups(topology.nodes, size, topology)
    assert plan.method == "ilp" and plan.objective == plan.bound
    monkeypatch.setitem(sys.modules, "pulp", None)
    grouping.forget()
    without = plan_groups(topology.nodes, size, topology)
    assert without.method == "plain" and without.objective > plan.objective and without.gap > 0
    grouping.forget()


def test_a_missing_solver_is_reported_with_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = cluster([1, 1, 3, 5, 4, 6, 3, 9, 7, 11, 2, 5, 8, 8, 5], rack=5)
    monkeypatch.setattr(grouping, "PATTERN_STEPS", 0)  # so that patterns are missing and the bound stays open
    monkeypatch.setitem(sys.modules, "pulp", None)
    grouping.forget()
    plan = plan_groups(topology.nodes, 16, topology)
    check_plan(plan, topology.nodes, 16)
    assert plan.method == "plain" and "solver cannot be loaded" in plan.why and plan.gap > 0
    missing = [n for n in topology.nodes if n not in ("n000", "n010", "n011", "n012")]
    even = plan_halves(missing, topology)
    assert even.method == "plain" and even.bound == (0,) and even.gap == even.objective[0] > 0
    grouping.forget()


# --- stability -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_a_node_that_leaves_or_returns_changes_its_own_group_only(size: int) -> None:
    topology = cluster([16] * 8, pods=[0, 0, 0, 0, 1, 1, 1, 1])
    whole = set(plan_groups(topology.nodes, size, topology).groups)
    for gone in ({"n005"}, {"n005", "n100"}, {"n005", "n006", "n017"}):
        nodes = [n for n in topology.nodes if n not in gone]
        plan = plan_groups(nodes, size, topology)
        check_plan(plan, nodes, size)
        untouched = {g for g in whole if not gone & set(g)}
        assert untouched <= set(plan.groups)


@quick
@given(rosters(most=6), st.integers(2, 8), st.data())
def test_plans_keep_the_groups_of_the_whole_cluster_unless_that_costs(
    roster: tuple[Topology, list[str]], size: int, data: st.DataObject
) -> None:
    topology, nodes = roster
    here = set(nodes)
    kept = [g for g in plan_groups(topology.nodes, size, topology).groups if here.issuperset(g)]
    plan = plan_groups(nodes, size, topology)
    if set(kept) <= set(plan.groups):
        return
    # reshuffled: then the plan that keeps them is worse
    held = {n for g in kept for n in g}
    others = plan_groups([n for n in nodes if n not in held], size, topology)
    assert plan.objective < spans([*kept, *others.groups, others.left], topology)


def test_halves_stay_when_a_node_leaves() -> None:
    simple = Topology(tuple(f"n{i:03d}" for i in range(64)), {f"n{i:03d}": Place(f"leaf{i // 16}") for i in range(64)})
    for topology, most in ((simple, 1), (cluster([16] * 4), 4)):
        first, second = map(set, halves(topology.nodes, topology))
        for gone in ("n000", "n033"):
            one, two = map(set, halves([n for n in topology.nodes if n != gone], topology))
            assert len((one - first) | (two - second)) <= most


# --- halves --------------------------------------------------------------------------------------------------------


def test_halves_without_a_topology_are_interleaved() -> None:
    assert halves(["a", "b", "c", "d", "e"]) == [["a", "c", "e"], ["b", "d"]]
    assert plan_halves(["a", "b"]).objective == ()


@settings(max_examples=20, deadline=None)  # each may start the solver three times
@given(rosters(most=6, leaf=5))
def test_halves_differ_by_one_and_leaves_are_even(roster: tuple[Topology, list[str]]) -> None:
    topology, nodes = roster
    plan = plan_halves(nodes, topology)
    first, second = plan.groups
    assert sorted([*first, *second]) == sorted(nodes)
    assert abs(len(first) - len(second)) <= 1
    assert plan.objective == (uneven(plan.groups, topology),)
    assert plan.bound <= plan.objective <= (uneven(halves(nodes), topology),)
    grouping.forget()
    assert plan_halves(list(reversed(nodes)), topology) == plan


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=24))
def test_two_attributes_are_always_even_to_the_node(pairs: list[tuple[int, int]]) -> None:
    # two families of disjoint sets can always be split to the node (their incidence matrix is totally unimodular)
    places = {f"n{i:02d}": Place(leaf=f"leaf{a}", zone=f"zone{b}") for i, (a, b) in enumerate(pairs)}
    topology = Topology(tuple(places), places, "file")
    plan = plan_halves(topology.nodes, topology)
    assert plan.objective == (0,)
    for kind, name in {load for n in places for load in topology.loads[n]}:
        one, two = (sum((kind, name) in topology.loads[n] for n in part) for part in plan.groups)
        assert abs(one - two) <= 1


@settings(max_examples=20, deadline=None)
@given(rosters(most=3, leaf=4))
def test_halves_are_the_best_there_are(roster: tuple[Topology, list[str]]) -> None:
    topology, nodes = roster
    if len(nodes) > 10:
        nodes = nodes[:10]
    best = min(
        uneven([[n for n, k in zip(nodes, bits, strict=True) if k == part] for part in (0, 1)], topology)
        for bits in product((0, 1), repeat=len(nodes))
        if abs(2 * sum(bits) - len(nodes)) <= 1
    )
    plan = plan_halves(nodes, topology)
    assert plan.objective == plan.bound == (best,)


# --- borrowing -----------------------------------------------------------------------------------------------------


def test_fill_without_a_topology() -> None:
    assert fill(["a"], 3, ["x", "y", "z"]) == (["a", "x", "y"], ["z"])
    assert fill(["a"], 3, ["x", "y", "z"], borrowed={"x": 1}) == (["a", "y", "z"], ["x"])
    assert fill(["a"], 4, ["x"]) == (["a", "x"], [])
    assert fill(["a", "b"], 2, ["x"]) == (["a", "b"], ["x"])


def test_borrowed_nodes_are_near_and_take_turns() -> None:
    topology = cluster([4, 4, 4, 4], pods=[0, 0, 1, 1])
    free = [n for n in topology.nodes if n != "n005"]
    assert fill(["n005"], 4, free, topology)[0] == ["n005", "n004", "n006", "n007"]
    # a leaf of its own is too small: the rest from one other leaf of the pod
    group, rest = fill(["n005"], 8, free, topology)
    assert group[1:] == ["n000", "n001", "n002", "n003", "n004", "n006", "n007"]
    assert len(rest) == 8
    counts: Counter[str] = Counter()
    for _ in range(30):
        counts.update(fill(["n005"], 2, free, topology, counts)[0][1:])
    assert max(counts.values()) - min(counts[n] for n in free) <= grouping.TURN + 1
    assert counts["n004"] == max(counts.values())  # and the near ones come first


@quick
@given(rosters(), st.integers(1, 12), st.data())
def test_no_more_borrowed_than_needed(roster: tuple[Topology, list[str]], size: int, data: st.DataObject) -> None:
    topology, nodes = roster
    members = data.draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1, max_size=size))
    free = [n for n in nodes if n not in members]
    counts = data.draw(st.dictionaries(st.sampled_from(nodes), st.integers(0, 5)))
    group, rest = fill(members, size, free, topology, counts)
    assert group[: len(members)] == members
    assert len(group) == min(size, len(members) + len(free))
    assert sorted([*group, *rest]) == sorted(nodes)
    assert rest == [n for n in free if n not in group]
    assert fill(members, size, free[::-1], topology, counts)[0] == group
    borrowed = group[len(members) :]
    if borrowed and not counts:
        # nobody is farther than needed: own leaves are used up before others are touched
        own = {topology.unit(n, 0) for n in members}
        pods = {topology.unit(n, topology.tiers - 1) for n in members}
        near = [n for n in free if topology.unit(n, 0) in own and topology.unit(n, topology.tiers - 1) in pods]
        assert sum(n in near for n in borrowed) == min(len(near), len(borrowed))
    if borrowed:
        enough = sorted(counts.get(n, 0) for n in free)[len(borrowed) - 1]
        assert max(counts.get(n, 0) for n in borrowed) <= enough + grouping.TURN


# --- cost ----------------------------------------------------------------------------------------------------------


def test_pulp_is_not_loaded_without_need() -> None:
    code = (
        "import sys; from burnin import grouping as g, topology as t; n = [f'n{i}' for i in range(64)];"
        "g.in_order(n, 4); g.halves(n); g.fill(n[:1], 4, n[1:]);"
        "p = {x: t.Place(f'leaf{i // 16}') for i, x in enumerate(n)}; k = t.Topology(tuple(n), p, 'file');"
        "[g.in_order(n, s, k) for s in (2, 4, 8, 16, 32)]; g.halves(n, k);"
        "assert 'pulp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_nodes_are_refused_and_unplaced_ones_are_not() -> None:
    topology = cluster([2, 2])
    with pytest.raises(ValueError, match="other"):
        plan_groups(["n000", "other"], 2, topology)
    partly = Topology(("a", "b", "c", "d"), {"a": Place("leaf0"), "c": Place("leaf0")}, "file")
    assert in_order(["a", "b", "c", "d"], 2, partly)[0] == [["a", "c"], ["b", "d"]]
