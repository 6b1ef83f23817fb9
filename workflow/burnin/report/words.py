# SPDX-License-Identifier: Apache-2.0
"""Numbers, times and states as the report writes them. Pure: times are UTC, so a report reads the same everywhere."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping

from burnin.nodes import fold

#: state of a cell -> (mark, tone)
MARKS: Mapping[str, tuple[str, str]] = {
    "passed": ("✓", "ok"),
    "failed": ("✕", "bad"),
    "suspect": ("?", "doubt"),
    "unknown": ("∅", "doubt"),
    "owes": ("↻", "doubt"),
    "withdrawn": ("−", "quiet"),
    "not counted": ("○", "quiet"),
    "not run": ("·", "quiet"),
}
#: status of a node -> tone
TONES: Mapping[str, str] = {
    "accepted": "ok", "failed": "bad", "suspect": "doubt", "withdrawn": "doubt", "running": "quiet", "repaired": "doubt",
}  # fmt: skip
UNITS: Mapping[str, str] = {"busbw": "GB/s", "gflops": "GFLOPS", "step_time": "s", "f1": "%"}


def value(number: float | None, unit: str | None = "", digits: int = 4) -> str:
    """Return a number with its unit; None is a dash."""
    if number is None:
        return "–"
    text = f"{number:,.0f}" if abs(number) >= 1e4 else f"{number:.{digits}g}"
    return f"{text} {unit}".rstrip() if unit else text


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction in percent."""
    return "–" if fraction is None else f"{100 * fraction:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Return a time span in the unit that suits it."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.3g} min"
    hours, days = f"{seconds / 3600:,.1f}".removesuffix(".0"), f"{seconds / 86400:,.1f}".removesuffix(".0")
    return f"{hours} h" if seconds < 72 * 3600 else f"{days} days"


def span(low: float, high: float) -> str:
    """Return a range of time spans; the unit once, if it is the same."""
    one, other = duration(low), duration(high)
    if one == other:
        return one
    (number, unit), (most, same) = one.split(" ", 1), other.split(" ", 1)
    return f"{number}–{most} {unit}" if unit == same else f"{one} – {other}"


def when(seconds: float | None, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    """Return a moment in UTC."""
    return "–" if seconds is None else time.strftime(form, time.gmtime(seconds))


def count(number: int, what: str, plural: str = "") -> str:
    """Return `3 nodes`, `1 node`."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


@functools.lru_cache(maxsize=20_000)
def _folded(names: tuple[str, ...]) -> str:
    return fold(names)


def listed(names: Iterable[str], most: int = 60) -> str:
    """Return node names folded; a list that would fill more than `most` words of eight letters by its ends and its length."""
    known = tuple(names)
    text = _folded(known)
    if len(text) <= most * 8:
        return text
    return f"{known[0]} … {known[-1]} ({len(known):,} nodes)"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ":")) else ".")
