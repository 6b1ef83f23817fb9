# SPDX-License-Identifier: Apache-2.0
"""What the tools of one node print, from the scenario, the node's events and seeded noise."""

from __future__ import annotations

import time

from model.base import between, hexes, pick
from model.store import Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

DRIVER, OLD_DRIVER, CUDA = "550.54.15", "535.161.08", "12.4"
KERNEL = "5.15.0-1042-nvidia"
_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df", "e4", "e9", "ea", "eb", "ec", "ed", "ee", "ef")
_HCA_BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc", "e1", "e2", "e5", "e6", "e7", "e8", "f1", "f2")
FANS = 6
PSUS = 6


def gpu_bus(gpu: int) -> str:
    """The PCI bus number of a GPU, two hexadecimal digits."""
    return _BUSES[gpu]


def leftover_pid(lab: Lab, node: str, gpu: int) -> int:
    """The process that a fault left on a GPU, the same in every tool."""
    return pick(20000, 37999, "leftover", lab.seed, node, gpu)


class Node:
    """One node as its events left it."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.gpus = lab.gpus
        seed = lab.seed
        self.boot = lab.created - 86400 * between(2.0, 4.0, "boot", seed, name)
        self.serials: dict[str, int] = {}
        self.cleared = lab.created - 86400 * between(1.0, 1.2, "cleared", seed, name)
        faults = [f for f in lab.faults if f["node"] == name]
        by_id = {f["id"]: f for f in faults}
        seen: dict[str, list[dict[str, Any]]] = {f["id"]: [{"t": self.boot + 31.0}] for f in faults if f["static"]}
        self.log: list[tuple[float, dict[str, Any], int]] = [(self.boot + 31.0, f, 0) for f in faults if f["static"]]
        for event in lab.events(name):
            what, t = event.get("e"), float(event.get("t", 0.0))
            if what == "fault" and event.get("id") in by_id:
                fault = by_id[str(event["id"])]
                known = seen.setdefault(fault["id"], [])
                self.log.append((t, fault, len(known)))
                known.append(event)
            elif what == "repair":
                for fid in event.get("faults", ()):
                    seen[fid] = []
                    by_id.pop(fid, None)
                part = str(event.get("part"))
                self.serials[part] = self.serials.get(part, 0) + 1
                if event.get("reboot"):
                    self.boot = t - 61.0
                    self.cleared = self.boot
                    self.log = []
                    for fault in by_id.values():
                        if fault["static"]:
                            self.log.append((self.boot + 31.0, fault, 0))
            elif what == "clear":
                self.cleared = t
        #: Faults that have shown and were not repaired, with the events that tell so.
        self.shown: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
            (by_id[fid], events) for fid, events in seen.items() if events and fid in by_id
        ]
        self.log.sort(key=lambda entry: entry[0])

    def of(self, *kinds: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The faults of these kinds that have left traces."""
        return [(f, e) for f, e in self.shown if f["kind"] in kinds]

    def part_of(self, *kinds: str) -> dict[str, int]:
        """Part -> number of times, for these kinds."""
        return {f["part"]: len(events) for f, events in self.of(*kinds)}

    def noise(self, *keys: object) -> tuple[object, ...]:
        """Keys of this node's own noise."""
        return (self.lab.seed, self.name, *keys)

    # --- GPUs ---

    def uuid(self, gpu: int) -> str:
        """UUID of the GPU module in this slot; a replaced module has another."""
        h = hexes(32, "uuid", *self.noise(gpu, self.serials.get(f"gpu{gpu}", 0)))
        return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def serial(self, gpu: int) -> str:
        """Serial number of the GPU module in this slot."""
        return f"165{pick(0, 10**10 - 1, 'serial', *self.noise(gpu, self.serials.get(f'gpu{gpu}', 0))):010d}"

    def lost(self) -> set[int]:
        """GPUs that fell off the bus (the driver still has their handle)."""
        return {int(p[3:]) for p in self.part_of("gpu_off_bus")}

    def missing(self) -> set[int]:
        """GPUs that were never found at boot."""
        return {int(p[3:]) for p in self.part_of("missing_gpu")}

    def driver(self) -> str:
        """Driver version."""
        return OLD_DRIVER if self.of("driver_mismatch") else DRIVER

    def hot(self) -> set[int]:
        """GPUs behind a failed fan: fan module N cools the GPU at N - 1."""
        return {min(int(p[3:]) - 1, self.gpus - 1) for p in self.part_of("fan_failed")}

    def temperature(self, gpu: int) -> int:
        """GPU temperature under load, C."""
        base = pick(60, 65, "temp", *self.noise(gpu))
        if gpu in self.hot():
            return 88
        return min(84, base + 20) if self.of("inlet_hot") else base

    def clock(self, gpu: int) -> int:
        """SM clock, MHz."""
        if gpu in self.hot():
            return 1305
        if f"gpu{gpu}" in self.part_of("gpu_slow"):
            return 1410
        return 1635 if self.of("inlet_hot") else 1980

    def power(self, gpu: int) -> float:
        """Power draw under load, W."""
        base = between(684.0, 694.0, "power", *self.noise(gpu))
        return base * {1305: 0.89, 1410: 0.78, 1635: 0.95}.get(self.clock(gpu), 1.0)

    def inlet(self) -> int:
        """Inlet air, C."""
        return 43 if self.of("inlet_hot") else pick(22, 25, "inlet", *self.noise())

    # --- HCAs ---

    def hca_serial(self, hca: int) -> str:
        """Serial number of the cable or module on this port."""
        n = self.serials.get(f"mlx5_{hca}", 0)
        return f"MT24{pick(10, 52, 'week', *self.noise(hca, n)):02d}LAB{pick(0, 99999, 'sn', *self.noise(hca, n)):05d}"


