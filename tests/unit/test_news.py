# SPDX-License-Identifier: Apache-2.0
"""What a probe during a run adds, and which raw files are kept: nothing new is lost, nothing old is kept again."""

from __future__ import annotations

from typing import Any

import pytest
from burnin.runs.news import DAY, Known
from hypothesis import given, settings
from hypothesis import strategies as st


def seen(kind: str, text: str = "x", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "line": 1, "text": text, **fields}


def record(when: str, signals: list[dict[str, Any]], time: float = 0.0, file: str | None = "f") -> dict[str, Any]:
    return {"type": "probe", "when": when, "time": time, "nodes": {"n1": {"signals": signals, "file": file}}}


HOT = [seen("gpu_temperature", f"GPU Current Temp : {v} C", gpu=5, value=v) for v in (40.0, 60.0, 55.0, 61.0)]
XID = seen("xid", "[  100.0] NVRM: Xid 79", value=79, bdf="0000:c3:00", detail={"time": 100.0})


def test_of_a_reading_the_highest_is_kept() -> None:
    known = Known([record("before", HOT[:1])])
    assert [s["value"] for s in HOT if known.news("n1", [s])] == [60.0, 61.0]
    assert known.news("n1", [{**HOT[0], "gpu": 6}]), "another GPU"
    assert known.news("n2", HOT[:1]), "another node"


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([XID], XID, False),
        (
            [XID],
            {**XID, "text": "[  101.0] NVRM: Xid 79", "detail": {"time": 101.0}},
            False,
        ),  # dmesg -T computes stamps anew
        ([XID], {**XID, "text": "[  900.0] NVRM: Xid 79", "detail": {"time": 900.0}}, True),
        ([], XID, True),
        ([seen("link_down_count", value=1, device="mlx5_3")], seen("link_down_count", value=1, device="mlx5_3"), False),
        ([seen("link_down_count", value=1, device="mlx5_3")], seen("link_down_count", value=2, device="mlx5_3"), True),
        (
            [seen("fan_failed", "FAN6_F 0 RPM", device="FAN6_F")],
            seen("fan_failed", "FAN6_F 0 RPM", device="FAN6_F"),
            False,
        ),
        (
            [seen("fan_failed", "FAN6_F 0 RPM", device="FAN6_F")],
            seen("fan_failed", "FAN5_F 0 RPM", device="FAN5_F"),
            True,
        ),
        # too hot is no reading any more, it is a fault: said whenever its words change
        (
            [seen("inlet_temperature", "TEMP 45", value=45.0, device="T", detail={"status": "cr"})],
            seen("inlet_temperature", "TEMP 44", value=44.0, device="T", detail={"status": "cr"}),
            True,
        ),
    ],
)
def test_what_was_said_is_not_said_again(before: list[dict[str, Any]], now: dict[str, Any], new: bool) -> None:
    known = Known([record("before", before)])
    assert known.news("n1", [now]) == ([now] if new else [])
    assert known.news("n1", [now]) == [], "and once is enough"


@given(
    per_day=st.integers(0, 48),
    steps=st.lists(st.tuples(st.floats(60, 7200), st.booleans()), max_size=300),
)
@settings(deadline=None, max_examples=60)
def test_files_a_day_and_node_are_bounded(per_day: int, steps: list[tuple[float, bool]]) -> None:
    known = Known()
    time, kept = 1e9, []
    for pause, trouble in steps:
        time += pause
        keep, keep_trouble = known.keeps("n1", time, per_day)
        whole = keep or (trouble and keep_trouble)
        known.add(record("during-1", [], time, "f" if whole else None)["nodes"], "during-1", time)
        kept += [time] if whole else []
    assert all(sum(t - DAY < k <= t for k in kept) <= per_day for t in kept)


def test_half_of_the_files_are_left_for_trouble() -> None:
    known = Known()
    for number in range(96):  # a day, every quarter of an hour, nothing wrong
        time = 1e9 + 900 * number
        keep, _ = known.keeps("n1", time, 24)
        known.add(record("during-1", [], time, "f" if keep else None)["nodes"], "during-1", time)
    assert known.keeps("n1", 1e9 + 900 * 96, 24)[1]
    assert len(known._kept["n1"]) == 12
