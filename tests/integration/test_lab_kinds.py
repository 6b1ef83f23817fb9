# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault of the lab, through Snakemake: the right node or none, the right part, the right fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.campaigns import Lab

#: kind, fields, workload, expected (fault, part) of the node
ON_A_NODE: list[tuple[str, dict[str, Any], str, tuple[str, str]]] = [
    ("link_flap", {"node": "dgx02", "part": "mlx5_3", "min_nodes": 2}, "nccl", ("link_flap", "mlx5_3")),
    ("transceiver_hot", {"node": "dgx02", "part": "mlx5_3"}, "nccl", ("transceiver_hot", "mlx5_3")),
    ("rail_slow", {"node": "dgx02", "part": "mlx5_3", "min_nodes": 2}, "nccl", ("rail_slow", "mlx5_3")),
    ("nvlink_error", {"node": "dgx03", "part": "gpu2"}, "nccl", ("nvlink_error", "gpu2")),
    ("gpu_slow", {"node": "dgx03", "part": "gpu2"}, "hpl", ("gpu_slow", "gpu2")),
    ("hbm_ecc_uncorrectable", {"node": "dgx03", "part": "gpu2"}, "hpl", ("hbm_ecc_uncorrectable", "gpu2")),
    ("row_remap_failed", {"node": "dgx03", "part": "gpu2"}, "hpl", ("row_remap_failed", "gpu2")),
    ("psu_failed", {"node": "dgx03", "part": "PSU2"}, "hpl", ("psu_failed", "PSU2")),
    ("inlet_hot", {"node": "dgx03"}, "hpl", ("inlet_hot", "TEMP_INLET")),
    ("straggler", {"node": "dgx03", "part": "gpu2"}, "nemo", ("straggler", "gpu2")),
    ("oom_one_node", {"node": "dgx03"}, "nemo", ("oom_one_node", "node")),
    ("driver_mismatch", {"node": "dgx03"}, "nemo", ("driver_mismatch", "stack")),
    ("missing_gpu", {"node": "dgx03", "part": "gpu5"}, "hpl", ("missing_gpu", "gpu5")),
    ("probe_unreadable", {"node": "dgx03", "part": "dcgmi"}, "hpl", ("probe_unreadable", "node")),
]
#: kind, fields, workload: nobody fails, the campaign stops and says what to do
NOBODYS: list[tuple[str, dict[str, Any], str]] = [
    ("storage_slow", {}, "nemo"),
    ("checkpoint_fails", {}, "nemo"),
    ("nccl_on_sockets", {}, "nccl"),
    ("time_limit", {}, "nemo"),
]


@pytest.mark.parametrize(("kind", "fields", "workload", "expected"), ON_A_NODE, ids=[k[0] for k in ON_A_NODE])
def test_a_nodes_fault(
    tmp_path: Path, kind: str, fields: dict[str, Any], workload: str, expected: tuple[str, str]
) -> None:
    lab = Lab(tmp_path, [{"kind": kind, **fields}], workloads=[workload])
    lab.snakemake("x2")  # it shows there at the latest
    assert lab.faults() == {fields["node"]: expected}
    run = next(r for r in lab.results().values() if fields["node"] in r["nodes"])
    assert len(run["iterations"]) <= 2, "a zero-tolerance finding ends the run within an iteration"


@pytest.mark.parametrize(("kind", "fields", "workload"), NOBODYS, ids=[k[0] for k in NOBODYS])
def test_nobodys_fault(tmp_path: Path, kind: str, fields: dict[str, Any], workload: str) -> None:
    lab = Lab(tmp_path, [{"kind": kind, **fields}], workloads=[workload])
    done = lab.snakemake(check=False)
    assert done.returncode != 0 and "What to do" in done.stderr
    assert not lab.faults(), "no node is dropped"
    assert lab.summary["stopped"]["kind"] == kind


def test_noise_and_spikes_drop_nobody(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path,
        nodes="dgx[01-04]",
        workloads=["nccl", "nemo"],
        windows={w: {"default": {"iterations": 4}} for w in ("nccl", "hpl", "nemo")},
    )
    lab.snakemake()
    assert lab.summary["verdict"] == "accepted" and not lab.faults()
