# SPDX-License-Identifier: Apache-2.0
"""What a campaign will take: its heats, groups, hours, node-hours and disk, if all pass or if nodes drop out. Pure.

A heat lasts as long as its longest group: groups run side by side, the workloads of one group one after the other. Not
counted are waiting in Slurm's queue, container start, probes, and the end of the last iteration of a window (an iteration is
finished, never cut).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from burnin.errors import ConfigError
from burnin.ladder import Heat, LadderConfig, assume_passed, next_heat
from burnin.plan_check import numbers

if TYPE_CHECKING:
    from burnin.config import Config

#: Bytes of a checkpoint for each parameter of the model: weights in bf16 (2), and of the distributed optimizer the fp32 copy
#: and Adam's two moments (12). 112 GB for the 8 billion parameters of Llama 3 8B.
CHECKPOINT_BYTES = 14
#: What one probe of a node leaves, MB: 73 kB from the lab's DGX H100, more from a kernel log that has grown for weeks.
PROBE_MB = 0.125


@dataclass(frozen=True, slots=True)
class Expected:
    """One heat. `groups`: (nodes of a group, how many of them), large ones first. `hours`: of each workload, the longest group's.

    `checkpoints`: how many may lie on the disk at the same time, if every run keeps its newest only, and if it keeps all
    of an iteration; (0, 0) without training.
    """

    step: str
    heat: int
    groups: tuple[tuple[int, int], ...]
    hours: dict[str, float]
    total_hours: float
    node_hours: float
    probes: float
    checkpoints: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A whole campaign. `checkpoint_gb`: size of one checkpoint (GB) or None; `open`: what is assumed or not known."""

    nodes: int
    out: tuple[str, ...]
    heats: tuple[Expected, ...]
    hours: float
    node_hours: float
    checkpoint_gb: float | None
    checkpoints_gb: tuple[float, float] | None
    probes_gb: float
    open: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it: groups as [{nodes, count}], checkpoints as {newest_only, all_of_an_iteration}."""
        plain = asdict(self)
        for heat in plain["heats"]:
            heat["groups"] = [{"nodes": size, "count": count} for size, count in heat["groups"]]
            heat["checkpoints"] = dict(zip(("newest_only", "all_of_an_iteration"), heat["checkpoints"], strict=True))
        if self.checkpoints_gb:
            names = ("newest_only", "all_of_an_iteration")
            plain["checkpoints_gb"] = dict(zip(names, self.checkpoints_gb, strict=True))
        return plain


def heats_without(ladder: LadderConfig, out: Mapping[str, str]) -> list[Heat]:
    """Return the heats of a campaign in which nodes fail at a step (`out`: node -> step) and all others pass.

    Partners of a node that failed owe the step, as in a real campaign. Raises ConfigError for nodes and steps that are
    not in the ladder.
    """
    steps = [s.name for s in ladder.steps()]
    for node, step in out.items():
        if node not in ladder.nodes:
            raise ConfigError("--without", node, "a node of the campaign", "name one of its nodes")
        if step not in steps:
            raise ConfigError("--without", f"{node}@{step}", f"a step of the ladder ({', '.join(steps)})", "correct it")
    heats: list[Heat] = []
    gates: list[Mapping[str, Any]] = []
    while (heat := next_heat(ladder, gates)) is not None:
        heats.append(heat)
        gates.append(_gate(heat, {n for n, step in out.items() if step == heat.step}))
    return heats


def _gate(heat: Heat, lost: set[str]) -> dict[str, Any]:
    """Return the gate of a heat in which the nodes of `lost` fail, their partners owe, and all others pass."""
    gate = {**assume_passed(heat), "groups": {g.name: list(g.nodes) for g in heat.groups}}
    for group in heat.groups:
        if not lost & set(group.nodes):
            continue
        for node in group.nodes:
            gate["passed"].pop(node, None)
            if node in lost:
                gate["outcome"][node] = "failed"
            elif node in group.owed:
                gate["outcome"][node] = "owes"
    return gate


def window_hours(
    config: Config, workload: str, step: str, nodes: int, seen: Mapping[str, float] | None = None
) -> tuple[float, str]:
    """Return how long a run takes, and what had to be assumed for that (empty: nothing).

    A window in iterations takes what its iterations take: what was `seen` (workload -> hours of an iteration), else from
    `step_seconds` where the config has it, else as long as `slurm.iteration_minutes` allows.
    """
    window = config.window(workload, step)
    if "hours" in window:
        return float(window["hours"]), ""
    if seen and workload in seen:
        return window["iterations"] * seen[workload], ""
    seconds = numbers(config, workload).iteration_seconds_on(nodes)
    if seconds is not None:
        return window["iterations"] * seconds / 3600, ""
    minutes = float(config.document["slurm"]["iteration_minutes"])
    told = f"an iteration of {workload} is taken to last {minutes:g} minutes (slurm.iteration_minutes) where a window counts iterations"
    return window["iterations"] * minutes / 60, told


def expected(config: Config, heat: Heat, seen: Mapping[str, float] | None = None) -> tuple[Expected, list[str]]:
    """Return what a heat takes, and what had to be assumed (`seen`: see `window_hours`)."""
    assumed: list[str] = []
    longest: dict[str, float] = {}
    totals: list[float] = []
    node_hours = probes = 0.0
    newest = most = 0
    every = float(config.document["watch"]["probe_every_minutes"]) / 60
    for group in heat.groups:
        total = 0.0
        for workload in group.workloads:
            hours, told = window_hours(config, workload, heat.step, len(group.nodes), seen)
            assumed += [told] if told else []
            longest[workload] = max(longest.get(workload, 0.0), hours)
            total += hours
            probes += len(group.nodes) * (2 + hours / every)
        totals.append(total)
        node_hours += total * len(group.nodes)
        saved = [n for w in group.workloads if (n := _saves(config, w))]
        newest, most = newest + bool(saved), most + max(saved, default=0)
    sizes = Counter(len(g.nodes) for g in heat.groups)
    told_hours = {w: longest[w] for w in [*config.workloads, *longest] if w in longest}
    return (
        Expected(
            heat.step,
            heat.heat,
            tuple(sorted(sizes.items(), reverse=True)),
            told_hours,
            max(totals, default=0.0),
            node_hours,
            probes,
            (newest, most),
        ),
        assumed,
    )


def _saves(config: Config, workload: str) -> int:
    """Return how many checkpoints an iteration of a workload writes."""
    training = config.definition(workload).get("training")
    return int(training["max_steps"] // training["checkpoint_every"]) if training else 0


def model_parameters(config: Config, workload: str, models: Mapping[str, int]) -> int | None:
    """Return the parameters of the model that a workload trains, or None.

    The model is that of `like_for_like`, else one of `models` (name -> parameters) that a command names as a whole word,
    as in `--factory llama3_8b`.
    """
    definition = config.definition(workload)
    told = str((definition.get("training", {}).get("like_for_like") or {}).get("model"))
    if told in models:
        return models[told]
    words = {w for line in definition["commands"].values() for w in re.split(r"[^\w.-]", " ".join(shlex.split(line)))}
    found = {models[name] for name in models if name in words}
    return found.pop() if len(found) == 1 else None


def forecast(
    config: Config,
    heats: Sequence[Heat],
    models: Mapping[str, int],
    out: Iterable[str] = (),
    checkpoint_gb: float | None = None,
) -> Forecast:
    """Return what `heats` (see `heats_without`) take. `models`: name -> parameters, for the size of checkpoints.

    `checkpoint_gb` (GB of one checkpoint) replaces the estimate from the model.
    """
    rows: list[Expected] = []
    open_points: list[str] = []
    for heat in heats:
        row, assumed = expected(config, heat)
        rows.append(row)
        open_points += assumed
    training = [w for w in config.workloads if config.definition(w).get("training")]
    if checkpoint_gb is None and training:
        parameters = [model_parameters(config, w, models) for w in training]
        if None in parameters:
            open_points.append("the size of a checkpoint is not known: name it with --checkpoint-gb")
        else:
            checkpoint_gb = max(p for p in parameters if p) * CHECKPOINT_BYTES / 1e9
    kept = [w for w in training if config.definition(w)["training"]["keep_checkpoints"]]
    peak = None
    if checkpoint_gb is not None and training:
        newest, most = (max((r.checkpoints[i] for r in rows), default=0) for i in (0, 1))
        peak = (newest * checkpoint_gb, most * checkpoint_gb)
    if kept:
        open_points.append(
            f"{', '.join(kept)} keeps its checkpoints (keep_checkpoints): they add up over all iterations"
        )
    return Forecast(
        nodes=len(config.nodes),
        out=tuple(out),
        heats=tuple(rows),
        hours=sum(r.total_hours for r in rows),
        node_hours=sum(r.node_hours for r in rows),
        checkpoint_gb=checkpoint_gb if training else None,
        checkpoints_gb=peak,
        probes_gb=sum(r.probes for r in rows) * PROBE_MB / 1000,
        open=tuple(dict.fromkeys(open_points)),
    )
