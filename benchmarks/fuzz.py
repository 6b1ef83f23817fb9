# SPDX-License-Identifier: Apache-2.0
"""Feed mutated samples to every reader and count crashes and false passes (`make fuzz`).

Every input is a sample of `tests/data/<tool>/` with 1 to 6 mutations: cut at either end, lines lost, doubled, moved or
glued together, bytes overwritten, NUL holes, CRLF, UTF-16, very long lines, lines of other samples, or pure noise. A
node tool's sample is also read as one section of a probe file, as a campaign reads it. Long samples are shortened to
blocks that read the same (verdict, completeness, kinds of signals).

Checked on each: the reader does not raise, its reading is strict JSON, a pass is complete, what is not complete says
why, damage by which text is only lost never turns a sample's fail or unknown into a pass (but for `EXCEPTIONS`, which
are counted), and a reading takes no more than `--slow` seconds of processor time. Most inputs are read from memory by
the code that reads files, one in a hundred from a file, some line by line.

The inputs are cut into shares of 5,000, each with its own random numbers, so a long run can be done in parts:
`--first 200000 --count 300000` runs the shares that a run from 0 to 500000 would have run last.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import multiprocessing
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from burnin import parsers  # noqa: E402
from burnin.parsers.common import text_lines  # noqa: E402
from burnin.parsers.kinds import KINDS  # noqa: E402
from burnin.parsers.reading import Reading  # noqa: E402

DATA = ROOT / "tests" / "data"
#: Samples longer than this (bytes) are shortened.
LONG = 12_000
#: Samples longer than this (bytes) are taken less often, so that the long ones do not take most of the time.
USUAL = 4_000
#: Longest input (bytes).
LONGEST = 96_000
SHARE = 5_000
#: What counts as a failure of the reader.
FAILURES = ("crashes", "false passes", "missing sentences", "other violations", "slow")
#: Tools whose samples are also read inside a probe file.
FRAMED = (
    "dmesg", "dcgmi-health", "nvidia-smi", "mlxlink", "ibstat", "ipmi", "redfish", "scontrol", "dcgmi-diag",
)  # fmt: skip
#: Sample -> the lines whose loss, all together, nothing else in the text can tell; why, and what else tells: docs/reading.md.
EXCEPTIONS: dict[str, re.Pattern[bytes]] = {
    "dcgmi-diag/text-3.3-could-not-allocate.txt": re.compile(rb"^\| Warning  "),
    "nccl/2.16-reduced-max-bytes.log": re.compile(rb"nThread|Reducing maxBytes"),
}

_DIGIT = re.compile(rb"[0-9]")
_GPU = re.compile(rb"^(?:[\w.-]+: )?GPU [0-9A-Fa-f]{8}:.*\n(?:(?:[\w.-]+: )?(?:[ \t].*)?\n)*", re.MULTILINE)
_GPU_XML = re.compile(rb"^\t<gpu id=(?:.*\n)*?\t</gpu>\n", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """One text to damage: `tool` reads it, `framed` says that it is a section of a probe file."""

    tool: str
    name: str
    data: bytes
    verdict: str
    framed: bool = False


@dataclass
class Share:
    """What came out of one share of the inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def available() -> list[str]:
    """Return the tools whose module exists."""
    return [t for t, m in parsers.TOOLS.items() if importlib.util.find_spec(f"burnin.parsers.{m}") is not None]


def _shape(tool: str, data: bytes) -> tuple[object, ...]:
    reading = parsers.read_bytes(tool, data, strict=True)
    return reading.recognised, reading.complete, reading.verdict, frozenset(s.kind for s in reading.signals)


def _subsets(data: bytes) -> Iterator[bytes]:
    """Yield shorter forms of a text: two of its GPUs' blocks (one tells what the other lacks), its first and last lines."""
    for pattern in (_GPU, _GPU_XML):
        blocks = [m.span() for m in pattern.finditer(data)]
        for keep in itertools.combinations(range(len(blocks)), 2):
            out, at = b"", 0
            for i, (start, end) in enumerate(blocks):
                if i not in keep:
                    out, at = out + data[at:start], end
            out += data[at:]
            count = str(len(keep)).encode()
            out = re.sub(rb"(Attached GPUs +: |<attached_gpus>)\d+", rb"\g<1>" + count, out)
            yield out
    lines = data.split(b"\n")
    yield from (b"\n".join([*lines[:n], *lines[-n:]]) for n in (30, 60) if 2 * n < len(lines))


def shorten(tool: str, data: bytes) -> bytes:
    """Return the shortest of a long sample's shorter forms that reads the same, or all of it."""
    if len(data) <= LONG:
        return data
    whole = _shape(tool, data)
    fits = [short for short in _subsets(data) if len(short) < len(data) and _shape(tool, short) == whole]
    return min(fits, key=len, default=data)


def _framed(tool: str, data: bytes) -> bytes:
    body = data if data.endswith(b"\n") else data + b"\n"
    head = f"#@burnin node burn01 time 1794318425 up 52311.00\n#@burnin begin {tool} {tool}\n".encode()
    return head + body + f"#@burnin end 0 lines {body.count(10)}\n#@burnin finished 1\n".encode()


