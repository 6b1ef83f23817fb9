# SPDX-License-Identifier: Apache-2.0
"""What a signal implicates: the fault, the part, who is to blame, and what to do next. One table, read from the top.

`scope` says whom a signal convicts: `node` (the node that showed it), `group` (somebody in the group, not known who),
`config` (nobody: the campaign's configuration), `note` (nobody: kept as evidence only). Victims' voices, such as a
watchdog time-out or a task that was killed, are never more than `group`.
`rank` orders faults of one node: the cause stands before its consequences (a failed fan before the hot GPU).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Scope = Literal["node", "group", "config", "note"]
Seen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table. `state` marks what lasts (read in any probe it counts); others count only when new in a run."""

    kind: str
    fault: str
    scope: Scope
    rank: int
    part: Callable[[Seen], str]
    action: str
    stops: bool = True
    state: bool = False
    when: Callable[[Seen], bool] = lambda seen: True


def _gpu(seen: Seen) -> str:
    """Return gpu<index>, or the PCI address, or `gpu?`."""
    if seen.get("gpu") is not None:
        return f"gpu{seen['gpu']}"
    return f"gpu@{seen['bdf']}" if seen.get("bdf") else "gpu?"


def _hca(seen: Seen) -> str:
    """Return the HCA; NCCL's old lines name only the device index of the process, which is its rail."""
    device = seen.get("device")
    if device:
        return str(device).split(":")[0]
    return f"mlx5_{seen['gpu']}" if seen.get("gpu") is not None else "hca?"


def _fan(seen: Seen) -> str:
    """Return the fan module: FAN6_F and FAN6_R are one part."""
    return re.sub(r"_[FR]$", "", str(seen.get("device") or "fan?"))


def _sensor(seen: Seen) -> str:
    return str(seen.get("device") or "node")


def _psu(seen: Seen) -> str:
    """Return the power supply: PSU2_PIN is a reading of PSU2."""
    match = re.match(r"(PSU\s?[0-9]+)", _sensor(seen), re.IGNORECASE)
    return match[1].replace(" ", "") if match else _sensor(seen)


def _node(seen: Seen) -> str:
    return "node"


def _config(seen: Seen) -> str:
    return "config"


def _stack(seen: Seen) -> str:
    return "stack"


def _storage(seen: Seen) -> str:
    return "storage"


def _level(word: str) -> Callable[[Seen], bool]:
    return lambda seen: str((seen.get("detail") or {}).get("reason", "")).lower().find(word) >= 0


RESEAT = "drain the node, reseat or replace {part}, run dcgmi diag -r 3, then record the repair"

