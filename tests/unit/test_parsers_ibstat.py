# SPDX-License-Identifier: Apache-2.0
"""ibstat and ibdev2netdev."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "ibstat"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "fdr10-roce.txt": ("unknown", "pass"),
    "ibdev2netdev.txt": ("fail", "fail"),
    "ndr-healthy.txt": ("unknown", "pass"),
    "one-down-one-initializing.txt": ("fail", "fail"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_states_and_rates() -> None:
    reading = as_whole(TOOL, "one-down-one-initializing.txt")
    assert [(s.device, s.detail["state"]) for s in of(reading, "link_state")] == [
        ("mlx5_1", "Down"),
        ("mlx5_2", "Initializing"),
    ]
    assert [c["ports"][0]["rate"] for c in reading.data["cas"]] == [400, 10, 400]
    assert as_whole(TOOL, "fdr10-roce.txt").data["cas"][0]["ports"][0]["rate_text"] == "40 (FDR10)"


def test_ibdev2netdev() -> None:
    reading = as_whole(TOOL, "ibdev2netdev.txt")
    assert reading.data["netdevs"]["mlx5_0"]["netdev"] == "ib0"
    assert [s.device for s in of(reading, "link_state")] == ["mlx5_1"]


@pytest.mark.parametrize("key", ["State", "Physical state"])
def test_a_port_without_state_is_unknown(key: str) -> None:
    lines = (DATA / TOOL / "ndr-healthy.txt").read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(key + ":"))
    del lines[at]
    assert fed(TOOL, "\n".join(lines), whole=True).verdict == "unknown"
