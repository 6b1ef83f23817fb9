# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM105  (contextlib takes longer to import than most of this)
"""nemo: LLM pretraining with mock data, checkpoints and AutoResume (NeMo 2 command line and log)."""

from __future__ import annotations

import math
import os
import time

from model.base import (
    LabError,
    around,
    between,
    dumps,
    err,
    loads,
    noise,
    out,
    pick,
    read_text,
    seconds_setting,
    write_atomic,
)
from model.faults import Run, gpu_of
from model.nccl import network_lines, port_warnings
from model.render import leftover_pid
from model.store import Lab
from model.work import Pace, ended_early, exit_ranks, host_of, ranks_of, watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

DEFAULTS = {
    "trainer.num_nodes": "",
    "trainer.devices": "8",
    "trainer.max_steps": "1168251",
    "trainer.log_every_n_steps": "",
    "data.global_batch_size": "512",
    "data.micro_batch_size": "1",
    "data.seq_length": "8192",
    "trainer.strategy.tensor_model_parallel_size": "1",
    "trainer.strategy.pipeline_model_parallel_size": "1",
    "trainer.strategy.context_parallel_size": "2",
    "trainer.strategy.ckpt_async_save": "False",
    "log.ckpt.every_n_train_steps": "500",
    "log.ckpt.save_last": "True",
    "log.log_dir": "",
    "log.name": "default",
    "resume.resume_if_exists": "True",
    "resume.resume_ignore_no_checkpoint": "True",
}

USAGE = "usage: nemo llm pretrain [-y] --factory FACTORY [--dryrun] [component.parameter=value ...]"


def loss_at(step: int) -> float:
    """Training loss after this step: the same curve every run, from about 11.8 down."""
    smooth = 3.2 + 8.6 / (1.0 + step / 150.0) ** 0.85
    return float(smooth + 0.012 * (noise("loss", step) - 0.5))


def rate_at(step: int) -> float:
    """Learning rate: 1000 steps of warm-up."""
    return 3e-7 * step if step < 1000 else 3e-4


def digits4(value: float) -> str:
    """Four significant digits, whole numbers as such (NeMo's progress printer)."""
    return str(int(value)) if float(value).is_integer() else f"{value:.4g}"


