# SPDX-License-Identifier: Apache-2.0
"""What every reader of tool output shares: lines, prefixes, numbers, PCI addresses, bounded lists of signals.

Nothing here knows a tool. Memory is bounded whatever the size of a file: it is read in chunks, a line longer than
`LINE_LIMIT` is cut (and said so), and signals are collected up to a cap with exact counts.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import itertools
import marshal
import math
import os
import re
import signal as signal_module
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from burnin.parsers.kinds import KINDS
from burnin.parsers.reading import QUOTE_LIMIT, Reading, Signal

#: Longest part of one line that is looked at (bytes). Longer lines are cut and reported as a problem.
LINE_LIMIT = 64 * 1024
#: Size of one read (bytes): what is read stays in the processor's cache until it has been looked at.
CHUNK = 128 << 10
#: glibc gives the memory of a block back to the kernel and gets it again page by page for the next one, which takes longer
#: than to read it, until a piece of more than twice that size was freed once. No page of such a piece (bytes) is touched.
KEPT = 16 << 20
#: Buffer of the filtered reading of large files, and the longest line it holds (bytes).
BLOCK = 64 << 10
LONGEST = 32 << 20
#: Of a block of the filtered reading that has more than boring lines, so much is split into lines at once (bytes).
STRETCH = 2 << 10
#: From this size on a second process filters the second part (bytes); the share of the first, and the most it may pick.
PARALLEL_FROM = 256 << 20
OWN_PART = 0.45
SPOOL_LIMIT = 256 << 20
#: What stands for a NUL byte and for the end of a line that was cut: a character that no tool prints, so that a reader
#: sees in which line something is lost, and one that is not taken for a blank.
HOLE = b"\x1a"
#: Most signals of one kind that are kept; the rest is counted.
KEEP_PER_KIND = 200

#: One number as tools print it; never matches N/A, ERR!, "-" or an empty cell.
NUMBER = r"(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF)(?:inity)?)"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class LineParser(Protocol):
    """What every tool module's `Parser` offers.

    Optional attributes that `read_file` honours: `line_limit` (bytes, for one-line JSON documents), `candidates`
    (a `Prefilter`: only such lines of a big file are fed), `skipped` (set to the number of lines not fed), `scan(source)`
    (the parser reads the `LineSource` itself, where feeding line by line would be too slow), `unterminated(number)`
    (called before `finish` when the last line of the file has no newline, so that an end mark cut in its middle is not
    taken for an end).
    """

    tool: ClassVar[str]

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line (1-based number in the file, no newline); return what it newly revealed."""
        ...

    def finish(self) -> Reading:
        """Say what the whole text was. Call once."""
        ...


# ---------------------------------------------------------------------------------------------------------- numbers


def number(text: str | None) -> float | None:
    """Return the number that `text` is, or None if it is not exactly one number.

    `N/A`, `[N/A]`, `ERR!`, `-` and the empty text give None, never 0: a counter that could not be read is not clean.
    `nan` and `inf` give themselves; see `finite` for JSON.
    """
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return None if "_" in text else value  # Python's digit grouping is no tool's


def integer(text: str | None) -> int | None:
    """Return the whole number that `text` is (`4.1e+4` allowed), or None."""
    value = number(text)
    if value is None or not math.isfinite(value) or value != int(value):
        return None
    return int(value)


def finite(value: float | None) -> float | None:
    """Return `value` if JSON can carry it, else None (NaN and infinity are not JSON)."""
    return value if value is not None and math.isfinite(value) else None


_BDF = re.compile(
    r"(?<![0-9a-fA-F])(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?(?![0-9a-fA-F:])"
)


def bdf(text: str) -> str | None:
    """Return the first PCI address in `text` as `dddd:bb:dd` (lower case, no function), or None.

    nvidia-smi prints an 8-digit domain, the kernel 4 digits, Slurm and lspci 4 with a function; a missing domain is 0.
    """
    m = _BDF.search(text)
    if not m:
        return None
    domain = (m[1] or "0").lower().lstrip("0").rjust(4, "0")
    return f"{domain}:{m[2].lower()}:{m[3].lower()}"


