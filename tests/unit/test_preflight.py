# SPDX-License-Identifier: Apache-2.0
"""The look before the first run: what differs between nodes is named, what cannot work stops with a cure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config as configuration
from burnin import parsers, storage
from burnin.campaign import Campaign
from burnin.errors import CampaignError
from burnin.preflight import common_stack, judge, judge_fabric, node_record
from burnin.runs import preflight

ROOT = Path(__file__).resolve().parents[2]


def node(**stack: str) -> dict[str, Any]:
    """Return the record of a healthy node with a stack."""
    return {
        "file": "look/n.txt", "stack": stack, "lines": dict.fromkeys(stack, 6) | {"gpus": 6, "hca mlx5_0": 9}, "gpus": 8,
        "serials": {}, "hcas": {"mlx5_0": "Active/LinkUp"}, "clock_offset": 0.0, "problems": [],
    }  # fmt: skip


def test_the_node_that_differs_is_named_with_its_evidence() -> None:
    nodes = {f"n{i}": node(driver="550", kernel="5.15") for i in range(4)} | {"odd": node(driver="535", kernel="5.15")}
    common = common_stack(nodes)
    assert common == {"driver": "550", "kernel": "5.15"}
    (found,) = judge(nodes, common, 8)
    assert (found["node"], found["part"], found["evidence"]) == ("odd", "stack", ["look/n.txt:6"])
    assert found["reason"] == "driver is 535, on the other nodes 550"


def test_without_a_majority_nobody_is_blamed() -> None:
    nodes = {"a": node(driver="550"), "b": node(driver="535")}
    (found,) = judge(nodes, common_stack(nodes), 8)
    assert found["node"] is None and "do not agree on driver" in found["reason"]


def test_gpus_ports_clocks_and_what_was_not_read() -> None:
    bad = node(driver="550") | {"gpus": 7, "hcas": {"mlx5_0": "Polling/Disabled"}, "clock_offset": -3600.0}
    bad |= {"problems": ["bmc: exit status 127"]}
    nodes = {"a": node(driver="550"), "b": node(driver="550"), "bad": bad}
    said = [(f["node"], f["part"], f["reason"]) for f in judge(nodes, common_stack(nodes), 8)]
    assert said == [
        ("bad", "node", "7 GPUs, expected 8"),
        ("bad", "mlx5_0", "the port is Polling/Disabled"),
        ("bad", "node", "the clock is off by -3600 s"),
        ("bad", "node", "not read: bmc: exit status 127"),
    ]


def test_a_clock_is_off_only_outside_of_the_look() -> None:
    def offset(time: int) -> float:
        reading = parsers.read_lines("probe", [f"#@burnin node n1 time {time} up 5.0", "#@burnin finished"])
        return float(node_record(reading, [], "f", {}, (1000.5, 1002.0))["clock_offset"])

    assert (offset(1000), offset(1001), offset(1002)) == (0.0, 0.0, 0.0)
    assert (offset(990), offset(1012)) == (-9.5, 10.0)


def test_the_fabric_has_as_many_cas_as_expected() -> None:
    text = (ROOT / "tests" / "data" / "ibdiagnet").glob("*")
    reading = next(r for p in sorted(text) if (r := parsers.read_file("ibdiagnet", p)).data.get("cas"))
    cas = reading.data["cas"]
    reading.data["counters_cleared"] = True
    assert judge_fabric(reading, cas - 1, None, "f") == [] and judge_fabric(reading, cas - 1, 1, "f") == []
    (found,) = judge_fabric(reading, cas + 2, None, "f")
    assert found["reason"] == f"{cas} CAs discovered, expected at least {cas + 2}"
    assert len(judge_fabric(reading, cas - 1, 0, "f")) == 1


class World:
    """A campaign on the lab whose preflight is to be run."""

    def __init__(self, folder: Path, scenario: str = "healthy", **changes: Any) -> None:
        raw = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
        raw |= {"results": str(folder / "results"), "campaign": "t", "scenario": scenario, "path_first": ["lab/slurm"]}
        raw["preflight"] |= changes
        self.campaign = Campaign(configuration.load(raw, ROOT))
        self.campaign.begin()
        self.target = self.campaign.dir / "preflight" / "preflight.json"

    def run(self) -> dict[str, Any]:
        return preflight.run(self.target)


def test_a_node_with_another_driver_is_a_finding(tmp_path: Path) -> None:
    world = World(tmp_path, "driver_mismatch")
    document = world.run()
    assert storage.read_json(world.target, "preflight") == document
    said = {(f["node"], f["part"]) for f in document["findings"]}
    assert said == {("dgx05", "stack")} and "driver is 535" in document["findings"][0]["reason"]
    place, line = document["findings"][0]["evidence"][0].rsplit(":", 1)
    assert "nvidia-smi" in (world.campaign.dir / place).read_text().splitlines()[int(line) - 1]
    assert {"driver", "cuda", "gpu vbios", "mlx5_7 firmware", "kernel", "ofed", "bmc"} <= set(document["stack"])
    assert all(len(set(n["serials"].values())) == 8 for n in document["nodes"].values())
    assert document["fabric"]["cas"] == 65 and document["fabric"]["counters_cleared"]
    assert world.campaign.write_summary()["preflight"]["findings"] == document["findings"]
    world = World(tmp_path / "stop", "driver_mismatch", on_finding="stop")
    with pytest.raises(CampaignError, match="dgx05 stack: driver is 535"):
        world.run()
    assert not world.target.exists()


def test_a_missing_gpu_and_a_node_out_of_service_are_findings(tmp_path: Path) -> None:
    world = World(tmp_path, "missing_gpu", fabric=None)
    environment = world.campaign.config.environment(os.environ)
    drain = ["scontrol", "update", "nodename=dgx08", "state=drain", "reason=somebody"]
    subprocess.run(drain, env=environment, check=True)
    document = world.run()
    said = {(f["node"], f["reason"]) for f in document["findings"]}
    assert ("dgx08", "not looked at: Slurm says DRAIN") in said and "dgx08" not in document["nodes"]
    assert any("7 GPUs, expected 8" in reason for _, reason in said)


def test_a_container_is_imported_once_and_its_checksum_kept(tmp_path: Path) -> None:
    image = {"image": "docker://nvidia/nemo:25.07", "file": str(tmp_path / "images" / "nemo.sqsh")}
    world = World(tmp_path, containers=[image], fabric=None, commands={"kernel": "uname -r"})
    code = f"from pathlib import Path; from burnin.runs import preflight; preflight.run(Path({str(world.target)!r}))"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [p.wait(120) for p in others] == [0, 0]
    (again,) = world.run()["containers"]
    assert not again["staged"] and len(again["sha256"]) == 64
    staged = [d["containers"][0]["staged"] for d in _versions(world)]
    assert staged.count(True) <= 1
    Path(image["file"]).write_bytes(b"hsqs another")
    assert world.run()["containers"][0]["sha256"] != again["sha256"]


def _versions(world: World) -> list[dict[str, Any]]:
    """Return all that the preflight ever wrote."""
    return [storage.read_json(p, "preflight") for p in sorted((world.target.parent / "history").glob("*.json"))]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"containers": [{"image": "nonsense", "file": "{tmp}/x.sqsh"}]}, "Invalid image reference"),
        ({"room_gib": 1e9}, "GiB left"),
        ({"files": [{"path": "{tmp}/none.json", "contains": None}]}, "cannot be read"),
        ({"files": [{"path": str(ROOT / "LICENSE"), "contains": '"1.1"'}]}, "another version"),
    ],
)
def test_what_makes_the_campaign_impossible_stops_with_a_cure(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    world = World(tmp_path, **yaml.safe_load(yaml.safe_dump(changes).replace("{tmp}", str(tmp_path))))
    with pytest.raises(CampaignError, match=words) as caught:
        world.run()
    assert caught.value.cure and not world.target.exists() and not list(tmp_path.glob("*.part*"))


def test_a_launch_that_does_not_come_is_told_and_nobody_is_blamed_for_a_stack(tmp_path: Path) -> None:
    world = World(tmp_path, fabric=None)
    world.campaign.config.document["probes"]["launch"] = "no-such-launcher"
    world.campaign.begin()
    document = world.run()
    assert {f["part"] for f in document["findings"]} == {"node"} and document["stack"] == {}
    assert "could not be started" in document["findings"][0]["reason"]


DRY_RUN = (
    "srun -N 1 -n 1 -w {node} nemo llm pretrain --factory llama3_8b --dryrun trainer.max_steps={max_steps} "
    "trainer.num_nodes={nodes} log.ckpt.every_n_train_steps={checkpoint_every}"
)


def test_a_dry_run_is_kept_and_one_that_refuses_is_a_finding(tmp_path: Path) -> None:
    line = DRY_RUN + " data.global_batch_size={global_batch_size}"
    world = World(tmp_path, fabric=None, commands={"kernel": "uname -r"}, dry_runs={"nemo": line})
    document = world.run()
    text = (world.campaign.dir / document["dry_runs"]["nemo"]).read_text()
    assert document["findings"] == [] and "128" in text
    (tmp_path / "wrong").mkdir()
    wrong = World(tmp_path / "wrong", fabric=None, commands={"kernel": "uname -r"}, dry_runs={"nemo": line + " a.b=1"})
    (found,) = wrong.run()["findings"]
    assert found["part"] == "config" and "dry run of nemo" in found["reason"]


def test_a_recipe_that_resolves_to_other_numbers_is_refused_and_both_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, fabric=None, commands={"kernel": "uname -r"}, dry_runs={"nemo": DRY_RUN})
    with pytest.raises(CampaignError) as caught:
        world.run()
    for word in ("training.global_batch_size' is 128", "expected 512", "for 8 nodes", "dryrun-nemo.log"):
        assert word in str(caught.value), word
    assert not world.target.exists()


def test_files_of_a_workload_are_looked_at_only_where_it_runs(tmp_path: Path) -> None:
    world = World(tmp_path, fabric=None, commands={"kernel": "uname -r"}, run=True)
    assert world.run()["files"] == [], "squad is defined and does not run"
    (tmp_path / "other").mkdir()
    world = World(tmp_path / "other", fabric=None, commands={"kernel": "uname -r"})
    document = world.campaign.config.document
    document["workloads"].append("squad")  # type: ignore[attr-defined]
    document["windows"]["squad"] = {"default": {"iterations": 1}}  # type: ignore[index]
    world.campaign.begin()
    with pytest.raises(CampaignError, match=r"/data/squad/v1.1/train-v1.1.json cannot be read"):
        world.run()
    dev = tmp_path / "dev-v2.0.json"
    dev.write_text('{"version": "v2.0", "data": []}')
    document["workload_definitions"]["squad"]["files"] = [{"path": str(dev), "contains": '"1.1"'}]
    world.campaign.begin()
    with pytest.raises(CampaignError, match="another version"):
        world.run()
