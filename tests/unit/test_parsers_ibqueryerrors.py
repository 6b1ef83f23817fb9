# SPDX-License-Identifier: Apache-2.0
"""ibqueryerrors: error counters of the fabric."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "ibqueryerrors"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "clean-5.x.txt": ("unknown", "pass"),
    "cut.txt": ("unknown", "unknown"),
    "errors-5.x.txt": ("fail", "fail"),
    "only-congestion-5.x.txt": ("unknown", "pass"),
    "query-failures.txt": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_ports_and_not_their_total() -> None:
    reading = as_whole(TOOL, "errors-5.x.txt")
    assert [(s.device, s.detail["counter"], s.value) for s in of(reading, "port_counter")] == [
        ("leaf01/17", "SymbolErrorCounter", 5),
        ("leaf01/17", "LinkDownedCounter", 2),
        ("spine 01 rack A/3", "PortRcvErrors", 1),
    ]
    assert reading.data["ports"][0]["counters"]["PortXmitWait"] == 3221225472  # not 3.000G
    assert "dgx02 mlx5_3" in reading.data["ports"][1]["link"]


def test_congestion_is_no_error() -> None:
    assert not as_whole(TOOL, "only-congestion-5.x.txt").signals


@pytest.mark.parametrize("gone", [1, 2])
def test_a_hole_in_the_list_is_noticed(gone: int) -> None:
    lines = (DATA / TOOL / "only-congestion-5.x.txt").read_text().split("\n")
    del lines[gone - 1]
    assert fed(TOOL, "\n".join(lines), whole=True).verdict == "unknown"