def damaged_key(document: Any, known: frozenset[str]) -> str | None:
    """Return the first key of a JSON document that is nearly, but not quite, one of `known`, or None.

    An unknown key may be a newer version's; one of which less than half of the letters differ from a known key is that
    key after damage, and what it holds would be overlooked without a trace.
    """
    lengths: dict[int, list[str]] = {}
    for word in known:
        lengths.setdefault(len(word), []).append(word)
    left = [document]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            for key in item:
                if key not in known and any(
                    2 * sum(a != b for a, b in zip(key, word, strict=True)) < len(word)
                    for word in lengths.get(len(key), ())
                ):
                    return str(key)
            left += item.values()
        elif isinstance(item, list):
            left += item
    return None


_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")


def expand_ranges(text: str, most: int = 100_000) -> list[int]:
    """Expand a task list such as `2,4-5,7`; parts that are no ranges are left out, at most `most` numbers."""
    out: list[int] = []
    for part in text.split(","):
        m = _RANGE.match(part.strip())
        if not m:
            continue
        first = int(m[1])
        last = int(m[2]) if m[2] else first
        out.extend(range(first, min(last, first + most - len(out) - 1) + 1))
        if len(out) >= most:
            break
    return out


# --------------------------------------------------------------------------------------------------------- prefixes


@dataclass(frozen=True, slots=True)
class Prefix:
    """What launchers wrote before a line. `task` is srun's, `rank` a global rank, `local_rank` torchrun's."""

    host: str | None = None
    task: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    time: str | None = None
    stream: str | None = None
    file: str | None = None  # grep's file name

    @property
    def any_rank(self) -> int | None:
        """Return the global rank if the prefix carries it; srun's task number counts as one."""
        return self.rank if self.rank is not None else self.task


NO_PREFIX = Prefix()

_NEVER_PREFIX = frozenset("#(|{}*=-+,;:\"'`")
_QUOTED = re.compile(r"(?:>\s?)+")
_SHIPPER = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?):?[ \t]+")
_OPENMPI = re.compile(r"\[(?:[^\],\[]*,)?(\d+)\]<(stdout|stderr|stddiag)>:\s?")
_TORCH = re.compile(r"\[rank(\d+)\]:\s?")
_TEE = re.compile(r"\[([a-z_]+)(\d+)\]:\s?")
_SRUN_L = re.compile(r"\s*(\d{1,7}):(?:\s|\Z)")
_GREP = re.compile(r"([\w./+-]*[\w-]\.(?:out|log|txt|err)):(?:\d+:)?(?!\d)")
_PDSH = re.compile(r"([A-Za-z0-9][\w.-]*):(?:\s|\Z)")
# Words with a digit that stand before a colon in tool output and are not hosts.
_NOT_HOST = re.compile(
    r"(?:mlx\d\w*|gpu\w*|cpu\w*|eth\d\w*|ib\d\w*|ens\d\w*|enp\w*|bond\d\w*|fan\w*|psu\w*|link\w*|lane\w*|port\w*|nvlink\w*|rank\w*|slot\w*|mc\d|\d[\d.-]*"
    r"|core\d*|temp\w*|nvme\w*|sd[a-z]\d*|step\w*|iteration\w*|usb\w*|ata\d\w*|irq\w*|v\d[\d.]*|nccl\w*|libcudart\w*|hpl\w*|x86\w*|i2c\w*|8021q|bnxt\w*|nvidia\w*)\Z",
    re.IGNORECASE,
)


def looks_like_host(word: str) -> bool:
    """Say whether `word` before a colon may be a host name: it has a digit and is no device or counter name."""
    return any(c.isdigit() for c in word) and len(word) <= 253 and not _NOT_HOST.match(word)


