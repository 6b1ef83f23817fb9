# SPDX-License-Identifier: Apache-2.0
"""What squeue, scontrol, sacct and sbatch print is read as it is, and junk is nothing."""

from __future__ import annotations

import pytest
from burnin.cluster import slurm_queue as q
from hypothesis import given
from hypothesis import strategies as st

US = q.SEPARATOR


def line(*columns: str) -> str:
    return US.join(columns)


def job(state: str = "PENDING", reason: str = "None", **kw: object) -> q.QueueJob:
    values: dict[str, object] = {
        "job_id": "7", "state": state, "start": None, "end": None, "nodes": "", "reason": reason, "name": "n", "comment": "",
    }  # fmt: skip
    return q.QueueJob(**{**values, **kw})  # type: ignore[arg-type]


NODE = (
    "NodeName=dgx02 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 Gres=gpu:8 OS=Linux 6.1 #1 SMP State=X@0 "
    "State={state} ThreadsPerCore=1 BootTime={boot} SlurmdStartTime=1796054816 ExtSensorsTemp=n/s{tail}"
)


def node(state: str, boot: str = "1000", tail: str = "") -> q.Node:
    return q.parse_show_node(NODE.replace("State=X@0 ", "").format(state=state, boot=boot, tail=tail))["dgx02"]


def test_squeue_of_a_real_cluster() -> None:
    text = "\n".join(
        [
            line(
                "10",
                "RUNNING",
                "1796055036",
                "1796058636",
                "dgx[01-04]",
                "None",
                "burnin-b",
                "burnin campaign=a uid=b run=x key=k",
            ),
            line("11", "PENDING", "N/A", "N/A", "", "ReqNodeNotAvail, UnavailableNodes:dgx05", "x|y", "(null)"),
        ]
    )
    jobs = q.parse_squeue(text)
    assert jobs["10"].start == 1796055036.0 and jobs["10"].started and jobs["10"].active
    assert (
        jobs["11"].reason == "ReqNodeNotAvail, UnavailableNodes:dgx05"
        and jobs["11"].comment == ""
        and not jobs["11"].started
    )


@given(st.text(max_size=300))
def test_junk_is_no_job_and_no_node(text: str) -> None:
    for found in (q.parse_squeue(text), q.parse_sacct(text), q.parse_show_node(text)):
        assert isinstance(found, dict)
    q.parse_show_job(text)
    q.submitted_id(text)
    q.mark_of(text)
    q.transient(text)


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_cut_line_is_passed_over(cut: int) -> None:
    whole = line("10", "RUNNING", "1", "2", "dgx01", "None", "name", "comment")
    assert set(q.parse_squeue(whole + "\n" + whole[:cut].replace("10", "12", 1))) <= {"10", "12"}
    assert q.parse_squeue(line("1_[1-4]", "PENDING", "", "", "", "", "", "")) == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [("CANCELLED by 1000", "CANCELLED"), ("NODE_FAIL+", "NODE_FAIL"), ("", ""), ("completed", "COMPLETED")],
)
def test_state_words(text: str, word: str) -> None:
    assert q.state_word(text) == word


@pytest.mark.parametrize(
    ("text", "value"), [("Unknown", None), ("N/A", None), ("0", None), ("12", 12.0), ("None", None)]
)
def test_times(text: str, value: float | None) -> None:
    assert q.time_of(text) == value
    assert q.time_of("2026-11-30T16:00:00") is not None


def test_sacct_the_last_record_of_an_id_counts_and_the_comment_may_hold_anything() -> None:
    text = "5|NODE_FAIL|1|2|n|c\n5|COMPLETED|3|4|n|a|b\n5.batch|FAILED|1|2|n|\nsacct: error"
    assert q.parse_sacct(text)["5"].state == "COMPLETED" and q.parse_sacct(text)["5"].comment == "a|b"


def test_show_job() -> None:
    text = (
        "JobId=10 JobName=burnin-b UserId=root(0) JobState=NODE_FAIL Reason=NodeDown Restarts=0 StartTime=5 EndTime=9 "
        "NodeList=dgx[01-04] BatchHost=dgx01 Comment=burnin campaign=a uid=b run=x4/heat0 key=k  StdErr=/x"
    )
    found = q.parse_show_job(text)
    assert found and found.state == "NODE_FAIL" and q.is_ours(found, "b", "x4/heat0", "other")
    assert q.parse_show_job("slurm_load_jobs error: Invalid job id specified") is None