# --- kernel log ------------------------------------------------------------------------------------------------------


def _gpu_lines(node: Node, fault: dict[str, Any], index: int) -> list[str]:
    """The kernel's lines for a GPU fault, '\\n' inside a text = a continuation line without time stamp."""
    kind, part = fault["kind"], fault["part"]
    gpu = int(part[3:]) if part.startswith("gpu") else 0
    bdf = f"0000:{gpu_bus(gpu)}:00"
    head = [f"NVRM: GPU at PCI:{bdf}: {node.uuid(gpu)}", f"NVRM: GPU Board Serial Number: {node.serial(gpu)}"]
    if index:
        head = []
    pid = pick(40000, 60000, "pid", *node.noise(fault["id"], index))
    if kind == "gpu_off_bus":
        return [
            *head,
            f"NVRM: Xid (PCI:{bdf}): 79, pid={pid}, name=python, GPU has fallen off the bus.",
            f"NVRM: GPU {bdf}.0: GPU has fallen off the bus.",
            f"NVRM: GPU {bdf}.0: GPU serial number is {node.serial(gpu)}.",
            "NVRM: A GPU crash dump has been created. If possible, please run\n"
            "NVRM: nvidia-bug-report.sh as root to collect this data before\n"
            "NVRM: the NVIDIA kernel module is unloaded.",
        ]
    if kind == "hbm_ecc_uncorrectable":
        row = hexes(8, "row", *node.noise(fault["id"], index))
        return [
            *head,
            f"NVRM: Xid (PCI:{bdf}): 48, pid={pid}, name=python, DBE (double bit error) ECC Error: "
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, "
            "subpartition 1.",
            f"NVRM: Xid (PCI:{bdf}): 63, pid={pid}, name=python, Row Remapper: New row (0x00000000{row}) marked for "
            "remapping, reset gpu to activate.",
            f"NVRM: Xid (PCI:{bdf}): 94, pid={pid}, name=python, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        ]
    if kind == "row_remap_failed":
        return [
            *head,
            f"NVRM: Xid (PCI:{bdf}): 64, pid='<unknown>', name=<unknown>, Row Remapper: "
            "All reserved rows for bank are remapped",
        ]
    if kind == "nvlink_error":
        link = pick(0, 17, "link", *node.noise(fault["id"]))
        return [
            *head,
            f"NVRM: Xid (PCI:{bdf}): 74, pid={pid}, name=python, NVLink: fatal error detected on link {link}"
            "(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
        ]
    if kind == "missing_gpu":
        return [
            f"NVRM: The NVIDIA GPU {bdf}.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            f"nvidia: probe of {bdf}.0 failed with error -1",
        ]
    return []


def kernel_lines(node: Node) -> list[tuple[float, str, str]]:
    """(time, level, text) of the whole ring buffer, oldest first."""
    boot, lines = node.boot, []

    def say(after: float, text: str, level: str = "info") -> None:
        lines.append((boot + after, level, text))

    say(0.0, f"Linux version {KERNEL} (buildd@lcy02-amd64-045) (gcc 11.4.0) #42-Ubuntu SMP PREEMPT_DYNAMIC", "notice")
    say(0.0, f"Command line: BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=UUID=6f1e0c1a ro iommu=pt pci=realloc=off")
    say(2.113, "pci 0000:00:00.0: [8086:09a2] type 00 class 0x088000")
    say(6.204, "mlx5_core 0000:18:00.0: firmware version: 28.39.1002")
    for hca in range(node.gpus):
        device = f"mlx5_core 0000:{_HCA_BUSES[hca]}:00.0 mlx5_{hca}: Port: 1"
        say(14.1 + hca * 0.21, f"{device} Link INIT")
        say(17.6 + hca * 0.33, f"{device} Link ACTIVE")
    say(22.5, "nvidia: loading out-of-tree module taints kernel.", "warn")
    say(22.6, "nvidia-nvlink: Nvlink Core is being initialized, major device number 234")
    say(
        24.0, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver()}  Tue Mar  5 22:23:56 UTC 2024", "notice"
    )
    say(25.3, f"nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  {node.driver()}")
    for i in range(4):
        say(26.0 + i * 0.4, f"nvidia-nvswitch{i}: open (major=510)")
    say(
        41.7,
        "mlx5_core 0000:18:00.0: mlx5_cmd_out_err:838:(pid 2871): ACCESS_REG(0x805) op_mod(0x1) failed, "
        "status bad parameter(0x3), syndrome (0x15c356), err(-22)",
        "err",
    )
    say(58.2, "systemd-journald[1412]: Time spent on flushing to /var/log/journal is 31.022ms for 2204 entries.")
    for t, fault, index in node.log:
        kind, part = fault["kind"], fault["part"]
        if kind in ("link_degrading", "link_flap") and (kind == "link_flap" or index % 2 == 0):
            device = f"mlx5_core 0000:{_HCA_BUSES[int(part[5:])]}:00.0 {part}: Port: 1"
            lines.append((t, "info", f"{device} Link DOWN"))
            lines.append((t + 0.002, "info", f"{device} Link INIT"))
            lines.append((t + 0.004, "info", f"{device} Link ACTIVE"))
        elif kind == "transceiver_hot" and index % 3 == 0:
            bus = _HCA_BUSES[int(part[5:])]
            lines.append(
                (
                    t,
                    "warn",
                    f"mlx5_core 0000:{bus}:00.0: mlx5_port_module_event:1131:(pid 0): "
                    "Port module event[error]: module 0, Cable error, High Temperature",
                )
            )
        elif kind == "hang" and part == "node":
            pid = pick(40000, 60000, "pid", *node.noise(fault["id"], index))
            for text in (
                f"INFO: task python:{pid} blocked for more than 120 seconds.",
                f"      Tainted: P           OE     {KERNEL} #42-Ubuntu",
                '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
                f"task:python          state:D stack:    0 pid:{pid} ppid:     1 flags:0x00004006",
            ):
                lines.append((t, "err", text))
        else:
            for text in _gpu_lines(node, fault, index):
                lines.append((t, "err", text))
    lines.sort(key=lambda line: line[0])
    return lines


