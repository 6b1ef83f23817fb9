# SPDX-License-Identifier: Apache-2.0
"""ipmitool's listings of sensors and events."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole

TOOL = "ipmi"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "elist-1.8.18-psu-lost.txt": ("fail", "fail"),
    "elist-1.8.19-healthy.txt": ("unknown", "pass"),
    "elist-with-stderr.txt": ("unknown", "unknown"),
    "no-session.txt": ("unknown", "unknown"),
    "sdr-1.8.18-fan-failed.txt": ("fail", "fail"),
    "sdr-1.8.18-healthy.txt": ("unknown", "pass"),
    "sdr-1.8.18-zero-rpm-ok.txt": ("unknown", "unknown"),
    "sel-elist-1.8.19-closed.txt": ("unknown", "pass"),
    "sel-empty.txt": ("unknown", "pass"),
    "sel-list-1.8.18.txt": ("fail", "fail"),
    "sensor-1.8.18-critical.txt": ("fail", "fail"),
    "type-psu-pdsh.txt": ("fail", "fail"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_fans_and_inlet() -> None:
    reading = as_whole(TOOL, "sdr-1.8.18-fan-failed.txt")
    (fan,) = of(reading, "fan_failed")
    assert (fan.device, fan.value, fan.unit, fan.line) == ("Fan3B", 0, "RPM", 3)
    assert [s.device for s in of(reading, "unreadable")] == ["Fan4A"]
    assert of(reading, "inlet_temperature")[0].value == 25


def test_a_supply_without_input() -> None:
    reading = as_whole(TOOL, "elist-1.8.18-psu-lost.txt")
    assert [s.device for s in of(reading, "psu_failed")] == ["PSU2_Status", "PSU2_VIN"]
    assert [s.device for s in of(reading, "sensor_warning")] == ["Fan1B", "PSU Redundancy"]
    assert [s["value"] for s in reading.data["sensors"] if s["name"] == "Temp"] == [61, 63]  # names repeat


def test_sensor_listing_with_limits() -> None:
    reading = as_whole(TOOL, "sensor-1.8.18-critical.txt")
    assert [s.device for s in of(reading, "fan_failed")] == ["fan2"]
    (inlet,) = of(reading, "sensor_critical")
    assert (inlet.device, inlet.value, inlet.limit) == ("Inlet Temp", 47, 45)


def test_sel_ids_are_hexadecimal_and_stay_text() -> None:
    reading = as_whole(TOOL, "sel-list-1.8.18.txt")
    events = of(reading, "sel_event")
    assert [s.detail["id"] for s in events] == ["1", "2", "7f", "80", "81", "82", "83"]
    assert events[1].detail["clock_unset"] is True
    assert [s.detail["hard"] for s in events] == [False, True, True, True, True, False, False]
    assert events[0].detail["date"] == "Pre-Init"


def test_deasserted_closes_an_event() -> None:
    assert as_whole(TOOL, "sel-elist-1.8.19-closed.txt").verdict == "pass"
    assert (
        fed(TOOL, "   a | 01/09/26 | 04:11:52 CET | PSU2 | Power Supply AC lost | Asserted", whole=True).verdict
        == "fail"
    )


def test_hosts_of_pdsh() -> None:
    (psu,) = of(as_whole(TOOL, "type-psu-pdsh.txt"), "psu_failed")
    assert psu.host == "dgx02"


@pytest.mark.parametrize("status", ["xx", ""])
def test_an_unknown_status_is_not_ok(status: str) -> None:
    reading = fed(TOOL, f"FAN1_F | 30h | {status} | 29.1 | 7560 RPM", whole=True)
    assert reading.verdict == "unknown"


def test_empty_reading_cells() -> None:
    reading = fed(TOOL, "Temp | 30h | ns  |  7.1 | \nTemp2 | 31h | ns  |  7.1 | No Reading", whole=True)
    assert reading.verdict == "unknown"  # nothing was read at all
