# SPDX-License-Identifier: Apache-2.0
"""Lines, prefixes, numbers: what all readers share."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from burnin.parsers import common, read_file
from burnin.parsers.kinds import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st


def lines_of(tmp_path: Path, data: bytes, **kwargs: int) -> tuple[list[tuple[int, str]], list[str]]:
    path = tmp_path / "x.log"
    path.write_bytes(data)
    problems: list[str] = []
    return list(common.numbered_lines(path, problems, **kwargs)), problems


def test_newlines_crlf_bom_and_last_line(tmp_path: Path) -> None:
    lines, problems = lines_of(tmp_path, b"\xef\xbb\xbfone\r\ntwo\n\nfour")
    assert lines == [(1, "one"), (2, "two"), (3, ""), (4, "four")]
    assert problems == []
    source = common.LineSource(tmp_path / "x.log")
    list(source)
    assert source.last_unterminated == 4
    assert source.lines == 4


def test_progress_bar_pieces_keep_the_line_number(tmp_path: Path) -> None:
    lines, _ = lines_of(tmp_path, b"a\n 1%\r 2%\r 3%RuntimeError\nb\n")
    assert lines == [(1, "a"), (2, " 1%"), (2, " 2%"), (2, " 3%RuntimeError"), (3, "b")]


def test_ansi_is_stripped(tmp_path: Path) -> None:
    lines, _ = lines_of(tmp_path, b"State : \x1b[1;32mActive\x1b[0m\n")
    assert lines == [(1, "State : Active")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16(tmp_path: Path, encoding: str) -> None:
    lines, problems = lines_of(tmp_path, "first line of it\nsecond line\n".encode(encoding))
    assert lines == [(1, "first line of it"), (2, "second line")]
    assert "UTF-16" in problems[0]


def test_long_line_is_cut_and_said(tmp_path: Path) -> None:
    lines, problems = lines_of(tmp_path, b"a\n" + b"x" * 5_000_000 + b"\nb\n")
    assert [n for n, _ in lines] == [1, 2, 3]
    assert len(lines[1][1]) == common.LINE_LIMIT
    assert lines[2] == (3, "b")
    assert "line 2 is longer" in problems[0]


def test_long_progress_line_is_read_whole(tmp_path: Path) -> None:
    lines, problems = lines_of(tmp_path, b"a\n" + b"".join(b"%d it\r" % i for i in range(400_000)) + b"end\nb\n")
    assert problems == []
    assert lines[1] == (2, "0 it")
    assert lines[-2] == (2, "end")
    assert lines[-1] == (3, "b")
    assert len(lines) == 400_003


def test_nul_bytes_are_a_problem(tmp_path: Path) -> None:
    _, problems = lines_of(tmp_path, b"one\n" + b"\0" * 40 + b"two\n" + b"plain text " * 40 + b"\n")
    assert any("NUL" in p for p in problems)


ROWS = [
    b"a WARN b",
    b"plain",
    b"",
    b"x\ry WARN",
    b"WARN WARN",
    b"\xff",
    b"n NCCL INFO x",
    b"n NCCL INFO WARN",
    b"l" * 5000,
]


@given(st.lists(st.sampled_from(ROWS), max_size=60), st.booleans(), st.integers(64, 300))
def test_candidates_are_the_lines_that_matter(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], last: bool, block: int
) -> None:
    path = tmp_path_factory.mktemp("c") / "x"
    path.write_bytes(b"\n".join(rows) + (b"\n" if last else b""))
    old, common.BLOCK = common.BLOCK, block
    stretch, common.STRETCH = common.STRETCH, block // 4
    parallel, common.PARALLEL_FROM = common.PARALLEL_FROM, 1000 if block % 10 == 0 else 1 << 60
    try:
        needles = common.Prefilter(needles=(b"WARN", b"never"), from_size=0)
        found = {n for n, _ in common.candidate_lines(path, needles)}
        sign = b"F" if last else b""
        boring = common.Prefilter(boring=b" NCCL INFO ", sign=sign, keep=((b"W", b"WARN"),), from_size=0)
        rest = dict(common.candidate_lines(path, boring))
    finally:
        common.BLOCK, common.PARALLEL_FROM, common.STRETCH = old, parallel, stretch
    full = dict(common.numbered_lines(path))
    assert {n for n, raw in enumerate(rows, 1) if b"WARN" in raw} <= found
    assert {n for n, text in full.items() if " NCCL INFO " not in text and text} <= set(rest)
    assert all(full[n] == text for n, text in rest.items())


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*ROWS[:-1], b"b" * 900, b"10 %\r" * 200]), max_size=30),
    st.booleans(),
    st.integers(1, 1000),
    st.randoms(use_true_random=False),
)
def test_a_reader_of_blocks_may_ask_for_the_end_of_one_again(
    rows: list[bytes], last: bool, chunk: int, rng: random.Random
) -> None:
    data = b"\n".join(rows) + (b"\n" if last else b"")
    source, usual = common.MemorySource(data, 300), common.MemorySource(data, 300)
    source.chunk = usual.chunk = chunk
    text, numbers = b"", []
    before, new_line = -1, True
    for first, block, whole in source.blocks():
        lines = block.count(b"\n")
        if new_line:
            numbers.append((first, block.split(b"\n")[0][:9]))
        new_line = whole
        assert whole or block.endswith(b"\r")
        if whole and lines and len(block) != before:
            keep = rng.randrange(lines + 1)  # lines that are asked for again
            source.again = sum(len(line) + 1 for line in block.split(b"\n")[lines - keep : lines])
        before = source.again
        text += block[: len(block) - source.again]
    assert text == b"".join(block for _, block, _ in usual.blocks())
    assert (source.lines, source.problems, source.last_unterminated) == (
        usual.lines, usual.problems, usual.last_unterminated,
    )  # fmt: skip
    starts = {n: line[:9] for n, line in enumerate(text.split(b"\n"), 1)}
    assert all(starts[first][: len(start)] == start for first, start in numbers)


def test_candidates_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as handle:
        for i in range(600_000):
            handle.write(b"line %d%s\n" % (i + 1, b" WARN" if i % 1000 == 7 else b""))
    found = list(common.candidate_lines(path, common.Prefilter(needles=(b"WARN", b"never"))))
    wanted = [(n, t) for n, t in found if "WARN" in t]
    assert len(wanted) == 600
    assert all(text == f"line {n} WARN" for n, text in wanted)
    # the first and the last block come in full
    assert found[0] == (1, "line 1") and found[-1] == (600_000, "line 600000")
    assert len(found) < 30_000


def test_candidates_of_a_line_longer_than_the_buffer(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"a\n" + b"x" * (9 << 20) + b"\nb WARN\n" + b"pad\n" * 100_000)
    problems: list[str] = []
    found = list(common.candidate_lines(path, common.Prefilter(needles=(b"WARN",)), problems))
    assert (3, "b WARN") in found
    assert all(len(t) <= common.LINE_LIMIT for _, t in found)
    old, common.LONGEST = common.LONGEST, 1 << 20
    try:
        problems.clear()
        found = list(common.candidate_lines(path, common.Prefilter(needles=(b"WARN",)), problems))
    finally:
        common.LONGEST = old
    assert (3, "b WARN") in found
    assert "line 2 is longer" in problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (" -2.5e+3 ", -2500.0), (".5", 0.5), ("2E-9", 2e-9), ("inf", math.inf), ("-inf", -math.inf)],
)
def test_number(text: str, value: float) -> None:
    assert common.number(text) == value


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "na", "ERR!", "Unknown Error", "-", "", "12 C", "1,2", "0x1b", None])
def test_not_numbers(text: str | None) -> None:
    assert common.number(text) is None


def test_nan_is_a_number_but_not_json() -> None:
    assert math.isnan(common.number("-nan") or 0.0)
    assert common.finite(math.nan) is None
    assert common.integer("4.1e+4") == 41000
    assert common.integer("1.5") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PCI:0000:c3:00", "0000:c3:00"),
        ("00000000:C3:00.0", "0000:c3:00"),
        ("gpu 0000:4F:00.0 lost", "0000:4f:00"),
        ("c3:00.0", "0000:c3:00"),
        ("00010000:1B:00.0", "10000:1b:00"),
        ("nothing", None),
    ],
)
def test_bdf(text: str, expected: str | None) -> None:
    assert common.bdf(text) == expected


def test_ranges() -> None:
    assert common.expand_ranges("2,4-5,7") == [2, 4, 5, 7]
    assert len(common.expand_ranges("0-999999999")) == 100_000
    assert common.expand_ranges("x,,3") == [3]


@pytest.mark.parametrize(
    ("line", "rest", "expected"),
    [
        ("12: hello", "hello", {"task": 12}),
        ("  5:   indented", "  indented", {"task": 5}),
        ("[rank3]: Traceback", "Traceback", {"rank": 3}),
        ("[rank3]:[E109 04:11:52.1 x", "[E109 04:11:52.1 x", {"rank": 3}),
        ("[default5]: x", "x", {"local_rank": 5}),
        ("[1,17]<stderr>:x", "x", {"rank": 17, "stream": "stderr"}),
        ("[prterun-n1-77@1,0]<stdout>: x", "x", {"rank": 0, "stream": "stdout"}),
        ("dgx05: [Tue Nov 10 13:47:05 2026] NVRM", "[Tue Nov 10 13:47:05 2026] NVRM", {"host": "dgx05"}),
        ("2026-01-09T04:11:52.123Z 3: x", "x", {"time": "2026-01-09T04:11:52.123Z", "task": 3}),
        ("> > 4: x", "x", {"task": 4}),
        ("hpl-dgx03.out:WR01C2R4  1", "WR01C2R4  1", {"file": "hpl-dgx03.out"}),
        ("srun: error: burn05: task 3", "srun: error: burn05: task 3", {}),
        ("RuntimeError: CUDA", "RuntimeError: CUDA", {}),
        ("mlx5_3: x", "mlx5_3: x", {}),
        ("", "", {}),
    ],
)
def test_peel(line: str, rest: str, expected: dict[str, object]) -> None:
    text, prefix = common.peel(line)
    assert text == rest
    assert {k: getattr(prefix, k) for k in prefix.__slots__ if getattr(prefix, k) is not None} == expected


@given(st.text(max_size=80))
def test_peel_never_raises_and_only_shortens(line: str) -> None:
    assert line.endswith(common.peel(line)[0])


def test_signal_words_are_checked_and_json_is_strict() -> None:
    with pytest.raises(ValueError, match="not in"):
        common.signal("no_such_kind", 1, "x")
    s = common.signal("residual_failed", 1, "x", value=math.nan)
    assert json.loads(json.dumps(s.to_dict(), allow_nan=False))["detail"] == {"value": "nan"}


def test_collector_counts_what_it_does_not_keep() -> None:
    c = common.Collector(keep=2)
    for i in range(5):
        c.add(common.signal("nccl_warn", i, "x"))
    assert len(c.signals) == 2
    assert c.dropped() == {"nccl_warn": 3}
    assert "5 signals" in c.problems()[0]


def test_every_kind_is_documented() -> None:
    assert all(KINDS.values())


def test_missing_file_is_a_sentence(tmp_path: Path) -> None:
    reading = read_file("nccl", tmp_path / "nope")
    assert not reading.recognised
    assert reading.verdict == "unknown"
    assert "could not be read" in reading.problems[0]
