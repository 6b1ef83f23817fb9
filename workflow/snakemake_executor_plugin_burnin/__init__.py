# SPDX-License-Identifier: Apache-2.0
"""Snakemake executor `burnin`: a run is one Slurm job that starts no Snakemake, and a dead job is a result.

Built on the public interface alone (RemoteExecutor). All that concerns Slurm is in burnin.cluster.slurm_jobs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

if TYPE_CHECKING:
    from burnin.cluster.slurm_jobs import Outcome

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # the interface has no types
    """Options of the executor; on the command line with the prefix --burnin-."""

    poll_seconds: float | None = field(
        default=10.0,
        metadata={"help": "Seconds between two looks at the queue; the pace is constant.", "type": float},
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=False,
    pass_default_resources_args=False,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):  # type: ignore[misc]  # the interface has no types
    """Hands runs to Slurm and reports what became of them."""

    def __post_init__(self) -> None:
        """Prepare; called by the interface's constructor."""
        # imported here: Snakemake imports every executor plugin it finds, whichever it is going to use
        from burnin.cluster.slurm_client import Slurm
        from burnin.cluster.slurm_jobs import SlurmJobs

        settings = self.workflow.executor_settings
        poll = getattr(settings, "poll_seconds", None)
        self.poll_seconds = max(0.2, float(poll if poll is not None else 10.0))
        self.next_seconds_between_status_checks = self.poll_seconds
        self.slurm_jobs = SlurmJobs(Slurm(os.environ), self.logger.info)
        self.infos: dict[Path, SubmittedJobInfo] = {}

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Submit jobs that are ready; several at once, since a step may have a thousand."""
        wanted: dict[Path, JobExecutorInterface] = {}
        for job in jobs:
            self.run_job_pre(job)
            outputs = list(job.output)
            if job.is_group() or len(outputs) != 1:
                text = f"{job.name} is no run; declare its rule under localrules.\n"
                self.report_job_error(SubmittedJobInfo(job), msg=text)
                continue
            path = Path(outputs[0]).absolute()
            wanted[path] = job
            self.infos[path] = SubmittedJobInfo(job, aux={"result": path})
        settled = self.slurm_jobs.begin(wanted)
        for path in wanted:
            info = self.infos[path]
            if path in settled:
                self.tell(path, info, settled[path])
            else:
                # no marker of an unfinished output: results are renamed into place, one that is there is whole
                self.report_job_submission(info, register_job=False)

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit one job."""
        self.run_jobs([job])

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Look once at all jobs; those that are still on their way are given back."""
        if not active_jobs:
            return
        outcomes = await asyncio.to_thread(self.slurm_jobs.round)
        for info in active_jobs:
            path = info.aux["result"] if info.aux else None
            outcome = outcomes.get(path) if path is not None else None
            if path is None or outcome is None:
                yield info
            else:
                self.tell(path, info, outcome)

    def tell(self, path: Path, info: SubmittedJobInfo, outcome: Outcome) -> None:
        """Tell Snakemake what became of a job."""
        self.infos.pop(path, None)
        info.external_jobid = outcome.job_id
        if outcome.ok:
            self.report_job_success(info)
        else:
            self.report_job_error(info, msg=f"{outcome.text}\n")

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job of ours, whether or not a look was in progress."""
        cancelled = self.slurm_jobs.cancel_all()
        if cancelled:
            self.logger.info(f"Cancelled {len(cancelled)} Slurm jobs; the same command goes on where they stopped.")
