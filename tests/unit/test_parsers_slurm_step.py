# SPDX-License-Identifier: Apache-2.0
"""Messages of srun, slurmstepd, slurmd and mpirun in a step's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.parser_samples import DATA, read, read_text, samples

# sample -> (complete, verdict, [(kind, host, rank)])
EXPECTED: dict[str, tuple[bool, str, list[tuple[str, str | None, int | None]]]] = {
    "20.11-oom-kill.log": (False, "fail", [("oom_host", None, None)]),
    "22.05-oom-kill.log": (False, "fail", [("oom_host", None, None), ("oom_host", "burn05", 37)]),
    "23.11-time-limit.log": (True, "unknown", [("time_limit", None, None)]),
    "24.05-first-task-failed.log": (
        False,
        "fail",
        [("task_exit", "burn02", 11), ("task_exit", "burn01", None), ("task_exit", "burn02", None)],
    ),
    "24.05-kill-failed.log": (False, "fail", [("kernel_hang", "burn01", None)]),
    "24.05-launch-failed.log": (False, "fail", [("launch_error", "burn04", None), ("launch_error", None, None)]),
    "24.05-no-such-program.log": (False, "fail", [("launch_error", None, None), ("task_exit", "burn01", 0)]),
    "24.05-node-failure.log": (True, "fail", [("node_failure", "burn06", None), ("node_failure", None, None)]),
    "24.05-preempted.log": (True, "fail", [("step_cancelled", None, None), ("step_cancelled", None, None)]),
    "openmpi-signal.log": (False, "fail", [("task_exit", "burn02", 5), ("task_exit", "burn02", 1)]),
}


@pytest.mark.parametrize("path", samples("slurm-step"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("slurm-step", path)
    assert reading.recognised
    got = [(s.kind, s.host, s.rank) for s in reading.signals]
    assert (reading.complete, reading.verdict, got) == EXPECTED[path.name]


def test_first_error_is_no_consequence() -> None:
    first = read("slurm-step", DATA / "slurm-step" / "24.05-first-task-failed.log").data["first_error"]
    assert (first["host"], first["rank"], first["detail"]["state"]) == ("burn02", 11, "Exited with exit code 1")


def test_node_after_on_is_not_the_failed_node() -> None:
    reading = read("slurm-step", DATA / "slurm-step" / "24.05-node-failure.log")
    assert reading.signals[1].host is None
    assert reading.data["ended"][0]["on"] == "burn01"


def test_srun_l_number_before_slurmstepd_is_no_failed_task(tmp_path: Path) -> None:
    text = "8: slurmstepd: error: Detected 1 oom_kill event in StepId=5102.0. Some of the step tasks have been OOM Killed.\n"
    (s,) = read_text("slurm-step", text, tmp_path).signals
    assert (s.rank, s.detail["first_task_of_node"]) == (None, 8)


def test_a_text_without_messages_is_never_a_pass(tmp_path: Path) -> None:
    reading = read_text("slurm-step", "all good\n", tmp_path)
    assert (reading.recognised, reading.verdict) == (False, "unknown")