@functools.cache
def load() -> list[Sample]:
    """Return every sample, the long ones shortened, and the node tools' also inside a probe file."""
    out = []
    for tool in available():
        folder = DATA / tool
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if not path.is_file():
                continue
            data = shorten(tool, path.read_bytes())
            name = f"{tool}/{path.name}"
            out.append(Sample(tool, name, data, parsers.read_bytes(tool, data, strict=True).verdict))
            if tool in FRAMED:
                framed = _framed(tool, data)
                verdict = parsers.read_bytes("probe", framed, strict=True).verdict
                out.append(Sample("probe", f"framed {name}", framed, verdict, framed=True))
    return out


# -------------------------------------------------------------------------------------------------------- mutations


def lose(data: bytes, rng: random.Random, framed: bool = False) -> bytes:
    """Lose text: cut an end, drop up to 3 lines, or overwrite up to 4 bytes with what no tool prints there.

    A probe's frame counts lines, so in it only bytes that are no text are overwritten.
    """
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        lines = data.split(b"\n")
        for _ in range(rng.randint(1, 3)):
            if lines:
                del lines[rng.randrange(len(lines))]
        return b"\n".join(lines)
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if out:
            out[rng.randrange(len(out))] = rng.choice(b"\xff\0\n" if framed else b"\xff#x\0\n")
    return bytes(out)


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Apply one mutation that may do anything."""
    kind = rng.randrange(14)
    if kind < 3:
        return lose(data, rng)
    if kind == 3:
        return data[rng.randrange(len(data) + 1) :]
    if kind == 7:
        return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"]))
    if kind == 8:
        return data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-16-le", "utf-8-sig"]), "replace")
    if kind == 12:
        # Numbers become what a counter that could not be read looks like, or absurd.
        for _ in range(5):
            if m := _DIGIT.search(data, rng.randrange(len(data))):
                new = rng.choice([b"N/A", b"nan", b"-", b"1e999", b"9" * 30, b"\xd9\xa3", b""])
                data = data[: m.start()] + new + data[m.end() :] or b"\n"
        return data
    if kind == 13:
        return rng.randbytes(rng.randrange(300)) + data[: rng.randrange(len(data) + 1)]
    lines = data.split(b"\n")
    i = rng.randrange(len(lines))
    if kind == 4:
        return b"\n".join(lines[: i + 1] + lines[rng.randrange(len(lines)) :])
    if kind == 5:
        rng.shuffle(lines)
        return b"\n".join(lines)
    if kind == 6:
        return b"\n".join(lines[:i]) + b"".join(lines[i : i + 2]) + b"\n".join(lines[i + 2 :])
    if kind == 9:
        more = other.split(b"\n")
        return b"\n".join([*lines[:i], *rng.sample(more, min(len(more), 5)), *lines[i:]])
    if kind == 10:
        prefix = rng.choice(
            [b"0: ", b"[1,3]<stdout>:", b"burn05: ", b"> ", b"[rank2]: ", b"2026-01-09T04:11:52Z ", b"\x1b[31m"]
        )
        return prefix + data.replace(b"\n", b"\n" + prefix)
    return b"\n".join([*lines[:i], lines[i] * rng.choice((2, 50)), *lines[i + 1 :]])


# ----------------------------------------------------------------------------------------------------------- checks


def check(reading: Reading) -> tuple[str, str] | None:
    """Return (kind of failure, what is wrong with a reading), or None."""
    try:
        json.dumps(reading.to_dict(), allow_nan=False)
    except (ValueError, TypeError) as error:
        return "other violations", f"not JSON: {error}"
    if any(s.kind not in KINDS or s.line < 1 for s in reading.signals):
        return "other violations", "a signal of unknown kind, or without line"
    if reading.verdict == "pass" and not (reading.complete and reading.recognised):
        return "other violations", "pass without being complete and recognised"
    if not reading.complete and not reading.problems:
        return "missing sentences", "not complete and no sentence why"
    return None


def excused(sample: Sample, text: bytes) -> bool:
    """Say whether the text misses those lines of its sample that nothing else in the text could tell of."""
    pattern = EXCEPTIONS.get(sample.name)
    if pattern is None:
        return False
    kept = set(text.split(b"\n"))
    return all(line not in kept for line in sample.data.split(b"\n") if pattern.search(line))


def read(tool: str, data: bytes, path: Path | None, by_line: bool) -> Reading:
    """Read from memory as a file is read, or through a file, or line by line."""
    if path is not None:
        path.write_bytes(data)
        return parsers.read_file(tool, path, strict=True)
    if not by_line:
        return parsers.read_bytes(tool, data, strict=True)
    parser = parsers.parser_for(tool)
    for number, line in text_lines(data.decode("utf-8", "replace")):
        parser.feed(number, line)
    return parser.finish()


def one(
    tool: str, sample: Sample, text: bytes, losing: bool, path: Path | None, by_line: bool, slow: float
) -> tuple[str, tuple[str, str] | None]:
    """Read one input; return its verdict ("crash" if there is none) and what is wrong."""
    begin = time.process_time()
    try:
        reading = read(tool, text, path, by_line)
        trouble = check(reading)
    except Exception:
        return "crash", ("crashes", traceback.format_exc(limit=-3))
    took = time.process_time() - begin
    if trouble is None and losing and sample.verdict != "pass" and reading.verdict == "pass":
        kind = "known exceptions" if excused(sample, text) else "false passes"
        trouble = kind, f"lost text turned {sample.verdict} into pass"
    if trouble is None and took > slow:
        trouble = "slow", f"took {took:.2f} s for {len(text)} bytes"
    return reading.verdict, trouble


def work(job: tuple[int, int, float, tuple[str, ...], Path]) -> Share:
    """Run one share of the inputs; return counts and the first failures."""
    seed, inputs, slow, tools, keep = job
    rng = random.Random(seed)
    samples = [s for s in load() if s.tool in tools]
    weights = list(itertools.accumulate(min(1.0, USUAL / max(1, len(s.data))) for s in samples))
    share = Share()
    with tempfile.TemporaryDirectory(prefix="burnin-fuzz-") as folder:
        file = Path(folder) / "input"
        for i in range(inputs):
            (sample,) = rng.choices(samples, cum_weights=weights)
            tool = sample.tool
            losing = rng.random() < 0.4
            if losing:
                text = lose(sample.data, rng, sample.framed)
            else:
                text = sample.data
                for _ in range(rng.randint(1, 6)):
                    text = mutate(text or b"\n", rng.choice(samples).data, rng)[:LONGEST]
            if rng.random() < 0.1:
                tool, losing = rng.choice(tools), False  # another tool's reader
            # Text that is lost is only noticed as such where a file is read: NUL bytes, an unended line.
            by_line = not losing and i % 5 == 0
            path = file if i % 100 == 99 else None
            verdict, trouble = one(tool, sample, text, losing, path, by_line, slow)
            share.counts[f"{tool} {verdict}"] += 1
            if trouble is not None:
                share.counts[trouble[0]] += 1
                share.counts[f"{tool} {trouble[0]}"] += 1
                if trouble[0] in FAILURES and len(share.failures) < 20:
                    kept = keep / f"burnin-fuzz-{seed}-{i}"
                    kept.write_bytes(text)
                    share.failures.append(f"{trouble[0]}: {tool} from {sample.name} ({kept}): {trouble[1]}")
    return share


def table(counts: Counter[str], tools: tuple[str, ...]) -> str:
    """Return inputs, verdicts and failures of every tool."""
    columns = ("pass", "fail", "unknown", *FAILURES, "known exceptions")
    lines = [f"{'':15s}{'inputs':>9s}" + "".join(f"{c:>{max(9, len(c) + 2)}s}" for c in columns)]
    for tool in tools:
        inputs = sum(counts[f"{tool} {v}"] for v in ("pass", "fail", "unknown", "crash"))
        cells = "".join(f"{counts[f'{tool} {c}']:>{max(9, len(c) + 2)}d}" for c in columns)
        lines.append(f"{tool:15s}{inputs:>9d}{cells}")
    return "\n".join(lines)


def main() -> int:
    """Share the inputs among processes, print the counts; exit 1 on any failure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--count", "-n", type=int, default=100_000, help="number of inputs (default 100000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to go on (default 0)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all shares (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--slow", type=float, default=2.0, help="processor seconds that one input may take (default 2)")
    parser.add_argument("--tool", action="append", help="only this tool (may be repeated)")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()), help="folder for inputs that failed")
    options = parser.parse_args()
    tools = tuple(options.tool or available())
    options.keep.mkdir(parents=True, exist_ok=True)
    ends = options.first + options.count
    jobs = [
        (options.seed * 1_000_000_007 + at, min(SHARE, ends - at), options.slow, tools, options.keep)
        for at in range(options.first, ends, SHARE)
    ]
    load()  # before the processes fork, so that it is done once
    begin = time.perf_counter()
    counts: Counter[str] = Counter()
    shown = done = 0

    def sum_up() -> str:
        took = time.perf_counter() - begin
        words = ", ".join(f"{counts[k]} {k}" for k in FAILURES)
        return f"{done} inputs, {len(tools)} readers, {took:.0f} s ({done / took:.0f}/s): {words}"

    with multiprocessing.Pool(options.jobs) as pool:
        for i, share in enumerate(pool.imap(work, jobs)):
            counts.update(share.counts)
            done += jobs[i][1]
            for line in share.failures:
                if shown < 100:
                    print(line, flush=True)
                shown += 1
            if i + 1 < len(jobs):
                print(f"... {sum_up()}", flush=True)
    print(table(counts, tools))
    print(sum_up())
    return 1 if any(counts[k] for k in FAILURES) else 0


if __name__ == "__main__":
    sys.exit(main())
