# SPDX-License-Identifier: Apache-2.0
"""The kinds of fault the lab knows: what they need in a scenario, and what the technician does about them."""

from __future__ import annotations

#: Tools that `probe_unreadable` can silence.
TOOLS = ("dmesg", "dcgmi", "nvidia-smi", "mlxlink", "ipmitool")
STEPS_TEXT = "single, x2, x4 ... (powers of two), halves, full or resume"
WORKLOADS = ("nccl", "hpl", "nemo", "squad")


class Kind:
    """One kind of fault.

    parts: classes of parts it can sit in; part: the part when the scenario names none. node: `yes` needs `node`,
    `maybe` can do without (then it is everybody's: a configuration fault), `no` has none, `between` needs `between`.
    static: true from power-on, unless the scenario restricts where it shows. sticks: once shown, everything that
    uses the part fails until the repair. reboot: the repair is done with the power off. fix: what the technician says.
    """

    __slots__ = ("fix", "node", "part", "parts", "reboot", "static", "sticks")

    def __init__(
        self,
        parts: tuple[str, ...],
        fix: str,
        part: str | None = None,
        node: str = "yes",
        static: bool = False,
        sticks: bool = False,
        reboot: bool = False,
    ) -> None:
        self.parts, self.fix, self.part, self.node = parts, fix, part, node
        self.static, self.sticks, self.reboot = static, sticks, reboot


KINDS: dict[str, Kind] = {
    "link_degrading": Kind(("hca",), "replaced the cable"),
    "link_flap": Kind(("hca",), "reseated both ends of the cable and replaced it"),
    "transceiver_hot": Kind(("hca",), "cleaned the connector and replaced the transceiver"),
    "rail_slow": Kind(("hca",), "replaced the cable, the port trains at full rate again", static=True),
    "fabric_slow": Kind(("switch",), "replaced the bad uplinks between the switches", part="switch", node="between"),
    "nvlink_error": Kind(("gpu",), "replaced the GPU module", reboot=True),
    "gpu_off_bus": Kind(("gpu",), "replaced the GPU module", sticks=True, reboot=True),
    "gpu_slow": Kind(("gpu",), "replaced the GPU module", static=True, reboot=True),
    "hbm_ecc_uncorrectable": Kind(("gpu",), "replaced the GPU module", reboot=True),
    "row_remap_failed": Kind(("gpu",), "replaced the GPU module", static=True, reboot=True),
    "silent_data_corruption": Kind(("gpu",), "replaced the GPU module", reboot=True),
    "fan_failed": Kind(("fan",), "replaced the fan module", static=True),
    "psu_failed": Kind(("psu",), "replaced the power supply", static=True),
    "inlet_hot": Kind(
        ("node", "inlet"), "fitted the missing blanking panels, inlet air is cold again", "node", static=True
    ),
    "node_crash": Kind(
        ("node",), "replaced the system board and powered the node on", "node", sticks=True, reboot=True
    ),
    "hang": Kind(("node", "gpu"), "replaced the faulty module and rebooted the node", "node", reboot=True),
    "nan_loss": Kind(("node", "gpu", "config"), "corrected what made the loss NaN", "node", node="maybe"),
    "straggler": Kind(("node", "gpu"), "replaced the slow GPU module", "node", reboot=True),
    "storage_slow": Kind(("storage",), "took the rebuilding storage target out of the pool", "storage", node="no"),
    "checkpoint_fails": Kind(("storage",), "freed space on the file system", "storage", node="no"),
    "resume_from_scratch": Kind(("config",), "pointed AutoResume at the log directory of the job", "config", node="no"),
    "nccl_on_sockets": Kind(("stack", "config"), "made the InfiniBand devices visible again", "stack", node="maybe"),
    "oom_one_node": Kind(("node", "gpu"), "killed the left-over process that held GPU memory", "node"),
    "oom_all_nodes": Kind(("config",), "put the micro batch size of the recipe right", "config", node="no"),
    "driver_mismatch": Kind(("stack",), "installed the driver of the other nodes", "stack", static=True, reboot=True),
    "missing_gpu": Kind(("gpu",), "reseated the GPU module", static=True, sticks=True, reboot=True),
    "time_limit": Kind(("config",), "raised the time limit of the job", "config", node="no"),
    "probe_unreadable": Kind(("tool",), "restarted the service behind the tool", static=True),
}


def part_class(part: str, gpus: int) -> str | None:
    """`gpu5` -> `gpu`, `FAN6` -> `fan`, ... None for a part that no node of the lab has."""
    if part in ("node", "inlet", "storage", "config", "stack"):
        return part
    if part in TOOLS:
        return "tool"
    for head, cls, low, high in (
        ("gpu", "gpu", 0, gpus - 1),
        ("mlx5_", "hca", 0, gpus - 1),
        ("FAN", "fan", 1, 6),
        ("PSU", "psu", 1, 6),
    ):
        digits = part[len(head) :]
        if part.startswith(head) and digits.isdigit() and digits == str(int(digits)) and low <= int(digits) <= high:
            return cls
    if part.startswith(("switch", "leaf", "spine", "fabric")):
        return "switch"
    return None


def parts_text(gpus: int, classes: tuple[str, ...]) -> str:
    """The parts of these classes, for messages."""
    names = {
        "gpu": f"gpu0..gpu{gpus - 1}",
        "hca": f"mlx5_0..mlx5_{gpus - 1}",
        "fan": "FAN1..FAN6",
        "psu": "PSU1..PSU6",
        "tool": ", ".join(TOOLS),
        "switch": "switch, leafNN, spineNN",
    }
    return ", ".join(names.get(c, c) for c in classes)
