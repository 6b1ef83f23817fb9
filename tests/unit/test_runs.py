# SPDX-License-Identifier: Apache-2.0
"""A run on a machine without a cluster: stand-ins for srun and the tools; kills, restarts, casualties."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config as configuration
from burnin.campaign import Campaign
from burnin.runs import attempts, journal, settle
from burnin.runs.settle import Death, record_casualty, result_is_valid, settle_without_job
from burnin.runs.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
BAR = "=" * 80
HPL = f"""{BAR}
T/V                N    NB     P     Q               Time                 Gflops
{"-" * 80}
WR01C2R4      270336  1024     2     4              30.55              4.312e+05
{"-" * 80}
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        3.21564841e-03 ...... PASSED
{BAR}

Finished      1 tests with the following results:
              1 tests completed and passed residual checks,
              0 tests completed and failed residual checks,
              0 tests skipped because of illegal input values.
{"-" * 80}

End of Tests.
{BAR}
"""


class World:
    """A campaign of one node whose commands are stand-ins."""

    def __init__(self, folder: Path, workload: str = "cat hpl.txt", nodes: str = "n1", **changes: Any) -> None:
        self.folder = folder
        (folder / "hpl.txt").write_text(HPL)
        raw = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
        definitions = yaml.safe_load((ROOT / "config" / "workloads.yaml").read_text())
        definitions["hpl"] |= {
            "launch": "env",
            "commands": {"hpl": workload.replace("hpl.txt", str(folder / "hpl.txt"))},
        }
        raw |= {
            "results": str(folder / "results"),
            "campaign": "t",
            "nodes": nodes,
            "hcas": "",
            "workloads": ["hpl"],
            "windows": {"hpl": {"default": {"iterations": 3}}},
            "resume_test": {"workload": None, "steps_after_checkpoint": 5},
            "scenario": None,
            "workload_definitions": definitions,
            "drain": "print",
        }
        raw["probes"] |= {"launch": "env SLURMD_NODENAME=n1", "commands": {"dmesg": "cat " + str(folder / "dmesg.txt")}}
        (folder / "dmesg.txt").write_text("[    0.000000] Linux version 6.1\n[    1.000000] systemd[1]: Started.\n")
        raw |= changes
        self.campaign = Campaign(configuration.load(raw, ROOT))
        self.campaign.begin()
        self.campaign.make_plan("single", 0, "test")
        self.result = self.campaign.result_path("single", 0, "hpl", "n1")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "burnin", "run", str(self.result)]

    def run(self) -> dict[str, Any]:
        subprocess.run(self.command(), check=True, timeout=120)
        return self.read()

    def read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.result.read_text())
        return document

    def records(self) -> list[dict[str, Any]]:
        return journal.read(self.result.parent / "attempt0" / "journal.jsonl")


def test_a_run_fills_its_window_and_keeps_everything(tmp_path: Path) -> None:
    world = World(tmp_path)
    found = world.run()
    assert found["state"] == "complete" and len(found["iterations"]) == 3
    for item in found["iterations"]:
        assert (item["verdict"], item["value"], item["unit"]) == ("pass", 4.312e5, "GFLOPS")
        assert (world.result.parent / item["output"]).read_text() == HPL
    assert found["probes"]["before"]["n1"]["tools"] == {"dmesg": "pass"} == found["probes"]["after"]["n1"]["tools"]
    assert (world.result.parent / "attempt0" / "HPL.dat").exists()


def test_a_lost_result_is_written_again_without_running(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.run()
    world.result.unlink()
    assert settle_without_job(world.result) and world.read() == first


def test_killed_at_any_moment_it_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, "sh -c 'sleep 0.15; cat hpl.txt'")
    kills = 0
    for patience in (0.25, 0.4, 0.55, 0.6, 0.7, 0.8, 0.9):
        head = subprocess.Popen(world.command(), start_new_session=True)
        try:
            head.wait(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
            kills += 1
    found = world.run()
    assert kills and found["state"] == "complete" and found["attempt"] == 0
    assert [i["iteration"] for i in found["iterations"]] == [0, 1, 2]
    starts = [r["seq"] for r in world.records() if r["type"] == "start"]
    assert starts == sorted(set(starts)), "no output file is used twice"


def test_another_spec_starts_afresh_and_keeps_the_old_attempt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    world.campaign.note_reruns([world.result])
    world.result.unlink()
    found = world.run()
    assert (found["attempt"], found["earlier_attempts"]) == (1, 1)
    assert (world.result.parent / "attempt0" / "result.json").exists()


def test_a_damaged_journal_is_kept_and_not_continued(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    path = world.result.parent / "attempt0" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"x" + lines[1] + b"".join(lines[2:]))
    world.result.unlink()
    found = world.run()
    assert found["attempt"] == 1 and path.read_bytes().startswith(lines[0] + b"x")


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [
        ("head -c 500 hpl.txt", "unknown"),
        ("sh -c 'sed s/PASSED/FAILED/ hpl.txt'", "fail"),
        ("true", "unknown"),
        ("sh -c 'cat hpl.txt; exit 3'", "pass"),
    ],
)
def test_an_iteration_that_does_not_pass_ends_the_run(tmp_path: Path, workload: str, verdict: str) -> None:
    found = World(tmp_path, workload).run()
    assert found["state"] == "stopped" and len(found["iterations"]) == 1
    assert found["iterations"][0]["verdict"] == verdict


def test_a_hang_is_ended_and_said(tmp_path: Path) -> None:
    watch = {
        "mode": "act",
        "probe_every_minutes": 15,
        "hang_factor": 5,
        "hang_first_seconds": 1,
        "hang_least_seconds": 1,
    }
    found = World(tmp_path, "sh -c 'echo begin; sleep 1000'", watch=watch).run()
    assert (
        found["state"] == "stopped" and found["reason"].startswith("hang") and found["iterations"][0]["ended"] == "hang"
    )
    assert "hang" in found["probes"], "evidence was collected before the step was ended"


def test_a_probe_that_cannot_be_read_is_unknown_and_the_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "dmesg.txt").unlink()
    found = world.run()
    assert found["state"] == "complete"
    assert found["probes"]["after"]["n1"]["tools"] == {"dmesg": "unknown"}


def test_a_casualty_keeps_what_the_run_left(tmp_path: Path) -> None:
    world = World(tmp_path, "sh -c 'sleep 0.3; cat hpl.txt'")
    head = subprocess.Popen(world.command(), start_new_session=True)
    deadline = time.time() + 30
    while time.time() < deadline and len(journal.completed(world.records())) < 1:
        time.sleep(0.05)
    os.killpg(head.pid, signal.SIGKILL)
    head.wait()
    done = len(journal.completed(world.records()))
    record_casualty(world.result, Death("NODE_FAIL", ["n1"], "node down", "17"))
    found = world.read()
    assert found["state"] == "casualty" and found["casualty"]["lost"] == ["n1"] and len(found["iterations"]) == done
    assert result_is_valid(world.result)
    world.result.unlink()
    assert settle_without_job(world.result) and world.read() == found, "what was decided once is not decided anew"


def test_a_death_after_the_last_word_does_not_undo_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.run()
    world.result.unlink()
    record_casualty(world.result, Death("NODE_FAIL", ["n1"], "node down", "17"))
    assert world.read() == first


def test_a_run_that_never_began_is_a_casualty_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    record_casualty(world.result, Death("CANCELLED", [], "CANCELLED by 0", "17"))
    assert world.read()["state"] == "casualty" and world.read()["attempt"] is None


def test_the_node_list_of_a_plan_is_what_is_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = load_spec(world.result)
    assert spec.nodes == ["n1"] and spec.time_limit_minutes == 3 * 30 + 30
    assert attempts.current(spec) is None
    assert not settle.result_is_valid(world.result)


def test_a_cut_result_is_not_valid(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    content = world.result.read_bytes()
    for cut in range(0, len(content) - 2, max(1, len(content) // 25)):
        world.result.write_bytes(content[:cut])
        assert not result_is_valid(world.result)
    world.result.write_bytes(content)
    assert result_is_valid(world.result)
