# SPDX-License-Identifier: Apache-2.0
"""Isolation: culprits, links, what comes and goes, too few partners. The tests are asked for as the ladder would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from burnin.isolation import Conclusion, Trial, conclude, propose, repeats_for, sides
from burnin.judging.heat import judge_heat
from burnin.judging.isolating import look_at
from burnin.ladder import Group, Heat, Isolation
from burnin.simulate import hang
from burnin.topology import Place, Topology
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world import Campaign, context, ladder, plan_of, result

#: Does a group fail? (nodes, number of the test)
Truth = Callable[[set[str], int], bool]

LINK = "it is the path between them"


def names(count: int) -> list[str]:
    return [f"n{i:03d}" for i in range(count)]


def isolate(
    nodes: Sequence[str], groups: Sequence[Sequence[str]], fails: Truth
) -> tuple[set[str], Conclusion, int, int]:
    """Run groups of a step and then tests until no case is open. Return convicted, the end, tests and rounds."""
    trials = [Trial("w", 0, tuple(g), tuple(g), True) for g in groups if fails(set(g), 0)]
    passed = {n for g in groups if not fails(set(g), 0) for n in g}
    out: set[str] = set()
    convicted: set[str] = set()
    heat, count = 0, 0
    while True:
        found = conclude(trials, heat)
        convicted |= set(found.convicted)
        out |= set(found.convicted) | {n for c in found.given_up for n in c.held}
        if not found.open:
            return convicted, found, count, heat
        heat += 1
        assert heat < 60, "it does not end"
        roster = [n for n in nodes if n not in out]
        tests, _ = propose(found.trials, ["w"], roster, [n for n in roster if n in passed])
        assert tests, "an open case has a next test"
        members = [n for t in tests for n in t.nodes]
        assert len(members) == len(set(members)) and not set(members) & out
        trials = list(found.trials)
        for test in tests:
            count += 1
            bad = fails(set(test.nodes), count)
            trials.append(Trial("w", heat, test.nodes, test.suspects, bad, test.pair))
            if not bad and len(test.nodes) == len(groups[0]):
                passed |= set(test.nodes)


def test_triangulation_one_culprit_and_one_link() -> None:
    nodes = names(6)
    pairs = [nodes[0:2], nodes[2:4], nodes[4:6]]
    convicted, _, tests, rounds = isolate(nodes, pairs, lambda g, _: "n001" in g)
    assert (convicted, tests, rounds) == ({"n001"}, 2, 1)
    # 1-3 good, 2-4 good, 1-2 bad: the path
    convicted, end, tests, rounds = isolate(nodes, pairs, lambda g, _: {"n000", "n001"} <= g)
    assert not convicted and (tests, rounds) == (3, 2), "two with other partners, and the pair once more"
    (link,) = end.given_up
    assert link.given_up.endswith(LINK) and set(link.held) == {"n000", "n001"} and link.pairs == {("n000", "n001")}


@given(st.sampled_from([2, 4, 8]), st.data())
@settings(max_examples=80, deadline=None)
def test_all_culprits_and_nobody_else(size: int, data: st.DataObject) -> None:
    nodes = names(size * 8)
    bad = set(data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True)))
    groups = [nodes[i : i + size] for i in range(0, len(nodes), size)]
    convicted, end, tests, _ = isolate(nodes, groups, lambda g, _: bool(bad & g) and len(g) >= size)
    assert convicted <= bad and not end.given_up
    # culprits of one group may explain each other's failure; who is left runs again with the step
    hit = [bad & set(g) for g in groups if bad & set(g)]
    assert all(convicted & some for some in hit)
    assert tests <= 2 * len(bad) * (size.bit_length() + 1)


@given(st.sampled_from([2, 4, 8, 16]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_link_is_found_as_a_link(size: int, data: st.DataObject) -> None:
    nodes = names(size * 4)
    ends = set(data.draw(st.lists(st.sampled_from(nodes[:size]), min_size=2, max_size=2, unique=True)))
    groups = [nodes[i : i + size] for i in range(0, len(nodes), size)]
    convicted, end, _, _ = isolate(nodes, groups, lambda g, _: ends <= g)
    assert not convicted
    (case,) = end.given_up
    assert case.given_up.endswith(LINK) and set(case.held) == ends


@pytest.mark.parametrize("count", [4, 8, 16, 30])
def test_a_link_that_only_the_whole_cluster_has_in_one_group(count: int) -> None:
    """Nobody passed the step, so there is no partner: smaller groups fail, and then the others are partners."""
    nodes = names(count)
    convicted, end, _, _ = isolate(nodes, [nodes], lambda g, _: {nodes[1], nodes[-2]} <= g)
    (case,) = end.given_up
    assert not convicted and case.given_up.endswith(LINK) and set(case.held) == {nodes[1], nodes[-2]}


def test_what_comes_and_goes_is_given_up_and_said() -> None:
    nodes = names(8)
    groups = [nodes[:4], nodes[4:]]
    convicted, end, _, _ = isolate(nodes, groups, lambda g, number: number == 0 and "n000" in g)
    (case,) = end.given_up
    assert not convicted and "comes and goes" in case.given_up and set(case.suspects) == set(nodes[:4])


def test_without_partners_it_ends_and_says_so() -> None:
    nodes = names(2)
    convicted, end, tests, _ = isolate(nodes, [nodes], lambda g, _: len(g) == 2)
    (case,) = end.given_up
    assert not convicted and tests == 2 and "too few nodes that passed" in case.given_up
    everybody = names(8)
    _, end, _, _ = isolate(everybody, [everybody], lambda g, _: len(g) == 8)
    assert end.given_up and set(end.given_up[0].suspects) == set(everybody)


def test_groups_that_all_failed_are_mixed() -> None:
    nodes = names(4)
    convicted, _, _, _ = isolate(nodes, [nodes[:2], nodes[2:]], lambda g, _: bool(g & {"n000", "n003"}) and len(g) == 2)
    assert convicted == {"n000", "n003"}


def test_a_bad_node_beside_a_bad_link_convicts_only_the_node() -> None:
    """b-d failed by d; b with the trusted a fails by the link a-b: that is not b's conviction."""
    nodes = names(10)
    groups = [nodes[i : i + 2] for i in range(0, 10, 2)]
    convicted, _, _, _ = isolate(nodes, groups, lambda g, _: "n001" in g or {"n000", "n002"} <= g)
    assert convicted == {"n001"}


