# SPDX-License-Identifier: Apache-2.0
"""What a section of the report is made of. The page knows these few forms, the sections fill them; no markup here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, or a piece of text elsewhere. `tone`: ok, bad, doubt or quiet. `href`: a path below the campaign's folder."""

    text: str
    tone: str = ""
    href: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. `tone`: "", note, warn."""

    text: str
    tone: str = ""
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and what they stand for."""

    items: Sequence[tuple[str, Cell]]
    kind: str = "pairs"


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `numeric`: columns set to the right; `tight`: a matrix of marks; `stack`: on a phone a list of its rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    numeric: frozenset[int] = frozenset()
    tight: bool = False
    stack: bool = False
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and what it shows."""

    svg: Markup
    caption: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Plots side by side."""

    items: Sequence[Figure]
    kind: str = "figures"


@dataclass(frozen=True, slots=True)
class Quotation:
    """An evidence: where it stands, the file (None: not there any more), what the line says."""

    place: str
    href: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure: a card with everything about it."""

    title: str
    tone: str
    state: str
    facts: Sequence[tuple[str, Cell]]
    findings: Sequence[tuple[str, Sequence[Quotation]]]
    anchor: str = ""
    kind: str = "failure"


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are folded on a screen. They are printed nevertheless, unless they are for the `screen` only."""

    title: str
    blocks: Sequence[Block]
    screen: bool = False
    kind: str = "details"


@dataclass(frozen=True, slots=True)
class Tiles:
    """Large numbers side by side: (number, what it counts, tone)."""

    items: Sequence[tuple[str, str, str]]
    kind: str = "tiles"


@dataclass(frozen=True, slots=True)
class SignOff:
    """Lines for names, dates and signatures."""

    roles: Sequence[str]
    sentence: str
    kind: str = "signoff"


Block = Text | Pairs | Table | Figures | Failure | Details | Tiles | SignOff


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its place in the page."""

    anchor: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)
