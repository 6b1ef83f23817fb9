# SPDX-License-Identifier: Apache-2.0
"""Numbers out of many rows of one form at once: what numpy does for a reader of hours of samples.

A stack is a piece of text that repeats: `units` of the same length, each a head that is the same everywhere and rows
of one length, in which the same entities come again and again in the same order. Only unsigned decimal numbers of at
most `MOST_DIGITS` digits, right or left in columns that blanks keep apart, and words for "not available" are read;
whatever else stands in a stack makes it None, and its text is for the reader of single rows.

Loading numpy takes a tenth of a second, so import this module only where there is a file worth it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: So many digits are a float exactly once divided by their power of ten, and thousands of them a sum of 64 bits.
MOST_DIGITS = 14
#: Most forms of number (of digits before and after the point) in one column of a stack.
MOST_FORMS = 16

_ENTITY = re.compile(rb" *\S+ +\S+ ")
_NUMBER = re.compile(rb" *(\d+)(?:\.(\d+))? *")
_BLANK, _NEWLINE, _ZERO, _NINE = b" \n09"
#: Byte -> its class: 0 blank, 1 digit, 2 point, 3 anything else.
_CLASS = np.full(256, 3, np.uint8)
_CLASS[[_BLANK, ord(".")]] = 0, 2
_CLASS[_ZERO : _NINE + 1] = 1

Bytes = NDArray[np.uint8]
Whole = NDArray[np.integer[Any]]


class Samples(NamedTuple):
    """One column of one entity: numbers as whole ones, to be divided by a power of ten; `*_at` number samples from 0."""

    n: int
    low: int
    high: int
    high_at: int
    total: int
    last: int
    missing: int
    missing_at: int


@dataclass(frozen=True, slots=True)
class Stack:
    """What a stack says: words before the columns, one an entity, and (decimals, samples of each entity) a column."""

    entities: list[bytes]
    columns: list[tuple[int, list[Samples]]]
    units: int
    samples: int  # of each entity

    def line(self, entity: int, sample: int, head: int) -> int:
        """Return how many lines stand before a sample's row, if each head has `head` lines."""
        unit, within = divmod(sample, self.samples // self.units)
        return (unit + 1) * head + (unit * (self.samples // self.units) + within) * len(self.entities) + entity


def read(
    text: bytes, at: int, units: int, length: int, head: int, columns: int, words: frozenset[bytes]
) -> Stack | None:
    """Read `units` times `length` bytes of text from `at` on, each a head of `head` bytes and rows; None if irregular.

    `columns` is the number of values in a row, `words` what stands in a cell that is not available.
    """
    stack = np.frombuffer(text, np.uint8, units * length, at).reshape(units, length)
    low, high = stack.min(axis=0), stack.max(axis=0)
    size = text.find(b"\n", at + head, at + length) + 1 - at - head  # of one row
    lines = period(text, at + head, at + length) // max(size, 1)  # of one sample
    if size < 2 or not lines or (length - head) % (lines * size) or (low[:head] != high[:head]).any():
        return None
    low, high = low[head:].reshape(-1, lines, size).min(axis=0), high[head:].reshape(-1, lines, size).max(axis=0)
    lowest, highest = low.min(axis=0), high.max(axis=0)
    spans = _spans(lowest, highest)[-columns:]
    if not lowest[-1] == highest[-1] == _NEWLINE or len(spans) < columns:
        return None
    before = spans[0][0]
    if (low[:, :before] != high[:, :before]).any():
        return None
    rows = np.ascontiguousarray(stack[:, head:]).reshape(-1, lines, size)
    cells = np.empty((columns, lines, len(rows)), np.int64)
    decimals = []
    for column, (start, end) in enumerate(spans):
        numbers = _numbers(np.moveaxis(rows[..., start:end], -1, 0), lowest[start:end], highest[start:end], words)
        if numbers is None:
            return None
        cells[column] = numbers[0].T
        decimals.append(numbers[1])
    samples = _samples(cells.reshape(columns * lines, len(rows)))
    by_column = [samples[at : at + lines] for at in range(0, len(samples), lines)]
    entities = [line.tobytes() for line in low[:, :before]]
    return Stack(entities, list(zip(decimals, by_column, strict=True)), units, len(rows))


def period(text: bytes, start: int, end: int) -> int:
    """Return how many bytes after `start` a row of the same entity begins; `end - start` if none does before `end`."""
    m = _ENTITY.match(text, start, end)
    again = text.find(b"\n" + m[0], start, end) if m else -1
    return again + 1 - start if again >= 0 else end - start


def _spans(low: Bytes, high: Bytes) -> list[tuple[int, int]]:
    """Return (start, end) of the columns of a row's text, which blanks in all rows keep apart."""
    used = np.concatenate(([False], (low[:-1] != _BLANK) | (high[:-1] != _BLANK), [False]))
    edges = np.flatnonzero(used[1:] != used[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _numbers(cells: Bytes, low: Bytes, high: Bytes, words: frozenset[bytes]) -> tuple[Whole, int] | None:
    """Return (whole numbers, decimals) of cells, -1 where one of `words` stands; None if there is any other cell.

    `cells` has any shape, its first axis are the bytes of a cell; `low` and `high` are the least and greatest of each.
    """
    alike = _alike(cells, low, high, words)
    if alike is not None:
        return alike
    # Cells of several forms, as 99 and 100: each form by itself.
    differ = np.flatnonzero(_CLASS[low] != _CLASS[high]).tolist()
    if not 0 < len(differ) < 32:
        return None
    flat = np.ascontiguousarray(cells.reshape(len(cells), -1))
    form = np.zeros(flat.shape[1], np.int64)
    for place in differ:
        form = form * 4 + _CLASS[flat[place]]
    parts: list[tuple[NDArray[np.bool_], Whole, int]] = []
    left = form
    while len(left):
        where = form == left[0]
        part = np.compress(where, flat, axis=1)  # many times as fast as an index
        alike = _alike(part, part.min(axis=1), part.max(axis=1), words)
        if alike is None or len(parts) == MOST_FORMS:
            return None
        parts.append((where, *alike))
        left = np.compress(left != left[0], left)
    decimals = max(d for _, _, d in parts)
    if any(int(numbers.max()) * 10 ** (decimals - d) >= 10**MOST_DIGITS for _, numbers, d in parts):
        return None
    out = np.empty(len(form), np.int64)
    for where, numbers, d in parts:
        np.place(out, where, np.where(numbers < 0, -1, numbers.astype(np.int64) * 10 ** (decimals - d)))
    return out.reshape(cells.shape[1:]), decimals


def _alike(cells: Bytes, low: Bytes, high: Bytes, words: frozenset[bytes]) -> tuple[Whole, int] | None:
    """Do as `_numbers` for cells of one form: digits and points at the same places."""
    text = low.tobytes()
    varies = np.flatnonzero(low != high).tolist()
    if not varies and text.strip(b" ") in words:
        return np.full(cells.shape[1:], -1, np.int64), 0
    m = _NUMBER.fullmatch(text)
    if m is None or any(not _ZERO <= low[c] <= high[c] <= _NINE for c in varies):
        return None
    decimals = len(m[2] or b"")
    digits = m[1] + (m[2] or b"")
    if len(digits) > MOST_DIGITS:
        return None
    # Only the digits that are not the same everywhere are looked at; the others are those of the least text.
    out = np.zeros(cells.shape[1:], np.int32 if len(digits) < 10 else np.int64)
    end = m.end(2) if decimals else m.end(1)
    point = m.end(1) if decimals else end
    for column in varies:
        place = end - 1 - column - (column < point and decimals > 0)
        out += (cells[column] - low[column]) * out.dtype.type(10**place)
    return out + out.dtype.type(int(digits)), decimals


def _samples(cells: Whole) -> list[Samples]:
    """Sum up each row of cells, which is one column of one entity."""
    count = cells.shape[1]
    sums = cells.min(axis=1), cells.max(axis=1), cells.argmax(axis=1), cells.sum(axis=1), cells[:, -1]
    rows = zip(*(one.tolist() for one in sums), strict=True)
    return [
        Samples(count, low, high, at, total, last, 0, 0) if low >= 0 else _gaps(cells[row])
        for row, (low, high, at, total, last) in enumerate(rows)
    ]


def _gaps(cells: Whole) -> Samples:
    """Sum up cells of which some are missing."""
    (there,), (missing,) = np.nonzero(cells >= 0), np.nonzero(cells < 0)
    if not len(there):
        return Samples(0, 0, 0, 0, 0, 0, len(missing), 0)
    mine = cells[there]
    high = int(mine.argmax())
    return Samples(
        len(mine), int(mine.min()), int(mine[high]), int(there[high]), int(mine.sum()), int(mine[-1]),
        len(missing), int(missing[0]),
    )  # fmt: skip
