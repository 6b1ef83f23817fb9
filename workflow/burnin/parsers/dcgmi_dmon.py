# SPDX-License-Identifier: Apache-2.0
"""`dcgmi dmon`: hours of samples of every GPU, aggregated as they come.

The header (two lines, the first with `#`) repeats and names the columns; a changed header begins a new set. The first
two words of a row are the entity (`GPU 5`, `GPU-I 3`, `Switch 1`). `N/A` is counted as such, never as 0.

Verdict: `fail` if the last-Xid column changed to a hardware Xid during the record (a value that stood there from the
first sample is older, and 0 does not prove that there was none); `unknown` if nothing proves that the record is whole
(`dmon was stopped due to receiving a signal.` or `whole`), rows are damaged, cells are N/A, or an entity has fewer
samples than another; `pass` if the record is whole and every cell was read. Temperatures are for judging.

data: `fields`: {name: unit|null}, `entities`: {"GPU 5": {"TMPTR": {"n", "na", "min", "max", "mean", "last", "max_line"
(of TMPTR)}}}, `samples` (rows), `damaged_rows`, `stopped`: bool.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from burnin.parsers.common import LineSource, Prefix, number, signal
from burnin.parsers.dmesg import NO_VERDICT_XIDS
from burnin.parsers.hosted import HostedParser
from burnin.parsers.reading import Reading, Signal

MOST_ENTITIES = 4096
MOST_FIELDS = 64
#: Bytes that are added up at once.
PIECE = 256 * 1024
#: Texts whose number is remembered.
MOST_KNOWN = 100_000

_ENTITY = re.compile(r"(GPU|GPU-I|GPU-CI|Switch|CPU|Core|Link|ConnectX)$")
_HEADER = re.compile(r"#\s*Entity\b")
_STOPPED = re.compile(r"dmon was stopped due to receiving a signal")
_BLANK = frozenset({"N/A", "[N/A]", "n/a", "-", "ERR!"})


@dataclass(slots=True)
class _Series:
    n: int = 0
    na: int = 0
    low: float = 0.0
    high: float = 0.0
    total: float = 0.0
    last: float | None = None
    high_line: int = 0
    na_line: int = 0

    def add(self, value: float, line: int) -> None:
        """Take one sample."""
        if self.n == 0 or value < self.low:
            self.low = value
        if self.n == 0 or value > self.high:
            self.high, self.high_line = value, line
        self.n += 1
        self.total += value
        self.last = value


class Parser(HostedParser):
    """Streaming reader of dcgmi dmon. Options: `whole`, `host`."""

    tool: ClassVar[str] = "dcgmi-dmon"
    program: ClassVar[str] = "dcgmi"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.names: list[str] = []
        self.starts: list[int] = []
        self.units: dict[str, str | None] = {}
        self.header_text = ""
        self.entities: dict[str, dict[str, _Series]] = {}
        self.hosts: dict[str, str] = {}
        self.rows = 0
        self.damaged_rows = 0
        self.stopped = False
        self.bad = False
        self.recognised = False
        self.expect_units = False
        self.known: dict[bytes, float] = {}

    # ------------------------------------------------------------------------------------------------------ lines

    def line(self, number_: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host prefix."""
        stripped = body.strip()
        if not stripped:
            return []
        if stripped[0] == "#":
            if _HEADER.match(stripped):
                self._header(body, stripped)
            return []
        if self.expect_units:
            self.expect_units = False
            if stripped.split()[0] in ("ID", "Id"):
                self._unit_line(body)
                return []
        if _STOPPED.search(stripped):
            self.stopped = True
            return []
        words = stripped.split()
        if not self.names or len(words) < 2 or not _ENTITY.match(words[0]) or not words[1].isdigit():
            if self.names and self.recognised and stripped[0].isalpha() and words[0] not in ("ID",):
                if _ENTITY.match(words[0]):
                    self._damaged(number_)
                elif "rror" in stripped or "unable" in stripped.lower():
                    self.note(f"line {number_}: dcgmi says: {stripped[:160]}")
            return []
        return self._row(number_, body, words, prefix)

    def _header(self, body: str, stripped: str) -> None:
        names = stripped.lstrip("#").split()[1:]
        self.expect_units = True
        if not names or len(names) > MOST_FIELDS:
            return
        self.recognised = True
        if names != self.names:
            if self.names:
                self.note("the columns change within the text")
            self.names = names
        self.starts = []
        at = body.find("Entity") + len("Entity")
        for name in names:
            at = body.find(name, at)
            self.starts.append(at)
            at += len(name)
            self.units.setdefault(name, None)

    def _unit_line(self, body: str) -> None:
        for m in re.finditer(r"\S+", body):
            if m[0] in ("ID", "Id"):
                continue
            if not self.starts:
                return  # the header's first line is damaged: there is no column to give a unit to
            near = min(range(len(self.starts)), key=lambda i: abs(self.starts[i] - m.start()))
            if abs(self.starts[near] - m.start()) <= 4:
                self.units[self.names[near]] = m[0][:20]

    def _damaged(self, line: int) -> None:
        self.damaged_rows += 1
        if self.damaged_rows <= 5:
            self.note(f"line {line}: a row does not fit the header")

    def _row(self, line: int, body: str, words: list[str], prefix: Prefix) -> list[Signal]:
        cells = words[2:]
        if len(cells) != len(self.names):
            self._damaged(line)
            return []
        key = f"{words[0]} {int(words[1][:9])}"
        if prefix.host:
            key = f"{prefix.host} {key}"
        series = self.entities.get(key)
        if series is None:
            if len(self.entities) >= MOST_ENTITIES:
                self._damaged(line)
                return []
            series = self.entities[key] = {}
            if prefix.host:
                self.hosts[key] = prefix.host
        self.rows += 1
        out: list[Signal] = []
        for name, cell in zip(self.names, cells, strict=True):
            one = series.get(name)
            if one is None:
                one = series[name] = _Series()
            value = number(cell)
            if value is None or not math.isfinite(value):
                one.na += 1
                one.na_line = one.na_line or line
                if cell not in _BLANK:
                    self._damaged(line)
                continue
            if name == "XIDER":
                out += self._xid(line, body, key, value, one)
            one.add(value, line)
        return out

    def _xid(self, line: int, body: str, key: str, value: float, before: _Series) -> list[Signal]:
        if value == 0 or before.last == value:
            return []
        old = before.last is None and before.na == 0
        if not old and int(value) not in NO_VERDICT_XIDS:
            self.bad = True
        gpu = key.rpartition(" ")[2]
        return self.emit(
            signal("xid", line, body, Prefix(self.hosts.get(key, self.host)), gpu=int(gpu), value=value,
                   detail={"source": "dcgmi dmon, last Xid", "older": old})
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ speed

    def scan(self, source: LineSource) -> None:
        """Read a file piece by piece; pieces in which every row fits are added up without looking at single lines."""
        for first, block, whole in source.blocks():
            at = 0
            while at < len(block):
                # Small pieces, because their words stay in the processor's cache while they are added up.
                end = block.rfind(b"\n", at, at + PIECE) + 1
                if whole and end and self._steady(block[at : at + 40]):
                    newlines = block.count(b"\n", at, end)
                    if self._block(first, block[at:end]):
                        at, first = end, first + newlines
                        continue
                # Line by line until a row of a known entity begins a piece again.
                for _ in range(64):
                    end = block.find(b"\n", at)
                    end = end if end >= 0 else len(block)
                    for n, text in source._pieces(first, block[at:end]):
                        self.feed(n, text)
                    at, first = end + 1, first + 1
                    if at >= len(block) or self._steady(block[at : at + 40]):
                        break

    def _steady(self, start: bytes) -> bool:
        """Say whether a line begins a row of an entity that was seen more than once, so that all of them are known."""
        words = start.split(None, 2)
        if len(words) < 2 or not self.names:
            return False
        series = self.entities.get(f"{words[0].decode('latin-1')} {words[1].decode('latin-1')}")
        return series is not None and all(s.n + s.na > 1 for s in series.values())

    def _block(self, first: int, block: bytes) -> bool:
        """Add a piece whose rows are in an unchanging order of entities; return False if it is not so simple."""
        left: list[bytes] = []
        # A header that the block's edge cuts in two goes line by line.
        last = block.rfind(b"\n", 0, len(block) - 1) + 1
        if block[last : last + 1] == b"#":
            block, left = block[:last], [block[last:].rstrip(b"\n")]
        if not self.names or b"\r" in block or b"\x1b" in block or not block.isascii() or not block.endswith(b"\n"):
            return False
        rest = block
        at = block.find(b"#")
        headers: tuple[bytes, ...] = ()
        if at >= 0:
            end = block.find(b"\n", block.find(b"\n", at) + 1) + 1
            if end <= 0 or (at and block[at - 1 : at] != b"\n"):
                return False
            header = block[at:end]
            if header.split(b"\n")[0].decode().lstrip("#").split()[1:] != self.names:
                return False
            rest = block.replace(header, b"")
            headers = (header,)
        words = rest.split()
        width = len(self.names) + 2
        rows, odd = divmod(len(words), width)
        if odd or not rows or rest.count(b"\n") != rows:
            return False
        kinds, idents = words[0::width], words[1::width]
        period = 1
        while period < rows and period <= 64 and (kinds[period], idents[period]) != (kinds[0], idents[0]):
            period += 1
        for g in range(period):
            if len(set(kinds[g::period])) > 1 or len(set(idents[g::period])) > 1:
                return False
        keys = [f"{kinds[g].decode()} {idents[g].decode()}" for g in range(min(period, rows))]
        if any(key not in self.entities for key in keys) or len(set(keys)) != len(keys):
            return False
        columns: list[tuple[str, str, list[float], int]] = []
        for c, name in enumerate(self.names):
            values = self._numbers(words[2 + c :: width])
            if values is None:
                return False
            for g, key in enumerate(keys):
                mine = values[g::period]
                if name == "XIDER":
                    before = self.entities[key].get(name)
                    if before is None or not before.n or mine.count(before.last or 0.0) != len(mine):
                        return False
                columns.append((key, name, mine, g))
        for key, name, mine, g in columns:
            one = self.entities[key].get(name)
            if one is None:
                one = self.entities[key][name] = _Series()
            low, high = min(mine), max(mine)
            if one.n == 0 or low < one.low:
                one.low = low
            if one.n == 0 or high > one.high:
                one.high = high
                one.high_line = first + self._line_in(block, headers, mine.index(high) * period + g)
            one.n += len(mine)
            one.total += sum(mine)
            one.last = mine[-1]
        self.rows += rows
        for raw in left:
            self.feed(first + block.count(b"\n"), raw.decode())
        return True

    def _numbers(self, cells: list[bytes]) -> list[float] | None:
        """Return the numbers of a column, or None if one cell is none. Values repeat, so each text is read once."""
        known = self.known
        try:
            return list(map(known.__getitem__, cells))
        except KeyError:
            if len(known) > MOST_KNOWN:
                known.clear()
        for text in set(cells).difference(known):
            value = number(text.decode())
            if value is None or not math.isfinite(value):
                return None
            known[text] = value
        return list(map(known.__getitem__, cells))

    @staticmethod
    def _line_in(block: bytes, headers: tuple[bytes, ...], row: int) -> int:
        """Return how many lines of the block stand before its data row number `row`."""
        if not headers:
            return row
        lines = 0
        for part in block.split(headers[0]):
            n = part.count(b"\n")
            if row < n:
                return lines + row
            row -= n
            lines += n + 2
        return lines

    # ----------------------------------------------------------------------------------------------------- result

    def read(self) -> Reading:
        """Return the reading of the whole record."""
        reading = Reading(self.tool, recognised=self.recognised, complete=self.stopped or self.whole)
        out: dict[str, Any] = {}
        lengths: dict[str, set[int]] = {}
        unread = 0
        for key, series in self.entities.items():
            entry: dict[str, Any] = {}
            kind = key.split(" ")[-2]
            for name, one in series.items():
                unread += one.na
                fields: dict[str, Any] = {"n": one.n, "na": one.na}
                if one.n:
                    fields.update(min=one.low, max=one.high, mean=round(one.total / one.n, 6), last=one.last)
                    if name == "TMPTR":
                        fields["max_line"] = one.high_line
                entry[name] = fields
                lengths.setdefault(kind, set()).add(one.n + one.na)
            out[key] = entry
            if kind == "GPU":
                self._gpu_signals(key, series)
        for kind, counts in lengths.items():
            if counts and max(counts) != min(counts):
                reading.problems.append(
                    f"{kind}s have between {min(counts)} and {max(counts)} samples: rows are missing"
                )
        if unread:
            reading.problems.append(f"{unread} cells could not be read (N/A)")
        if self.damaged_rows:
            reading.problems.append(f"{self.damaged_rows} rows are damaged")
        if self.bad:
            reading.verdict = "fail"
        elif self.rows and not reading.problems and not self.damaged_rows:
            reading.verdict = "pass"
        if self.recognised and not self.rows:
            reading.problems.append("there are no samples")
        if self.recognised and not reading.complete:
            reading.problems.append("the record has no end mark: nothing proves that it is whole")
        reading.data = {
            "fields": self.units,
            "entities": out,
            "samples": self.rows,
            "damaged_rows": self.damaged_rows,
            "stopped": self.stopped,
        }
        return reading

    def _gpu_signals(self, key: str, series: dict[str, _Series]) -> None:
        gpu = int(key.rpartition(" ")[2])
        pre = Prefix(self.hosts.get(key, self.host))
        for name, kind, unit in (("TMPTR", "gpu_temperature", "C"), ("POWER", "gpu_power", "W")):
            one = series.get(name)
            if one is None:
                continue
            if not one.n:
                self.found.add(
                    signal("unreadable", one.na_line, f"{key} {name} N/A", pre, gpu=gpu, detail={"what": name})
                )
                continue
            mean = round(one.total / one.n, 6)
            value = one.high if kind == "gpu_temperature" else mean
            self.found.add(
                signal(kind, one.high_line, f"{key} {name} min {one.low:g} mean {mean:.1f} max {one.high:g}", pre,
                       gpu=gpu, value=value, unit=unit,
                       detail={"mean": mean, "min": one.low, "max": one.high, "samples": one.n})
            )  # fmt: skip
