# SPDX-License-Identifier: Apache-2.0
"""mlxlink: link state, counters, modules, JSON."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "mlxlink"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "c-eth-400g-mft-4.28-per-lane.txt": ("unknown", "pass"),
    "c-ib-counters-na.txt": ("unknown", "unknown"),
    "c-ib-down-polling.txt": ("fail", "fail"),
    "c-ib-hdr-instead-of-ndr.txt": ("fail", "fail"),
    "c-ib-just-cleared.txt": ("unknown", "pass"),
    "c-ib-ndr-mft-4.26-bad-cable.txt": ("fail", "fail"),
    "c-ib-ndr-mft-4.26-healthy.txt": ("unknown", "pass"),
    "c-ib-opcode-high-ber.txt": ("fail", "fail"),
    "c-two-ports-loop.txt": ("fail", "fail"),
    "cm-ib-ndr-optic-healthy.txt": ("unknown", "pass"),
    "json-c-ib-mft-4.28-bad-cable.json": ("fail", "fail"),
    "json-c-ib-mft-4.28-healthy.json": ("pass", "pass"),
    "json-failed.json": ("unknown", "unknown"),
    "m-ib-copper.txt": ("unknown", "pass"),
    "m-ib-ndr-optic-dark-lane.txt": ("fail", "fail"),
    "m-ib-ndr-optic-weak-lane.txt": ("unknown", "pass"),
    "not-there.txt": ("unknown", "unknown"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_no_error_seen_is_not_fifteen() -> None:
    for name in ("c-ib-ndr-mft-4.26-healthy.txt", "json-c-ib-mft-4.28-healthy.json"):
        reading = as_whole(TOOL, name, device="mlx5_0")
        assert reading.data["effective_ber"] < 1e-250 and reading.data["symbol_ber"] < 1e-250
        assert not of(reading, "link_effective_ber")
        assert reading.data["raw_errors_per_lane"] == [12, 8, 9, 15]
        assert reading.data["device"] == "mlx5_0"


def test_per_lane_ber_is_not_the_ber() -> None:
    reading = as_whole(TOOL, "c-eth-400g-mft-4.28-per-lane.txt")
    assert reading.data["raw_ber"] == 2e-9 and reading.data["raw_ber_per_lane"] == "1E-9,2E-9,1E-9,3E-9"


@pytest.mark.parametrize("name", ["c-ib-ndr-mft-4.26-bad-cable.txt", "json-c-ib-mft-4.28-bad-cable.json"])
def test_a_bad_cable(name: str) -> None:
    reading = as_whole(TOOL, name)
    (ber,) = of(reading, "link_effective_ber")
    assert (ber.value, ber.limit) == (3e-10, 1e-12)
    assert [s.value for s in of(reading, "link_down_count", "link_recovery_count")] == [2, 57]
    assert of(reading, "link_effective_errors")[0].value == 41877


def test_counters_do_not_decide() -> None:
    text = (DATA / TOOL / "c-ib-ndr-mft-4.26-healthy.txt").read_text()
    reading = fed(
        TOOL,
        text.replace("Link Down Counter                  : 0", "Link Down Counter                  : 3"),
        whole=True,
    )
    assert reading.verdict == "pass" and of(reading, "link_down_count")[0].value == 3


def test_a_port_that_is_down() -> None:
    reading = as_whole(TOOL, "c-ib-down-polling.txt")
    (state,) = of(reading, "link_state")
    assert state.detail["state"] == "Polling" and state.detail["recommendation"] == "Negotiation failure"
    assert not of(reading, "unreadable")  # N/A is expected there


def test_slower_than_enabled_and_cabled() -> None:
    (speed,) = of(as_whole(TOOL, "c-ib-hdr-instead-of-ndr.txt"), "link_speed")
    assert (speed.detail["speed"], speed.detail["possible"]) == ("IB-HDR", "NDR")


def test_modules() -> None:
    (dark,) = of(as_whole(TOOL, "m-ib-ndr-optic-dark-lane.txt"), "module_rx_power")
    assert dark.detail == {"lane": 3, "others": 1.1, "outside": True, "dark": True}
    weak = as_whole(TOOL, "m-ib-ndr-optic-weak-lane.txt")
    assert weak.verdict == "pass" and of(weak, "module_rx_power")[0].detail["lane"] == 1
    assert weak.data["module"]["rx_power_range"] == [-10, 5]
    copper = as_whole(TOOL, "m-ib-copper.txt")
    assert copper.data["module"]["rx_power_dbm"] is None and not copper.signals


def test_ports_of_a_loop() -> None:
    reading = as_whole(TOOL, "c-two-ports-loop.txt")
    assert [p["device"] for p in reading.data["ports"]] == ["mlx5_0", "mlx5_3"]
    assert {s.device for s in reading.signals} == {"mlx5_3"}


def test_a_range_cut_in_its_middle_is_unreadable() -> None:
    text = (DATA / TOOL / "cm-ib-ndr-optic-healthy.txt").read_text()
    assert fed(TOOL, text[: text.rindex("..5.0]")], whole=True).verdict == "unknown"


def test_an_empty_output_is_unknown() -> None:
    reading = fed(TOOL, '{\n    "result": {\n        "output": {\n    }\n}}')
    assert reading.verdict == "unknown" and reading.problems
