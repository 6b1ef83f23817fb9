# SPDX-License-Identifier: Apache-2.0
"""Repairs of nodes and links, nodes that were away, serial numbers: who is let in again, and what is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config as configuration
from burnin import repairs, storage
from burnin.config import Config
from burnin.errors import CampaignError, EvidenceError
from burnin.judging.summary import summarise
from burnin.ladder import heat_of_standing, next_heat, replay
from burnin.simulate import hang
from burnin.topology import Place, Topology

from tests.world import Campaign, Runner, result

ROOT = Path(__file__).resolve().parents[2]
LINK = ("n000", "n001")


def config(count: int, **changes: Any) -> Config:
    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text()) | {
        "nodes": f"n[000-{count - 1:03d}]", "workloads": ["nccl"], "resume_test": {"workload": None, "steps_after_checkpoint": 5},
    }  # fmt: skip
    return configuration.load(document | changes, ROOT)


def to_end(run: Runner, count: int, events: Sequence[Mapping[str, Any]] = (), **changes: Any) -> list[dict[str, Any]]:
    """Go on with a campaign after `events` until it ends; return all events."""
    campaign = Campaign(config(count, **changes).ladder, run)
    campaign.gates = [dict(e) for e in events]
    campaign.to_end()
    assert campaign.stopped is None
    return campaign.gates


def summary(events: Sequence[Mapping[str, Any]], count: int, **changes: Any) -> dict[str, Any]:
    conf = config(count, **changes)
    standing = replay(conf.ladder, events)
    found = summarise(conf, events, standing, heat_of_standing(conf.ladder, standing) is None)
    storage.check(found, "summary", "summary")
    return found


def bad_link(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
    found = result(step, heat, workload, group, nodes)
    return hang(found) if set(LINK) <= set(nodes) else found


def bad_port(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
    """A cable of n002 that goes down in groups."""
    found = result(step, heat, workload, group, nodes)
    if "n002" in nodes and len(nodes) > 1:
        place = {"line": 9, "file": "attempt0/probe-after/n002.txt", "node": "n002", "when": "after"}
        signal = {"kind": "link_down_count", "text": "Link Down Counter : 2", "value": 2.0, "device": "mlx5_3", **place}
        found["signals"].append(signal)
    return found


def healthy(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
    return result(step, heat, workload, group, nodes)


def link_record(link: str, nodes: Sequence[str], time: float = 7.0) -> dict[str, Any]:
    return {
        "kind": "link", "part": link, "nodes": list(nodes), "fix": "cable replaced", "serial": None, "by": "op", "host": "h",
        "time": time, "fault": "fabric_slow",
    }  # fmt: skip


def node_record(node: str, part: str, fix: str = "reseated", **changes: Any) -> dict[str, Any]:
    base = {"node": node, "part": part, "fix": fix, "serial": None, "by": "op", "host": "h", "time": 7.0, "fault": None}
    return {**base, **changes}


# --------------------------------------------------------------------------------------------------------------- links


def test_a_repaired_link_lets_both_ends_in_again_and_they_run_everything() -> None:
    before = to_end(bad_link, 6)
    found = summary(before, 6)
    (link,) = found["links"]
    assert link["between"] == [["n000"], ["n001"]] and link["waits"] == ["n000", "n001"]
    assert found["verdict"] == "rejected"
    for text in ("n000/mlx5_3", "n000/mlx5_3,n001/mlx5_3", "n001", "leaf9/17,n000/mlx5_3"):
        assert repairs.touched(text, found, None) == (["n000", "n001"], "fabric_slow"), text
    record = link_record("n000/mlx5_3,n001/mlx5_3", ["n000", "n001"])
    storage.check(record, "repair", "r")
    assert repairs.check(record, found, before) == []
    events = [*before, {"repair": record}]
    heat = next_heat(config(6).ladder, events)
    assert heat is not None and heat.step == "retest", "proven alone first"
    assert [g.nodes for g in heat.groups] == [("n000",), ("n001",)]
    after = summary(to_end(healthy, 6, events), 6)
    assert after["verdict"] == "accepted", "the link was repaired: it does not stand against the campaign for ever"
    assert after["links"][0]["waits"] == [] and after["links"][0]["repairs"] == [record]
    assert {e["status"] for e in after["nodes"].values()} == {"accepted"}
    assert after["nodes"]["n000"]["repairs"] == [record]
    ran = [g for e in to_end(healthy, 6, events)[len(events) :] if e["step"] == "x2" for g in e["groups"].values()]
    assert any({"n000", "n001"} & set(g) for g in ran), "they catch up"


def test_a_link_that_is_found_again_after_its_repair_wants_new_parts() -> None:
    before = to_end(bad_link, 6)
    record = link_record("n000/mlx5_3,n001/mlx5_3", ["n000", "n001"])
    again = summary(to_end(bad_link, 6, [*before, {"repair": record}]), 6)
    assert again["verdict"] == "rejected" and len(again["links"]) == 2
    told = again["nodes"]["n000"]["next_action"]
    assert "do not reseat" in told and "cable replaced (n000/mlx5_3,n001/mlx5_3, " in told and "by op" in told


def test_a_node_that_failed_with_a_cable_comes_back_by_its_link() -> None:
    events = to_end(bad_port, 4)
    found = summary(events, 4)
    assert found["nodes"]["n002"]["status"] == "failed" and found["nodes"]["n002"]["part"] == "mlx5_3"
    assert repairs.touched("n002/mlx5_3", found, None) == (["n002"], found["nodes"]["n002"]["fault"])
    with pytest.raises(CampaignError, match="n002 failed with mlx5_3, not with mlx5_5"):
        repairs.touched("n002/mlx5_5", found, None)
    record = link_record("n002/mlx5_3", ["n002"])
    assert summary(to_end(healthy, 4, [*events, {"repair": record}]), 4)["verdict"] == "accepted"


def test_what_names_no_link_is_refused_and_a_switch_stands_for_its_nodes() -> None:
    found = summary(to_end(bad_link, 6), 6)
    for text, why in (("dgx99/p1", "no end that is known"), ("n004/mlx5_0", "nobody is out"), ("/3", "names no link")):
        with pytest.raises(CampaignError, match=why):
            repairs.touched(text, found, None)
    leaves = {f"n{i:03d}": Place(leaf=f"leaf{i % 2}", above=("spine",)) for i in range(6)}
    topology = Topology(tuple(leaves), leaves, "file")
    for text in ("leaf0/17", "spine/1", "leaf0/17,leaf1/3"):
        assert repairs.touched(text, found, topology)[0] == ["n000", "n001"], text
    with pytest.raises(CampaignError, match="n000 - n001"):
        repairs.touched("n004/mlx5_1,leaf7/2", found, topology)


# --------------------------------------------------------------------------------------------------------------- nodes


def test_the_part_is_held_against_the_finding() -> None:
    events = to_end(bad_port, 4)
    found = summary(events, 4)
    (doubt,) = repairs.check(node_record("n002", "gpu5"), found, events)
    assert "n002 failed with mlx5_3" in doubt and "gpu5 was repaired" in doubt
    for part in ("mlx5_3", "MLX5_3", "node"):
        assert repairs.check(node_record("n002", part), found, events) == []
    for record, why in (
        (node_record("n001", "gpu5"), "nothing to repair"),
        (node_record("n002", "mlx5_3", "  "), "proves nothing"),
        (node_record("x", "gpu5"), "no node of campaign"),
    ):
        with pytest.raises(CampaignError, match=why):
            repairs.check(record, found, events)


def test_the_same_fault_after_a_repair_escalates_with_its_history() -> None:
    events = to_end(bad_port, 4)
    first = summary(events, 4)["nodes"]["n002"]["next_action"]
    assert "do not reseat" not in first
    events = to_end(
        bad_port, 4, [*events, {"repair": node_record("n002", "mlx5_3", "cable reseated", time=86400.0 * 2)}]
    )
    told = summary(events, 4)["nodes"]["n002"]["next_action"]
    assert told.startswith("replace mlx5_3, do not reseat it") and "cable reseated (mlx5_3, 1970-01-0" in told
    events = to_end(bad_port, 4, [*events, {"repair": node_record("n002", "mlx5_3", "cable swapped")}])
    told = summary(events, 4)["nodes"]["n002"]["next_action"]
    assert "cable reseated" in told and "cable swapped" in told, "the whole history"
    other = to_end(healthy, 4, [*events, {"repair": node_record("n002", "mlx5_3", "new HCA")}])
    assert summary(other, 4)["nodes"]["n002"]["status"] == "accepted"


def test_a_campaign_may_be_accepted_without_the_missing_nodes_down_to_a_smallest_number() -> None:
    events = to_end(bad_port, 4)
    assert summary(events, 4)["verdict"] == "rejected"
    assert summary(events, 4, acceptance={"failed_nodes_allowed": 1})["verdict"] == "accepted"
    suspects = to_end(bad_link, 6)
    allowed = {"acceptance": {"failed_nodes_allowed": 4}}
    assert summary(suspects, 6, **allowed)["verdict"] == "rejected", "a link that nobody repaired is not accepted"
    for allowed_nodes, verdict in ((1, "rejected"), (2, "accepted")):
        gone = [*to_end(away(4, "n001", "n003"), 4)]
        assert summary(gone, 4, acceptance={"failed_nodes_allowed": allowed_nodes})["verdict"] == verdict


# ---------------------------------------------------------------------------------------------------------------- away


def away(heats: int, *nodes: str, step: str = "x2") -> Runner:
    """Somebody drains these nodes behind the single-node step: no job starts on them."""

    def run(at: str, heat: int, workload: str, group: str, members: Sequence[str]) -> dict[str, Any]:
        lost = [n for n in nodes if n in members] if at == step and heat < heats else []
        if not lost:
            return result(at, heat, workload, group, members)
        death = {
            "state": "NOT_STARTED",
            "lost": lost,
            "text": "the job cannot start: drained (alice: PSU)",
            "job_id": "1",
        }
        return result(at, heat, workload, group, members, state="casualty", casualty=death, iterations=[], probes={})

    return run


def test_who_was_drained_by_somebody_else_comes_back_with_what_it_passed() -> None:
    events = to_end(away(9, "n001"), 4)
    found = summary(events, 4)
    node = found["nodes"]["n001"]
    assert node["status"] == "withdrawn" and "alice" in node["reason"] and node["fault"] is None
    assert replay(config(4).ladder, events).failed == {}
    back = {"kind": "returned", "node": "n001", "state": "IDLE", "time": 9.0}
    storage.check(back, "repair", "r")
    events.append({"returned": back})
    heat = next_heat(config(4).ladder, events)
    assert heat is not None and (heat.step, heat.heat) == ("x2", 2), "no retest, and single stays passed"
    (group,) = heat.groups
    assert group.owed == ("n001",) and len(group.nodes) == 2
    after = to_end(healthy, 4, events)
    assert summary(after, 4)["verdict"] == "accepted"
    assert [(e["step"], e["heat"]) for e in after[len(events) :]] == [("x2", 2), ("halves", 1), ("full", 1)]
    (told,) = summary(after, 4)["nodes"]["n001"]["away"]
    assert told["back"] == 9.0 and told["step"] == "x2" and "alice" in told["why"]
    twice = {"returned": {**back, "time": 10.0}}
    assert replay(config(4).ladder, [*events, twice]) == replay(config(4).ladder, events), (
        "a second record changes nothing"
    )


def test_how_often_a_node_came_back_in_vain() -> None:
    back = {"returned": {"kind": "returned", "node": "n001", "state": "IDLE", "time": 9.0}}
    gone = {"step": "x2", "passed": {"n000": ["nccl"]}}
    passed = {"step": "x2", "passed": {"n001": ["nccl"]}}
    assert repairs.times_away("n001", [passed, gone]) == 0
    assert repairs.times_away("n001", [back, passed, gone, back, gone, back]) == 2
    assert repairs.times_away("n000", [back]) == 0


# ------------------------------------------------------------------------------------------------------------- serials


def gpus(*serials: str | None) -> dict[str, tuple[int | None, str | None]]:
    return {f"0000:{i:02x}:00": (i, s) for i, s in enumerate(serials)}


def test_serial_numbers_before_and_after_a_repair() -> None:
    record = node_record("n1", "gpu1")
    same = repairs.exchanged("n1", gpus("A", "B"), gpus("A", "B"), [record])
    assert same == ["n1: gpu1 is the same as before the repair (serial number B): it was not exchanged"]
    new = repairs.exchanged("n1", gpus("A", "B"), gpus("A", "C"), [{**record, "serial": "C"}])
    assert new == ["n1: gpu1 was exchanged: its serial number was B and is C"]
    wrong = repairs.exchanged("n1", gpus("A", "B"), gpus("A", "C"), [{**record, "serial": "D"}])
    assert wrong[1:] == ["n1: the repair says that gpu1 has serial number D now, but it has C"]
    (one, two) = repairs.exchanged("n1", gpus("A", "B"), gpus("X", "B"), [record])
    assert "gpu1 is the same" in one and "gpu0 was exchanged (A, now X), and no repair says so" in two
    assert "nothing can be compared" in repairs.exchanged("n1", gpus("A", "N/A"), gpus("A", "0"), [record])[0]
    (whole,) = repairs.exchanged("n1", gpus("A", "B"), gpus("A", "B"), [node_record("n1", "node")])
    assert "none of its 2 GPUs has another serial number" in whole
    assert repairs.exchanged("n1", gpus("A", "B"), gpus("A", "B"), [node_record("n1", "FAN6")]) == []
    # the preflight knows no indices
    unnumbered = {bdf: (None, s) for bdf, (_, s) in gpus("A", "B").items()}
    assert "gpu1 is the same" in repairs.exchanged("n1", unnumbered, gpus("A", "B"), [record])[0]


def test_only_whole_listings_are_compared_and_only_at_the_first_run_since_the_repair() -> None:
    def seen(time: float, *serials: str) -> dict[str, Any]:
        return {"time": time, "gpus": {b: {"index": i, "serial": s} for b, (i, s) in gpus(*serials).items()}}

    probes = {"before": {"n1": seen(1.0, "A", "B")}, "after": {"n1": seen(2.0, "A")}}
    assert repairs.listing(probes, "n1", 2, last=True) == gpus("A", "B"), "a GPU that is gone renumbers the others"
    assert repairs.listing(probes, "n2", 2, last=True) is None and repairs.listing(probes, "n1", 0, last=True) is None
    gate = {"step": "single", "groups": {"n1": ["n1"]}}
    retest = {"step": "retest", "groups": {"n1": ["n1"]}}
    record = {"repair": node_record("n1", "gpu1")}
    link = {"repair": link_record("n1/mlx5_0", ["n1", "n2"])}
    assert repairs.since_it_ran("n1", [gate, record, retest]) == [record["repair"]]
    assert repairs.since_it_ran("n1", [gate, record, link, retest]) == [record["repair"], link["repair"]]
    assert repairs.since_it_ran("n1", [gate, record, retest, gate]) == []


@pytest.mark.parametrize(
    "record",
    [
        {"node": "n1", "time": 1.0},
        link_record("a/1", []),
        {"kind": "returned", "node": "n1", "time": 1.0},
        {"kind": "returned", "node": "n1", "state": "IDLE", "time": 1.0, "fix": "?"},
        {"kind": "other", "time": 1.0},
    ],
)  # fmt: skip
def test_records_that_say_too_little_are_refused(record: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError):
        storage.check(record, "repair", "r")
