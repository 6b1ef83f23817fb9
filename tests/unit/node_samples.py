# SPDX-License-Identifier: Apache-2.0
"""What the tests of the node tools' readers share: samples by name, read alone or with the word that they are whole."""

from __future__ import annotations

from burnin import parsers
from burnin.parsers.reading import Reading, Signal

from tests.unit.parser_samples import DATA, check, samples


def named(tool: str) -> list[str]:
    """Return the names of a tool's samples."""
    return [p.name for p in samples(tool)]


def as_whole(tool: str, name: str, **options: object) -> Reading:
    """Read a sample, told that it is whole, as a probe does whose frame was closed with status 0."""
    reading = parsers.read_file(tool, DATA / tool / name, strict=True, whole=True, **options)
    check(reading)
    return reading


def told_whole(tool: str, name: str) -> str:
    return as_whole(tool, name).verdict


def standing_alone(tool: str, name: str) -> str:
    """Return the verdict of a sample that only its own end mark can prove whole."""
    reading = parsers.read_file(tool, DATA / tool / name, strict=True)
    check(reading)
    return reading.verdict


def fed(tool: str, text: str, **options: object) -> Reading:
    """Read a text given in a test."""
    reading = parsers.read_lines(tool, text.strip("\n").split("\n"), **options)
    check(reading)
    return reading


def of(reading: Reading, *kinds: str) -> list[Signal]:
    return [s for s in reading.signals if s.kind in kinds]