def dmesg(node: Node, form: str = "plain", levels: bool = False) -> str:
    """The kernel log: form `plain` (seconds since boot), `ctime` (dmesg -T), `iso`."""
    if any(f["part"] == "dmesg" for f, _e in node.of("probe_unreadable")):
        return ""
    texts = []
    for t, level, text in kernel_lines(node):
        if form == "ctime":
            head = time.strftime("[%a %b %e %H:%M:%S %Y] ", time.localtime(t))
        elif form == "iso":
            zone = time.strftime("%z", time.localtime(t))
            micro = int((t % 1) * 1_000_000)
            head = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(t)) + f",{micro:06d}{zone[:3]}:{zone[3:]} "
        else:
            head = f"[{t - node.boot:12.6f}] "
        if levels:
            head = f"kern  :{level:<6s}: {head}"
        first, *rest = text.split("\n")
        texts.append(head + first)
        texts += [" " * len(head) + line for line in rest]
    return "\n".join(texts) + "\n"


# --- nvidia-smi --------------------------------------------------------------------------------------------------------


def _tree(rows: list[tuple[int, str, object]]) -> str:
    """Rows of (indent, key, value) as `nvidia-smi -q` of the 550 drivers writes them; value None = a section."""
    texts = []
    for depth, key, value in rows:
        label = "    " * depth + key
        texts.append(label if value is None else f"{label:<42s}: {value}")
    return "\n".join(texts)


