# SPDX-License-Identifier: Apache-2.0
"""Runs as Slurm jobs: submitted once, taken up again after a restart, and every death turned into a casualty.

`SlurmJobs` knows nothing of Snakemake. It is told which results are wanted (`begin`), is asked at a constant pace what
became of them (`round`: one squeue for all), and says for each result that it is there, or why the campaign cannot go
on. A job that died is not an error: its result is the casualty that this module records.
"""

from __future__ import annotations

import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from burnin.cluster import slurm_queue
from burnin.cluster.slurm_client import Slurm
from burnin.cluster.slurm_queue import ENDED, REQUEUED, Mark, Node, QueueJob
from burnin.cluster.submissions import Submissions
from burnin.errors import CampaignError
from burnin.runs import settle, spec
from burnin.runs.settle import Death
from burnin.runs.spec import RunSpec

PARALLEL = 8  # submissions at a time: slurmctld takes some 25 a second, more of us would only queue up there
GRACE_SECONDS = 20.0  # a result written on a node may reach the head's view of shared storage this much later
SUBMIT_PATIENCE_SECONDS = 3600.0  # how long a submission is tried again while nobody answers
FIRST_PATIENCE_SECONDS = 120.0  # the same for a head that never got an answer: there may be no Slurm here at all
BACKOFF_SECONDS = (2.0, 5.0, 10.0, 30.0, 60.0)
COMPLETING_SECONDS = 900.0  # a job without a result that is still "completing" after this is counted as dead
REPEAT_SECONDS = 300.0  # the same trouble is told again after this

