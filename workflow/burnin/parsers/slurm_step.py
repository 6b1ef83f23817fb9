# SPDX-License-Identifier: Apache-2.0
"""Reader of what srun, slurmstepd and the program's runtime say in a step's output, whatever the workload.

Source: Slurm src/srun/libsrun, src/slurmd/slurmstepd. It finds faults; a text without any is no proof of health, so
this reader never passes. Its scanner (`joblines`) is also part of the workload readers.

`Reading.data`: ended (Slurm's cancel and failure lines), first_error (the first signal that is not a consequence),
network, watchdog, signal_counts.
"""

from __future__ import annotations

from typing import ClassVar

from burnin.parsers.common import LINE_LIMIT, Collector, peel
from burnin.parsers.joblines import FATAL, JobLines
from burnin.parsers.reading import Reading, Signal

_FAILED = FATAL | {"task_exit", "oom_host", "node_failure", "launch_error", "kernel_hang", "step_cancelled"}


class Parser:
    """Reader of one step's output."""

    tool: ClassVar[str] = "slurm-step"

    def __init__(self) -> None:
        self.job = JobLines()
        self.found = Collector()
        self.damaged = False
        self.first: Signal | None = None

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line."""
        if len(line) > LINE_LIMIT:
            line = line[:LINE_LIMIT]
            self.damaged = True
        text, prefix = peel(line)
        return self._take(self.job.scan(number, line, text, prefix))

    def _take(self, signals: list[Signal]) -> list[Signal]:
        if self.first is None:
            # srun kills the other tasks once one has failed; those are consequences.
            self.first = next((s for s in signals if s.kind in _FAILED and not s.detail.get("victim")), None)
        return self.found.extend(signals)

    def finish(self) -> Reading:
        """Return the reading of the whole text."""
        self._take(self.job.finish())
        reading = Reading(self.tool, recognised=self.job.slurm_lines > 0)
        reading.complete = bool(self.job.ended) and not self.damaged
        if reading.recognised and any(k in _FAILED for k in self.found.counts):
            reading.verdict = "fail"
        if not reading.recognised:
            reading.problems.append("no message of srun or slurmstepd was found")
        elif not reading.complete:
            reading.problems.append("Slurm did not say how the step ended")
        reading.problems += self.found.problems()
        reading.signals = self.found.signals
        reading.data = {
            "ended": self.job.ended,
            "first_error": self.first.to_dict() if self.first else None,
            "network": self.job.network(),
            "watchdog": {str(k): v for k, v in self.job.last_completed.items()},
            "signal_counts": self.found.counts,
        }
        return reading
