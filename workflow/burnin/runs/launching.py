# SPDX-License-Identifier: Apache-2.0
"""Telling "nothing was launched" from "it failed": slurmctld may be away while a run goes on.

A running step survives slurmctld's absence, but srun cannot start the next one. Such a launch says nothing about nodes:
it is neither an iteration nor a probe, and is tried again.
"""

from __future__ import annotations

import re
from pathlib import Path

from burnin.cluster.slurm_queue import transient

#: how long a run waits for a Slurm that does not answer; after that the failed launch is evidence like any other
PATIENCE_SECONDS = 3600.0
#: a restarted slurmctld refuses steps until the nodes have registered again (seen: 6 s, Slurm 22.05); the same words may
#: also mean a wrong --mem, so patience is short
SETTLING_SECONDS = 120.0
PAUSE_SECONDS = 3.0

_SETTLING = re.compile(r"Unable to create step for job \d+: Memory required by task is not available")

_LAUNCHER = re.compile(r"^(srun|slurm\w*)(: |\[)")
_LIMIT = 64 * 1024


def patience(text: str) -> float:
    """Return for how long (s) a failed launch with this whole output may be repeated; 0 if it is evidence. Pure.

    Any line of a task, or a trouble of another kind, makes it an ordinary output.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not all(_LAUNCHER.match(line) for line in lines):
        return 0.0
    if transient(text):
        return PATIENCE_SECONDS
    return SETTLING_SECONDS if _SETTLING.search(text) else 0.0


def patience_of_file(path: Path, offset: int = 0) -> float:
    """Apply `patience` to a file from an offset on; a long output is never a failed launch."""
    try:
        if path.stat().st_size - offset > _LIMIT:
            return 0.0
        with path.open("rb") as stream:
            stream.seek(offset)
            return patience(stream.read().decode("utf-8", "replace"))
    except OSError:
        return 0.0
