# SPDX-License-Identifier: Apache-2.0
"""scontrol show node and show topology."""

from __future__ import annotations

import pytest
from burnin.parsers.scontrol import split_state, topology

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole

TOOL = "scontrol"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "not-found.txt": ("unknown", "unknown"),
    "show-node-20.11-old-suffix.txt": ("fail", "fail"),
    "show-node-23.11-drained-two-lines.txt": ("unknown", "pass"),
    "show-node-23.11-gpu-missing.txt": ("fail", "fail"),
    "show-node-23.11-idle.txt": ("unknown", "pass"),
    "show-node-o-23.11.txt": ("fail", "fail"),
    "show-node-unknown-word.txt": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_states_reasons_and_boot_times() -> None:
    drained, draining = as_whole(TOOL, "show-node-23.11-drained-two-lines.txt").data["nodes"]
    assert (drained["base"], drained["flags"], drained["drained"], drained["draining"]) == (
        "IDLE",
        ["DRAIN"],
        True,
        False,
    )
    assert drained["reason"] == "burnin c1: Xid 79 GPU5=bad\nsecond line of the reason"
    assert drained["reason_user"] == "root" and drained["boot_time"] == "2026-01-09T04:11:52"
    assert (draining["drained"], draining["draining"]) == (False, True)


def test_one_line_records() -> None:
    reading = as_whole(TOOL, "show-node-o-23.11.txt")
    assert [n["name"] for n in reading.data["nodes"]] == ["dgx01", "dgx05"]
    assert reading.data["nodes"][1]["free_mem"] is None and reading.data["nodes"][1]["reason"] == "Not responding"
    assert [s.host for s in of(reading, "node_state")] == ["dgx01", "dgx05"]


@pytest.mark.parametrize(
    ("text", "base", "flags"),
    [
        ("IDLE", "IDLE", []),
        ("DOWN*+DRAIN", "DOWN", ["NOT_RESPONDING", "DRAIN"]),
        ("MIXED+DRAIN+INVALID_REG", "MIXED", ["DRAIN", "INVALID_REG"]),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", ["CLOUD", "POWERED_DOWN"]),
        ("drained*", "IDLE", ["NOT_RESPONDING", "DRAIN"]),
        ("idle~", "IDLE", ["POWERED_DOWN"]),
    ],
)
def test_split_state(text: str, base: str, flags: list[str]) -> None:
    assert split_state(text) == (base, flags)


def test_a_lost_gpu_shows_only_here() -> None:
    (state,) = of(as_whole(TOOL, "show-node-23.11-gpu-missing.txt"), "node_state")
    assert "7 < 8" in state.detail["reason"]


def test_topology() -> None:
    tree = topology(
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=dgx[01-04]\nSwitchName=s2 Level=1 LinkSpeed=1 Nodes=dgx[01-08] Switches=s[0-1]\nrubbish"
    )
    assert [(t["switch"], t["level"], t["nodes"], t["switches"]) for t in tree] == [
        ("s0", 0, "dgx[01-04]", None),
        ("s2", 1, "dgx[01-08]", "s[0-1]"),
    ]
    assert fed(TOOL, "NodeName=a State=IDLE", whole=True).verdict == "pass"
