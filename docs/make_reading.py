# SPDX-License-Identifier: Apache-2.0
"""Write docs/reading.md: which tools are read, in which versions, from which samples, proven by which test.

    python docs/make_reading.py

Tool and version come from the names below tests/data/<tool>/, the tests from the names of samples in tests/unit/.
tests/unit/test_docs.py fails when the page is not what this writes, and when a sample has no test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reading.md"
DATA = ROOT / "tests" / "data"
UNIT = ROOT / "tests" / "unit"

VERSION = re.compile(r"[0-9]+(\.[0-9]+)*(\.x)?|nemo[12]")
#: Words of a sample's name that say in which form a tool was asked, or whose build of it this is.
FORMS = frozenset(
    re.findall(
        r"\w+",
        """q x L c m cm ib eth mft json text table console sdr elist sel list sensor thermal power fans P p columns o netlib
        nvidia amd intel mxp hpcc megatron core bridge nvrx mscclpp rccl nccl openmpi run hf iso journal syslog pdsh""",
    )
)
WORDS = {
    "nemo1": "NeMo 1",
    "nemo2": "NeMo 2",
    "q": "-q",
    "x": "-x",
    "L": "-L",
    "c": "-c",
    "m": "-m",
    "cm": "-c -m",
    "P": "-P",
    "p": "-p",
    "o": "-o",
}

HEAD = """\
# What is read

<!-- Written by docs/make_reading.py from tests/data/ and tests/unit/: add samples and tests there. -->

`burnin read TOOL FILE` reads one tool's output; `burnin read --list` lists the tools. Every reader works line by line in bounded memory,
keeps line numbers, takes the prefixes of `srun -l`, `pdsh`, `clush` and Open MPI off, and never takes damage for a pass. Each sample below
is our own, in the form of the real tool; the test named beside it reads it and checks the verdict. Samples with no version in their name
have a form that does not depend on it.

| tool | form and version | sample | test |
|---|---|---|---|
"""

TAIL = """\

## What damage can hide

No reader takes what is left of a text for a good one: lost ends, lost lines, holes and overwritten bytes make a text `unknown`, by its end
mark, by counts (GPUs, ranks, sizes of a sweep, lines of a probe), by the frame of a table, by comparing blocks that must be alike. `make
fuzz` counts every text that became a pass by losing something. A few formats say a thing once and count nothing, so nothing in the text can
tell that it is gone:

| text | what can be lost without a trace | what else tells |
|---|---|---|
| `dcgmi diag` as a table, DCGM 2 and 3 | the `Warning` rows beside a `Pass`; a test with all its rows | `dcgmi diag -j` has the same as JSON, of which no line can be lost; a failed test ends the diagnostic with status 226. A retest asks for both (`pdsh -S ... dcgmi diag -j`) |
| nccl-tests with `-N 0` | one whole cycle, header and rows; the last rows of the cycle that the time limit cut | a wrong sum shows in other cycles, too; `-N` with a number counts them |
| nccl-tests | the line of parameters and "Reducing maxBytes" together: without them the sweep looks like one of smaller sizes | the plan's \
own command line says the sizes |
| HPCC | the head, so that what is left is a complete HPL | what is left is a whole HPL whose residual was checked; HPCC's other parts are not judged |
| several outputs in one file | the whole beginning of the one that died, up to the next | a campaign writes one file an iteration |

The fuzzer counts what it meets of these as `known exceptions`. In a campaign none of them is the only evidence: an output is read once, when the program
that wrote it has just ended, and the journal keeps the verdict, the exit status and the number of bytes; a probe's tools stand between frame
lines with their exit status.

## Big files

Of an nccl log larger than 4 MB, NCCL's INFO messages are counted and not read; of a kernel log, only the lines that may be events and
the last of every 128 kB; of a `dcgmi dmon` file, the samples between two headers, or those of many headers, are read at once as long as
they have one form, and line by line where anything is odd. What is found is the same as from reading every line
(`tests/unit/test_parsers_fast.py`), with two exceptions in a kernel log: a clock that is set back, but not before the end of the 128 kB
before, and lines of another host without any event among them that begin and end within 128 kB. `make bench-read` compares the time with
grep's.
"""


@dataclass(frozen=True)
class Sample:
    """One sample file and the tests that name it."""

    tool: str
    path: Path
    tests: tuple[Path, ...]

    @property
    def version(self) -> str:
        """Return form and version as the file's name has them."""
        found: list[str] = []
        for word in self.path.stem.split("-"):
            if VERSION.fullmatch(word):
                found.append(word)
                break
            if word in FORMS:
                found.append(word)
        return " ".join(WORDS.get(word, word) for word in found) or "any"


def samples() -> list[Sample]:
    """Return all samples, by tool and name, each with its tests; the tool's own test module comes first."""
    modules = {p: p.read_text(encoding="utf-8") for p in sorted(UNIT.glob("test_*.py"))}
    found = []
    for path in sorted(p for p in DATA.glob("*/*") if p.is_file()):
        tool = path.parent.name
        own = UNIT / f"test_parsers_{tool.replace('-', '_')}.py"
        naming = [p for p, text in modules.items() if f'"{path.name}"' in text or f"/{path.name}" in text]
        if own in modules and own not in naming and _by_stem(path, modules[own]):
            naming.append(own)
        found.append(Sample(tool, path, tuple(sorted(naming, key=lambda p: (p != own, p.name)))))
    return found


def _by_stem(path: Path, text: str) -> bool:
    """Tell whether a test module names a sample without its ending, or by a pattern that matches it."""
    patterns = re.findall(r'"([\w.*-]*\*[\w.*-]*)"', text)
    return f'"{path.stem}"' in text or any(path.match(p) and p not in ("*", "*.*") for p in patterns)


def render() -> str:
    """Return the page."""
    rows = []
    for sample in samples():
        tests = ", ".join(f"[{p.stem}](../tests/unit/{p.name})" for p in sample.tests[:2])
        link = f"[{sample.path.name}](../{sample.path.relative_to(ROOT)})"
        rows.append(f"| `{sample.tool}` | {sample.version} | {link} | {tests} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
