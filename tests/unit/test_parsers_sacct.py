# SPDX-License-Identifier: Apache-2.0
"""sacct in its listings and JSON."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole

TOOL = "sacct"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "P-23.11-completed.txt": ("unknown", "pass"),
    "P-comment-with-newline-and-bar.txt": ("unknown", "unknown"),
    "P-delimiter-of-three.txt": ("unknown", "unknown"),
    "columns-22.05.txt": ("fail", "fail"),
    "json-21.08-failed.json": ("fail", "fail"),
    "json-23.11-completed.json": ("pass", "pass"),
    "p-23.11-node-fail.txt": ("fail", "fail"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_the_extern_row_is_not_judged() -> None:
    reading = as_whole(TOOL, "p-23.11-node-fail.txt")
    assert [s.detail["state"] for s in of(reading, "job_state")] == ["NODE_FAIL", "CANCELLED", "FAILED"]
    assert of(reading, "job_state")[2].detail["signal"] == 9
    assert [j["step"] for j in reading.data["jobs"]] == [None, "batch", "extern", "0"]


def test_cut_words_of_columns() -> None:
    reading = as_whole(TOOL, "columns-22.05.txt")
    assert [j["state"] for j in reading.data["jobs"]] == ["CANCELLED", "COMPLETED", "OUT_OF_MEMORY"]


def test_arrays_het_jobs_and_long_delimiters() -> None:
    reading = as_whole(TOOL, "P-delimiter-of-three.txt")
    assert [j["job_id"] for j in reading.data["jobs"]] == ["5102_7", "5102+1"]


def test_json_old_and_new() -> None:
    new = as_whole(TOOL, "json-23.11-completed.json")
    assert [(j["job_id"], j["step"], j["state"]) for j in new.data["jobs"]] == [
        ("5102", None, "COMPLETED"),
        ("5102", "0", "COMPLETED"),
    ]
    assert of(as_whole(TOOL, "json-21.08-failed.json"), "job_state")[0].detail["exit"] == 1


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("COMPLETED", "pass"),
        ("CANCELLED by 1000", "unknown"),
        ("TIMEOUT", "unknown"),
        ("OUT_OF_MEMORY", "fail"),
        ("DREAMING", "unknown"),
    ],
)
def test_states(state: str, verdict: str) -> None:
    assert fed(TOOL, f"JobID|State|ExitCode\n7|{state}|0:0", whole=True).verdict == verdict


def test_a_record_without_its_end_is_cut() -> None:
    assert fed(TOOL, "JobID|State|ExitCode\n7|COMPLETED|0:0\n8|COMP", whole=True).verdict == "unknown"
