# SPDX-License-Identifier: Apache-2.0
"""Repairs through Snakemake on the lab: who was repaired runs what it owes, nobody's finished run is repeated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.campaigns import ROOT, Lab


def call(lab: Lab, *command: str) -> str:
    environment = {
        **lab.environment, "BURNIN_LAB": str(lab.dir / "lab"), "BURNIN_SCENARIO": str(lab.folder / "scenario.yaml"),
        "PATH": f"{ROOT / 'lab' / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def started(lab: Lab) -> dict[str, float]:
    return {run: document["started"] for run, document in lab.results().items()}


def test_a_node_that_fails_at_x4_is_repaired_and_catches_up(tmp_path: Path) -> None:
    """The dry run shows what it owes before, and that is what runs: nothing of the others is repeated."""
    fault = {"kind": "gpu_off_bus", "node": "dgx05", "part": "gpu5", "step": "x4", "workload": "nemo"}
    lab = Lab(
        tmp_path, [fault], nodes="dgx[01-08]", workloads=["nemo"], windows={"nemo": {"default": {"iterations": 1}}}
    )  # fmt: skip
    lab.snakemake()
    assert lab.faults() == {"dgx05": ("gpu_off_bus", "gpu5")} and lab.summary["nodes"]["dgx05"]["failed_step"] == "x4"
    before = started(lab)
    call(lab, "dctech", "dgx05", "gpu5")
    call(lab, "burnin", "repair", "dgx05", "--part", "gpu5", "--fix", "GPU5 replaced", "--campaign", str(lab.dir))
    shown = re.findall(r"^Job \d+: (retest|run) (.*)$", lab.snakemake("-n").stdout, re.MULTILINE)
    lab.snakemake()
    assert lab.summary["verdict"] == "accepted", lab.summary["nodes"]["dgx05"]
    after = started(lab)
    assert before.items() <= after.items(), "no finished run is repeated"
    new = sorted(set(after) - set(before))
    steps = [run.split("/")[0] for run in new]
    assert sorted(set(steps)) == ["full", "halves", "retest", "single", "x2", "x4"] and len(new) == len(shown)
    assert steps.count("halves") == 2 and all(steps.count(s) == 1 for s in ("retest", "single", "x2", "x4", "full"))
    told = lab.summary["nodes"]["dgx05"]["exchanged"]
    assert any("gpu5 was exchanged" in text for text in told), told
    assert "gpu5 was exchanged" in call(lab, "burnin", "explain", "dgx05", str(lab.dir))


def test_a_repaired_link_lets_both_ends_in_again(tmp_path: Path) -> None:
    fault = {"kind": "fabric_slow", "between": ["dgx01", "dgx02"], "part": "leaf1"}
    lab = Lab(
        tmp_path,
        [fault],
        nodes="dgx[01-04]",
        isolation={"shows": 0.5, "missed": 0.15, "windows": {"nccl": {"iterations": 1}}},
    )
    lab.snakemake()
    assert [link["between"] for link in lab.summary["links"]] == [[["dgx01"], ["dgx02"]]]
    plans = [json.loads(path.read_text()) for path in lab.dir.glob("*/heat*/plan.json")]
    short = {
        (plan["step"], plan["heat"], name)
        for plan in plans
        for name, group in plan["groups"].items()
        if group["isolation"] and group["windows"] == {"nccl": {"iterations": 1}}
    }
    tested = [d for d in lab.results().values() if (d["step"], d["heat"], d["group"]) in short]
    assert tested and {d["window"]["iterations"] for d in tested} == {1}
    before = started(lab)
    call(lab, "dctech", "fabric", "leaf1")
    said = call(
        lab, "burnin", "repair", "--link", "dgx01/mlx5_3", "--fix", "cable replaced", "--campaign", str(lab.dir)
    )
    assert "lets dgx[01-02] in again" in said
    lab.snakemake()
    assert lab.summary["verdict"] == "accepted", lab.summary["nodes"]
    assert lab.summary["links"][0]["waits"] == [] and before.items() <= started(lab).items()
