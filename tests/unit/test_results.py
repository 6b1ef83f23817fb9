# SPDX-License-Identifier: Apache-2.0
"""From a journal to a result: what its probes say of boots, and what the gate makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from burnin import parsers
from burnin.judging.heat import judge_heat
from burnin.ladder import Group, Heat
from burnin.runs import results
from burnin.runs.evaluate import probe_summary

from tests.world import context, plan_of, result


def probe(when: str, boots: dict[str, str]) -> dict[str, Any]:
    """Return a journal's record of a probe whose nodes have these boot ids."""
    nodes = {}
    for node, boot in boots.items():
        head = f"#@burnin node {node} time 1794318425 up 90.00 zone +0000 boot {boot}"
        nodes[node] = {
            **probe_summary(parsers.read_lines("probe", [head, "#@burnin finished"])),
            "file": f"p/{node}.txt",
        }
    return {"type": "probe", "when": when, "nodes": nodes, "time": 1.0}


JOB = {"type": "job", "job_id": "7", "time": 0.5}
ONE, TWO = {"n1": "aaaa", "n2": "bbbb"}, {"n1": "aaaa", "n2": "cccc"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([JOB, probe("before", ONE), probe("after", ONE)], []),
        ([JOB, probe("before", ONE), probe("after", TWO)], ["n2"]),
        ([JOB, probe("before", ONE), probe("during-1", TWO), probe("after", TWO)], ["n2"]),
        ([JOB, probe("before", ONE), JOB, probe("after", TWO)], []),  # between two jobs the node was not ours
        ([JOB, probe("before", {"n1": "unknown", "n2": "unknown"}), probe("after", ONE)], []),
    ],
    ids=["none", "one", "seen once", "between jobs", "not known"],
)
def test_a_boot_between_two_probes_of_a_job_is_a_signal(records: list[dict[str, Any]], expected: list[str]) -> None:
    found: dict[str, Any] = {"probes": {}, "signals": []}
    results._add_probes(found, records, "attempt0")
    assert [s["node"] for s in found["signals"] if s["kind"] == "rebooted"] == expected


def test_a_node_that_booted_during_a_run_fails_and_its_partner_owes() -> None:
    """It came back so quickly that every iteration passed and Slurm never missed it."""
    found: dict[str, Any] = {"probes": {}, "signals": []}
    results._add_probes(found, [JOB, probe("before", ONE), probe("after", TWO)], "attempt0")
    plan = plan_of(Heat("x2", 0, (Group(("n1", "n2"), ("n1", "n2"), ("nccl",)),)))
    ((name, group),) = plan["groups"].items()
    gate = judge_heat(
        plan, {("nccl", name): result("x2", 0, "nccl", name, group["nodes"], signals=found["signals"])}, context()
    )
    assert gate["outcome"] == {"n1": "owes", "n2": "failed"}
    (finding,) = gate["findings"]
    assert (finding["fault"], finding["part"]) == ("node_crash", "node")
    assert (
        finding["evidence"][0].endswith("p/n2.txt:1") and "aaaa" not in finding["quote"] and "cccc" in finding["quote"]
    )
