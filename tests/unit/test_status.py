# SPDX-License-Identifier: Apache-2.0
"""Where a campaign stands is told from its files: cells, progress, comparison, an estimate, and what it waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from burnin import status
from burnin.campaign import Campaign
from burnin.runs import journal

from tests import live

NOW = 1_800_000_000.0


def test_a_campaign_that_has_not_begun_a_heat(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    told = status.collect(found)
    assert [r.step for r in told.rows] == ["single", "x2", "halves", "full", "resume"]
    assert told.rows[0].cells["nccl"] == status.Cell(owed=4)
    assert told.rows[1].cells["nccl"] == status.Cell(to_come=4)
    # 24 h for each of four steps; the resume test counts one iteration of which none was seen
    assert told.eta_hours is None
    assert {r.state for r in told.runs if r.workload == "nccl"} == {"queued"}
    assert {r.state for r in told.runs if r.workload != "nccl"} == {"waiting"}
    assert "4 for Slurm to start them, 8 behind another workload" in told.waits


def test_progress_comparison_and_estimate(tmp_path: Path) -> None:
    base = {
        "workload": "nccl", "command": "all_reduce", "nodes": 2, "value": 400.0, "unit": "GB/s", "band": 0.05,
        "origin": "validation", "date": "2026-01-01",
    }  # fmt: skip
    resume = {"workload": None, "steps_after_checkpoint": 5}
    found = live.campaign(tmp_path, "dgx[01-08]", 1, resume_test=resume)
    groups = [g.name for g in found.projection()[1][0].groups]
    # 3 of 12 hours are done; one group is behind, one has no sign of life since an hour
    for group, iterations, at, value in zip(groups, (12, 12, 6), (NOW, NOW, NOW - 3600), (370, 372, 330), strict=False):
        live.run(found, "nccl", group, iterations, 900, at, value=value)
    told = status.collect(found)
    by_name = {r.run_id.split("/")[-1]: r for r in told.runs if r.workload == "nccl"}
    assert by_name[groups[0]].done == pytest.approx(0.25) and by_name[groups[0]].iterations == 12
    assert by_name[groups[2]].done == pytest.approx(0.125)
    assert by_name[groups[3]].state == "queued"
    row = next(r for r in told.rows if r.step == "x2")
    assert row.cells["nccl"] == status.Cell(running=6, owed=2) and row.cells["hpl"] == status.Cell(owed=8)
    assert told.rows[0].cells["nccl"] == status.Cell(passed=8)
    # the slowest group has all of its 12 + 4 + 8 hours before it; then x4, halves and full, a day each
    assert told.eta_hours == pytest.approx(24 + 3 * 24)
    compared = status.against(found.config, by_name[groups[2]], told.runs)
    assert compared is not None and compared[1] == "peers" and compared[0] == pytest.approx((330 - 371) / 371)
    criteria = {**found.config.criteria, "baselines": [base]}
    based = Campaign(type(found.config)({**found.config.document, "criteria": criteria}, found.config.root))
    assert status.against(based.config, by_name[groups[2]], told.runs) == (pytest.approx(-0.175), "baseline")
    text = status.text_of(found.config, told, NOW)
    assert "if all pass it ends in 4 d" in text and "6 running, 2 owed" in text
    assert "all_reduce 330 GB/s, -11.1% to peers (60 min ago)" in text


def test_who_is_out_and_in_which_workload(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    heat = found.projection()[0][0]
    gate = live.gate_of(found, heat, findings=[live.finding("dgx02", "single", "hpl")])
    gate["outcome"]["dgx02"] = "failed"
    gate["passed"]["dgx02"] = ["nccl"]
    found.write_gate(gate)
    told = status.collect(found)
    single = told.rows[0]
    assert single.cells["hpl"] == status.Cell(passed=3, failed=1) and single.cells["nccl"].passed == 4
    assert single.done and not told.rows[1].done
    assert "1 failed: dgx02" in status.text_of(found.config, told, NOW)


def test_a_run_that_ended_early_is_told_before_its_gate(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-02]", 0)
    live.run(found, "nccl", "dgx01", 3, 60, NOW)
    told = status.collect(found)
    reason = "broken before the run: fan_failed on FAN6\x1b[31m"
    told.runs.append(status.Progress("single/heat0/nccl/dgx02", "nccl", ("dgx02",), "stopped", reason=reason))
    text = status.text_of(found.config, told, NOW)
    assert "1 run of this heat ended early" in text and "single/heat0/nccl/dgx02: stopped, broken before" in text
    assert "\x1b" not in text


def test_of_a_long_journal_only_the_end_is_read(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-02]", 0)
    path = live.run(found, "nccl", "dgx01", 600, 60, NOW, {"dgx01": {"tools": {"x" * 200: "pass"}}})
    assert path.stat().st_size > 3 * (status.TAIL + status.TAIL_OF_NODE)
    records, whole = journal.tail(path, status.TAIL)
    assert not whole and {r["type"] for r in records} == {"start", "end"}
    run = next(r for r in status.collect(found).runs if r.run_id == "single/heat0/nccl/dgx01")
    assert run.iterations == 600 and run.done == pytest.approx(600 / 720) and run.hours == pytest.approx(1 / 60)


def test_what_is_torn_or_asked_for_again_is_no_progress(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-02]", 0)
    path = live.run(found, "nccl", "dgx01", 3, 60, NOW)
    with path.open("ab") as file:
        file.write(b'{"type":"end","torn')
    run = next(r for r in status.collect(found).runs if r.run_id == "single/heat0/nccl/dgx01")
    assert run.state == "running" and run.iterations == 3
    book = journal.Journal(path)
    book.append({"type": "final", "time": NOW, "facts": {}})
    book.close()
    run = next(r for r in status.collect(found).runs if r.run_id == "single/heat0/nccl/dgx01")
    assert run.state == "queued" and run.done == 0


def test_a_look_at_256_nodes_is_cheap(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[001-256]", 0)
    for number in range(1, 257):
        live.run(found, "nccl", f"dgx{number:03d}", 10, 900, NOW, value=370 + number / 100)
    before = time.process_time()
    text = status.text_of(found.config, status.collect(Campaign(found.config)), NOW)
    assert time.process_time() - before < 3
    assert "... and 226 more; shown are those furthest behind" in text and "dgx001" in text


@pytest.mark.parametrize(
    ("hours", "text"), [(0.001, "4 s"), (0.5, "30 min"), (5.5, "5 h 30 min"), (24.0, "24 h"), (76.2, "3 d 4 h")]
)
def test_durations(hours: float, text: str) -> None:
    assert status.duration(hours) == text
