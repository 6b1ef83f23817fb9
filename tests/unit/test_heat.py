# SPDX-License-Identifier: Apache-2.0
"""The gate: who fails, who owes, who is suspect, and what is nobody's fault."""

from __future__ import annotations

from typing import Any

import pytest
from burnin import storage
from burnin.judging.heat import judge_heat
from burnin.ladder import Group, Heat

from tests.world import context, plan_of, result

PAIR = ("n000", "n001")


def gate_of(
    step: str, groups: list[tuple[str, ...]], changes: dict[tuple[str, str], dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """Judge a heat in which every run passes but for `changes` of (workload, first node of the group)."""
    heat = Heat(step, more.pop("heat", 0), tuple(Group(g, g, ("nccl", "hpl")) for g in groups))
    plan = plan_of(heat)
    results = {
        (w, name): result(step, heat.heat, w, name, g["nodes"], **changes.get((w, g["nodes"][0]), {}))
        for name, g in plan["groups"].items()
        for w in g["workloads"]
    }
    gate = judge_heat(plan, results, context(**more))
    storage.check(gate | {"drained": {}}, "gate", "test")
    return gate


def seen(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "line": 3, "text": f"{kind} line", "file": "attempt0/out-00000.log", **fields}


def test_all_pass() -> None:
    gate = gate_of("x2", [PAIR, ("n002", "n003")], {})
    assert set(gate["outcome"].values()) == {"passed"}
    assert gate["passed"]["n000"] == ["nccl", "hpl"] and gate["hours"]["n000"]["hpl"] > 0
    assert not gate["findings"]


def test_a_known_culprit_fails_and_its_partner_owes() -> None:
    lost = seen("gpu_lost", node="n001", when="after", gpu=5, file="attempt0/probe-after/n001.txt")
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): {"signals": [lost], "state": "stopped", "reason": "gpu_lost"}})
    assert gate["outcome"] == {"n000": "owes", "n001": "failed"}
    (finding,) = gate["findings"]
    assert (finding["node"], finding["part"], finding["fault"]) == ("n001", "gpu5", "gpu_off_bus")
    assert finding["evidence"] == [
        "x2/heat0/nccl/n000x2-" + finding["group"].split("-")[1] + "/attempt0/probe-after/n001.txt:3"
    ]
    assert gate["owes"]["n000"]["cause"] == "partner"


def test_only_the_first_rank_error_names_a_culprit() -> None:
    errors = [
        seen("cuda_error", rank=13, line=10),
        seen("cuda_error", rank=2, line=11),
        seen("watchdog_timeout", rank=1, line=12),
    ]
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): {"signals": errors, "state": "stopped", "reason": "cuda_error"}})
    assert gate["outcome"] == {"n000": "owes", "n001": "failed"}
    assert gate["findings"][0]["part"] == "gpu5"


def test_wrong_sums_in_a_group_are_nobodys_yet_and_a_nodes_own_alone() -> None:
    wrong = {"signals": [seen("wrong_elements", value=4.0)], "state": "stopped", "reason": "wrong_elements"}
    gate = gate_of("x2", [PAIR, ("n002", "n003")], {("nccl", "n000"): wrong})
    assert gate["outcome"]["n000"] == gate["outcome"]["n001"] == "suspect"
    assert gate["suspects"][0]["nodes"] == list(PAIR) and not gate["suspects"][0]["unresolved"]
    alone = gate_of("single", [("n000",), ("n001",)], {("nccl", "n000"): wrong})
    assert alone["outcome"] == {"n000": "failed", "n001": "passed"}
    assert alone["findings"][0]["fault"] == "silent_data_corruption"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_out_of_memory_everywhere_drops_nobody_and_stops(count: int) -> None:
    oom = {"signals": [seen("oom_gpu", rank=0, host=None)], "state": "stopped", "reason": "oom_gpu"}
    groups = [(f"n{i:03d}",) for i in range(count)]
    gate = gate_of("single", groups, {("nccl", g[0]): oom for g in groups})
    assert "failed" not in gate["outcome"].values()
    assert gate["stopped"]["kind"] == "oom_all_nodes" and "recipe" in gate["stopped"]["cure"]


