# SPDX-License-Identifier: Apache-2.0
"""The journal: cut anywhere, killed anywhere, it loses no complete iteration and counts none twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from burnin.runs.journal import DamagedJournal, Journal, _line, completed, interrupted, parse, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def fill(book: Journal, iterations: int) -> None:
    """Do what a run does: go on until so many iterations are complete."""
    if not book.records:
        book.append({"type": "header", "what": {"run": "x"}})
    while len(completed(book.records)) < iterations:
        seq = sum(r["type"] == "start" for r in book.records)
        book.append({"type": "start", "seq": seq, "iteration": len(completed(book.records))})
        book.append({"type": "end", "seq": seq, "time": seq})


def test_cut_at_every_byte_and_started_again(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    book = Journal(whole)
    fill(book, 3)
    book.close()
    content = whole.read_bytes()
    for cut in range(len(content) + 1):
        path = tmp_path / f"cut{cut}.jsonl"
        path.write_bytes(content[:cut])
        kept = completed(read(path))
        book = Journal(path)
        fill(book, 3)
        book.close()
        records = read(path)
        pairs = completed(records)
        assert [s["iteration"] for s, _ in pairs] == [0, 1, 2], "every iteration once"
        assert pairs[: len(kept)] == kept, "what was complete is not run again"
        whole_lines = content[:cut].rpartition(b"\n")[0]
        assert len(kept) == whole_lines.count(b'"type":"end"')


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_records_or_damage(content: bytes) -> None:
    try:
        records, good = parse(content)
    except DamagedJournal:
        return
    assert all(isinstance(r, dict) and "type" in r for r in records)
    assert 0 <= good <= len(content)
    assert parse(content[:good]) == (records, good)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_never_adds_an_iteration(tmp_path: Path, where: int, byte: int) -> None:
    path = tmp_path / f"{os.getpid()}.jsonl"
    path.unlink(missing_ok=True)
    book = Journal(path)
    fill(book, 3)
    book.close()
    content = bytearray(path.read_bytes())
    content[where % len(content)] = byte
    try:
        records, _ = parse(bytes(content))
    except DamagedJournal:
        return
    assert len(completed(records)) <= 3
    assert bytes(content).startswith(b"".join(_line(r) + b"\n" for r in records)), "what is read is what was written"


def test_damage_before_the_last_line_is_said() -> None:
    header = _line({"type": "header"}) + b"\n"
    with pytest.raises(DamagedJournal, match="line 2"):
        parse(header + b"rubbish\n" + header)
    assert parse(header + b"rubbish\n") == ([{"type": "header"}], len(header))


def test_an_iteration_that_never_ended_is_kept_as_interrupted() -> None:
    records = [
        {"type": "start", "seq": 0},
        {"type": "start", "seq": 1},
        {"type": "end", "seq": 1},
        {"type": "end", "seq": 1},
    ]
    assert [s["seq"] for s, _ in completed(records)] == [1]
    assert [r["seq"] for r in interrupted(records)] == [0]


def test_a_record_is_one_line_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    book = Journal(path)
    book.append({"type": "end", "seq": 0, "text": "a\nb\u2028c\x00"})
    book.close()
    assert path.read_bytes().count(b"\n") == 1
    assert json.loads(path.read_bytes())["text"] == "a\nb\u2028c\x00"
