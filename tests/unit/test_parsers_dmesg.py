# SPDX-License-Identifier: Apache-2.0
"""The kernel log in every dress: what is an event, whose it is, when it was, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin import parsers
from burnin.parsers.reading import Reading, Signal

DATA = Path(__file__).resolve().parents[1] / "data" / "dmesg"


def read(name: str, **options: object) -> Reading:
    return parsers.read_file("dmesg", DATA / name, strict=True, **options)


def of(reading: Reading, *kinds: str) -> list[Signal]:
    return [s for s in reading.signals if s.kind in kinds]


def lines(text: str, **options: object) -> Reading:
    return parsers.read_lines("dmesg", text.strip("\n").split("\n"), **options)


VERDICTS = {
    "clean-uptime-5.15.txt": "pass",
    "xid79-dmesg-T-pdsh-550.txt": "fail",
    "xid-forms-uptime.txt": "fail",
    "nvlink5-iso-570.txt": "fail",
    "nonfatal-only-dash-x.txt": "pass",
    "gone-without-xid-535.txt": "fail",
    "sxid-syslog.txt": "fail",
    "mlx5-ib-journal.txt": "fail",
    "mlx5-ethernet-journal-iso.txt": "pass",
    "aer-4.18-5.15-rhel9.txt": "pass",
    "aer-fatal-6.1.txt": "fail",
    "aer-head-only-5.15.txt": "fail",
    "memory-edac-apei-mce.txt": "fail",
    "software-hung-oom-lockup.txt": "pass",
    "panic-reltime.txt": "fail",
    "flood-xid45-535.txt": "fail",
    "clock-jumps-two-boots.txt": "pass",
}


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.iterdir()))
def test_every_sample(name: str) -> None:
    whole = read(name, whole=True)
    assert whole.recognised and whole.complete
    assert whole.verdict == VERDICTS[name]
    # The same text without anybody's word that it is whole never passes, and a fault stays one.
    alone = read(name)
    assert alone.verdict == ("fail" if VERDICTS[name] == "fail" else "unknown")
    assert not alone.complete
    # Reading by blocks and feeding line by line see the same.
    fed = parsers.read_lines("dmesg", (DATA / name).read_text().rstrip("\n").split("\n"), whole=True)
    assert [s.to_dict() for s in fed.signals] == [s.to_dict() for s in whole.signals]
    assert fed.data == whole.data


def test_xid_79_with_host_time_and_serial() -> None:
    reading = read("xid79-dmesg-T-pdsh-550.txt")
    lost, recovery = of(reading, "xid")
    assert (lost.host, lost.value, lost.bdf, lost.line) == ("dgx05", 79, "0000:c3:00", 4)
    assert lost.text.startswith("[Tue Nov 10 13:47:05 2026] NVRM: Xid")
    assert lost.detail["process"] == "python" and lost.detail["pid"] == 48122
    assert lost.detail["clock"] == "local" and lost.detail["time"] == 1794318425
    assert recovery.detail["action"] == "Node Reboot Required" and recovery.detail["action_code"] == 2
    assert reading.data["gpus"]["0000:c3:00"]["serial"] == "1650000LAB05"
    (gone,) = of(reading, "gpu_lost")
    assert gone.detail["same_event"] is True


def test_all_xid_forms() -> None:
    found = of(read("xid-forms-uptime.txt"), "xid")
    assert [int(s.value or 0) for s in found] == [14, 13, 31, 94, 95, 48, 63, 64, 74, 45, 119, 176]
    by = {int(s.value or 0): s for s in found}
    assert (by[13].detail["gpc"], by[13].detail["tpc"]) == (3, 1)
    assert by[94].detail["gpu_instance"] == 5 and by[94].detail["reset"] is False
    assert by[95].detail["reset"] is True and by[95].detail["compute_instance"] == 0
    assert by[74].device == "link03"
    assert by[45].detail["previous"] == 149
    assert by[119].bdf == "0000:d1:00"
    assert by[119].detail["process"] == "kworker/u448:2"


def test_nvlink5_word_decides() -> None:
    fatal, mild, unbound = of(read("nvlink5-iso-570.txt"), "xid")
    assert (fatal.device, fatal.detail["fatal"], fatal.detail["unit"]) == ("link08", True, "NETIR_LINK_EVT")
    assert (mild.device, mild.detail["fatal"], mild.detail["process"]) == ("link13", False, "python3")
    assert unbound.device is None
    assert fatal.detail["clock"] == "utc" and fatal.detail["time"] == pytest.approx(1767931912.104233)


def test_recovery_to_none_is_no_fault() -> None:
    reading = read("nonfatal-only-dash-x.txt", whole=True)
    assert of(reading, "xid")[1].detail["action"] == "None"
    assert reading.data["needs_context"]


def test_gone_without_an_xid_spans_three_lines() -> None:
    gone, init = of(read("gone-without-xid-535.txt"), "gpu_lost")
    assert (gone.bdf, gone.line) == ("0000:4f:00", 2)
    assert "fallen off the bus and is not responding" in gone.text
    assert gone.detail["time"] == 2711.550012
    assert (init.bdf, init.detail["what"]) == ("0000:5f:00", "initialisation failed")


def test_interleaved_hosts_do_not_mix_the_three_lines() -> None:
    reading = lines(
        """