def test_out_of_memory_on_one_node_is_that_nodes() -> None:
    oom = {"signals": [seen("oom_gpu", rank=0)], "state": "stopped", "reason": "oom_gpu"}
    gate = gate_of("single", [(f"n{i:03d}",) for i in range(4)], {("nccl", "n002"): oom})
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["n002"]
    assert gate["findings"][0]["fault"] == "oom_one_node" and gate["stopped"] is None


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("CANCELLED", "cancelled"),
        ("TIMEOUT", "time_limit"),
        ("OUT_OF_MEMORY", "died"),
        ("FAILED", "died"),
        ("VANISHED", "died"),
    ],
)
def test_what_the_operator_or_slurm_did_is_nobodys_fault(state: str, cause: str) -> None:
    dead = {
        "state": "casualty",
        "iterations": [],
        "casualty": {"state": state, "lost": [], "text": state, "job_id": "1"},
    }
    gate = gate_of(
        "x2", [PAIR], {("nccl", "n000"): dead, ("hpl", "n000"): {"state": "skipped", "iterations": [], "probes": {}}}
    )
    assert gate["outcome"] == {"n000": "owes", "n001": "owes"}
    assert {o["cause"] for o in gate["owes"].values()} == {cause}


def test_a_lost_node_fails_and_its_partners_owe() -> None:
    dead = {
        "state": "casualty",
        "iterations": [],
        "casualty": {"state": "NODE_FAIL", "lost": ["n001"], "text": "down", "job_id": "1"},
    }
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): dead})
    assert gate["outcome"] == {"n000": "owes", "n001": "failed"}
    assert gate["findings"][0]["fault"] == "node_crash"


def test_a_node_that_somebody_drained_is_withdrawn_without_blame() -> None:
    dead = {
        "state": "casualty",
        "iterations": [],
        "casualty": {"state": "NOT_STARTED", "lost": ["n001"], "text": "drained by root", "job_id": None},
    }
    skipped = {"state": "skipped", "iterations": [], "probes": {}, "reason": "nccl before"}
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): dead, ("hpl", "n000"): skipped})
    assert gate["outcome"] == {"n000": "owes", "n001": "withdrawn"} and not gate["findings"]


def test_the_rerun_limit_stops_with_a_cure_and_starts_anew_after_a_stop() -> None:
    dead = {
        "state": "casualty",
        "iterations": [],
        "casualty": {"state": "TIMEOUT", "lost": [], "text": "TIMEOUT", "job_id": "1"},
    }
    changes = {("nccl", "n000"): dead, ("hpl", "n000"): {"state": "skipped", "iterations": [], "probes": {}}}
    gates: list[dict[str, Any]] = []
    for heat in range(2):
        gates.append(gate_of("x2", [PAIR], changes, gates=list(gates), heat=heat))
        assert gates[-1]["stopped"] is None
    gates.append(gate_of("x2", [PAIR], changes, gates=list(gates), heat=2))
    assert gates[-1]["stopped"]["kind"] == "time_limit" and "time_limit_minutes" in gates[-1]["stopped"]["cure"]
    assert "failed" not in gates[-1]["outcome"].values()
    assert gate_of("x2", [PAIR], changes, gates=list(gates), heat=3)["stopped"] is None


def test_a_slow_node_among_its_peers_fails_alone_but_not_in_a_group() -> None:
    from tests.world import iteration

    slow = {"iterations": [iteration(0, "hpl", 3.79e5), iteration(1, "hpl", 3.8e5)]}
    gate = gate_of("single", [(f"n{i:03d}",) for i in range(8)], {("hpl", "n003"): slow})
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["n003"]
    (finding,) = gate["findings"]
    assert (
        finding["unit"] == "GFLOPS"
        and finding["value"] == pytest.approx(3.795e5)
        and finding["limit"] == pytest.approx(4.085e5)
    )
    assert "peers" in finding["limit_origin"] and finding["evidence"][0].endswith(":7")
    pairs = [(f"n{i:03d}", f"n{i + 1:03d}") for i in range(0, 8, 2)]
    group = gate_of("x2", pairs, {("hpl", "n002"): slow})
    assert group["outcome"]["n002"] == group["outcome"]["n003"] == "suspect"


