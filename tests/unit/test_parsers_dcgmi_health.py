# SPDX-License-Identifier: Apache-2.0
"""dcgmi health as text and JSON."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "dcgmi-health"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "json-3.3-failure.json": ("fail", "fail"),
    "json-4.1-healthy.json": ("pass", "pass"),
    "no-host-engine.txt": ("unknown", "unknown"),
    "text-1.7-healthy.txt": ("pass", "pass"),
    "text-3.3-failure.txt": ("fail", "fail"),
    "text-3.3-healthy.txt": ("pass", "pass"),
    "text-3.3-set-and-check.txt": ("pass", "pass"),
    "text-4.1-pdsh.txt": ("fail", "fail"),
    "watches-not-enabled.txt": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_wrapped_texts_are_joined() -> None:
    reading = as_whole(TOOL, "text-3.3-failure.txt")
    pcie, memory = of(reading, "dcgm_health")
    assert (pcie.gpu, pcie.detail["system"], pcie.detail["level"]) == (3, "PCIe", "Warning")
    assert "13 Reconnect PCIe card. Run system side PCIE diagnostic utilities" in pcie.detail["text"]
    assert (memory.gpu, memory.detail["level"]) == (5, "Failure")
    assert "uncorrectable double bit error count" in memory.detail["text"]


def test_json_with_overflow() -> None:
    (memory,) = of(as_whole(TOOL, "json-3.3-failure.json"), "dcgm_health")
    assert memory.gpu == 3 and memory.detail["text"].endswith("continued text of the error")


def test_watches_that_were_never_armed() -> None:
    reading = as_whole(TOOL, "watches-not-enabled.txt")
    assert reading.recognised and reading.data["watches_enabled"] is False
    assert "not enabled" in reading.problems[0]


def test_switches_and_hosts() -> None:
    (switch,) = of(as_whole(TOOL, "text-4.1-pdsh.txt"), "dcgm_health")
    assert (switch.host, switch.device, switch.detail["system"]) == ("dgx02", "NvSwitch 1", "NvSwitch NF")


@pytest.mark.parametrize("word", ["Heal", "Unknown", ""])
def test_another_word_is_no_health(word: str) -> None:
    text = (DATA / TOOL / "text-3.3-healthy.txt").read_text()
    assert fed(TOOL, text.replace("Healthy", word)).verdict == "unknown"
