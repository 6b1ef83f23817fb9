# SPDX-License-Identifier: Apache-2.0
"""Feed mutated samples to every reader and count crashes and false passes (`make fuzz`).

Every input is a sample of `tests/data/<tool>/` with 1 to 6 mutations: cut at either end, lines lost, doubled, moved or
glued together, bytes overwritten, NUL holes, CRLF, UTF-16, very long lines, lines of other samples, or pure noise.
Checked on each: the reader does not raise, its reading is strict JSON, a pass is complete, damage by which text is
only lost never turns a sample's fail or unknown into a pass, and a reading takes no longer than `--slow` seconds.
A tenth of the inputs goes through a file, as `burnin read` does; the others are fed line by line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from burnin import parsers  # noqa: E402
from burnin.parsers.common import text_lines  # noqa: E402
from burnin.parsers.kinds import KINDS  # noqa: E402
from burnin.parsers.reading import Reading  # noqa: E402

DATA = ROOT / "tests" / "data"
#: Longest input (bytes): long enough for every layout, short enough for a million of them.
LONGEST = 24_000


def available() -> list[str]:
    """Return the tools whose module exists."""
    return [t for t, m in parsers.TOOLS.items() if importlib.util.find_spec(f"burnin.parsers.{m}") is not None]


def load() -> list[tuple[str, str, bytes, str]]:
    """Return (tool, name, content, verdict) of every sample."""
    out = []
    for tool in available():
        folder = DATA / tool
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file():
                reading = parsers.read_file(tool, path)
                out.append((tool, f"{tool}/{path.name}", path.read_bytes()[:LONGEST], reading.verdict))
    return out


def lose(data: bytes, rng: random.Random) -> bytes:
    """Lose text: cut an end, drop up to 3 lines, or overwrite up to 4 bytes with what no tool prints there."""
    lines = data.split(b"\n")
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        for _ in range(rng.randint(1, 3)):
            if lines:
                del lines[rng.randrange(len(lines))]
        return b"\n".join(lines)
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if out:
            out[rng.randrange(len(out))] = rng.choice(b"\xff#x\0\n")
    return bytes(out)


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Apply one mutation that may do anything."""
    kind = rng.randrange(14)
    lines = data.split(b"\n")
    if kind < 3:
        return lose(data, rng)
    if kind == 3:
        return data[rng.randrange(len(data) + 1) :]
    if kind == 4:
        i = rng.randrange(len(lines))
        return b"\n".join(lines[: i + 1] + lines[rng.randrange(len(lines)) :])
    if kind == 5:
        rng.shuffle(lines)
        return b"\n".join(lines)
    if kind == 6:
        i = rng.randrange(len(lines))
        return b"\n".join(lines[:i]) + b"".join(lines[i : i + 2]) + b"\n".join(lines[i + 2 :])
    if kind == 7:
        return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"]))
    if kind == 8:
        return data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-16-le", "utf-8-sig"]), "replace")
    if kind == 9:
        more = other.split(b"\n")
        i = rng.randrange(len(lines))
        return b"\n".join([*lines[:i], *rng.sample(more, min(len(more), 5)), *lines[i:]])
    if kind == 10:
        prefix = rng.choice(
            [b"0: ", b"[1,3]<stdout>:", b"burn05: ", b"> ", b"[rank2]: ", b"2026-01-09T04:11:52Z ", b"\x1b[31m"]
        )
        return b"\n".join(prefix + line for line in lines)
    if kind == 11:
        i = rng.randrange(len(lines))
        return b"\n".join([*lines[:i], lines[i] * rng.choice((2, 50)), *lines[i + 1 :]])
    if kind == 12:
        # Numbers become what a counter that could not be read looks like, or absurd.
        out = bytearray(data)
        digits = [i for i, c in enumerate(out) if 48 <= c < 58]
        for i in rng.sample(digits, min(len(digits), 5)):
            out[i : i + 1] = rng.choice([b"N/A", b"nan", b"-", b"1e999", b"9" * 30, b"\xd9\xa3", b""])
        return bytes(out)
    return rng.randbytes(rng.randrange(300)) + data[: rng.randrange(len(data) + 1)]