def peel(line: str, hosts: frozenset[str] = frozenset()) -> tuple[str, Prefix]:
    """Take launchers' prefixes off a line, repeatedly, and return the rest with what they carried.

    Known forms: log shipper time, Open MPI `--tag-output`, `srun -l`, PyTorch `[rank3]:`, torchrun `[default5]:`,
    pdsh/clush host, `grep`'s file name, mail quotation. A pdsh prefix is believed if the word has a digit and is no
    device name (see `looks_like_host`) or is in `hosts`. Blanks after the prefix proper stay, as tables need them.
    """
    if not line:
        return line, NO_PREFIX
    c = line[0]
    if c in _NEVER_PREFIX or (c == " " and not line.lstrip()[:1].isdigit()):
        return line, NO_PREFIX
    found: dict[str, Any] = {}
    for _ in range(8):
        if not line:
            break
        c = line[0]
        m: re.Match[str] | None
        if c == "[":
            if m := _TORCH.match(line):
                found.setdefault("rank", int(m[1]))
            elif m := _OPENMPI.match(line):
                found.setdefault("rank", int(m[1]))
                found.setdefault("stream", m[2])
            elif m := _TEE.match(line):
                found.setdefault("local_rank", int(m[2]))
            else:
                break
        elif c == ">":
            m = _QUOTED.match(line)
            if m is None:
                break
        elif c == " " or c == "\t":
            # Only srun aligns its number to the right.
            if "task" in found or (m := _SRUN_L.match(line)) is None:
                break
            found["task"] = int(m[1])
        else:
            if m := _SHIPPER.match(line):
                found.setdefault("time", m[1])
            elif m := _SRUN_L.match(line):
                if "task" in found:
                    break
                found["task"] = int(m[1])
            elif m := _GREP.match(line):
                found.setdefault("file", m[1])
            elif "host" not in found and (m := _PDSH.match(line)) and (m[1] in hosts or looks_like_host(m[1])):
                found["host"] = m[1]
            else:
                break
        line = line[m.end() :]
    return (line, Prefix(**found)) if found else (line, NO_PREFIX)


# ------------------------------------------------------------------------------------------------------------ lines


def _sniff(head: bytes) -> tuple[str, int]:
    """Return (encoding, bytes of byte order mark) judged from the first bytes of a file."""
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8", 3
    if head.startswith(codecs.BOM_UTF16_LE) and not head.startswith(codecs.BOM_UTF32_LE):
        return "utf-16-le", 2
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be", 2
    sample = head[:4096]
    half = len(sample) // 2
    if half >= 8:
        # UTF-16 without a mark: nearly every second byte of mostly ASCII text is 0.
        if sample[1::2].count(0) > 0.7 * half and sample[0::2].count(0) < 0.1 * half:
            return "utf-16-le", 0
        if sample[0::2].count(0) > 0.7 * half and sample[1::2].count(0) < 0.1 * half:
            return "utf-16-be", 0
    return "utf-8", 0


