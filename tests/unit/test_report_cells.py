# SPDX-License-Identifier: Apache-2.0
"""Where a node stands: matrix, table and JUnit say the same, and nothing but a pass is a pass."""

from __future__ import annotations

from typing import Any

import pytest
from burnin.report.cells import Cell, cells, worst

STEPS = {"single": ("nccl", "hpl"), "x2": ("nccl",)}
PLAN = {"groups": {"g": {"nodes": ["n1", "n2"], "workloads": ["nccl", "hpl"]}}}


def gate(outcome: dict[str, str], step: str = "single", heat: int = 0, **fields: Any) -> dict[str, Any]:
    return {"step": step, "heat": heat, "groups": {"g": list(outcome)}, "outcome": outcome, "passed": {}, "owes": {}, "findings": [],
            "suspects": [], "withdrawn": {}} | fields  # fmt: skip


def of(events: list[dict[str, Any]]) -> dict[str, dict[tuple[str, str], Cell]]:
    plans = {(e["step"], e["heat"]): PLAN for e in events if "repair" not in e}
    return cells(events, plans, ["n1", "n2"], STEPS)


def test_who_failed_failed_in_the_workload_that_a_finding_names() -> None:
    found = {"scope": "node", "node": "n1", "workload": "hpl", "reason": "slow"}
    event = gate({"n1": "failed", "n2": "owes"}, findings=[found], passed={"n2": ["nccl"]},
                 owes={"n2": {"cause": "partner", "text": "n1 failed"}})  # fmt: skip
    made = of([event])
    assert (
        made["n1"]["single", "hpl"][:3] == ("failed", 1, "slow") and made["n1"]["single", "nccl"].state == "not counted"
    )
    assert made["n2"]["single", "nccl"].state == "passed" and made["n2"]["single", "hpl"][:3] == (
        "owes",
        1,
        "n1 failed",
    )
    assert made["n1"]["x2", "nccl"].state == "not run"


@pytest.mark.parametrize(
    ("outcome", "cause", "state"),
    [
        ("owes", "inconclusive", "unknown"),
        ("owes", "died", "owes"),
        ("suspect", "", "suspect"),
        ("withdrawn", "", "withdrawn"),
    ],
)
def test_what_is_no_pass_is_none(outcome: str, cause: str, state: str) -> None:
    owes = {"n1": {"cause": cause, "text": "why"}} if cause else {}
    suspects = [{"nodes": ["n1"], "reason": "its group hung"}] if outcome == "suspect" else []
    made = of([gate({"n1": outcome, "n2": "passed"}, owes=owes, suspects=suspects, passed={"n2": ["nccl", "hpl"]})])
    assert made["n1"]["single", "nccl"].state == state and made["n2"]["single", "nccl"].state == "passed"


def test_a_pass_stays_when_a_node_fills_up_a_group_that_fails_and_goes_with_its_repair() -> None:
    first = gate({"n1": "passed", "n2": "passed"}, passed={"n1": ["nccl", "hpl"], "n2": ["nccl", "hpl"]})
    again = gate({"n1": "owes", "n2": "failed"}, heat=1, owes={"n1": {"cause": "partner", "text": "n2 failed"}},
                 findings=[{"scope": "node", "node": "n2", "workload": "nccl", "reason": "hung"}])  # fmt: skip
    made = of([first, again])
    assert made["n1"]["single", "nccl"][:2] == ("passed", 2) and made["n2"]["single", "nccl"].state == "failed"
    repaired = of([first, again, {"repair": {"node": "n2"}}])
    assert repaired["n2"]["single", "nccl"] == Cell("not run") and repaired["n1"]["single", "nccl"].state == "passed"


def test_a_step_is_as_bad_as_its_worst_workload() -> None:
    assert worst([Cell("passed", 1), Cell("failed", 1, "x")]).state == "failed"
    assert worst([Cell("passed", 3), Cell("passed", 1)]) == Cell("passed", 3)
    assert (
        worst([Cell("passed", 1), Cell("not run")]).state == "owes"
        and worst([Cell("not run"), Cell("not run")]).state == "not run"
    )
    assert worst([]).state == "not run" and worst([Cell("passed"), Cell("unknown")]).state == "unknown"