#: options that would break what this module relies on; each with what to do instead
FORBIDDEN = {
    "--array": "a run is one job", "-a": "a run is one job",
    "--no-kill": "a job that lost a node must end", "-k": "a job that lost a node must end",
    "--requeue": "a run must not be started behind our back",
    "--nodelist": "the plan pins every run", "-w": "the plan pins every run",
    "--nodefile": "the plan pins every run", "-F": "the plan pins every run",
    "--nodes": "the plan gives the size", "-N": "the plan gives the size",
    "--output": "the log belongs into the run directory", "-o": "the log belongs into the run directory",
    "--error": "the log belongs into the run directory", "-e": "the log belongs into the run directory",
    "--comment": "it tells our jobs from others", "--job-name": "it tells our jobs from others",
    "-J": "it tells our jobs from others",
    "--wrap": "the script is given", "--wait": "the head must not wait", "-W": "the head must not wait",
    "--test-only": "nothing would run", "--parsable": "it is given already",
    "--ntasks": "the launch line says it", "-n": "the launch line says it",
    "--ntasks-per-node": "the launch line says it", "--export": "the environment is given already",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a wanted result: it is there (`ok`), or the campaign cannot go on with it (`text` says why)."""

    ok: bool
    text: str = ""
    job_id: str | None = None


@dataclass
class Tracked:
    """A wanted result on its way. Without `job_id` it still has to be submitted."""

    result: Path
    spec: RunSpec
    log: Submissions
    job_id: str | None = None
    start: float | None = None  # when it got its nodes, as far as seen
    submitted: float = 0.0
    next_try: float = 0.0
    tries: int = 0
    first_try: float | None = None
    missing: int = 0  # looks in a row without the job
    broken: int = 0  # looks in a row at which a node's state forbade the start
    stuck_since: float | None = None
    told_waiting: bool = False
    ended_since: float | None = None  # COMPLETED or completing without a result, since then
    verdict: Death | None = None  # decided, waiting for Slurm to confirm that the job will not start any more

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return f"{self.spec.run_id} (Slurm job {self.job_id})" if self.job_id else self.spec.run_id

    def is_mine(self, job: QueueJob) -> bool:
        """Whether a job of the queue is this run's."""
        return slurm_queue.is_ours(job, self.spec.uid, self.spec.run_id, self.spec.job_name)


@dataclass
class _Dead:
    """A job that ended without a result, on its way to becoming a casualty."""

    tracked: Tracked
    state: str
    start: float | None
    end: float | None
    text: str
    fixed: Death | None = None


class SlurmJobs:
    """All runs of one head. Every public method may be called from any thread."""

    def __init__(
        self,
        slurm: Slurm,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.slurm, self.say, self.clock, self.grace = slurm, say, clock, grace
        self._jobs: dict[Path, Tracked] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._cancel: set[str] = set()  # declared dead or doubled, Slurm has not confirmed yet
        self._silent_since: float | None = None
        self._answered = False  # whether Slurm ever did
        self._told = 0.0

    # --- begin ------------------------------------------------------------------------------------------------------

    def begin(self, results: Iterable[Path]) -> dict[Path, Outcome]:
        """Make sure that a job exists for every result that needs one. Returns those that are settled already.

        Looks for jobs of an earlier head first (one squeue). What cannot be submitted now is tried again by `round`.
        """
        settled: dict[Path, Outcome] = {}
        with self._lock, ThreadPoolExecutor(PARALLEL) as pool:
            wanted: list[Tracked] = []
            try:
                for path, found in zip(results := list(results), pool.map(self._prepare, results), strict=True):
                    if isinstance(found, Outcome):
                        settled[path] = found
                    else:
                        wanted.append(found)
                        self._jobs[path] = found
                if wanted:
                    settled.update(self._start(wanted, self._look(), pool))
            except BaseException:  # Ctrl-C: what has not been submitted yet, is not
                self._stopping = True
                raise
        return settled

    def _prepare(self, result: Path) -> Outcome | Tracked:
        """Settle a result without a job, or say what has to run."""
        try:
            if settle.settle_without_job(result):
                return Outcome(True)
            run = spec.load_spec(result)
            check_extra(run.slurm.get("extra", []))
        except (CampaignError, OSError) as error:
            return Outcome(False, str(error))
        return Tracked(result, run, Submissions(run.run_dir, run.run_id))

    def _start(
        self, wanted: Sequence[Tracked], queue: Mapping[str, QueueJob] | None, pool: ThreadPoolExecutor
    ) -> dict[Path, Outcome]:
        """Take up or submit each; returns those that can go no further."""
        now = self.clock()
        if queue is None:
            for tracked in wanted:
                tracked.next_try = now + BACKOFF_SECONDS[0]
                tracked.first_try = tracked.first_try if tracked.first_try is not None else now
            return {}
        ours: dict[tuple[str, str], list[QueueJob]] = {}
        names: dict[str, list[QueueJob]] = {}
        for job in queue.values():
            mark = slurm_queue.mark_of(job.comment)
            if mark:
                ours.setdefault((mark.uid, mark.run_id), []).append(job)
            else:
                names.setdefault(job.name, []).append(job)

        def one(tracked: Tracked) -> Outcome | None:
            known = ours.get((tracked.spec.uid, tracked.spec.run_id), []) + names.get(tracked.spec.job_name, [])
            try:
                return self._take_up(tracked, known) or self._submit(tracked)
            except (CampaignError, OSError) as error:
                return Outcome(False, str(error))

        done = {}
        for tracked, outcome in zip(wanted, pool.map(one, wanted), strict=True):
            if outcome is not None and not (outcome.ok and outcome.job_id):
                done[tracked.result] = outcome
                self._jobs.pop(tracked.result, None)
        return done

    def _take_up(self, tracked: Tracked, known: Sequence[QueueJob]) -> Outcome | None:
        """Adopt a job of this run that an earlier head (or an unanswered sbatch) left; None if there is none."""
        closed = tracked.log.closed_ids()
        active = [job for job in known if job.active and job.job_id not in closed]
        if active:
            active.sort(key=lambda job: (not job.started, int(job.job_id)))
            tracked.job_id, tracked.start = active[0].job_id, active[0].start if active[0].started else None
            self._cancel.update(job.job_id for job in active[1:])
            last = tracked.log.last_open()
            if last is None or last.job_id != tracked.job_id:
                mark = slurm_queue.mark_of(active[0].comment)
                key = mark.key if mark else ""
                tracked.log.append("submitted", self.clock(), key=key, job_id=tracked.job_id, adopted=True)
            self.say(f"{tracked.name} is {active[0].state}: taken up again, not submitted a second time")
            return Outcome(True, job_id=tracked.job_id)
        last = tracked.log.last_open()
        if last is None:
            return None
        if last.job_id is None:
            same = [job for job in known if (m := slurm_queue.mark_of(job.comment)) and m.key == last.key]
            history = {} if same else self.slurm.history_of_name(tracked.spec.job_name, last.time - 60)
            same += [
                job for job in history.values()
                if job.job_id not in closed and (not (m := slurm_queue.mark_of(job.comment)) or m.key == last.key)
            ]  # fmt: skip
            if not same:
                tracked.log.append("refused", self.clock(), key=last.key, why="Slurm knows no job of this key")
                return None
            job_id = max(same, key=lambda job: int(job.job_id)).job_id
            tracked.log.append("submitted", self.clock(), key=last.key, job_id=job_id, adopted=True)
        else:
            job_id = last.job_id
        # submitted before and not in the queue: it ended while nobody looked; the next round finds out how
        tracked.job_id, tracked.submitted = job_id, last.time
        tracked.missing = 1
        return Outcome(True, job_id=job_id)

    def _submit(self, tracked: Tracked) -> Outcome | None:
        """Call sbatch once. None means: nobody answered, to be tried again."""
        if self._stopping:
            return None
        now = self.clock()
        key = secrets.token_hex(6)
        tracked.log.append("intent", now, key=key)
        reply = self.slurm.sbatch(sbatch_options(tracked.spec, key), batch_script(tracked.result))
        job_id = slurm_queue.submitted_id(reply.stdout) if reply.status == 0 else None
        if job_id:
            tracked.log.append("submitted", self.clock(), key=key, job_id=job_id)
            tracked.job_id, tracked.submitted, tracked.tries, tracked.first_try = job_id, now, 0, None
            return Outcome(True, job_id=job_id)
        tracked.first_try = tracked.first_try if tracked.first_try is not None else now
        unanswered = reply.status == 124 or slurm_queue.transient(reply.stderr)
        if unanswered and now - tracked.first_try < SUBMIT_PATIENCE_SECONDS:
            tracked.next_try = now + BACKOFF_SECONDS[min(tracked.tries, len(BACKOFF_SECONDS) - 1)]
            tracked.tries += 1
            self.say(f"{tracked.spec.run_id}: sbatch got no answer ({reply.trouble}); trying again")
            return None
        tracked.log.append("refused", self.clock(), key=key, why=reply.trouble[:500])
        if unanswered:
            cure = "see that slurmctld answers (scontrol ping), then start the same command again"
        elif reply.status == 127:
            cure = "install Slurm's client commands on this host, or choose another profile"
        else:
            cure = (
                "correct the section `slurm` of the config (partition, account, qos, reservation, extra), start again"
            )
        return Outcome(False, f"Slurm refused the job of {tracked.spec.run_id}: {reply.trouble}\n  What to do: {cure}")

    # --- round ------------------------------------------------------------------------------------------------------

    def round(self) -> dict[Path, Outcome]:
        """Look once at all jobs; return the results that are there now, and those that cannot come."""
        with self._lock:
            if not self._jobs:
                return {}
            queue = self._look()
            if queue is None:
                return self._give_up()
            done: dict[Path, Outcome] = {}
            now = self.clock()
            due = [t for t in self._jobs.values() if t.job_id is None and t.next_try <= now]
            if due and not self._stopping:
                with ThreadPoolExecutor(PARALLEL) as pool:
                    done.update(self._start(due, queue, pool))
            dead, missing, pending = self._sort(queue, set(map(id, due)), done)
            dead += self._missing(missing, done)
            dead += self._pending(pending, done)
            self._bury(dead, done)
            self._doubles(queue)
            self._confirm_cancels()
            for path in done:
                self._jobs.pop(path, None)
            return done

    def _give_up(self) -> dict[Path, Outcome]:
        """Return the runs that were never submitted, once Slurm has been silent for too long: nothing goes on without a job."""
        now = self.clock()
        patience = SUBMIT_PATIENCE_SECONDS if self._answered else FIRST_PATIENCE_SECONDS
        cure = "see that slurmctld answers on this host (scontrol ping), then start the same command again"
        done = {
            path: Outcome(
                False,
                f"Slurm does not answer ({self.slurm.trouble}): {t.spec.run_id} was not submitted\n  What to do: {cure}",
            )
            for path, t in self._jobs.items()
            if t.job_id is None and t.first_try is not None and now - t.first_try >= patience
        }
        for path in done:
            self._jobs.pop(path)
        return done

    def _look(self) -> dict[str, QueueJob] | None:
        """One squeue; says so when Slurm stops answering, and when it answers again."""
        queue = self.slurm.squeue()
        self._answered = self._answered or queue is not None
        now = self.clock()
        if queue is None:
            if self._silent_since is None:
                self._silent_since = now
            if now - self._told >= REPEAT_SECONDS:
                self._told = now
                self.say(
                    f"Slurm does not answer ({self.slurm.trouble}); {len(self._jobs)} runs are waited for. "
                    "Jobs go on without it; if this lasts, see that slurmctld runs (scontrol ping)."
                )
        elif self._silent_since is not None:
            self.say(f"Slurm answers again after {now - self._silent_since:.0f} s.")
            self._silent_since, self._told = None, 0.0
        return queue

    def _sort(
        self, queue: Mapping[str, QueueJob], fresh: set[int], done: dict[Path, Outcome]
    ) -> tuple[list[_Dead], list[Tracked], list[tuple[Tracked, QueueJob]]]:
        """Tell the dead, the missing and the pending; what has its result is done."""
        dead: list[_Dead] = []
        missing: list[Tracked] = []
        pending: list[tuple[Tracked, QueueJob]] = []
        for path, tracked in self._jobs.items():
            if tracked.job_id is None or path in done or (id(tracked) in fresh and tracked.job_id not in queue):
                continue
            job = queue.get(tracked.job_id)
            if job is None or not tracked.is_mine(job):  # the second: a restarted slurmctld gave the id out again
                missing.append(tracked)
                continue
            tracked.missing = 0
            begun = tracked.start is not None or job.reason == "BeginTime"  # the latter: Slurm's pause after a requeue
            if job.state in REQUEUED or (job.state == "PENDING" and begun):
                dead.append(self._requeued(tracked, job))
            elif job.state == "PENDING":
                pending.append((tracked, job))
            elif job.active:
                if job.started:
                    tracked.start = job.start or tracked.start or self.clock()
                    tracked.verdict = None
                if job.state == "COMPLETING" and self._completing(tracked, job, done):
                    dead.append(_Dead(tracked, _state_of_completing(job), job.start, job.end, f"reason {job.reason}"))
            else:
                dead += self._ended(tracked, job, done)
        return dead, missing, pending

    def _completing(self, tracked: Tracked, job: QueueJob, done: dict[Path, Outcome]) -> bool:
        """Whether a completing job has to be given up; one that has its result is done."""
        if self._valid(tracked, done):
            return False
        tracked.ended_since = tracked.ended_since or self.clock()
        return self.clock() - tracked.ended_since > COMPLETING_SECONDS

    def _ended(self, tracked: Tracked, job: QueueJob, done: dict[Path, Outcome]) -> list[_Dead]:
        """Judge a job that is over: result, or dead (at once, or after the grace for shared storage)."""
        if self._valid(tracked, done):
            return []
        if job.state == "COMPLETED":
            tracked.ended_since = tracked.ended_since or self.clock()
            if self.clock() - tracked.ended_since < self.grace:
                return []
            text = "the job ended by itself without writing a result"
        else:
            text = f"reason {job.reason}" if job.reason not in ("", "None") else ""
        start = job.start or tracked.start
        if job.state == "CANCELLED" and tracked.start is None and job.start == job.end:
            start = None  # it never ran: Slurm gives the time of the scancel as both
        return [_Dead(tracked, job.state, start, job.end, text, fixed=tracked.verdict)]

    def _valid(self, tracked: Tracked, done: dict[Path, Outcome]) -> bool:
        """Whether the result is there; then the run is done."""
        try:
            valid = settle.result_is_valid(tracked.result)
            if valid:
                tracked.log.append("ended", self.clock(), job_id=tracked.job_id, state="RESULT")
        except (CampaignError, OSError) as error:
            done[tracked.result] = Outcome(False, str(error), tracked.job_id)
            return True
        if valid:
            done[tracked.result] = Outcome(True, job_id=tracked.job_id)
        return valid

    def _requeued(self, tracked: Tracked, job: QueueJob) -> _Dead:
        """Slurm put the job back into the queue in spite of --no-requeue: it counts as dead and is cancelled."""
        if tracked.job_id:
            self._cancel.add(tracked.job_id)
        text = f"Slurm had started the job and put it back into the queue ({job.state}, {job.reason}); it was cancelled"
        start = tracked.start or tracked.submitted or None
        return _Dead(tracked, "REQUEUED", start, self.clock(), text)

    def _missing(self, missing: Sequence[Tracked], done: dict[Path, Outcome]) -> list[_Dead]:
        """Find out about jobs that left the queue unseen: one sacct for all, scontrol where that does not know."""
        waiting = [tracked for tracked in missing if not self._valid(tracked, done)]
        if not waiting:
            return []
        history = self.slurm.history(str(tracked.job_id) for tracked in waiting)
        dead: list[_Dead] = []
        for tracked in waiting:
            tracked.missing += 1
            job = history.get(str(tracked.job_id))
            if job is not None and (not tracked.is_mine(job) or job.active):
                job = None  # another's job of the same id, or accounting that lags behind
            if job is None and tracked.missing >= 2:
                job = self.slurm.show_job(str(tracked.job_id))
                if job is not None and (not tracked.is_mine(job) or job.active):
                    job = None
            if job is not None:
                dead += self._ended(tracked, job, done)
            elif tracked.missing >= 4:
                text = "neither squeue nor sacct nor scontrol knows the job any more"
                dead.append(_Dead(tracked, "VANISHED", tracked.start or tracked.submitted or None, self.clock(), text))
        return dead

    def _pending(self, pending: Sequence[tuple[Tracked, QueueJob]], done: dict[Path, Outcome]) -> list[_Dead]:
        """Notice jobs that will not start; a job whose turn has not come just waits. One scontrol for all of them."""
        if not pending:
            return []
        nodes = self.slurm.nodes(name for tracked, _ in pending for name in tracked.spec.nodes)
        now = self.clock()
        give_up: list[str] = []
        for tracked, job in pending:
            why = slurm_queue.why_pending(job, tracked.spec.nodes, nodes)
            tracked.broken = tracked.broken + 1 if why.kind == "nodes" else 0
            tracked.stuck_since = (tracked.stuck_since or now) if why.kind in ("stuck", "nodes") else None
            limit = float(tracked.spec.slurm["start_timeout_minutes"]) * 60
            if why.kind == "hopeless":
                self._cancel.add(job.job_id)
                tracked.log.append("withdrawn", now, job_id=job.job_id)
                text = f"Slurm will never start {tracked.name}: {why.text}"
                done[tracked.result] = Outcome(False, text, job.job_id)
            elif tracked.broken >= 2 or (tracked.stuck_since is not None and now - tracked.stuck_since >= limit):
                waited = (now - (tracked.stuck_since or now)) / 60
                text = (
                    "the job cannot start" if tracked.broken >= 2 else f"the job did not start within {waited:.0f} min"
                )
                # a node that died between two runs is as dead as one that died in a run
                state, lost = ("NODE_FAIL", why.crashed) if why.crashed else ("NOT_STARTED", why.nodes)
                tracked.verdict = Death(state, lost, f"{text}: {why.text}", job.job_id)
                give_up.append(job.job_id)
            elif tracked.submitted and now - tracked.submitted >= limit and not tracked.told_waiting:
                tracked.told_waiting = True
                minutes = (now - tracked.submitted) / 60
                self.say(f"{tracked.name} has waited for {minutes:.0f} min for its turn ({why.text})")
        # only while it is still pending: if it started this very moment, it runs, and the verdict is dropped
        if give_up and not self.slurm.cancel(give_up, pending_only=True):
            self.say(f"scancel of jobs that cannot start was not answered: {', '.join(give_up)}; trying again")
        return []

    def _bury(self, dead: Sequence[_Dead], done: dict[Path, Outcome]) -> None:
        """Write the casualties, each naming the nodes that were lost with the job. One scontrol for all."""
        dead = [d for d in dead if d.tracked.result not in done]
        if not dead:
            return
        nodes = self.slurm.nodes(name for d in dead if d.fixed is None for name in d.tracked.spec.nodes)
        for d in dead:
            tracked = d.tracked
            death = d.fixed or self._death(d, nodes)
            try:
                settle.record_casualty(tracked.result, death)
                tracked.log.append("ended", self.clock(), job_id=tracked.job_id, state=death.state)
            except (CampaignError, OSError) as error:
                text = f"the casualty of {tracked.name} could not be recorded: {error}"
                done[tracked.result] = Outcome(False, text, tracked.job_id)
                continue
            lost = f", lost {', '.join(death.lost)}" if death.lost else ""
            self.say(f"{tracked.name} died: {death.state}{lost}. {death.text}")
            done[tracked.result] = Outcome(True, job_id=tracked.job_id)

    def _death(self, d: _Dead, nodes: Mapping[str, Node]) -> Death:
        """Say how a job died, and with which nodes."""
        tail = log_tail(d.tracked.spec.run_dir / f"slurm-{d.tracked.job_id}.log")
        state = "NODE_FAIL" if d.state == "REQUEUED" else d.state
        lost = slurm_queue.lost_nodes(state, d.start, d.end, self.clock(), d.tracked.spec.nodes, nodes, tail)
        if d.state == "REQUEUED":
            word = "NODE_FAIL" if lost else "VANISHED"
        elif d.start is None and d.state in ("CANCELLED", "COMPLETED", "FAILED"):
            word = "CANCELLED" if d.state == "CANCELLED" else "FAILED"
        else:
            word = ENDED.get(d.state, "VANISHED")
        text = f"Slurm job {d.tracked.job_id} ended as {d.state}"
        if d.start is not None and d.end is not None and d.end >= d.start:
            text += f" after {(d.end - d.start) / 60:.1f} min"
        text += "".join(f"; {part}" for part in [d.text, *(node_told(node, d) for node in lost)] if part)
        return Death(word, [node.name for node in lost], text, d.tracked.job_id)

    def _doubles(self, queue: Mapping[str, QueueJob]) -> None:
        """Cancel second jobs of a run that we track (an sbatch of a killed head may be answered after its death)."""
        tracked = {(t.spec.uid, t.spec.run_id): t.job_id for t in self._jobs.values() if t.job_id}
        for job in queue.values():
            mark = slurm_queue.mark_of(job.comment)
            mine = tracked.get((mark.uid, mark.run_id)) if mark else None
            if mine and job.active and job.state != "COMPLETING" and job.job_id != mine and int(job.job_id) > int(mine):
                self._cancel.add(job.job_id)
                self.say(f"Slurm job {job.job_id} is a second one for the same run as {mine}: cancelled")

    def _confirm_cancels(self) -> None:
        """Cancel what was declared dead, again and again until Slurm has taken it."""
        if self._cancel and self.slurm.cancel(self._cancel):
            self._cancel.clear()

    # --- end --------------------------------------------------------------------------------------------------------

    def cancel_all(self) -> list[str]:
        """The operator wants to stop: cancel every job of ours in one call, to be submitted again by the next start."""
        self._stopping = True
        locked = self._lock.acquire(timeout=PATIENCE_TO_STOP)
        try:
            tracked = [t for t in self._jobs.values() if t.job_id]
            queue = self.slurm.squeue()
            if queue is not None:  # a restarted slurmctld may have given an id out again: never cancel another's job
                tracked = [t for t in tracked if (job := queue.get(str(t.job_id))) and t.is_mine(job) and job.active]
            ids = [str(t.job_id) for t in tracked]
            for t in tracked:
                t.log.append("withdrawn", self.clock(), job_id=t.job_id)
            if ids and not self.slurm.cancel(ids):
                self.say(f"scancel was not answered; cancel by hand: scancel {' '.join(ids)}")
            return ids
        finally:
            if locked:
                self._lock.release()


PATIENCE_TO_STOP = 30.0


def _state_of_completing(job: QueueJob) -> str:
    """The final state of a job that hangs in COMPLETING, from its reason."""
    return "NODE_FAIL" if job.reason == "NodeDown" else "TIMEOUT" if job.reason == "TimeLimit" else "FAILED"


def node_told(node: Node, dead: _Dead) -> str:
    """Say of a lost node what was seen of it."""
    rebooted = node.boot_time is not None and dead.start is not None and node.boot_time > dead.start
    return node.told() + (" and has booted since the job's start" if rebooted else "")


def log_tail(path: Path, size: int = 20_000) -> str:
    """Return the end of a job's log, empty if there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - size))
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def check_extra(extra: Iterable[str]) -> None:
    """Raise CampaignError if the config's extra options contain one that this module relies on."""
    for option in extra:
        name = option.split("=", 1)[0].strip()
        short = name[:2] if name.startswith("-") and not name.startswith("--") else name
        # Slurm takes any unique beginning of a long option
        cut = name if name.startswith("--") and len(name) > 4 else name + "="
        hit = next((f for f in FORBIDDEN if f in (name, short) or f.startswith(cut)), None)
        if hit or not option.startswith("-"):
            why = FORBIDDEN[hit] if hit else "an option begins with - and has its value behind ="
            raise CampaignError(f"config key 'slurm.extra' has {option!r}: {why}", "remove it from slurm.extra")


def sbatch_options(run: RunSpec, key: str) -> list[str]:
    """Return sbatch's options for a run: pinned to its nodes, alone on them, ended by any lost node.

    No --ntasks-per-node: it would put SLURM_NTASKS into the job, and an srun that asks for another number of tasks per
    node (the probes) would then start that many tasks all the same. The launch lines say how many they want.
    """
    slurm = run.slurm
    log = str(run.run_dir.resolve() / "slurm-%j.log")
    folder, name = log.rsplit("/", 1)
    options = [
        f"--job-name={run.job_name}",
        f"--comment={Mark(run.campaign, run.uid, run.run_id, key).comment()}",
        f"--nodes={len(run.nodes)}",
        f"--nodelist={','.join(run.nodes)}",
        "--exclusive",
        "--no-requeue",
        f"--time={run.time_limit_minutes}",
        f"--output={folder.replace('%', '%%')}/{name}",
        "--open-mode=append",
        "--export=ALL",
        f"--chdir={Path.cwd()}",
    ]
    if slurm.get("gpus_option") and run.gpus_per_node > 0:
        options.append(f"--gpus-per-node={run.gpus_per_node}")
    options += [f"--{key_}={slurm[key_]}" for key_ in ("partition", "account", "qos", "reservation") if slurm.get(key_)]
    return [*options, *slurm.get("extra", [])]


def batch_script(result: Path) -> str:
    """Return the job's script: one command in place of the shell."""
    command = shlex.join([sys.executable, "-m", "burnin", "run", str(result.absolute())])
    return f"#!/bin/bash\nexec {command}\n"
