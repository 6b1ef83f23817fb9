# SPDX-License-Identifier: Apache-2.0
"""Samples of every tool in `tests/data/<tool>/`, and what the tests of the readers share."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
from burnin import parsers
from burnin.parsers.kinds import KINDS
from burnin.parsers.reading import Reading

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
GUIDE = ROOT.parent / "shared" / "burn-in-guide.txt"


def samples(tool: str) -> list[Path]:
    """Return the sample files of one tool, sorted."""
    folder = DATA / tool
    return sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []


def available() -> list[str]:
    """Return the tools whose module exists."""
    return [t for t, m in parsers.TOOLS.items() if importlib.util.find_spec(f"burnin.parsers.{m}") is not None]


def read(tool: str, path: Path) -> Reading:
    """Read a file, and check what must hold for every reading."""
    reading = parsers.read_file(tool, path, strict=True)
    check(reading)
    return reading


def read_text(tool: str, text: str | bytes, folder: Path) -> Reading:
    """Read a text through a file, as `burnin read` does."""
    path = folder / "input"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(tool, path)


def check(reading: Reading) -> None:
    """Check the invariants of a reading: strict JSON, known words, no pass without completion, a reason otherwise."""
    json.dumps(reading.to_dict(), allow_nan=False)
    assert all(s.kind in KINDS and s.line >= 1 for s in reading.signals)
    if reading.verdict == "pass":
        assert reading.complete and reading.recognised
    if not reading.recognised:
        assert reading.verdict == "unknown"
        assert reading.problems
    if reading.recognised and not reading.complete:
        assert reading.problems


def kinds(reading: Reading) -> dict[str, int]:
    """Return kind -> number of signals."""
    return dict(Counter(s.kind for s in reading.signals))


def guide(command: str) -> str:
    """Cut one sample output out of the operators' guide, if it lies next to the checkout; skip the test otherwise."""
    if not GUIDE.is_file():
        pytest.skip("the operators' guide does not lie next to the checkout")
    lines = GUIDE.read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("10. Sample outputs"))
    first = next(i for i in range(start, len(lines)) if lines[i].startswith(command))
    last = next(i for i in range(first, len(lines)) if lines[i].startswith("What to look at"))
    return "\n".join(lines[first + 1 : last]).rstrip("\n") + "\n"
