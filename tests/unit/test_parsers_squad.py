# SPDX-License-Identifier: Apache-2.0
"""SQuAD scores in the forms of NeMo 1, NVIDIA's BERT example and HuggingFace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.parser_samples import DATA, guide, kinds, read, read_text, samples

EXPECTED: dict[str, tuple[bool, str, float | None, float | None]] = {
    "hf-eval-metrics.log": (True, "pass", 83.9451, 90.7712),
    "nemo1-cuda-error.log": (False, "fail", 82.71, 89.90),
    "nemo1-cut-before-end.log": (False, "unknown", 83.94, None),
    "nemo1-low-scores.log": (True, "pass", 12.03, 18.77),
    "nemo1-srun-l-minus-one.log": (True, "pass", 83.94, 90.77),
    "nemo1-two-epochs.log": (True, "pass", 83.94, 90.77),
    "nvidia-bert-example.log": (True, "pass", 83.94, 90.77),
    "run-qa-v2.log": (True, "pass", 78.2, 81.4),
}


@pytest.mark.parametrize("path", samples("squad"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("squad", path)
    assert reading.recognised
    got = (reading.complete, reading.verdict, reading.data["exact_match"], reading.data["f1"])
    assert got == EXPECTED[path.name]


def test_versions_and_history() -> None:
    data = read("squad", DATA / "squad" / "nemo1-two-epochs.log").data
    assert data["version"] == "1.1"
    assert [h["exact_match"] for h in data["history"]] == [82.71, 83.94]
    assert read("squad", DATA / "squad" / "run-qa-v2.log").data["version"] == "2.0"


def test_damaged_score_is_no_pass(tmp_path: Path) -> None:
    text = (DATA / "squad" / "nemo1-two-epochs.log").read_text().replace("val f1 90.77", "val f1 9x.77")
    assert read_text("squad", text, tmp_path).verdict == "unknown"


def test_nan_score_fails(tmp_path: Path) -> None:
    text = (DATA / "squad" / "nemo1-two-epochs.log").read_text().replace("val f1 90.77", "val f1 nan")
    assert read_text("squad", text, tmp_path).verdict == "fail"


def test_guide_fine_tune(tmp_path: Path) -> None:
    reading = read_text("squad", guide("srun -N 1 --ntasks-per-node=8 --gpus-per-node=8 --container-image"), tmp_path)
    assert (reading.data["exact_match"], reading.data["f1"]) == (84.07, 90.92)
    assert (reading.complete, reading.verdict, kinds(reading)) == (True, "pass", {})


def test_guide_download_is_not_a_score(tmp_path: Path) -> None:
    reading = read_text("squad", guide("python NeMo/examples/nlp/question_answering/get_squad.py"), tmp_path)
    assert reading.verdict == "unknown"
