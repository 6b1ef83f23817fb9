# SPDX-License-Identifier: Apache-2.0
"""What must never happen, over random fault scenarios: whole campaigns in memory.

1. No node passes on missing, cut, unreadable or unknown evidence; no failure is retried into a pass.
2. No healthy node fails for its partner's fault, for a configuration fault, or for what the operator did.
3. No result is lost or counted twice: an accepted node has a passing run of full length in every step and workload.
(4 and 5, on what reaches a shell or a page and on what is not ours, have tests of their own: test_config, test_drain,
test_executor.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world import Campaign, ladder, result

NODE_FAULTS = ["gpu_lost", "fan_failed", "slow", "crash", "cuda_error", "link"]
DAMAGE = [
    "no_after",
    "no_before",
    "unknown_tool",
    "no_tools",
    "iteration_unknown",
    "iteration_missing",
    "no_iterations",
    "cut",
]
OPERATOR = ["CANCELLED", "TIMEOUT", "FAILED", "VANISHED", "OUT_OF_MEMORY"]


def damaged(found: dict[str, Any], kind: str, node: str) -> dict[str, Any]:
    """Return a result whose evidence about `node` (or about the run) is missing, cut or unknown."""
    if kind == "no_after":
        del found["probes"]["after"][node]
    elif kind == "no_before":
        del found["probes"]["before"][node]
    elif kind == "unknown_tool":
        found["probes"]["after"][node] = {
            "tools": {"dmesg": "pass", "ipmi": "unknown"},
            "problems": ["N/A"],
            "file": "f",
            "time": 1.0,
        }
    elif kind == "no_tools":
        found["probes"]["after"][node] = {"tools": {}, "problems": [], "file": "f", "time": 1.0}
    elif kind == "iteration_unknown":
        found["iterations"][-1] |= {"verdict": "unknown", "complete": False, "problems": ["no end mark"]}
    elif kind == "iteration_missing":
        found["iterations"].pop()
    elif kind == "no_iterations":
        found["iterations"].clear()
    elif kind == "cut":
        found["iterations"][0] |= {
            "verdict": "unknown",
            "value": None,
            "value_line": None,
            "ended": "interrupted",
            "exit": None,
        }
    return found


@given(st.sampled_from(DAMAGE), st.integers(1, 9), st.data())
@settings(max_examples=120, deadline=None)
def test_damaged_evidence_never_passes(kind: str, count: int, data: st.DataObject) -> None:
    """A run whose evidence is damaged passes nobody it is needed for, in whatever step and workload it happens."""
    config = ladder(count)
    victim = data.draw(st.sampled_from(config.nodes))
    step = data.draw(st.sampled_from([s.name for s in config.steps()]))
    workload = data.draw(st.sampled_from(["nccl", "hpl"]))

    def run(at: str, heat: int, what: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(at, heat, what, group, nodes)
        return damaged(found, kind, victim) if (at, what) == (step, workload) and victim in nodes else found

    campaign = Campaign(config, run).to_end()
    assert victim not in campaign.accepted
    if campaign.stopped is None:
        assert campaign.accepted <= set(config.nodes) - {victim}
    for gate in campaign.gates:
        if gate["step"] == step:
            assert workload not in gate["passed"].get(victim, [])


@given(st.integers(2, 12), st.data())
@settings(max_examples=150, deadline=None)
def test_random_campaigns(count: int, data: st.DataObject) -> None:
    """Random node faults, cancelled jobs and unlucky heats: who is to blame fails, nobody else, and it ends."""
    config = ladder(count)
    steps = [s.name for s in config.steps()]
    faulty = data.draw(st.lists(st.sampled_from(config.nodes), unique=True, max_size=max(1, count // 3)))
    fault = {n: data.draw(st.sampled_from(NODE_FAULTS)) for n in faulty}
    shows = {n: (data.draw(st.sampled_from(steps)), data.draw(st.sampled_from(["nccl", "hpl"]))) for n in faulty}
    unlucky = data.draw(st.lists(st.sampled_from(steps), max_size=2))
    interrupted = {(s, 0): data.draw(st.sampled_from(OPERATOR)) for s in unlucky}

    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        if (step, heat) in interrupted:
            death = {"state": interrupted[step, heat], "lost": [], "text": "ended from outside", "job_id": "1"}
            return found | {"state": "casualty", "casualty": death, "iterations": [], "probes": {}}
        for node in nodes:
            if node not in fault or steps.index(step) < steps.index(shows[node][0]) or workload != shows[node][1]:
                continue
            show(found, fault[node], node, nodes)
        return found

    campaign = Campaign(config, run).to_end()
    assert campaign.stopped is None
    for node in campaign.failed:
        assert node in fault, "a healthy node failed"
    # a node that is slow with too few peers to say so is not known to be faulty; all other faults show for certain
    certain = {n for n in faulty if fault[n] != "slow"}
    assert not certain & campaign.accepted
    slow_alone = {n for n in faulty if fault[n] == "slow"}
    assert campaign.accepted | campaign.failed | campaign.suspects == set(config.nodes)
    assert campaign.suspects <= set(config.nodes) if slow_alone else not campaign.suspects
    for node in campaign.accepted:
        for step in steps:
            for workload in config.workloads[step]:
                runs = [g for g in campaign.gates if g["step"] == step and workload in g["passed"].get(node, [])]
                if not runs:
                    size = {s.name: s.size for s in config.steps()}[step]
                    assert len(campaign.accepted) < max(size, 2), f"{node} was accepted without {workload} in {step}"


def show(found: dict[str, Any], fault: str, node: str, nodes: Sequence[str]) -> None:
    """Let a fault show in a result as the tools would show it."""
    probe = {"line": 9, "file": f"attempt0/probe-after/{node}.txt", "node": node, "when": "after"}
    if fault == "gpu_lost":
        found["signals"].append({"kind": "gpu_lost", "text": "GPU is lost", "gpu": 5, **probe})
        found |= {"state": "stopped", "reason": "gpu_lost"}
        found["iterations"][-1] |= {"verdict": "fail", "exit": 1}
    elif fault == "fan_failed":
        found["signals"].append({"kind": "fan_failed", "text": "FAN6_F | 0 RPM | cr", "device": "FAN6_F", **probe})
    elif fault == "slow":
        for item in found["iterations"]:
            item["value"] *= 0.8
    elif fault == "crash":
        death = {"state": "NODE_FAIL", "lost": [node], "text": "node down", "job_id": "1"}
        found |= {"state": "casualty", "casualty": death}
    elif fault == "cuda_error":
        rank = list(nodes).index(node) * 8 + 3
        found["signals"].append(
            {"kind": "cuda_error", "text": "CUDA error", "rank": rank, "line": 5, "file": "attempt0/out-00001.log"}
        )
        for other in range(8 * len(nodes)):
            found["signals"].append(
                {
                    "kind": "watchdog_timeout",
                    "text": "Watchdog",
                    "rank": other,
                    "line": 6,
                    "file": "attempt0/out-00001.log",
                }
            )
        found |= {"state": "stopped", "reason": "cuda_error"}
        found["iterations"][-1] |= {"verdict": "fail", "exit": 1}
    elif fault == "link":
        found["signals"].append(
            {"kind": "link_down_count", "text": "Link Down Counter : 2", "value": 2.0, "device": "mlx5_3", **probe}
        )


@given(
    st.integers(1, 8),
    st.sampled_from(["oom_gpu", "driver_mismatch", "nccl_socket", "nccl_no_device", "invalid_launch", "hpl_error"]),
)
@settings(max_examples=40, deadline=None)
def test_a_configuration_fault_drops_nobody_and_stops_with_a_cure(count: int, kind: str) -> None:
    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes, state="stopped", reason=kind)
        found["signals"] = [{"kind": kind, "text": kind, "line": 3, "file": "attempt0/out-00000.log"}]
        found["iterations"] = [found["iterations"][0] | {"verdict": "fail", "exit": 1}]
        return found

    campaign = Campaign(ladder(count), run).to_end()
    assert not campaign.failed and not campaign.suspects
    assert campaign.stopped is not None and campaign.stopped["cure"]


@given(st.integers(2, 8), st.sampled_from(OPERATOR))
@settings(max_examples=40, deadline=None)
def test_what_the_operator_does_for_ever_drops_nobody_and_stops(count: int, state: str) -> None:
    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        death = {"state": state, "lost": [], "text": state, "job_id": "1"}
        return result(step, heat, workload, group, nodes, state="casualty", casualty=death, iterations=[], probes={})

    campaign = Campaign(ladder(count), run).to_end()
    assert not campaign.failed and campaign.stopped is not None
    assert len(campaign.heats) == 3, "run again twice, then stopped"
