# SPDX-License-Identifier: Apache-2.0
"""Numbers of a stack of rows: the same as of each row, and nothing out of a stack with anything odd in it."""

from __future__ import annotations

import pytest
from burnin.parsers import columns
from hypothesis import given, settings
from hypothesis import strategies as st

WORDS = frozenset({b"N/A", b"-"})
HEAD = b"#Entity A       B\nID      C       \n"


def stack(cells: list[list[tuple[str, str]]], units: int = 1, head: bytes = b"") -> tuple[bytes, int]:
    """Return the text of samples of entities, each with two cells, and the bytes of a unit."""
    samples = [
        b"".join(f"GPU {gpu}   {a:<8s}{b:<14s}\n".encode() for gpu, (a, b) in enumerate(sample)) for sample in cells
    ]
    n = len(samples) // units
    texts = [head + b"".join(samples[i : i + n]) for i in range(0, len(samples), n)]
    return b"".join(texts), len(texts[0])


def read(text: bytes, length: int, head: int = 0) -> columns.Stack | None:
    return columns.read(text, 0, len(text) // length, length, head, 2, WORDS)


CELLS = [
    [("60", "690.123"), ("9", "N/A")],
    [("61", "99.5"), ("100", "0.001")],
    [("61", "690.124"), ("100", "7.000")],
    [("59", "690.124"), ("8", "N/A")],
]


@pytest.mark.parametrize("head", [b"", HEAD])
def test_numbers_of_every_entity(head: bytes) -> None:
    text, length = stack(CELLS, units=2, head=head)
    found = read(text, length, len(head))
    assert found is not None and [one.split() for one in found.entities] == [[b"GPU", b"0"], [b"GPU", b"1"]]
    (no_decimals, a), (decimals, b) = found.columns
    assert (no_decimals, decimals, found.samples) == (0, 3, 4)
    assert a[0] == columns.Samples(4, 59, 61, 1, 241, 59, 0, 0)
    assert a[1] == columns.Samples(4, 8, 100, 1, 217, 8, 0, 0)
    assert b[0] == columns.Samples(4, 99_500, 690_124, 2, 690_123 + 99_500 + 2 * 690_124, 690_124, 0, 0)
    assert b[1] == columns.Samples(2, 1, 7000, 2, 7001, 7000, 2, 0)
    lines = text.split(b"\n")
    assert lines[found.line(0, 2, head.count(b"\n"))].startswith(b"GPU 0   61      690.124")
    assert lines[found.line(1, 3, head.count(b"\n"))].startswith(b"GPU 1   8 ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"99.5 ", b"-9.5 "),
        (b"99.5 ", b"9e.5 "),
        (b"99.5 ", b"9 .5 "),
        (b"99.5 ", b"9.5. "),
        (b"99.5 ", b"995. "),
        (b"99.5 ", b".995 "),
        (b"99.5 ", b"nan  "),
        (b"99.5 ", b"     "),
        (b"99.5 ", b"99.5\r"),
        (b"99.5 ", b"99.5\x1a"),
        (b"99.5          ", b"123456789012.5"),
        (b"99.5", b"99.5 "),
        (b"99.5 ", b"99.5"),
        (b"99.5 ", b"9\n.5 "),
        (b"N/A", b"N/B"),
        (b"N/A ", b"\rN/A"),
        (b"GPU 1   100", b"GPU 2   100"),
        (b"GPU 1   100", b"GPX 1   100"),
        (b"ID      C", b"ID      F"),
    ],
)
def test_anything_odd_makes_it_no_stack(old: bytes, new: bytes) -> None:
    text, length = stack(CELLS, units=2, head=HEAD)
    assert old in text and read(text, length, len(HEAD)) is not None
    assert read(text.replace(old, new, 1), length, len(HEAD)) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.from_regex(r"\A[0-9]{1,7}(\.[0-9]{1,6})?\Z"), min_size=4, max_size=12))
def test_a_number_is_that_of_its_text(texts: list[str]) -> None:
    text, length = stack([[("1", one)] for one in texts], units=len(texts))
    found = read(text, length)
    if found is None:  # too many digits, once all have as many decimals as one of them has
        whole, parts = (
            max(len(part) for part in all_) for all_ in zip(*((*one.split("."), "")[:2] for one in texts), strict=True)
        )
        assert (
            whole + parts > columns.MOST_DIGITS
            or len({(one.find("."), len(one)) for one in texts}) > columns.MOST_FORMS
        )
        return
    decimals, (one,) = found.columns[1]
    values = [float(text) for text in texts]
    assert (one.low / 10**decimals, one.high / 10**decimals, one.last / 10**decimals) == (
        min(values),
        max(values),
        values[-1],
    )
    assert one.high_at == values.index(max(values))
