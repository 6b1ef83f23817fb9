# SPDX-License-Identifier: Apache-2.0
"""Probe files of which the end is missing: what is left of a healthy node is not the proof of a healthy node."""

from __future__ import annotations

import pytest

from tests.unit.parser_samples import DATA, read


@pytest.mark.parametrize("name", ["node-healthy-cut-before-last-tool.txt", "node-healthy-cut-in-a-tool.txt"])
def test_a_cut_probe_of_a_healthy_node_is_incomplete_and_unknown(name: str) -> None:
    reading = read("probe", DATA / "probe" / name)
    assert reading.recognised and not reading.complete
    assert reading.verdict == "unknown" and reading.problems
