# SPDX-License-Identifier: Apache-2.0
"""dcgmi dmon: hours of samples in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin import parsers

from tests.unit.node_samples import as_whole, fed, named, of, standing_alone, told_whole

TOOL = "dcgmi-dmon"
#: Sample -> verdict of the text by itself, verdict if the caller knows that it is whole.
VERDICTS = {
    "text-2.4-right-aligned.txt": ("pass", "pass"),
    "text-3.3-healthy.txt": ("pass", "pass"),
    "text-3.3-hot-gpu-and-xid.txt": ("fail", "fail"),
    "text-3.3-not-available.txt": ("unknown", "unknown"),
    "text-4.1-mixed-entities-no-end.txt": ("unknown", "pass"),
}


def test_every_sample_has_its_verdict() -> None:
    assert {name: (standing_alone(TOOL, name), told_whole(TOOL, name)) for name in named(TOOL)} == VERDICTS


def test_extremes_of_every_gpu() -> None:
    reading = as_whole(TOOL, "text-3.3-hot-gpu-and-xid.txt")
    hot = max(of(reading, "gpu_temperature"), key=lambda s: s.value or 0)
    assert (hot.gpu, hot.value, hot.detail["samples"]) == (5, 88, 30)
    assert min(of(reading, "gpu_power"), key=lambda s: s.value or 0).gpu == 5
    assert reading.data["samples"] == 240


def test_an_old_xid_is_not_new() -> None:
    old, new = of(as_whole(TOOL, "text-3.3-hot-gpu-and-xid.txt"), "xid")
    assert (old.gpu, old.value, old.detail["older"]) == (2, 43, True)
    assert (new.gpu, new.value, new.detail["older"]) == (5, 79, False)


def test_not_available_is_not_zero() -> None:
    reading = as_whole(TOOL, "text-3.3-not-available.txt")
    assert reading.data["entities"]["GPU 1"]["TMPTR"] == {"n": 0, "na": 10}
    assert of(reading, "unreadable")[0].gpu == 1


def test_right_aligned_header_of_dcgm_2() -> None:
    reading = as_whole(TOOL, "text-2.4-right-aligned.txt")
    assert reading.data["entities"]["GPU 3"]["TMPTR"]["max"] == 63
    assert list(reading.data["fields"]) == ["TMPTR", "POWER", "GPUTL", "XIDER"]


def test_entities_other_than_gpus() -> None:
    assert set(as_whole(TOOL, "text-4.1-mixed-entities-no-end.txt").data["entities"]) == {
        "GPU 0",
        "GPU-I 3",
        "Switch 1",
    }


def _rows(samples: int, gpus: int = 8) -> list[str]:
    out: list[str] = []
    for i in range(samples):
        for g in range(gpus):
            if len(out) % 16 == 0:
                out += [
                    "#Entity   TMPTR       POWER       XIDER       ",
                    "ID        C           W                       ",
                ]
            power = 600 + (i * 7 + g) % 90 + (i % 10) / 10
            out.append(f"GPU {g:<6}{60 + (i + g) % 9 + (20 if i == 4321 and g == 3 else 0):<12}{power:<12.1f}{0:<12}")
    return out


def test_blocks_add_up_to_the_same_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnin.parsers.common.CHUNK", 20_000)
    lines = [*_rows(5000), "dmon was stopped due to receiving a signal."]
    lines[777] = lines[777].replace("60", "N/A", 1)
    path = tmp_path / "dmon"
    path.write_text("\n".join(lines) + "\n")
    blocks = parsers.read_file(TOOL, path, strict=True)
    alone = parsers.read_lines(TOOL, lines)
    assert blocks.data["samples"] == 40_000
    assert (blocks.data, blocks.signals, blocks.problems) == (alone.data, alone.signals, alone.problems)
    hot = max(of(blocks, "gpu_temperature"), key=lambda s: s.value or 0)
    assert hot.gpu == 3 and lines[hot.line - 1].startswith("GPU 3") and f" {hot.value:g} " in lines[hot.line - 1]


def test_the_mean_does_not_depend_on_what_is_added_first() -> None:
    rows = [f"GPU 0 60 {value}" for value in ("0.1", "1e16", "0.2", "-1e16", "0.3")]
    text = ["#Entity TMPTR POWER", "ID C W", *rows, "dmon was stopped due to receiving a signal."]
    assert fed(TOOL, "\n".join(text)).data["entities"]["GPU 0"]["POWER"]["mean"] == 0.12


def test_a_cut_row_is_damage() -> None:
    reading = fed(
        TOOL, "#Entity TMPTR POWER\nID C W\nGPU 0 60 600\nGPU 1 60\ndmon was stopped due to receiving a signal."
    )
    assert reading.verdict == "unknown" and reading.data["damaged_rows"] == 1


def test_rows_before_any_header_are_damage() -> None:
    text = [
        "GPU 0 60 600 79",
        "#Entity TMPTR POWER XIDER",
        "ID C W",
        "GPU 0 60 600 79",
        "dmon was stopped due to receiving a signal.",
    ]
    assert fed(TOOL, "\n".join(text[1:])).verdict == "pass"  # an Xid that stood there from the first sample is older
    reading = fed(TOOL, "\n".join(text))
    assert reading.verdict == "unknown" and "line 1: a row before any header" in reading.problems[0]
