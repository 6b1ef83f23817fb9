# SPDX-License-Identifier: Apache-2.0
"""Readers of tool output: one module a tool, found by the tool's name.

    from burnin import parsers
    reading = parsers.read_file("nccl", "out.log")

Every reader is streaming (bounded memory), never raises on any content, and never passes what it could not check.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import Any

from burnin.parsers.common import LINE_LIMIT, LineParser, LineSource, MemorySource
from burnin.parsers.reading import Reading, Signal

#: Tool name -> module of this package. The names up to `straggler` are those of `burnin read TOOL FILE`.
TOOLS: dict[str, str] = {
    "nccl": "nccl",
    "hpl": "hpl",
    "nemo": "nemo",
    "squad": "squad",
    "dmesg": "dmesg",
    "dcgmi-health": "dcgmi_health",
    "dcgmi-diag": "dcgmi_diag",
    "dcgmi-dmon": "dcgmi_dmon",
    "nvidia-smi": "nvidia_smi",
    "mlxlink": "mlxlink",
    "ibdiagnet": "ibdiagnet",
    "ibqueryerrors": "ibqueryerrors",
    "ipmi": "ipmi",
    "sacct": "sacct",
    "straggler": "straggler",
    "slurm-step": "slurm_step",
    "ibstat": "ibstat",
    "redfish": "redfish",
    "scontrol": "scontrol",
    "probe": "probe",
}


def parser_for(tool: str, **options: Any) -> LineParser:
    """Return a new parser of `tool`. Raises KeyError for an unknown tool name."""
    module = importlib.import_module(f"burnin.parsers.{TOOLS[tool]}")
    parser: LineParser = module.Parser(**options)
    return parser


def read_lines(tool: str, lines: Iterable[str], **options: Any) -> Reading:
    """Read text that is already split into lines (without newlines), numbered from 1."""
    parser = parser_for(tool, **options)
    for number, line in enumerate(lines, 1):
        parser.feed(number, line)
    return parser.finish()


def read_file(tool: str, path: str | os.PathLike[str], *, strict: bool = False, **options: Any) -> Reading:
    """Read one file as output of `tool`.

    Never raises on any content, nor on a file that cannot be opened: the reading says so in `problems`. With `strict`
    a defect of the parser itself raises (tests and fuzzing use it); otherwise it becomes a problem and no pass.
    """
    parser = parser_for(tool, **options)
    return _read(tool, parser, LineSource(path, getattr(parser, "line_limit", LINE_LIMIT)), strict)


def read_bytes(tool: str, data: bytes, *, strict: bool = False, **options: Any) -> Reading:
    """Read a file's content that is in memory as `read_file` reads the file."""
    parser = parser_for(tool, **options)
    return _read(tool, parser, MemorySource(data, getattr(parser, "line_limit", LINE_LIMIT)), strict)


def _read(tool: str, parser: LineParser, source: LineSource, strict: bool) -> Reading:
    prefilter = getattr(parser, "candidates", None)
    at = fed = 0
    trouble: list[str] = []
    try:
        if (scan := getattr(parser, "scan", None)) is not None:
            scan(source)
        else:
            for number, line in (
                source if prefilter is None else source.candidates(prefilter, getattr(parser, "watch", lambda: True))
            ):
                fed += number != at
                at = number
                parser.feed(number, line)
            if hasattr(parser, "skipped"):
                parser.skipped = source.lines - fed
        if source.last_unterminated is not None and hasattr(parser, "unterminated"):
            parser.unterminated(source.last_unterminated)
    except OSError as error:
        trouble.append(f"the file could not be read: {error.strerror or error}")
    except Exception as error:
        if strict:
            raise
        trouble.append(f"the reader itself failed at line {at} ({type(error).__name__}: {error}); report this")
    try:
        reading = parser.finish()
    except Exception as error:
        if strict:
            raise
        reading = Reading(tool)
        trouble.append(f"the reader itself failed at the end ({type(error).__name__}: {error}); report this")
    if source.size == 0 and not trouble:
        trouble.append("the file is empty")
    reading.problems[:0] = [*trouble, *source.problems]
    if (trouble or source.damaged) and reading.verdict == "pass":
        reading.verdict = "unknown"
    return reading


__all__ = ["TOOLS", "LineParser", "Reading", "Signal", "parser_for", "read_bytes", "read_file", "read_lines"]