def clean(text: str) -> str:
    """Return `text` without terminal colour and title sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


@functools.cache
def _all_but(keep: bytes) -> bytes:
    return bytes(set(range(256)).difference(keep))


@dataclass(frozen=True, slots=True)
class Prefilter:
    """Which lines of a large file are worth decoding; everything else is only counted.

    With `boring`, a line that contains it is left out unless it also contains a word of `keep`, or one of `seek` while
    such lines are asked for. With `needles`, only lines with one of these words come. The first and the last block of a
    file always come in full. Files smaller than `from_size` are never filtered.

    `keep` and `seek` are pairs of a rare byte of the word and the word: looking for a byte that is not there costs a tenth
    of looking for a word. `sign` is a byte that `boring` has once, and boring lines rarely have again. `strange` are bytes
    of lines that are not boring: where a block has as many boring words as lines, two may be in one line, and only a block
    without these bytes is believed to have nothing else.
    """

    boring: bytes = b""
    sign: bytes = b""
    keep: tuple[tuple[bytes, bytes], ...] = ()
    seek: tuple[tuple[bytes, bytes], ...] = ()
    strange: bytes = b""
    needles: tuple[bytes, ...] = ()
    from_size: int = 4 << 20

    def pick(self, block: bytearray, end: int, lines: int, whole: bool, watch: bool) -> Iterable[tuple[int, bytes]]:
        """Return (lines before it in the block, line) of every line worth decoding.

        `lines` is the number of newlines in the block, `whole` asks for all lines, `watch` for those with `seek`.
        """
        if whole:
            rows = bytes(block[:end]).split(b"\n")
            if end and block[end - 1] == 10:
                rows.pop()
            return enumerate(rows)
        if not self.boring:
            return self._found(self.needles, block, end)
        alone = block.count(self.boring, 0, end) == lines and all(block.find(c, 0, end) < 0 for c in self.strange)
        pairs = (*self.keep, *self.seek) if watch or not alone else self.keep
        there = {rare for rare in {rare for rare, _ in pairs} if block.find(rare, 0, end) >= 0}
        words = [w for rare, w in pairs if rare in there and block.find(w, 0, end) >= 0]
        found = self._found(words, block, end) if words else ()
        return found if alone else sorted({*self._not_boring(block, end), *found})

    def _not_boring(self, block: bytearray, end: int) -> Iterator[tuple[int, bytes]]:
        # Most of such a block is boring, too, and splitting it into lines is dear: only a stretch that is not is split.
        start = offset = 0
        while start < end:
            near = min(start + STRETCH, end)
            stop = block.rfind(b"\n", start, near) + 1 or block.find(b"\n", near, end) + 1
            stretch = bytes(block[start:stop])
            # One sign in every line, and one in every boring word: if they are as many, there is a word in every line.
            signs = stretch.translate(None, _all_but(self.sign + b"\n")) if self.sign else b""
            lines = stretch.count(b"\n")
            if signs != (self.sign + b"\n") * lines or stretch.count(self.boring) != lines:
                rows = enumerate(stretch.split(b"\n"), offset)
                yield from ((i, row) for i, row in rows if row and self.boring not in row)
            start, offset = stop, offset + lines

    @staticmethod
    def _found(words: Iterable[bytes], block: bytearray, end: int) -> Iterator[tuple[int, bytes]]:
        starts: dict[int, int] = {}
        for word in words:
            at = block.find(word, 0, end)
            while at >= 0:
                stop = block.find(b"\n", at, end)
                stop = end if stop < 0 else stop
                starts[block.rfind(b"\n", 0, at) + 1] = stop
                at = block.find(word, stop, end)
        offset = counted = 0
        for start in sorted(starts):
            offset += block.count(b"\n", counted, start)
            counted = start
            yield offset, bytes(block[start : starts[start]])


class LineSource:
    """The lines of one file, with what went wrong reading them.

    Iterating yields (1-based line number, text). A line that a progress bar rewrote with carriage returns yields each
    of its pieces under the same number, the last one last. `problems` holds sentences, `damaged` says that text was
    lost (so that no reading of it may pass), `last_unterminated` is the number of a last line without newline.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = LINE_LIMIT) -> None:
        self.path = Path(path)
        self.limit = limit
        self.problems: list[str] = []
        self.damaged = False
        self.last_unterminated: int | None = None
        self.lines = 0
        self.size = 0
        #: Size of one read (bytes).
        self.chunk = CHUNK
        #: Set by a reader of `blocks` that counts the newlines of each block itself, more cheaply than by a second pass.
        self.newlines: int | None = None
        #: Set by a reader of `blocks` that wants so many bytes at the end of the block, whole lines, again with what follows
        #: them (`newlines` are those before them). If they come alone, nothing follows that could be waited for.
        self.again = 0

    def _note(self, sentence: str, damaged: bool = True) -> None:
        if len(self.problems) < 20:
            self.problems.append(sentence)
        self.damaged |= damaged

    def _open(self) -> io.RawIOBase | io.BytesIO:
        return self.path.open("rb", buffering=0)

    def chunks(self) -> Iterator[bytes]:
        """Yield the file as UTF-8 bytes, in pieces of about `chunk`."""
        with self._open() as handle:
            head = handle.read(self.chunk) or b""
            self.size = len(head)
            if head.startswith(b"\x1f\x8b"):
                self._note("the file is compressed (gzip): decompress it first")
                return
            encoding, mark = _sniff(head)
            decoder = None
            if encoding != "utf-8":
                self._note(f"the file is {encoding.upper()}, read as such", damaged=False)
                decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            data = head[mark:]
            holes = 0
            while data:
                if decoder is not None:
                    data = decoder.decode(data).encode("utf-8", "replace")
                if b"\0" in data:
                    if not holes:
                        self._note("the file has NUL bytes: a hole, or not a text file")
                    holes += 1
                    data = data.replace(b"\0", HOLE)
                yield data
                data = handle.read(self.chunk) or b""
                self.size += len(data)
            if decoder is not None and (rest := decoder.decode(b"", final=True)):
                yield rest.encode("utf-8", "replace")

    def blocks(self) -> Iterator[tuple[int, bytes, bool]]:
        r"""Yield (number of the block's first line, whole lines joined by \n, True), never more than about 2 chunks.

        The last block has no final newline if the file has none. A line longer than `limit` is cut here, and pieces
        of an endless progress bar line come as blocks flagged False (same line goes on in the next block).
        """
        bytes(KEPT)
        first = 1
        tail = again = b""
        skipping = False
        for chunk in itertools.chain(self.chunks(), (b"",)):
            if skipping:
                cut = chunk.find(b"\n")
                if cut < 0:
                    continue
                chunk = chunk[cut:]
                skipping = False
            end = chunk.rfind(b"\n") + 1
            if end or again:
                with memoryview(chunk) as view:
                    block = b"".join((again, tail, view[:end])) if end else again
                yield first, block, True
                first += block.count(b"\n", 0, len(block) - self.again) if self.newlines is None else self.newlines
                again, self.again = block[len(block) - self.again :], 0
            tail = chunk[end:] if end else tail + chunk
            if again and len(tail) > self.limit:
                yield first, again, True
                first += again.count(b"\n")
                again = b""
            if len(tail) > self.limit:
                bar = tail.rfind(b"\r")
                if bar >= 0:
                    yield first, tail[: bar + 1], False
                    tail = tail[bar + 1 :]
                if len(tail) > self.limit:
                    self._note(f"line {first} is longer than {self.limit} bytes; the rest of it was not read")
                    tail = tail[: self.limit - 1] + HOLE
                    skipping = True
        if tail:
            self.last_unterminated = first
            yield first, tail, True
            first += 1
        self.lines = first - 1

    def _pieces(self, number: int, raw: bytes) -> Iterator[tuple[int, str]]:
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        if b"\r" not in raw:
            if len(raw) > self.limit:
                self._note(f"line {number} is longer than {self.limit} bytes; the rest of it was not read")
                raw = raw[: self.limit - 1] + HOLE
            yield number, clean(raw.decode("utf-8", "replace"))
            return
        pieces = [p for p in raw.split(b"\r") if p.strip()]
        if not pieces:
            yield number, ""
        for piece in pieces:
            if len(piece) > self.limit:
                self._note(f"line {number} is longer than {self.limit} bytes; the rest of it was not read")
                piece = piece[: self.limit - 1] + HOLE
            yield number, clean(piece.decode("utf-8", "replace"))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for first, block, _whole in self.blocks():
            lines = block.split(b"\n")
            if block.endswith(b"\n"):
                lines.pop()
            for number_, raw in enumerate(lines, first):
                if b"\r" in raw or len(raw) > self.limit:
                    yield from self._pieces(number_, raw)
                else:
                    yield number_, clean(raw.decode("utf-8", "replace"))

    def candidates(self, prefilter: Prefilter, watch: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, str]]:
        """Yield only the lines that `prefilter` lets through, with exact line numbers.

        `watch` says before every block whether lines with words of `prefilter.seek` are of interest at all now.

        Lines that do not pass are never decoded, and whole blocks of them are only counted. Small files, UTF-16 and
        compressed ones are read in full, so `Prefilter` must be a hint: a reader gives the same verdict without it.
        """
        with self.path.open("rb", buffering=0) as handle:
            size = os.fstat(handle.fileno()).st_size
            head = handle.read(4096)
        if size < prefilter.from_size or head.startswith(b"\x1f\x8b") or _sniff(head) != ("utf-8", 0):
            yield from self
            return
        split = self._middle(size) if size >= PARALLEL_FROM and _may_fork() else size
        helper = _Helper(self, prefilter, split, size) if split < size else None
        try:
            for number_, raw in self._picked(prefilter, watch, 0, split, 1, size):
                yield from self._decoded(number_, raw)
            if helper is None:
                return
            first, rest = self.lines + 1, helper.lines()
            if rest is None:
                rest = self._picked(prefilter, watch, split, size, first, size)
                first = 0
            for number_, raw in rest:
                yield from self._decoded(first + number_, raw)
            if first:
                self.lines += helper.count
                self.size = max(self.size, size)
                self.last_unterminated = self.lines if helper.unterminated else None
                for sentence, damaged in helper.notes:
                    self._note(sentence, damaged)
        finally:
            if helper is not None:
                helper.close()

    def _decoded(self, number_: int, raw: bytes) -> Iterable[tuple[int, str]]:
        if b"\0" in raw:
            raw = raw.replace(b"\0", HOLE)
        if b"\r" in raw or len(raw) > self.limit:
            return self._pieces(number_, raw)
        return ((number_, clean(raw.decode("utf-8", "replace"))),)

    def _middle(self, size: int) -> int:
        """Return an offset at which a line begins, before the middle of a file: who feeds all lines, filters the less."""
        middle = int(size * OWN_PART)
        with self.path.open("rb", buffering=0) as handle:
            handle.seek(middle)
            at = handle.read(LINE_LIMIT).find(b"\n")
        return middle + at + 1 if at >= 0 else size

    def _picked(
        self, prefilter: Prefilter, watch: Callable[[], bool], start: int, stop: int, first: int, size: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (line number, line) of what `prefilter` lets through between two offsets of the file."""
        for first_, block, end, lines, whole in self._reused_blocks(start, stop, first, size):
            if not self.damaged and block.find(b"\0", 0, end) >= 0:
                self._note("the file has NUL bytes: a hole, or not a text file")
            for offset, raw in prefilter.pick(block, end, lines, whole, watch()):
                yield first_ + offset, raw

    def _reused_blocks(
        self, start: int, stop: int, first: int, size: int
    ) -> Iterator[tuple[int, bytearray, int, int, bool]]:
        """Yield (number of the first line, buffer, end of its last whole line, newlines, is it the first or last).

        The buffer is used again, because copying a gigabyte costs more than reading it. It grows to hold a long line,
        up to a limit at which the line is cut. `stop` is the start of a line or the end of the file.
        """
        buffer = bytearray(BLOCK)
        kept, at = 0, start
        is_first = start == 0
        with self.path.open("rb", buffering=0) as handle:
            handle.seek(start)
            while True:
                if kept >= len(buffer):
                    if len(buffer) >= LONGEST:
                        self._note(f"line {first} is longer than {LONGEST} bytes; the rest of it was not read")
                        kept = self.limit
                        while (got := handle.read(BLOCK)) and b"\n" not in got:
                            at += len(got)
                        at += len(got)
                        rest = got[got.find(b"\n") :] if got else b""
                        buffer[kept : kept + len(rest)] = rest
                        kept += len(rest)
                    else:
                        buffer.extend(bytes(len(buffer)))
                with memoryview(buffer) as view:
                    # A part ends where the next one starts; the last one goes on to the end, wherever that is by now.
                    got_n = handle.readinto(view[kept : kept + stop - at] if stop < size else view[kept:])
                if not got_n:
                    break
                at += got_n
                self.size = max(self.size, at)
                filled = kept + got_n
                end = buffer.rfind(b"\n", kept, filled) + 1
                if end <= 0:
                    kept = filled
                    continue
                lines = buffer.count(b"\n", 0, end)
                yield first, buffer, end, lines, is_first or at >= size
                is_first = False
                first += lines
                kept = filled - end
                buffer[:kept] = buffer[end:filled]
        if kept:
            self.last_unterminated = first
            yield first, buffer, kept, 0, True
            first += 1
        self.lines = first - 1


class MemorySource(LineSource):
    """The lines of a text that is in memory, read by the same code as a file."""

    def __init__(self, data: bytes, limit: int = LINE_LIMIT) -> None:
        super().__init__("(memory)", limit)
        self.content = data

    def _open(self) -> io.BytesIO:
        return io.BytesIO(self.content)

    def candidates(self, prefilter: Prefilter, watch: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, str]]:
        """Yield all lines: what fits in memory twice is not worth filtering."""
        return iter(self)


def _may_fork() -> bool:
    """Say whether a second process would help and is safe: two processors, and no other thread that holds locks."""
    return hasattr(os, "fork") and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


class _Helper:
    """A forked process that picks the lines of a file's second part while this one reads the first.

    It only reads the file, writes what it found to a spool file without name, and exits; whatever goes wrong with it,
    `lines` returns None and the caller reads that part itself.
    """

    def __init__(self, source: LineSource, prefilter: Prefilter, start: int, size: int) -> None:
        self.count = 0
        self.unterminated = False
        self.notes: list[tuple[str, bool]] = []
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                part = LineSource(source.path, source.limit)
                batch: list[tuple[int, bytes]] = []
                for picked in part._picked(prefilter, lambda: True, start, size, 0, size):
                    batch.append(picked)
                    if len(batch) >= 4096:
                        marshal.dump(batch, self._spool)
                        batch.clear()
                        if self._spool.tell() > SPOOL_LIMIT:
                            os._exit(1)
                marshal.dump(batch, self._spool)
                # `lines` counts from the part's first line, which is 0 here.
                end = (part.lines + 1, part.last_unterminated is not None, [(p, part.damaged) for p in part.problems])
                marshal.dump(end, self._spool)
                self._spool.flush()
                status = 0
            finally:
                os._exit(status)

    def lines(self) -> Iterator[tuple[int, bytes]] | None:
        """Wait for the process; return its (line number from 0, line) pairs, or None if it failed."""
        if self._wait() != 0:
            return None
        return self._read()

    def _wait(self) -> int:
        pid, self._pid = self._pid, 0
        try:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else 1
        except ChildProcessError:
            return 1  # someone else waits for all children

    def _read(self) -> Iterator[tuple[int, bytes]]:
        self._spool.seek(0)
        while True:
            batch = marshal.load(self._spool)
            if isinstance(batch, tuple):
                self.count, self.unterminated, self.notes = batch
                return
            yield from batch

    def close(self) -> None:
        """End the process if it still runs, and forget the spool."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal_module.SIGKILL)
            self._wait()
        self._spool.close()


def numbered_lines(
    path: str | os.PathLike[str], problems: list[str] | None = None, limit: int = LINE_LIMIT
) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text) of every line of a file, decoded, without CR, BOM and ANSI sequences.

    Undecodable bytes become U+FFFD. What was lost is appended to `problems` as sentences. Raises OSError only.
    """
    source = LineSource(path, limit)
    yield from source
    if problems is not None:
        problems.extend(source.problems)


def candidate_lines(
    path: str | os.PathLike[str], prefilter: Prefilter, problems: list[str] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield like `numbered_lines`, but only the lines that `prefilter` lets through; others are never decoded."""
    source = LineSource(path)
    yield from source.candidates(prefilter)
    if problems is not None:
        problems.extend(source.problems)


