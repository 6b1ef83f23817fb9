# SPDX-License-Identifier: Apache-2.0
"""Plots as inline SVG, from numbers to markup. Pure; every text is escaped.

Plots are about as wide as a phone (`WIDTH`), so that their text is readable there and two or three stand side by side on
paper. Colours are never alone: outliers carry their names, states a shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 360.0, 210.0
#: Colours of series that stand out (Okabe and Ito's, which colour-blind people can tell apart).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c00", "#444444")
QUIET, INK, BAD = "#9db4c4", "#333", "#b3261e"
Point = tuple[float, float]


class Scale(NamedTuple):
    """A straight mapping of values `low..high` to pixels `start..end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of a plot. `x_text`, `y_text` say what a tick is called."""

    x: Scale
    y: Scale
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    x_label: str
    y_label: str
    width: float = WIDTH
    height: float = HEIGHT


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def bounds(values: Iterable[float], least_share: float = 0.0, pad: float = 0.08) -> tuple[float, float]:
    """Return the range of an axis: of all values, padded, at least `least_share` of the highest wide.

    Without that least width, noise of a tenth of a percent would fill a plot and look like a fault.
    """
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    missing = least_share * max(abs(low), abs(high)) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    if high == low:
        low, high = low - 0.5, high + 0.5
    room = (high - low) * pad
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def number(value: float) -> str:
    """Return a number as a tick shows it: short, with k and M for large ones."""
    size = abs(value)
    for least, by, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= least:
            return f"{value / by:.4g}{letter}"
    return f"{value:.4g}"


def frame(
    xs: tuple[float, float],
    ys: tuple[float, float],
    x_label: str,
    y_label: str,
    *,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    text: Callable[[float], str] = number,
    width: float = WIDTH,
    height: float = HEIGHT,
    right: float = 10.0,
) -> Frame:
    """Return the frame of a plot for the ranges of its values. `right`: room for names at the right edge."""
    marks = [(v, text(v)) for v in ticks(*ys)]
    left = 12.0 + 6.2 * max((len(t) for _, t in marks), default=1)
    shown = x_ticks if x_ticks is not None else [(v, number(v)) for v in ticks(*xs, most=6)]
    return Frame(
        Scale(*xs, left, width - right), Scale(*ys, height - 34, 22), shown, marks, x_label, y_label, width, height
    )


def draw(plot: Frame, *layers: Markup, title: str) -> Markup:
    """Return a whole plot: axes, then the layers. `title` is what a screen reader says."""
    parts = [
        Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}" style="max-width:{:.0f}px">').format(
            plot.width, plot.height, title, plot.width * 1.5
        )
    ]
    left, right, base, top = plot.x.start, plot.x.end, plot.y.start, plot.y.end
    for value, text in plot.y_ticks:
        y = plot.y(value)
        parts.append(
            Markup('<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(left, right, y, y)
        )
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left - 4, y + 3.5, text
            )
        )
    free = -1e9  # up to here the row of x ticks is taken
    for value, text in plot.x_ticks:
        x = plot.x(value)
        if x - 3.1 * len(text) < free:
            continue
        free = x + 3.1 * len(text) + 4
        parts.append(
            Markup('<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(x, x, base, base + 3)
        )
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(x, base + 14, text)
        )
    parts += [
        Markup('<line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format(left, right, base, base),
        Markup('<text class="label" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
            right, base + 28, plot.x_label
        ),
        Markup('<text class="label" x="{:.1f}" y="{:.1f}">{}</text>').format(2, top - 10, plot.y_label),
        *layers,
        Markup("</svg>"),
    ]
    return Markup("").join(parts)


def line(plot: Frame, points: Sequence[Point], colour: str, name: str = "", width: float = 1.4) -> Markup:
    """Return a line through points; one point alone becomes a dot. `name` is shown where the pointer rests."""
    if len(points) == 1:
        return dots(plot, [(*points[0], name)], colour)
    path = "".join(f"{'ML'[i > 0]}{plot.x(x):.1f} {plot.y(y):.1f}" for i, (x, y) in enumerate(points))
    hint = Markup("<title>{}</title>").format(name) if name else Markup("")
    return Markup('<path d="{}" fill="none" stroke="{}" stroke-width="{}">{}</path>').format(path, colour, width, hint)


def area(plot: Frame, low: Sequence[Point], high: Sequence[Point], colour: str, opacity: float = 0.35) -> Markup:
    """Return the area between two lines."""
    corners = [*low, *reversed(high)]
    path = "".join(f"{'ML'[i > 0]}{plot.x(x):.1f} {plot.y(y):.1f}" for i, (x, y) in enumerate(corners))
    return Markup('<path d="{}Z" fill="{}" opacity="{}"/>').format(path, colour, opacity)


def band(plot: Frame, low: float, high: float, colour: str = "#dceadf") -> Markup:
    """Return a horizontal band, cut to the plot."""
    top, bottom = (plot.y(min(max(v, plot.y.low), plot.y.high)) for v in (high, low))
    return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>').format(
        plot.x.start, top, plot.x.end - plot.x.start, max(0.0, bottom - top), colour
    )


def level(plot: Frame, value: float, name: str, colour: str = INK, dash: str = "5 3", side: str = "end") -> Markup:
    """Return a horizontal line with its name above it; nothing if it lies outside of the plot."""
    if not plot.y.low <= value <= plot.y.high:
        return Markup("")
    y = plot.y(value)
    at = plot.x.end - 2 if side == "end" else plot.x.start + 3
    return Markup(
        '<line x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}" stroke="{}" stroke-dasharray="{}"/>'
        '<text class="name" x="{:.1f}" y="{:.1f}" text-anchor="{}" style="fill:{}">{}</text>'
    ).format(plot.x.start, plot.x.end, y, y, colour, dash, at, y - 3, side, colour, name)


def dots(plot: Frame, points: Iterable[tuple[float, float, str]], colour: str, radius: float = 2.4) -> Markup:
    """Return dots (x, y, name); the name is shown where the pointer rests."""
    out = []
    for x, y, name in points:
        hint = Markup("<title>{}</title>").format(name) if name else Markup("")
        out.append(
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="{}">{}</circle>').format(
                plot.x(x), plot.y(y), radius, colour, hint
            )
        )
    return Markup("").join(out)


def names(plot: Frame, points: Sequence[tuple[float, float, str]], colour: str = BAD, most: int = 8) -> Markup:
    """Return names beside points, moved apart where they would cover each other; beyond `most`, how many more."""
    out: list[Markup] = []
    last = -1e9
    for x, y, name in sorted(points, key=lambda p: plot.y(p[1]))[:most]:
        place = min(max(plot.y(y) + 3.5, last + 10.5), plot.y.start - 2)
        last = place
        at, side = (plot.x(x) - 6, "end") if plot.x(x) > (plot.x.start + plot.x.end) / 2 else (plot.x(x) + 6, "start")
        out.append(
            Markup('<text class="name" x="{:.1f}" y="{:.1f}" text-anchor="{}" style="fill:{}">{}</text>').format(
                at, place, side, colour, name
            )
        )
    if len(points) > most:
        out.append(
            Markup(
                '<text class="name" x="{:.1f}" y="{:.1f}" text-anchor="end" style="fill:{}">and {} more</text>'
            ).format(plot.x.end - 2, plot.y.start - 4, colour, len(points) - most)
        )
    return Markup("").join(out)


def note(plot: Frame, text: str) -> Markup:
    """Return a sentence in the middle of a plot, e.g. that there is nothing to draw."""
    return Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(
        (plot.x.start + plot.x.end) / 2, (plot.y.start + plot.y.end) / 2, escape(text)
    )
