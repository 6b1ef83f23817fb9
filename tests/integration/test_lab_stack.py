# SPDX-License-Identifier: Apache-2.0
"""A node that comes up with another kernel in mid-campaign, through Snakemake on the lab: nobody waits for it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.campaigns import Lab
from tests.integration.test_lab_repair import call, started

#: What the preflight would read as well.
OTHERS = ("arm", "nvidia-smi", "mlxlink", "ofed", "bmc")


def test_a_node_with_another_kernel_is_out_until_it_is_back(tmp_path: Path) -> None:
    for node in range(1, 5):
        (tmp_path / f"kernel-dgx0{node}").write_text("5.15.0-1042\n")
    kernel = f"sh -c 'cat {tmp_path}/kernel-$SLURMD_NODENAME'"
    lab = Lab(
        tmp_path,
        windows={"nccl": {"default": {"iterations": 1}}},
        preflight={"run": True, "fabric": None, "commands": {**dict.fromkeys(OTHERS), "kernel": kernel}},
        hcas="mlx5_0",
        acceptance={"failed_nodes_allowed": 1},
    )
    lab.snakemake("single")
    (tmp_path / "kernel-dgx02").write_text("6.1.0-7\n")
    done = lab.snakemake()
    assert lab.summary["verdict"] == "accepted" and lab.statuses() == {
        "dgx01": "accepted", "dgx02": "withdrawn", "dgx03": "accepted", "dgx04": "accepted"
    }  # fmt: skip
    gone = lab.summary["nodes"]["dgx02"]
    assert (gone["fault"], gone["part"], gone["failed_step"]) == ("stack", "stack", "x2") and not lab.faults()
    words = "kernel is '6.1.0-7', was '5.15.0-1042' (x2/heat0/nccl/"
    assert (
        words in gone["reason"]
        and f"dgx02 is out, and not to blame: another stack than the frozen one: {words}" in done.stderr
    )
    path, line = gone["evidence"][0].rsplit(":", 1)
    assert "stack:kernel" in (lab.dir / path).read_text().splitlines()[int(line) - 1]
    assert "dgx02 stays out: kernel is '6.1.0-7', was '5.15.0-1042'" in done.stderr, "looked at after the gate"
    gate = json.loads((lab.dir / "x2/heat0/gate.json").read_text())
    assert gate["stopped"] is None and [o["cause"] for o in gate["owes"].values()] == ["partner"]
    assert words in " ".join(call(lab, "burnin", "explain", "dgx02", str(lab.dir)).split())
    assert words in call(lab, "burnin", "status", str(lab.dir))
    assert words in (lab.dir / "report.html").read_text().replace("&#39;", "'")

    before = started(lab)
    (tmp_path / "kernel-dgx02").write_text("5.15.0-1042\n")
    assert "dgx02 shows the frozen stack again" in lab.snakemake().stderr
    assert set(lab.statuses().values()) == {"accepted"}
    after = started(lab)
    assert before.items() <= after.items() and {r.split("/")[0] for r in set(after) - set(before)} == {
        "x2",
        "halves",
        "full",
    }
