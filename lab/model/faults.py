# SPDX-License-Identifier: Apache-2.0
"""Which faults show in this very iteration, and what they do to the speed of a workload."""

from __future__ import annotations

import os
import time

from model.base import LabError, around, expand_hosts, noise
from model.store import CLUSTER, Lab, sticks

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

#: Kinds whose failing process must itself fail on a real Slurm (rank 0 cannot do it for another node).
OWN_PROCESS = ("gpu_off_bus", "hbm_ecc_uncorrectable", "node_crash", "oom_one_node", "driver_mismatch", "missing_gpu")

#: Kinds that only one workload can show, whatever the scenario says.
ONLY = {
    "nan_loss": ("nemo",),
    "storage_slow": ("nemo",),
    "checkpoint_fails": ("nemo",),
    "resume_from_scratch": ("nemo",),
    "oom_all_nodes": ("nemo",),
}

#: Kinds that leave a fresh trace each time they show; the others are recorded once.
COUNTING = (
    "link_degrading",
    "link_flap",
    "transceiver_hot",
    "nvlink_error",
    "hbm_ecc_uncorrectable",
    "hang",
    "node_crash",
)

FABRIC = ("link_degrading", "link_flap", "transceiver_hot", "rail_slow", "fabric_slow", "nccl_on_sockets")

#: Iteration number of a run started by hand, without a runner's BURNIN_ITERATION: late enough for any from_iteration.
BY_HAND = 10**9


