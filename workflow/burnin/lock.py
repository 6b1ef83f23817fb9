# SPDX-License-Identifier: Apache-2.0
"""One living head for a campaign; the lock of a head that was killed is recognised and removed.

Snakemake's own lock is a file that outlives a killed process, and it cannot tell. We hold an flock for as long as this
process lives: the kernel (or the file server) drops it with the process, on whatever host that was. Who gets it knows
that Snakemake locks naming files of this campaign are left over, and removes those and no others: another campaign that
runs in the same folder keeps its own.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import time
from pathlib import Path

from burnin.errors import CampaignError

_held: dict[Path, int] = {}


def take(campaign_dir: Path, locks: Path) -> list[Path]:
    """Become the head of the campaign; return the stale Snakemake locks that were removed.

    `locks` is Snakemake's folder of lock files. Raises CampaignError, naming it, if another head is alive.
    """
    path = campaign_dir / "head.lock"
    if path in _held:
        return []
    try:
        campaign_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CampaignError(
            f"{path} cannot be written: {error.strerror}", "make config key results a writable folder"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 1000, 0).decode("utf-8", "replace").strip()
        os.close(handle)
        raise CampaignError(
            f"another snakemake is running this campaign: {holder or 'unknown'}",
            "let it go on (burnin status shows it), or end it with Ctrl-C before you start another",
        ) from None
    except OSError as error:
        os.close(handle)
        raise CampaignError(
            f"{path} cannot be locked: {error.strerror}",
            "mount the storage of the results with flock support, or set config key results to a folder that has it",
        ) from None
    _held[path] = handle
    who = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "user": getpass.getuser(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    os.ftruncate(handle, 0)
    os.pwrite(handle, (json.dumps(who) + "\n").encode(), 0)
    return _remove_stale(campaign_dir, locks)


def _remove_stale(campaign_dir: Path, locks: Path) -> list[Path]:
    """Remove Snakemake's locks that name files of this campaign."""
    prefix = str(campaign_dir) + os.sep
    removed = []
    for path in sorted(locks.glob("*.lock")):
        try:
            names = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        if any(name.startswith(prefix) for name in names):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed
