# SPDX-License-Identifier: Apache-2.0
"""What a signal implicates: the fault, the part, who is to blame, and what to do next. One table, read from the top.

`scope` says whom a signal convicts: `node` (the node that showed it), `group` (somebody in the group, not known who),
`config` (nobody: the campaign's configuration), `note` (nobody: kept as evidence only). Victims' voices, such as a
watchdog time-out or a task that was killed, are never more than `group`.
`rank` orders faults of one node: the cause stands before its consequences (a failed fan before the hot GPU).
`confidence`: `certain` (the tool names the part), `likely` (the usual cause of what was seen), `possible` (one of several).
Every kind of the parsers' vocabulary has a row: what is not a reason to drop anybody is a `note` on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Scope = Literal["node", "group", "config", "note"]
Confidence = Literal["certain", "likely", "possible"]
Seen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Alone:
    """What a configuration's fault is if a minority of the nodes shows it: then it is theirs."""

    fault: str
    part: str
    action: str


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table.

    `state` marks what lasts (read in any probe it counts); others count only when new in a run. `stops`: going on would
    burn hours on a machine that is known to be broken. `alone`: see `Alone`. `nobodys`: it stays the
    configuration's, however few nodes show it. `everywhere`: what a group's fault means
    if most groups of a heat show it (then it is the configuration's), in the operator's words.
    """

    kind: str
    fault: str
    scope: Scope
    rank: int
    part: Callable[[Seen], str]
    action: str
    stops: bool = True
    state: bool = False
    when: Callable[[Seen], bool] = lambda seen: True
    confidence: Confidence = "certain"
    alone: Alone | None = None
    nobodys: bool = False
    everywhere: str = ""


def _gpu(seen: Seen) -> str:
    """Return gpu<index>, or the PCI address, or `gpu?`."""
    if seen.get("gpu") is not None:
        return f"gpu{seen['gpu']}"
    return f"gpu@{seen['bdf']}" if seen.get("bdf") else "gpu?"


def _gpu_or_node(seen: Seen) -> str:
    """Return the GPU if the line names one, else the node: DCGM also checks what belongs to no GPU."""
    part = _gpu(seen)
    return "node" if part == "gpu?" else part


def _hca(seen: Seen) -> str:
    """Return the HCA; NCCL's old lines name only the device index of the process, which is its rail."""
    device = seen.get("device")
    if device:
        return str(device).split(":")[0]
    if seen.get("gpu") is not None:
        return f"mlx5_{seen['gpu']}"
    return f"hca@{seen['bdf']}" if seen.get("bdf") else "hca?"


def _fan(seen: Seen) -> str:
    """Return the fan module: FAN6_F and FAN6_R are one part."""
    return re.sub(r"_[FR]$", "", str(seen.get("device") or "fan?"))


def _sensor(seen: Seen) -> str:
    return str(seen.get("device") or "node")


def _psu(seen: Seen) -> str:
    """Return the power supply: PSU2_PIN is a reading of PSU2."""
    match = re.match(r"(PSU\s?[0-9]+)", _sensor(seen), re.IGNORECASE)
    return match[1].replace(" ", "") if match else _sensor(seen)


def _dimm(seen: Seen) -> str:
    return str(seen.get("device") or "node")


def _node(seen: Seen) -> str:
    return "node"


def _config(seen: Seen) -> str:
    return "config"


def _stack(seen: Seen) -> str:
    return "stack"


def _storage(seen: Seen) -> str:
    return "storage"


def _fabric(seen: Seen) -> str:
    return str(seen.get("device") or "fabric")


def _detail(seen: Seen, key: str) -> Any:
    return (seen.get("detail") or {}).get(key)


def _says(key: str, *words: str) -> Callable[[Seen], bool]:
    """Return a test: one of the words is in the detail."""
    return lambda seen: any(word in str(_detail(seen, key) or "").lower() for word in words)


RESEAT = "drain the node, reseat or replace {part}, run dcgmi diag -r 3, then record the repair"
DIAG4 = "run dcgmi diag -r 4 on the node, rerun without it; wrong numbers are hardware, never tuning"
NAN = (
    "rerun without the suspect node; dcgmi diag -r 3 or -r 4 on it: if NaN follows one node, with a known recipe, it is "
    "wrong arithmetic"
)
NAN_EVERYWHERE = (
    "the loss is NaN on any set of nodes, so it is the recipe: check learning rate, precision and the container before "
    "anybody looks at hardware"
)
LINK = "clean or replace cable and transceiver of {part}; look at both ends, then clear and read the counters again"
NVLINK = "run dcgmi diag -r 3; check the NVLinks of {part} and their other ends"
HANG = (
    "rerun with NCCL_DEBUG=INFO; nccl-tests on subsets of the nodes and per rail; link counters; ibdiagnet: either one "
    "link or rail is stuck, or one process"
)
SOCKETS = "make the HCAs visible in the container (NCCL_IB_HCA, devices, memlock); never burn in on sockets"
NO_DEVICE = (
    "NCCL's network settings inside the container are wrong (IB devices not visible, NCCL_IB_HCA, NCCL_SOCKET_IFNAME, "
    "memlock): run nccl-tests in the same container on the same nodes, correct them; never burn in on sockets"
)
STACK = (
    "put back what it was; if the change is meant, record it (burnin freeze --why ...): the stack is frozen anew, and what ran "
    "before ran on the old one (burnin rerun repeats it)"
)
NODES_STACK = (
    "put back what it was, or record that the change is meant (burnin freeze --why ...); the next gate and the next start of "
    "snakemake look at the node, and it comes back by itself"
)
CONSOLE = "look at the node's console and BMC event log before it is used again"

ON_THIS_NODE = Alone(
    "oom_one_node", "node", "look on this node for a left-over process, MIG, another GPU model (nvidia-smi)"
)
OTHER_STACK = Alone(
    "driver_mismatch", "stack", "this node's driver or container differs from the others': install what they have"
)
OWN_NETWORK = Alone(
    "nccl_on_sockets",
    "stack",
    "this node's HCAs are not visible in the container: driver, devices, memlock of the node",
)

_CRITICAL = ("cr", "nr", "ucr", "unr", "nc", "unc")

TABLE: tuple[Signature, ...] = (
    # platform and GPU: the tool names the part
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
    # gone before the run began, nobody saw it fall: what is known is that it is missing
    Signature(
        "gpu_lost",
        "missing_gpu",
        "node",
        2,
        _gpu,
        "find {part}, which does not show: reseat it, check its power and riser, then dcgmi diag -r 3",
        state=True,
        when=lambda s: s.get("when") == "before",
    ),
    Signature("gpu_lost", "gpu_off_bus", "node", 3, _gpu, RESEAT, state=True),
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
    Signature("ecc_uncorrectable", "hbm_ecc_uncorrectable", "node", 4, _gpu, RESEAT),
    Signature("cuda_nvlink", "nvlink_error", "node", 5, _gpu, NVLINK),
    Signature("nvlink_error", "nvlink_error", "node", 5, _gpu, NVLINK, state=True),
    Signature(
        "sxid",
        "nvlink_error",
        "node",
        5,
        lambda s: "nvswitch",
        "run dcgmi diag -r 3; a fatal SXid that returns is the NVSwitch or its board",
        when=lambda s: bool(_detail(s, "fatal")),
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
        "find the GPU that does not show: reseat it, check its power and riser, then dcgmi diag -r 3",
        state=True,
        everywhere="most nodes show fewer GPUs than gpus_per_node says: correct it, or find out what hides them (MIG, driver)",
        when=lambda s: _detail(s, "expected") is not None and (s.get("value") or 0) < _detail(s, "expected"),
    ),
    Signature(
        "persistent_error",
        "silent_data_corruption",
        "node",
        8,
        _gpu,
        "run dcgmi diag -r 4 on the node; replace {part}",
        confidence="likely",
    ),
    Signature("memory_ue", "node_crash", "node", 9, _dimm, "replace the memory module that the kernel names ({part})"),
    Signature(
        "pcie_uncorrected",
        "gpu_off_bus",
        "node",
        9,
        _gpu,
        "check the riser and slot of {part}",
        when=lambda s: s.get("gpu") is not None,
        confidence="likely",
    ),
    Signature("kernel_panic", "node_crash", "node", 9, _node, CONSOLE),
    Signature(
        "machine_check",
        "node_crash",
        "node",
        9,
        _node,
        "read the machine check (rasdaemon, BMC event log); replace what it names",
        when=_says("severity", "fatal", "uncorrect"),
        confidence="likely",
    ),
    Signature("node_failure", "node_crash", "node", 10, _node, CONSOLE, when=lambda s: bool(s.get("host"))),
    Signature("rebooted", "node_crash", "node", 10, _node, CONSOLE),
    # links: what the port itself says
    Signature(
        "link_state",
        "link_flap",
        "node",
        11,
        _hca,
        "check cable, transceiver and switch port of {part} on both ends",
        state=True,
    ),
    Signature("link_effective_ber", "link_degrading", "node", 11, _hca, LINK, state=True),
    Signature(
        "module_temperature",
        "transceiver_hot",
        "node",
        10,
        _hca,
        "replace the transceiver of {part}; check the airflow at the port",
        state=True,
        when=lambda s: s.get("value") is not None and s.get("limit") is not None and s["value"] >= s["limit"],
    ),
    Signature("link_down_count", "link_flap", "node", 12, _hca, "reseat or replace cable and transceiver of {part}"),
    Signature(
        "link_speed",
        "rail_slow",
        "node",
        12,
        _hca,
        "the port trained below its rate: reseat or replace the cable of {part}, check the switch port's settings",
        state=True,
    ),
    Signature(
        "nccl_port_error",
        "link_flap",
        "node",
        13,
        _hca,
        "check cable and transceiver of {part}; read mlxlink -c on both ends; split nccl-tests by rail",
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
        "hca_event",
        "transceiver_hot",
        "node",
        10,
        _hca,
        "replace the transceiver of {part}; check the airflow at the port",
        when=_says("what", "temperature"),
        confidence="likely",
    ),
    Signature(
        "hca_event",
        "link_flap",
        "node",
        14,
        _hca,
        "check cable, module and slot power of {part}",
        when=_says("what", "transceiver", "cable", "power"),
        confidence="likely",
    ),
    Signature("link_recovery_count", "link_degrading", "node", 15, _hca, LINK, stops=False, confidence="likely"),
    Signature(
        "module_rx_power",
        "link_degrading",
        "node",
        15,
        _hca,
        "clean the connector or replace the optic of {part}: a weak lane gets worse as it heats up",
        state=True,
        confidence="likely",
    ),
    Signature(
        "module_tx_power",
        "link_degrading",
        "node",
        15,
        _hca,
        "replace the transceiver of {part}: its laser is weak",
        state=True,
        confidence="likely",
    ),
    Signature(
        "link_opcode",
        "link_degrading",
        "node",
        16,
        _hca,
        "follow mlxlink's own recommendation for {part}",
        state=True,
        stops=False,
        confidence="likely",
    ),
    Signature(
        "inlet_temperature",
        "inlet_hot",
        "node",
        16,
        _sensor,
        "check the cold aisle and the door of this rack",
        state=True,
        when=lambda s: _detail(s, "status") in _CRITICAL,
    ),
    # a rank's own error names its node and GPU; the first by time is the suspect
    Signature(
        "cuda_error",
        "gpu_off_bus",
        "node",
        18,
        _gpu,
        "look for an Xid of {part} in dmesg; drain the node, then dcgmi diag -r 3",
        confidence="likely",
    ),
    Signature(
        "straggler",
        "straggler",
        "node",
        19,
        _gpu_or_node,
        "look at clocks, throttle reasons and power of {part}: one slow GPU slows the whole job; then dcgmi diag -r 3",
        stops=False,
        when=lambda s: s.get("value") is not None and s["value"] < 0.7,
        confidence="likely",
    ),
    Signature(
        "throttle",
        "gpu_slow",
        "node",
        20,
        _gpu,
        "check fans and airflow first, then the heat sink and power of {part}",
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
        confidence="likely",
    ),
    Signature(
        "sensor_critical",
        "node_crash",
        "node",
        21,
        _sensor,
        "look at the BMC event log; check {part}",
        state=True,
        stops=False,
        confidence="possible",
    ),
    Signature(
        "dcgm_health",
        "gpu_slow",
        "node",
        22,
        _gpu_or_node,
        "run dcgmi diag -r 3 on the node",
        state=True,
        confidence="likely",
    ),
    Signature("dcgm_diag", "gpu_slow", "node", 22, _gpu_or_node, "replace {part}: the diagnostic names it", state=True),
    Signature(
        "oom_host",
        "oom_one_node",
        "group",
        30,
        _node,
        "look for a left-over process that holds the memory",
        confidence="likely",
    ),
    # correctness: somebody computed or carried wrong numbers; who it was, the peers or the isolation say
    Signature("wrong_elements", "silent_data_corruption", "group", 40, _node, DIAG4),
    Signature("out_of_bounds", "silent_data_corruption", "group", 40, _node, DIAG4),
    Signature("residual_failed", "silent_data_corruption", "group", 41, _node, DIAG4),
    Signature("loss_nan", "nan_loss", "group", 42, _node, NAN, everywhere=NAN_EVERYWHERE, confidence="likely"),
    Signature(
        "loss_jump", "nan_loss", "group", 43, _node, NAN, stops=False, everywhere=NAN_EVERYWHERE, confidence="possible"
    ),
    # victims and symptoms: they name no culprit
    Signature(
        "torchrun_root_cause",
        "hang",
        "group",
        50,
        _node,
        "read the log of the rank that failed first",
        stops=False,
        confidence="possible",
    ),
    Signature("watchdog_timeout", "hang", "group", 51, _node, HANG, confidence="possible"),
    Signature("nccl_timeout", "hang", "group", 51, _node, HANG, confidence="possible"),
    Signature(
        "nccl_completion_error",
        "link_flap",
        "group",
        52,
        _node,
        "read the link counters of both ends",
        stops=False,
        confidence="possible",
    ),
    Signature(
        "nccl_test_failure",
        "hang",
        "group",
        53,
        _node,
        "read the first error of the log",
        stops=False,
        confidence="possible",
    ),
    Signature(
        "task_exit",
        "hang",
        "note",
        54,
        _node,
        "a symptom: every task exits once one fails; scroll up to the first error",
        stops=False,
    ),
    Signature(
        "step_cancelled",
        "time_limit",
        "note",
        54,
        _node,
        "a symptom: find out who cancelled the step, and why",
        stops=False,
    ),
    # configuration: nobody is to blame, nothing is drained
    Signature(
        "checkpoint_failed",
        "checkpoint_fails",
        "config",
        60,
        _storage,
        "check space, quota and rights of the checkpoint folder",
        alone=Alone(
            "checkpoint_fails",
            "storage",
            "check this node's mount of the checkpoint folder: space, rights, network to the storage",
        ),
    ),
    Signature("stack_changed", "stack", "config", 65, _stack, STACK, state=True, nobodys=True),
    Signature(
        "driver_mismatch",
        "driver_mismatch",
        "config",
        70,
        _stack,
        "pick a container that fits the driver (its support matrix), or update the driver as planned",
        alone=OTHER_STACK,
    ),
    Signature("nccl_socket", "nccl_on_sockets", "config", 71, _config, SOCKETS, alone=OWN_NETWORK),
    Signature("nccl_no_device", "nccl_on_sockets", "config", 71, _config, NO_DEVICE, alone=OWN_NETWORK),
    Signature(
        "oom_gpu",
        "oom_all_nodes",
        "config",
        72,
        _config,
        "lower MBS or sequence length, or raise TP, PP or CP, or turn recompute on: the recipe does not fit the GPUs",
        alone=ON_THIS_NODE,
    ),
    Signature(
        "hpl_error",
        "oom_all_nodes",
        "config",
        73,
        _config,
        "correct HPL.dat: memory fraction, P x Q, NB",
        alone=ON_THIS_NODE,
    ),
    Signature(
        "invalid_launch",
        "driver_mismatch",
        "config",
        74,
        _config,
        "the processes did not find each other: correct the MPI plugin (slurm.mpi) or the launch line",
        alone=OTHER_STACK,
    ),
    Signature(
        "launch_error",
        "driver_mismatch",
        "config",
        74,
        _config,
        "the program could not be started: check the container image, its mounts and the launch line",
        stops=False,
        alone=OTHER_STACK,
        confidence="likely",
    ),
    Signature(
        "time_limit",
        "time_limit",
        "config",
        80,
        _config,
        "raise the time limit, or make an iteration shorter, or rely on checkpoints and resume",
        stops=False,
    ),
    Signature(
        "fabric_check",
        "fabric_slow",
        "group",
        55,
        _fabric,
        "read ibdiagnet2.log for the ports it names; check both ends of those links",
        stops=False,
    ),
    Signature("port_counter", "link_degrading", "group", 55, _fabric, LINK, stops=False, confidence="likely"),
    # what it means depends on more than the line: noted, judged elsewhere or not at all
    Signature("resume_from_scratch", "resume_from_scratch", "note", 75, _config, "see the resume test", stops=False),
    Signature(
        "row_remap_pending",
        "row_remap_failed",
        "note",
        90,
        _gpu,
        "reset {part} at the next pause so that the remapped row takes effect",
        stops=False,
    ),
    *(
        Signature(kind, fault, "note", 99, _node, "kept as evidence", stops=False)
        for kind, fault in (
            ("nccl_port_active", "link_flap"),
            ("nccl_warn", "hang"),
            ("below_limit", "link_degrading"),
            ("hpl_gpu_warning", "gpu_slow"),
            ("straggler", "straggler"),
            ("sxid", "nvlink_error"),
            ("gpu_count", "missing_gpu"),
            ("ecc_correctable", "hbm_ecc_uncorrectable"),
            ("row_remap_count", "row_remap_failed"),
            ("gpu_temperature", "gpu_slow"),
            ("gpu_power", "gpu_slow"),
            ("link_effective_errors", "link_degrading"),
            ("module_temperature", "transceiver_hot"),
            ("ib_port_up", "link_flap"),
            ("fabric_nodes", "fabric_slow"),
            ("pcie_uncorrected", "gpu_off_bus"),
            ("pcie_corrected", "gpu_off_bus"),
            ("memory_ce", "node_crash"),
            ("kernel_hang", "hang"),
            ("machine_check", "node_crash"),
            ("cpu_throttle", "gpu_slow"),
            ("hca_event", "link_flap"),
            ("log_starts", "node_crash"),
            ("sensor_warning", "inlet_hot"),
            ("inlet_temperature", "inlet_hot"),
            ("sel_event", "node_crash"),
            ("node_failure", "node_crash"),
            ("node_state", "node_crash"),
            ("job_state", "node_crash"),
            ("unreadable", "probe_unreadable"),
        )
    ),
)
#: What the Xid table judges; it has no row here.
XID_KINDS = frozenset({"xid"})


@cache
def _by_kind() -> dict[str, tuple[Signature, ...]]:
    """Return the rows of each kind, in table order."""
    kinds: dict[str, tuple[Signature, ...]] = {}
    for row in TABLE:
        kinds[row.kind] = (*kinds.get(row.kind, ()), row)
    return kinds


def signature_of(seen: Seen) -> Signature | None:
    """Return the first row that fits a signal (JSON form), or None if there is none. Xids have their own table."""
    return next((row for row in _by_kind().get(seen["kind"], ()) if row.when(seen)), None)


@cache
def config_row(fault: str) -> Signature | None:
    """Return the first row of a configuration's fault, for what it is when one node alone has it."""
    return next((row for row in TABLE if row.scope == "config" and row.fault == fault and row.alone), None)


@cache
def nobodys(fault: str) -> bool:
    """Tell whether a configuration's fault never becomes a node's."""
    return any(row.nobodys for row in TABLE if row.fault == fault)


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
