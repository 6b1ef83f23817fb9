# SPDX-License-Identifier: Apache-2.0
"""A launch that nobody answered is no evidence; anything else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin.runs.launching import PATIENCE_SECONDS, SETTLING_SECONDS, patience, patience_of_file

AWAY = (
    "srun: error: Unable to confirm allocation for job 11: Unable to contact slurm controller (connect failure)\n"
    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 11\n"
)


def test_slurmctld_away() -> None:
    assert patience(AWAY) == PATIENCE_SECONDS
    assert (
        patience("srun: error: Unable to create step for job 7: Socket timed out on send/recv operation\n")
        > SETTLING_SECONDS
    )
    assert (
        patience("srun: error: Unable to create step for job 7: Memory required by task is not available\n")
        == SETTLING_SECONDS
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "srun: error: Node failure on dgx02\n",
        "srun: error: dgx02: task 3: Killed\n",
        AWAY + "# nThread 1 nGpus 1\n",
        "0: " + AWAY,
        "srun: error: Unable to create step for job 7: Requested nodes are busy\n",
    ],
)
def test_everything_else_is_evidence(text: str) -> None:
    assert patience(text) == 0


def test_of_a_file_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("task output\n" + AWAY)
    assert not patience_of_file(path) and patience_of_file(path, len("task output\n"))
    assert not patience_of_file(tmp_path / "none")
    path.write_text(AWAY * 1000)
    assert not patience_of_file(path)
