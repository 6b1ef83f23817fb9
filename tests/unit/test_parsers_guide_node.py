# SPDX-License-Identifier: Apache-2.0
"""The guide's own sample outputs of node and fabric tools, and what the guide says one must see in them."""

from __future__ import annotations

from burnin import parsers
from burnin.parsers.reading import Reading, Signal

from tests.unit.parser_samples import guide


def read(tool: str, start: str, **options: object) -> Reading:
    return parsers.read_lines(tool, guide(start).splitlines(), **options)


def of(reading: Reading, kind: str) -> list[Signal]:
    return [s for s in reading.signals if s.kind == kind]


def test_xid_79_on_dgx05() -> None:
    reading = read("dmesg", 'pdsh -w dgx[01-32] "dmesg -T')
    assert reading.verdict == "fail"
    (xid,) = of(reading, "xid")
    assert (xid.host, xid.value, xid.bdf, xid.line) == ("dgx05", 79.0, "0000:c3:00", 1)
    (lost,) = of(reading, "gpu_lost")
    assert lost.host == "dgx05" and lost.detail["same_event"]


def test_gpu_c3_is_throttling() -> None:
    reading = read("nvidia-smi", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE")
    assert reading.verdict == "fail" and not reading.complete
    assert {s.bdf for s in of(reading, "throttle")} == {"0000:c3:00"}
    assert "hw thermal slowdown" in {s.detail["reason"] for s in of(reading, "throttle")}
    (hot,) = [s for s in of(reading, "gpu_temperature") if s.bdf == "0000:c3:00"]
    assert (hot.value, hot.detail["t_limit"], hot.detail["t_limit_slowdown"]) == (88.0, -3.0, -2.0)


def test_fan6_has_failed() -> None:
    reading = read("ipmi", "ipmitool sdr type fan", whole=True)
    assert reading.verdict == "fail" and reading.complete
    assert [(s.device, s.value) for s in of(reading, "fan_failed")] == [("FAN6_F", 0.0), ("FAN6_R", 0.0)]
    assert len(reading.data["sensors"]) == 12


def test_link_with_bit_errors() -> None:
    reading = read("mlxlink", "mlxlink -d mlx5_3 -c", device="mlx5_3")
    assert reading.verdict == "fail"
    (ber,) = of(reading, "link_effective_ber")
    assert ber.value == 3e-10 and ber.device == "mlx5_3"
    (down,) = of(reading, "link_down_count")
    assert down.value == 2


def test_module_with_a_weak_lane() -> None:
    reading = read("mlxlink", "mlxlink -d mlx5_3 -m", device="mlx5_3", whole=True)
    (rx,) = of(reading, "module_rx_power")
    assert (rx.detail["lane"], rx.value) == (1, -7.9)
    (hot,) = of(reading, "module_temperature")
    assert (hot.value, hot.limit) == (71.0, 75.0)


def test_health_is_healthy() -> None:
    reading = read("dcgmi-health", "dcgmi health -s a && dcgmi health -c")
    assert (reading.verdict, reading.complete, reading.data["overall"]) == ("pass", True, "Healthy")


def test_dmon_shows_the_hot_gpu() -> None:
    reading = read("dcgmi-dmon", "dcgmi dmon -e 150,155,203,1002")
    hot = max(of(reading, "gpu_temperature"), key=lambda s: s.value or 0)
    assert (hot.gpu, hot.value) == (5, 88.0)
    low = min(of(reading, "gpu_power"), key=lambda s: s.value or 0)
    assert (low.gpu, low.value) == (5, 612.4)
    assert reading.data["fields"] == {"TMPTR": "C", "POWER": "W", "GPUTL": "%", "SMACT": None}


def test_fabric_is_clean_with_257_cas() -> None:
    reading = read("ibdiagnet", "ibdiagnet -pc")
    assert (reading.verdict, reading.data["cas"], reading.data["errors"]) == ("pass", 257, 0)
    assert reading.data["counters_cleared"] and len(reading.data["stages"]) == 10


def test_diag_passes_with_eud_skipped() -> None:
    reading = read("dcgmi-diag", "dcgmi diag -r 3")
    assert (reading.verdict, reading.complete, reading.data["gpu_count"]) == ("pass", True, 8)
    assert {t["name"]: t["result"] for t in reading.data["tests"]}["EUD Test"] == "skip"
    assert all(t["result"] == "pass" for t in reading.data["tests"] if t["name"] != "EUD Test")
