# SPDX-License-Identifier: Apache-2.0
"""What operators do on a real Slurm: the first config comes from it, and one run is run again by --forcerun."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT, Campaign, Cluster

pytestmark = [pytest.mark.slurm]


def test_the_config_of_a_real_slurm(cluster: Cluster, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    made = subprocess.run(
        [sys.executable, "-m", "burnin", "init", str(site)],
        env=cluster.client, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "found 4 nodes with 8 GPUs: dgx[01-04]" in made.stderr and "not found: " in made.stderr
    text = site.read_text()
    for words in ("nodes: dgx[01-04]", "gpus_per_node: 8", "partition: batch", "mpi: pmix", "from what Slurm 2"):
        assert words in text
    dry = subprocess.run(
        [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "slurm"), "-n",
         "--configfile", str(site), "--config", f"results={tmp_path / 'results'}"],
        env=cluster.client, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert dry.returncode == 0, dry.stderr[-2000:]
    assert "dgx01x4-" in dry.stdout + dry.stderr


def test_one_run_is_run_again_as_a_new_job_and_the_old_result_is_kept(campaign: Callable[..., Campaign]) -> None:
    run = campaign(hold=False)
    run.start()
    assert run.finish()["verdict"] == "accepted"
    run.start("--forcerun", "results/t/single/heat0/nccl/dgx01/result.json")
    assert run.finish()["verdict"] == "accepted"
    assert "to be run again: single/heat0/nccl/dgx01" in run.log()
    folder = run.result / "single/heat0/nccl/dgx01"
    first, now = (json.loads((folder / f).read_text()) for f in ("attempt0/result.json", "result.json"))
    assert (first["attempt"], now["attempt"], now["earlier_attempts"]) == (0, 1, 1) and first["jobs"] != now["jobs"]
    assert len(run.submissions(0)) == 2 and len(list((run.result / "single/heat0/history").glob("gate.*.json"))) == 2
