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


def changes_of(node: str, *parts: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return the signals of a node that shows another stack in the probe before a run."""
    found = stack.changed(parts or [("driver", "550", "560")], {p[0]: 7 + n for n, p in enumerate(parts)}, node)
    return [{**s, "file": f"a/{node}.txt", "node": node, "when": "before"} for s in found]


def judged(
    groups: list[tuple[str, ...]], changed: dict[str, dict[str, Any]], step: str = "x2", roster: int = 0, **more: Any
) -> dict[str, Any]:
    """Judge a heat of nccl runs; `changed`: first node of a group -> what is other than usual in its result."""
    from burnin.judging.heat import judge_heat
    from burnin.ladder import Group, Heat

    from tests.world import context, plan_of, result

    plan = plan_of(Heat(step, 0, tuple(Group(g, g, ("nccl",)) for g in groups)))
    plan["roster"] = [f"n{i}" for i in range(roster)] or [n for g in groups for n in g]
    found = {
        ("nccl", name): result(step, 0, "nccl", name, g["nodes"], **changed.get(g["nodes"][0], {}))
        for name, g in plan["groups"].items()
    }
    decided = judge_heat(plan, found, context(**more))
    storage.check({**decided, "drained": {}}, "gate", "gate")
    return decided


PAIRS = [("n0", "n1"), ("n2", "n3"), ("n4", "n5"), ("n6", "n7")]
STOPPED = {"state": "stopped", "reason": "broken before the run: stack_changed on n1: ...", "iterations": []}


def test_a_node_with_another_stack_is_out_without_blame_and_its_partner_owes() -> None:
    parts = [(p, "old", "new") for p in ("bmc", "driver", "kernel", "ofed")]
    decided = judged(PAIRS, {"n0": {**STOPPED, "signals": changes_of("n1", *parts)}})
    assert decided["outcome"] == {
        "n0": "owes", "n1": "withdrawn", **dict.fromkeys(["n2", "n3", "n4", "n5", "n6", "n7"], "passed")
    }  # fmt: skip
    assert decided["stopped"] is None and decided["suspects"] == []
    why = decided["withdrawn"]["n1"]
    assert "bmc is 'new', was 'old' (x2/heat0/nccl/n0x2-" in why and "/a/n1.txt:7)" in why and "and 1 more parts" in why
    assert decided["owes"]["n0"]["cause"] == "partner" and "n1 in x2/heat0/nccl" in decided["owes"]["n0"]["text"]
    (finding,) = decided["findings"]
    assert (finding["scope"], finding["node"], finding["fault"], finding["part"]) == ("nobody", "n1", "stack", "stack")
    assert len(finding["evidence"]) == 4 and "freeze" in finding["next_action"]


def test_a_run_on_another_stack_passes_and_convicts_nobody_although_it_went_on() -> None:
    """With watch: observe it runs to its end; what it was worth says nothing of the node as it was frozen."""
    from tests.world import iteration

    singles = [(f"n{i}",) for i in range(6)]
    slow = {"iterations": [iteration(n, "nccl", 200.0) for n in (0, 1)], "signals": changes_of("n0")}
    decided = judged(singles, {"n0": slow}, "single")
    assert decided["outcome"] == {"n0": "withdrawn", **dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], "passed")}
    assert judged(singles, {"n0": {**slow, "signals": []}}, "single")["outcome"]["n0"] == "failed"
    decided = judged(PAIRS, {"n0": {"signals": changes_of("n1")}})
    assert decided["outcome"]["n0"] == "owes" and "n0" not in decided["passed"] and "n1" not in decided["passed"]
    lost = {
        "kind": "gpu_lost",
        "line": 9,
        "text": "GPU is lost",
        "gpu": 5,
        "file": "a/n1.txt",
        "node": "n1",
        "when": "after",
    }
    broken = judged(PAIRS, {"n0": {"signals": [*changes_of("n1"), lost]}})
    assert broken["outcome"]["n1"] == "failed", "a part that is named is broken on any stack"


@pytest.mark.parametrize(
    ("changed", "roster", "outcome"),
    [
        (["n0"], 4, "withdrawn"),
        (["n0", "n1"], 4, "withdrawn"),
        (["n0", "n1", "n2"], 4, "owes"),
        (["n0", "n1", "n2"], 8, "withdrawn"),
        (["n0"], 1, "owes"),
        (["n0"], 2, "withdrawn"),
    ],
)
def test_what_most_of_the_roster_shows_was_done_to_the_cluster(changed: list[str], roster: int, outcome: str) -> None:
    singles = [(f"n{i}",) for i in range(min(4, roster))]
    decided = judged(singles, {n: {**STOPPED, "signals": changes_of(n)} for n in changed}, "single", roster)
    assert {decided["outcome"][n] for n in changed} == {outcome}
    assert {decided["outcome"][n] for (n,) in singles if n not in changed} <= {"passed"}
    if outcome == "withdrawn":
        assert decided["stopped"] is None and decided["owes"] == {}
    else:
        assert decided["stopped"]["kind"] == "stack" and decided["withdrawn"] == {}
        assert f"so it is on {len(changed)} of {roster} nodes" in decided["stopped"]["text"]
    assert {f["node"] for f in decided["findings"]} == set(changed)


def test_what_no_node_shows_is_everybodys_however_few_runs_say_it() -> None:
    nccl = stack.changed([("nccl of nccl all_reduce", "2.21", "2.19")], {}, "the output")[0] | {
        "file": "a/out-00000.log"
    }
    decided = judged(PAIRS, {"n0": {**STOPPED, "signals": [nccl, *changes_of("n1")]}})
    assert decided["stopped"]["kind"] == "stack" and "2.19" in decided["stopped"]["text"]
    assert decided["outcome"]["n0"] == "owes" and decided["outcome"]["n1"] == "withdrawn"
    assert {decided["outcome"][n] for p in PAIRS[1:] for n in p} == {"passed"}


def test_it_comes_back_with_what_it_passed_and_is_told_of() -> None:
    from burnin.judging import story
    from burnin.ladder import LadderConfig, next_heat, replay, steps

    from tests.unit.test_repairs import summary

    config = LadderConfig(tuple(f"n{i:03d}" for i in range(4)), {s.name: ("nccl",) for s in steps(4)})
    singles = [(n,) for n in config.nodes]
    first = judged(singles, {}, "single")
    second = judged(
        [config.nodes[:2], config.nodes[2:]],
        {"n000": {**STOPPED, "signals": changes_of("n001", ("kernel", "5.15", "6.1"))}},
    )
    events: list[Any] = [first, second]
    heat = next_heat(config, events)
    assert heat is not None and (heat.step, heat.heat) == ("x2", 1) and heat.groups[0].owed == ("n000",)
    assert "n001" not in heat.groups[0].nodes
    found = summary([{**e, "drained": {}} for e in events], 4)
    entry = found["nodes"]["n001"]
    assert (entry["status"], entry["fault"], entry["part"], entry["failed_step"]) == (
        "withdrawn",
        "stack",
        "stack",
        "x2",
    )
    assert "kernel is '6.1', was '5.15'" in entry["reason"] and entry["evidence"][0].endswith("a/n001.txt:7")
    told = " ".join(story.tell("n001", found, events, story.Sources()).split())
    assert "kernel is '6.1', was '5.15' (x2/heat0/nccl/" in told and "burnin freeze --why" in told
    assert replay(config, events).away["n001"][0]["cause"] == "stack"
    events.append({"returned": {"kind": "returned", "node": "n001", "state": "IDLE", "time": 1.0}})
    heat = next_heat(config, events)
    assert heat is not None and heat.step == "x2" and set(heat.groups[0].owed) == {"n000", "n001"}
