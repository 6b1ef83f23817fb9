# SPDX-License-Identifier: Apache-2.0
"""Cuts sample outputs out of the burn-in guide, which lies beside the checkout where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2].parent / "shared" / "burn-in-guide.txt"


def sample(start: str) -> list[str]:
    """Return the lines of the sample output below the command that starts with `start`; skip without the guide."""
    if not GUIDE.is_file():
        pytest.skip("the burn-in guide is not beside this checkout")
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("10. Sample outputs"))
    first = next(i for i in range(begin, len(lines)) if lines[i].startswith(start)) + 1
    last = next(i for i in range(first, len(lines)) if lines[i].startswith("What to look at:"))
    return lines[first:last]
