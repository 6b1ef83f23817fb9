# SPDX-License-Identifier: Apache-2.0
"""Out of service and back: a repaired node of ours is resumed, one that an administrator took out never is, but is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Campaign, Cluster

pytestmark = [pytest.mark.slurm]
Make = Callable[..., Campaign]
QUICK: dict[str, Any] = {
    "nodes": "dgx[01-02]",
    "windows": {"nccl": {"default": {"iterations": 1}, "full": {"iterations": 2}}},
    "preflight": {"run": False},
}
ALICE = "alice: new PSU on Monday"


def verdicts(summary: dict[str, Any]) -> dict[str, str]:
    return {node: entry["status"] for node, entry in summary["nodes"].items()}


def started(run: Campaign) -> dict[Path, float]:
    return {p: json.loads(p.read_text())["started"] for p in run.result.glob("*/heat*/*/*/result.json")}


def operator(run: Campaign, scenario: Path, *command: str) -> str:
    environment = {
        **run.cluster.client,
        "BURNIN_LAB": str(run.result / "lab"),
        "BURNIN_SCENARIO": str(scenario),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_repaired_node_is_resumed_and_catches_up(campaign: Make, cluster: Cluster, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    fault = {"kind": "gpu_off_bus", "node": "dgx02", "part": "gpu5", "step": "halves"}
    scenario.write_text(yaml.safe_dump({"nodes": "dgx[01-08]", "gpus_per_node": 8, "faults": [fault]}))
    run = campaign(hold=False, scenario=str(scenario), **QUICK)
    run.start()
    assert verdicts(run.finish()) == {"dgx01": "accepted", "dgx02": "failed"}
    out = cluster.ask("sinfo", "-R", "-h", "-o", "%N %E")
    assert out.startswith("dgx02 burnin t: gpu_off_bus gpu5 (halves nccl)"), out
    before = started(run)
    operator(run, scenario, str(ROOT / "lab" / "bin" / "dctech"), "dgx02", "gpu5")
    operator(
        run, scenario, "burnin", "repair", "dgx02", "--part", "gpu5", "--fix", "replaced GPU5", "--campaign", str(run.result)
    )  # fmt: skip
    run.start()
    summary = run.finish()
    assert set(verdicts(summary).values()) == {"accepted"} and summary["verdict"] == "accepted"
    assert cluster.ask("sinfo", "-R", "-h", "-o", "%N %E").strip() == "", "resumed: the drain was the campaign's own"
    after = started(run)
    assert before.items() <= after.items(), "no finished run is repeated"
    assert any("retest" in p.parts for p in after)
    assert any("gpu5 was exchanged" in text for text in summary["nodes"]["dgx02"]["exchanged"]), summary["nodes"][
        "dgx02"
    ]
    run.assert_nothing_ran_twice()


def test_a_node_that_an_administrator_drains_and_resumes_is_taken_back(campaign: Make, cluster: Cluster) -> None:
    """At the next start, and at the next gate of a campaign that runs; never by resuming what is not ours."""
    cluster.ask("scontrol", "update", "nodename=dgx02", "state=drain", f"reason={ALICE}")
    run = campaign(hold=False, **QUICK)
    run.start()
    assert verdicts(run.finish()) == {"dgx01": "accepted", "dgx02": "withdrawn"}
    before = started(run)
    run.start()
    assert verdicts(run.finish())["dgx02"] == "withdrawn" and started(run) == before, "still drained: nothing to do"
    shown = cluster.ask("scontrol", "show", "node", "dgx02")
    assert "DRAIN" in shown and ALICE in shown, "not ours: never resumed, its reason stays"
    # the next start takes dgx02 back; meanwhile dgx01 is drained, and is in service again before the next gate
    cluster.ask("scontrol", "update", "nodename=dgx02", "state=resume")
    cluster.ask("scontrol", "update", "nodename=dgx01", "state=drain", f"reason={ALICE}")
    run.hold.touch()
    run.holding.unlink()
    run.start()
    run.until_held()
    assert "dgx02 is in service again (IDLE)" in run.log() and "dgx01 is in service again" not in run.log()
    cluster.ask("scontrol", "update", "nodename=dgx01", "state=resume")
    summary = run.finish()
    assert "dgx01 is in service again" in run.log()
    assert set(verdicts(summary).values()) == {"accepted"} and summary["verdict"] == "accepted"
    assert before.items() <= started(run).items()
    assert [a["back"] is not None for n in ("dgx02", "dgx01") for a in summary["nodes"][n]["away"]] == [True, True]
    assert ALICE in summary["nodes"]["dgx02"]["away"][0]["why"]
    run.assert_nothing_ran_twice()
