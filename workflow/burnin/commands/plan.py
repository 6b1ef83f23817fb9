# SPDX-License-Identifier: Apache-2.0
"""`burnin plan`: what a campaign will take, before it is started."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from burnin.config import Config
    from burnin.forecast import Expected, Forecast
    from burnin.ladder import Heat

ROOT = Path(__file__).resolve().parents[3]


@click.command()
@click.option(
    "--configfile",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A config file, laid over config/config.yaml as by snakemake; may be given several times.",
)
@click.option("--nodes", help="Node set in place of the config's, e.g. 'dgx[001-064]'.")
@click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="WORKLOAD[.STEP]=TIME",
    help="Window in place of the config's: nccl=12h, hpl.full=24h, nemo=90m, nccl=4 (iterations).",
)
@click.option(
    "--without", multiple=True, metavar="NODE[@STEP]", help="What if NODE fails at STEP (default: the first step)."
)
@click.option("--start", help="When the campaign starts, e.g. '2026-12-01 08:00'; default: now.")
@click.option("--checkpoint-gb", type=click.FloatRange(0), help="Size of one checkpoint, if the model does not tell.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    files: tuple[Path, ...],
    nodes: str | None,
    windows: tuple[str, ...],
    without: tuple[str, ...],
    start: str | None,
    checkpoint_gb: float | None,
    as_json: bool,
) -> None:
    """Show the ladder with its groups, hours, node-hours, end date and disk. Nothing is started, no Slurm is asked."""
    from burnin import plan_check
    from burnin.arithmetic import load_references
    from burnin.config import from_files
    from burnin.forecast import forecast, heats_without

    given: dict[str, Any] = {"windows": parse_windows(windows)} if windows else {}
    if nodes is not None:
        given["nodes"] = nodes
    config = from_files(files, ROOT, given)
    begin = parse_start(start)
    out = parse_without(without, config.ladder.steps()[0].name)
    models = {name: shape.parameters for name, shape in load_references().models.items()}
    plain = heats_without(config.ladder, {})
    usual = forecast(config, plain, models, checkpoint_gb=checkpoint_gb)
    refused = [r.sentence for r in plan_check.refusals(config)]
    heats = heats_without(config.ladder, out) if out else plain
    told = forecast(config, heats, models, out, checkpoint_gb) if out else usual
    if as_json:
        document = {
            **told.document(),
            "node_set": config.document["nodes"],
            "start": begin.isoformat(),
            "end": (begin + timedelta(hours=told.hours)).isoformat(),
            "extra_hours": told.hours - usual.hours,
            "refused": refused,
        }
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    click.echo(render(config, told, usual, heats, begin, refused))


def parse_windows(texts: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the section `windows` of texts such as nccl=12h, hpl.full=30m, nccl=4. Raises click.UsageError."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for text in texts:
        match = re.fullmatch(r"([a-z][a-z0-9_]*)(?:\.([a-z0-9]+))?=([0-9]+(?:\.[0-9]+)?)(h|m|)", text)
        if match is None:
            raise click.UsageError(
                f"--window {text!r}: write WORKLOAD=12h, WORKLOAD.STEP=90m, or WORKLOAD=4 (iterations)"
            )
        workload, step, number, unit = match.groups()
        if not unit and "." in number:
            raise click.UsageError(f"--window {text!r}: iterations are whole; for a time write {number}h")
        window: dict[str, float] = (
            {"hours": float(number) / (60 if unit == "m" else 1)} if unit else {"iterations": int(number)}
        )
        found.setdefault(workload, {})[step or "default"] = window
    return found


def parse_without(texts: Sequence[str], first: str) -> dict[str, str]:
    """Return node -> step of texts such as dgx05, dgx[05-06]@x4; `first` is the step of those that name none."""
    from burnin.nodes import expand

    found = {}
    for text in texts:
        names, _, step = text.partition("@")
        found.update(dict.fromkeys(expand(names, "--without"), step or first))
    return found


def parse_start(text: str | None) -> datetime:
    """Return the start of the campaign with its time zone; now if none is given. Raises click.UsageError."""
    if text is None:
        return datetime.fromtimestamp(int(time.time())).astimezone()
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.UsageError(f"--start {text!r}: write it as 2026-12-01 08:00") from None


def render(
    config: Config,
    told: Forecast,
    usual: Forecast,
    heats: Sequence[Heat],
    begin: datetime,
    refused: Sequence[str],
) -> str:
    """Return the plan for people."""
    gpus = int(config.document["gpus_per_node"])
    names = [w for w in dict.fromkeys(w for row in told.heats for w in row.hours)]
    lines = [
        f"{told.nodes} nodes ({config.document['nodes']}), {told.nodes * gpus} GPUs: {_ladder(config)}",
        "",
        f"{'step':9} {'jobs at once':32}"
        + "".join(f"{w:>10}" for w in names)
        + f"{'hours':>10}{'node-hours':>12}  ends",
    ]
    ends = begin
    for row in told.heats:
        ends += timedelta(hours=row.total_hours)
        step = row.step if row.heat == 0 else f"{row.step} +{row.heat}"
        cells = "".join(f"{_hours(row.hours[w]) if w in row.hours else '-':>10}" for w in names)
        lines.append(
            f"{step:9} {_groups(row):32}{cells}{_hours(row.total_hours):>10}{row.node_hours:>12,.0f}  {_when(ends)}"
        )
    lines += [
        f"{'total':9} {'':32}" + " " * 10 * len(names) + f"{_hours(told.hours):>10}{told.node_hours:>12,.0f}",
        "",
        f"starts {_when(begin)}, ends {_when(ends)}: {_days(told.hours)}, {told.node_hours * gpus:,.0f} GPU-hours",
        f"disk   {_disk(config, told)}",
        "not counted: waiting in the queue, container start, probes, the end of each window's last iteration, repairs",
        *(f"assumed: {point}" if "taken to" in point else f"note: {point}" for point in told.open),
    ]
    if told.out:
        lines += ["", _what_if(told, usual, heats)]
    lines += [f"cannot work: {sentence}" for sentence in refused]
    return "\n".join(line.rstrip() for line in lines)


def _ladder(config: Config) -> str:
    """Return the ladder as the guide writes it: 1 -> 2 -> 4 -> two halves at once -> 8 -> resume."""
    total = len(config.nodes)
    words = {"halves": f"two of {total // 2} at once", "full": str(total), "resume": "resume test"}
    return " -> ".join(words.get(s.name, str(s.size)) for s in config.ladder.steps())


def _groups(row: Expected) -> str:
    """Return the jobs of a heat: 21 x 3 nodes + 1 x 1 node."""
    return " + ".join(f"{count} x {size} node{'s' if size > 1 else ''}" for size, count in row.groups)


def _hours(hours: float) -> str:
    """Return a time: hours, or minutes below one."""
    return f"{hours:.4g} h" if hours >= 1 else f"{hours * 60:.3g} min"


def _days(hours: float) -> str:
    """Return a time in days and hours."""
    days, rest = divmod(hours, 24)
    return f"{days:.0f} days {rest:.3g} hours" if days else _hours(hours)


def _when(time_of_day: datetime) -> str:
    """Return a time of day as people write it."""
    return time_of_day.strftime("%a %Y-%m-%d %H:%M")


def _size(gigabytes: float) -> str:
    """Return an amount of data."""
    if gigabytes >= 1000:
        return f"{gigabytes / 1000:.3g} TB"
    return f"{gigabytes:.3g} GB" if gigabytes >= 1 else f"{gigabytes * 1000:.0f} MB"


def _disk(config: Config, told: Forecast) -> str:
    """Return the disk that is needed, in a sentence."""
    probes = f"probes {_size(told.probes_gb)} in {config.document['results']}"
    if told.checkpoints_gb is None or told.checkpoint_gb is None:
        return probes
    low, high = told.checkpoints_gb
    row = max(told.heats, key=lambda r: r.checkpoints)
    text = f"checkpoints {_size(low)} at a time ({row.checkpoints[0]} runs of {row.step}, {_size(told.checkpoint_gb)} each)"
    more = f", {_size(high)} if a run keeps all of an iteration instead of the newest" if high > low else ""
    return f"{text}{more}; {probes}"


def _what_if(told: Forecast, usual: Forecast, heats: Sequence[Heat]) -> str:
    """Return what changes when nodes are out."""
    from burnin.nodes import fold

    more = told.hours - usual.hours
    further = [
        f"{h.step} heat {h.heat} ({len(h.groups)} job{'s' if len(h.groups) > 1 else ''})" for h in heats if h.heat
    ]
    change = f"{_hours(abs(more))} {'more' if more > 0 else 'less'}" if abs(more) > 1e-9 else "no more time"
    again = f"; partners and left-over nodes catch up in {', '.join(further)}" if further else ""
    return (
        f"without {fold(told.out)}: {change} than with all nodes{again}. A node may fail at any time of its window: its whole "
        "window is counted. Once repaired it runs everything again, together with all others in halves, full and resume."
    )