n1: [ 2711.550012] NVRM: The NVIDIA GPU 0000:4f:00.0
n2: [ 1000.000000] NVRM: The NVIDIA GPU 0000:5f:00.0
n1:                NVRM: (PCI ID: 10de:2330) installed in this system has
n2:                NVRM: (PCI ID: 10de:2330) installed in this system is not supported
n1:                NVRM: fallen off the bus and is not responding to commands.
"""
    )
    assert [(s.host, s.bdf) for s in of(reading, "gpu_lost")] == [("n1", "0000:4f:00")]


def test_sxid_counts_events_and_not_lines() -> None:
    mild, fatal, manager = of(read("sxid-syslog.txt"), "sxid")
    assert (mild.value, mild.device, mild.detail["fatal"]) == (12028, "nvswitch3/link28", False)
    assert (fatal.value, fatal.device, fatal.detail["fatal"], fatal.host) == (20034, "nvswitch1/link13", True, "burn05")
    assert manager.detail["reporter"] == "fabric manager" and manager.host == "burn05"
    assert mild.detail["uptime"] == 52311.004211 and mild.detail["clock"] == "no-year"


def test_year_of_syslog_stamps_can_be_given() -> None:
    assert read("sxid-syslog.txt", year=2026).data["first_time"] == 1767931910


def test_ports_that_flap_and_stay_down() -> None:
    reading = read("mlx5-ib-journal.txt")
    assert [(s.kind, s.device, s.line) for s in of(reading, "ib_port_down", "ib_port_up")] == [
        ("ib_port_up", "mlx5_5", 1),
        ("ib_port_down", "mlx5_5", 2),
        ("ib_port_up", "mlx5_5", 4),
        ("ib_port_down", "mlx5_6", 5),
    ]
    assert [s.detail["what"] for s in of(reading, "hca_event")] == [
        "transceiver: Cable error, High Temperature",
        "insufficient slot power",
    ]
    ethernet = read("mlx5-ethernet-journal-iso.txt")
    assert [s.device for s in of(ethernet, "ib_port_down")] == ["ens1np0"]


def test_aer_names_the_sufferer_and_counts() -> None:
    gpu, port = of(read("aer-4.18-5.15-rhel9.txt"), "pcie_corrected")
    assert (gpu.bdf, gpu.value, gpu.detail["driver"]) == ("0000:17:00", 2, "nvidia")
    assert port.bdf == "0000:00:03"
    (fatal,) = of(read("aer-fatal-6.1.txt"), "pcie_uncorrected")
    assert (fatal.bdf, fatal.detail["severity"]) == ("10000:01:00", "Fatal")
    (head,) = of(read("aer-head-only-5.15.txt"), "pcie_uncorrected")
    assert head.bdf == "0000:17:00"


def test_memory_errors() -> None:
    reading = read("memory-edac-apei-mce.txt")
    assert [s.value for s in of(reading, "memory_ce")] == [16385, 1]
    (ue,) = of(reading, "memory_ue")
    assert ue.device == "CPU_SrcID#1_MC#0_Chan#1_DIMM#0"
    assert len(of(reading, "machine_check")) == 1
    assert len(of(reading, "pcie_uncorrected")) == 1


def test_a_flood_is_counted_and_both_ends_are_kept() -> None:
    reading = read("flood-xid45-535.txt")
    assert reading.data["counts"]["xid"] == 6001
    flood = [s for s in of(reading, "xid") if s.value == 45 and s.bdf == "0000:1b:00"]
    assert len(flood) == 16
    assert flood[0].detail["count"] == 3000 and flood[0].detail["last_line"] == flood[-1].line == 6000
    assert {x["xid"]: x["count"] for x in reading.data["xids"] if x["bdf"] == "0000:1b:00"} == {79: 1, 45: 3000}


def test_clock_that_goes_back_is_said() -> None:
    reading = read("clock-jumps-two-boots.txt", whole=True)
    assert reading.data["clock_jumps"] == [3]
    assert any("go back" in p for p in reading.problems)


def test_first_and_last_time_of_several_hosts() -> None:
    reading = lines(
        """
n1: [  100.000000] a
n2: [   50.000000] b
n1: [  900.000000] c
n2: [  800.000000] d
"""
    )
    # What all of them cover: from the latest beginning to the earliest end.
    assert (reading.data["first_time"], reading.data["last_time"]) == (100.0, 800.0)
    assert reading.data["hosts"]["n2"]["first_time"] == 50.0
    assert [(s.host, s.value) for s in of(reading, "log_starts")] == [("n1", 100.0), ("n2", 50.0)]


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-09 04:11:52] iteration 100/ 5000 | consumed samples: 25600 |",
        "2026-01-09 04:11:52,123 - INFO - started",
        "Jan  9 04:11:52 burn05 slurmd[12]: error: something",
        "[NeMo I 2026-01-09 04:11:52 nemo_logging:393] x",
        "Filesystem 1K-blocks Used",
    ],
)
def test_other_logs_are_not_taken_for_a_kernel_log(line: str) -> None:
    reading = lines(line, whole=True)
    assert not reading.recognised and reading.verdict == "unknown" and reading.problems


def test_two_xids_on_one_line() -> None:
    reading = lines("[1.000001] NVRM: Xid (PCI:0000:1b:00): 48, DBE[1.000002] NVRM: Xid (PCI:0000:43:00): 79, gone")
    assert [(s.value, s.bdf) for s in of(reading, "xid")] == [(48, "0000:1b:00"), (79, "0000:43:00")]


def test_memory_stays_bounded_under_a_million_places() -> None:
    parser = parsers.parser_for("dmesg")
    for i in range(6000):
        parser.feed(i + 1, f"[{i:6d}.000001] NVRM: Xid (PCI:{i:04x}:1b:00): 79, gone")
    reading = parser.finish()
    assert reading.data["counts"]["xid"] == 6000 and reading.verdict == "fail"
    assert len(reading.signals) <= 4096
