# SPDX-License-Identifier: Apache-2.0
"""Damage never turns a failed or unknown text into a passed one, and no bytes at all make a reader raise."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from burnin import parsers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.parser_samples import DATA, available, check, read, read_text, samples

WORKLOADS = [t for t in ("nccl", "hpl", "nemo", "squad", "straggler", "slurm-step") if t in available()]
#: What must still stand in a text that passes.
END_MARK = {
    "nccl": re.compile(rb"Avg bus bandwidth|TIME LIMIT|end_time"),
    "hpl": re.compile(rb"End of Tests\.|(?s:MxP Result.*MxP Result)"),
    "nemo": re.compile(rb"iteration 199/199|iteration\s+200/\s*200|max_steps=500` reached"),
    "squad": re.compile(rb"max_epochs=2` reached|\"f1\"|eval_samples"),
    "straggler": re.compile(rb"Score="),
    "slurm-step": re.compile(rb"never"),
}
FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def all_samples() -> Iterator[tuple[str, Path]]:
    for tool in WORKLOADS:
        for path in samples(tool):
            yield tool, path


CASES = list(all_samples())
NOT_PASSED = [(t, p) for t, p in CASES if read(t, p).verdict != "pass"]
PASSED = [(t, p) for t, p in CASES if read(t, p).verdict == "pass"]


@pytest.mark.parametrize(("tool", "path"), PASSED, ids=lambda v: getattr(v, "name", v))
def test_truncated_pass_has_its_end_mark(tool: str, path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    rng = random.Random(path.name)
    cuts = {rng.randrange(len(data)) for _ in range(12)} | {data.rfind(b"\n", 0, -1) + 1}
    for cut in sorted(cuts):
        reading = read_text(tool, data[:cut], tmp_path)
        if reading.verdict == "pass":
            assert END_MARK[tool].search(data[:cut]), cut


@FAST
@given(st.sampled_from(NOT_PASSED), st.floats(0, 1))
def test_truncation_makes_no_pass(tmp_path: Path, case: tuple[str, Path], where: float) -> None:
    tool, path = case
    data = path.read_bytes()
    assert read_text(tool, data[: int(where * len(data))], tmp_path).verdict != "pass"


@FAST
@given(st.sampled_from(NOT_PASSED), st.sets(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3))
def test_lost_lines_make_no_pass(tmp_path: Path, case: tuple[str, Path], where: set[float]) -> None:
    tool, path = case
    lines = path.read_bytes().split(b"\n")
    gone = {int(w * len(lines)) for w in where}
    kept = [line for i, line in enumerate(lines) if i not in gone]
    assert read_text(tool, b"\n".join(kept), tmp_path).verdict != "pass"


@FAST
@given(
    st.sampled_from(NOT_PASSED),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([b"\xff", b"#", b"x", b"\0", b"\n"])),
        min_size=1,
        max_size=4,
    ),
)
def test_corruption_makes_no_pass(tmp_path: Path, case: tuple[str, Path], marks: list[tuple[float, bytes]]) -> None:
    tool, path = case
    data = bytearray(path.read_bytes())
    for where, byte in marks:
        data[int(where * len(data))] = byte[0]
    assert read_text(tool, bytes(data), tmp_path).verdict != "pass"


@pytest.mark.parametrize("tool", available())
def test_empty_and_binary(tool: str, tmp_path: Path) -> None:
    for data in (
        b"",
        b"\n\n\n",
        b"\xff\xfe",
        b"\0" * 5000,
        bytes(range(256)) * 40,
        b"x" * 200_000,
        b"\x1f\x8b\x08junk",
    ):
        reading = read_text(tool, data, tmp_path)
        assert not reading.recognised, data[:10]
        assert reading.verdict == "unknown"
        assert reading.problems


@FAST
@given(st.sampled_from(available()), st.binary(max_size=2000))
def test_any_bytes(tmp_path: Path, tool: str, data: bytes) -> None:
    assert read_text(tool, data, tmp_path).verdict != "pass"


@FAST
@given(st.sampled_from(CASES), st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_mixed_samples_raise_nothing(
    tmp_path: Path, one: tuple[str, Path], two: tuple[str, Path], rng: random.Random
) -> None:
    a, b = one[1].read_bytes().split(b"\n"), two[1].read_bytes().split(b"\n")
    mixed = [rng.choice((a, b)).pop(0) for _ in range(min(len(a), len(b)))]
    for tool in {one[0], two[0]}:
        read_text(tool, b"\n".join(mixed), tmp_path)


@pytest.mark.parametrize(("tool", "path"), CASES, ids=lambda v: getattr(v, "name", v))
def test_utf16_reads_the_same(tool: str, path: Path, tmp_path: Path) -> None:
    plain = read(tool, path)
    wide = read_text(tool, path.read_text().encode("utf-16"), tmp_path)
    assert (wide.verdict, wide.complete, len(wide.signals)) == (plain.verdict, plain.complete, len(plain.signals))


# A step's messages may stand in any program's output, so slurm-step and nemo's QA runs are left out on purpose.
@pytest.mark.parametrize("tool", [t for t in available() if t not in ("slurm-step", "probe")])
def test_other_tools_samples_are_not_recognised(tool: str) -> None:
    wrong = [
        str(path.relative_to(DATA))
        for other in available()
        if other not in (tool, "probe")
        for path in samples(other)
        if parsers.read_file(tool, path, strict=True).recognised
    ]
    assert wrong == []


@pytest.mark.parametrize("tool", available())
def test_reading_of_a_huge_line_is_bounded(tool: str, tmp_path: Path) -> None:
    for unit in (b"a ", b"1 ", b"[[", b"::", b"Rank ", b"NCCL WARN ", b"a:1:2 ", b"0x0:", b"iteration 1/2 |"):
        reading = read_text(tool, unit * (300_000 // len(unit)), tmp_path)
        check(reading)
        assert reading.verdict != "pass"
    reading = parsers.read_bytes(tool, b"a\n" + b"a " * 5_000_000 + b"\nb\n", strict=True)
    check(reading)
    assert reading.verdict != "pass" and reading.problems