def test_repeats() -> None:
    assert repeats_for(0.5, 0.15) == 3 and repeats_for(1.0, 0.1) == 1 and repeats_for(0.1, 0.05) == 29
    with pytest.raises(ValueError, match="between 0 and 1"):
        repeats_for(0.0)


def test_sides() -> None:
    assert sides([("a", "c"), ("b", "c"), ("x", "y")]) == [(["a", "b"], ["c"]), (["x"], ["y"])]
    assert sides([("a", "b"), ("b", "c"), ("a", "c")]) == [(["a", "b", "c"], [])]


@pytest.mark.parametrize("bad", [{"n005", "n027"}, {"n005", "n009", "n040"}, {"n001", "n002", "n070", "n100"}])
def test_a_heat_tests_many_groups_at_once(bad: set[str]) -> None:
    """Halving takes five rounds for 32 nodes; what is left of a group is tested beside its guilty half, not after it."""
    nodes = names(192)
    groups = [nodes[i : i + 32] for i in range(0, 192, 32)]
    convicted, end, tests, rounds = isolate(nodes, groups, lambda g, _: bool(bad & g) and len(g) >= 32)
    assert convicted == bad and not end.given_up
    assert rounds <= 8 and tests <= 12 * len(bad)


def test_what_comes_and_goes_may_be_a_partner_s() -> None:
    """n1 alone owed the run; its partners had passed before, and one of them may have what was seen once."""
    trials = [Trial("w", 0, ("n1", "n2", "n3"), ("n1",), True)]
    passes = [Trial("w", h, ("n1", "n2", "n3"), ("n1",), False) for h in (1, 2, 3)]
    cleared = [Trial("w", 1, ("n1", "n4", "n5"), ("n1",), False)]
    end = conclude([*trials, *cleared, *passes], 3)
    (case,) = end.given_up
    assert not end.convicted and set(case.suspects) == {"n1", "n2", "n3"}


def test_who_was_in_all_groups_beside_a_pair_is_no_less_suspect_than_the_path_between_them() -> None:
    """c filled a group whose pair a-b failed again, and was in the first one, too: its fault may come and go."""
    first = Trial("w", 0, tuple("abcd"), tuple("abcd"), True)
    others = [Trial("w", 1, tuple("acef"), ("a", "c"), False), Trial("w", 1, tuple("bdgh"), ("b", "d"), False)]
    crossed = [
        Trial("w", 2, tuple("adef"), ("a", "d"), False, True),
        Trial("w", 2, tuple("bcgh"), ("b", "c"), False, True),
    ]
    known = [first, *others, *crossed, Trial("w", 3, tuple("cdgh"), ("c", "d"), False, True)]
    again = Trial("w", 3, tuple("abce"), ("a", "b"), True, True)
    end = conclude([*known, again], 3)
    assert not end.given_up and {*end.open[0].pairs} == {("a", "b")}, "not yet: c was there"
    (test,), _ = propose(end.trials, ["w"], "abcdefgh", "efgh")
    assert set(test.nodes) & set("abcd") == {"a", "b"}, "the next one is without c"
    without = Trial("w", 4, test.nodes, test.suspects, True, True)
    (case,) = conclude([*known, again, without], 4).given_up
    assert case.given_up.endswith(LINK) and set(case.held) == {"a", "b"}
    passes = [replace(without, heat=h, failed=False) for h in (4, 5, 6)]
    rerun = [replace(again, heat=h, failed=False) for h in (7, 8, 9)]
    (case,) = conclude([*known, again, *passes, *rerun], 9).given_up
    assert set(case.held) == {"a", "b", "c"}, "whoever was in both groups that failed"


