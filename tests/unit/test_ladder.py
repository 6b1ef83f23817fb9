# SPDX-License-Identifier: Apache-2.0
"""The ladder: steps for any N, who owes what, and what a heat may contain."""

from __future__ import annotations

import pytest
from burnin.ladder import assume_passed, next_heat, project, replay, step_number, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world import Campaign, ladder, result


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, "single resume"),
        (2, "single halves full resume"),
        (3, "single halves full resume"),
        (5, "single x2 halves full resume"),
        (7, "single x2 halves full resume"),
        (8, "single x2 x4 halves full resume"),
        (12, "single x2 x4 halves full resume"),
        (33, "single x2 x4 x8 x16 halves full resume"),
        (1024, "single x2 x4 x8 x16 x32 x64 x128 x256 x512 halves full resume"),
    ],
)
def test_steps(count: int, names: str) -> None:
    assert " ".join(s.name for s in steps(count)) == names
    assert [s.name for s in sorted(steps(count), key=lambda s: step_number(s.name))] == names.split()


def test_no_nodes_is_no_ladder() -> None:
    with pytest.raises(ValueError, match="at least one"):
        steps(0)


@given(st.integers(1, 70))
@settings(max_examples=70, deadline=None)
def test_a_ladder_where_all_pass(count: int) -> None:
    config = ladder(count)
    heats = project(config, [])
    for step in config.steps():
        mine = [h for h in heats if h.step == step.name]
        ran = [n for h in mine for g in h.groups for n in g.owed]
        assert sorted(ran) == sorted(config.nodes), "every node runs every size, as one who owes it, exactly once"
        assert [h.heat for h in mine] == list(range(len(mine)))
        for heat in mine:
            members = [n for g in heat.groups for n in g.nodes]
            assert len(members) == len(set(members)), "no node is in two groups of one heat"
            if step.size:
                assert all(len(g.nodes) == step.size for g in heat.groups)
    halves = [h for h in heats if h.step == "halves"]
    if count > 1:
        (heat,) = halves
        one, two = heat.groups
        assert not set(one.nodes) & set(two.nodes)
        assert set(one.nodes) | set(two.nodes) == set(config.nodes)
        assert abs(len(one.nodes) - len(two.nodes)) <= 1
    order = [step_number(h.step) for h in heats]
    assert order == sorted(order)


@given(st.integers(1, 24), st.data())
@settings(max_examples=60, deadline=None)
def test_a_heat_only_takes_nodes_that_passed_the_step_before(count: int, data: st.DataObject) -> None:
    """Whatever fails or is cancelled on the way."""
    config = ladder(count)

    def run(step: str, heat: int, workload: str, group: str, nodes: list[str]) -> dict[str, object]:
        fate = data.draw(st.sampled_from(["pass"] * 6 + ["culprit", "cancelled", "slow"]))
        if fate == "culprit":
            node = data.draw(st.sampled_from(nodes))
            signal = {
                "kind": "gpu_lost",
                "line": 3,
                "text": "GPU is lost",
                "file": "p",
                "node": node,
                "when": "after",
                "gpu": 5,
            }
            return result(step, heat, workload, group, nodes, signals=[signal], state="stopped", reason="gpu_lost")
        if fate == "cancelled" and heat < 2:
            casualty = {"state": "CANCELLED", "lost": [], "text": "CANCELLED by 0", "job_id": "7"}
            return result(step, heat, workload, group, nodes, state="casualty", casualty=casualty, reason="cancelled")
        if fate == "slow":
            found = result(step, heat, workload, group, nodes)
            for item in found["iterations"]:
                item["value"] *= 0.5
            return found
        return result(step, heat, workload, group, nodes)

    campaign = Campaign(config, run).to_end()
    names = [s.name for s in config.steps()]
    for number, heat in enumerate(campaign.heats):
        standing = replay(config, campaign.gates[:number])
        roster = standing.roster(config.nodes)
        sizes = {s.name: s.size for s in config.steps()}
        for group in heat.groups:
            assert set(group.nodes) <= set(roster)
            for node in group.nodes:
                for step in names[: names.index(heat.step)]:
                    owed = {(step, w) for w in config.workloads[step]}
                    possible = len(roster) >= max(sizes[step], 2 if step == "halves" else 1)
                    assert not possible or owed <= standing.passed[node].keys()
            for node in set(group.nodes) - set(group.owed):
                assert any((heat.step, w) in standing.passed[node] for w in config.workloads[heat.step])


def test_partners_of_a_culprit_run_again_without_it_and_only_what_they_owe() -> None:
    config = ladder(4)
    (single, *_) = project(config, [])
    gates = [assume_passed(single)]
    x2 = next_heat(config, gates)
    assert x2 is not None and x2.step == "x2"
    first, second = x2.groups
    gates.append(
        {
            "step": "x2", "heat": 0, "suspects": [], "stopped": None,
            "outcome": {first.nodes[0]: "failed", first.nodes[1]: "owes", **dict.fromkeys(second.nodes, "passed")},
            "passed": {first.nodes[1]: ["nccl"], **{n: ["nccl", "hpl"] for n in second.nodes}},
        }
    )  # fmt: skip
    again = next_heat(config, gates)
    assert again is not None and (again.step, again.heat) == ("x2", 1)
    (group,) = again.groups
    assert group.owed == (first.nodes[1],) and group.nodes[1] in second.nodes
    assert group.workloads == ("hpl",), "what it passed beside the culprit is not run again"


def test_a_step_that_needs_more_nodes_than_are_left_is_passed_over() -> None:
    config = ladder(8)
    outcome = dict.fromkeys(config.nodes[:5], "failed") | dict.fromkeys(config.nodes[5:], "passed")
    passed = {n: ["nccl", "hpl"] for n in config.nodes[5:]}
    gates = [{"step": "single", "heat": 0, "outcome": outcome, "passed": passed, "suspects": [], "stopped": None}]
    assert [h.step for h in project(config, gates)] == ["x2", "x2", "halves", "full"]