def gpu_rows(node: Node, gpu: int) -> list[tuple[int, str, object]]:
    """The block of one GPU in `nvidia-smi -q`."""
    bus = gpu_bus(gpu).upper()
    part = f"gpu{gpu}"
    temp, clock = node.temperature(gpu), node.clock(gpu)
    memory = pick(53, 57, "mem", *node.noise(gpu)) + max(0, temp - 65)
    hot, warm = gpu in node.hot(), bool(node.of("inlet_hot"))
    braked = part in node.part_of("gpu_slow")
    dbe = node.part_of("hbm_ecc_uncorrectable").get(part, 0)
    failed = part in node.part_of("row_remap_failed")
    correctable = pick(0, 2, "ce", *node.noise(gpu, node.serials.get(part, 0))) // 2
    left = [f for f, _e in node.of("oom_one_node") if f["part"] in ("node", part)]
    used = 61_884 if left else 7
    on = {True: "Active", False: "Not Active"}
    rows: list[tuple[int, str, object]] = [
        (0, f"GPU 00000000:{bus}:00.0", None),
        (1, "Product Name", "NVIDIA H100 80GB HBM3"),
        (1, "Product Brand", "NVIDIA"),
        (1, "Product Architecture", "Hopper"),
        (1, "Display Mode", "Enabled"),
        (1, "Display Active", "Disabled"),
        (1, "Persistence Mode", "Enabled"),
        (1, "Addressing Mode", "None"),
        (1, "MIG Mode", None),
        (2, "Current", "Disabled"),
        (2, "Pending", "Disabled"),
        (1, "Accounting Mode", "Disabled"),
        (1, "Accounting Mode Buffer Size", 4000),
        (1, "Driver Model", None),
        (2, "Current", "N/A"),
        (2, "Pending", "N/A"),
        (1, "Serial Number", node.serial(gpu)),
        (1, "GPU UUID", node.uuid(gpu)),
        (1, "Minor Number", gpu),
        (1, "VBIOS Version", "96.00.89.00.01"),
        (1, "MultiGPU Board", "No"),
        (1, "Board ID", f"0x{bus.lower()}00"),
        (1, "Board Part Number", "692-2G520-0200-000"),
        (1, "GPU Part Number", "2330-885-A1"),
        (1, "FRU Part Number", "N/A"),
        (1, "Module ID", gpu + 1),
        (1, "Inforom Version", None),
        (2, "Image Version", "G520.0200.00.05"),
        (2, "OEM Object", "2.1"),
        (2, "ECC Object", "7.16"),
        (2, "Power Management Object", "N/A"),
        (1, "GPU Operation Mode", None),
        (2, "Current", "N/A"),
        (2, "Pending", "N/A"),
        (1, "GSP Firmware Version", node.driver()),
        (1, "GPU Virtualization Mode", None),
        (2, "Virtualization Mode", "None"),
        (2, "Host VGPU Mode", "N/A"),
        (1, "GPU Reset Status", None),
        (2, "Reset Required", "Yes" if dbe else "No"),
        (2, "Drain and Reset Recommended", "Yes" if dbe else "No"),
        (1, "PCI", None),
        (2, "Bus", f"0x{bus}"),
        (2, "Device", "0x00"),
        (2, "Domain", "0x0000"),
        (2, "Device Id", "0x233010DE"),
        (2, "Bus Id", f"00000000:{bus}:00.0"),
        (2, "Sub System Id", "0x16C110DE"),
        (2, "GPU Link Info", None),
        (3, "PCIe Generation", None),
        (4, "Max", 5),
        (4, "Current", 5),
        (4, "Device Current", 5),
        (4, "Device Max", 5),
        (4, "Host Max", 5),
        (3, "Link Width", None),
        (4, "Max", "16x"),
        (4, "Current", "16x"),
        (2, "Replays Since Reset", 0),
        (2, "Replay Number Rollovers", 0),
        (1, "Fan Speed", "N/A"),
        (1, "Performance State", "P0"),
        (1, "Clocks Event Reasons", None),
        (2, "Idle", "Not Active"),
        (2, "Applications Clocks Setting", "Not Active"),
        (2, "SW Power Cap", "Not Active"),
        (2, "HW Slowdown", on[hot or braked]),
        (3, "HW Thermal Slowdown", on[hot]),
        (3, "HW Power Brake Slowdown", on[braked]),
        (2, "Sync Boost", "Not Active"),
        (2, "SW Thermal Slowdown", on[hot or warm]),
        (2, "Display Clock Setting", "Not Active"),
        (1, "FB Memory Usage", None),
        (2, "Total", "81559 MiB"),
        (2, "Reserved", "557 MiB"),
        (2, "Used", f"{used} MiB"),
        (2, "Free", f"{81559 - 557 - used} MiB"),
        (1, "BAR1 Memory Usage", None),
        (2, "Total", "131072 MiB"),
        (2, "Used", "1 MiB"),
        (2, "Free", "131071 MiB"),
        (1, "Compute Mode", "Default"),
        (1, "Utilization", None),
        (2, "Gpu", "0 %"),
        (2, "Memory", "0 %"),
        (1, "ECC Mode", None),
        (2, "Current", "Enabled"),
        (2, "Pending", "Enabled"),
        (1, "ECC Errors", None),
        (2, "Volatile", None),
        (3, "SRAM Correctable", 0),
        (3, "SRAM Uncorrectable Parity", 0),
        (3, "SRAM Uncorrectable SEC-DED", 0),
        (3, "DRAM Correctable", correctable),
        (3, "DRAM Uncorrectable", dbe),
        (2, "Aggregate", None),
        (3, "SRAM Correctable", 0),
        (3, "SRAM Uncorrectable Parity", 0),
        (3, "SRAM Uncorrectable SEC-DED", 0),
        (3, "DRAM Correctable", correctable),
        (3, "DRAM Uncorrectable", dbe + (5 if failed else 0)),
        (3, "SRAM Threshold Exceeded", "No"),
        (2, "Aggregate Uncorrectable SRAM Sources", None),
        (3, "SRAM L2", 0),
        (3, "SRAM SM", 0),
        (3, "SRAM Microcontroller", 0),
        (3, "SRAM PCIE", 0),
        (3, "SRAM Other", 0),
        (1, "Retired Pages", None),
        (2, "Single Bit ECC", "N/A"),
        (2, "Double Bit ECC", "N/A"),
        (2, "Pending Page Blacklist", "N/A"),
        (1, "Remapped Rows", None),
        (2, "Correctable Error", 0),
        (2, "Uncorrectable Error", dbe + (4 if failed else 0)),
        (2, "Pending", "Yes" if dbe else "No"),
        (2, "Remapping Failure Occurred", "Yes" if failed else "No"),
        (2, "Bank Remap Availability Histogram", None),
        (3, "Max", f"{2559 if dbe or failed else 2560} bank(s)"),
        (3, "High", f"{1 if dbe else 0} bank(s)"),
        (3, "Partial", "0 bank(s)"),
        (3, "Low", "0 bank(s)"),
        (3, "None", f"{1 if failed else 0} bank(s)"),
        (1, "Temperature", None),
        (2, "GPU Current Temp", f"{temp} C"),
        (2, "GPU T.Limit Temp", f"{-3 if hot else 87 - temp} C"),
        (2, "GPU Shutdown T.Limit Temp", "-5 C"),
        (2, "GPU Slowdown T.Limit Temp", "-2 C"),
        (2, "GPU Max Operating T.Limit Temp", "0 C"),
        (2, "GPU Target Temperature", "N/A"),
        (2, "Memory Current Temp", f"{memory} C"),
        (2, "Memory Max Operating T.Limit Temp", "0 C"),
        (1, "GPU Power Readings", None),
        (2, "Power Draw", f"{node.power(gpu):.2f} W"),
        (2, "Current Power Limit", "700.00 W"),
        (2, "Requested Power Limit", "700.00 W"),
        (2, "Default Power Limit", "700.00 W"),
        (2, "Min Power Limit", "200.00 W"),
        (2, "Max Power Limit", "700.00 W"),
        (1, "GPU Memory Power Readings", None),
        (2, "Power Draw", "N/A"),
        (1, "Clocks", None),
        (2, "Graphics", f"{clock} MHz"),
        (2, "SM", f"{clock} MHz"),
        (2, "Memory", "2619 MHz"),
        (2, "Video", "1545 MHz"),
        (1, "Max Clocks", None),
        (2, "Graphics", "1980 MHz"),
        (2, "SM", "1980 MHz"),
        (2, "Memory", "2619 MHz"),
        (2, "Video", "1545 MHz"),
        (1, "Fabric", None),
        (2, "State", "Completed"),
        (2, "Status", "Success"),
    ]
    if left:
        rows += [
            (1, "Processes", None),
            (2, "GPU instance ID", "N/A"),
            (2, "Compute instance ID", "N/A"),
            (2, "Process ID", leftover_pid(node.lab, node.name, gpu)),
            (3, "Type", "C"),
            (3, "Name", "python"),
            (3, "Used GPU Memory", "61876 MiB"),
        ]
    else:
        rows.append((1, "Processes", "None"))
    return rows


