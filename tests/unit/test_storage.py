# SPDX-License-Identifier: Apache-2.0
"""Append-only records: what is read of a file whose writer was killed."""

from __future__ import annotations

from pathlib import Path

from burnin import storage


def test_records_are_read_to_where_the_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert storage.records(path) == ([], 0)
    for number in range(3):
        storage.append_line(path, f'{{"n": {number}}}')
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found, torn = storage.records(path)
        lines = whole[:size].split(b"\n")
        complete = len(lines) - 1 + (lines[-1].endswith(b"}"))  # only the end of the line is missing
        assert [r["n"] for r in found] == list(range(complete))
        assert torn == (lines[-1] != b"" and not lines[-1].endswith(b"}"))
        storage.append_line(path, '{"n": 9}')  # a new record is never lost behind a torn one
        assert storage.records(path)[0][-1] == {"n": 9}


def test_what_is_no_record_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"n": 1}\n[]\n\n\xff\n3\n{"n": 2}\n')
    assert storage.records(path) == ([{"n": 1}, {"n": 2}], 3)
