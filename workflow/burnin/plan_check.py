# SPDX-License-Identifier: Apache-2.0
"""What cannot work is refused before a GPU is used: sizes and times of every workload on every group of the ladder.

Pure: numbers in, refusals out. Each refusal names the key, its value, what was expected and the cure, and the group
sizes that it is about, once and not once a size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from burnin.arithmetic import check_parallelism, data_parallel, gradient_accumulation
from burnin.errors import ConfigError
from burnin.hpl_dat import BLOCK, FRACTION, plan_hpl

if TYPE_CHECKING:
    from burnin.config import Config

#: A batch that fits every size of the ladder is only suggested if it is at most this many times the one configured.
SENSIBLE_FACTOR = 8


@dataclass(frozen=True, slots=True)
class WorkloadNumbers:
    """The numbers of one workload that a plan can be checked with. Times in seconds; None = does not apply.

    `step_seconds`: time of a training step, one number or by group size in nodes (a size that is not named takes that
    of the nearest smaller one, which is never faster for a fixed batch). `startup_s`: from the start of an iteration
    to its first step. `iteration_limit_s`: when one iteration is given up. `window_s`: how long iterations are started
    again and again. `overhead_s`: probes before and after, container start. `time_limit_s`: the job's time limit.
    `resume_margin_steps`: steps that must be left after the first checkpoint.
    """

    name: str
    tp: int | None = None
    pp: int = 1
    cp: int = 1
    gbs: int | None = None
    mbs: int = 1
    seq: int | None = None
    step_seconds: float | Mapping[int, float] | None = None
    startup_s: float = 0.0
    max_steps: int | None = None
    checkpoint_interval_steps: int | None = None
    resume_margin_steps: int = 1
    iteration_limit_s: float | None = None
    window_s: float | None = None
    overhead_s: float = 0.0
    time_limit_s: float | None = None

    def step_seconds_on(self, nodes: int) -> float | None:
        """Return the step time on a group of `nodes` (s), or None if nothing is known."""
        if self.step_seconds is None or isinstance(self.step_seconds, int | float):
            return self.step_seconds
        known = [size for size in self.step_seconds if size <= nodes] or sorted(self.step_seconds)[:1]
        return self.step_seconds[max(known)] if known else None

    def iteration_seconds_on(self, nodes: int) -> float | None:
        """Return how long one iteration takes on a group of `nodes` (s), or None if that is not known."""
        step = self.step_seconds_on(nodes)
        return None if step is None or self.max_steps is None else self.startup_s + step * self.max_steps


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan is not started. `nodes`: the group sizes it is about, empty = all."""

    key: str
    value: object
    expected: str
    cure: str
    workload: str | None = None
    nodes: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the refusal in one line."""
        where = f" on {_listed(self.nodes)} nodes" if self.nodes else ""
        return f"config key '{self.key}' is {self.value!r}{where}; expected {self.expected}. What to do: {self.cure}"

    def error(self) -> ConfigError:
        """Return the refusal as the error that stops a campaign."""
        where = f" on {_listed(self.nodes)} nodes" if self.nodes else ""
        return ConfigError(self.key, self.value, self.expected + where, self.cure)


def _listed(numbers: Sequence[int]) -> str:
    shown = [str(n) for n in numbers]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def _time(seconds: float) -> str:
    """Return a duration as people write it: 90 s, 24 h, 1 h 30 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:g} s" if seconds == whole else f"{seconds:.1f} s"
    hours, minutes = divmod(math.ceil(whole / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def check_plan(
    workloads: Iterable[WorkloadNumbers],
    sizes: Iterable[int],
    gpus_per_node: int,
    partition_limit_s: float | None = None,
) -> list[Refusal]:
    """Return what cannot work, in the order of the workloads; an empty list means that the plan may start.

    `sizes`: group sizes of the ladder, in nodes. `partition_limit_s`: the partition's time limit (s), None = unlimited.
    """
    ladder = sorted(set(sizes))
    refusals: list[Refusal] = []
    if not ladder or ladder[0] < 1 or gpus_per_node < 1:
        return [
            Refusal(
                "nodes",
                f"groups of {ladder} nodes x {gpus_per_node} GPUs",
                "at least one group of at least one node and one GPU",
                "correct nodes and gpus_per_node",
            )
        ]
    for workload in workloads:
        refusals += _sizes(workload, ladder, gpus_per_node)
        refusals += _steps(workload, ladder)
        refusals += _window(workload, ladder, partition_limit_s)
    return refusals


def _sizes(w: WorkloadNumbers, ladder: Sequence[int], gpus_per_node: int) -> list[Refusal]:
    if w.tp is None:
        return []
    key = f"workloads.{w.name}."
    try:  # TP against the node: the same for all sizes, and nothing else can be judged before it is right
        check_parallelism(gpus_per_node * w.pp * w.cp, gpus_per_node, w.tp, w.pp, w.cp)
    except ConfigError as error:
        return [Refusal(key + error.key, error.value, error.expected, error.cure, w.name)]
    unsplit: list[int] = []
    uneven: list[int] = []
    first: ConfigError | None = None
    steps = []
    for nodes in ladder:
        try:
            dp = data_parallel(nodes * gpus_per_node, w.tp, w.pp, w.cp)
        except ConfigError:
            unsplit.append(nodes)
            continue
        if w.gbs is None:
            continue
        steps.append(w.mbs * dp)
        try:
            gradient_accumulation(w.gbs, w.mbs, dp)
        except ConfigError as error:
            first = first or error
            uneven.append(nodes)
    out = []
    if unsplit:
        split = w.tp * w.pp * w.cp
        out.append(
            Refusal(
                key + "tp x pp x cp",
                f"{w.tp} x {w.pp} x {w.cp} = {split}",
                f"a divisor of the GPUs of every group ({_listed([n * gpus_per_node for n in unsplit])} GPUs)",
                f"use a smaller split, or let {w.name} start at a step whose groups are a multiple of {split} GPUs",
                w.name,
                tuple(unsplit),
            )
        )
    if first is not None:
        common = math.lcm(*steps) if min(steps) > 0 else 0
        cure = first.cure
        if common and w.gbs is not None and common <= SENSIBLE_FACTOR * max(w.gbs, 1):
            fitting = max(1, round(w.gbs / common)) * common
            cure = f"use GBS {fitting}, which fits every size of the ladder"
        out.append(Refusal(key + first.key, first.value, first.expected, cure, w.name, tuple(uneven)))
    return out


def _steps(w: WorkloadNumbers, ladder: Sequence[int]) -> list[Refusal]:
    key = f"workloads.{w.name}."
    out = []
    if w.max_steps is not None and w.max_steps < 1:
        return [Refusal(key + "max_steps", w.max_steps, "at least 1", "set the number of training steps", w.name)]
    if w.iteration_limit_s is not None:
        slow = [n for n in ladder if (t := w.iteration_seconds_on(n)) is not None and t > w.iteration_limit_s]
        if slow:
            seconds = {n: w.iteration_seconds_on(n) or 0.0 for n in slow}
            worst = max(slow, key=lambda n: seconds[n])
            step = w.step_seconds_on(worst) or 0.0
            fitting = math.floor((w.iteration_limit_s - w.startup_s) / step) if step > 0 else 0
            takes = f"{w.max_steps} steps of {step:g} s take {_time(seconds[worst])}"
            out.append(
                Refusal(
                    key + "max_steps",
                    w.max_steps,
                    f"steps that fit in the iteration's limit of {_time(w.iteration_limit_s)}; {takes}",
                    f"use at most {fitting} steps, or a longer limit" if fitting >= 1 else "use a longer limit",
                    w.name,
                    tuple(slow),
                )
            )
    interval = w.checkpoint_interval_steps
    if interval is not None and w.max_steps is not None:
        last = w.max_steps - w.resume_margin_steps
        if not 1 <= interval <= last:
            cure = (
                f"use an interval of at most {last} steps, or more than {w.max_steps} steps"
                if last >= 1
                else f"use more than {w.resume_margin_steps} steps"
            )
            out.append(
                Refusal(
                    key + "checkpoint_interval_steps",
                    interval,
                    f"1 to {max(last, 1)}, so that a run of {w.max_steps} steps goes on after a checkpoint",
                    cure,
                    w.name,
                )
            )
    return out


def _window(w: WorkloadNumbers, ladder: Sequence[int], partition_limit_s: float | None) -> list[Refusal]:
    if w.window_s is None:
        return []
    key = f"workloads.{w.name}."
    if not w.window_s > 0:
        return [Refusal(key + "window", _time(w.window_s), "more than 0 s", "set how long the run lasts", w.name)]
    # An iteration that was started just before the window ends is finished, not cut: the job must outlive it.
    last = max((t for n in ladder if (t := w.iteration_seconds_on(n)) is not None), default=0.0)
    needed = w.window_s + last + w.overhead_s
    parts = f"window {_time(w.window_s)}"
    parts += f" + last iteration {_time(last)}" if last else ""
    parts += f" + overhead {_time(w.overhead_s)}" if w.overhead_s else ""
    out = []
    if partition_limit_s is not None and needed > partition_limit_s:
        room = partition_limit_s - last - w.overhead_s
        out.append(
            Refusal(
                key + "window",
                _time(w.window_s),
                f"a job within the partition's limit of {_time(partition_limit_s)}; it needs {_time(needed)} ({parts})",
                (f"use a window of at most {_short(room)}, or " if room > 0 else "use ")
                + "a partition with a longer limit",
                w.name,
            )
        )
    if w.time_limit_s is not None:
        if partition_limit_s is not None and w.time_limit_s > partition_limit_s:
            out.append(
                Refusal(
                    key + "time_limit",
                    _time(w.time_limit_s),
                    f"at most the partition's limit of {_time(partition_limit_s)}, or Slurm never starts the job",
                    "lower it, or use a partition with a longer limit",
                    w.name,
                )
            )
        if needed > w.time_limit_s:
            out.append(
                Refusal(
                    key + "time_limit",
                    _time(w.time_limit_s),
                    f"at least {_time(needed)} ({parts}), or Slurm kills a healthy run",
                    f"raise it to {_time(needed)}, or shorten the window",
                    w.name,
                )
            )
    return out


def _short(seconds: float) -> str:
    """Return a duration rounded down, for limits that must not be exceeded."""
    if seconds < 120:
        return f"{math.floor(seconds)} s"
    return _time(math.floor(seconds / 60) * 60)


def check_hpl(
    sizes: Iterable[int],
    gpus_per_node: int,
    memory_mib: float,
    fraction: float = FRACTION,
    nb: int = BLOCK,
    workload: str = "hpl",
) -> list[Refusal]:
    """Return the refusals of HPL's problem sizes: the first for each key, with all group sizes it is about."""
    found: dict[str, tuple[ConfigError, list[int]]] = {}
    for nodes in sorted(set(sizes)):
        try:
            plan_hpl(nodes, gpus_per_node, memory_mib, fraction, nb)
        except ConfigError as error:
            found.setdefault(error.key, (error, []))[1].append(nodes)
    return [
        Refusal(f"workloads.{workload}.{key.removeprefix('hpl.')}", e.value, e.expected, e.cure, workload, tuple(nodes))
        for key, (e, nodes) in found.items()
    ]


# ------------------------------------------------------------------------------------------------------- of a config


#: Names of the numbers here -> the config's keys below `workload_definitions.<workload>.`
_TRAINING_KEYS = {
    "tp": "training.tensor_parallel",
    "tp x pp x cp": "training.tensor_parallel x pipeline_parallel x context_parallel",
    "gbs": "training.global_batch_size",
    "gbs, mbs, dp": "training.global_batch_size",
    "max_steps": "training.max_steps",
    "checkpoint_interval_steps": "training.checkpoint_every",
    "nb": "hpl.block",
    "memory_fraction": "hpl.memory_fraction",
    "gpu_memory_mib": "hpl.gpu_memory_mib",
}


def group_sizes(config: Config, workload: str) -> dict[str, tuple[int, ...]]:
    """Return step -> group sizes (nodes) as planned for all nodes, for the steps that run the workload."""
    total = len(config.nodes)
    sizes: dict[str, tuple[int, ...]] = {}
    for step in config.ladder.steps():
        if workload in config.ladder.workloads[step.name]:
            halves = tuple(sorted({total // 2, total - total // 2}))
            sizes[step.name] = (step.size,) if step.size else halves if step.name == "halves" else (total,)
    return sizes


def numbers(config: Config, workload: str) -> WorkloadNumbers:
    """Return what the config says of a workload, without its window."""
    training = config.definition(workload).get("training")
    if training is None:
        return WorkloadNumbers(workload)
    resume = config.document["resume_test"]
    # a batch that is fitted to each group always divides; the smallest batch that can be fitted to is one micro batch
    fixed = None if training.get("fit_batch", False) else training.get("global_batch_size")
    return WorkloadNumbers(
        workload,
        tp=training.get("tensor_parallel"),
        pp=training.get("pipeline_parallel", 1),
        cp=training.get("context_parallel", 1),
        gbs=fixed,
        mbs=training.get("micro_batch_size", 1),
        seq=training.get("sequence_length"),
        step_seconds=training.get("step_seconds"),
        max_steps=training["max_steps"],
        checkpoint_interval_steps=training["checkpoint_every"],
        resume_margin_steps=resume["steps_after_checkpoint"] if resume["workload"] == workload else 1,
        iteration_limit_s=float(config.document["slurm"]["iteration_minutes"]) * 60,
    )


def fitted_batch(training: Mapping[str, Any], gpus: int) -> int | None:
    """Return the global batch size of a group of `gpus`: as configured, or with `fit_batch` the nearest that divides."""
    wanted = training.get("global_batch_size")
    if wanted is None or not training.get("fit_batch", False) or gpus < 1:
        return wanted
    split = math.prod(training.get(f"{kind}_parallel", 1) for kind in ("tensor", "pipeline", "context"))
    step = training.get("micro_batch_size", 1) * max(1, gpus // split)
    return int(max(1, math.floor(wanted / step + 0.5)) * step)


def refusals(config: Config) -> list[Refusal]:
    """Return what of a campaign cannot work on the groups that its ladder plans, in the config's own keys."""
    found: list[Refusal] = []
    slurm = config.document["slurm"]
    limit = slurm.get("partition_limit_minutes")
    limit_s = None if limit is None else limit * 60.0
    gpus = max(1, int(config.document["gpus_per_node"]))
    for workload in dict.fromkeys([*config.workloads, *filter(None, [config.document["resume_test"]["workload"]])]):
        sizes = group_sizes(config, workload)
        if not sizes:
            continue
        every = sorted({n for of_step in sizes.values() for n in of_step})
        base = numbers(config, workload)
        problem = config.definition(workload).get("hpl")
        of_workload = check_plan([base], every, gpus)
        if problem:
            of_workload += check_hpl(
                every, gpus, problem["gpu_memory_mib"], problem["memory_fraction"], problem["block"], workload
            )
        found += [_in_config_keys(r, workload) for r in of_workload]
        seen = set()
        for step, nodes in sizes.items():
            window = config.window(workload, step)
            timed = _timed(base, window, nodes, slurm)
            for refusal in check_plan([timed], nodes, gpus, limit_s):
                if (refusal.value, refusal.expected) in seen:
                    continue  # the same window in the next step: said once
                seen.add((refusal.value, refusal.expected))
                name = step if step in config.document["windows"].get(workload, {}) else "default"
                # a window in iterations is as long as its longest iterations may take
                key = "slurm.time_limit_minutes" if refusal.key.endswith("time_limit") else f"windows.{workload}.{name}"
                found.append(replace(refusal, key="slurm.iteration_minutes" if step == "resume" else key))
    return found


def time_limit_minutes(window: Mapping[str, float], slurm: Mapping[str, Any]) -> int:
    """Return Slurm's time limit for a run (whole minutes): as configured, or from its window, within the partition's."""
    if slurm["time_limit_minutes"]:
        return int(slurm["time_limit_minutes"])
    iterations = float(window.get("iterations", 0)) * float(slurm["iteration_minutes"])
    minutes = float(window.get("hours", 0)) * 60 * 1.25 + iterations
    wanted = math.ceil(minutes + float(slurm["time_margin_minutes"]))
    return min(wanted, slurm.get("partition_limit_minutes") or wanted)


def _timed(
    base: WorkloadNumbers,
    window: Mapping[str, float],
    nodes: Sequence[int],
    slurm: Mapping[str, Any],
) -> WorkloadNumbers:
    """Return only the times of a workload in a window."""
    if "hours" in window:
        seconds, step_seconds, max_steps = float(window["hours"]) * 3600, base.step_seconds, base.max_steps
    else:
        known = [t for n in nodes if (t := base.iteration_seconds_on(n)) is not None]
        each = max(known) if known else float(slurm["iteration_minutes"]) * 60
        seconds, step_seconds, max_steps = float(window["iterations"]) * each, None, None
    return WorkloadNumbers(
        base.name,
        step_seconds=step_seconds,
        max_steps=max_steps,
        window_s=seconds,
        overhead_s=float(slurm["time_margin_minutes"]) * 60,
        # a limit that is made from the window is too small only if the window does not fit the partition: said of the window
        time_limit_s=time_limit_minutes(window, slurm) * 60.0 if slurm["time_limit_minutes"] else None,
    )


def _in_config_keys(refusal: Refusal, workload: str) -> Refusal:
    """Return a refusal that names the key where the user finds it."""
    name = refusal.key.removeprefix(f"workloads.{workload}.")
    if name in ("nodes", "gpus_per_node"):
        return replace(refusal, key=name)
    return replace(refusal, key=f"workload_definitions.{workload}.{_TRAINING_KEYS.get(name, name)}")


#: Key of `training` -> name of the same number in a trainer's resolved config (NeMo 2, Megatron-Bridge).
_RESOLVED = {
    "tensor_parallel": ("tensor_model_parallel_size",),
    "pipeline_parallel": ("pipeline_model_parallel_size",),
    "context_parallel": ("context_parallel_size",),
    "global_batch_size": ("global_batch_size",),
    "micro_batch_size": ("micro_batch_size",),
    "sequence_length": ("seq_length",),
    "max_steps": ("max_steps", "train_iters"),
    "checkpoint_every": ("every_n_train_steps", "save_interval"),
}


def contradictions(workload: str, training: Mapping[str, Any], nodes: int, gpus: int, resolved: str) -> list[Refusal]:
    """Return where a trainer's resolved config (the output of its dry run) says other numbers than `training`.

    `nodes`, `gpus`: those of the group that the dry run is about. A number that is not printed is not known, and one that
    is printed several times (model and data both have a sequence length) contradicts only if none of them is ours.
    """
    text = _unboxed(resolved)
    wanted = {k: training.get(k) for k in _RESOLVED} | {"global_batch_size": fitted_batch(training, gpus)}
    keys = {f"workload_definitions.{workload}.training.{k}": (v, _RESOLVED[k]) for k, v in wanted.items()}
    keys["nodes"] = (nodes, ("num_nodes",))
    found = []
    for key, (value, names) in keys.items():
        pattern = rf"(?<![A-Za-z_])(?:{'|'.join(names)})['\"]?\s*[=:]\s*(\d+)"
        said = list(dict.fromkeys(int(number) for number in re.findall(pattern, text)))
        if value is None or not said or value in said:
            continue
        cure = f"give {workload}'s commands {names[0]} as the config has it, or correct {key}"
        expected = f"{_listed(said)}, which is what {workload}'s dry run resolves {names[0]} to for {nodes} nodes"
        found.append(Refusal(key, value, expected, cure, workload))
    return found


def _unboxed(text: str) -> str:
    """Return a text without the frames of a table, whose last column may be wrapped anywhere."""
    lines = []
    for line in text.splitlines():
        cells = [c.strip() for c in re.split("[│┃|]", line) if c.strip()]
        if len(cells) and any(c in line for c in "│┃"):
            lines.append(cells[-1])
        else:
            lines.append("\n" + line)
    return "".join(lines)


def check_config(config: Config) -> None:
    """Raise ConfigError for a campaign that cannot work: the first refusal, with all others in its cure."""
    found = refusals(config)
    if found:
        raise as_error(found)


def as_error(found: Sequence[Refusal], more: str = "") -> ConfigError:
    """Return refusals as one error: the first, with all others, and what else is to be said, in its cure."""
    first = found[0].error()
    also = "".join(f"\n  Also: {refusal.sentence}" for refusal in found[1:])
    return ConfigError(first.key, first.value, first.expected, first.cure + also + more)
