# SPDX-License-Identifier: Apache-2.0
"""A real HPL on the real Slurm: the numbers in result.json are those that hpcc wrote."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Campaign

pytestmark = [pytest.mark.slurm]


def numbers(value: Any) -> set[float]:
    """Return every number in a document."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(numbers, value)) if value else set()
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def test_the_numbers_of_hpcc_are_the_numbers_of_the_result(campaign: Callable[..., Campaign]) -> None:
    if shutil.which("hpcc") is None:
        pytest.skip("Debian's package hpcc is not installed")
    config = yaml.safe_load((ROOT / "config" / "cpu.yaml").read_text())
    run = campaign(
        hold=False,
        **{**config, "campaign": "t", "nodes": "dgx[01-02]", "windows": {"hpl": {"default": {"iterations": 1}}}},
    )
    run.start()
    summary = run.finish(400)
    assert summary["verdict"] == "accepted"
    outputs = sorted(run.result.glob("*/heat*/hpl/*/attempt*/hpcc-*/hpccoutf.txt"))
    assert len(outputs) >= 3
    for output in outputs:
        section = output.read_text().split("Begin of HPL section")[1].split("End of HPL section")[0]
        row = re.search(r"^W\w+\s+\d+\s+\d+\s+(\d+)\s+(\d+)\s+\S+\s+(\S+)\s*$", section, re.MULTILINE)
        residual = re.search(r"\|\|Ax-b\|\|_oo.*=\s*(\S+)\s*\.+ PASSED", section)
        assert row and residual
        run_dir = next(p for p in output.parents if (p / "result.json").exists() and not p.name.startswith("attempt"))
        result = json.loads(Path(run_dir, "result.json").read_text())
        assert {float(row[3]), float(residual[1])} <= numbers(result), output
        assert int(row[1]) * int(row[2]) == (1 if "/single/" in str(output) or "/halves/" in str(output) else 2)
