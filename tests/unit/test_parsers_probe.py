# SPDX-License-Identifier: Apache-2.0
"""Probe files: every section to its reader, nothing cut or missing passes."""

from __future__ import annotations

import pytest
from burnin import parsers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.node_samples import as_whole, fed, of
from tests.unit.parser_samples import DATA, check

TOOL = "probe"
HEALTHY = (DATA / TOOL / "node-healthy.txt").read_text()
FAULTS = (DATA / TOOL / "node-faults.txt").read_text()


def test_a_healthy_node_passes() -> None:
    reading = as_whole(TOOL, "node-healthy.txt")
    assert reading.verdict == "pass"
    assert set(reading.data["tools"].values()) == {"pass"}
    assert set(reading.data["tools"]) == {
        "dmesg", "dcgmi-health", "nvidia-smi", "mlxlink:mlx5_0", "mlxlink:mlx5_1", "ipmi", "scontrol",
    }  # fmt: skip
    assert (reading.data["node"], reading.data["time"], reading.data["up"]) == ("dgx05", 1794318425, 52311.0)
    section = reading.data["sections"]["mlxlink:mlx5_0"]
    assert section["argv"] == "mlxlink -d mlx5_0 -c" and section["data"]["device"] == "mlx5_0"


def test_signals_say_tool_host_and_line_of_the_file() -> None:
    reading = as_whole(TOOL, "node-faults.txt")
    assert reading.verdict == "fail"
    assert reading.data["tools"] == {
        "dmesg": "fail", "dcgmi-health": "unknown", "nvidia-smi": "fail", "mlxlink:mlx5_3": "fail", "ipmi": "fail",
        "ipmi:sel": "pass",
    }  # fmt: skip
    lines = FAULTS.split("\n")
    for found in reading.signals:
        assert found.host == "dgx05"
    (ber,) = of(reading, "link_effective_ber")
    assert (ber.device, ber.detail["tool"]) == ("mlx5_3", "mlxlink:mlx5_3") and "3E-10" in lines[ber.line - 1]
    assert {s.detail["tool"] for s in of(reading, "gpu_lost")} == {"dmesg", "nvidia-smi"}


def test_missing_and_slow_tools_are_unknown_with_a_reason() -> None:
    reading = as_whole(TOOL, "node-tools-missing-and-slow.txt")
    assert reading.data["tools"] == {
        "dmesg": "pass", "dcgmi-health": "unknown", "nvidia-smi": "unknown", "mlxlink:mlx5_0": "unknown",
        "lldp": "unknown",
    }  # fmt: skip
    text = " ".join(reading.problems)
    assert "not installed" in text and "time limit" in text and "no reader" in text


@pytest.mark.parametrize("status", [1, 15, 124, 126, 127, 137, 255])
def test_exit_status_never_passes_and_never_convicts(status: int) -> None:
    reading = fed(TOOL, HEALTHY.replace("#@burnin end 0", f"#@burnin end {status}"))
    assert set(reading.data["tools"].values()) == {"unknown"} and reading.verdict == "unknown"


def test_expected_tools_that_were_not_run() -> None:
    reading = parsers.read_lines(TOOL, HEALTHY.split("\n"), expected=["dmesg", "mlxlink:mlx5_1", "redfish"])
    assert reading.data["tools"]["redfish"] == "unknown" and reading.verdict == "unknown"


def test_without_closing_line_only_expectation_proves_that_all_is_there() -> None:
    text = HEALTHY.replace("#@burnin finished\n", "")
    assert fed(TOOL, text).verdict == "unknown"
    assert parsers.read_lines(TOOL, text.split("\n"), expected=["dmesg", "ipmi", "scontrol"]).verdict == "pass"


def test_a_line_count_that_does_not_fit() -> None:
    good = "#@burnin begin ipmi ipmitool sel list\nSEL has no entries\n#@burnin end 0 lines 1\n#@burnin finished"
    assert fed(TOOL, good).verdict == "pass"
    assert fed(TOOL, good.replace("lines 1", "lines 2")).verdict == "unknown"


def test_a_number_of_tools_that_does_not_fit() -> None:
    assert fed(TOOL, HEALTHY.replace("finished", "finished 7")).verdict == "pass"
    assert fed(TOOL, HEALTHY.replace("finished", "finished 8")).verdict == "unknown"


def test_a_section_that_begins_in_another() -> None:
    first = "#@burnin begin ipmi ipmitool sel list\nSEL has no entries\n"
    reading = fed(TOOL, first + "#@burnin begin dmesg dmesg\n[ 1.000001] a\n#@burnin end 0\n#@burnin finished")
    assert reading.data["tools"] == {"ipmi:sel": "unknown", "dmesg": "pass"}


