# SPDX-License-Identifier: Apache-2.0
"""Attempts at a run: numbered folders inside the run directory, never removed, never overwritten.

`attempt<k>/` holds the journal, the raw output of every iteration and of every probe, and the result of that attempt.
The run's `result.json` beside it is a copy of the newest attempt's result, which Snakemake may delete and we restore.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from burnin.runs import journal
from burnin.runs.spec import RunSpec


def numbers(spec: RunSpec) -> list[int]:
    """Return the numbers of the attempts that exist, in order."""
    prefix = attempt_prefix(spec)
    found = (
        [re.fullmatch(prefix + r"([0-9]+)", p.name) for p in spec.run_dir.glob(f"{prefix}*")]
        if spec.run_dir.exists()
        else []
    )
    return sorted(int(m[1]) for m in found if m)


def attempt_prefix(spec: RunSpec) -> str:
    """Return the first part of the attempts' folder names; the resume step's first job has attempts of its own."""
    return "attempt" if spec.ref.phase == "result" else "first-attempt"


def folder(spec: RunSpec, number: int) -> Path:
    """Return an attempt's folder."""
    return spec.run_dir / f"{attempt_prefix(spec)}{number}"


def records(spec: RunSpec, number: int) -> list[dict[str, Any]] | None:
    """Return the journal of an attempt, or None if it cannot be used (damaged, or without a header)."""
    try:
        found = journal.read(folder(spec, number) / "journal.jsonl")
    except journal.DamagedJournal:
        return None
    return found if found and found[0]["type"] == "header" else None


def current(spec: RunSpec) -> int | None:
    """Return the newest attempt if it is an attempt at exactly this run, else None."""
    existing = numbers(spec)
    if not existing:
        return None
    found = records(spec, existing[-1])
    return existing[-1] if found is not None and found[0]["what"] == spec.identity() else None


def fresh(spec: RunSpec) -> int:
    """Return the number of the next attempt: one whose beginner was killed before its first record has not begun."""
    existing = numbers(spec)
    if not existing:
        return 0
    try:
        begun = bool(journal.read(folder(spec, existing[-1]) / "journal.jsonl"))
    except journal.DamagedJournal:
        begun = True
    return existing[-1] + begun


def is_over(found: list[dict[str, Any]]) -> bool:
    """Tell whether an attempt ended by itself: nothing is left to run."""
    return any(r["type"] == "final" for r in found)
