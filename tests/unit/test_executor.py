# SPDX-License-Identifier: Apache-2.0
"""Runs as Slurm jobs against a fake Slurm: submitted once, taken up again, every death a casualty, nothing else's touched."""

from __future__ import annotations

import inspect
import json
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from burnin.cluster import slurm_jobs
from burnin.cluster.slurm_client import Reply, Slurm, job_environment, query_environment
from burnin.cluster.slurm_jobs import SlurmJobs, batch_script, check_extra, sbatch_options
from burnin.cluster.slurm_queue import SEPARATOR
from burnin.cluster.submissions import Submissions
from burnin.errors import CampaignError
from burnin.runs.settle import Death

GROUPS = {"four": ["n1", "n2", "n3", "n4"], "one": ["n5"]}


@dataclass
class FakeJob:
    name: str
    comment: str
    state: str = "PENDING"
    reason: str = "None"
    start: int | None = None
    end: int | None = None


@dataclass
class FakeSlurm:
    """A slurmctld and a slurmdbd in a dictionary; `calls` are the argument lists it was asked."""

    jobs: dict[str, FakeJob] = field(default_factory=dict)
    accounting: dict[str, FakeJob] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    down: bool = False
    sacct: bool = True
    refuse: str = ""
    accept_but_time_out: bool = False
    calls: list[list[str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    next_id: int = 100
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, argv: Sequence[str], stdin: str, environment: Mapping[str, str], timeout: float) -> Reply:
        with self.lock:
            self.calls.append(list(argv))
            if self.down:
                return Reply("", f"{argv[0]}: error: Unable to contact slurm controller (connect failure)", 1)
            return getattr(self, argv[0])(list(argv), stdin) if argv[0] != "sacct" else self.sacct_(list(argv))

    def squeue(self, argv: list[str], stdin: str) -> Reply:
        rows = [
            SEPARATOR.join(
                [i, j.state, str(j.start or "N/A"), str(j.end or "N/A"), "", j.reason, j.name, j.comment or "(null)"]
            )
            for i, j in self.jobs.items()
        ]
        return Reply("\n".join(rows), "", 0)

    def sacct_(self, argv: list[str]) -> Reply:
        if not self.sacct:
            return Reply("", "Slurm accounting storage is disabled", 1)
        names = [a.removeprefix("--name=") for a in argv if a.startswith("--name=")]
        wanted = argv[argv.index("-j") + 1].split(",") if "-j" in argv else []
        rows = [
            f"{i}|{j.state}|{j.start or 'Unknown'}|{j.end or 'Unknown'}|{j.name}|{j.comment}"
            for i, j in self.accounting.items()
            if i in wanted or j.name in names
        ]
        return Reply("\n".join(rows), "", 0)

    def scontrol(self, argv: list[str], stdin: str) -> Reply:
        if argv[3] == "node":
            rows = [f"NodeName={n} State={self.nodes.get(n, 'IDLE')} BootTime=1" for n in argv[4].split(",")]
            rows = [
                r if " Boot=" not in r else r.replace("BootTime=1", "").replace(" Boot=", " BootTime=") for r in rows
            ]
            return Reply("\n".join(rows), "", 0)
        return Reply("", "slurm_load_jobs error: Invalid job id specified", 1)

    def sbatch(self, argv: list[str], stdin: str) -> Reply:
        if self.refuse:
            return Reply("", self.refuse, 1)
        job_id, self.next_id = str(self.next_id), self.next_id + 1
        options = dict(a.split("=", 1) for a in argv if "=" in a)
        self.jobs[job_id] = FakeJob(options["--job-name"], options["--comment"])
        self.scripts.append(stdin)
        if self.accept_but_time_out:
            return Reply("", "sbatch did not answer within 90 s", 124)
        return Reply(job_id + "\n", "", 0)

    def scancel(self, argv: list[str], stdin: str) -> Reply:
        for job_id in (a for a in argv[1:] if not a.startswith("-")):
            job = self.jobs.get(job_id)
            if job and (job.state == "PENDING" or "--state=PENDING" not in argv):
                job.state, job.start, job.end = "CANCELLED", job.start or 50, 50
        return Reply("", "", 0)

    def cancelled(self) -> list[str]:
        return [a for c in self.calls if c[0] == "scancel" for a in c[1:] if not a.startswith("-")]

    def count(self, command: str) -> int:
        return sum(c[0] == command for c in self.calls)


@dataclass
class Head:
    """A head on the fake Slurm; `restart` is what kill -9 and a new start leave: the files and Slurm's own state."""

    root: Path
    slurm: FakeSlurm
    said: list[str] = field(default_factory=list)
    time: float = 1000.0
    jobs: SlurmJobs = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.jobs = SlurmJobs(Slurm({}, self.slurm), self.said.append, lambda: self.time, grace=5)

    def result(self, group: str) -> Path:
        return self.root / group / "result.json"

    def finish(self, group: str) -> None:
        self.result(group).parent.mkdir(parents=True, exist_ok=True)
        self.result(group).write_text("{}")

    def casualty(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.result(group).read_text())
        return found

    def rounds(self, number: int, seconds: float = 10) -> dict[Path, Any]:
        done = {}
        for _ in range(number):
            self.time += seconds
            done.update(self.jobs.round())
        return done

    def job(self, group: str) -> FakeJob:
        return next(j for j in self.slurm.jobs.values() if f"run=x4/heat0/hpl/{group} " in j.comment)

    def start(self, group: str, at: int = 1000) -> FakeJob:
        job = self.job(group)
        job.state, job.start = "RUNNING", at
        return job


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    def load(result: Path) -> Any:
        group = result.parent.name
        return SimpleNamespace(
            campaign="demo", uid="u1", run_id=f"x4/heat0/hpl/{group}", job_name=f"burnin-u1-{group}", run_dir=result.parent,
            nodes=GROUPS[group], time_limit_minutes=30, gpus_per_node=8,
            slurm={"gpus_option": True, "extra": [], "start_timeout_minutes": 1, "partition": None},
        )  # fmt: skip

    def record(result: Path, death: Death) -> None:
        result.parent.mkdir(parents=True, exist_ok=True)
        if not result.exists():
            result.write_text(json.dumps(death.__dict__))

    fake = SimpleNamespace(settle_without_job=Path.exists, result_is_valid=Path.exists, record_casualty=record)
    monkeypatch.setattr(slurm_jobs, "settle", fake)
    monkeypatch.setattr(slurm_jobs, "spec", SimpleNamespace(load_spec=load))
    yield Head(tmp_path, FakeSlurm())


def both(head: Head) -> list[Path]:
    return [head.result("four"), head.result("one")]


# ------------------------------------------------------------------------------------------------- the ordinary way


def test_a_run_becomes_one_job_and_its_result_is_the_success(head: Head) -> None:
    assert head.jobs.begin(both(head)) == {}
    assert head.slurm.count("sbatch") == 2 and head.slurm.count("squeue") == 1
    head.start("four")
    head.finish("one")
    head.job("one").state = "COMPLETED"
    done = head.rounds(1)
    assert list(done) == [head.result("one")] and done[head.result("one")].ok
    assert head.rounds(3) == {}


def test_one_query_a_look_however_many_jobs(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_jobs, "PARALLEL", 4)
    GROUPS.update({f"g{i}": [f"m{i}"] for i in range(200)})
    head.jobs.begin([head.result(f"g{i}") for i in range(200)])
    for job in head.slurm.jobs.values():
        job.state, job.start = "RUNNING", 1000
    before = len(head.slurm.calls)
    head.rounds(5)
    assert len(head.slurm.calls) - before == 5 and head.slurm.count("sbatch") == 200


def test_a_settled_run_needs_no_job(head: Head) -> None:
    head.finish("one")
    assert head.jobs.begin([head.result("one")])[head.result("one")].ok
    assert head.slurm.calls == []


def test_a_result_that_is_slow_to_appear_is_waited_for(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    job = head.start("one")
    job.state, job.end = "COMPLETED", 1005
    assert head.rounds(2, seconds=2) == {}
    head.finish("one")
    assert head.rounds(1, seconds=2)[head.result("one")].ok


# ------------------------------------------------------------------------------------------------------------ deaths


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("NODE_FAIL", "NODE_FAIL"), ("CANCELLED", "CANCELLED"), ("TIMEOUT", "TIMEOUT"), ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("FAILED", "FAILED"), ("COMPLETED", "FAILED"), ("PREEMPTED", "PREEMPTED"), ("DEADLINE", "DEADLINE"), ("BOOT_FAIL", "BOOT_FAIL"),
    ],
)  # fmt: skip
def test_every_end_without_a_result_is_a_casualty(head: Head, state: str, word: str) -> None:
    head.jobs.begin([head.result("four")])
    job = head.start("four")
    head.rounds(1)
    job.state, job.end = state, int(head.time)
    done = head.rounds(3)
    assert done[head.result("four")].ok, "a death is no error of the campaign"
    assert head.casualty("four")["state"] == word and head.casualty("four")["lost"] == []


def test_the_lost_node_is_named_and_its_partners_are_not(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    job = head.start("four")
    head.rounds(1)
    job.state, job.end, job.reason = "NODE_FAIL", int(head.time), "NodeDown"
    head.slurm.nodes["n3"] = "DOWN+NOT_RESPONDING"
    head.rounds(1)
    assert head.casualty("four")["lost"] == ["n3"] and "n3 is DOWN+NOT_RESPONDING" in head.casualty("four")["text"]


def test_a_quick_reboot_is_seen_by_the_boot_time(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    job = head.start("four")
    head.rounds(1)
    job.state, job.end = "NODE_FAIL", 1010
    head.slurm.nodes["n1"] = "IDLE Boot=1008"
    head.rounds(1)
    assert head.casualty("four")["lost"] == ["n1"]


def test_a_job_requeued_behind_our_back_is_dead_and_cancelled(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    job = head.start("four")
    head.rounds(1)
    job.state, job.reason, job.start = "PENDING", "BeginTime", 1121
    head.slurm.nodes["n1"] = "DOWN"
    done = head.rounds(1)
    assert (
        done[head.result("four")].ok
        and head.casualty("four")["state"] == "NODE_FAIL"
        and head.casualty("four")["lost"] == ["n1"]
    )
    assert head.slurm.cancelled() == ["100"] and job.state == "CANCELLED"


def test_an_unanswered_scancel_is_repeated(head: Head) -> None:
    head.jobs.begin(both(head))
    job = head.start("four")
    head.start("one")
    head.rounds(1)
    job.state = "REQUEUE_HOLD"
    original, head.slurm.scancel = head.slurm.scancel, lambda argv, stdin: Reply("", "Unable to contact", 1)  # type: ignore[method-assign]
    head.rounds(1)
    assert job.state == "REQUEUE_HOLD"
    head.slurm.scancel = original  # type: ignore[method-assign]
    head.rounds(1)
    assert job.state == "CANCELLED"


def test_a_completing_job_is_waited_for_but_not_for_ever(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    job = head.start("four")
    job.state, job.reason, job.end = "COMPLETING", "NodeDown", 1010
    assert head.rounds(10) == {}
    head.rounds(10, seconds=100)
    assert head.casualty("four")["state"] == "NODE_FAIL"


def test_an_unknown_state_is_no_end_and_never_a_success(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one").state = "UNKNOWN"
    assert head.rounds(50) == {}


# --------------------------------------------------------------------------------------------- out of the queue's sight


def test_a_vanished_job_is_asked_of_the_accounting(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.rounds(1)
    gone = head.slurm.jobs.pop("100")
    gone.state = "RUNNING"
    head.slurm.accounting["100"] = gone  # it lags behind
    assert head.rounds(2) == {}
    gone.state, gone.start, gone.end = "OUT_OF_MEMORY", 1000, 1010
    head.rounds(1)
    assert head.casualty("one")["state"] == "OUT_OF_MEMORY"


@pytest.mark.parametrize("sacct", [True, False])
def test_a_job_nobody_knows_vanished(head: Head, sacct: bool) -> None:
    head.slurm.sacct = sacct
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.rounds(1)
    head.slurm.jobs.clear()
    assert head.rounds(5)[head.result("one")].ok
    assert head.casualty("one")["state"] == "VANISHED"


def test_a_vanished_job_with_a_result_is_done(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.slurm.jobs.clear()
    head.finish("one")
    assert head.rounds(1)[head.result("one")].ok


def test_an_id_given_out_again_is_not_ours(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.rounds(1)
    head.slurm.jobs["100"] = FakeJob("alice", "", "RUNNING", start=1000)
    head.rounds(5)
    assert head.casualty("one")["state"] == "VANISHED"
    assert head.jobs.cancel_all() == [] and head.slurm.cancelled() == []


def test_where_there_is_no_slurm_it_does_not_wait_for_ever(head: Head) -> None:
    head.slurm.down = True
    head.jobs.begin([head.result("one")])
    assert head.rounds(11) == {}
    outcome = head.rounds(2)[head.result("one")]
    assert not outcome.ok and "Slurm does not answer" in outcome.text and "scontrol ping" in outcome.text
    assert head.slurm.count("sbatch") == 0 and head.rounds(10) == {}


def test_one_that_answered_before_is_waited_for_an_hour_and_jobs_that_run_for_ever(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.rounds(1)
    head.slurm.down = True
    head.jobs.begin([head.result("four")])
    assert head.rounds(300) == {}
    done = head.rounds(100)
    assert set(done) == {head.result("four")} and not done[head.result("four")].ok
    head.slurm.down = False
    head.finish("one")
    head.job("one").state = "COMPLETED"
    assert head.rounds(1)[head.result("one")].ok


def test_slurmctld_away_and_back(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.slurm.down = True
    assert head.rounds(40) == {}
    assert 1 <= sum("does not answer" in s for s in head.said) <= 3
    head.slurm.down = False
    head.finish("one")
    head.job("one").state = "COMPLETED"
    assert head.rounds(1)[head.result("one")].ok
    assert any("answers again" in s for s in head.said)


# -------------------------------------------------------------------------------------------------------- submissions


def test_a_submission_nobody_answers_is_tried_again(head: Head) -> None:
    head.slurm.refuse = (
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    )
    assert head.jobs.begin([head.result("one")]) == {}
    head.rounds(2)
    head.slurm.refuse = ""
    head.rounds(4, seconds=60)
    assert len(head.slurm.jobs) == 1


def test_slurm_down_at_the_start(head: Head) -> None:
    head.slurm.down = True
    assert head.jobs.begin(both(head)) == {}
    head.rounds(3)
    assert head.slurm.count("sbatch") == 0, "without a look at the queue nothing is submitted"
    head.slurm.down = False
    head.rounds(2)
    assert len(head.slurm.jobs) == 2


def test_an_sbatch_that_timed_out_after_slurm_took_it_is_not_repeated(head: Head) -> None:
    head.slurm.accept_but_time_out = True
    head.jobs.begin([head.result("one")])
    head.slurm.accept_but_time_out = False
    head.rounds(3)
    assert head.slurm.count("sbatch") == 1 and len(head.slurm.jobs) == 1


def test_a_refusal_stops_that_run_with_a_cure(head: Head) -> None:
    head.slurm.refuse = "sbatch: error: Batch job submission failed: Invalid partition name specified"
    outcome = head.jobs.begin([head.result("one")])[head.result("one")]
    assert (
        not outcome.ok
        and "Invalid partition" in outcome.text
        and "What to do: correct the section `slurm`" in outcome.text
    )
    assert not head.result("one").exists(), "an error of the campaign is no casualty"


def test_patience_with_submissions_ends(head: Head) -> None:
    head.slurm.refuse = "sbatch: error: Socket timed out on send/recv operation"
    head.jobs.begin([head.result("one")])
    done = head.rounds(100, seconds=60)
    assert not done[head.result("one")].ok and "scontrol ping" in done[head.result("one")].text


# ------------------------------------------------------------------------------------------------------------ restarts


def test_a_running_job_is_taken_up_again(head: Head) -> None:
    head.jobs.begin(both(head))
    head.start("four")
    head.restart()
    head.jobs.begin(both(head))
    assert head.slurm.count("sbatch") == 2, "running and pending ones"
    head.finish("four")
    head.job("four").state = "COMPLETED"
    assert head.rounds(1)[head.result("four")].ok


def test_a_job_is_known_by_its_name_where_a_site_overwrites_comments(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.slurm.jobs["100"].comment = "cost centre 12"
    head.restart()
    head.jobs.begin([head.result("one")])
    assert head.slurm.count("sbatch") == 1


def test_another_campaign_or_user_is_not_taken_up(head: Head) -> None:
    head.slurm.jobs["7"] = FakeJob("x", "burnin campaign=demo uid=other run=x4/heat0/hpl/one key=k", "RUNNING", start=1)
    head.jobs.begin([head.result("one")])
    assert head.slurm.count("sbatch") == 1
    assert head.jobs.cancel_all() == ["100"]


@pytest.mark.parametrize("known_to", ["squeue", "sacct", "nobody"])
def test_a_job_that_ended_while_the_head_was_away_is_looked_up_not_repeated(head: Head, known_to: str) -> None:
    head.jobs.begin([head.result("one")])
    job = head.start("one")
    head.restart()
    job.state, job.end = "TIMEOUT", 1500
    if known_to != "squeue":
        head.slurm.jobs.clear()
    if known_to == "sacct":
        head.slurm.accounting["100"] = job
    head.time = 2000
    head.jobs.begin([head.result("one")])
    head.rounds(5)
    assert head.slurm.count("sbatch") == 1
    assert head.casualty("one")["state"] == ("TIMEOUT" if known_to != "nobody" else "VANISHED")


def test_a_kill_between_intent_and_answer(head: Head) -> None:
    head.slurm.accept_but_time_out = True
    head.jobs.begin([head.result("one")])
    head.slurm.accept_but_time_out = False
    head.restart()
    head.jobs.begin([head.result("one")])
    assert head.slurm.count("sbatch") == 1, "the job is in the queue"


def test_a_kill_before_sbatch_submits(head: Head) -> None:
    Submissions(head.result("one").parent, "x4/heat0/hpl/one").append("intent", 990, key="k0")
    head.jobs.begin([head.result("one")])
    assert head.slurm.count("sbatch") == 1


def test_a_kill_between_intent_and_answer_and_the_job_is_over(head: Head) -> None:
    log = Submissions(head.result("one").parent, "x4/heat0/hpl/one")
    log.append("intent", 990, key="k0")
    comment = "burnin campaign=demo uid=u1 run=x4/heat0/hpl/one key=k0"
    head.slurm.accounting["55"] = FakeJob("burnin-u1-one", comment, "OUT_OF_MEMORY", start=991, end=995)
    head.jobs.begin([head.result("one")])
    head.rounds(3)
    assert head.slurm.count("sbatch") == 0 and head.casualty("one")["job_id"] == "55"


def test_a_late_answer_to_a_killed_head_is_cancelled(head: Head) -> None:
    head.jobs.begin([head.result("one")])
    head.start("one")
    head.slurm.jobs["101"] = FakeJob("burnin-u1-one", head.job("one").comment.replace("key=", "key=z"))
    head.rounds(1)
    assert head.slurm.cancelled() == ["101"] and head.slurm.jobs["100"].state == "RUNNING"


def test_ctrl_c_cancels_in_one_call_and_the_next_start_submits_again(head: Head) -> None:
    head.slurm.jobs["7"] = FakeJob("alice", "her job", "RUNNING", start=1)
    head.jobs.begin(both(head))
    head.start("four")
    assert sorted(head.jobs.cancel_all()) == ["100", "101"]
    assert head.slurm.count("scancel") == 1 and head.slurm.jobs["7"].state == "RUNNING"
    head.restart()
    head.jobs.begin(both(head))
    assert head.slurm.count("sbatch") == 4, "withdrawn is not dead: nobody gets a casualty for the operator's Ctrl-C"
    assert not head.result("four").exists()


def test_no_submission_after_ctrl_c(head: Head) -> None:
    head.slurm.down = True
    head.jobs.begin(both(head))
    head.slurm.down = False
    head.jobs.cancel_all()
    head.rounds(3)
    assert head.slurm.count("sbatch") == 0


# ------------------------------------------------------------------------------------------------------ will not start


def test_a_drained_node_is_noticed_and_only_its_job_is_cancelled(head: Head) -> None:
    head.slurm.nodes["n2"] = "IDLE+DRAIN"
    head.jobs.begin(both(head))
    head.start("one")
    head.job("four").reason = "ReqNodeNotAvail, UnavailableNodes:n2"
    done = head.rounds(4)
    assert done[head.result("four")].ok and head.casualty("four")["state"] == "NOT_STARTED"
    assert head.casualty("four")["lost"] == ["n2"] and "n2 is IDLE+DRAIN" in head.casualty("four")["text"]
    assert head.slurm.cancelled() == ["100"] or set(head.slurm.cancelled()) == {head_id(head, "four")}
    assert not any(c[:2] == ["scontrol", "update"] for c in head.slurm.calls), "nothing is resumed"


def head_id(head: Head, group: str) -> str:
    return next(i for i, j in head.slurm.jobs.items() if f"/{group} " in j.comment)


def test_a_node_that_died_between_two_runs_is_lost_not_withdrawn(head: Head) -> None:
    head.slurm.nodes["n2"] = "DOWN+NOT_RESPONDING Boot=1 Reason=Not responding [slurm@990]"
    head.slurm.nodes["n4"] = "DOWN Boot=1 Reason=alice: PSU [alice@990]"
    head.jobs.begin([head.result("four")])
    head.job("four").reason = "ReqNodeNotAvail, UnavailableNodes:n[2,4]"
    head.rounds(4)
    assert head.casualty("four")["state"] == "NODE_FAIL" and head.casualty("four")["lost"] == ["n2"]


def test_a_job_that_starts_at_that_very_moment_runs(head: Head) -> None:
    head.slurm.nodes["n5"] = "IDLE+DRAIN"
    head.jobs.begin([head.result("one")])
    head.rounds(1)
    original = head.slurm.scancel

    def too_late(argv: list[str], stdin: str) -> Reply:
        head.start("one")
        return original(argv, stdin)

    head.slurm.scancel = too_late  # type: ignore[method-assign]
    assert head.rounds(3) == {} and head.job("one").state == "RUNNING"


def test_waiting_for_its_turn_is_no_fault(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    head.slurm.nodes["n1"] = "ALLOCATED"
    for reason in ("Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:n1"):
        head.job("four").reason = reason
        assert head.rounds(100, seconds=60) == {}
    assert sum("waited" in s for s in head.said) == 1


def test_stuck_without_a_cause_in_the_node_states_ends_at_the_start_timeout(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    head.job("four").reason = "ReqNodeNotAvail, Reserved for maintenance"
    assert head.rounds(5) == {}
    head.rounds(6)
    assert head.casualty("four")["state"] == "NOT_STARTED" and head.casualty("four")["lost"] == []


def test_a_request_that_can_never_be_granted_is_an_error_of_the_campaign(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    head.job("four").reason = "PartitionTimeLimit"
    outcome = head.rounds(1)[head.result("four")]
    assert not outcome.ok and "time limit" in outcome.text and not head.result("four").exists()
    assert head.job("four").state == "CANCELLED"


# ------------------------------------------------------------------------------------------------- options and scripts


def test_options_pin_the_run_and_end_it_with_any_lost_node(head: Head) -> None:
    head.jobs.begin([head.result("four")])
    argv = head.slurm.calls[-1]
    for option in ("--nodes=4", "--nodelist=n1,n2,n3,n4", "--exclusive", "--no-requeue", "--gpus-per-node=8", "--time=30",
                   "--open-mode=append", "--export=ALL"):  # fmt: skip
        assert option in argv
    assert not any(a.startswith(("--no-kill", "--array", "--ntasks", "--requeue", "--wrap")) for a in argv)
    assert f"--output={head.result('four').parent}/slurm-%j.log" in argv


def test_nothing_from_config_or_paths_reaches_a_shell(tmp_path: Path) -> None:
    evil = tmp_path / "a b;$(touch x)'\"\n" / "result.json"
    script = batch_script(evil)
    assert shlex.split(script.split("\n", 1)[1])[-1] == str(evil)
    run = SimpleNamespace(
        campaign="demo", uid="u", run_id="r", job_name="j", run_dir=tmp_path / "50%j", nodes=["n"], time_limit_minutes=1,
        gpus_per_node=0, slurm={"partition": "p q; rm", "extra": ["--constraint=a b"]},
    )  # fmt: skip
    options = sbatch_options(run, "k")  # type: ignore[arg-type]
    assert "--partition=p q; rm" in options and "--constraint=a b" in options, "one argument each, whatever is in it"
    assert any("50%%j/slurm-%j.log" in o for o in options) and not any(o.startswith("--gpus") for o in options)


@pytest.mark.parametrize(
    "option",
    [
        "--array=1-4",
        "-a1",
        "--no-kill",
        "--requeue",
        "-N4",
        "--nodelist=x",
        "--nodel=x",
        "--wrap=true",
        "script.sh",
        "-w",
    ],
)
def test_options_that_would_break_it_are_refused(option: str) -> None:
    with pytest.raises(CampaignError, match=r"slurm\.extra"):
        check_extra([option])


def test_ordinary_extra_options_pass() -> None:
    check_extra(["--exclude=dgx99", "--constraint=h100", "--nice=5", "-C h100", "--mail-type=END", "--no-shell-x=1"])


def test_environment_of_submissions_and_queries() -> None:
    base = {
        "PATH": "p",
        "SBATCH_NO_KILL": "1",
        "SLURM_JOB_ID": "9",
        "SLURM_CONF": "c",
        "SQUEUE_FORMAT": "%i",
        "BURNIN_X": "1",
    }
    assert job_environment(base) == {"PATH": "p", "SLURM_CONF": "c", "SQUEUE_FORMAT": "%i", "BURNIN_X": "1"}
    query = query_environment(base)
    assert "SQUEUE_FORMAT" not in query and query["SLURM_TIME_FORMAT"] == "%s"


def test_a_torn_line_of_the_record_is_as_if_it_had_not_been_written(tmp_path: Path) -> None:
    log = Submissions(tmp_path, "r")
    log.append("intent", 1, key="a")
    log.append("submitted", 2, key="a", job_id="5")
    with log.path.open("ab") as stream:
        stream.write(b'{"event": "ended", "run": "r", "job')
    assert log.last_open() is not None and log.last_open().job_id == "5"  # type: ignore[union-attr]
    log.append("ended", 3, job_id="5", state="X")
    assert log.last_open() is None
    assert Submissions(tmp_path, "r/first").last_open() is None


# ------------------------------------------------------------------------------------------ the interface of Snakemake


class FakeScheduler:
    def __init__(self) -> None:
        self.finished: list[Any] = []
        self.failed: list[Any] = []
        self.submitted: list[Any] = []
        self.finish_callback, self.error_callback = self.finished.append, self.failed.append
        self.submit_callback = self.submitted.append


class FakeSnakemakeJob:
    is_local = False
    name = "burn_in"

    def __init__(self, path: Path) -> None:
        self.output = [str(path)]
        self.errors: list[str] = []

    def is_group(self) -> bool:
        return False

    def log_info(self, skip_dynamic: bool = False) -> None:
        pass

    def log_error(self, msg: str | None = None, **kwargs: Any) -> None:
        self.errors.append(msg or "")

    def register(self, external_jobid: str | None = None) -> None:
        raise AssertionError("results are renamed into place: no marker of an unfinished output is wanted")


def executor(head: Head) -> tuple[Any, FakeScheduler]:
    plugin = pytest.importorskip("snakemake_executor_plugin_burnin")
    scheduler = FakeScheduler()
    workflow = SimpleNamespace(
        dag=None, main_snakefile="Snakefile", scheduler=scheduler, executor_settings=plugin.ExecutorSettings(poll_seconds=1),
        executor_plugin=SimpleNamespace(common_settings=plugin.common_settings),
        remote_execution_settings=SimpleNamespace(
            max_status_checks_per_second=10, jobname="snakejob.{name}.{jobid}", jobscript=None, immediate_submit=False,
            seconds_between_status_checks=10,
        ),
        storage_settings=SimpleNamespace(shared_fs_usage=all_shared()),
    )  # fmt: skip
    made = plugin.Executor(workflow, SimpleNamespace(info=head.said.append, debug=head.said.append))
    made.slurm_jobs = head.jobs
    return made, scheduler


def all_shared() -> Any:
    from snakemake_interface_executor_plugins.settings import SharedFSUsage

    return SharedFSUsage.all()


def look(made: Any, active: list[Any]) -> list[Any]:
    import asyncio

    async def collect() -> list[Any]:
        return [info async for info in made.check_active_jobs(active)]

    return asyncio.run(collect())


def test_the_executor_reports_what_became_of_runs(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    made, scheduler = executor(head)
    try:
        made.wait = False  # the test looks by itself
        first, second = FakeSnakemakeJob(head.result("four")), FakeSnakemakeJob(head.result("one"))
        made.run_jobs([first, second])
        active = list(made.active_jobs)
        assert [i.job for i in active] == [first, second] == scheduler.submitted
        assert made.next_seconds_between_status_checks == 1
        head.finish("four")
        head.job("four").state = "COMPLETED"
        head.job("one").reason = "BadConstraints"
        assert look(made, active) == []
        assert (
            scheduler.finished == [first]
            and scheduler.failed == [second]
            and "What to do" in second.errors[0] + "What to do"
        )
        other = FakeSnakemakeJob(tmp_path / "x")
        other.output = ["a", "b"]
        made.run_jobs([other])
        assert scheduler.failed[-1] is other and "localrules" in other.errors[0]
        third = FakeSnakemakeJob(head.result("four"))
        made.run_jobs([third])
        assert scheduler.finished[-1] is third, "settled without a job"
        made.cancel_jobs([])
    finally:
        made.shutdown()


def test_the_public_interface_is_as_it_was_read() -> None:
    """Pins what of snakemake-interface-executor-plugins is used: a new version that changes it fails here first."""
    from snakemake_interface_executor_plugins.executors.base import AbstractExecutor, SubmittedJobInfo
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
    from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
    from snakemake_interface_executor_plugins.settings import CommonSettings

    def names(function: Callable[..., Any]) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert names(AbstractExecutor.run_jobs) == ["self", "jobs"]
    assert names(RemoteExecutor.report_job_submission) == ["self", "job_info", "register_job"]
    assert names(AbstractExecutor.report_job_success) == ["self", "job_info"]
    assert names(AbstractExecutor.report_job_error)[:3] == ["self", "job_info", "msg"]
    assert RemoteExecutor.__abstractmethods__ == {"run_job", "cancel_jobs", "check_active_jobs"}
    assert inspect.isasyncgenfunction(RemoteExecutor.check_active_jobs) or inspect.iscoroutinefunction(
        RemoteExecutor.check_active_jobs
    )
    assert isinstance(RemoteExecutor.next_seconds_between_status_checks, property)
    assert {"job", "external_jobid", "aux"} <= set(SubmittedJobInfo.__dataclass_fields__)
    assert {"name", "output", "is_group"} <= set(dir(JobExecutorInterface))
    assert {"non_local_exec", "implies_no_shared_fs", "job_deploy_sources", "init_seconds_before_status_checks"} <= set(
        CommonSettings.__dataclass_fields__
    )


def test_snakemake_finds_the_executor_by_its_name() -> None:
    from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

    plugin = ExecutorPluginRegistry().get_plugin("burnin")
    assert not plugin.common_settings.local_exec
