# SPDX-License-Identifier: Apache-2.0
"""question_answering.py: the BERT-large SQuAD v1.1 fine-tune of NeMo 1, on one node."""

from __future__ import annotations

import time

from model.base import between, out
from model.faults import Run
from model.nccl import network_lines
from model.store import Lab
from model.work import Pace, ended_early, exit_ranks, ranks_of

#: Exact match and F1 after each epoch, percent (BERT-large on SQuAD v1.1 ends at about 84 and 91).
SCORES = ((83.1, 90.3), (84.1, 90.9), (84.2, 91.0))
BATCHES, VALIDATION = 1386, 166


def say(module: str, text: str) -> None:
    """A line of NeMo's logger."""
    out(f"[NeMo I {time.strftime('%Y-%m-%d %H:%M:%S')} {module}] {text}")


def options(argv: list[str]) -> dict[str, str]:
    """The overrides `key=value`."""
    return dict(arg.split("=", 1) for arg in argv if "=" in arg and not arg.startswith("-"))


def clock(seconds: float) -> str:
    """`21:12`, as the progress bar writes it."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def died(run: Run) -> int | None:
    """Ways to end in the middle."""
    status = ended_early(run)
    if status is not None:
        return status
    words = {
        "gpu_off_bus": "RuntimeError: CUDA error: unspecified launch failure",
        "hbm_ecc_uncorrectable": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "driver_mismatch": "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "missing_gpu": "RuntimeError: CUDA error: invalid device ordinal",
        "oom_one_node": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.21 GiB.",
    }
    fault = run.find(*words)
    if fault:
        run.happened(fault)
        rank = run.failing_rank(fault)
        out(f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {words[fault['kind']]}")
        return exit_ranks(run, [rank], 1)
    return None


def main(lab: Lab, argv: list[str]) -> int:
    """Entry."""
    run = Run(lab, "squad")
    given = options(argv)
    epochs = given.get("trainer.max_epochs", "2")
    if not epochs.isdigit() or int(epochs) < 1:
        out(f"Error: trainer.max_epochs={epochs}: give a whole number of at least 1")
        return exit_ranks(run, ranks_of(run, run.nodes[0]), 1, True)
    say("exp_manager:396", f"Experiments will be logged at /results/QA/{time.strftime('%Y-%m-%d_%H-%M-%S')}")
    network_lines(run)
    ranks = len(run.nodes) * run.gpus
    out("\n".join(f"Initializing distributed: GLOBAL_RANK: {r}, MEMBER: {r + 1}/{ranks}" for r in range(ranks)))
    pace = Pace(int(epochs) * 6)
    spoiled = run.find("silent_data_corruption")
    for epoch in range(int(epochs)):
        rate = 1.09 * min(run.compute_factor(node) for node in run.nodes)
        seconds = BATCHES / rate
        for done in (0.2, 0.4, 0.6, 0.8, 1.0):
            if epoch == 0 and done == 0.6:
                status = died(run)
                if status is not None:
                    return status
            loss = (1.21, 0.78, 0.61)[min(epoch, 2)] * (2.2 - 1.2 * done)
            n = int(BATCHES * done)
            bar = ("#" * int(10 * done)).ljust(10)
            out(
                f"Epoch {epoch}: {done * 100:3.0f}%|{bar}| {n}/{BATCHES} [{clock(seconds * done)}<{clock(seconds * (1 - done))}, "
                f"{rate:.2f}it/s, loss={loss:.3g}, v_num=1-42]"
            )
            pace()
        out(f"Validating: 100%|{'#' * 10}| {VALIDATION}/{VALIDATION} [01:12<00:00, {2.3 * rate / 1.09:.2f}it/s]")
        exact, f1 = SCORES[min(epoch, len(SCORES) - 1)]
        jitter = between(-0.12, 0.12, "squad", epoch, *run.key)
        if spoiled:
            run.happened(spoiled)
            exact, f1 = 12.3, 19.8
        say("qa_model:186", f"val exact match {exact + jitter:.2f}")
        say("qa_model:187", f"val f1 {f1 + jitter:.2f}")
        pace()
    out(f"`Trainer.fit` stopped: `max_epochs={epochs}` reached.")
    for fault in run.shows:
        run.happened(fault)
    return 0
