# SPDX-License-Identifier: Apache-2.0
"""Who comes back of those that are out without blame: in service in Slurm again, and on the frozen stack."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from burnin import storage
from burnin.campaign import Away
from burnin.runs import stack
from burnin.runs.returning import take_back

from tests.unit.test_runs import World

IDLE = "NodeName={} Arch=x86_64 CPUTot=8 State=IDLE{} ThreadsPerCore=1 Partitions=all\n"


def scontrol(folder: Path) -> tuple[dict[str, str], Path, Path]:
    """Return an environment with a scontrol that answers with a file's text, that file, and the log of what it was asked."""
    log, answer = folder / "log", folder / "answer"
    program = folder / "scontrol"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        f"open({str(log)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        f"print(open({str(answer)!r}).read() if sys.argv[1] == 'show' else '')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}, answer, log


class Gone:
    """A campaign of which nodes are out without blame."""

    def __init__(self, *nodes: str, config: Any = None, for_stack: bool = False) -> None:
        self.nodes, self.for_stack, self.recorded = nodes, for_stack, dict[str, str]()
        document = {"drain": "drain", "slurm": {"reservation": None}}
        self.config = config or type("Config", (), {"campaign": "demo", "document": document})

    def away(self) -> dict[str, Away]:
        return {n: Away(0, self.for_stack) for n in self.nodes}

    def record_returns(self, back: dict[str, str]) -> None:
        self.recorded |= back


def test_slurm_is_asked_only_if_somebody_is_away_and_only_what_is_ours_is_changed(tmp_path: Path) -> None:
    environment, answer, log = scontrol(tmp_path)
    assert take_back(Gone(), environment) == [] and not log.exists()  # type: ignore[arg-type]
    alice = IDLE.format("n2", "+DRAIN").strip() + " Reason=alice: PSU [alice@2026-11-30T08:00:00]\n"
    answer.write_text(IDLE.format("n1", "") + alice)
    campaign: Any = Gone("n1", "n2")
    assert take_back(campaign, environment) == ["n1 is in service again (IDLE): it runs what it owes"]
    assert campaign.recorded == {"n1": "IDLE"}
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    assert [a[:2] for a in asked] == [["show", "node"]], "nothing is changed: the drain is alice's"
    answer.write_text(answer.read_text().replace("alice: PSU", "burnin demo: gpu_off_bus gpu5 (x4 nemo)"))
    take_back(Gone("n2"), environment)  # type: ignore[arg-type]
    assert ["update", "nodename=n2", "state=resume"] in [json.loads(line) for line in log.read_text().splitlines()]


class Cluster:
    """A campaign whose nodes' stack is the text of a file, frozen by a first look, and a Slurm that has them idle."""

    def __init__(self, folder: Path) -> None:
        self.text = folder / "kernel"
        self.text.write_text("5.15\n")
        section = {"run": True, "timeout_seconds": 60, "commands": {"kernel": f"cat {self.text}"}}
        world = World(folder, nodes="n[1-2]", preflight=json_defaults() | section)
        self.config = world.campaign.config
        self.environment, answer, self.asked = scontrol(folder)
        answer.write_text(IDLE.format("n1", "") + IDLE.format("n2", "+COMPLETING"))
        document = {"containers": [], "nodes": {n: {"stack": {"kernel": "5.15"}} for n in ("n1", "n2")}}
        stack.freeze(self.config, document, {})

    def take_back(self, *nodes: str) -> tuple[list[str], dict[str, str]]:
        campaign: Any = Gone(*nodes, config=self.config, for_stack=True)
        return take_back(campaign, self.environment), campaign.recorded


def json_defaults() -> dict[str, Any]:
    return {
        "on_finding": "warn",
        "room_gib": 0,
        "files": [],
        "containers": [],
        "dry_runs": {},
        "fabric": None,
        "extra_cas": None,
    }


def test_who_showed_another_stack_is_looked_at_until_it_shows_the_frozen_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.text.write_text("6.1\n")
    (told,), recorded = cluster.take_back("n1")
    assert recorded == {} and "n1 stays out: kernel is '6.1', was '5.15' when the stack was frozen" in told
    place = told.split("(")[1].rstrip(")")
    path, line = place.rsplit(":", 1)
    assert "stack:kernel" in storage.read_raw(cluster.config.campaign_dir / path).decode().splitlines()[int(line) - 1]
    cluster.text.write_text("5.15\n")
    said, recorded = cluster.take_back("n1")
    assert recorded == {"n1": "IDLE"} and said == ["n1 shows the frozen stack again (IDLE): it runs what it owes"]


def test_a_busy_node_is_not_waited_for(tmp_path: Path) -> None:
    said, recorded = Cluster(tmp_path).take_back("n2")
    assert recorded == {} and said == ["n2 is busy (IDLE+COMPLETING), its stack is looked at later"]


@pytest.mark.parametrize("trouble", ["unreadable", "silent", "no launch"])
def test_what_nothing_is_said_of_is_not_the_frozen_stack(tmp_path: Path, trouble: str) -> None:
    cluster = Cluster(tmp_path)
    if trouble == "unreadable":
        cluster.text.unlink()
    elif trouble == "silent":
        cluster.text.write_text("")
    else:
        cluster.config.document["probes"]["launch"] = "no-such-program"
    (said,), recorded = cluster.take_back("n1")
    assert recorded == {}
    assert ("nothing is said of kernel" if trouble != "no launch" else "could not be started") in said


def test_after_freeze_any_stack_is_the_right_one_but_it_must_be_seen(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.text.write_text("6.1\n")
    stack.freeze_anew(cluster.config, "kernel 6.1 as planned", "test")
    kept = cluster.text.rename(tmp_path / "kept")
    (said,), recorded = cluster.take_back("n1")
    assert recorded == {} and "nothing was read" in said
    kept.rename(cluster.text)
    assert cluster.take_back("n1")[1] == {"n1": "IDLE"}
    assert stack.Frozen(cluster.config, ["n1"]).differs("n1", {"kernel": "9"}) == [], "a look freezes nothing"