TABLE: tuple[Signature, ...] = (
    Signature(
        "fan_failed",
        "fan_failed",
        "node",
        1,
        _fan,
        "replace {part}; check the airflow of the GPUs behind it",
        state=True,
    ),
    Signature("psu_failed", "psu_failed", "node", 1, _psu, "replace {part} or restore its input power", state=True),
    Signature("gpu_lost", "gpu_off_bus", "node", 2, _gpu, RESEAT, state=True),
    Signature(
        "row_remap_failed",
        "row_remap_failed",
        "node",
        3,
        _gpu,
        "replace {part}: its memory can no longer be repaired",
        state=True,
    ),
    Signature("cuda_ecc", "hbm_ecc_uncorrectable", "node", 4, _gpu, RESEAT),
    Signature(
        "cuda_nvlink",
        "nvlink_error",
        "node",
        5,
        _gpu,
        "run dcgmi diag -r 3; check the NVLinks of {part} and their other ends",
    ),
    Signature(
        "nvlink_error",
        "nvlink_error",
        "node",
        5,
        _gpu,
        "run dcgmi diag -r 3; check the NVLinks of {part} and their other ends",
        state=True,
    ),
    Signature(
        "gpu_requires_reset",
        "gpu_off_bus",
        "node",
        6,
        _gpu,
        "reset {part}, then dcgmi diag -r 3; replace it if it returns",
        state=True,
    ),
    Signature(
        "gpu_count",
        "missing_gpu",
        "node",
        7,
        _gpu,
        "find the GPU that does not show: reseat it, check its power and riser",
        state=True,
        when=lambda s: (
            (s.get("detail") or {}).get("expected") is not None and (s.get("value") or 0) < s["detail"]["expected"]
        ),
    ),
    Signature(
        "persistent_error", "silent_data_corruption", "node", 8, _gpu, "run dcgmi diag -r 4 on the node; replace {part}"
    ),
    Signature("memory_ue", "node_crash", "node", 9, _node, "replace the memory module that the kernel names"),
    Signature(
        "pcie_uncorrected",
        "gpu_off_bus",
        "node",
        9,
        _gpu,
        "check the riser and slot of {part}",
        when=lambda s: bool(s.get("gpu") is not None),
    ),
    Signature(
        "node_failure",
        "node_crash",
        "node",
        10,
        _node,
        "look at the node's console and BMC event log before it is used again",
        when=lambda s: bool(s.get("host")),
    ),
    Signature(
        "link_state",
        "link_flap",
        "node",
        11,
        _hca,
        "check cable, transceiver and switch port of {part} on both ends",
        state=True,
    ),
    Signature("link_down_count", "link_flap", "node", 12, _hca, "reseat or replace cable and transceiver of {part}"),
    Signature(
        "link_effective_ber",
        "link_degrading",
        "node",
        11,
        _hca,
        "clean or replace cable and transceiver of {part}; look at both ends",
        state=True,
    ),
    Signature(
        "nccl_port_error",
        "link_flap",
        "node",
        13,
        _hca,
        "check cable and transceiver of {part}; read mlxlink -c on both ends",
    ),
    Signature(
        "ib_port_down",
        "link_flap",
        "node",
        14,
        _hca,
        "check cable and transceiver of {part}; read mlxlink -c on both ends",
    ),
    Signature(
        "module_temperature",
        "transceiver_hot",
        "node",
        11,
        _hca,
        "replace the transceiver of {part}; check the airflow at the port",
        state=True,
        when=lambda s: s.get("value") is not None and s.get("limit") is not None and s["value"] >= s["limit"],
    ),
    Signature(
        "module_rx_power",
        "link_degrading",
        "node",
        15,
        _hca,
        "clean the connector or replace the optic of {part}",
        state=True,
    ),
    Signature(
        "inlet_temperature",
        "inlet_hot",
        "node",
        16,
        _sensor,
        "check the cold aisle and the door of this rack",
        state=True,
        when=lambda s: bool((s.get("detail") or {}).get("status") in ("cr", "nr", "ucr", "unr", "nc", "unc")),
    ),
    Signature(
        "throttle",
        "gpu_slow",
        "node",
        20,
        _gpu,
        "check fans and airflow first, then the heat sink of {part}",
        state=True,
    ),
    Signature(
        "sensor_critical",
        "inlet_hot",
        "node",
        21,
        _sensor,
        "look at the BMC event log; check {part}",
        state=True,
        stops=False,
        when=lambda s: "TEMP" in _sensor(s).upper(),
    ),
    Signature("dcgm_health", "gpu_slow", "node", 22, _gpu, "run dcgmi diag -r 3 on the node", state=True),
    Signature("dcgm_diag", "gpu_slow", "node", 22, _gpu, "replace {part}: the diagnostic names it", state=True),
    Signature("oom_host", "oom_one_node", "group", 30, _node, "look for a left-over process that holds the memory"),
    # correctness: somebody computed or carried wrong numbers; who it was, the peers or the isolation say
    Signature(
        "wrong_elements",
        "silent_data_corruption",
        "group",
        40,
        _node,
        "run dcgmi diag -r 4 on the node; wrong sums are hardware, never tuning",
    ),
    Signature(
        "out_of_bounds",
        "silent_data_corruption",
        "group",
        40,
        _node,
        "run dcgmi diag -r 4 on the node; wrong sums are hardware, never tuning",
    ),
    Signature(
        "residual_failed",
        "silent_data_corruption",
        "group",
        41,
        _node,
        "run dcgmi diag -r 4 on the node; a failed residual is hardware, never tuning",
    ),
    Signature(
        "loss_nan",
        "nan_loss",
        "group",
        42,
        _node,
        "run dcgmi diag -r 3 or -r 4 on the node: with a known recipe NaN is wrong arithmetic",
    ),
    Signature("loss_jump", "nan_loss", "group", 43, _node, "run dcgmi diag -r 3 or -r 4 on the node", stops=False),
    # a rank's own error names its node and GPU; the first by time is the suspect
    Signature(
        "cuda_error", "gpu_off_bus", "node", 18, _gpu, "look for an Xid of {part}; drain the node, then dcgmi diag -r 3"
    ),
    Signature(
        "torchrun_root_cause", "hang", "group", 50, _node, "read the log of the rank that failed first", stops=False
    ),
    Signature(
        "watchdog_timeout", "hang", "group", 51, _node, "rerun with NCCL_DEBUG=INFO; look for the rank that fell silent"
    ),
    Signature(
        "nccl_timeout", "hang", "group", 51, _node, "rerun with NCCL_DEBUG=INFO; look for the rank that fell silent"
    ),
    Signature(
        "nccl_completion_error", "link_flap", "group", 52, _node, "read the link counters of both ends", stops=False
    ),
    Signature("nccl_test_failure", "hang", "group", 53, _node, "read the first error of the log", stops=False),
    Signature(
        "checkpoint_failed",
        "checkpoint_fails",
        "config",
        60,
        _storage,
        "check space, quota and rights of the checkpoint folder",
    ),
    # configuration: nobody is to blame, nothing is drained
    Signature(
        "driver_mismatch",
        "driver_mismatch",
        "config",
        70,
        _stack,
        "use a container that fits the driver, or update the driver as planned",
    ),
    Signature(
        "nccl_socket",
        "nccl_on_sockets",
        "config",
        71,
        _config,
        "make the HCAs visible in the container (NCCL_IB_HCA, devices, memlock); never burn in on sockets",
    ),
    Signature(
        "nccl_no_device",
        "nccl_on_sockets",
        "config",
        71,
        _config,
        "make the HCAs visible in the container (NCCL_IB_HCA, devices, memlock); never burn in on sockets",
    ),
    Signature(
        "oom_gpu",
        "oom_all_nodes",
        "config",
        72,
        _config,
        "lower MBS or sequence length, or raise TP, PP or CP: the recipe does not fit the GPUs",
    ),
    Signature("hpl_error", "oom_all_nodes", "config", 73, _config, "correct HPL.dat: memory fraction, P x Q, NB"),
    Signature(
        "invalid_launch",
        "driver_mismatch",
        "config",
        74,
        _config,
        "the processes did not find each other: correct the MPI plugin (slurm.mpi) or the launch line",
    ),
    # what it means depends on the step: a first job says it rightly; judging.resume decides
    Signature("resume_from_scratch", "resume_from_scratch", "note", 75, _config, "see the resume test", stops=False),
    Signature(
        "time_limit",
        "time_limit",
        "config",
        80,
        _config,
        "raise the time limit, or make an iteration shorter",
        stops=False,
    ),
)


