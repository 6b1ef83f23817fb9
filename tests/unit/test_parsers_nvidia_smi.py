# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi as text and XML, old and new names, lost GPUs, resets."""

from __future__ import annotations

import pytest

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "nvidia-smi"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "L-550-one-lost.txt": ("fail", "fail"),
    "driver-down.txt": ("fail", "fail"),
    "library-mismatch.txt": ("unknown", "unknown"),
    "lost-handle-470-wrapped.txt": ("fail", "fail"),
    "lost-handle-535.txt": ("fail", "fail"),
    "lost-handle-550-reboot.txt": ("fail", "fail"),
    "no-devices.txt": ("fail", "fail"),
    "q-470-a100-healthy.txt": ("pass", "pass"),
    "q-470-a100-power-brake.txt": ("fail", "fail"),
    "q-550-h100-cut.txt": ("unknown", "unknown"),
    "q-550-h100-ecc-off.txt": ("unknown", "unknown"),
    "q-550-h100-healthy.txt": ("pass", "pass"),
    "q-550-h100-remap-failed.txt": ("fail", "fail"),
    "q-550-h100-requires-reset.txt": ("fail", "fail"),
    "q-550-h100-single.txt": ("pass", "pass"),
    "q-550-h100-throttling.txt": ("fail", "fail"),
    "q-550-twice-in-one-file.txt": ("pass", "pass"),
    "q-550-two-hosts-pdsh.txt": ("unknown", "pass"),
    "q-580-b200-healthy.txt": ("pass", "pass"),
    "q-580-b200-recovery-action.txt": ("fail", "fail"),
    "table-550-err.txt": ("fail", "fail"),
    "x-470-a100-healthy.xml": ("pass", "pass"),
    "x-550-h100-cut.xml": ("unknown", "unknown"),
    "x-550-h100-healthy.xml": ("pass", "pass"),
    "x-550-h100-requires-reset.xml": ("fail", "fail"),
    "x-550-h100-throttling.xml": ("fail", "fail"),
    "x-580-b200-recovery-action.xml": ("fail", "fail"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_facts_of_a_healthy_gpu() -> None:
    for name in ("q-550-h100-healthy.txt", "x-550-h100-healthy.xml"):
        reading = as_whole(TOOL, name)
        assert (reading.data["attached"], reading.data["driver"], reading.data["cuda"]) == (8, "550.54.15", "12.4")
        gpu = reading.data["gpus"][5]
        assert (gpu["index"], gpu["bdf"], gpu["serial"]) == (5, "0000:c3:00", "1650000000005")
        assert gpu["uuid"].startswith("GPU-00000005-")
        assert (gpu["temperature_c"], gpu["t_limit_c"], gpu["t_limit_slowdown_c"]) == (65, 22, -2)
        assert (gpu["power_w"], gpu["power_limit_w"]) == (685.12, 700)
        assert gpu["throttle"] == [] and gpu["row_remap"] == {
            "correctable": 0, "uncorrectable": 0, "pending": False, "failed": False,
        }  # fmt: skip
        assert gpu["ecc"]["volatile"]["dram uncorrectable"] == 0
        assert gpu["memory_used_mib"] == 62005 and gpu["link"]["width"] == 16
        assert reading.data["gpus"][2]["throttle"] == ["sw power cap"]  # normal under load: no signal, no verdict
        assert not of(reading, "throttle")
        (process,) = reading.data["gpus"][0]["processes"]
        assert (process["pid"], process["name"], process["used_mib"]) == (48122, "python", 61500)


@pytest.mark.parametrize("name", ["q-550-h100-throttling.txt", "x-550-h100-throttling.xml"])
def test_headroom_is_no_temperature(name: str) -> None:
    reading = as_whole(TOOL, name)
    assert {s.gpu for s in of(reading, "throttle")} == {5}
    hot = max(of(reading, "gpu_temperature"), key=lambda s: s.value or 0)
    assert (hot.gpu, hot.value, hot.detail["t_limit"]) == (5, 88, -3)


def test_old_and_new_names() -> None:
    old = as_whole(TOOL, "q-470-a100-healthy.txt")
    assert old.data["gpus"][0]["temperature_slowdown_c"] == 89 and old.data["gpus"][0]["t_limit_c"] is None
    assert of(old, "gpu_temperature")[0].limit == 89
    brake = of(as_whole(TOOL, "q-470-a100-power-brake.txt"), "throttle")
    assert {(s.gpu, s.detail["reason"]) for s in brake} == {(1, "hw slowdown"), (1, "hw power brake slowdown")}
    new = as_whole(TOOL, "q-580-b200-healthy.txt")
    assert new.data["gpus"][3]["power_w"] == 993.12 and new.data["gpus"][3]["recovery_action"] == "None"


def test_recovery_action_alone_is_enough() -> None:
    reading = as_whole(TOOL, "q-580-b200-recovery-action.txt")
    (reset,) = of(reading, "gpu_requires_reset")
    assert (reset.gpu, reset.detail["action"]) == (6, "Drain and Reset")
    assert [s.gpu for s in of(reading, "row_remap_failed")] == [7]
    (xml,) = of(as_whole(TOOL, "x-580-b200-recovery-action.xml"), "gpu_requires_reset")
    assert (xml.gpu, xml.detail["action"]) == (6, "Reset")


def test_memory_that_cannot_be_repaired() -> None:
    reading = as_whole(TOOL, "q-550-h100-remap-failed.txt")
    assert [s.gpu for s in of(reading, "row_remap_failed", "row_remap_pending")] == [3, 3]
    values = {(s.detail.get("scope"), s.value) for s in of(reading, "ecc_uncorrectable")}
    assert values == {("volatile", 2), ("aggregate", 9), (None, None)}
    (width,) = of(reading, "link_speed")
    assert (width.gpu, width.value, width.limit) == (4, 8, 16)
    assert [s.value for s in of(reading, "row_remap_count")] == [8]


def test_counters_do_not_decide() -> None:
    text = (DATA / TOOL / "q-550-h100-healthy.txt").read_text()
    line = "DRAM Uncorrectable            : 0"
    reading = fed(TOOL, text.replace(line, line[:-1] + "4", 1), whole=True)
    assert reading.verdict == "pass"
    assert [(s.gpu, s.value) for s in of(reading, "ecc_uncorrectable")] == [(0, 4)]


@pytest.mark.parametrize("name", ["q-550-h100-requires-reset.txt", "x-550-h100-requires-reset.xml"])
def test_a_gpu_that_must_be_reset(name: str) -> None:
    (reset,) = of(as_whole(TOOL, name), "gpu_requires_reset")
    assert reset.gpu == 5 and reset.detail["what"] == "GPU requires reset"


@pytest.mark.parametrize("name", [n for n in named(TOOL) if n.startswith(("lost-handle", "L-"))])
def test_lost_gpu_is_named_by_its_address(name: str) -> None:
    (lost,) = of(as_whole(TOOL, name), "gpu_lost")
    assert lost.bdf == "0000:c3:00" and lost.detail["what"].startswith(("Unknown Error", "GPU is lost"))
    if "wrapped" in name:
        assert lost.detail["what"].endswith("to recover this GPU")


def test_ecc_off_is_not_ecc_clean() -> None:
    reading = as_whole(TOOL, "q-550-h100-ecc-off.txt")
    assert {s.detail["what"] for s in of(reading, "unreadable")} == {"ECC mode"}
    assert reading.data["gpus"][0]["ecc"]["volatile"]["dram uncorrectable"] is None


def test_index_is_not_guessed_when_blocks_are_missing() -> None:
    reading = as_whole(TOOL, "q-550-h100-cut.txt")
    assert {g["index"] for g in reading.data["gpus"]} == {None}
    assert reading.data["gpus"][0]["bdf"] == "0000:1b:00"


def test_several_hosts_and_several_runs() -> None:
    hosts = as_whole(TOOL, "q-550-two-hosts-pdsh.txt")
    assert [g["host"] for g in hosts.data["gpus"]] == ["dgx01", "dgx01", "dgx02", "dgx02"]
    assert as_whole(TOOL, "q-550-twice-in-one-file.txt").data["runs"] == 2


def test_one_value_that_only_one_gpu_lacks_is_unreadable() -> None:
    text = (DATA / TOOL / "q-550-h100-healthy.txt").read_text()
    for line in ("Pending                           : No", "HW Slowdown                       : Not Active"):
        at = text.rindex(line)
        reading = fed(TOOL, text[:at] + line.rpartition(":")[0] + ": N/A" + text[at + len(line) :], whole=True)
        assert reading.verdict == "unknown" and of(reading, "unreadable")[0].gpu == 7


def test_entities_in_xml_are_refused() -> None:
    reading = fed(TOOL, '<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY b "c">]>\n<nvidia_smi_log>&b;</nvidia_smi_log>')
    assert reading.verdict == "unknown" and any("entities" in p for p in reading.problems)
