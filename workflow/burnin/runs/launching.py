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
PAUSE_SECONDS = 3.0

_LAUNCHER = re.compile(r"^(srun|slurm\w*)(: |\[)")
_LIMIT = 64 * 1024


def unanswered(text: str) -> bool:
    """Whether a failed launch's whole output is srun's complaint that nobody answered. Pure.

    Any line of a task, or a trouble of another kind, makes it an ordinary output.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and all(_LAUNCHER.match(line) for line in lines) and transient(text)


def file_unanswered(path: Path, offset: int = 0) -> bool:
    """Apply `unanswered` to a file from an offset on; a long output is never a failed launch."""
    try:
        if path.stat().st_size - offset > _LIMIT:
            return False
        with path.open("rb") as stream:
            stream.seek(offset)
            return unanswered(stream.read().decode("utf-8", "replace"))
    except OSError:
        return False