def test_who_was_given_up_beside_others_holds_them_too() -> None:
    """b and c passed once, in a smaller group; a could not be tested. What failed once may be any of the three."""
    failed = Trial("w", 0, tuple("abc"), tuple("abc"), True)
    smaller = [Trial("w", 1, ("a",), ("a",), False), Trial("w", 1, ("b", "c"), ("b", "c"), False)]
    (case,) = conclude([failed, *smaller], 1, slack=1).given_up
    assert case.suspects == ("a",) and set(case.held) == set("abc") and not case.again


def test_who_only_filled_a_group_passes_again_without_the_suspect() -> None:
    """x came back and the whole fails with it, as often as it is tried: x is out, the others owe the step once more."""
    fails = [Trial("w", h, tuple("xabc"), ("x",), True) for h in range(repeats_for() + 1)]
    assert not conclude(fails[:2], 1).given_up
    (case,) = conclude(fails, len(fails) - 1).given_up
    assert "no other partners" in case.given_up and case.held == ("x",) and case.again == ("a", "b", "c")

    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        broken = len(nodes) == 4 and len(campaign.gates) > back
        return hang(found) if broken and "n003" in nodes else found

    campaign, back = Campaign(ladder(4, ["nccl"]), run), 10**6
    campaign.to_end()
    assert campaign.accepted == set(names(4))
    back = len(campaign.gates)
    campaign.gates.append({"repair": {"node": "n003", "part": "gpu5", "fix": "reseated", "by": "op", "time": 1.0}})
    campaign.to_end()
    assert campaign.accepted == set(names(3)) and campaign.suspects == {"n003"} and not campaign.failed
    last = campaign.heats[-1]
    assert last.step == "full" and set(last.groups[0].nodes) == set(names(3)) == set(last.groups[0].owed)


def test_partners_that_passed_only_in_smaller_groups_convict_nobody() -> None:
    """Two groups that share only x hung: with partners that never ran in groups as large it may be one of theirs, each."""
    first = Trial("w", 0, tuple("xabc"), ("x",), True, unproven=tuple("abc"))
    second = Trial("w", 1, tuple("xdef"), ("x",), True, unproven=tuple("def"))
    end = conclude([first, second], 1)
    (case,) = end.given_up
    assert not end.convicted and case.held == ("x",) and "only passed in smaller ones" in case.given_up
    assert conclude([first, replace(second, unproven=())], 1).convicted.keys() == {"x"}
    proven = Trial("w", 1, tuple("abcg"), ("g",), False)
    assert conclude([first, proven, second], 1).convicted.keys() == {"x"}, "a pass in a group as large proves them"


@pytest.mark.parametrize("count", [6, 8, 9, 16, 17, 33])
@pytest.mark.parametrize("bad", ["n001", "n002"])
def test_a_fault_that_first_shows_in_one_of_the_halves(count: int, bad: str) -> None:
    """The other half ran well; it has not passed `halves`, but lends its nodes. One of them is found, all others pass."""

    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        return hang(found) if bad in nodes and len(nodes) >= count // 2 and step in ("halves", "full") else found

    done = Campaign(ladder(count, ["nccl"]), run).to_end()
    assert done.failed == {bad} and not done.suspects and len(done.accepted) == count - 1
    last = [h for h in done.heats if h.step == "halves"][-1]
    both = {n for g in last.groups for n in g.owed}
    assert len(last.groups) == 2 and both == done.accepted, (
        "isolation ran one group at a time: that is no pass of `halves`"
    )
    assert len([h for h in done.heats if h.step == "halves"]) <= 2 + 2 * count.bit_length()


def test_a_half_that_could_not_be_read_lends_nobody() -> None:
    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        if step == "halves" and heat == 0:
            if "n000" in nodes:
                return hang(found)
            del found["probes"]["after"]["n001"]
        return found

    done = Campaign(ladder(8, ["nccl"]), run).to_end()
    (gate, *_) = [g for g in done.gates if g["step"] == "halves"]
    assert all(t["failed"] for t in gate["trials"])


