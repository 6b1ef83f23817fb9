# SPDX-License-Identifier: Apache-2.0
"""Small things everything else needs: errors, JSON, host lists, seeded noise, output that is flushed line by line."""

from __future__ import annotations

import os
import time
from _json import encode_basestring_ascii, make_scanner


class LabError(Exception):
    """Something the user of the lab can put right; its text is the whole message."""


# --- JSON without the json package (whose import of `re` costs more than a whole tool call) -------------------------


class _ScannerContext:
    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


_scan = make_scanner(_ScannerContext())  # type: ignore[arg-type]  # any object with these attributes does


def loads(text: str) -> object:
    """Parse one JSON value; ValueError when it is not one (a line cut by a kill, for instance)."""
    try:
        value, _end = _scan(text.lstrip(), 0)
    except (StopIteration, SystemError):  # SystemError: the scanner's own exception lives in the package we do not load
        raise ValueError("not JSON") from None
    return value


def dumps(value: object) -> str:
    """Write JSON, keys in the order given."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(encode_basestring_ascii(str(k)) + ": " + dumps(v) for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(dumps(v) for v in value) + "]"
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


# --- files --------------------------------------------------------------------------------------------------------


def read_text(path: str) -> str | None:
    """The whole file, or None when it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        pieces = []
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8", "replace")


def write_all(fd: int, data: bytes) -> None:
    """Write every byte (a pipe may take less at a time)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_atomic(path: str, text: str) -> None:
    """Replace a file as a whole: readers see the old text or the new one, whenever we are killed."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, text.encode())
    finally:
        os.close(fd)
    os.rename(temporary, path)


def append_line(path: str, record: dict[str, object]) -> None:
    """Append one record in one write, so that neither a kill nor a second writer can tear or mix lines."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, (dumps(record) + "\n").encode())
    finally:
        os.close(fd)


def read_records(path: str) -> list[dict[str, object]]:
    """Every whole record of an append-only file; a torn line is skipped, as if its writer had died before writing."""
    records = []
    for line in (read_text(path) or "").split("\n"):
        if line.startswith("{"):
            try:
                value = loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                records.append(value)
    return records


# --- seeded noise ---------------------------------------------------------------------------------------------------

_MASK = (1 << 64) - 1


def noise(*keys: object) -> float:
    """A number in [0, 1) that depends on the keys alone (splitmix64 over their text)."""
    h = 0x9E3779B97F4A7C15
    text = "\x1f".join(map(str, keys)).encode()
    for i in range(0, len(text), 8):
        h = (h ^ int.from_bytes(text[i : i + 8], "little")) & _MASK
        h = (h + 0x9E3779B97F4A7C15) & _MASK
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & _MASK
        h ^= h >> 31
    return h / 2.0**64


def around(spread: float, *keys: object) -> float:
    """A factor 1 +- spread, never further off: a healthy lab has no outliers."""
    return 1.0 + spread * (noise("a", *keys) + noise("b", *keys) - 1.0)


def between(low: float, high: float, *keys: object) -> float:
    """A number between low and high."""
    return low + (high - low) * noise(*keys)


def pick(low: int, high: int, *keys: object) -> int:
    """A whole number from low to high, both included."""
    return low + int(noise(*keys) * (high - low + 1))


def hexes(digits: int, *keys: object) -> str:
    """So many hexadecimal digits."""
    text = ""
    while len(text) < digits:
        text += f"{int(noise(len(text), *keys) * 2**48):012x}"
    return text[:digits]


# --- host lists ------------------------------------------------------------------------------------------------------


def _split_top(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        if depth not in (0, 1):
            raise LabError(f"host list {text!r}: brackets do not match")
    if depth:
        raise LabError(f"host list {text!r}: brackets do not match")
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def expand_hosts(text: str) -> list[str]:
    """`dgx[01-03,07],head1` -> names in order; LabError when it cannot be read."""
    names: list[str] = []
    for part in _split_top(text):
        todo = [part]
        while todo:
            item = todo.pop(0)
            left = item.find("[")
            if left < 0:
                names.append(item)
                continue
            right = item.find("]", left)
            head, inside, tail = item[:left], item[left + 1 : right], item[right + 1 :]
            expanded = []
            for piece in inside.split(","):
                low, dash, high = piece.partition("-")
                if not low.isdigit() or (dash and not high.isdigit()):
                    raise LabError(f"host list {text!r}: {piece!r} is not a number or a range")
                if not dash:
                    expanded.append(head + low + tail)
                    continue
                if int(high) < int(low) or int(high) - int(low) > 65535:
                    raise LabError(f"host list {text!r}: the range {piece!r} is empty or far too large")
                expanded += [f"{head}{n:0{len(low)}d}{tail}" for n in range(int(low), int(high) + 1)]
            todo = expanded + todo
    return names


def _tail_number(name: str) -> tuple[str, str]:
    end = len(name)
    while end > 0 and name[end - 1].isdigit():
        end -= 1
    return name[:end], name[end:]


def fold_hosts(names: list[str]) -> str:
    """Names -> Slurm's short form (`dgx[01-03,07]`), sorted as Slurm does."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain = []
    for name in dict.fromkeys(names):
        head, digits = _tail_number(name)
        if digits:
            groups.setdefault((head, len(digits)), []).append(int(digits))
        else:
            plain.append(name)
    out = sorted(plain)
    for (head, width), numbers in sorted(groups.items()):
        numbers.sort()
        spans: list[list[int]] = []
        for n in numbers:
            if spans and n == spans[-1][1] + 1:
                spans[-1][1] = n
            else:
                spans.append([n, n])
        texts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in spans]
        if len(texts) == 1 and spans[0][0] == spans[0][1]:
            out.append(head + texts[0])
        else:
            out.append(f"{head}[{','.join(texts)}]")
    return ",".join(out)


def fold_numbers(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` -> `0-2,5` (srun's task lists)."""
    spans: list[list[int]] = []
    for n in sorted(numbers):
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


# --- output -----------------------------------------------------------------------------------------------------------


def out(text: str) -> None:
    """Print a line (or several) to stdout at once, whole."""
    try:
        write_all(1, (text + "\n").encode("utf-8", "replace"))
    except BrokenPipeError:
        os._exit(141)


def err(text: str) -> None:
    """Print a line to stderr."""
    try:
        write_all(2, (text + "\n").encode("utf-8", "replace"))
    except OSError:
        os._exit(141)


def seconds_setting(name: str) -> float:
    """A number of seconds from the environment; 0 when unset, LabError when it is no number."""
    text = os.environ.get(name, "").strip()
    if not text:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86400:
        raise LabError(f"{name}={text!r}: give a number of seconds between 0 and 86400")
    return value


def nap(seconds: float) -> None:
    """Sleep, but end with the parent: a killed srun must not leave a sleeping workload behind."""
    parent = os.getppid()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))
        if os.getppid() != parent:
            os._exit(137)


def stamp(t: float | None = None) -> str:
    """`2026-11-10T14:05:33`, local time, as Slurm writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(t))
