# SPDX-License-Identifier: Apache-2.0
"""Redfish Thermal and Power, old and new resources."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "redfish"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "fans-collection-links-only.json": ("unknown", "unknown"),
    "power-1.5-psu-failed.json": ("fail", "fail"),
    "subsystems-new-input-lost.json": ("fail", "fail"),
    "thermal-1.5-fan-failed-hot-inlet.json": ("fail", "fail"),
    "thermal-1.5-healthy.json": ("unknown", "pass"),
    "thermal-1.5-powered-off.json": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_fans_and_inlet() -> None:
    reading = as_whole(TOOL, "thermal-1.5-fan-failed-hot-inlet.json")
    (fan,) = of(reading, "fan_failed")
    assert (fan.device, fan.value, fan.limit) == ("FAN6_F", 0, 560)
    assert of(reading, "sensor_critical")[0].device == "TEMP_INLET"
    assert of(reading, "inlet_temperature")[0].value == 47
    absent = [p for p in reading.data["parts"] if p["state"] == "Absent"]
    assert [p["name"] for p in absent] == ["FAN7"]  # an empty socket is no frozen fan


def test_supplies() -> None:
    reading = as_whole(TOOL, "power-1.5-psu-failed.json")
    assert [s.device for s in of(reading, "psu_failed")] == ["PSU2"]
    assert [s.device for s in of(reading, "unreadable")] == ["PSU3"]  # enabled without health is not known
    (lost,) = of(as_whole(TOOL, "subsystems-new-input-lost.json"), "psu_failed")
    assert (lost.device, lost.detail["input"]) == ("PSU 2", "LossOfInput")


def test_links_prove_nothing() -> None:
    assert as_whole(TOOL, "fans-collection-links-only.json").data["links"] == 1


@pytest.mark.parametrize("end", [-3, -40, 200])
def test_cut_replies_never_pass(end: int) -> None:
    text = (DATA / TOOL / "thermal-1.5-healthy.json").read_text()
    assert fed(TOOL, text[:end], whole=True).verdict == "unknown"