@cache
def _by_kind() -> dict[str, tuple[Signature, ...]]:
    """Return the rows of each kind, in table order."""
    kinds: dict[str, tuple[Signature, ...]] = {}
    for row in TABLE:
        kinds[row.kind] = (*kinds.get(row.kind, ()), row)
    return kinds


def signature_of(seen: Seen) -> Signature | None:
    """Return the first row that fits a signal (JSON form), or None if it convicts nobody. Xids have their own table."""
    return next((row for row in _by_kind().get(seen["kind"], ()) if row.when(seen)), None)


@cache
def _fatal_xids() -> frozenset[int]:
    from burnin import xid

    return frozenset(code for code, entry in xid.load_table().codes.items() if entry.severity == "fatal")


def stops_run(seen: Seen) -> bool:
    """Tell whether a signal ends a run at once: going on would burn hours on a machine that is known to be broken."""
    if seen["kind"] == "xid":
        return int(seen.get("value") or 0) in _fatal_xids()
    row = signature_of(seen)
    return row is not None and row.stops and row.scope in ("node", "group", "config")


def state_stops_run(seen: Seen) -> bool:
    """Tell whether a signal of the probe *before* a run forbids it: only what lasts, never an old event."""
    row = signature_of(seen)
    return row is not None and row.state and row.stops and row.scope == "node"
