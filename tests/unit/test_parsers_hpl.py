# SPDX-License-Identifier: Apache-2.0
"""HPL output of every build."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin import parsers

from tests.unit.parser_samples import DATA, guide, kinds, read, read_text, samples

EXPECTED: dict[str, tuple[bool, str, dict[str, int]]] = {
    "amd-rochpl.out": (True, "pass", {}),
    "amd-zen-swp.out": (True, "pass", {}),
    "hpcc-1.5-cut.txt": (False, "unknown", {}),
    "hpcc-1.5-hpccoutf.txt": (True, "pass", {}),
    "hpl-output-elsewhere.out": (False, "unknown", {}),
    "intel-mkl.out": (True, "pass", {}),
    "netlib-1.0-second-failed.out": (True, "fail", {"residual_failed": 1}),
    "netlib-1.0-three-residuals.out": (True, "pass", {}),
    "netlib-2.1-wrapped-failed.out": (True, "fail", {"residual_failed": 1}),
    "netlib-2.3-failed.out": (True, "fail", {"residual_failed": 1}),
    "netlib-2.3-illegal-input.out": (False, "unknown", {"hpl_error": 2}),
    "netlib-2.3-nan.out": (True, "fail", {"residual_failed": 1}),
    "netlib-2.3-skipped.out": (True, "unknown", {"hpl_error": 1}),
    "netlib-2.3-two-tests.out": (True, "pass", {}),
    "netlib-2.3-unchecked.out": (True, "unknown", {}),
    "nvidia-21.4-2gpu.out": (True, "pass", {"hpl_gpu_warning": 2}),
    "nvidia-23.10-failed.out": (True, "fail", {"residual_failed": 1}),
    "nvidia-24.6-8gpu.out": (True, "pass", {}),
    "nvidia-24.6-cuda-error.out": (False, "fail", {"cuda_ecc": 1, "task_exit": 1}),
    "nvidia-24.6-cut-after-row.out": (False, "unknown", {}),
    "nvidia-24.6-cut-in-progress.out": (False, "unknown", {"task_exit": 1, "time_limit": 1}),
    "nvidia-24.6-loop-of-two.out": (True, "pass", {}),
    "nvidia-24.6-srun-l.out": (True, "pass", {}),
    "nvidia-24.6-two-outputs-first-died.out": (False, "unknown", {"node_failure": 1}),
    "nvidia-mxp-24.9-cut.out": (False, "unknown", {}),
    "nvidia-mxp-24.9-failed.out": (True, "fail", {"residual_failed": 1}),
    "nvidia-mxp-24.9.out": (True, "pass", {}),
}


@pytest.mark.parametrize("path", samples("hpl"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("hpl", path)
    assert reading.recognised
    assert (reading.complete, reading.verdict, kinds(reading)) == EXPECTED[path.name]


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("netlib-2.3-two-tests.out", [(100000, 2, 4, 1088.6, 136.075), (120000, 2, 4, 1105.8, 138.225)]),
        ("netlib-1.0-three-residuals.out", [(20000, 2, 2, 65.53, 16.3825)]),
        ("intel-mkl.out", [(120000, 1, 2, 1512.2, 756.1)]),
        ("nvidia-21.4-2gpu.out", [(70400, 1, 2, 2230.0, 1115.0)]),
        ("nvidia-24.6-8gpu.out", [(264192, 4, 2, 359500.0, 44940.0)]),
        ("nvidia-24.6-loop-of-two.out", [(264192, 4, 2, 359500.0, 44940.0), (264192, 4, 2, 320200.0, 40020.0)]),
        ("amd-zen-swp.out", [(125000, 2, 4, 3157.2, 394.65)]),
        ("hpcc-1.5-hpccoutf.txt", [(100000, 2, 4, 1085.0, 135.625)]),
        ("nvidia-mxp-24.9.out", [(380928, 4, 2, 512000.0, 64000.0)]),
    ],
)
def test_figures(name: str, figures: list[tuple[int, int, int, float, float]]) -> None:
    runs = read("hpl", DATA / "hpl" / name).data["runs"]
    got = [(r["n"], r["p"], r["q"], r["gflops"], r["gflops_per_gpu"]) for r in runs]
    assert got == [pytest.approx(f) for f in figures]


def test_progress_and_warm_up_are_never_results() -> None:
    data = read("hpl", DATA / "hpl" / "nvidia-24.6-cut-in-progress.out").data
    assert data["runs"] == []
    assert data["progress"]["percent"] == 50.0  # of the timed run, not of the warm-up
    assert data["progress"]["gflops"] == pytest.approx(425050.0)


def test_wrapped_residual_keeps_its_number() -> None:
    reading = read("hpl", DATA / "hpl" / "netlib-2.1-wrapped-failed.out")
    assert reading.signals[0].value == pytest.approx(3.14159e22, rel=1e-4)


def test_nan_residual_is_a_failure_with_its_text() -> None:
    reading = read("hpl", DATA / "hpl" / "netlib-2.3-nan.out")
    (s,) = reading.signals
    assert (s.value, s.detail["value"]) == (None, "nan")
    assert reading.data["runs"][0]["residual_verdict"] == "FAILED"


def test_norm_lines_prove_nothing() -> None:
    text = (DATA / "hpl" / "nvidia-24.6-8gpu.out").read_text()
    assert "||A||_oo ." in text
    assert read("hpl", DATA / "hpl" / "nvidia-24.6-8gpu.out").verdict == "pass"


def test_error_text_is_on_the_next_line() -> None:
    reading = read("hpl", DATA / "hpl" / "netlib-2.3-illegal-input.out")
    assert [s.detail["message"] for s in reading.signals] == [
        "Need at least 8 processes for these tests",
        "Illegal input in file HPL.dat. Exiting ...",
    ]


def test_gpu_warnings_name_the_gpu() -> None:
    warning = read("hpl", DATA / "hpl" / "nvidia-21.4-2gpu.out").data["gpu_warnings"][0]
    assert (warning["host"], warning["bdf"], warning["clock_mhz"], warning["power_w"]) == (
        "burn03",
        "0000:41:00",
        705.0,
        190.0,
    )


def test_footer_totals() -> None:
    assert read("hpl", DATA / "hpl" / "netlib-2.3-skipped.out").data["finished"] == {
        "tests": 1,
        "passed": 0,
        "failed": 0,
        "skipped": 1,
        "unchecked": 0,
    }
    assert read("hpl", DATA / "hpl" / "nvidia-24.6-loop-of-two.out").data["finished"]["tests"] == 2


def test_lost_residual_line_is_no_pass(tmp_path: Path) -> None:
    text = (DATA / "hpl" / "netlib-2.3-two-tests.out").read_text().split("\n")
    i = next(i for i, line in enumerate(text) if "PASSED" in line)
    reading = read_text("hpl", "\n".join(text[:i] + text[i + 1 :]), tmp_path)
    assert reading.verdict == "unknown"


def test_gpus_option_divides_by_the_gpus() -> None:
    reading = parsers.read_file("hpl", DATA / "hpl" / "netlib-2.3-failed.out", gpus=4)
    assert reading.data["runs"][0]["gflops_per_gpu"] == pytest.approx(1090.6 / 4)


def test_guide_single_node(tmp_path: Path) -> None:
    reading = read_text("hpl", guide("srun -N 1 --ntasks-per-node=8 --gpus-per-node=8 --mpi=pmix -w dgx03"), tmp_path)
    run = reading.data["runs"][0]
    assert (reading.complete, reading.verdict) == (True, "pass")
    assert (run["gflops"], run["residual_verdict"], run["n"], run["p"] * run["q"]) == (431200.0, "PASSED", 270336, 8)


def test_guide_sixteen_nodes(tmp_path: Path) -> None:
    reading = read_text("hpl", guide("srun -N 16 --ntasks-per-node=8"), tmp_path)
    run = reading.data["runs"][0]
    assert (run["gflops"], run["residual_verdict"], run["p"] * run["q"]) == (6551000.0, "PASSED", 128)
    assert run["gflops"] / 16 == pytest.approx(4.09e5, rel=2e-3)
    assert reading.data["finished"]["passed"] == 1
    assert not reading.complete  # the sample stops before "End of Tests."


def test_guide_dgx03_is_12_percent_slow(tmp_path: Path) -> None:
    reading = read_text("hpl", guide('grep -E "WR|PASSED|FAILED"'), tmp_path)
    runs = {r["file"]: r for r in reading.data["runs"]}
    assert len(runs) == 8
    assert all(r["residual_verdict"] == "PASSED" for r in runs.values())
    others = [r["gflops"] for f, r in runs.items() if "dgx03" not in f]
    assert 1 - runs["hpl-dgx03.out"]["gflops"] / (sum(others) / 7) == pytest.approx(0.12, abs=0.01)
