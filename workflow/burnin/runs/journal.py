# SPDX-License-Identifier: Apache-2.0
"""The journal of a run: append-only, one JSON record a line, each durable before the run goes on.

A record counts when its whole line, newline included, is on disk. A torn last line (the writer was killed) is as if it
had never been written, and is cut off before the next append. Damage anywhere else makes the attempt unusable: a new
attempt is begun, and the damaged one stays for people to look at.

Each line ends in a checksum of what stands before it, so that a record which the disk changed is damage and not evidence.

Records, by `type`: `header` (what is run), `job` (who runs it), `start`/`end` (an iteration), `not_launched` (Slurm did
not answer: a start without effect), `probe` (a look at the nodes), `stack` (a container that is not the frozen one), `stop`
(why no further iteration), `final` (the run is over).
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


class DamagedJournal(Exception):
    """A line that is not the last one cannot be read."""


def parse(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return the records of a journal and the length in bytes of the part that holds them.

    Pure. Raises DamagedJournal if a line before the last is not a record.
    """
    records: list[dict[str, Any]] = []
    good = 0
    while (end := content.find(b"\n", good)) >= 0:
        record = _record(content[good:end])
        if record is None:
            if content.find(b"\n", end + 1) < 0 and not content[end + 1 :]:
                return records, good  # the last line: torn by a crash that left the newline of a later write
            raise DamagedJournal(f"line {len(records) + 1} is not a record")
        records.append(record)
        good = end + 1
    return records, good


#: `,"crc":"xxxxxxxx"}` closes every line.
_TAIL = 18


def _line(record: dict[str, Any]) -> bytes:
    """Return the line of a record, without newline."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return body + b',"crc":"%08x"}' % zlib.crc32(body)


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, or None if it is not whole."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    try:
        record = json.loads(body + b"}")
    except ValueError:
        return None
    return record if isinstance(record, dict) and "type" in record else None


class Journal:
    """An open journal. `records` are those on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        self.records, good = parse(content)
        if good < len(content):
            os.truncate(path, good)
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is durable when this returns."""
        view = memoryview(_line(record) + b"\n")
        while view:
            view = view[os.write(self._handle, view) :]
        os.fsync(self._handle)
        self.records.append(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a journal without touching it; no file gives none. Raises DamagedJournal."""
    return parse(path.read_bytes())[0] if path.exists() else []


def tail(path: Path, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the records in the last `most` bytes of a journal, but for probes, and whether the whole journal was read.

    For looking on: what is torn or damaged is passed over. Never decide anything from it. Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - most)
        file.seek(start)
        lines = file.read(most).split(b"\n")
    wanted = [line for line in (lines[1:] if start else lines) if not line.startswith(b'{"type":"probe"')]
    found = [_record(line) for line in wanted]
    return [r for r in found if r is not None], start == 0


def completed(records: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the (start, end) pairs of the iterations that were complete, in order, none twice."""
    starts = {r["seq"]: r for r in records if r["type"] == "start"}
    seen: set[int] = set()
    pairs = []
    for record in records:
        if record["type"] == "end" and record["seq"] in starts and record["seq"] not in seen:
            seen.add(record["seq"])
            pairs.append((starts[record["seq"]], record))
    return pairs


def interrupted(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the start records of the iterations that never ended: their output is evidence, but no iteration."""
    # a launch that Slurm did not answer ran nothing: no iteration, and no evidence of anything either
    ended = {r["seq"] for r in records if r["type"] in ("end", "not_launched")}
    return [r for r in records if r["type"] == "start" and r["seq"] not in ended]