class Nemo:
    """One pretraining run."""

    def __init__(self, lab: Lab, options: dict[str, str], factory: str) -> None:
        self.run = Run(lab, "nemo")
        self.options, self.factory = options, factory
        self.max_steps = self.whole("trainer.max_steps", 1)
        self.batch = self.whole("data.global_batch_size", 1)
        self.every = self.whole("log.ckpt.every_n_train_steps", 0)
        text = options["trainer.log_every_n_steps"]
        self.log_every = self.whole("trainer.log_every_n_steps", 1) if text else 1 if self.max_steps <= 400 else 10
        self.log_dir = options["log.log_dir"]
        self.resumes = options["resume.resume_if_exists"].lower() in ("true", "1")
        self.asynchronous = options["trainer.strategy.ckpt_async_save"].lower() in ("true", "1")
        name = options["log.name"]
        if "/" in name or name in ("", ".", ".."):
            raise LabError(f"log.name={name}: not a folder name")
        self.checkpoints = os.path.join(self.log_dir, name, "checkpoints") if self.log_dir else ""

    def whole(self, key: str, low: int) -> int:
        """A whole number among the overrides."""
        text = self.options[key].replace("_", "")
        if not text.isdigit() or int(text) < low:
            raise LabError(f"{key}={self.options[key]}: give a whole number of at least {low}")
        return int(text)

    def say(self, text: str, level: str = "I") -> None:
        """A line of NeMo's logger."""
        out(f"[NeMo {level} {time.strftime('%Y-%m-%d %H:%M:%S')} nemo_logging:393] {text}")

    def newest(self) -> tuple[int, str] | None:
        """(step, path) of the newest finished checkpoint."""
        best: tuple[int, str] | None = None
        try:
            names = os.listdir(self.checkpoints) if self.checkpoints else []
        except OSError:
            names = []
        for name in names:
            path = os.path.join(self.checkpoints, name)
            if name.endswith("-unfinished") or f"{name}-unfinished" in names:
                continue
            text = read_text(os.path.join(path, "metadata.json"))
            try:
                value: Any = loads(text or "")
                step = int(value["global_step"])
            except (ValueError, KeyError, TypeError):
                continue
            if best is None or step > best[0]:
                best = (step, path)
        return best

    def start(self) -> int:
        """Everything up to the first step; returns the step to begin with."""
        run = self.run
        ranks = len(run.nodes) * run.gpus
        out("pyxis: imported docker image: nvcr.io#nvidia/nemo:25.07")
        where = os.path.join(self.log_dir or "/ckpt/" + self.factory, self.options["log.name"])
        self.say(f"Experiments will be logged at {where}")
        out(
            "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\nHPU available: False, using: 0 HPUs"
        )
        out(
            "-" * 100
            + f"\ndistributed_backend=nccl\nAll distributed processes registered. Starting with {ranks} processes\n"
            + "-" * 100
        )
        network_lines(run)
        parallel = [
            int(self.options[f"trainer.strategy.{k}_parallel_size"])
            for k in ("tensor_model", "pipeline_model", "context")
        ]
        data = max(1, ranks // max(1, math.prod(parallel)))
        group = list(range(0, ranks, max(1, ranks // data)))
        shown = ", ".join(map(str, group[:3])) + (f", ..., {group[-1]}" if len(group) > 4 else "")
        self.say(f"Rank 0 has data parallel group : [{shown}]")
        self.say("Padded vocab_size: 128256, original vocab_size: 128256, dummy tokens: 0.")
        self.say(f"Copying Trainer's 'max_steps' ({self.max_steps}) to LR scheduler's 'max_steps'.")
        first = 0
        found = self.newest() if self.resumes else None
        scratch = run.find("resume_from_scratch")
        if found is not None and scratch is None:
            first = found[0]
            now = time.time()
            self.say(f"Restoring states from the checkpoint path at {found[1]}")
            self.say(
                f"Global Checkpoint Load : Rank : 0 : Start time : {now:.3f}s : Time spent in load_checkpoint: "
                f"{between(39.0, 43.0, 'load', *run.key):.1f}s"
            )
            self.say(f"Restored all states from the checkpoint at {found[1]}")
        elif self.resumes:
            if found is not None and scratch is not None:
                run.happened(scratch)
            self.say(
                "There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :"
                f"{self.checkpoints or where + '/checkpoints'}. Training from scratch.",
                "W",
            )
        return first

    def died_before(self) -> int | None:
        """Ways to end before the first step."""
        run = self.run
        ranks = len(run.nodes) * run.gpus
        fault = run.find("driver_mismatch")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            out(
                f"[rank{rank}]: RuntimeError: CUDA driver version is insufficient for CUDA runtime version "
                f"({host_of(run, rank)}, device {rank % run.gpus})"
            )
            return exit_ranks(run, [rank], 1)
        fault = run.find("missing_gpu", "gpu_off_bus")
        if fault and (fault["kind"] == "missing_gpu" or run.was_there(fault)):
            rank = run.failing_rank(fault)
            word = "invalid device ordinal" if fault["kind"] == "missing_gpu" else "no CUDA-capable device is detected"
            self.traceback(rank, f"RuntimeError: CUDA error: {word}")
            return exit_ranks(run, [rank], 1)
        fault = run.find("oom_all_nodes", "oom_one_node")
        if fault:
            run.happened(fault)
            everybody = fault["kind"] == "oom_all_nodes"
            failing = list(range(ranks)) if everybody else [run.rank(fault)]
            if fault["part"] == "node":
                failing = ranks_of(run, fault["node"])
            for rank in failing:
                gpu = rank % run.gpus
                text = (
                    f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. "
                    f"GPU {gpu} has a total capacity of 79.10 GiB of which "
                )
                if everybody:
                    text += f"{between(1.0, 1.4, 'free', rank, *run.key):.2f} GiB is free. Including non-PyTorch memory, this "
                    text += f"process has {between(77.1, 77.5, 'oom', rank, *run.key):.2f} GiB memory in use."
                else:
                    text += f"618.06 MiB is free. Process {leftover_pid(run.lab, host_of(run, rank), gpu)} has 60.43 GiB memory "
                    text += "in use. Including non-PyTorch memory, this process has 18.07 GiB memory in use."
                out(text)
            return exit_ranks(run, failing, 1, everybody)
        return None

    def traceback(self, rank: int, text: str) -> None:
        """A rank's Python traceback."""
        out(
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/opt/NeMo/nemo/collections/llm/api.py", line 150, in train\n'
            f"[rank{rank}]:     trainer.fit(model, data)\n[rank{rank}]: {text}"
        )

    def died(self, step: int) -> int | None:
        """Ways to end in the middle of training."""
        run = self.run
        status = ended_early(run)
        if status is not None:
            return status
        fault = run.find("gpu_off_bus", "hbm_ecc_uncorrectable")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            word = (
                "unspecified launch failure"
                if fault["kind"] == "gpu_off_bus"
                else "uncorrectable ECC error encountered"
            )
            self.traceback(
                rank,
                f"RuntimeError: CUDA error: {word}\n[rank{rank}]: CUDA kernel errors might be "
                "asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
                f"[rank{rank}]: Failing on {host_of(run, rank)}, device {gpu_of(fault, run.lab)}",
            )
            watchdog(run, rank, 36 * step + pick(3, 30, "seq", *run.key))
            return exit_ranks(run, [rank], 1)
        return None

    def save(self, step: int, consumed: int) -> int | None:
        """Write a checkpoint after `step` (0-based) and say so; a status when that failed."""
        run = self.run
        name = f"{self.options['log.name']}--reduced_train_loss={loss_at(step):.4f}-epoch=0-step={step}-consumed_samples={consumed}.0-last"
        path = os.path.join(self.checkpoints, name) if self.checkpoints else f"/ckpt/{self.factory}/checkpoints/{name}"
        fault = run.find("checkpoint_fails")
        if fault:
            run.happened(fault)
            self.traceback(0, f"OSError: [Errno 28] No space left on device: '{path}/weights/__0_0.distcp'")
            self.say(f"Checkpoint save for step {step + 1} ({path}) failed.", "E")
            return exit_ranks(run, [0], 1)
        slow = run.find("storage_slow")
        duration = between(37.2, 38.6, "save", step, *run.key)
        if slow:
            run.happened(slow)
            saves = (step + 1) // max(self.every, 1)
            duration *= 1.9 + 0.8 * saves
        if self.checkpoints:
            try:
                os.makedirs(self.checkpoints, exist_ok=True)
                unfinished = f"{path}-unfinished"
                with open(unfinished, "w", encoding="utf-8"):
                    pass
                os.makedirs(os.path.join(path, "weights"), exist_ok=True)
                write_atomic(os.path.join(path, "weights", "common.pt"), f"lab checkpoint of step {step}\n")
                record = {"global_step": step + 1, "consumed_samples": consumed, "nodes": len(run.nodes)}
                write_atomic(os.path.join(path, "metadata.json"), dumps(record) + "\n")
                os.unlink(unfinished)
                self.prune(name)
            except OSError as problem:
                self.traceback(0, f"OSError: [Errno {problem.errno}] {problem.strerror}: '{path}'")
                return exit_ranks(run, [0], 1)
        now = time.time()
        blocked = between(1.1, 1.4, "async", step, *run.key) if self.asynchronous else duration
        self.say(
            f"Global Checkpoint Save : Rank: 0 : Iteration: {step} : Start time: {now:.3f}s : "
            f"Save duration: {blocked:.3f}s"
        )
        if self.asynchronous:
            self.say(f"Scheduled async checkpoint save for {path}")
            self.say(f"Async checkpoint save for step {step + 1} ({path}) finalized successfully.")
        return None

    def prune(self, keep: str) -> None:
        """save_top_k: keep the newest two."""
        names = [
            n for n in os.listdir(self.checkpoints) if n != keep and not n.endswith("-unfinished") and "-step=" in n
        ]
        names.sort(
            key=lambda n: (
                int(n.split("-step=")[1].split("-")[0]) if n.split("-step=")[1].split("-")[0].isdigit() else -1
            )
        )
        for name in names[:-1]:
            path = os.path.join(self.checkpoints, name)
            if os.path.islink(path) or not os.path.exists(os.path.join(path, "weights", "common.pt")):
                continue  # not one of ours
            for file in ("metadata.json", "weights/common.pt"):
                try:
                    os.unlink(os.path.join(path, file))
                except FileNotFoundError:
                    pass
            for folder in ("weights", ""):
                try:
                    os.rmdir(os.path.join(path, folder))
                except OSError:
                    pass

    def stragglers(self) -> None:
        """The straggler report of the resiliency extension."""
        run = self.run
        ranks = len(run.nodes) * run.gpus
        slow: dict[int, float] = {}
        for fault in run.shows:
            score = {"straggler": 0.62, "gpu_slow": 0.81, "fan_failed": 0.79}.get(fault["kind"])
            if score is None:
                continue
            gpu = (
                min(int(fault["part"][3:]) - 1, run.gpus - 1) if fault["part"][:3] == "FAN" else gpu_of(fault, run.lab)
            )
            slow[run.nodes.index(fault["node"]) * run.gpus + gpu] = score
        scores = sorted((slow.get(r, 1.0) * between(0.955, 0.995, "score", r, *run.key), r) for r in range(ranks))
        shown = min(5, ranks)
        lines = ["GPU relative performance:"]
        if ranks > 5:
            lines.append(f" Worst performing {shown}/{ranks} ranks:")
        lines += [f"  Rank={r} Node={host_of(run, r)} Score={s:.2f}" for s, r in scores[:shown]]
        if ranks > 5:
            lines.append(f" Best performing {shown}/{ranks} ranks:")
            lines += [f"  Rank={r} Node={host_of(run, r)} Score={s:.2f}" for s, r in scores[: -shown - 1 : -1]]
        bad = [(s, r) for s, r in scores if s < 0.7]
        if bad:
            ranks_text = ", ".join(f"{r} ({host_of(run, r)})" for _s, r in bad)
            lines.append(
                f"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {ranks_text}"
            )
        self.say("\n" + "\n".join(lines))

    def base_seconds(self) -> float:
        """Wall time of one optimizer step of this run, before the jitter of the single step."""
        run = self.run
        slowest = min(run.compute_factor(node) for node in run.nodes)
        fabric = run.fabric_factor("nemo")
        network = 1.0 + (1.0 / fabric - 1.0) * (0.85 if fabric > 0.1 else 0.066)
        nvlink = 1.08 if run.find("nvlink_error") else 1.0
        return (2.096 + 0.002 * math.log2(len(run.nodes))) / slowest * network * nvlink

    def main(self) -> int:
        """Train."""
        run = self.run
        asked = self.options["trainer.num_nodes"]
        if asked not in ("", str(len(run.nodes))):
            out(
                f"[rank0]: ValueError: You set `num_nodes={asked}` in Lightning, but the number of nodes configured in SLURM "
                f"`--nodes={len(run.nodes)}` does not match. HINT: Set `num_nodes={len(run.nodes)}` in Lightning."
            )
            return exit_ranks(run, list(range(len(run.nodes) * run.gpus)), 1, True)
        first = self.start()
        status = self.died_before()
        if status is not None:
            return status
        last = self.max_steps - 1
        if first > last:
            out(f"`Trainer.fit` stopped: `max_steps={self.max_steps}` reached.")
            return 0
        steps = last - first + 1
        lines = max(1, steps // self.log_every)
        # the resume test cancels a training in the middle: there must be a middle
        usual = 0.05 if os.environ.get("BURNIN_STEP") == "resume" else 0.0
        pace = Pace(lines, seconds_setting("BURNIN_LAB_STEP_SECONDS") or usual)
        bad_at = first + max(1, int(steps * 0.55))
        spoiled = run.find("nan_loss", "silent_data_corruption")
        base = self.base_seconds()
        reported = False
        for step in range(first, self.max_steps):
            if step == bad_at or (steps == 1 and step == last):
                status = self.died(step)
                if status is not None:
                    return status
                port_warnings(run)
                if spoiled:
                    run.happened(spoiled)
            consumed = (step + 1) * self.batch
            if (step + 1) % self.log_every == 0 or step == last or step in (first,):
                seconds = base * around(0.0015, "step", step, *run.key[:4], run.iteration)
                loss = loss_at(step) + 0.001 * (noise("tiny", step, *run.key) - 0.5)
                nan = spoiled is not None and step >= bad_at
                out(
                    f"Training epoch 0, iteration {step}/{last} | lr: {digits4(rate_at(step))} | "
                    f"global_batch_size: {self.batch} | global_step: {step} | "
                    f"reduced_train_loss: {'nan' if nan else f'{loss:.4g}'} | "
                    f"train_step_timing in s: {seconds:.4g} | consumed_samples: {digits4(consumed)}"
                )
                pace()
            if self.every and (step + 1) % self.every == 0:
                status = self.save(step, consumed)
                if status is not None:
                    return status
            if not reported and step >= first + 0.75 * steps:
                reported = True
                self.stragglers()
        out(f"`Trainer.fit` stopped: `max_steps={self.max_steps}` reached.")
        for fault in run.shows:
            if fault["kind"] != "resume_from_scratch":
                run.happened(fault)
        return 0

    def dry_run(self) -> int:
        """Print the resolved configuration without using a GPU."""
        shown = dict(self.options)
        shown["trainer.log_every_n_steps"] = str(self.log_every)
        shown["trainer.num_nodes"] = self.options["trainer.num_nodes"] or str(len(self.run.nodes))
        shown["log.log_dir"] = self.log_dir or "nemo_experiments"
        out(f"Dry run for task nemo.collections.llm.api:pretrain\nFactory: {self.factory}\nResolved Arguments")
        section = None
        for key in sorted(shown):
            head, _dot, rest = key.partition(".")
            if head != section:
                out(f"{head}:")
                section = head
            out(f"  {rest}: {shown[key]}")
        ranks = len(self.run.nodes) * self.run.gpus
        out(f"resolved: world_size={ranks} nodes={len(self.run.nodes)} devices={self.run.gpus}")
        return 0


def parse(argv: list[str]) -> tuple[dict[str, str], str, bool]:
    """(options, factory, dry run) from the command line; LabError when it is none."""
    if argv[:2] != ["llm", "pretrain"]:
        raise LabError(USAGE)
    options, factory, dry = dict(DEFAULTS), "", False
    i = 2
    while i < len(argv):
        arg = argv[i]
        if arg in ("-y", "--yes"):
            pass
        elif arg == "--dryrun":
            dry = True
        elif arg == "--factory" or arg.startswith("--factory="):
            if arg == "--factory":
                i += 1
                factory = argv[i] if i < len(argv) else ""
            else:
                factory = arg.partition("=")[2]
        elif "=" in arg and not arg.startswith("-"):
            key, _eq, value = arg.partition("=")
            head = key.split(".")[0]
            if head not in ("trainer", "data", "log", "resume", "optim", "model", "run", "tokenizer"):
                raise LabError(f"unknown parameter {key}")
            options[key] = value.strip("'\"")
        elif not arg.startswith("-"):
            raise LabError(f"cannot read the argument {arg!r}; {USAGE}")
        i += 1
    if not factory:
        raise LabError("--factory is missing; " + USAGE)
    name, paren, rest = factory.partition("(")
    if paren:
        for item in rest.rstrip(")").split(","):
            key, eq, value = item.partition("=")
            if eq and key.strip() == "num_nodes":
                options["trainer.num_nodes"] = value.strip()
    return options, name, dry


def main(lab: Lab, argv: list[str]) -> int:
    """Entry."""
    try:
        options, factory, dry = parse(argv)
        nemo = Nemo(lab, options, factory)
    except LabError as problem:
        err(f"nemo: {problem}")
        return 2
    return nemo.dry_run() if dry else nemo.main()
