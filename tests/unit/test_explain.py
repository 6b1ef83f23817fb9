# SPDX-License-Identifier: Apache-2.0
"""`burnin explain`: the story of a node, for failed, accepted, suspect and unknown ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from burnin.commands.explain import explain, newest, story_of
from burnin.errors import CampaignError
from burnin.judging.heat import judge_heat
from burnin.ladder import Group, Heat
from click.testing import CliRunner

from tests.world import context, iteration, plan_of, result

EMPTY: dict[str, Any] = {
    "failed_step": None,
    "failed_workload": None,
    "part": None,
    "fault": None,
    "reason": None,
    "evidence": [],
    "next_action": None,
    "repairs": [],
    "hours": {},
}
XID = "[Tue Nov 10 13:47:05 2026] NVRM: Xid (PCI:0000:c3:00): 79, pid=48122, name=python, GPU has fallen off the bus."
ERROR = "[rank13]: CUDA error: unspecified launch failure"
NODES = ["dgx04", "dgx05", "dgx06"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a campaign in which dgx05 lost its GPU 5 in x2, beside dgx04."""
    gates = []
    single = Heat("single", 0, tuple(Group((n,), (n,), ("nccl",)) for n in NODES))
    runs = {("nccl", n): result("single", 0, "nccl", n, [n]) for n in NODES}
    gates.append(judge_heat(plan_of(single), runs, context()) | {"drained": {}})
    pair = Heat("x2", 0, (Group(("dgx04", "dgx05"), ("dgx04", "dgx05"), ("nccl",)),))
    plan = plan_of(pair)
    (name,) = plan["groups"]
    probe = {"file": "attempt0/probe-after/dgx05.txt", "node": "dgx05", "when": "after", "bdf": "0000:c3:00", "gpu": 5}
    signals = [
        {"kind": "cuda_error", "line": 1, "text": ERROR, "rank": 13, "file": "attempt0/out-00000.log"},
        {"kind": "xid", "line": 2, "text": XID, "value": 79.0, **probe},
    ]  # fmt: skip
    broken = result("x2", 0, "nccl", name, ["dgx04", "dgx05"], state="stopped", reason="cuda_error", signals=signals)
    broken["iterations"] = [iteration(0, "nccl", verdict="fail", exit=1)]
    gate = judge_heat(plan, {("nccl", name): broken}, context())
    gates.append(gate | {"drained": {"dgx05": "drained: burnin test: gpu_off_bus gpu5 (x2 nccl)"}})
    where = tmp_path / "results" / "test"
    run = where / "x2" / "heat0" / "nccl" / name
    (run / "attempt0" / "probe-after").mkdir(parents=True)
    (run / "attempt0" / "probe-after" / "dgx05.txt").write_text(f"first line\n{XID}\x1b[31m\nlast\n")
    (run / "attempt0" / "out-00000.log").write_text("[rank13]: CUDA error: unspecified launch failure\n")
    (run / "result.json").write_text(json.dumps(broken))
    best = next(f for f in gate["findings"] if f["node"] == "dgx05")
    nodes = {
        "dgx04": {**EMPTY, "status": "running", "hours": {"single": {"nccl": 12.0}}},
        "dgx05": {**EMPTY, "status": "failed", **{k: best[k] for k in ("part", "fault", "reason", "evidence", "next_action")},
                  "failed_step": "x2", "failed_workload": "nccl"},
        "dgx06": {**EMPTY, "status": "suspect", "failed_step": "x2", "reason": "passed apart", "next_action": "look between"},
    }  # fmt: skip
    summary = {
        "campaign": "test",
        "verdict": "running",
        "nodes": nodes,
        "links": [{"between": [["dgx06"], ["dgx04"]], "fault": "fabric_slow", "reason": "r", "evidence": ["x2/a:1"]}],
        "heats": [
            {"step": g["step"], "heat": g["heat"], "groups": g["groups"], "outcome": g["outcome"]} for g in gates
        ],
        "stopped": None,
    }
    (where / "summary.json").write_text(json.dumps(summary))
    for g in gates:
        path = where / g["step"] / f"heat{g['heat']}" / "gate.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(g))
    return where


def test_the_story_of_a_failed_node(folder: Path) -> None:
    told = story_of("dgx05", folder)
    for words in (
        "dgx05 is out of campaign test: gpu5 fell off the bus (gpu_off_bus, part gpu5).",
        "this is certain",
        "In step x2, heat 0, while it ran nccl together with dgx04",
        "Before that it had passed single: nccl.",
        "/attempt0/probe-after/dgx05.txt:2",
        f"| {XID}",
        "What to do next",
        "reseat or replace",
        'burnin repair dgx05 --part gpu5 --fix "what was done"',
        "Slurm: drained: burnin test: gpu_off_bus gpu5 (x2 nccl).",
        "dgx04: not to blame",
    ):
        assert words in " ".join(told.split()) or words in told, words
    assert told.index("[xid 79]") < told.index("[cuda_error]"), "the cause stands before its consequence"
    assert "drain the node" not in told.lower(), "it is drained already"
    assert "\x1b" not in told and max(len(line) for line in told.splitlines()) <= 175


def test_healthy_suspect_and_unknown_nodes(folder: Path) -> None:
    healthy = story_of("dgx04", folder)
    assert "dgx04 is in the campaign, which is not over" in healthy and "single: nccl 12.0 h" in healthy
    assert "x2 heat 0: ran again (partner): dgx05 failed" in " ".join(healthy.split())
    assert "Nothing was found on it." in healthy
    suspect = story_of("dgx06", folder)
    assert "not convicted either" in suspect and "between dgx06 and dgx04" in suspect and "Look between." in suspect
    with pytest.raises(CampaignError, match=r"dgx50 is no node of campaign test; its nodes are dgx\[04-06\]"):
        story_of("dgx50", folder)
    with pytest.raises(CampaignError, match="no summary yet"):
        story_of("dgx05", folder / "single")


def test_the_campaign_defaults_to_the_newest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parents[1])
    assert newest(Path("results")).name == "test"
    done = CliRunner().invoke(explain, ["dgx05"], catch_exceptions=False)
    assert done.exit_code == 0 and done.output.startswith("dgx05 is out of campaign test")
    with pytest.raises(CampaignError, match="no campaign"):
        newest(Path("nowhere"))


def test_evidence_outside_the_campaign_is_never_read(folder: Path, tmp_path: Path) -> None:
    from burnin.quotations import Files

    (tmp_path / "secret.txt").write_text("secret\n")
    files = Files(folder)
    assert files.quote("../../secret.txt:1") is None and files.quote("single/heat0/gate.json:999999") is None
    assert files.quote("x2:1") is None and files.started("no/such/run") is None
