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
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
