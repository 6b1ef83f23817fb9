# SPDX-License-Identifier: Apache-2.0
"""What was submitted for a run: `submissions.jsonl` in the run directory, append-only, durable before and after sbatch.

A head that is killed between the two leaves an intent without a job id; the next head then asks Slurm for a job with
that key before it submits anything. Records, by `event`: `intent` (about to call sbatch: key), `submitted` (key,
job_id), `refused` (no job came of that key), `ended` (job_id, state; written after the result), `withdrawn` (job_id:
cancelled by the operator's own Ctrl-C, to be submitted again).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnin import storage


@dataclass(frozen=True)
class Open:
    """A submission of which no end is on record. `job_id` is None if sbatch's answer never came back."""

    key: str
    job_id: str | None
    time: float


class Submissions:
    """The record of one run's submissions; both jobs of the resume test share a file, each reads its own lines."""

    def __init__(self, run_dir: Path, run_id: str) -> None:
        self.path, self.run_id = run_dir / "submissions.jsonl", run_id

    def append(self, event: str, time: float, **fields: Any) -> None:
        """Add a record; it is on disk when this returns. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        storage.append_line(self.path, json.dumps({"event": event, "run": self.run_id, "time": time, **fields}))

    def records(self) -> list[dict[str, Any]]:
        """Return this run's records in order; a torn line is as if it had not been written."""
        return [
            record
            for record in storage.records(self.path)[0]
            if record.get("run") == self.run_id and isinstance(record.get("event"), str)
        ]

    def last_open(self) -> Open | None:
        """Return the newest submission that has not ended, or None."""
        return last_open(self.records())

    def closed_ids(self) -> set[str]:
        """Return the job ids that ended or were withdrawn: never to be taken up again."""
        return {str(r.get("job_id")) for r in self.records() if r["event"] in ("ended", "withdrawn")}


def last_open(records: list[dict[str, Any]]) -> Open | None:
    """Return the newest submission without an end among a run's records, or None. Pure."""
    current: Open | None = None
    for record in records:
        event, key, job_id = record["event"], record.get("key"), record.get("job_id")
        if event == "intent":
            current = Open(str(key), None, float(record.get("time", 0)))
        elif event == "submitted":
            current = Open(str(key), str(job_id), float(record.get("time", 0)))
        elif current is not None:
            over = event in ("ended", "withdrawn") and str(job_id) == current.job_id
            if over or (event == "refused" and key == current.key):
                current = None
    return current