def test_two_nodes_have_no_median() -> None:
    from tests.world import iteration

    slow = {"iterations": [iteration(0, "hpl", 1.0e5), iteration(1, "hpl", 1.0e5)]}
    gate = gate_of("single", [("n000",), ("n001",)], {("hpl", "n000"): slow})
    assert set(gate["outcome"].values()) == {"passed"}


def test_a_baseline_judges_a_lone_group() -> None:
    from tests.world import CRITERIA, iteration

    base = {
        "workload": "nccl",
        "command": "all_reduce",
        "nodes": 2,
        "value": 373.0,
        "unit": "GB/s",
        "band": 0.05,
        "origin": "validation",
        "date": "d",
    }
    slow = {"iterations": [iteration(0, "nccl", 331.0), iteration(1, "nccl", 340.0)]}
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): slow}, criteria={**CRITERIA, "baselines": [base]})
    assert set(gate["outcome"].values()) == {"suspect"}


def test_old_xids_do_not_count_and_new_ones_do() -> None:
    def xid(when: str, text: str) -> dict[str, Any]:
        return seen(
            "xid",
            node="n001",
            when=when,
            value=79.0,
            bdf="0000:c3:00",
            gpu=5,
            text=text,
            file=f"attempt0/probe-{when}/n001.txt",
        )

    old = "[Mon Jan  1 00:00:00 2026] NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus."
    new = "[Tue Jan  2 00:00:00 2026] NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus."
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): {"signals": [xid("before", old), xid("after", old)]}})
    assert set(gate["outcome"].values()) == {"passed"}
    gate = gate_of(
        "x2", [PAIR], {("nccl", "n000"): {"signals": [xid("before", old), xid("after", old), xid("after", new)]}}
    )
    assert gate["outcome"]["n001"] == "failed" and gate["findings"][0]["part"] == "gpu5"


def test_halves_that_did_not_overlap_were_not_tested() -> None:
    from tests.world import iteration

    late = {
        "iterations": [iteration(0, "nccl", start=5000.0, end=5010.0), iteration(1, "nccl", start=5010.0, end=5020.0)]
    }
    gate = gate_of("halves", [PAIR, ("n002", "n003")], {("nccl", "n000"): late})
    assert set(gate["outcome"].values()) == {"owes"}
    assert {o["cause"] for o in gate["owes"].values()} == {"overlap"}


def test_a_command_that_cannot_start_anywhere_is_the_configuration() -> None:
    from tests.world import iteration

    text = "srun: error: could not be started: No such file or directory"
    dead = {
        "iterations": [iteration(0, "nccl", verdict="unknown", complete=False, exit=127, value=None, problems=[text])],
        "state": "stopped",
        "reason": text,
    }
    for groups in ([("n000",)], [("n000",), ("n001",), ("n002",)]):
        gate = gate_of("single", groups, {("nccl", g[0]): dead for g in groups})
        assert "failed" not in gate["outcome"].values() and gate["stopped"] is not None


def test_who_ended_before_an_iteration_is_not_free_of_what_a_node_shows() -> None:
    """One node runs out of memory and the other two say nothing of it: it may be the recipe, so nobody is dropped."""
    oom = {"signals": [seen("oom_gpu", rank=0)], "state": "stopped", "reason": "oom_gpu", "iterations": []}
    silent = {
        "state": "casualty",
        "casualty": {"state": "CANCELLED", "lost": [], "text": "x", "job_id": "1"},
        "iterations": [],
    }
    nodes = [("n000",), ("n001",), ("n002",)]
    gate = gate_of("single", nodes, {("nccl", "n000"): oom, ("nccl", "n001"): silent, ("nccl", "n002"): silent})
    assert "failed" not in gate["outcome"].values() and gate["stopped"]["kind"] == "oom_all_nodes"
    gate = gate_of("single", nodes, {("nccl", "n000"): oom})
    assert gate["outcome"]["n000"] == "failed" and gate["stopped"] is None, "the others ran and are free of it"


def test_a_run_that_was_stopped_early_never_passes() -> None:
    stopped = {"state": "stopped", "reason": "xid: something the gate does not find again"}
    alone = gate_of("single", [("n000",), ("n001",), ("n002",)], {("nccl", "n000"): stopped})
    assert alone["outcome"]["n000"] == "failed" and "was stopped" in alone["findings"][0]["reason"]
    assert gate_of("x2", [PAIR], {("nccl", "n000"): stopped})["outcome"]["n000"] == "suspect"


