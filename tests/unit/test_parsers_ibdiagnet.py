# SPDX-License-Identifier: Apache-2.0
"""ibdiagnet's console log."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "ibdiagnet"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "console-2.11-errors.txt": ("fail", "fail"),
    "console-2.13-clean.txt": ("pass", "pass"),
    "console-2.13-cut-with-errors.txt": ("fail", "fail"),
    "console-2.13-stage-skipped.txt": ("unknown", "unknown"),
    "console-no-sm.txt": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_errors_stand_in_rows_marked_as_information() -> None:
    reading = as_whole(TOOL, "console-2.11-errors.txt")
    assert [(s.detail["stage"], s.value) for s in of(reading, "fabric_check")] == [
        ("Links Check", 2),
        ("Port Counters", 1),
    ]
    assert reading.data["errors"] == 3 and reading.data["warnings"] == 3 and reading.data["message_count"] == 4


def test_cas_are_counted() -> None:
    reading = as_whole(TOOL, "console-2.13-clean.txt")
    assert of(reading, "fabric_nodes")[0].value == 257 == reading.data["cas"]
    assert reading.data["counters_cleared"]


def test_a_stage_that_was_not_checked() -> None:
    assert "was not checked" in as_whole(TOOL, "console-2.13-stage-skipped.txt").problems[0]


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_summary_cut_in_its_middle_is_not_whole(lost: int) -> None:
    text = (DATA / TOOL / "console-2.13-clean.txt").read_text()
    rows = text[: text.index("\n\n-I- You can find")].split("\n")
    assert fed(TOOL, "\n".join(rows[:-lost])).verdict == "unknown"