def lost_text(gpu: int) -> str:
    """What nvidia-smi says of a GPU whose handle is gone."""
    return f"Unable to determine the device handle for GPU0000:{gpu_bus(gpu).upper()}:00.0: Unknown Error"


def smi_header(node: Node) -> str:
    """The head of `nvidia-smi -q` below the time stamp."""
    present = node.gpus - len(node.missing())
    return (
        _tree(
            [
                (0, "Driver Version", node.driver()),
                (0, "CUDA Version", "12.2" if node.driver() == OLD_DRIVER else CUDA),
            ]
        )
        + "\n\n"
        + _tree([(0, "Attached GPUs", present)])
    )


def smi_query(node: Node, sections: tuple[str, ...] = ()) -> str:
    """`nvidia-smi -q` (or `-q -d`) from below the time stamp on."""
    blocks = [smi_header(node)]
    for gpu in range(node.gpus):
        if gpu in node.missing():
            continue
        rows = gpu_rows(node, gpu)
        if sections:
            keep, kept = False, [rows[0]]
            for row in rows[1:]:
                if row[0] == 1:
                    keep = row[1] in sections
                if keep:
                    kept.append(row)
            rows = kept
        blocks.append(_tree(rows) + "\n")
    return "\n".join(blocks) + "\n"