def test_who_is_away_is_suspected_again_when_it_is_back() -> None:
    failed = Trial("w", 0, tuple("abcd"), tuple("abcd"), True)
    passes = [Trial("w", 1, tuple("abef"), ("a", "b"), False), Trial("w", 1, tuple("cdgh"), ("c", "d"), False)]
    end = conclude([failed, *passes], 1, gone={"d"})
    assert not end.open and not end.given_up and failed in end.trials
    assert conclude(end.trials, 2).open[0].kind == "pairs"
    crossed = [Trial("w", 2, tuple("abcd"), ("a", "c"), False, True)]
    end = conclude([*end.trials, *crossed], 2, gone={"d"})
    assert not end.open and failed in end.trials, "the group cannot run again as it was"
    assert conclude(end.trials, 3).open[0].kind == "vanished"


def test_a_group_that_runs_again_as_it_was_lends_nobody() -> None:
    """Its partners have passed the step, and are in the group already."""
    failed = Trial("w", 0, tuple("abcd"), ("a", "b"), True)
    cleared = [Trial("w", 1, tuple("aefg"), ("a",), False), Trial("w", 1, tuple("bhij"), ("b",), False)]
    paths = [Trial("w", 2, tuple("abef"), ("a", "b"), False, True)]
    paths += [Trial("w", 3, (x, y, "k", "l"), (x, y), False, True) for x in "ab" for y in "cd"]
    paths.append(Trial("w", 3, tuple("cdkl"), ("c", "d"), False, True))
    other = Trial("w", 4, tuple("mnop"), tuple("mnop"), True)
    tests, _ = propose([failed, *cleared, *paths, other], ["w"], "abcdefghijklmnop", "cdefghijkl")
    members = [n for t in tests for n in t.nodes]
    assert tests[-1].nodes != tests[0].nodes and len(members) == len(set(members))
    assert any(set(t.nodes) == set("abcd") for t in tests)


def test_shortened_windows_find_it_and_are_no_pass_of_the_step() -> None:
    config = replace(ladder(8, ["nccl"]), short=frozenset({"nccl"}))

    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        return hang(found) if "n003" in nodes and len(nodes) > 3 else found

    done = Campaign(config, run).to_end()
    assert done.failed == {"n003"} and not done.suspects
    tested = [(h, g) for h in done.heats for g in h.groups if g.isolation]
    assert tested and not any(g.isolation and g.isolation.counts for _, g in tested)
    for heat, group in tested:
        gate = next(g for g in done.gates if (g["step"], g["heat"]) == (heat.step, heat.heat))
        assert not any("nccl" in gate["passed"].get(n, []) for n in group.nodes), "shorter than the step wants"
    whole = [g for h in done.heats if h.step == "x4" for g in h.groups if not g.isolation]
    assert done.accepted <= {n for g in whole for n in g.nodes}


def test_groups_that_look_for_a_fault_accuse_no_configuration() -> None:
    """Two of three that hang before their first step would be the network settings, if nobody had chosen them for it."""
    nodes = names(6)
    pairs = [nodes[0:2], nodes[2:4], nodes[4:6]]

    def gate(isolating: bool) -> dict[str, Any]:
        groups = [
            Group(tuple(p), tuple(p), ("nccl",), Isolation(tuple(p), 0, tuple(p)) if isolating else None) for p in pairs
        ]
        heat = Heat("x2", 1, tuple(groups))
        runs = {}
        for group in groups:
            found = result("x2", 1, "nccl", group.name, group.nodes)
            if group.nodes[0] != nodes[4]:
                hang(found)
                found["iterations"][0]["facts"] = {"steps": {"count": 0}}
            runs["nccl", group.name] = found
        return judge_heat(plan_of(heat), runs, context())

    stopped = gate(False)["stopped"]
    assert stopped and stopped["kind"] == "nccl_on_sockets"
    assert gate(True)["stopped"] is None


def test_what_to_look_at_between_two_sides() -> None:
    places = {n: Place(leaf=f"leaf{i // 2}", above=("spine",)) for i, n in enumerate(names(4))}
    topology = Topology(tuple(places), places, "file")
    assert "cables and switches between" in look_at(["n000"], ["n001"], None)
    assert "at leaf0;" in look_at(["n000"], ["n001"], topology)
    assert "between leaf0 and leaf1: uplinks" in look_at(["n000"], ["n002"], topology)
    assert "NCCL_IB_HCA" in look_at(["n000"], ["n001", "n002"], topology)