def check(reading: Reading) -> str | None:
    """Return what is wrong with a reading, or None."""
    try:
        json.dumps(reading.to_dict(), allow_nan=False)
    except (ValueError, TypeError) as error:
        return f"not JSON: {error}"
    if any(s.kind not in KINDS or s.line < 1 for s in reading.signals):
        return "a signal of unknown kind, or without line"
    if reading.verdict == "pass" and not (reading.complete and reading.recognised):
        return "pass without being complete and recognised"
    if not reading.complete and not reading.problems:
        return "not complete and no sentence why"
    return None


def read(tool: str, data: bytes, path: Path | None) -> Reading:
    """Read through a file (as a user does) or line by line."""
    if path is not None:
        path.write_bytes(data)
        return parsers.read_file(tool, path, strict=True)
    parser = parsers.parser_for(tool)
    for number, line in text_lines(data.decode("utf-8", "replace")):
        parser.feed(number, line)
    return parser.finish()


def work(job: tuple[int, int, float, list[str]]) -> dict[str, Any]:
    """Run one share of the inputs; return counts and the first failures."""
    seed, inputs, slow, tools = job
    rng = random.Random(seed)
    samples = [s for s in load() if s[0] in tools]
    counts: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="burnin-fuzz-") as folder:
        for i in range(inputs):
            tool, name, data, verdict = samples[rng.randrange(len(samples))]
            losing = rng.random() < 0.4
            if losing:
                text = lose(data, rng)
            else:
                text = data
                for _ in range(rng.randint(1, 6)):
                    text = mutate(text or b"\n", rng.choice(samples)[2], rng)[: 4 * LONGEST]
            if rng.random() < 0.1:
                tool, losing = rng.choice(tools), False  # another tool's reader
            # Text that is lost is only noticed as such where it is read from the file: NUL bytes, an unended line.
            path = Path(folder) / "input" if losing or i % 10 == 0 else None
            begin = time.perf_counter()
            trouble = None
            try:
                reading = read(tool, text, path)
                trouble = check(reading)
                if trouble is not None:
                    counts["violations"] += 1
                elif losing and verdict != "pass" and reading.verdict == "pass":
                    counts["false passes"] += 1
                    trouble = f"damage turned {verdict} into pass"
                counts[f"{tool} {reading.verdict}"] += 1
            except Exception:
                counts["crashes"] += 1
                trouble = traceback.format_exc(limit=-3)
            took = time.perf_counter() - begin
            if trouble is None and took > slow:
                counts["slow"] += 1
                trouble = f"took {took:.2f} s for {len(text)} bytes"
            if trouble is not None and len(failures) < 20:
                keep = Path(tempfile.gettempdir()) / f"burnin-fuzz-{seed}-{i}"
                keep.write_bytes(text)
                failures.append(f"{tool} from {name} ({keep}): {trouble}")
    return {"counts": counts, "failures": failures, "inputs": inputs}


def main() -> int:
    """Share the inputs among processes, print the counts; exit 1 on any crash or violation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--count", "-n", dest="inputs", type=int, default=100_000, help="number of inputs (default 100000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--slow", type=float, default=5.0, help="seconds after which one input is reported (default 5)")
    parser.add_argument("--tool", action="append", help="only this tool (may be repeated)")
    options = parser.parse_args()
    tools = options.tool or available()
    share = 5000
    jobs = []
    for start in range(0, options.inputs, share):
        jobs.append((options.seed * 1_000_003 + start, min(share, options.inputs - start), options.slow, tools))
    begin = time.perf_counter()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    with multiprocessing.Pool(options.jobs) as pool:
        for result in pool.imap_unordered(work, jobs):
            counts.update(result["counts"])
            failures.extend(result["failures"])
    took = time.perf_counter() - begin
    bad = ("crashes", "violations", "false passes", "slow")
    for key in sorted(k for k in counts if k not in bad):
        print(f"  {key:24s} {counts[key]}")
    for line in failures[:40]:
        print(line)
    print(
        f"{options.inputs} inputs, {len(tools)} readers, {took:.0f} s ({options.inputs / took:.0f}/s): "
        + ", ".join(f"{counts[k]} {k}" for k in bad)
    )
    return 1 if any(counts[k] for k in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