def test_a_half_that_waited_in_vain_was_not_tested() -> None:
    waited = {"state": "stopped", "reason": "the other half was not ready within 60 minutes", "iterations": []}
    gate = gate_of("halves", [PAIR, ("n002", "n003")], {("nccl", "n000"): waited})
    assert gate["outcome"]["n000"] == "owes" and gate["owes"]["n000"]["cause"] == "overlap"
    assert "nccl" not in gate["passed"].get("n002", [])


def test_a_failure_that_a_tool_found_and_no_criterion_names_is_no_pass() -> None:
    from tests.world import TOOLS

    def probe(verdict: str) -> dict[str, Any]:
        return {"n000": {"tools": {**TOOLS, "ipmi": verdict}, "problems": [], "file": "attempt0/p.txt", "time": 1.0}}

    new = {"probes": {"before": probe("pass"), "after": probe("fail")}}
    gate = gate_of("single", [("n000",), ("n001",)], {("nccl", "n000"): new})
    assert gate["outcome"] == {"n000": "owes", "n001": "passed"} and gate["owes"]["n000"]["cause"] == "inconclusive"
    assert "ipmi found a failure" in gate["owes"]["n000"]["text"]
    old = {"probes": {"before": probe("fail"), "after": probe("fail")}}
    assert gate_of("single", [("n000",), ("n001",)], {("nccl", "n000"): old})["outcome"]["n000"] == "passed"


def test_a_missing_iteration_or_a_window_that_is_not_full_is_no_pass() -> None:
    from tests.world import iteration

    gap = {"iterations": [iteration(0, "nccl"), iteration(2, "nccl"), iteration(3, "nccl")]}
    short = {"window": {"hours": 12.0}, "hours": 11.0}
    for step, group in (("x2", PAIR), ("single", PAIR[:1])):
        for missing, words in ((gap, "iteration 1 is missing"), (short, "11 of 12 hours")):
            gate = gate_of(step, [group], {("nccl", "n000"): missing})
            assert set(gate["outcome"].values()) == {"owes"} and not gate["findings"]
            assert gate["owes"]["n000"]["cause"] == "inconclusive" and words in gate["owes"]["n000"]["text"]
    assert gate_of("x2", [PAIR], {("nccl", "n000"): {**short, "hours": 12.0}})["outcome"]["n000"] == "passed"


def test_an_output_that_is_cut_convicts_nobody_at_once() -> None:
    """Shared storage that lost the end of a file is no fault of the node; a node that never shows an end does not pass."""
    from tests.world import iteration

    cut = iteration(2, "nccl") | {"verdict": "unknown", "complete": False, "problems": ["the footer is missing"]}
    changes = {"iterations": [iteration(0, "nccl"), iteration(1, "nccl"), cut], "state": "stopped", "reason": "unknown"}
    gates: list[dict[str, Any]] = []
    for heat in range(3):
        groups = [("n000",), ("n001",)] if not heat else [("n000",)]
        gates.append(gate_of("single", groups, {("nccl", "n000"): changes}, heat=heat, gates=list(gates)))
    assert [g["outcome"]["n000"] for g in gates] == ["owes", "owes", "failed"]
    assert gates[-1]["findings"][0]["fault"] == "probe_unreadable"
    died = {**changes, "iterations": [*changes["iterations"][:2], {**cut, "exit": 1}]}
    assert gate_of("single", [("n000",), ("n001",)], {("nccl", "n000"): died})["outcome"]["n000"] == "failed"


def test_a_stopped_run_passes_nobody_because_another_node_could_not_be_read() -> None:
    run = result("x2", 0, "nccl", "g", list(PAIR))
    probes = {when: {n: dict(seen) for n, seen in nodes.items()} for when, nodes in run["probes"].items()}
    probes["after"]["n001"]["tools"] = {"dmesg": "unknown"}
    stopped = {"state": "stopped", "reason": "something that no criterion names", "probes": probes}
    gate = gate_of("x2", [PAIR], {("nccl", "n000"): stopped})
    assert "passed" not in gate["outcome"].values()
