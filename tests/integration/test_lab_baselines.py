# SPDX-License-Identifier: Apache-2.0
"""A validation, its baselines pinned, and a burn-in that is judged by them where there are no peers to compare with."""

from __future__ import annotations

from pathlib import Path

import yaml
from burnin.commands.baseline import baseline
from click.testing import CliRunner

from tests.integration.campaigns import ROOT, Lab


def test_two_nodes_are_judged_by_what_their_validation_gave(tmp_path: Path) -> None:
    one = {"hpl": {"default": {"iterations": 1}}}
    (tmp_path / "v").mkdir()
    healthy = Lab(tmp_path / "v", campaign="validation", nodes="dgx[01-02]", workloads=["hpl"], windows=one)
    done = healthy.snakemake()
    assert healthy.summary["verdict"] == "accepted" and "no validation named" in done.stderr
    out = tmp_path / "baselines.yaml"
    pinned = CliRunner().invoke(baseline, [str(healthy.dir), "--out", str(out)], catch_exceptions=False)
    assert pinned.exit_code == 0 and {r["nodes"] for r in yaml.safe_load(out.read_text())} == {1, 2}

    criteria = yaml.safe_load((ROOT / "config" / "criteria.yaml").read_text()) | {"baselines": str(out)}
    (tmp_path / "criteria.yaml").write_text(yaml.safe_dump(criteria))
    lab = Lab(
        tmp_path,
        [{"kind": "straggler", "node": "dgx02"}],
        nodes="dgx[01-02]",
        workloads=["hpl"],
        criteria=str(tmp_path / "criteria.yaml"),
        validation=str(healthy.dir),
    )
    done = lab.snakemake("single")
    assert "validation named" not in done.stderr
    assert lab.summary["validation"]["verdict"] == "accepted"
    assert lab.faults() == {"dgx02": ("gpu_slow", "node")} and lab.statuses()["dgx01"] != "failed"
    assert "below the baseline" in lab.summary["nodes"]["dgx02"]["reason"]