def text_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of a string the way `numbered_lines` does for a file."""
    for number_, raw in enumerate(text.split("\n"), 1):
        if "\r" in raw:
            pieces = [p for p in raw.split("\r") if p.strip()] or [""]
            for piece in pieces:
                yield number_, clean(piece[:LINE_LIMIT])
        else:
            yield number_, clean(raw[:LINE_LIMIT])


# ---------------------------------------------------------------------------------------------------------- signals


def quote(line: str) -> str:
    """Return a line as evidence quotes it: stripped on the right, at most `QUOTE_LIMIT` characters."""
    line = line.rstrip()
    return line if len(line) <= QUOTE_LIMIT else line[: QUOTE_LIMIT - 1] + "…"


def signal(kind: str, line: int, text: str, prefix: Prefix = NO_PREFIX, **fields: Any) -> Signal:
    """Make a `Signal`, taking host and rank from the prefix where the line itself named none.

    A value that is NaN or infinite is moved to `detail["value"]` as text, because JSON cannot carry it.
    """
    if kind not in KINDS:
        raise ValueError(f"signal kind {kind!r} is not in burnin.parsers.kinds.KINDS")
    if fields.get("host") is None:
        fields["host"] = prefix.host
    if fields.get("rank") is None:
        fields["rank"] = prefix.any_rank
    value = fields.get("value")
    if value is not None and not math.isfinite(value):
        fields["value"] = None
        fields["detail"] = {**fields.get("detail", {}), "value": str(value)}
    return Signal(kind, line, quote(text), **fields)


@dataclass(slots=True)
class Collector:
    """Signals of one reading: the first `keep` of every kind, and exact counts of all."""

    keep: int = KEEP_PER_KIND
    signals: list[Signal] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, found: Signal) -> bool:
        """Keep a signal unless its kind is full; count it. Returns whether it was kept."""
        n = self.counts.get(found.kind, 0) + 1
        self.counts[found.kind] = n
        if n <= self.keep:
            self.signals.append(found)
            return True
        return False

    def extend(self, found: Iterable[Signal]) -> list[Signal]:
        """Add several signals; return those that were kept."""
        return [s for s in found if self.add(s)]

    def dropped(self) -> dict[str, int]:
        """Return kind -> how many were counted but not kept."""
        return {k: n - self.keep for k, n in self.counts.items() if n > self.keep}

    def problems(self) -> list[str]:
        """Return a sentence for every kind of which not all signals were kept."""
        return [
            f"{self.counts[k]} signals of kind {k}: the first {self.keep} are listed" for k in sorted(self.dropped())
        ]


def with_place(found: Signal, **fields: Any) -> Signal:
    """Return a copy of a signal with fields set that are still None."""
    return replace(found, **{k: v for k, v in fields.items() if getattr(found, k) is None})
