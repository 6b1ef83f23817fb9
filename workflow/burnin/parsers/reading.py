# SPDX-License-Identifier: Apache-2.0
"""The records every parser returns: a `Reading` made of `Signal`s and tool-specific data.

A parser never decides what a node is worth. It says what a text *is* (recognised, complete), what was seen
(`signals`, each with its line), and whether the checks that the text reports were made (`verdict`, three-valued).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Verdict = Literal["pass", "fail", "unknown"]

#: Longest quotation of a line kept in a signal (characters); evidence names file:line, so nothing is lost.
QUOTE_LIMIT = 400


def strict(value: Any) -> Any:
    """Return a copy in which NaN and infinity, which JSON does not have, are null: a damaged number is no number."""
    if isinstance(value, str):
        return value  # most values are words
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return value


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing seen in a tool's output that judging may act on.

    `kind` is one of the words in `burnin.parsers.kinds.KINDS`; `line` is 1-based in the file that was read;
    `text` quotes it. What is not known stays None: a parser never guesses a node from a list of victims.
    """

    kind: str
    line: int
    text: str
    host: str | None = None  # named by the line or by its prefix
    rank: int | None = None  # global rank
    gpu: int | None = None  # index on its node
    bdf: str | None = None  # PCI address, normalised to dddd:bb:dd
    device: str | None = None  # mlx5_3, FAN6_F, PSU2, NVLink "link08", switch port ...
    value: float | None = None
    unit: str | None = None
    limit: float | None = None  # a limit printed by the tool itself
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without what is None or empty."""
        out = {k: v for k in _FIELDS if (v := getattr(self, k)) is not None and v != {}}
        if self.detail:
            out["detail"] = dict(self.detail)
        return out


_FIELDS = tuple(f.name for f in fields(Signal))


@dataclass(slots=True)
class Reading:
    """What one file of one tool said.

    `recognised`: at least something of it was this tool's output. `complete`: the format's own end mark was seen.
    `verdict`: `pass` only if complete and every check it reports was made and good; `fail` if a check failed;
    otherwise `unknown`. `problems`: sentences about what was cut, damaged or not understood.
    `data`: the tool's own typed records in JSON form (documented by each parser).
    """

    tool: str
    recognised: bool = False
    complete: bool = False
    verdict: Verdict = "unknown"
    problems: list[str] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form printed by `burnin read`."""
        return {
            "tool": self.tool,
            "recognised": self.recognised,
            "complete": self.complete,
            "verdict": self.verdict,
            "problems": list(self.problems),
            "signals": [strict(s.to_dict()) for s in self.signals],
            "data": strict(self.data),
        }