def test_two_nodes_in_one_file_do_not_mix() -> None:
    a = [f"dgx01: {line}" for line in HEALTHY.split("\n")[1:-1]]
    b = [f"dgx02: {line}" for line in FAULTS.split("\n")[1:-1]]
    mixed = [line for pair in zip(a, b, strict=False) for line in pair] + a[len(b) :] + b[len(a) :]
    reading = parsers.read_lines(TOOL, mixed)
    check(reading)
    assert reading.data["tools"]["dgx01/nvidia-smi"] == "pass"
    assert reading.data["tools"]["dgx02/nvidia-smi"] == "fail"
    assert {s.host for s in of(reading, "gpu_lost")} == {"dgx02"}


@pytest.mark.parametrize(
    "tool", [t for t in parsers.TOOLS if t not in ("probe", "nccl", "hpl", "nemo", "squad", "straggler", "slurm-step")]
)
def test_a_probe_file_is_no_tools_output(tool: str) -> None:
    for name in ("node-healthy.txt", "node-faults.txt"):
        reading = parsers.read_file(tool, DATA / TOOL / name, strict=True)
        assert not reading.recognised and reading.verdict == "unknown"


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(HEALTHY) - len("\n#@burnin finished\n")))
def test_a_cut_probe_never_passes(at: int) -> None:
    assert fed(TOOL, HEALTHY[:at]).verdict != "pass"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(FAULTS)))
def test_cutting_hides_no_fault_that_was_seen(at: int) -> None:
    reading = fed(TOOL, FAULTS[:at])
    assert reading.verdict != "pass"
    whole = as_whole(TOOL, "node-faults.txt").data
    for key, section in whole["sections"].items():
        if section["last_line"] < FAULTS[:at].count("\n") and section["verdict"] == "fail":
            assert reading.data["tools"][key] == "fail"


def test_a_part_of_the_stack_is_kept_as_it_stands_and_decides_nothing() -> None:
    text = """\
#@burnin node n1 time 1794318425 up 5.0
#@burnin begin dmesg dmesg -T
[    0.000000] Linux version 6.1
[    1.000000] systemd[1]: Started.
#@burnin end 0
#@burnin begin stack:kernel uname -r
6.1.0-18
#@burnin end 0
#@burnin begin stack:bmc ipmitool mc info
Could not open device
#@burnin end 1
#@burnin finished
"""
    reading = parsers.read_lines("probe", text.splitlines())
    assert reading.verdict == "pass" and reading.complete and reading.problems == []
    assert reading.data["tools"] == {"dmesg": "pass"}
    section = reading.data["sections"]["stack:bmc"]
    assert (section["status"], section["first_line"], section["last_line"]) == (1, 9, 11)


def test_a_line_that_was_drawn_into_the_frame_is_missed() -> None:
    text = (
        "#@burnin node dgx01 time 1 up 1.00\n#@burnin begin ipmi ipmitool sdr type 'Power Supply'\n"
        "PSU1_Status | C8h | cr  | 10.1 | Failure detected\nPSU2_Status | C9h | ok  | 10.1 | Presence detected\n"
        "#@burnin end 0 lines 2\n#@burnin finished 1\n"
    )
    assert parsers.read_bytes("probe", text.encode(), strict=True).verdict == "fail"
    for hole in (b"\xff", b"\0"):
        damaged = text.encode().replace(b"'\nPSU1", b"'" + hole + b"PSU1").replace(b"PSU2_S", b"PSU2\n_S")
        reading = parsers.read_bytes("probe", damaged, strict=True)
        assert reading.verdict != "pass" and not reading.complete and reading.problems
        assert reading.data["tools"] == {"ipmi": "unknown"}


@pytest.mark.parametrize("junk", [b"\0" * 40, b"x" * (2 << 20), b"\xff"])
def test_a_hole_in_one_tools_text_is_that_tools(junk: bytes) -> None:
    data = (DATA / "probe" / "node-healthy.txt").read_bytes()
    at = data.index(b"mlx5_core 0000:5e:00.0: firmware version")
    whole, damaged = (parsers.read_bytes("probe", d, strict=True) for d in (data, data[:at] + junk + data[at + 40 :]))
    assert set(whole.data["tools"].values()) == {"pass"}
    assert [tool for tool, verdict in damaged.data["tools"].items() if verdict != "pass"] == ["dmesg"]
    assert damaged.data["tools"]["dmesg"] == "unknown" and not damaged.complete
