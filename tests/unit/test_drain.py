# SPDX-License-Identifier: Apache-2.0
"""Drains: only failed nodes, with an owned reason, never what somebody else drained, nothing that reaches a shell."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from burnin.cluster.drain import (
    REASON_LIMIT,
    drain,
    is_ours,
    node_states,
    plan_drains,
    plan_looks,
    plan_resumes,
    plan_returns,
    reason,
)
from hypothesis import given
from hypothesis import strategies as st


def finding(node: str, part: str = "gpu5") -> dict[str, Any]:
    return {"node": node, "scope": "node", "fault": "gpu_off_bus", "part": part, "step": "x4", "workload": "nemo"}


def gate(outcome: dict[str, str]) -> dict[str, Any]:
    return {"outcome": outcome, "findings": [finding(n) for n in outcome]}


def test_only_failed_nodes_and_never_what_is_drained_already() -> None:
    outcome = {
        "n1": "failed",
        "n2": "passed",
        "n3": "owes",
        "n4": "suspect",
        "n5": "failed",
        "n6": "failed",
        "n7": "withdrawn",
    }
    states = {n: {"flags": [], "reason": ""} for n in outcome}
    states["n5"] = {"flags": ["DRAIN"], "reason": "admin: fan"}
    del states["n6"]
    wanted, left = plan_drains("demo", gate(outcome), states)
    assert wanted == {"n1": "burnin demo: gpu_off_bus gpu5 (x4 nemo)"}
    assert left["n5"] == "drained already: admin: fan" and "does not know" in left["n6"]


def test_whose_reason_it_is() -> None:
    assert is_ours("demo", "burnin demo: gpu_off_bus gpu5 (x4 nemo)")
    for other in ("burnin demo2: x", "burnin: demo", "admin: burnin demo: x", "", "Burnin demo: x"):
        assert not is_ours("demo", other)


@given(st.text(max_size=300))
def test_a_reason_is_one_harmless_line_whatever_a_log_says(part: str) -> None:
    text = reason("demo", finding("n1", part))
    assert is_ours("demo", text) and len(text) <= REASON_LIMIT
    assert all(" " <= c <= "~" for c in text) and not set(text) & set("\"'`$\\")


def test_scontrol_gets_an_argument_list(tmp_path: Path) -> None:
    """A stand-in for scontrol writes its arguments down; nothing is split, expanded or executed."""
    log = tmp_path / "log"
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/usr/bin/env python3\nimport json, sys\nopen({str(log)!r}, "a").write(json.dumps(sys.argv[1:]) + "\\n")\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    evil = "burnin demo: $(touch owned); `id` & x"
    assert drain({"n1": evil}, environment) == {"n1": ""}
    assert json.loads(log.read_text()) == ["update", "nodename=n1", "state=drain", f"reason={evil}"]


def test_no_slurm_is_no_state_and_no_exception(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    assert node_states(["n1"], environment) == {}
    assert "scontrol" in drain({"n1": "burnin demo: x"}, environment)["n1"]


def test_only_our_own_idle_drains_are_resumed() -> None:
    def state(base: str, flags: list[str], why: str) -> dict[str, Any]:
        return {"state": base, "flags": flags, "reason": why}

    states = {
        "ours": state("IDLE", ["DRAIN"], "burnin demo: gpu_off_bus gpu5 (x4 nemo)"),
        "busy": state("ALLOCATED", ["DRAIN"], "burnin demo: x"),
        "completing": state("IDLE", ["DRAIN", "COMPLETING"], "burnin demo: x"),
        "admin": state("IDLE", ["DRAIN"], "admin: waits for a cable"),
        "other": state("IDLE", ["DRAIN"], "burnin other: x"),
        "up": state("IDLE", [], "burnin demo: x"),
        "none": state("IDLE", ["DRAIN"], ""),
    }
    assert plan_resumes("demo", [*states, "unknown"], states) == ["ours"]


def test_who_is_in_service_again_is_taken_back_and_nobody_for_ever() -> None:
    def state(base: str, *flags: str) -> dict[str, Any]:
        return {"state": "+".join([base, *flags]), "base": base, "flags": list(flags), "reason": "alice: PSU"}

    states = {
        "idle": state("IDLE"),
        "busy": state("ALLOCATED", "COMPLETING"),
        "drained": state("IDLE", "DRAIN"),
        "draining": state("ALLOCATED", "DRAIN"),
        "down": state("DOWN", "NOT_RESPONDING"),
        "silent": state("IDLE", "NOT_RESPONDING"),
        "booting": state("IDLE", "POWERING_UP"),
        "reserved": state("IDLE", "RESERVED"),
        "vain": state("IDLE"),
    }
    away = dict.fromkeys([*states, "unknown"], 0) | {"vain": 2}
    assert plan_returns(away, states, reservation=False, limit=2) == {"idle": "IDLE", "busy": "ALLOCATED+COMPLETING"}
    assert set(plan_returns(away, states, reservation=True)) == {"idle", "busy", "reserved", "vain"}
    assert plan_looks(list(away), states, reservation=False) == ["idle", "vain"]
    assert plan_looks(list(away), states, reservation=True) == ["idle", "reserved", "vain"]