# --- dcgmi ------------------------------------------------------------------------------------------------------------


def health_incidents(node: Node) -> list[tuple[int, str, str, str]]:
    """(gpu, system, level, text) of everything dcgmi health would report."""
    found: list[tuple[int, str, str, str]] = []
    for fault, events in node.shown:
        kind, part, n = fault["kind"], fault["part"], len(events)
        gpu = int(part[3:]) if part.startswith("gpu") else 0
        if kind == "gpu_off_bus":
            found.append(
                (
                    gpu,
                    "PCIe system",
                    "Failure",
                    f"GPU {gpu} has fallen off the bus. Check dmesg log for XID errors "
                    "and verify that the GPU is seated; reset or reboot to recover it.",
                )
            )
        elif kind == "hbm_ecc_uncorrectable":
            found.append(
                (
                    gpu,
                    "Memory system",
                    "Failure",
                    f"Detected {n} volatile double-bit ECC error(s) in GPU {gpu}. "
                    "Drain the GPU and reset it or reboot the node.",
                )
            )
        elif kind == "row_remap_failed":
            found.append(
                (
                    gpu,
                    "Memory system",
                    "Failure",
                    f"GPU {gpu} had uncorrectable memory errors and row remapping "
                    "failed. Run a field diagnostic on the GPU.",
                )
            )
        elif kind == "nvlink_error":
            found.append(
                (
                    gpu,
                    "NVLINK system",
                    "Failure",
                    f"Detected {n} NvLink errors on GPU {gpu}'s NVLink (should be 0) "
                    "Run a field diagnostic on the GPU.",
                )
            )
        elif kind == "gpu_slow":
            found.append(
                (
                    gpu,
                    "Power system",
                    "Warning",
                    f"Detected clocks event due to power violation in GPU {gpu}. "
                    "Verify that the hardware power supplies and the power cabling are okay.",
                )
            )
        elif kind in ("fan_failed", "inlet_hot"):
            for hot in sorted(node.hot()) if kind == "fan_failed" else range(node.gpus):
                found.append(
                    (
                        hot,
                        "Thermal system",
                        "Warning",
                        "Detected clocks event due to thermal violation in GPU "
                        f"{hot}. Verify that the cooling on this machine is functional, including external, thermal "
                        "material interface, fans, and any other components.",
                    )
                )
    present = set(range(node.gpus)) - node.missing()
    return sorted(f for f in set(found) if f[0] in present)


