# SPDX-License-Identifier: Apache-2.0
"""`dcgmi dmon`: hours of samples of every GPU, aggregated as they come.

The header (two lines, the first with `#`) repeats and names the columns; a changed header begins a new set. The first
two words of a row are the entity (`GPU 5`, `GPU-I 3`, `Switch 1`). `N/A` is counted as such, never as 0.

Verdict: `fail` if the last-Xid column changed to a hardware Xid during the record (a value that stood there from the
first sample is older, and 0 does not prove that there was none); `unknown` if nothing proves that the record is whole
(`dmon was stopped due to receiving a signal.` or `whole`), rows are damaged or stand before any header, cells are N/A,
or an entity has fewer samples than another; `pass` if the record is whole and every cell was read. Temperatures are for
judging.

data: `fields`: {name: unit|null}, `entities`: {"GPU 5": {"TMPTR": {"n", "na", "min", "max", "mean", "last", "max_line"
(of TMPTR)}}}, `samples` (rows), `damaged_rows`, `stopped`: bool.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from burnin.parsers.common import LineSource, Prefix, number, signal
from burnin.parsers.dmesg import NO_VERDICT_XIDS
from burnin.parsers.hosted import HostedParser
from burnin.parsers.reading import Reading, Signal

if TYPE_CHECKING:
    from burnin.parsers import columns

MOST_ENTITIES = 4096
MOST_FIELDS = 64
#: A read of this many times the usual size has enough rows for numpy to be worth its calls.
CHUNKS = 8
#: Fewer bytes than this are no stack.
FEW = 2048
#: Lines that are read one by one where no stack begins, before one is looked for again: at first, and after many failures.
PATIENCE = 64
MOST_PATIENCE = 1 << 14

_ENTITY = re.compile(r"(GPU|GPU-I|GPU-CI|Switch|CPU|Core|Link|ConnectX)$")
_HEADER = re.compile(r"#\s*Entity\b")
_STOPPED = re.compile(r"dmon was stopped due to receiving a signal")
_BLANK = frozenset({"N/A", "[N/A]", "n/a", "-", "ERR!"})
_BLANK_BYTES = frozenset(word.encode() for word in _BLANK)
_PLAIN = re.compile(rb"[ -~]+\n[ -~]+\n")
#: Sums do not depend on how many samples are added at once.
_SUM = Context(prec=60)


@dataclass(slots=True)
class _Series:
    n: int = 0
    na: int = 0
    low: float = 0.0
    high: float = 0.0
    total: Decimal = Decimal(0)
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
        self.total = _SUM.add(self.total, Decimal(repr(value)))
        self.last = value

    def add_all(self, some: columns.Samples, decimals: int) -> bool:
        """Take the samples of a stack; return whether one of them is the highest so far."""
        self.na += some.missing
        if not some.n:
            return False
        scale = 10**decimals
        low, high = some.low / scale, some.high / scale
        if self.n == 0 or low < self.low:
            self.low = low
        higher = self.n == 0 or high > self.high
        if higher:
            self.high = high
        self.n += some.n
        self.total = _SUM.add(self.total, Decimal(some.total).scaleb(-decimals))
        self.last = some.last / scale
        return higher

    def mean(self) -> float:
        """Return the mean of the samples as printed."""
        return round(float(_SUM.divide(self.total, Decimal(self.n))), 6)


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
        self.headless = False
        self.header = b""  # the last one, two lines as they stood in the file; empty if it did not stand there so

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
        if not self.names and not self.headless and len(words) > 2 and _ENTITY.match(words[0]) and words[1].isdigit():
            self.headless = True
            self.note(f"line {number_}: a row before any header: the beginning of the record is missing", damage=True)
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
        self.header = b""
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
        """Read a file with the result of line by line, but stacks of rows of one form at once (see `columns`)."""
        source.chunk *= CHUNKS
        fast = False
        waiting, patience = 0, PATIENCE
        for first, block, whole in source.blocks():
            # Small files do without: loading numpy takes longer than reading them.
            fast |= len(block) > source.chunk // 2
            more, waiting = len(block) != waiting and block.endswith(b"\n"), 0
            at = lines = 0
            while at < len(block):
                size = count = 0
                if fast and whole:
                    head, length, end = self._unit(block, at)
                    units = (end - at) // length if length > 0 else 0
                    if more and units < 2 and end == len(block) and end - at < source.chunk // 4:
                        waiting = source.again = end - at  # perhaps the beginning of a stack
                        break
                    size, count = self._stack(first + lines, block, at, units, length, head)
                if size:
                    patience = PATIENCE
                else:
                    size, count = self._rows(source, first + lines, block, at, patience)
                    patience = min(2 * patience, MOST_PATIENCE)
                at, lines = at + size, lines + count
            source.newlines = lines

    def _rows(self, source: LineSource, first: int, block: bytes, at: int, most: int) -> tuple[int, int]:
        """Take some lines, no more than those before a comment if they are few; return (bytes, lines) taken."""
        start, lines = at, 0
        while at < len(block) and lines < most and not (0 < lines < PATIENCE and block.startswith(b"#", at)):
            end = block.find(b"\n", at)
            end = end if end >= 0 else len(block)
            for number_, text in source._pieces(first + lines, block[at:end]):
                self.feed(number_, text)
            if self.expect_units and block.startswith(b"#", at):
                header = block[at : block.find(b"\n", end + 1) + 1]
                self.header = header if _PLAIN.fullmatch(header) else b""
            at, lines = end + 1, lines + 1
        return at - start, lines

    def _unit(self, block: bytes, at: int) -> tuple[int, int, int]:
        """Return what may be repeated from a line on: (bytes of its head, its bytes, where its repetition ends at the latest).

        That is the known header and what follows it up to the same header, or else one sample of all entities.
        """
        from burnin.parsers import columns

        if self.expect_units or not self.names or len(set(self.names)) < len(self.names):
            return 0, 0, at
        if not block.startswith(b"#", at):
            end = block.find(b"#", at)
            end = end if end >= 0 else len(block)
            return 0, columns.period(block, at, end), end
        head = len(self.header)
        if not self.header.startswith(block[at : at + head] or b"#"):  # the block may end within the header
            return 0, 0, at
        return head, block.find(self.header, at + head) - at, len(block)

    def _stack(self, first: int, block: bytes, at: int, units: int, length: int, head: int) -> tuple[int, int]:
        """Take a stack of at most `units` from line `first` on; return (bytes, lines) taken, (0, 0) if there is none."""
        from burnin.parsers import columns

        while units > 1 and units * length >= FEW:
            stack = columns.read(block, at, units, length, head, len(self.names), _BLANK_BYTES)
            if stack is not None and self._take(first, stack, 2 if head else 0):
                return units * length, stack.line(0, stack.samples, 0) + (2 * units if head else 0)
            units //= 2  # something in it is odd: perhaps not in its first half
        return 0, 0

    def _take(self, first: int, stack: columns.Stack, head: int) -> bool:
        """Add a stack of which every unit begins with `head` lines of header; return False if it is not so simple."""
        host = [self.host] if self.host else []
        keys = [" ".join([*host, *filter(None, one.decode("latin-1").split(" "))]) for one in stack.entities]
        series = [self.entities.get(key, {}) for key in keys]
        if len(set(keys)) < len(keys) or not all(name in one for one in series for name in self.names):
            return False
        for name, (decimals, samples) in zip(self.names, stack.columns, strict=True):
            if name == "XIDER" and not all(
                not some.n or (some.low == some.high and some.low / 10**decimals == one[name].last and not some.missing)
                for one, some in zip(series, samples, strict=True)
            ):
                return False
        for name, (decimals, samples) in zip(self.names, stack.columns, strict=True):
            for i, some in enumerate(samples):
                one = series[i][name]
                if some.missing:
                    one.na_line = one.na_line or first + stack.line(i, some.missing_at, head)
                if one.add_all(some, decimals):
                    one.high_line = first + stack.line(i, some.high_at, head)
        self.rows += stack.samples * len(keys)
        return True

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
                    fields.update(min=one.low, max=one.high, mean=one.mean(), last=one.last)
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
            mean = one.mean()
            value = one.high if kind == "gpu_temperature" else mean
            self.found.add(
                signal(kind, one.high_line, f"{key} {name} min {one.low:g} mean {mean:.1f} max {one.high:g}", pre,
                       gpu=gpu, value=value, unit=unit,
                       detail={"mean": mean, "min": one.low, "max": one.high, "samples": one.n})
            )  # fmt: skip
