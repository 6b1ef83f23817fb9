# SPDX-License-Identifier: Apache-2.0
"""What is told of a campaign: each fact once, with what people need, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnin import announcements, status
from burnin.campaign import Campaign

from tests import live

NOW = 1_800_000_000.0
ALL = [k for k in announcements.KINDS if k != "test"]


def told(
    found: Campaign, records: list[dict[str, Any]] | None = None, now: float = NOW
) -> list[tuple[str, str, list[str]]]:
    """Return (event, text, keys) of the messages that are due."""
    facts = announcements.facts(status.collect(found), found.summary(), now, 1.0)
    return [
        (m["event"], m["text"], keys)
        for m, keys in announcements.messages(announcements.due(facts, records or [], now), ALL)
    ]


def failing(tmp_path: Path) -> Campaign:
    """Return a campaign of four nodes, two of which failed in `single`."""
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    heat = found.projection()[0][0]
    findings = [live.finding(n, "single", "hpl") for n in ("dgx02", "dgx03")]
    gate = live.gate_of(found, heat, findings=findings, drained={"dgx02": "drained: burnin t: x"})
    for node in ("dgx02", "dgx03"):
        gate["outcome"][node] = "failed"
        gate["passed"][node] = ["nccl"]
    found.write_gate(gate)
    return found


def test_drop_outs_of_a_gate_are_one_message_and_the_step_another(tmp_path: Path) -> None:
    found = failing(tmp_path)
    drop, step = told(found)
    assert drop[0] == "drop_out" and drop[1].startswith(
        "dgx[02-03] dropped out in single/heat0: dgx02: gpu_off_bus on gpu5"
    )
    assert drop[2] == ["drop_out:single/heat0:dgx02", "drop_out:single/heat0:dgx03"]
    assert step[:2] == ("step_done", "single is done: 2 nodes passed it")


def test_who_is_withdrawn_or_could_not_be_cleared_is_told_too(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    gate = live.gate_of(found, found.projection()[0][0])
    gate["outcome"] |= {"dgx02": "withdrawn", "dgx03": "suspect", "dgx04": "suspect"}
    gate["withdrawn"] = {"dgx02": "alice: new PSU"}
    reason = {"workload": "nccl", "size": 1, "reason": "n[3-4]: it comes and goes"}
    gate["suspects"] = [{**reason, "nodes": [n], "unresolved": n == "dgx03"} for n in ("dgx03", "dgx04")]
    found.write_gate(gate)
    drop = next(m for m in told(found) if m[0] == "drop_out")
    assert drop[2] == ["drop_out:single/heat0:dgx02", "drop_out:single/heat0:dgx03"], "dgx04 is still being tested"
    assert "withdrawn, and nobody's fault: alice: new PSU" in drop[1] and "it comes and goes" in drop[1]


def test_what_was_told_is_not_told_again_and_what_is_new_is(tmp_path: Path) -> None:
    found = failing(tmp_path)
    keys = [k for *_, ks in told(found) for k in ks]
    known = [{"key": k, "state": "told", "time": NOW} for k in keys]
    assert told(found, known) == []
    assert [m[2] for m in told(found, [r for r in known if "dgx03" not in r["key"]])] == [
        ["drop_out:single/heat0:dgx03"]
    ]
    # the same node in another heat, after its repair, is another drop-out
    assert "drop_out:single/heat1:dgx02" not in keys


def test_an_intent_without_answer_is_not_repeated_and_a_failure_is_three_times_at_most(tmp_path: Path) -> None:
    fact = announcements.Fact("stopped", "k", "", "text")
    intent = {"key": "k", "state": "intent", "time": NOW}
    failed = {"key": "k", "state": "failed", "time": NOW}
    assert announcements.due([fact], [intent], NOW + 1e6) == []
    assert announcements.due([fact], [intent, failed], NOW + 1) == []
    assert announcements.due([fact], [intent, failed], NOW + 61) == [fact]
    assert announcements.due([fact], [intent, failed, intent, failed], NOW + 61) == []
    assert announcements.due([fact], [intent, failed, intent, failed], NOW + 601) == [fact]
    assert announcements.due([fact], [intent, failed] * 3, NOW + 1e6) == []


def test_hangs_and_stalls(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    live.run(found, "nccl", "dgx01", 3, 60, NOW - 7200)
    live.run(found, "nccl", "dgx02", 3, 60, NOW - 60)
    [(event, text, keys)] = told(found)
    assert event == "stall" and "single/heat0/nccl/dgx01 on dgx01 has given no sign of life for 2 h" in text
    assert keys == [f"stall:single/heat0/nccl/dgx01:{NOW - 7200:.0f}"]
    looked = status.collect(found)
    hung = status.Progress(
        "x2/heat0/nccl/g", "nccl", ("dgx03", "dgx04"), "stopped", reason="hang: silent for 300 s", ended=5.0
    )
    other = status.Progress("x2/heat0/hpl/g", "hpl", ("dgx03",), "stopped", reason="gpu_lost on dgx03", ended=5.0)
    looked.runs[:] = [hung, other]
    [fact] = announcements.facts(looked, found.summary(), NOW, 1.0)
    assert (fact.kind, fact.key) == ("hang", "hang:x2/heat0/nccl/g:5.0") and "dgx[03-04] hung" in fact.text


def test_the_end_is_told_and_told_anew_when_it_changes(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx01", 0, resume_test={"workload": None, "steps_after_checkpoint": 5})
    heat = found.projection()[0][0]
    found.write_gate(live.gate_of(found, heat))
    messages = told(found)
    assert [m[0] for m in messages] == ["step_done", "campaign_done"]
    assert messages[1][1] == "the campaign is accepted: 1 accepted (dgx01)" and messages[1][2] == [
        "campaign_done:1:accepted"
    ]


def test_a_stop_is_told_with_its_cure(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-02]", 0)
    stopped = {"kind": "config", "text": "out of memory on all nodes", "cure": "lower memory_fraction"}
    gate = live.gate_of(found, found.projection()[0][0], stopped=stopped)
    gate["outcome"] = dict.fromkeys(gate["outcome"], "owes")
    gate["passed"] = {}
    found.write_gate(gate)
    [(event, text, _)] = told(found)
    assert event == "stopped" and "lower memory_fraction" in text


def test_only_the_wanted_kinds_and_long_lists_are_cut() -> None:
    facts = [
        announcements.Fact("drop_out", str(i), "x2/heat0", f"n{i:03d}: fan", {"node": f"n{i:03d}"}) for i in range(64)
    ]
    [(said, keys)] = announcements.messages(
        [*facts, announcements.Fact("step_done", "s", "x2", "x2 is done")], ["drop_out"]
    )
    assert len(keys) == 64 and len(said["items"]) == 64
    assert said["text"].startswith("n[000-063] dropped out") and said["text"].endswith("and 59 more")
