# SPDX-License-Identifier: Apache-2.0
"""Calls to Slurm's commands: argument lists, never a shell, with time limits. slurm_queue reads what they print."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from burnin.cluster import slurm_queue
from burnin.cluster.slurm_queue import Node, QueueJob

#: an absent slurmctld lets a client wait for some 20 s before it gives up by itself
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Reply:
    """What a command answered; `failed` says why nothing can be concluded from it."""

    stdout: str
    stderr: str
    status: int

    @property
    def trouble(self) -> str:
        """One line that says what went wrong."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit status {self.status}"


Call = Callable[[Sequence[str], str, Mapping[str, str], float], Reply]


def call(argv: Sequence[str], stdin: str, environment: Mapping[str, str], timeout: float) -> Reply:
    """Run a command; a missing program and a time-out are replies too (status 127 and 124)."""
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            env=dict(environment),
            timeout=timeout,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Reply("", f"{argv[0]} did not answer within {timeout:.0f} s", 124)
    except OSError as error:
        return Reply("", f"{argv[0]} could not be started: {error.strerror}", 127)
    return Reply(done.stdout, done.stderr, done.returncode)


def job_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment to submit from: without what would change sbatch's options or belong to another job.

    (SBATCH_* variables are options; a head that itself runs in a job has SLURM_* of that job.)
    """
    kept = ("SLURM_CONF", "SLURM_JWT")
    return {k: v for k, v in base.items() if k in kept or not k.startswith(("SBATCH_", "SLURM_", "SALLOC_", "SRUN_"))}


def query_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for queries: no user defaults for their output, times as seconds since the epoch."""
    defaults = ("SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_")
    plain = {k: v for k, v in job_environment(base).items() if not k.startswith(defaults)}
    return {**plain, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


class Slurm:
    """The commands of one Slurm, as one user."""

    def __init__(self, environment: Mapping[str, str], run: Call = call) -> None:
        self._submit_environment = job_environment(environment)
        self._environment = query_environment(environment)
        self._run = run
        self.trouble = ""  # why the last query gave nothing

    def _ask(self, argv: Sequence[str]) -> Reply:
        return self._run(argv, "", self._environment, PATIENCE_SECONDS)

    def squeue(self) -> dict[str, QueueJob] | None:
        """Return all jobs of this user that slurmctld knows, ended ones included; None if it did not answer."""
        user = str(os.getuid())
        reply = self._ask(["squeue", "-h", "-t", "all", "-u", user, "-o", slurm_queue.SQUEUE_FORMAT])
        if reply.status != 0:
            self.trouble = reply.trouble
            return None
        return slurm_queue.parse_squeue(reply.stdout)

    def nodes(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes as slurmctld knows them; a node it does not know (or no answer at all) is left out."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        return slurm_queue.parse_show_node(self._ask(["scontrol", "-o", "show", "node", ",".join(wanted)]).stdout)

    def history(self, job_ids: Iterable[str]) -> dict[str, QueueJob]:
        """Return what the accounting knows about these jobs; nothing where there is no accounting."""
        wanted = sorted(set(job_ids))
        if not wanted:
            return {}
        reply = self._ask(["sacct", "-n", "-P", "-X", "-D", "-o", slurm_queue.SACCT_FORMAT, "-j", ",".join(wanted)])
        return slurm_queue.parse_sacct(reply.stdout) if reply.status == 0 else {}

    def history_of_name(self, name: str, since: float) -> dict[str, QueueJob]:
        """Return the jobs of that name since a time, from the accounting; nothing where there is none."""
        selection = [f"--name={name}", "-S", f"uts{int(since)}"]
        reply = self._ask(["sacct", "-n", "-P", "-X", "-D", "-o", slurm_queue.SACCT_FORMAT, *selection])
        return slurm_queue.parse_sacct(reply.stdout) if reply.status == 0 else {}

    def show_job(self, job_id: str) -> QueueJob | None:
        """Return the job as slurmctld knows it, None if it does not know it (any more)."""
        return slurm_queue.parse_show_job(self._ask(["scontrol", "-o", "show", "job", job_id]).stdout)

    def sbatch(self, options: Sequence[str], script: str) -> Reply:
        """Submit a script."""
        return self._run(["sbatch", "--parsable", *options], script, self._submit_environment, PATIENCE_SECONDS)

    def cancel(self, job_ids: Iterable[str], pending_only: bool = False) -> bool:
        """Cancel jobs in one call; return whether Slurm took it (a job that is gone already is no failure)."""
        wanted = sorted(set(job_ids))
        if not wanted:
            return True
        reply = self._ask(["scancel", *(["--state=PENDING"] if pending_only else []), *wanted])
        return reply.status == 0 or "Invalid job id" in reply.stderr or "already completing" in reply.stderr
