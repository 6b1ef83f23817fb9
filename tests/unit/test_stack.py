# SPDX-License-Identifier: Apache-2.0
"""The frozen stack: what changes in mid-campaign is named and nobody's fault; what is not known is no change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from burnin import storage
from burnin.cli import cli
from burnin.preflight import changes
from burnin.runs import preflight, stack
from burnin.runs.stack import Frozen
from click.testing import CliRunner

from tests.unit.test_runs import HPL, World


def test_only_what_both_show_and_differs_is_a_change() -> None:
    before = {
        "driver": "550",
        "cuda": "12.4",
        "gpu vbios": "96.00, 97.00",
        "bmc": "Device ID : 32\nFirmware : 1.2\nIPMI : 2.0",
    }
    assert changes(before, {"driver": "550"}) == [], "what was not read is unknown"
    assert changes({}, before) == []
    assert changes(before, {**before, "gpu vbios": "96.00"}) == [], "a GPU that is gone took its own with it"
    assert changes(before, {**before, "driver": "560", "gpu vbios": "98.00"}) == [
        ("driver", "550", "560"),
        ("gpu vbios", "96.00, 97.00", "98.00"),
    ]
    new = {**before, "bmc": "Device ID : 32\nFirmware : 1.3\nIPMI : 2.0"}
    assert changes(before, new) == [("bmc", "Firmware : 1.2", "Firmware : 1.3")]
    assert changes({"a": "x"}, {"a": "x\ny"}) == [("a", "(no such line)", "y")]


def frozen(world: World) -> Frozen:
    return Frozen(world.campaign.config, ["n1"])


def test_a_part_is_frozen_when_it_is_first_seen_until_a_repair_a_look_or_the_operators_word(tmp_path: Path) -> None:
    world = World(tmp_path)
    config = world.campaign.config
    assert frozen(world).compare("n1", {"driver": "550"}) == []
    assert frozen(world).compare("n1", {"driver": "560", "kernel": "6.1"}) == [("driver", "550", "560")]
    assert frozen(world).compare("n1", {"kernel": "6.2"}) == [("kernel", "6.1", "6.2")]
    assert frozen(world).unknown("n1", {"kernel": "6.1"}) == ["driver"]
    assert Frozen(config, ["n2"]).compare("n2", {"driver": "535"}) == [], "each node is compared with itself"
    records = config.campaign_dir / "repairs.jsonl"
    records.write_text(json.dumps({"kind": "returned", "node": "n1"}) + "\n")
    assert frozen(world).compare("n1", {"driver": "560"}) == [("driver", "550", "560")], "it was away, not repaired"
    with records.open("a") as file:
        file.write(json.dumps({"node": "n1"}) + "\n")
    assert frozen(world).compare("n1", {"driver": "570"}) == [], "a repair may bring another part"
    assert frozen(world).compare("n1", {"driver": "550"}) == [("driver", "570", "550")]
    document = {"containers": [], "nodes": {"n1": {"stack": {"driver": "580"}}}}
    stack.freeze(config, document, {})
    assert frozen(world).compare("n1", {"driver": "580"}) == []
    with stack.path_of(config).open("a") as record:
        record.write('{"node": "n1", "rep')  # torn by a kill: never written
    done = CliRunner().invoke(cli, ["freeze", str(config.campaign_dir), "--why", "driver 590 as planned"])
    assert done.exit_code == 0, done.output
    assert frozen(world).compare("n1", {"driver": "590"}) == []
    assert CliRunner().invoke(cli, ["freeze", str(config.campaign_dir), "--why", " "]).exit_code != 0


def site(folder: Path, **changes: Any) -> World:
    """Return a campaign whose preflight asks for a text of the site."""
    (folder / "site.txt").write_text("image 7\nofed 24.01\n")
    section = {
        "run": True, "on_finding": "warn", "timeout_seconds": 60, "room_gib": 0, "files": [], "containers": [], "dry_runs": {},
        "fabric": None, "extra_cas": None, "commands": {"site": f"cat {folder / 'site.txt'}"},
    }  # fmt: skip
    return World(folder, preflight=section, **changes)


def again(world: World) -> dict[str, Any]:
    """Run the run once more."""
    world.campaign.note_reruns([world.result])
    world.result.unlink()
    return world.run()


def gate(world: World) -> dict[str, Any]:
    decided: dict[str, Any] = world.campaign.make_gate("single", 0, "test")
    world.campaign.write_gate(decided)
    return decided


def test_a_change_in_mid_campaign_stops_it_names_what_changed_and_convicts_nobody(tmp_path: Path) -> None:
    world = site(tmp_path)
    first = world.run()
    assert first["state"] == "complete" and first["probes"]["before"]["n1"]["stack"]["unknown"] == []
    (tmp_path / "site.txt").unlink()
    unread = again(world)
    assert unread["state"] == "complete" and gate(world)["outcome"] == {"n1": "passed"}, "not known is not changed"
    assert unread["probes"]["before"]["n1"]["stack"]["unknown"] == ["site"]
    (tmp_path / "site.txt").write_text("image 7\nofed 24.10\n")
    found = again(world)
    assert found["state"] == "stopped" and found["iterations"] == []
    decided = gate(world)
    assert decided["outcome"] == {"n1": "owes"} and decided["stopped"]["kind"] == "stack"
    (finding,) = decided["findings"]
    assert (finding["node"], finding["fault"], finding["part"], finding["scope"]) == ("n1", "stack", "stack", "config")
    assert all(w in finding["reason"] for w in ("n1", "site", "'ofed 24.01'", "'ofed 24.10'"))
    path, line = finding["evidence"][0].rsplit(":", 1)
    assert "stack:site" in (world.campaign.dir / path).read_text().splitlines()[int(line) - 1]
    stack.freeze_anew(world.campaign.config, "ofed as planned", "test")
    assert again(world)["state"] == "complete"


def test_another_nccl_and_another_image_are_changes_of_the_stack(tmp_path: Path) -> None:
    world = World(tmp_path)
    output = tmp_path / "hpl.txt"
    output.write_text("NCCL version 2.21.5+cuda12.4\n" + HPL)
    assert world.run()["state"] == "complete"
    output.write_text(HPL)
    assert again(world)["state"] == "complete", "an output that names none says nothing"
    output.write_text("one\nNCCL version 2.19.3+cuda12.4\n" + HPL)
    found = again(world)
    assert len(found["iterations"]) == 1 and "2.21.5" in found["reason"]
    decided = gate(world)
    assert decided["stopped"]["kind"] == "stack" and decided["findings"][0]["evidence"][0].endswith("out-00000.log:2")
    assert stack.images([["srun", "--container-image=a:1", "x"], ["srun", "--container-image", "b:2"]]) == [
        "a:1",
        "b:2",
    ]


def test_a_container_that_was_replaced_is_a_change_and_a_touched_one_is_none(tmp_path: Path) -> None:
    image = tmp_path / "images" / "x.sqsh"
    image.parent.mkdir()
    image.write_bytes(b"hsqs one")
    world = site(tmp_path)
    world.campaign.config.document["preflight"]["containers"] = [{"image": "docker://x:1", "file": str(image)}]
    config = world.campaign.config
    document = {"containers": [preflight._stage({"image": "docker://x:1", "file": str(image)}, 10, {})], "nodes": {}}
    stack.freeze(config, document, {str(image): preflight.stamp_of(image)})
    assert world.run()["state"] == "complete"
    image.write_bytes(b"hsqs one")
    assert again(world)["state"] == "complete"
    image.write_bytes(b"hsqs two")
    found = again(world)
    assert found["state"] == "stopped" and str(image) in found["reason"]
    (finding,) = gate(world)["findings"]
    path, line = finding["evidence"][0].rsplit(":", 1)
    assert str(image) in (world.campaign.dir / path).read_text().splitlines()[int(line) - 1]
    assert finding["fault"] == "stack" and finding["scope"] == "config"


@pytest.mark.parametrize("share", [1, 3])
def test_it_stays_nobodys_however_few_show_it(share: int) -> None:
    from burnin.judging.heat import judge_heat
    from burnin.ladder import Group, Heat

    from tests.world import context, plan_of, result

    names = ["n1", "n2", "n3", "n4"]
    plan = plan_of(Heat("single", 0, tuple(Group((n,), (n,), ("nccl",)) for n in names)))
    signals = {
        n: [
            {
                **stack.changed([("driver", "550", "560")], {"driver": 7}, n)[0],
                "file": f"a/{n}.txt",
                "node": n,
                "when": "before",
            }
        ]
        for n in names[:share]
    }
    found = {("nccl", n): result("single", 0, "nccl", n, [n], signals=signals.get(n, [])) for n in names}
    decided = judge_heat(plan, found, context())
    assert set(decided["outcome"].values()) == {"owes", "passed"} and decided["stopped"]["kind"] == "stack"
    assert {f["node"] for f in decided["findings"]} == set(names[:share])
    storage.check({**decided, "drained": {}}, "gate", "gate")
