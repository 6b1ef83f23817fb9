# SPDX-License-Identifier: Apache-2.0
"""A run that is killed at any system call that changes a file, and started again: the same result, no iteration lost or twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.test_runs import ROOT, World


def driven(
    tmp_path: Path, workload: str, iterations: int, changes: dict[str, Any], *more: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return a line for each kill of a run, and that of the undisturbed run at the end, if it came to that."""
    template = tmp_path / "template"
    template.mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    world = World(tools, workload, windows={"hpl": {"default": {"iterations": iterations}}})
    stored = json.loads((world.campaign.dir / "config.json").read_text())
    stored["config"]["results"] = "results"
    for section, values in changes.items():
        stored["config"][section] |= values
    (world.campaign.dir / "config.json").write_text(json.dumps(stored))
    (tools / "results").rename(template / "results")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    driver = ROOT / "tests" / "unit" / "kill_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), str(template), str(scratch), *more],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [k for k in lines if "end" not in k], next((k for k in lines if "end" in k), None)


def test_killed_at_every_call_that_changes_a_file(tmp_path: Path) -> None:
    kills, end = driven(tmp_path, "cat hpl.txt", 2, {})
    assert end is not None
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


#: One probe before, then the first during the run: only that one says something. Each call counts itself in the run's folder.
ONCE_SEEN = "n=$(cat count 2>/dev/null || echo 0); echo $((n+1)) >count; if [ $n = 1 ]; then cat {0}/odd; else cat {0}/usual; fi"


def test_killed_while_a_look_is_read_that_is_not_kept(tmp_path: Path) -> None:
    """What a probe during a run said is in the result whenever the run was killed, although its file is not kept."""
    odd = "FAN6_F | 3Ah | nc | 29.6 | 2000 RPM\n"
    (tmp_path / "odd").write_text(odd)
    (tmp_path / "usual").write_text(odd.replace("nc", "ok"))
    command = f"sh -c '{ONCE_SEEN.format(tmp_path)}'"
    probes = {"commands": {"ipmi": command}, "keep_per_day": 0, "once": {"pdu": "echo 3450"}}
    watch = {"probe_every_minutes": 0.003}
    changes = {"probes": probes, "watch": watch}
    kills, _ = driven(tmp_path, "sh -c 'sleep 0.45; cat hpl.txt'", 1, changes, "probe-during-", "10", "16")
    assert {k["call"] for k in kills} >= {"write", "fsync", "unlink"}
    whole = [k for k in kills if {"n1.txt", "n1.txt.gz"} & set(k["before"]["looks"]) or k["before"]["recorded"]]
    assert {k["before"]["recorded"] > 0 for k in whole} == {True, False}, "before and after it was in the journal"
    for kill in whole:
        where = f"killed at call {kill['at']}{' in its middle' if kill['torn'] else ''}"
        assert kill["again"] == 0 and kill["state"] == "complete", where
        assert kill["signals"].count("sensor_warning") == 1, f"{where}: seen once, in the result once"
        assert kill["after"]["looks"] == [], f"{where}: nothing is left of what is not kept"
