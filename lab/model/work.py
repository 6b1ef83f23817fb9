# SPDX-License-Identifier: Apache-2.0
"""What the workload programs share: pacing, the ways a run dies, and what the launcher says of it."""

from __future__ import annotations

import os
import time

from model.base import LabError, err, fold_hosts, fold_numbers, nap, out, pick, seconds_setting, stamp
from model.faults import OWN_PROCESS, Run
from model.store import Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from collections.abc import Callable
    from typing import Any


#: Set once the end of the step was told as srun tells it, so that srun does not say it again.
TOLD = False


class Pace:
    """Spreads the time a run has to last over its progress lines."""

    def __init__(self, lines: int, per_line: float = 0.0) -> None:
        total = seconds_setting("BURNIN_LAB_ITERATION_SECONDS")
        self.each = max(per_line, total / max(lines, 1))

    def __call__(self) -> None:
        """Wait for one line's share."""
        if self.each > 0:
            nap(self.each)


def pid_of(run: Run, rank: int) -> int:
    """The process id that a rank shows."""
    return pick(38000, 60000, "pid", run.nodes[rank // run.gpus], *run.key[:4]) + rank % run.gpus


def host_of(run: Run, rank: int) -> str:
    """The node of a rank: node-list order, so many ranks a node."""
    return run.nodes[rank // run.gpus]


def ranks_of(run: Run, node: str) -> list[int]:
    """The ranks of a node."""
    first = run.nodes.index(node) * run.gpus
    return list(range(first, first + run.gpus))


def step_id() -> str:
    """`5102.0`."""
    return f"{os.environ.get('SLURM_JOB_ID', '1')}.{os.environ.get('SLURM_STEP_ID', '0')}"


def under_lab_srun() -> bool:
    """Whether the lab's own srun started us, which leaves its lines about the end of the step to us."""
    return "BURNIN_LAB_SRUN" in os.environ


def cancelled(run: Run, why: str = "") -> None:
    """slurmstepd's line about the end of the step."""
    err(f"slurmstepd: error: *** STEP {step_id()} ON {run.nodes[0]} CANCELLED AT {stamp()}{why} ***")


def tasks(numbers: list[int]) -> str:
    """`task 37` or `tasks 0-7`."""
    return f"task{'s' if len(numbers) > 1 else ''} {fold_numbers(numbers)}"


def exit_ranks(run: Run, first: list[int], code: int, everybody: bool = False) -> int:
    """End the step as srun tells it: the ranks that failed first, then the others; returns the step's status."""
    if not under_lab_srun():
        if 0 not in first:
            # On a real Slurm the failing rank is a process of its own, and srun must see it end before this one.
            marker(run, "done")
            nap(0.8)
        return code
    global TOLD
    TOLD = True
    failed = set(first)
    for node in run.nodes:
        mine = [r for r in ranks_of(run, node) if r in failed]
        if mine:
            err(f"srun: error: {node}: {tasks(mine)}: Exited with exit code {code}")
    if not everybody:
        err("srun: Terminating StepId=" + step_id())
        cancelled(run)
    for node in run.nodes:
        rest = [r for r in ranks_of(run, node) if r not in failed]
        if rest:
            err(
                f"srun: error: {node}: {tasks(rest)}: "
                + (f"Exited with exit code {code}" if everybody else "Terminated")
            )
    return code


def _marker_path(run: Run, word: str) -> str:
    return os.path.join(run.lab.folder, "slurm", f"{word}.{step_id()}")


def marker(run: Run, word: str) -> None:
    """Tell the other processes of this step how far rank 0 is."""
    fd = os.open(_marker_path(run, word), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.close(fd)


def hang(run: Run, fault: dict[str, Any]) -> int:
    """Print nothing more, for ever."""
    run.happened(fault)
    while True:
        nap(3600)


def crash(run: Run, fault: dict[str, Any]) -> int:
    """The node dies under the step."""
    node = fault["node"]
    if not under_lab_srun():
        marker(run, "crash")
        while True:  # rank 0 waits for the dead node, as the collective would; Slurm ends it
            nap(3600)
    global TOLD
    TOLD = True
    run.happened(fault)
    from model.slurm import node_down

    node_down(run.lab, node, "Not responding")
    err(f"srun: error: Node failure on {node}")
    err("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
    cancelled(run, " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    for other in run.nodes:
        if other != node:
            err(f"srun: error: {other}: {tasks(ranks_of(run, other))}: Killed")
    return 137


def time_limit(run: Run, fault: dict[str, Any]) -> int:
    """Slurm ends the step at its time limit."""
    global TOLD
    TOLD = True
    run.happened(fault)
    if under_lab_srun():
        err("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
    cancelled(run, " DUE TO TIME LIMIT")
    if under_lab_srun():
        for node in run.nodes:
            err(f"srun: error: {node}: {tasks(ranks_of(run, node))}: Terminated")
    return 143



def ended_early(run: Run, before_limit: Callable[[], object] | None = None) -> int | None:
    """Hang, crash or run out of time if a fault says so; the exit status, or None to go on."""
    fault = run.find("hang")
    if fault:
        return hang(run, fault)
    fault = run.find("node_crash")
    if fault:
        return crash(run, fault)
    fault = run.find("time_limit")
    if fault:
        if before_limit is not None:
            before_limit()
        return time_limit(run, fault)
    return None


def other_rank(lab: Lab, workload: str) -> int:
    """A process of another rank, on a real Slurm: it only acts where a fault is its node's own."""
    run = Run(lab, workload)
    node = lab.this_node()
    procid = int(os.environ.get("SLURM_PROCID", "0"))
    local = int(os.environ.get("SLURM_LOCALID", "0"))
    for fault in run.shows:
        if fault["node"] != node or fault["kind"] not in OWN_PROCESS:
            continue
        if fault["kind"] == "node_crash":
            if local == 0:
                return crash_here(run, fault)
        elif run.failing_rank(fault) == procid:
            _wait_for(run, "done", 3600.0)
            return 1
    return 0


def crash_here(run: Run, fault: dict[str, Any]) -> int:
    """On a real Slurm, on the dying node itself: pull the plug, if we were told how."""
    if run.nodes[0] != fault["node"]:
        _wait_for(run, "crash", 3600.0)
    run.happened(fault)
    command = os.environ.get("BURNIN_LAB_CRASH_COMMAND", "")
    if command:
        # The test bench's own words, from its environment: the one place where the lab calls a shell.
        os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", command])
    while True:
        nap(3600)


def _wait_for(run: Run, word: str, seconds: float) -> None:
    path, end = _marker_path(run, word), time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < end:
        nap(0.1)


def watchdog(run: Run, first: int, number: int, op: str = "ALLREDUCE", elements: int = 16777216) -> None:
    """The watchdog lines of every rank that waited for the first failing one."""
    for rank in range(len(run.nodes) * run.gpus):
        if rank == first:
            continue
        now = time.time() + 0.003 * rank / (len(run.nodes) * run.gpus)
        when = time.strftime("E%m%d %H:%M:%S", time.localtime(now))
        if when[1] == "0":
            when = "E" + when[2:]
        ran = 600000 + pick(2, 97, "ran", rank, *run.key)
        out(
            f"[rank{rank}]:[{when}.{int(now % 1 * 1e9):09d} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
            f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={elements}, "
            f"NumelOut={elements}, Timeout(ms)=600000) ran for {ran} milliseconds before timing out."
        )


def need(value: str | None, what: str) -> str:
    """The value of an option, or a sentence."""
    if value is None:
        raise LabError(f"{what} needs a value")
    return value


def nodes_text(run: Run) -> str:
    """The nodes, folded."""
    return fold_hosts(run.nodes)
