# SPDX-License-Identifier: Apache-2.0
"""dcgmi diag of DCGM 2 to 4 as text and JSON."""

from __future__ import annotations

import json

import pytest
from burnin import parsers

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole
from tests.unit.parser_samples import DATA

TOOL = "dcgmi-diag"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "json-2.4-fail.json": ("fail", "fail"),
    "json-2.4-pass.json": ("pass", "pass"),
    "json-3.3-pass.json": ("pass", "pass"),
    "json-3.3-persistence-off.json": ("fail", "fail"),
    "json-3.3-power-fail-with-banner.json": ("fail", "fail"),
    "json-4.1-iterations.json": ("fail", "fail"),
    "json-4.1-memory-fail.json": ("fail", "fail"),
    "json-4.1-pass.json": ("pass", "pass"),
    "json-4.1-runtime-error.json": ("unknown", "unknown"),
    "text-2.4-persistence-off.txt": ("fail", "fail"),
    "text-3.3-all-skipped.txt": ("unknown", "unknown"),
    "text-3.3-could-not-allocate.txt": ("unknown", "unknown"),
    "text-3.3-cut.txt": ("unknown", "unknown"),
    "text-3.3-memory-fail.txt": ("fail", "fail"),
    "text-3.3-pass.txt": ("pass", "pass"),
    "text-4.1-pass.txt": ("pass", "pass"),
    "text-4.1-power-fail.txt": ("fail", "fail"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_failed_gpus_are_named() -> None:
    assert [s.gpu for s in of(as_whole(TOOL, "text-3.3-memory-fail.txt"), "dcgm_diag")] == [0, 5]
    for name, gpu, test in (
        ("text-4.1-power-fail.txt", 3, "targeted_power"),
        ("json-3.3-power-fail-with-banner.json", 5, "Targeted Power"),
        ("json-4.1-memory-fail.json", 3, "memory"),
        ("json-2.4-fail.json", 3, "GPU Memory"),
    ):
        (found,) = of(as_whole(TOOL, name), "dcgm_diag")
        assert (found.gpu, found.detail["test"]) == (gpu, test), name


def test_wrapped_warnings_are_joined() -> None:
    (found,) = of(as_whole(TOOL, "text-4.1-power-fail.txt"), "dcgm_diag")
    assert "clocks event due to thermal violation in GPU 3. Verify that the cooling" in found.detail["warnings"][0]


@pytest.mark.parametrize("name", ["text-2.4-persistence-off.txt", "json-3.3-persistence-off.json"])
def test_settings_are_not_hardware(name: str) -> None:
    found = of(as_whole(TOOL, name), "dcgm_diag")
    assert found and all(s.detail["config"] for s in found)


def test_blank_values_are_words() -> None:
    (found,) = of(as_whole(TOOL, "json-2.4-fail.json"), "dcgm_diag")
    assert found.detail["warnings"] == ["GPU 3 had (not supported) errors"]


@pytest.mark.parametrize(
    ("name", "count"),
    [("text-3.3-pass.txt", 8), ("text-4.1-pass.txt", 8), ("json-3.3-pass.json", 8), ("json-4.1-pass.json", 8)],
)
def test_number_of_gpus(name: str, count: int) -> None:
    reading = as_whole(TOOL, name)
    assert reading.data["gpu_count"] == count and of(reading, "gpu_count")[0].value == count


def test_a_whole_json_that_lists_no_devices_names_the_gpus_that_were_tested() -> None:
    text = (DATA / TOOL / "json-2.4-pass.json").read_text()
    reading = parsers.read_lines(TOOL, text.split("\n"))
    assert reading.data["gpu_count"] == 8 and not of(reading, "gpu_count"), "counted, not told"
    fewer = parsers.read_lines(TOOL, text.replace('"0,1,2,3,4,5,6,7"', '"0,1,2,3,4,6,7"').split("\n"))
    assert fewer.data["gpu_count"] == 7
    cut = parsers.read_lines(TOOL, text[: text.rindex("}")].split("\n"))
    assert "gpu_count" not in cut.data and cut.verdict != "pass"


def test_devices_at_the_root() -> None:
    """As nvvs writes it: what DCGM 3 prints may have them there or in `metadata`."""
    root = {
        "version": "3.3.5",
        "Driver Version Detected": "550.54.15",
        "GPU Device IDs": ["2330"] * 8,
        "test_categories": [],
    }
    reading = parsers.read_lines(TOOL, json.dumps({"DCGM GPU Diagnostic": root}).split("\n"))
    assert (reading.data["gpu_count"], reading.data["version"], reading.data["driver"]) == (8, "3.3.5", "550.54.15")


def test_successfully_ran_means_nothing() -> None:
    reading = fed(TOOL, "Successfully ran diagnostic for group.")
    assert reading.recognised and reading.verdict == "unknown"


def test_pass_with_a_warning_is_not_done() -> None:
    (found,) = of(as_whole(TOOL, "text-3.3-could-not-allocate.txt"), "dcgm_diag")
    assert found.detail["result"] == "not done"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('        "tests": [\n', '        "#ests": [\n'),  # a key that is nearly one of dcgmi's
        ('                "warnings": [\n', '                "warxings": [\n'),
        ('    "test_categories": [\n', ""),  # the object ends early, and more follows than a banner
    ],
)
def test_a_damaged_json_is_no_pass(old: str, new: str) -> None:
    text = (DATA / TOOL / "json-3.3-power-fail-with-banner.json").read_text()
    assert old in text
    reading = parsers.read_lines(TOOL, text.replace(old, new, 1).split("\n"))
    assert reading.verdict != "pass" and not reading.complete and reading.problems


def test_a_gpu_without_results_is_missed() -> None:
    text = (DATA / TOOL / "json-4.1-pass.json").read_text()
    document = json.loads(text)
    tests = [t for c in document["DCGM Diagnostic"]["test_categories"] for t in c["tests"]]
    for test in tests:
        test["results"] = [r for r in test["results"] if r.get("entity_id") != 5]
    reading = parsers.read_lines(TOOL, json.dumps(document).split("\n"))
    assert parsers.read_lines(TOOL, text.split("\n")).verdict == "pass"
    assert reading.verdict == "unknown" and "GPUs' results, not 8" in str(reading.problems)
