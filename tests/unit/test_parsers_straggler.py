# SPDX-License-Identifier: Apache-2.0
"""NVRx straggler reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.parser_samples import DATA, kinds, read, read_text, samples

EXPECTED: dict[str, tuple[bool, str, dict[str, int]]] = {
    "nvrx-0.3-cut.log": (False, "unknown", {}),
    "nvrx-0.3-few-ranks.log": (True, "pass", {}),
    "nvrx-0.3-good.log": (True, "pass", {}),
    "nvrx-0.3-slow-rank.log": (True, "fail", {"straggler": 3}),
}


@pytest.mark.parametrize("path", samples("straggler"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("straggler", path)
    assert reading.recognised
    assert (reading.complete, reading.verdict, kinds(reading)) == EXPECTED[path.name]


def test_slow_rank_is_named() -> None:
    reading = read("straggler", DATA / "straggler" / "nvrx-0.3-slow-rank.log")
    s = reading.signals[0]
    assert (s.rank, s.host, s.value, s.limit) == (3, "burn01", 0.62, 0.7)
    assert reading.data["worst"]["rank"] == 3
    assert reading.data["reports"][0]["affected"] == [3]


def test_report_inside_a_training_log(tmp_path: Path) -> None:
    report = (DATA / "straggler" / "nvrx-0.3-slow-rank.log").read_text()
    reading = read_text("nemo", (DATA / "nemo" / "nemo2-sync-checkpoint.log").read_text() + report, tmp_path)
    assert kinds(reading)["straggler"] == 3
    assert reading.data["straggler"]["rank"] == 3


def test_score_that_is_no_number(tmp_path: Path) -> None:
    text = (DATA / "straggler" / "nvrx-0.3-good.log").read_text().replace("Score=0.93", "Score=N/A")
    assert read_text("straggler", text, tmp_path).verdict == "unknown"