def test_show_node_state_reason_and_when() -> None:
    down = node("DOWN+NOT_RESPONDING", tail=" Reason=Not responding [root@1796055061]")
    assert (
        down.states == {"DOWN", "NOT_RESPONDING"} and down.reason == "Not responding" and down.reason_time == 1796055061
    )
    assert q.unusable(down) and down.state == "DOWN+NOT_RESPONDING"
    assert "NOT_RESPONDING" in node("IDLE*").states and not q.unusable(node("IDLE*"))
    drained = node("IDLE+DRAIN", tail=" Reason=fan FAN6=0 RPM [alice@2026-11-30T16:11:01] Comment=hello")
    assert drained.reason == "fan FAN6=0 RPM" and q.unusable(drained) and drained.reason_time is not None


@pytest.mark.parametrize(
    ("reason", "state", "kind"),
    [
        ("Priority", "IDLE", "turn"),
        ("Resources", "ALLOCATED", "turn"),
        ("None", "IDLE", "turn"),
        ("Priority", "IDLE+DRAIN", "nodes"),
        ("ReqNodeNotAvail, UnavailableNodes:dgx02", "DOWN*", "nodes"),
        ("ReqNodeNotAvail, Reserved for maintenance", "IDLE+MAINTENANCE", "stuck"),
        ("ReqNodeNotAvail, UnavailableNodes:dgx02", "ALLOCATED", "turn"),
        ("ReqNodeNotAvail, UnavailableNodes:dgx02", "MIXED+DRAIN", "nodes"),
        ("JobHeldAdmin", "IDLE", "stuck"),
        ("PartitionNodeLimit", "IDLE", "hopeless"),
        ("QOSMaxNodePerJobLimit", "IDLE", "hopeless"),
        ("QOSMaxNodePerUserLimit", "IDLE", "turn"),
        ("PartitionDown", "IDLE", "turn"),
    ],
)
def test_why_a_job_is_pending(reason: str, state: str, kind: str) -> None:
    why = q.why_pending(job(reason=reason), ["dgx01", "dgx02"], {"dgx02": node(state)})
    assert why.kind == kind
    if kind == "nodes":
        assert why.nodes == ["dgx02"]


def test_maintenance_names_the_node() -> None:
    why = q.why_pending(job(reason="ReqNodeNotAvail"), ["dgx02"], {"dgx02": node("IDLE+MAINTENANCE")})
    assert why.kind == "stuck" and why.nodes == ["dgx02"]


def lost(
    state: str, found: q.Node, start: float | None = 1000, end: float | None = 2000, now: float = 2010, text: str = ""
) -> list[str]:
    return [n.name for n in q.lost_nodes(state, start, end, now, ["dgx01", "dgx02"], {"dgx02": found}, text)]


def test_lost_nodes() -> None:
    assert lost("NODE_FAIL", node("DOWN+NOT_RESPONDING", tail=" Reason=Not responding [root@1999]")) == ["dgx02"]
    assert lost("NODE_FAIL", node("IDLE", boot="1500")) == ["dgx02"], "a quick reboot, back before anyone looked"
    assert lost("FAILED", node("IDLE", boot="1500")) == ["dgx02"], "the job ended by itself after the reboot"
    assert lost("NODE_FAIL", node("IDLE", boot="10")) == [], "the others are not lost"
    assert lost("CANCELLED", node("IDLE", boot="10")) == []
    assert lost("CANCELLED", node("IDLE", boot="9000"), now=9500) == [], "rebooted hours after the job: not its death"
    assert lost("CANCELLED", node("DOWN", boot="10", tail=" Reason=x [root@8000]"), now=9500) == []
    assert lost("NODE_FAIL", node("DOWN", boot="10", tail=" Reason=Not responding [root@1990]"), now=99999) == ["dgx02"]
    assert lost("NODE_FAIL", node("IDLE", boot="10"), text="srun: error: Node failure on dgx02\n") == ["dgx02"]
    assert lost("NODE_FAIL", node("DOWN"), start=None) == [], "it never ran"
    assert lost("NODE_FAIL", node("IDLE", boot="Unknown")) == []


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.",
        "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy",
    ],
)
def test_what_passes_by_itself(text: str) -> None:
    assert q.transient(text)


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "sbatch: error: Batch job submission failed: Invalid node name specified",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    ],
)
def test_what_does_not(text: str) -> None:
    assert not q.transient(text)


def test_submitted_id_and_mark() -> None:
    assert (
        q.submitted_id("12\n") == "12"
        and q.submitted_id("12;cluster\n") == "12"
        and q.submitted_id("Submitted 12") is None
    )
    mark = q.Mark("demo", "u1", "x4/heat0/hpl/dgx01x4-1a", "k")
    assert q.mark_of(mark.comment()) == mark
    assert q.mark_of("somebody's comment") is None
    assert not q.is_ours(job(comment=mark.comment()), "u2", mark.run_id, "n"), "the comment outweighs the name"
    assert q.is_ours(job(), "u1", mark.run_id, "n"), "a site overwrote the comment"
