# SPDX-License-Identifier: Apache-2.0
"""`burnin init` on a real Slurm: what it writes is taken by `snakemake --profile slurm -n`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, Cluster

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
