# SPDX-License-Identifier: Apache-2.0
"""`burnin judge DIR`: logs that came by mail, judged with the same readers, the same tables and the same words."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from burnin.judging.folder import Source, Verdict
    from burnin.parsers.reading import Reading

#: A word of each tool's output, looked for at both ends of a file before any reader is tried. The order breaks ties.
SNIFF: dict[str, re.Pattern[bytes]] = {
    "probe": re.compile(rb"#@burnin "),
    "nemo": re.compile(
        rb"Training epoch \d|iteration +\d+/ *\d+ \||train_step_timing|\[NeMo [IWE] |Watchdog caught|lm loss|Trainer\.fit|"
        rb"CUDA out of memory|Epoch \d+:|(?m:^\[rank\d+\]:)"
    ),
    "nccl": re.compile(rb"# *nThread|nccl-tests|busbw|NCCL (?:WARN|INFO)|Avg bus bandwidth|out-of-place"),
    "hpl": re.compile(rb"HPL|\|\|Ax-b\|\||WR\d\d|T/V +N"),
    "squad": re.compile(rb"exact.match|qa_model"),
    "straggler": re.compile(rb"relative performance|STRAGGLER"),
    "dcgmi-diag": re.compile(rb"ran diagnostic|DCGM Diagnostic|DCGM GPU Diagnostic|\| Diagnostic|test_categories"),
    "dcgmi-health": re.compile(rb"[Hh]ealth [Mm]onitor|Overall Health|host engine|[Hh]ealth watches"),
    "dcgmi-dmon": re.compile(rb"(?m)^(?:\S+: )?# ?Entity"),
    "nvidia-smi": re.compile(
        rb"(?m)NVSMI LOG|nvidia_smi_log|Attached GPUs|NVIDIA-SMI|No devices were found|NVML|^GPU \d+: |"
        rb"Unable to determine the device handle"
    ),
    "mlxlink": re.compile(rb"Operational Info|Module Info|Physical Counters|mlxlink"),
    "ibdiagnet": re.compile(rb"ibdiagnet|(?m:^-[IWE]- )"),
    "ibqueryerrors": re.compile(rb"Errors for |## Summary|GUID 0x"),
    "ibstat": re.compile(rb"CA '|Port GUID|port \d ==>"),
    "redfish": re.compile(rb"@odata"),
    "ipmi": re.compile(rb"\| *(?:ok|cr|nr|nc|ns|na) *\||RPM|degrees C|(?m:^ *[0-9a-f]+ \| \d\d/\d\d/)|SEL "),
    "sacct": re.compile(rb"JobID|\"job_id\" *:"),
    "scontrol": re.compile(rb"NodeName="),
    "dmesg": re.compile(
        rb"(?m)^(?:\S+: )?(?:<\d+>)?\[ *[<+]? *\d+\.\d+>?\]|NVRM|kernel:|^\S*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
    ),
    "slurm-step": re.compile(rb"slurmstepd:|srun: "),
}
#: Tools that also write JSON.
JSON_TOOLS = frozenset({"nccl", "dcgmi-diag", "dcgmi-health", "mlxlink", "redfish", "sacct", "scontrol"})
#: Bytes looked at from either end; files above `BIG` are read with the first reader that knows them.
ENDS = 256 << 10
BIG = 32 << 20
MOST_FILES = 20_000
_DEVICE = re.compile(r"(mlx5_\d+)")


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--nodes", default="", help="Node list of the job in rank order, e.g. dgx[01-08]: it gives ranks a node.")
@click.option("--gpus-per-node", default=8, show_default=True, type=click.IntRange(1, 64))
@click.option("--criteria", type=click.Path(path_type=Path), help="Pass criteria; default: config/criteria.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print the judgement as JSON.")
def judge(folder: Path, nodes: str, gpus_per_node: int, criteria: Path | None, as_json: bool) -> None:
    """Judge a folder of logs that the workflow did not produce: who is at fault, by which lines, and what is missing."""
    from burnin.nodes import expand

    verdict = judge_folder(folder, expand(nodes) if nodes else [], gpus_per_node, criteria)
    if as_json:
        click.echo(json.dumps(verdict.to_dict(), indent=1, allow_nan=False, default=str))
    else:
        click.echo(text_of(verdict, folder), nl=False)
    if not verdict.files:
        sys.exit(3)


def judge_folder(
    folder: Path, nodes: list[str] | None = None, gpus_per_node: int = 8, criteria: Path | None = None
) -> Verdict:
    """Return the judgement of all files below `folder`. Raises CampaignError if there is no such folder."""
    from burnin.errors import CampaignError
    from burnin.judging import folder as judging

    if not folder.is_dir():
        raise CampaignError(f"{folder} is no folder", "name the folder that the logs were unpacked into")
    sources: list[Source] = []
    unknown: list[str] = []
    for path in files_of(folder):
        name = str(path.relative_to(folder))
        tool, reading = recognise(path)
        if reading is None:
            unknown.append(name)
        else:
            device = _DEVICE.search(path.name)
            sources.append(judging.Source(name, tool, reading, device[1] if device else None))
    return judging.judge(sources, unknown, _criteria(criteria), nodes or [], gpus_per_node)


def _criteria(path: Path | None) -> Any:
    from burnin import storage

    home = Path(__file__).resolve().parents[3] / "config" / "criteria.yaml"
    document = storage.parse_yaml((path or home).read_text(encoding="utf-8"))
    if isinstance(document.get("baselines"), str):
        based = (path or home).resolve().parents[1] / document["baselines"]
        document["baselines"] = storage.parse_yaml(based.read_text(encoding="utf-8")) if based.exists() else []
    storage.check(document, "criteria", path or home)
    return document


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder in order; links are not followed."""
    count = 0
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.is_symlink() or not path.is_file():
            continue
        count += 1
        if count > MOST_FILES:
            return
        yield path