def _wrap(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def dcgm_index(node: Node, gpu: int) -> int:
    """DCGM numbers the GPUs it sees: a missing one shifts those behind it."""
    return gpu - sum(1 for m in node.missing() if m < gpu)


def dcgmi_health(node: Node) -> str:
    """`dcgmi health -c`."""
    bar = "+" + "-" * 27 + "+" + "-" * 58 + "+\n"

    def row(level: int, label: str, value: str) -> str:
        left = f"{'-> ':>{level * 3}s}{label}" if level and label else label
        return f"| {left:<25s} | {value:<56s} |\n"

    incidents = health_incidents(node)
    overall = "Healthy"
    if incidents:
        overall = "Failure" if any(i[2] == "Failure" for i in incidents) else "Warning"
    text = bar + f"| {'Health Monitor Report':<85s}|\n" + bar.replace("-", "=") + row(0, "Overall Health", overall)
    last: tuple[int | None, str] = (None, "")
    for gpu, system, level, message in incidents:
        if last[0] is None:
            text += row(0, "GPU", "")
        if gpu != last[0]:
            worst = "Failure" if any(i[0] == gpu and i[2] == "Failure" for i in incidents) else "Warning"
            text += row(1, str(dcgm_index(node, gpu)), worst) + row(2, "Errors", "")
        text += row(3, system, level)
        for line in _wrap(message, 54):
            text += row(0, "", line)
        last = (gpu, system)
    return text + bar


# --- mlxlink ------------------------------------------------------------------------------------------------------------


def mlxlink_head(node: Node, hca: int) -> str:
    """The sections that mlxlink always prints."""
    slow = f"mlx5_{hca}" in node.part_of("rail_slow")
    return f"""
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : {"IB-HDR" if slow else "IB-NDR"}
Width                              : 4x
FEC                                : {
        "Standard_RS-FEC - (544,514)" if slow else "Interleaved_Standard_RS_FEC_PLR - (544,514)"
    }
Loopback Mode                      : No Loopback
Auto Negotiation                   : ON

Supported Info
--------------
Enabled Link Speed (Ext.)          : 0x00000020 (NDR)
Supported Cable Speed (Ext.)       : 0x00000030 (NDR,HDR)

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed

Tool Information
----------------
Firmware Version                   : 28.39.1002
amBER Version                      : 2.22
MFT Version                        : mft 4.26.1-3
"""


_BER = ("2E-12", "6E-11", "3E-10", "8E-10", "2E-9", "5E-9", "9E-9", "2E-8")


def link_counters(node: Node, hca: int) -> dict[str, Any]:
    """Counters of one port since they were last cleared."""
    part = f"mlx5_{hca}"
    raw = [pick(5, 19, "raw", *node.noise(hca, lane)) for lane in range(4)]
    c: dict[str, Any] = {
        "symbol": 0,
        "symbol_ber": "15E-255",
        "effective": 0,
        "effective_ber": "15E-255",
        "raw": raw,
        "raw_ber": f"{pick(1, 9, 'rawber', *node.noise(hca))}E-9",
        "down": 0,
        "recovery": 0,
    }
    for fault, events in node.of("link_degrading", "link_flap", "transceiver_hot"):
        n = sum(1 for e in events if float(e.get("t", 0)) >= node.cleared)
        if fault["part"] != part or not n:
            continue
        if fault["kind"] == "link_flap":
            c["down"] += n
            c["recovery"] += 3 * n
            continue
        c["effective"] += int(4187 * n**1.4)
        c["effective_ber"] = _BER[min(n - 1, len(_BER) - 1)]
        c["symbol"] += int(11 * n**1.3)
        c["symbol_ber"] = f"{min(1 + n, 9)}E-13"
        c["raw"] = [1023441 * n + 3017 * r for r in raw]
        c["raw_ber"] = "2E-5"
        c["recovery"] += 19 * n
        if fault["kind"] == "link_degrading":
            c["down"] += (n + 1) // 2
    return c


def mlxlink_counters(node: Node, hca: int) -> str:
    """The section of `mlxlink -c`."""
    c = link_counters(node, hca)
    # The lab's clock stands still between events; counters cleared since power-on read as an hour's worth.
    minutes = (node.lab.created - node.cleared) / 60
    return f"""
Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : {max(60.0, minutes):.1f}
Symbol Errors                      : {c["symbol"]}
Symbol BER                         : {c["symbol_ber"]}
Effective Physical Errors          : {c["effective"]}
Effective Physical BER             : {c["effective_ber"]}
Raw Physical Errors Per Lane       : {",".join(map(str, c["raw"]))}
Raw Physical BER                   : {c["raw_ber"]}
Link Down Counter                  : {c["down"]}
Link Error Recovery Counter        : {c["recovery"]}
"""


def mlxlink_module(node: Node, hca: int) -> str:
    """The section of `mlxlink -m`."""
    part = f"mlx5_{hca}"
    hot = part in node.part_of("transceiver_hot")
    dirty = hot or part in node.part_of("link_degrading")
    temperature = 77 if hot else pick(44, 52, "module", *node.noise(hca))
    rx = [-between(1.8, 2.4, "rx", *node.noise(hca, lane)) for lane in range(4)]
    if dirty:
        rx[0] = -7.9
    tx = [between(0.7, 1.0, "tx", *node.noise(hca, lane)) for lane in range(4)]
    bias = [between(8.1, 8.4, "bias", *node.noise(hca, lane)) for lane in range(4)]

    def lanes(values: list[float]) -> str:
        return ",".join(f"{v:.1f}" for v in values)

    return f"""
Module Info
-----------
Identifier                         : OSFP
Compliance                         : N/A
Cable Technology                   : N/A
Cable Type                         : Optical Module (separated)
OUI                                : Other
Vendor Name                        : NVIDIA
Vendor Part Number                 : MMA4Z00-NS
Vendor Serial Number               : {node.hca_serial(hca)}
Rev                                : A6
Wavelength [nm]                    : 850
Transfer Distance [m]              : 50
FW Version                         : 47.120.0026
Digital Diagnostic Monitoring      : Yes
Power Class                        : 8
CDR RX                             : ON,ON,ON,ON
CDR TX                             : ON,ON,ON,ON
Temperature [C]                    : {temperature} [-5..75]
Voltage [mV]                       : {between(3270, 3290, "mv", *node.noise(hca)):.1f} [2970..3630]
Bias Current [mA]                  : {lanes(bias)} [2..15]
Rx Power Current [dBm]             : {lanes(rx)} [-10.0..5.0]
Tx Power Current [dBm]             : {lanes(tx)} [-8.2..5.0]
"""


# --- BMC -------------------------------------------------------------------------------------------------------------------


def sensors(node: Node) -> list[tuple[str, int, str, str, str]]:
    """(name, sensor id, status, entity, reading) of every BMC sensor."""
    rows: list[tuple[str, int, str, str, str]] = []
    inlet = node.inlet()
    rows.append(("TEMP_INLET", 0x10, "cr" if inlet > 38 else "ok", "64.1", f"{inlet} degrees C"))
    for cpu in range(2):
        degrees = pick(48, 56, "cpu", *node.noise(cpu)) + (12 if inlet > 38 else 0)
        rows.append((f"TEMP_CPU{cpu}", 0x12 + cpu, "ok", f"3.{cpu + 1}", f"{degrees} degrees C"))
    for gpu in range(node.gpus):
        if gpu in node.lost() or gpu in node.missing():
            rows.append((f"TEMP_GPU{gpu}", 0x18 + gpu, "ns", f"11.{gpu + 1}", "No Reading"))
        else:
            temp = node.temperature(gpu)
            rows.append(
                (f"TEMP_GPU{gpu}", 0x18 + gpu, "nc" if temp > 86 else "ok", f"11.{gpu + 1}", f"{temp} degrees C")
            )
    dead = {int(p[3:]) for p in node.part_of("fan_failed")}
    faster = 3500 if dead or inlet > 38 else 0
    for fan in range(1, FANS + 1):
        for side, (letter, rpm) in enumerate((("F", 11760), ("R", 10920))):
            speed = rpm + faster + 140 * (pick(0, 2, "fan", *node.noise(fan, side)) - 1)
            rows.append(
                (
                    f"FAN{fan}_{letter}",
                    0x30 + 2 * (fan - 1) + side,
                    "cr" if fan in dead else "ok",
                    f"29.{fan}",
                    f"{0 if fan in dead else speed} RPM",
                )
            )
    bad = {int(p[3:]) for p in node.part_of("psu_failed")}
    for psu in range(1, PSUS + 1):
        failed = psu in bad
        rows.append(
            (
                f"PSU{psu}_STATUS",
                0x60 + psu,
                "ok",
                f"10.{psu}",
                "Presence detected, Failure detected, Power Supply AC lost" if failed else "Presence detected",
            )
        )
        watts = pick(1580, 1660, "psu", *node.noise(psu)) * PSUS // max(1, PSUS - len(bad)) // 10 * 10
        rows.append(
            (f"PSU{psu}_PIN", 0x70 + psu, "cr" if failed else "ok", f"10.{psu}", f"{0 if failed else watts} Watts")
        )
    rows.append(("PWR_SYSTEM", 0x80, "ok", "19.1", f"{pick(9480, 9960, 'sys', *node.noise()) // 10 * 10} Watts"))
    return rows


def sdr_elist(node: Node, pattern: str = "") -> str:
    """`ipmitool sdr elist` (or `sdr type fan`)."""
    kinds = {"fan": "FAN", "temperature": "TEMP", "power supply": "PSU"}
    head = kinds.get(pattern, "")
    return "".join(
        f"{name:<16s} | {number:02X}h | {status:<3s} | {entity:>4s} | {reading}\n"
        for name, number, status, entity, reading in sensors(node)
        if name.startswith(head)
    )


def views(lab: Lab, name: str, changed: tuple[str, ...] = ("",)) -> dict[str, str]:
    """What is kept ready for the shell tools; what is missing here is printed by Python, with its exit status.

    `changed`: only the views whose names begin or end with one of these.
    """
    node = Node(lab, name)
    unreadable = {f["part"] for f, _e in node.of("probe_unreadable")}
    texts: dict[str, str] = {}

    def wanted(view: str, tool: str) -> bool:
        return tool not in unreadable and (view.startswith(changed) or view.endswith(changed))

    for view, form in (("dmesg", "plain"), ("dmesg-T", "ctime"), ("dmesg-iso", "iso")):
        if wanted(view, "dmesg"):
            texts[view] = dmesg(node, form)
    if wanted("health", "dcgmi"):
        texts["health"] = dcgmi_health(node)
    if wanted("smi-q", "nvidia-smi") and not node.lost():
        texts["smi-q"] = smi_query(node)
    for hca in range(node.gpus):
        for letter, section in (("c", mlxlink_counters), ("m", mlxlink_module)):
            view = f"mlxlink-{letter}-mlx5_{hca}"
            if wanted(view, "mlxlink"):
                texts[view] = mlxlink_head(node, hca) + section(node, hca)
    if wanted("sdr-elist", "ipmitool"):
        texts["sdr-elist"] = sdr_elist(node)
    return texts
