# SPDX-License-Identifier: Apache-2.0
"""What is packed for a failed node, and what a dead one is said to lack. A bundle never fails a gate."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config as configuration
from burnin import storage
from burnin.campaign import Campaign
from burnin.runs import evidence

ROOT = Path(__file__).resolve().parents[2]


class World:
    """A campaign of dgx01 on the lab whose single run is over."""

    def __init__(self, folder: Path, faults: list[dict[str, Any]], **changes: Any) -> None:
        scenario = folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump({"nodes": "dgx[01-02]", "gpus_per_node": 8, "faults": faults}))
        raw = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
        raw |= {
            "results": str(folder / "results"), "campaign": "t", "scenario": str(scenario), "path_first": ["lab/slurm"],
            "nodes": "dgx01", "workloads": ["nccl"], "resume_test": {"workload": None, "steps_after_checkpoint": 5},
        }  # fmt: skip
        raw["windows"]["nccl"] = {"default": {"iterations": 1}}
        raw["evidence"] |= changes
        self.campaign = Campaign(configuration.load(raw, ROOT))
        self.campaign.begin()
        self.campaign.make_plan("single", 0, "test")
        result = self.campaign.result_path("single", 0, "nccl", "dgx01")
        self.environment = self.campaign.config.environment(os.environ)
        subprocess.run(
            [sys.executable, "-m", "burnin", "run", str(result)], check=True, env=self.environment, timeout=100
        )
        self.gate = self.campaign.make_gate("single", 0, "test")
        self.campaign.write_gate(self.gate)
        self.path = evidence.bundle_path(self.campaign.config, "dgx01", "single", 0)

    def gather(self) -> str:
        return evidence.gather(self.campaign.config, self.gate, self.environment)["dgx01"]

    def bundle(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the manifest, checked against schema and contents, and the files."""
        with tarfile.open(self.path) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
        manifest: dict[str, Any] = json.loads(files.pop("manifest.json"))
        storage.check(manifest, "evidence", self.path)
        assert {f["name"]: f["sha256"] for f in manifest["files"]} == {
            name: hashlib.sha256(data).hexdigest() for name, data in files.items()
        }
        assert [p.name for p in self.path.parent.iterdir()] == [self.path.name], "nothing is left beside it"
        return manifest, files


FAN = {"kind": "fan_failed", "node": "dgx01", "part": "FAN6"}


def test_a_failed_node_is_packed_with_its_runs_and_a_last_look(tmp_path: Path) -> None:
    head = {"sel": "env SLURMD_NODENAME={node} ipmitool sel elist", "pdu": "sh -c 'echo no such outlet; exit 3'"}
    report = {"bug-report": "nvidia-bug-report.sh --output-file {folder}/nvidia-bug-report.log"}
    commands = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())["evidence"]["commands"]
    world = World(tmp_path, [FAN], head_commands=head, commands=commands | report)
    said = world.gather()
    manifest, files = world.bundle()
    run = "runs/single/heat0/nccl/dgx01"
    assert {
        "live/dgx01.txt", "live/head-sel.txt", "live/nvidia-bug-report.log.gz", "runs/single/heat0/plan.json",
        "runs/single/heat0/gate.json", f"{run}/result.json", f"{run}/attempt0/journal.jsonl",
        f"{run}/attempt0/probe-before/dgx01.txt", f"{run}/attempt0/probe-after/dgx01.txt",
    } <= set(files)  # fmt: skip
    live = files["live/dgx01.txt"].decode()
    for words in (
        "begin dmesg",
        "begin dcgmi-health",
        "begin nvidia-smi",
        "mlxlink -d mlx5_7 -c",
        "ipmitool sel elist",
    ):
        assert words in live
    assert b"Fan FAN6" in files["live/head-sel.txt"], "the BMC's event log, asked from the head"
    assert {f["part"] for f in manifest["findings"]} >= {"FAN6"} and str(world.path) in said
    assert {m["what"] for m in manifest["missing"]} <= {"nccl/dgx01 output", "head-pdu"}
    assert {"what": "head-pdu", "why": "sh ended with status 3"} in manifest["missing"] and "live/head-pdu.txt" in files
    before = world.path.read_bytes()
    assert world.gather().endswith("(kept)") and world.path.read_bytes() == before


def test_a_crashed_node_is_packed_and_what_is_missing_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, [{"kind": "node_crash", "node": "dgx01"}])
    assert "things missing" in world.gather()
    manifest, files = world.bundle()
    run = "runs/single/heat0/nccl/dgx01/attempt0"
    assert {f"{run}/out-00000.log", f"{run}/probe-before/dgx01.txt"} <= set(files) and "live/dgx01.txt" not in files
    why = {m["what"]: m["why"] for m in manifest["missing"]}
    live = {"dmesg", "dcgmi-health", "nvidia-smi", "ipmi", *(f"mlxlink:mlx5_{i}" for i in range(8))}
    assert set(why) == live | {"nccl/dgx01 probe-after"}
    assert all("Connection timed out" in why[key] for key in live)


def test_what_a_half_dead_node_gave_is_kept_within_the_time(tmp_path: Path) -> None:
    commands = {"dmesg": "dmesg -T", "slow": "sh -c 'echo half; sleep 30'", "stuck": "sleep 60", "never": "uptime"}
    world = World(tmp_path, [FAN], timeout_seconds=1, total_seconds=9, commands=commands)
    world.campaign.config.document["evidence"]["timeout_seconds"] = 1
    start = time.monotonic()
    world.gather()
    assert time.monotonic() - start < 20
    manifest, files = world.bundle()
    why = {m["what"]: m["why"] for m in manifest["missing"]}
    assert "dmesg" not in why and why["slow"] == "not done within 1 s, what came is kept"
    (live,) = (data.decode() for name, data in files.items() if name.startswith("live/") and "dgx01" in name)
    assert "Linux version" in live and "half" in live


def test_a_limit_keeps_what_is_quoted_and_names_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path, [FAN], most_mib=0.16)
    world.gather()
    manifest, files = world.bundle()
    quoted = world.gate["findings"][0]["evidence"][0].rsplit(":", 1)[0]
    assert f"runs/{quoted}" in files
    left = [m for m in manifest["missing"] if "exceed the bundle's limit" in m["why"]]
    assert left and all(Path(m["why"].split("it is at ")[1]).exists() for m in left)


def test_trouble_is_told_and_never_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, [FAN], launch="no-such-launcher -w {node}")
    world.gather()
    assert all("could not be started" in m["why"] for m in world.bundle()[0]["missing"] if "/" not in m["what"])
    world.path.unlink()
    monkeypatch.setattr(evidence, "_pack", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    assert "could not be packed: disk full" in world.gather()
    world.campaign.config.document["evidence"] = None  # type: ignore[index]
    assert evidence.gather(world.campaign.config, world.gate, {}) == {}
