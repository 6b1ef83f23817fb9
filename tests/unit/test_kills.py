# SPDX-License-Identifier: Apache-2.0
"""A run that is killed at any system call that changes a file, and started again: the same result, no iteration lost or twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.test_runs import ROOT, World


def test_killed_at_every_call_that_changes_a_file(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    world = World(tools, windows={"hpl": {"default": {"iterations": 2}}})
    stored = json.loads((world.campaign.dir / "config.json").read_text())
    stored["config"]["results"] = "results"
    (world.campaign.dir / "config.json").write_text(json.dumps(stored))
    (tools / "results").rename(template / "results")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    driver = ROOT / "tests" / "unit" / "kill_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), str(template), str(scratch)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    *kills, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert end["end"] == 0 and end["gate"] and [p[0] for p in end["pairs"]] == [0, 1], "undisturbed"
    wanted = [[0, 4.312e5, "pass"], [1, 4.312e5, "pass"]]
    assert len([k for k in kills if not k["torn"]]) >= 60 and len([k for k in kills if k["torn"]]) >= 10
    assert {k["call"] for k in kills} >= {"open", "mkdir", "write", "fsync", "replace"}
    # the kills are spread over all of the run: with nothing, one, two iterations on record, with result, with gate
    assert {(len(k["before"]["pairs"]), k["before"]["result"]) for k in kills} == {
        (0, False),
        (1, False),
        (2, False),
        (2, True),
    }
    for kill in kills:
        where = f"killed at call {kill['at']}{' in its middle' if kill['torn'] else ''}"
        before, after = kill["before"], kill["after"]
        assert kill["again"] == 0 and (kill["state"], kill["outcome"]) == ("complete", {"n1": "passed"}), where
        assert after["pairs"][: len(before["pairs"])] == before["pairs"], f"{where}: what was complete is not run again"
        assert [p[0] for p in after["pairs"]] == [0, 1] and len({p[1] for p in after["pairs"]}) == 2, (
            f"{where}: each once"
        )
        assert kill["values"] == wanted and after["attempts"] == 1, where
        assert kill["probes"] == {"before": {"dmesg": "pass"}, "after": {"dmesg": "pass"}}, where