class Run:
    """One iteration of one workload on one group of nodes."""

    def __init__(self, lab: Lab, workload: str) -> None:
        self.lab = lab
        self.program = workload
        self.nodes = _nodes(lab)
        self.gpus = lab.gpus
        self.workload = os.environ.get("BURNIN_WORKLOAD") or workload
        self.step = os.environ.get("BURNIN_STEP") or _step_for(len(self.nodes), len(lab.nodes))
        self.heat = os.environ.get("BURNIN_HEAT", "0")
        self.group = os.environ.get("BURNIN_GROUP", self.nodes[0])
        text = os.environ.get("BURNIN_ITERATION", "")
        if text and not text.isdigit():
            raise LabError(f"BURNIN_ITERATION={text!r}: give a whole number, 0 for the first iteration")
        self.iteration = int(text) if text else BY_HAND
        self.multi = len(self.nodes) > 1
        self.key = (lab.seed, self.step, self.heat, workload, ",".join(self.nodes), self.iteration)
        self.shows: list[dict[str, Any]] = [f for f in lab.faults if self._shows(f)]
        self._recorded: set[str] = set()
        self.job = os.environ.get("SLURM_JOB_ID") or f"pid{os.getpid()}"
        self.job += "." + os.environ.get("SLURM_STEP_ID", "0")

    def _shows(self, fault: dict[str, Any]) -> bool:
        if fault["node"] is not None and fault["node"] not in self.nodes:
            return False
        if fault["between"] and not all(set(side) & set(self.nodes) for side in fault["between"]):
            return False
        if self.program not in ONLY.get(fault["kind"], (self.program,)):
            return False
        if self.lab.repaired(fault):
            return False
        if sticks(fault) and self.lab.has_shown(fault):
            return True
        if fault["step"] and self.step not in fault["step"]:
            return False
        if fault["workload"] and self.workload not in fault["workload"]:
            return False
        if self.iteration < fault["from_iteration"] or len(self.nodes) < fault["min_nodes"]:
            return False
        chance = fault["intermittent"]
        return chance is None or noise("intermittent", fault["id"], *self.key) < chance

    def find(self, *kinds: str) -> dict[str, Any] | None:
        """The first fault of these kinds that shows now."""
        for kind in kinds:
            for fault in self.shows:
                if fault["kind"] == kind:
                    return fault
        return None

    def rank(self, fault: dict[str, Any]) -> int:
        """The global rank of the GPU (or of the first GPU of the node) that the fault sits in."""
        part = fault["part"]
        gpu = int(part[3:]) if part.startswith("gpu") else pick_gpu(fault, self.gpus)
        return self.nodes.index(fault["node"]) * self.gpus + gpu

    def was_there(self, fault: dict[str, Any]) -> bool:
        """Whether the fault had shown before this step began (all ranks of a step agree on that)."""
        owner = self.lab.owner(fault)
        return fault["static"] or any(
            e.get("e") == "fault" and e.get("id") == fault["id"] and e.get("job") != self.job
            for e in self.lab.events(owner)
        )

    def failing_rank(self, fault: dict[str, Any]) -> int:
        """The rank that fails first: the GPU's own, or the node's last one where a GPU is gone and numbers move up."""
        if fault["kind"] == "missing_gpu" or (fault["kind"] == "gpu_off_bus" and self.was_there(fault)):
            return self.nodes.index(fault["node"]) * self.gpus + self.gpus - 1
        return self.rank(fault)

    def happened(self, fault: dict[str, Any]) -> None:
        """Leave the fault's traces in the tools of its node (once an iteration; nothing if they are there already)."""
        if fault["id"] in self._recorded:
            return
        self._recorded.add(fault["id"])
        if fault["static"] or (fault["kind"] not in COUNTING and self.lab.has_shown(fault)):
            return
        owner = fault["node"] or CLUSTER
        self.lab.record(
            owner,
            e="fault",
            id=fault["id"],
            t=round(time.time(), 3),
            step=self.step,
            workload=self.workload,
            iteration=min(self.iteration, 10**6),
            job=self.job,
            nodes=len(self.nodes),
        )

    def age(self, fault: dict[str, Any]) -> int:
        """Iterations since the fault began, for what gets worse with time."""
        return min(self.iteration - int(fault["from_iteration"]), 6)

    def fabric_factor(self, key: object) -> float:
        """What is left of the bandwidth between nodes (1.0 = all)."""
        factor = 1.0
        if not self.multi:
            return factor
        for fault in self.shows:
            kind, jitter = fault["kind"], around(0.012, "fabric", fault["id"], key, *self.key)
            if kind == "link_degrading":
                factor = min(factor, (0.925 - 0.008 * self.age(fault)) * jitter)
            elif kind == "link_flap":
                factor = min(factor, 0.84 * jitter)
            elif kind == "transceiver_hot":
                factor = min(factor, (0.935 - 0.008 * self.age(fault)) * jitter)
            elif kind == "rail_slow":
                factor = min(factor, 0.56 * jitter)
            elif kind == "fabric_slow":
                factor = min(factor, 0.72 * jitter)
            elif kind == "nccl_on_sockets":
                factor = min(factor, 0.026 * jitter)
        return factor

    def nvlink_factor(self) -> float:
        """What is left of the bandwidth inside a node."""
        if self.find("nvlink_error") is None:
            return 1.0
        return 0.95 if self.multi else 0.86

    def compute_factor(self, node: str) -> float:
        """Speed of a node's slowest GPU against a healthy one (1.0)."""
        factor = around(0.003, "node", self.lab.seed, node) * around(0.0015, "iteration", node, *self.key)
        for fault in self.shows:
            if fault["node"] != node:
                continue
            factor *= {
                "fan_failed": 0.88,
                "inlet_hot": 0.925,
                "gpu_slow": 0.90,
                "straggler": 0.68 if self.program == "nemo" else 0.87,
            }.get(fault["kind"], 1.0)
        return factor


def pick_gpu(fault: dict[str, Any], gpus: int) -> int:
    """A GPU for a fault that names only its node."""
    return int(noise("gpu", fault["id"]) * gpus)


def _step_for(count: int, all_nodes: int) -> str:
    if count == 1:
        return "single"
    if count == all_nodes:
        return "full"
    return f"x{count}"


def _nodes(lab: Lab) -> list[str]:
    """The nodes of this step in rank order, from the launcher's environment."""
    text = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST") or ""
    ordered = expand_hosts(os.environ.get("BURNIN_NODES", ""))
    names = expand_hosts(text) or ordered or [lab.this_node()]
    if ordered and set(ordered) == set(names):
        names = ordered
    for name in names:
        if name not in lab.nodes:
            raise LabError(f"lab: {name} is no node of the simulated cluster ({lab.source})")
    return names


def gpu_of(fault: dict[str, Any], lab: Lab) -> int:
    """The GPU index a fault sits in."""
    part = fault["part"]
    return int(part[3:]) if part.startswith("gpu") else pick_gpu(fault, lab.gpus)
