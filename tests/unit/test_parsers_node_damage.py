# SPDX-License-Identifier: Apache-2.0
"""Readers of node tools: damage never makes a pass, whoever says that the text is whole; no text is another tool's."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin import parsers
from burnin.parsers.reading import Reading
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.parser_samples import DATA, check, samples

NODE_TOOLS = (
    "dmesg", "dcgmi-health", "dcgmi-diag", "dcgmi-dmon", "nvidia-smi", "mlxlink", "ibdiagnet", "ibqueryerrors", "ibstat",
    "ipmi", "redfish", "sacct", "scontrol", "probe",
)  # fmt: skip
CASES = [(t, p) for t in NODE_TOOLS for p in samples(t)]
SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(tool: str, data: bytes, **options: object) -> Reading:
    reading = parsers.read_bytes(tool, data, strict=True, **options)
    check(reading)
    return reading


VERDICT = {(t, p): read(t, p.read_bytes()).verdict for t, p in CASES}
NOT_PASSED = [c for c in CASES if VERDICT[c] != "pass"]
PASSED = [c for c in CASES if VERDICT[c] == "pass"]


def test_every_tool_has_samples() -> None:
    assert {t for t, _ in CASES} == set(NODE_TOOLS)


@SETTINGS
@given(st.sampled_from(NOT_PASSED), st.floats(0, 1))
def test_truncation_makes_no_pass(case: tuple[str, Path], where: float) -> None:
    data = case[1].read_bytes()
    assert read(case[0], data[: int(where * len(data))]).verdict != "pass"


@SETTINGS
@given(st.sampled_from(NOT_PASSED), st.floats(0, 1), st.floats(0, 0.3))
def test_a_hole_makes_no_pass(case: tuple[str, Path], where: float, size: float) -> None:
    lines = case[1].read_bytes().split(b"\n")
    first = int(where * len(lines))
    del lines[first : first + max(1, int(size * len(lines)))]
    # What a text does not hold any more cannot be seen in it; it may pass only where its own count still fits.
    reading = read(case[0], b"\n".join(lines))
    if reading.verdict == "pass":
        assert case[0] in ("ibdiagnet", "dcgmi-diag")


@SETTINGS
@given(
    st.sampled_from(NOT_PASSED),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([b"\xff", b"#", b"x", b"\0"])),
        min_size=1,
        max_size=4,
    ),
)
def test_corruption_makes_no_pass(case: tuple[str, Path], marks: list[tuple[float, bytes]]) -> None:
    data = bytearray(case[1].read_bytes())
    for where, byte in marks:
        if data:
            data[int(where * len(data))] = byte[0]
    assert read(case[0], bytes(data)).verdict != "pass"


@SETTINGS
@given(st.sampled_from(PASSED), st.floats(0, 0.999))
def test_a_pass_that_is_cut_is_none(case: tuple[str, Path], where: float) -> None:
    tool, path = case
    data = path.read_bytes().rstrip()
    cut = data[: int(where * len(data))]
    if read(tool, cut).verdict == "pass":
        # The end mark is there and only what follows it is lost, or several outputs stand one after the other.
        mark = {"ibdiagnet": b"Speed / Width checks"}.get(tool, b"\0")
        several = ("twice", "set-and-check")
        assert mark in cut or any(n in path.name for n in several) or path.name.endswith("single.txt")


@SETTINGS
@given(st.sampled_from(CASES), st.sampled_from([b"\xff\xfe", b"\0", b"\xc3"]), st.floats(0, 1))
def test_bytes_that_are_no_text_forbid_a_pass(case: tuple[str, Path], junk: bytes, where: float) -> None:
    tool, path = case
    data = path.read_bytes()
    at = int(where * len(data))
    lines = data[:at].rpartition(b"\n")
    reading = read(tool, lines[0] + lines[1] + junk + lines[2] + data[at:])
    if tool not in ("probe", "sacct") and junk != b"\0":
        assert reading.verdict != "pass" or tool == "dmesg"


@SETTINGS
@given(st.sampled_from(NODE_TOOLS), st.binary(max_size=3000), st.booleans())
def test_any_bytes(tool: str, data: bytes, whole: bool) -> None:
    assert read(tool, data, whole=whole).verdict != "pass"


@SETTINGS
@given(st.sampled_from(CASES), st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_mixed_samples_raise_nothing(one: tuple[str, Path], two: tuple[str, Path], rng: object) -> None:
    a, b = one[1].read_bytes().split(b"\n")[:400], two[1].read_bytes().split(b"\n")[:400]
    mixed = [rng.choice((a, b)).pop(0) for _ in range(min(len(a), len(b)))]  # type: ignore[attr-defined]
    for tool in {one[0], two[0]}:
        read(tool, b"\n".join(mixed), whole=True)


@pytest.mark.parametrize("tool", NODE_TOOLS)
def test_samples_of_all_other_tools_are_not_recognised(tool: str) -> None:
    others = [p for folder in sorted(DATA.iterdir()) if folder.is_dir() for p in folder.iterdir() if p.is_file()]
    wrong = [
        f"{p.parent.name}/{p.name}"
        for p in others
        if p.parent.name not in (tool, "probe") and parsers.read_file(tool, p, strict=True, whole=True).recognised
    ]
    assert wrong == []


@pytest.mark.parametrize(("tool", "path"), CASES, ids=lambda v: getattr(v, "name", v))
def test_dress_does_not_matter(tool: str, path: Path) -> None:
    """CRLF, UTF-16 and a byte order mark read the same; evidence stays on its line."""
    plain = read(tool, path.read_bytes(), whole=True)
    text = path.read_text()
    for data in (text.replace("\n", "\r\n").encode(), text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode()):
        other = read(tool, data, whole=True)
        assert (other.verdict, other.recognised, other.complete) == (plain.verdict, plain.recognised, plain.complete)
        assert [(s.kind, s.line, s.value) for s in other.signals] == [(s.kind, s.line, s.value) for s in plain.signals]