def recognise(path: Path) -> tuple[str, Reading | None]:
    """Return (tool, reading) of the reader that makes most of a file, or ("", None) if none knows it.

    Readers whose words stand at either end of the file are tried first; only if none of them knows it, a small file is
    offered to all.
    """
    from burnin import parsers

    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            ends = stream.read(ENDS)
            if size > 2 * ENDS:
                stream.seek(size - ENDS)
                ends += b"\n" + stream.read(ENDS)
    except OSError:
        return "", None
    if ends[:2] in (b"\xff\xfe", b"\xfe\xff"):
        ends = ends.decode("utf-16", "replace").encode()
    elif b"\0" in ends[:8192]:
        return "", None  # a program, a picture, a core: no log
    if re.search(rb"(?m)^burnin: ", ends):
        return "", None  # our own words, which quote others
    likely = [tool for tool, word in SNIFF.items() if word.search(ends)]
    if ends.lstrip()[:1] == b"{" or (ends.lstrip()[:1] == b"[" and path.suffix == ".json"):
        likely = [tool for tool in likely if tool in JSON_TOOLS]
        return _best(path, likely or sorted(JSON_TOOLS - {"nccl"}), size, measured=True) or ("", None)
    found = _best(path, likely, size)
    if found is None and size < ENDS:
        found = _best(path, [t for t in parsers.TOOLS if t not in likely and t not in _ONLY_SNIFFED], size)
    return found if found is not None else ("", None)


#: Readers that see something in nearly any text; their own words must be there.
_ONLY_SNIFFED = frozenset({"dmesg", "slurm-step", "sacct", "straggler"})


def _best(path: Path, tools: list[str], size: int, measured: bool = False) -> tuple[str, Reading] | None:
    """Return the best reading of a file by some tools: one with data before one with signals only, whole before cut.

    `measured`: only one with data will do; a JSON document that quotes a log is not that log.
    """
    from burnin import parsers

    best: tuple[tuple[int, ...], str, Reading] | None = None
    for place, tool in enumerate(tools):
        reading = parsers.read_file(tool, path)
        # errors cut out of a training log are worth reading, though nothing else of a training is in them
        if not reading.recognised and not (tool == "nemo" and reading.signals):
            continue
        if size > BIG or tool == "probe":
            return tool, reading
        data = reading.data
        full = (
            bool(data.get("runs"))
            or bool((data.get("steps") or {}).get("count"))
            or tool not in ("nccl", "hpl", "nemo")
        )
        if measured and not full:
            continue
        meaning = 0 if tool in ("slurm-step", "straggler") else 2 if full else 1
        rank = (
            meaning,
            int(reading.verdict != "unknown"),
            int(reading.complete),
            len(reading.signals),
            -place,
        )
        if best is None or rank > best[0]:
            best = (rank, tool, reading)
    return (best[1], best[2]) if best else None


# ---------------------------------------------------------------------------------------------------------------- text


def text_of(verdict: Verdict, folder: Path) -> str:
    """Return the judgement for people."""
    from burnin.judging.story import SURE, plain, sight
    from burnin.nodes import fold

    def wrap(text: str, first: str, rest: str | None = None) -> list[str]:
        return textwrap.wrap(
            text, 100, initial_indent=first, subsequent_indent=first if rest is None else rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    tools: dict[str, int] = {}
    for entry in verdict.files:
        tools[entry["tool"]] = tools.get(entry["tool"], 0) + 1
    read = ", ".join(f"{n} {t}" for t, n in tools.items()) or "nothing"
    lines = [f"{folder}: {len(verdict.files)} files read ({read})"]
    if verdict.hosts:
        lines.append(f"hosts: {fold(verdict.hosts)}")
    lines += ["", "What was found" if verdict.findings else "Nothing was found in what could be read."]
    for number, item in enumerate(verdict.findings, 1):
        who = item["node"] or {"config": "configuration", "group": "the job's nodes"}.get(item["scope"], "unknown host")
        lines += wrap(
            f"{number}. {who}: {sight(item)} ({item['fault']}, part {item['part']}) [{item['signal']}]",
            "  ",
            "     ",
        )
        lines += wrap(item["reason"], "     ")
        for place in item["evidence"][:3]:
            lines.append(f"     {place}")
        if item["quote"]:
            lines.append(f"     | {' '.join(item['quote'].split())[:160]}")
        lines += wrap(SURE[item["confidence"]], "     ")
        for doubt in item.get("contradicted_by", []):
            lines += wrap(f"But: {doubt}.", "     ")
        lines += wrap(f"Next: {item['next_action']}.", "     ")
    for title, texts in (("Also noted", verdict.notes), ("What is missing (and so is no pass)", verdict.missing)):
        if texts:
            lines += ["", title]
            for text in texts[:60]:
                lines += wrap(f"- {text}", "  ", "    ")
            if len(texts) > 60:
                lines.append(f"  ... and {len(texts) - 60} more (--json shows all)")
    return plain("\n".join(lines)) + "\n"
