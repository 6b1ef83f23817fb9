# SPDX-License-Identifier: Apache-2.0
"""What the readers of node tools (GPU, link, BMC, kernel) share: peeled hosts, damage, and who may say `complete`.

Many of these formats have no end mark. Such a text is complete only if the caller knows that it is (`whole=True`: the
frame of a probe was closed and the tool's exit status was 0); without that knowledge a good text is `unknown`, since
whatever was cut off its end could have been the fault. A fault that was seen stays a fault either way.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from burnin.parsers.common import Collector, Prefix, clean, peel
from burnin.parsers.reading import Reading, Signal, Verdict

#: First words of the frame lines that the probe script writes around each tool's output.
FRAME = "#@burnin "
#: Most hosts told apart in one text (pdsh output); more than that is not one cluster's probe.
MOST_HOSTS = 4096
#: Most sentences in `problems`.
MOST_PROBLEMS = 50

#: Characters that no tool prints: a hole in a file, a broken transfer. Tab is text, CR is split by the line reader.
DAMAGE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_NOT_THERE = re.compile(
    r"command not found|(?:^|\s)(?:ba|da|z|k)?sh: (?:line )?(?:\d+: )?\S+: not found\s*$|failed to run command|"
    r"error: execve\(\): \S+: No such file or directory|No such file or directory\s*$"
)


def absent(line: str, program: str) -> bool:
    """Say whether a shell, srun or `timeout` complains in `line` that `program` is not installed."""
    return program in line and bool(_NOT_THERE.search(line))


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return fail if any failed, else unknown if any is unknown or there is none, else pass."""
    if "fail" in verdicts:
        return "fail"
    if not verdicts or "unknown" in verdicts:
        return "unknown"
    return "pass"


class HostedParser:
    """Base of a reader whose lines may carry host prefixes of pdsh or clush.

    A subclass implements `line(number, body, prefix)` and `read()`; this class peels, notes damage and refuses probe
    files. `program` is the executable whose absence the shell may report.
    """

    tool: ClassVar[str] = ""
    program: ClassVar[str] = ""

    def __init__(self, *, whole: bool = False, host: str | None = None, **_others: Any) -> None:
        self.whole = whole
        self.host = host
        self.problems: list[str] = []
        self.damaged = False
        self.cut = False
        self.missing = False
        self.framed = False
        self.several = False
        self.found = Collector()

    # ------------------------------------------------------------------------------------------------- interface

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line (1-based number, no newline); return the signals that it newly revealed."""
        if line.startswith(FRAME):
            self.framed = True
            return []
        line = clean(line)
        if not (line.isascii() and line.isprintable()) and DAMAGE.search(line):
            self.note(f"line {number} has characters that no tool prints: the text is damaged", damage=True)
        body, prefix = peel(line)
        self.several |= prefix.host is not None
        if prefix.host is None and self.host is not None:
            prefix = Prefix(self.host, prefix.task, prefix.rank, prefix.local_rank, prefix.time)
        if self.program and self.program in body and absent(body, self.program):
            self.missing = True
            self.note(f"line {number}: {self.program} is not installed on the node")
            return []
        return self.line(number, body, prefix)

    def unterminated(self, number: int) -> None:
        """Note that the last line of the file has no newline: it may be cut in its middle."""
        self.cut = True

    def finish(self) -> Reading:
        """Say what the whole text was."""
        reading = self.read()
        if self.framed:
            # A probe file holds several tools' texts; reading it as one tool's would mix them.
            reading = Reading(self.tool, problems=["this is a probe file of several tools: read it as 'probe'"])
        reading.problems = [*self.problems, *reading.problems, *self.found.problems()][:MOST_PROBLEMS]
        if self.damaged:
            reading.complete = False
        if self.several and not self.whole and reading.complete:
            # Each host's text may be whole, but not the collection: whose text comes last is not known.
            reading.complete = False
            reading.problems.append("lines of several hosts: nothing proves that every host's text is here")
        if not reading.recognised:
            reading.complete = False
            if reading.verdict != "unknown":
                reading.verdict = "unknown"
            if not reading.problems:
                reading.problems.append(f"nothing in this text looks like output of {self.program or self.tool}")
        if reading.recognised and not reading.complete and not reading.problems:
            reading.problems.append("the text has no end mark, or it was not reached: nothing proves that it is whole")
        if reading.verdict == "pass" and (not reading.complete or self.damaged or self.missing):
            reading.verdict = "unknown"
        if reading.recognised and not reading.signals:
            reading.signals = self.found.signals
        return reading

    # --------------------------------------------------------------------------------------------- for subclasses

    def note(self, sentence: str, damage: bool = False) -> None:
        """Add a problem; `damage` also forbids a pass."""
        self.damaged |= damage
        if len(self.problems) < MOST_PROBLEMS and sentence not in self.problems:
            self.problems.append(sentence)

    def emit(self, found: Signal) -> list[Signal]:
        """Keep a signal (bounded) and return it for `feed`."""
        self.found.add(found)
        return [found]

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one peeled line."""
        raise NotImplementedError

    def read(self) -> Reading:
        """Return the reading; damage, frames and signals are added by `finish`."""
        raise NotImplementedError
