# SPDX-License-Identifier: Apache-2.0
"""The node's own tools in full: what the shell files in lab/bin do not answer from a view, and everything rarer."""

from __future__ import annotations

import os
import time
from typing import Any

from model.base import LabError, between, dumps, err, expand_hosts, nap, out, pick, write_all
from model.kinds import KINDS, part_class, parts_text
from model.render import (
    Node,
    _wrap,
    dcgm_index,
    dcgmi_health,
    dmesg,
    gpu_bus,
    health_incidents,
    link_counters,
    lost_text,
    mlxlink_counters,
    mlxlink_head,
    mlxlink_module,
    sdr_elist,
    sensors,
    smi_header,
    smi_query,
)
from model.store import CLUSTER, Lab


def emit(text: str) -> None:
    """Print a text that ends with its own newline."""
    write_all(1, text.encode())


def silenced(node: Node, tool: str) -> bool:
    """Whether this tool is unreadable on this node."""
    return any(f["part"] == tool for f, _e in node.of("probe_unreadable"))


def own(lab: Lab, tool: str) -> Node:
    """This node, with its view put back in place for the next call."""
    name = lab.this_node()
    try:
        lab.ensure_view(name)
    except OSError:
        pass  # only speed is lost
    return Node(lab, name)


# --- dmesg ---------------------------------------------------------------------------------------------------------------


def tool_dmesg(lab: Lab, argv: list[str]) -> int:
    """dmesg, with -T, --time-format, -x, -l/--level, --color."""
    node = own(lab, "dmesg")
    if silenced(node, "dmesg"):
        err("dmesg: read kernel buffer failed: Operation not permitted")
        return 1
    form, levels, wanted = "plain", False, None
    i = 0
    while i < len(argv):
        arg = argv[i]
        if arg in ("-T", "--ctime"):
            form = "ctime"
        elif arg.startswith("--time-format"):
            if "=" not in arg:
                i += 1
            value = arg.partition("=")[2] if "=" in arg else (argv[i] if i < len(argv) else "")
            form = {"iso": "iso", "ctime": "ctime"}.get(value, "plain")
        elif arg in ("-x", "--decode"):
            levels = True
        elif arg in ("-l", "--level") or arg.startswith("--level="):
            if "=" not in arg:
                i += 1
            wanted = (arg.partition("=")[2] if "=" in arg else argv[i] if i < len(argv) else "").split(",")
        i += 1
    text = dmesg(node, form, levels or wanted is not None)
    if wanted is not None:
        kept, keep = [], False
        for line in text.splitlines(keepends=True):
            if line.startswith("kern  :"):
                keep = line[7:13].strip() in wanted
            if keep:
                kept.append(line if levels or not line.startswith("kern") else line[15:])
        text = "".join(kept)
    emit(text)
    return 0


# --- nvidia-smi --------------------------------------------------------------------------------------------------------------

SECTIONS = {
    "MEMORY": ("FB Memory Usage", "BAR1 Memory Usage"),
    "UTILIZATION": ("Utilization",),
    "ECC": ("ECC Mode", "ECC Errors"),
    "TEMPERATURE": ("Temperature",),
    "POWER": ("GPU Power Readings", "GPU Memory Power Readings"),
    "CLOCK": ("Clocks", "Max Clocks"),
    "PERFORMANCE": ("Performance State", "Clocks Event Reasons"),
    "PAGE_RETIREMENT": ("Retired Pages",),
    "ROW_REMAPPER": ("Remapped Rows",),
    "PIDS": ("Processes",),
    "COMPUTE": ("Compute Mode",),
    "RESET_STATUS": ("GPU Reset Status",),
}


def csv_value(node: Node, gpu: int, field: str) -> tuple[str, str] | None:
    """(header, value) of one field of --query-gpu."""
    from model.render import gpu_rows

    path: list[str] = []
    values: dict[str, str] = {}
    for depth, key, value in gpu_rows(node, gpu)[1:]:
        path[depth - 1 :] = [key]
        if value is not None:
            values["/".join(path)] = str(value)
    remap = "Remapped Rows/"
    table: dict[str, tuple[str, str]] = {
        "index": ("", str(gpu)),
        "name": ("", values["Product Name"]),
        "gpu_name": ("", values["Product Name"]),
        "uuid": ("", values["GPU UUID"]),
        "gpu_uuid": ("", values["GPU UUID"]),
        "serial": ("", values["Serial Number"]),
        "gpu_serial": ("", values["Serial Number"]),
        "pci.bus_id": ("", values["PCI/Bus Id"]),
        "gpu_bus_id": ("", values["PCI/Bus Id"]),
        "driver_version": ("", node.driver()),
        "vbios_version": ("", values["VBIOS Version"]),
        "count": ("", str(node.gpus - len(node.missing()))),
        "temperature.gpu": ("", values["Temperature/GPU Current Temp"].split()[0]),
        "temperature.memory": ("", values["Temperature/Memory Current Temp"].split()[0]),
        "temperature.gpu.tlimit": ("", values["Temperature/GPU T.Limit Temp"].split()[0]),
        "power.draw": ("W", values["GPU Power Readings/Power Draw"].split()[0]),
        "power.limit": ("W", "700.00"),
        "clocks.sm": ("MHz", values["Clocks/SM"].split()[0]),
        "clocks.max.sm": ("MHz", "1980"),
        "clocks.mem": ("MHz", "2619"),
        "utilization.gpu": ("%", "0"),
        "memory.total": ("MiB", "81559"),
        "memory.used": ("MiB", values["FB Memory Usage/Used"].split()[0]),
        "memory.free": ("MiB", values["FB Memory Usage/Free"].split()[0]),
        "mig.mode.current": ("", "Disabled"),
        "persistence_mode": ("", "Enabled"),
        "pstate": ("", "P0"),
        "pcie.link.gen.current": ("", "5"),
        "pcie.link.gen.max": ("", "5"),
        "pcie.link.width.current": ("", "16"),
        "pcie.link.width.max": ("", "16"),
        "ecc.mode.current": ("", "Enabled"),
        "ecc.errors.uncorrected.volatile.total": ("", values["ECC Errors/Volatile/DRAM Uncorrectable"]),
        "ecc.errors.uncorrected.aggregate.total": ("", values["ECC Errors/Aggregate/DRAM Uncorrectable"]),
        "ecc.errors.corrected.volatile.total": ("", values["ECC Errors/Volatile/DRAM Correctable"]),
        "ecc.errors.corrected.aggregate.total": ("", values["ECC Errors/Aggregate/DRAM Correctable"]),
        "remapped_rows.failure": ("", values[remap + "Remapping Failure Occurred"]),
        "remapped_rows.pending": ("", values[remap + "Pending"]),
        "remapped_rows.uncorrectable": ("", values[remap + "Uncorrectable Error"]),
        "remapped_rows.correctable": ("", "0"),
    }
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = "Clocks Event Reasons/"
        table[f"{prefix}.hw_slowdown"] = ("", values[reasons + "HW Slowdown"])
        table[f"{prefix}.hw_thermal_slowdown"] = ("", values[reasons + "HW Slowdown/HW Thermal Slowdown"])
        table[f"{prefix}.hw_power_brake_slowdown"] = ("", values[reasons + "HW Slowdown/HW Power Brake Slowdown"])
        table[f"{prefix}.sw_thermal_slowdown"] = ("", values[reasons + "SW Thermal Slowdown"])
        table[f"{prefix}.sw_power_cap"] = ("", "Not Active")
    return table.get(field)


def nvlink_text(node: Node, errors: bool) -> str:
    """`nvidia-smi nvlink -s` or `-e`."""
    lines = []
    for gpu in range(node.gpus):
        if gpu in node.missing():
            continue
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {node.uuid(gpu)})")
        bad = [(f, e) for f, e in node.of("nvlink_error") if f["part"] == f"gpu{gpu}"]
        dead = {pick(0, 17, "link", *node.noise(f["id"])): len(e) for f, e in bad}
        for link in range(18):
            if not errors:
                lines.append(f"\t Link {link}: " + ("<inactive>" if link in dead else "26.562 GB/s"))
                continue
            n = dead.get(link, 0)
            lines += [
                f"\t Link {link}: Replay Errors: {47 * n}",
                f"\t Link {link}: Recovery Errors: {n}",
                f"\t Link {link}: CRC Errors: {1873 * n}",
            ]
    return "\n".join(lines) + "\n"


def tool_nvidia_smi(lab: Lab, argv: list[str]) -> int:
    """nvidia-smi: plain table, -q [-d], -L, --query-gpu, nvlink -s|-e."""
    node = own(lab, "nvidia-smi")
    if silenced(node, "nvidia-smi"):
        out("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.")
        return 9
    lost = sorted(node.lost())
    present = [g for g in range(node.gpus) if g not in node.missing()]
    if "-L" in argv or "--list-gpus" in argv:
        for index, gpu in enumerate(present):
            out(lost_text(gpu) if gpu in lost else f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {node.uuid(gpu)})")
        return 0
    if argv[:1] == ["nvlink"]:
        emit(nvlink_text(node, "-e" in argv or "-errorcounters" in argv))
        return 0
    if lost:
        out(lost_text(lost[0]))
        return 15
    if "-q" in argv or "--query" in argv:
        sections: tuple[str, ...] = ()
        for i, arg in enumerate(argv):
            text = arg.partition("=")[2] if arg.startswith("--display=") else argv[i + 1] if arg == "-d" and i + 1 < len(argv) else ""
            for word in filter(None, text.upper().split(",")):
                if word not in SECTIONS:
                    out(f"Invalid DISPLAY option: {word}")
                    return 2
                sections += SECTIONS[word]
        if "-x" in argv:
            out("nvidia-smi of the lab has no XML output")
            return 2
        stamp = time.strftime("%a %b %e %H:%M:%S %Y")
        emit(f"\n==============NVSMI LOG==============\n\n{'Timestamp':<42s}: {stamp}\n{smi_query(node, sections)}")
        return 0
    for arg in argv:
        if arg.startswith("--query-gpu="):
            fields = [f.strip() for f in arg.partition("=")[2].split(",") if f.strip()]
            form = next((a.partition("=")[2] for a in argv if a.startswith("--format=")), "")
            rows = []
            for gpu in present:
                cells = []
                for field in fields:
                    cell = csv_value(node, gpu, field)
                    if cell is None:
                        out(f'Field "{field}" is not a valid field to query.\n')
                        return 2
                    cells.append(cell)
                rows.append(cells)
            if rows and "noheader" not in form:
                out(", ".join(f + (f" [{u}]" if u else "") for f, (u, _v) in zip(fields, rows[0], strict=True)))
            for cells in rows:
                out(", ".join(v if "nounits" in form or not u else f"{v} {u}" for u, v in cells))
            return 0
    bar = "+" + "-" * 89 + "+"
    lines = [time.strftime("%a %b %e %H:%M:%S %Y"), bar,
             f"| NVIDIA-SMI {node.driver():<22s} Driver Version: {node.driver():<14s} CUDA Version: 12.4     |", bar]
    for gpu in present:
        lines.append(f"| {gpu:3d}  NVIDIA H100 80GB HBM3          On  |   00000000:{gpu_bus(gpu).upper()}:00.0 Off |                    0 |")
        lines.append(f"| N/A   {node.temperature(gpu)}C    P0             {node.power(gpu):4.0f}W /  700W |       7MiB /  81559MiB |      0%      Default |")
    out("\n".join([*lines, bar]))
    return 0


# --- dcgmi ---------------------------------------------------------------------------------------------------------------------


def health_json(node: Node) -> str:
    """`dcgmi health -c -j`."""
    body: dict[str, Any] = {}
    incidents = health_incidents(node)
    overall = "Failure" if any(i[2] == "Failure" for i in incidents) else "Warning" if incidents else "Healthy"
    if incidents:
        gpus: dict[str, Any] = {}
        for gpu, system, level, message in incidents:
            entry = gpus.setdefault(str(dcgm_index(node, gpu)), {"children": {"Errors": {"children": {}}}, "value": level})
            if level == "Failure":
                entry["value"] = level
            entry["children"]["Errors"]["children"][system] = {"overflow": _wrap(message, 54), "value": level}
        body["GPU"] = {"children": gpus}
    body["Overall Health"] = {"value": overall}
    return dumps({"body": body, "header": ["Health Monitor Report"]})


DIAG = (
    ("Deployment", ("Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode",
                    "Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom"), 1),
    ("Integration", ("PCIe",), 2),
    ("Hardware", ("GPU Memory", "Diagnostic"), 2),
    ("Stress", ("Targeted Stress", "Targeted Power", "Memory Bandwidth", "EUD Test"), 3),
)


def diag_failures(node: Node) -> dict[str, dict[int, str]]:
    """Test -> GPU -> warning, of what dcgmi diag finds on this node as its faults stand (also silent ones)."""
    found: dict[str, dict[int, str]] = {}
    lab = node.lab
    for fault in lab.faults:
        if fault["node"] != node.name or lab.repaired(fault):
            continue
        kind, part = fault["kind"], fault["part"]
        gpu = int(part[3:]) if part.startswith("gpu") else 0
        shown = lab.has_shown(fault)
        if kind == "silent_data_corruption":
            found.setdefault("Diagnostic", {})[gpu] = f"GPU {gpu}: There was an inconsistency in the calculation results. " \
                "Run a field diagnostic on the GPU."
        elif kind in ("gpu_slow", "straggler") and part.startswith("gpu"):
            found.setdefault("Targeted Stress", {})[gpu] = f"GPU {gpu}: Performance of 25630.12 did not meet the minimum of " \
                "29250.00 GFLOPS."
        elif kind == "hbm_ecc_uncorrectable" and shown:
            found.setdefault("GPU Memory", {})[gpu] = f"GPU {gpu}: Detected 1 DBEs during the memory test."
        elif kind == "row_remap_failed" and shown:
            found.setdefault("Page Retirement/Row Remap", {})[gpu] = f"GPU {gpu} had a row remapping failure."
        elif kind == "nvlink_error" and shown:
            found.setdefault("PCIe", {})[gpu] = f"GPU {gpu}: NvLink errors detected; check the NVLink connection."
        elif kind == "gpu_off_bus" and shown:
            found.setdefault("PCIe", {})[gpu] = f"GPU {gpu} has fallen off the bus."
        elif kind == "fan_failed" and shown:
            for hot in node.hot():
                found.setdefault("Targeted Power", {})[hot] = f"GPU {hot}: Thermal violations totaling 11.4 seconds started at " \
                    "4.1 seconds into the test."
        elif kind == "inlet_hot" and shown:
            for hot in range(node.gpus):
                found.setdefault("Targeted Power", {})[hot] = f"GPU {hot}: Thermal violations totaling 3.7 seconds started at " \
                    "21.0 seconds into the test."
    return found


def dcgmi_diag(node: Node, level: int, as_json: bool) -> int:
    """`dcgmi diag -r N [-j]`."""
    present = [g for g in range(node.gpus) if g not in node.missing()]
    failures = diag_failures(node)
    ids = ",".join("2330" for g in present if g not in node.lost())
    cell_width = 46
    lines = ["Successfully ran diagnostic for group.",
             "+---------------------------+------------------------------------------------+",
             "| Diagnostic                | Result                                         |",
             "+===========================+================================================+",
             "|-----  Metadata  ----------+------------------------------------------------|"]

    def row(name: str, result: str) -> str:
        return f"| {name:<25s} | {result:<{cell_width}s} |"

    lines += [row("DCGM Version", "3.3.5"), row("Driver Version Detected", node.driver()), row("GPU Device IDs Detected", ids)]
    categories: list[Any] = []
    for section, tests, needs in DIAG:
        if level < needs:
            continue
        title = f"-----  {section}  "
        bar = "|" if section == "Deployment" else "+"
        lines.append(f"{bar}{title:-<27s}+{'-' * 48}{bar}")
        rows: list[Any] = []
        for test in tests:
            bad = failures.get(test, {})
            results = [{"gpu_id": str(dcgm_index(node, g)), "status": "Fail" if g in bad else "Skip" if test == "EUD Test" else "Pass",
                        **({"warnings": [{"error_id": 28, "warning": bad[g]}]} if g in bad else {})} for g in present]
            rows.append({"name": test, "results": results})
            if test == "EUD Test":
                lines.append(row(test, "Skip - All"))
                continue
            per_gpu = section != "Deployment"
            if not bad:
                lines.append(row(test, "Pass - All" if per_gpu else "Pass"))
                continue
            if not per_gpu:
                lines.append(row(test, "Fail"))
            elif len(bad) == len(present):
                lines.append(row(test, "Fail - All"))
            else:
                lines.append(row(test, "Fail - GPU" + ("s" if len(bad) > 1 else "") + ": " + ", ".join(str(dcgm_index(node, g)) for g in sorted(bad))))
                good = [g for g in present if g not in bad]
                lines.append(row("", "Pass - GPUs: " + ", ".join(str(dcgm_index(node, g)) for g in good)))
            for gpu in sorted(bad):
                text = bad[gpu]
                pieces = [text[i : i + 45] for i in range(0, len(text), 45)]
                lines += [row("Warning" if i == 0 else "", piece) for i, piece in enumerate(pieces)]
        categories.append({"category": section, "tests": rows})
    lines.append("+---------------------------+------------------------------------------------+")
    if as_json:
        out(dumps({"DCGM GPU Diagnostic": {"version": "3.3.5", "Driver Version Detected": node.driver(),
                                           "GPU Device IDs": ["2330"] * len(present), "test_categories": categories}}))
    else:
        out("\n".join(lines))
    return 226 if failures else 0


def dcgmi_dmon(node: Node, argv: list[str]) -> int:
    """`dcgmi dmon -e 150,155,203,1002 -d MS -c N`."""
    names = {"150": ("TMPTR", "C"), "155": ("POWER", "W"), "203": ("GPUTL", ""), "1002": ("SMACT", ""), "230": ("XIDER", ""),
             "140": ("MMTMP", "C"), "100": ("SMCLK", ""), "112": ("DVCCTR", "")}
    fields, delay, count = ["203", "155"], 1.0, 0
    for i, arg in enumerate(argv[:-1]):
        if arg == "-e":
            fields = [f.strip() for f in argv[i + 1].split(",")]
        elif arg == "-d" and argv[i + 1].isdigit():
            delay = int(argv[i + 1]) / 1000
        elif arg == "-c" and argv[i + 1].isdigit():
            count = int(argv[i + 1])
    for field in fields:
        if field not in names:
            out(f"Error: Unable to validate field {field}. Return: Bad parameter passed to function.")
            return 1
    done = 0
    present = [g for g in range(node.gpus) if g not in node.missing()]
    while count == 0 or done < count:
        if done % 2 == 0:
            out("#Entity   " + "".join(f"{names[f][0]:<9s}" for f in fields).rstrip())
            out("ID        " + "".join(f"{names[f][1]:<9s}" for f in fields).rstrip())
        for gpu in present:
            cells = []
            for field in fields:
                if gpu in node.lost() and field != "230":
                    cells.append("N/A")
                    continue
                slow = node.clock(gpu) / 1980
                cells.append(
                    {
                        "150": str(node.temperature(gpu)),
                        "155": f"{node.power(gpu) + between(-2, 2, 'dmon', done, *node.noise(gpu)):.1f}",
                        "203": "100",
                        "1002": f"{0.982 * (0.92 + 0.08 * slow):.3f}",
                        "140": str(node.temperature(gpu) - 7),
                        "100": str(node.clock(gpu)),
                        "112": "0",
                        "230": last_xid(node, gpu),
                    }[field]
                )
            out(f"GPU {dcgm_index(node, gpu):<6d}" + "".join(f"{c:<9s}" for c in cells).rstrip())
        done += 1
        if count == 0 or done < count:
            nap(delay)
    return 0


def last_xid(node: Node, gpu: int) -> str:
    """The last Xid of a GPU since the driver was loaded."""
    xid = {"gpu_off_bus": "79", "hbm_ecc_uncorrectable": "94", "row_remap_failed": "64", "nvlink_error": "74"}
    found = [xid[f["kind"]] for _t, f, _i in node.log if f["part"] == f"gpu{gpu}" and f["kind"] in xid]
    return found[-1] if found else "0"


def tool_dcgmi(lab: Lab, argv: list[str]) -> int:
    """dcgmi health|diag|dmon|discovery|nvlink."""
    node = own(lab, "dcgmi")
    if silenced(node, "dcgmi"):
        out("Error: unable to establish a connection to the specified host: localhost\n"
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.")
        return 1
    what = argv[0] if argv else ""
    if what == "health":
        if "-s" in argv:
            out("Health monitor systems set successfully.")
        elif "-c" in argv:
            emit(health_json(node) + "\n" if "-j" in argv or "--json" in argv else dcgmi_health(node))
        else:
            return 1
        return 0
    if what == "diag":
        level = next((int(argv[i + 1]) for i, a in enumerate(argv[:-1]) if a == "-r" and argv[i + 1].isdigit()), 1)
        return dcgmi_diag(node, level, "-j" in argv or "--json" in argv)
    if what == "dmon":
        return dcgmi_dmon(node, argv)
    present = [g for g in range(node.gpus) if g not in node.missing()]
    if what == "discovery":
        bar = "+--------+----------------------------------------------------------------------+"
        lines = [f"{len(present)} GPUs found.", bar, f"| GPU ID | {'Device Information':<68s} |", bar]
        for index, gpu in enumerate(present):
            lines += [
                f"| {index:<6d} | {'Name: NVIDIA H100 80GB HBM3':<68s} |",
                f"|        | {f'PCI Bus ID: 00000000:{gpu_bus(gpu).upper()}:00.0':<68s} |",
                f"|        | {f'Device UUID: {node.uuid(gpu)}':<68s} |",
                bar,
            ]
        out("\n".join([*lines, "4 NvSwitches found."]))
        return 0
    if what == "nvlink":
        lines = ["+----------------------+", "|  NvLink Link Status  |", "+----------------------+", "GPUs:"]
        for index, gpu in enumerate(present):
            dead = {pick(0, 17, "link", *node.noise(f["id"])) for f, _e in node.of("nvlink_error") if f["part"] == f"gpu{gpu}"}
            lines += [f"    gpuId {index}:", "        " + " ".join("D" if n in dead else "U" for n in range(18))]
        out("\n".join(lines))
        return 0
    err("PARSE ERROR: Argument: subsystem\n             Required argument missing: subsystem")
    return 1


# --- mlxlink, ibdiagnet, ibdev2netdev ------------------------------------------------------------------------------------------


def tool_mlxlink(lab: Lab, argv: list[str]) -> int:
    """mlxlink -d DEVICE [-c] [-m] [--json] [-pc]."""
    node = own(lab, "mlxlink")
    device = ""
    for i, arg in enumerate(argv):
        if arg in ("-d", "--device") and i + 1 < len(argv):
            device = argv[i + 1]
        elif arg.startswith("--device="):
            device = arg.partition("=")[2]
    hca = int(device[5:]) if device.startswith("mlx5_") and device[5:].isdigit() else -1
    if silenced(node, "mlxlink"):
        err(f"\n-E- Failed to open device: \"{device}\". Cannot open the device: Operation not permitted.\n")
        return 1
    if not 0 <= hca < node.gpus:
        err(f"\n-E- Failed to open device: \"{device}\". No such file or directory\n" if device else "\n-E- Device was not specified\n")
        return 1
    if "-pc" in argv or "--pc" in argv:
        lab.record(node.name, e="clear", t=round(time.time(), 3))
        node = Node(lab, node.name)
    text = mlxlink_head(node, hca)
    if "-c" in argv or "--show_counters" in argv:
        text += mlxlink_counters(node, hca)
    if "-m" in argv or "--show_module" in argv:
        text += mlxlink_module(node, hca)
    if "--json" not in argv:
        emit(text)
        return 0
    sections: dict[str, Any] = {}
    current: dict[str, Any] = {}
    title = ""
    for line in text.splitlines():
        key, colon, value = line.partition(" : ") if " : " in line else (line, "", "")
        if colon:
            value = value.strip()
            current[key.strip()] = {"values": value.split(",")} if "," in value and "Per Lane" in key else value
        elif line.strip("-") and line.strip():
            title = line.strip()
            current = sections.setdefault(title, {})
    out(dumps({"result": {"output": sections}, "status": {"code": 0, "message": "success"}}))
    return 0


def tool_ibdiagnet(lab: Lab, argv: list[str]) -> int:
    """ibdiagnet [-pc]: the whole fabric, from any node or the head."""
    if "-pc" in argv or "--pc" in argv:
        for name in lab.nodes:
            if any(link_counters(Node(lab, name), h)["effective"] or link_counters(Node(lab, name), h)["down"] for h in range(lab.gpus)):
                lab.record(name, e="clear", t=round(time.time(), 3))
        cleared = True
    else:
        cleared = False
    cas = len(lab.nodes) * lab.gpus + 1
    leaves = max(2, -(-len(lab.nodes) // 32) * 8)
    switches = leaves + leaves // 2
    errors, slow = [], []
    for name in lab.nodes:
        if not any(f["node"] == name for f in lab.faults):
            continue
        node = Node(lab, name)
        for hca in range(node.gpus):
            c = link_counters(node, hca)
            lid = lab.nodes.index(name) * lab.gpus + hca + 3
            where = f"lid=0x{lid:04x} dev=4129 {name}/U{hca + 1}/P1"
            if c["down"]:
                errors.append(f"-E- {where} - \"link_down_counter\" increased by {c['down']} (difference value={c['down']},difference allowed threshold=1)")
            if c["symbol"]:
                errors.append(f"-E- {where} - \"symbol_error_counter\" increased by {c['symbol']} (difference value={c['symbol']},difference allowed threshold=1)")
            if c["recovery"]:
                errors.append(f"-E- {where} - \"link_error_recovery_counter\" increased by {c['recovery']} (difference value={c['recovery']},difference allowed threshold=1)")
            if f"mlx5_{hca}" in node.part_of("rail_slow"):
                slow.append(f"-E- Link: {name}/U{hca + 1}/P1<-->leaf{hca + 1:02d}/U1/P{lab.nodes.index(name) + 1} - Unexpected actual link speed 50 (enable_speed1=\"100\", therefore final speed should be 100)")
    for fault in lab.faults:
        if fault["kind"] == "fabric_slow" and lab.has_shown(fault) and not lab.repaired(fault):
            n = sum(1 for e in lab.events(CLUSTER) if e.get("id") == fault["id"])
            errors.append(f"-E- lid=0x0402 dev=54002 {fault['part']}/U1/P33 - \"port_rcv_remote_physical_errors\" increased by {211 * n} (difference value={211 * n},difference allowed threshold=1)")
    counter_errors = 0 if cleared else len(errors)
    stages = [("Discovery", 0), ("Lids Check", 0), ("Links Check", 0), ("Subnet Manager", 0), ("Port Counters", counter_errors),
              ("Nodes Information", 0), ("Speed / Width checks", len(slow)), ("Virtualization", 0), ("Partition Keys", 0),
              ("Alias GUIDs", 0)]
    text = ["Loading IBDIAGNET from: /usr/lib/x86_64-linux-gnu/ibdiagnet2.1.1", "-" * 49, "ibdiagnet v2.13.0 (build 2401151405)", "",
            "Discovery", f"-I- Discovering ... {switches + cas} nodes ({switches} Switch(es) & {cas} CA(s)) discovered.",
            "-I- Fabric Discover finished successfully", "", "Lids Check", "-I- Lids Check finished successfully", "",
            "Links Check", "-I- Links Check finished successfully", "", "Subnet Manager", "-I- SM Info retrieving finished successfully", "",
            "Port Counters"]
    if cleared:
        text.append("-I- Ports counters were cleared")
    elif errors:
        text += ["-E- Ports counters Difference Check finished with errors", *errors]
    else:
        text.append("-I- Ports counters Difference Check finished successfully")
    text += ["", "Speed / Width checks"]
    if slow:
        text += ["-E- Links Speed Check finished with errors", *slow]
    else:
        text += ["-I- Link Speed Check (Compare to supported link speed)", "-I- Links Speed Check finished successfully"]
    text += ["", "Summary", "-I- Stage                     Warnings   Errors     Comment"]
    text += [f"-I- {name:<25s} {0:<10d} {n:<10d}".rstrip() for name, n in stages]
    text += ["", "-I- You can find detailed errors/warnings in: /var/tmp/ibdiagnet2/ibdiagnet2.log"]
    out("\n".join(text))
    return 1 if counter_errors or slow else 0


def tool_ibdev2netdev(lab: Lab, _argv: list[str]) -> int:
    """ibdev2netdev."""
    node = own(lab, "ibdev2netdev")
    out("\n".join(f"mlx5_{h} port 1 ==> ib{h} (Up)" for h in range(node.gpus)))
    return 0


# --- ipmitool --------------------------------------------------------------------------------------------------------------------


def sel(node: Node) -> list[str]:
    """The BMC's event log."""
    rows: list[tuple[float, str]] = [(node.boot, "System Boot Initiated | Initiated by power up | Asserted"),
                                     (node.boot + 1, "OS Boot | C: boot completed | Asserted")]
    for t, fault, _index in node.log:
        kind, part = fault["kind"], fault["part"]
        if kind == "fan_failed":
            rows += [(t, f"Fan {part}_{s} | Lower Critical going low  | Asserted | Reading 0 < Threshold 1960 RPM") for s in "FR"]
        elif kind == "psu_failed":
            rows.append((t, f"Power Supply {part}_STATUS | Power Supply AC lost | Asserted"))
        elif kind == "inlet_hot":
            rows.append((t, "Temperature TEMP_INLET | Upper Critical going high | Asserted | Reading 43 > Threshold 38 degrees C"))
    for event in node.lab.events(node.name):
        fault = next((f for f in node.lab.faults if f["id"] == event.get("id")), None)
        if fault and fault["kind"] == "node_crash":
            rows.append((float(event["t"]), "Processor CPU0_STATUS | IERR | Asserted"))
    lines = []
    for n, (t, text) in enumerate(sorted(rows), 1):
        lines.append(f"{n:4x} | {time.strftime('%m/%d/%Y | %H:%M:%S', time.localtime(t))} | {text}")
    return lines


def tool_ipmitool(lab: Lab, argv: list[str]) -> int:
    """ipmitool sdr [list|elist|type X], sensor, sel list|elist|info, mc info."""
    words, i = [], 0
    while i < len(argv):
        if argv[i] in ("-I", "-H", "-U", "-P", "-E", "-L", "-f", "-N", "-R"):
            i += 1 if argv[i] == "-E" else 2
            continue
        words.append(argv[i])
        i += 1
    node = own(lab, "ipmitool")
    if silenced(node, "ipmitool"):
        err("Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory")
        return 1
    if words[:2] == ["sdr", "elist"]:
        emit(sdr_elist(node))
    elif words[:2] == ["sdr", "type"] and len(words) > 2:
        emit(sdr_elist(node, " ".join(words[2:]).lower()))
    elif words[:1] == ["sdr"]:
        for name, _n, status, _e, reading in sensors(node):
            out(f"{name:<16s} | {reading:<17s} | {status}")
    elif words[:1] == ["sensor"]:
        for name, _n, status, _e, reading in sensors(node):
            value, _blank, unit = reading.partition(" ")
            if not value.isdigit():
                value, unit = "0x0", "discrete"
            out(f"{name:<16s} | {value:<10s} | {unit:<10s} | {status:<6s}" + " | na        " * 6)
    elif words[:1] == ["sel"]:
        if words[1:2] == ["info"]:
            out(f"SEL Information\nVersion          : 1.5 (v1.5, v2 compliant)\nEntries          : {len(sel(node))}\nOverflow         : false")
        else:
            for line in sel(node):
                out(line)
    elif words[:2] == ["mc", "info"]:
        out("Device ID                 : 32\nFirmware Revision         : 24.01\nIPMI Version              : 2.0\nManufacturer ID           : 5703")
    elif words[:2] == ["chassis", "status"]:
        out("System Power         : on\nPower Overload       : false\nMain Power Fault     : false")
    else:
        err("Invalid command: " + " ".join(words))
        return 1
    return 0


# --- the rest ----------------------------------------------------------------------------------------------------------------------


def tool_pdsh(lab: Lab, argv: list[str]) -> int:
    """pdsh -w NODES COMMAND: the command on every node, its lines prefixed with the node's name."""
    targets: list[str] = []
    words: list[str] = []
    excluded: set[str] = set()
    prefix, i = True, 0
    while i < len(argv):
        arg = argv[i]
        if words or not arg.startswith("-"):
            words.append(arg)
        elif arg[:2] in ("-w", "-x", "-f", "-l", "-t", "-u", "-R"):
            value = arg[2:]
            if not value:
                i += 1
                value = argv[i] if i < len(argv) else ""
            if arg[:2] == "-w":
                targets += expand_hosts(value)
            elif arg[:2] == "-x":
                excluded |= set(expand_hosts(value))
        elif arg == "-N":
            prefix = False
        elif arg == "-a":
            targets += lab.nodes
        i += 1
    targets = [n for n in dict.fromkeys(targets) if n not in excluded]
    if not targets:
        err("pdsh@head: no remote hosts specified")
        return 1
    if not words:
        err("pdsh@head: no command given")
        return 1
    from model.slurm import states

    known = states(lab)
    for name in targets:
        if name not in known:
            err(f"pdsh@head: {name}: ssh: Could not resolve hostname {name}: Name or service not known")
            continue
        if known[name].silent:
            err(f"{name}: ssh: connect to host {name} port 22: Connection timed out\npdsh@head: {name}: ssh exited with exit code 255")
            continue
        lab.ensure_view(name)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(write, 1)
            os.environ.update({"SLURMD_NODENAME": name, "BURNIN_LAB": lab.folder})
            # pdsh hands its words to the remote shell, joined with blanks: that is what the real one does too.
            os.execv("/bin/sh", ["sh", "-c", " ".join(words)])
        os.close(write)
        text = b""
        while piece := os.read(read, 1 << 16):
            text += piece
        os.close(read)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        head = f"{name}: ".encode() if prefix else b""
        write_all(1, b"".join(head + line + b"\n" for line in text.split(b"\n")[: -1 if text.endswith(b"\n") else None] if text))
        if status:
            err(f"pdsh@head: {name}: ssh exited with exit code {status}")
    return 0


def tool_enroot(_lab: Lab, argv: list[str]) -> int:
    """enroot import -o FILE URI | version | list."""
    if argv[:1] == ["version"]:
        out("3.4.1")
        return 0
    if argv[:1] == ["list"]:
        return 0
    if argv[:1] != ["import"]:
        err("Usage: enroot COMMAND [ARG...]")
        return 1
    target, uri = "", ""
    i = 1
    while i < len(argv):
        if argv[i] in ("-o", "--output") and i + 1 < len(argv):
            i += 1
            target = argv[i]
        elif argv[i].startswith("--output="):
            target = argv[i].partition("=")[2]
        elif not argv[i].startswith("-"):
            uri = argv[i]
        i += 1
    if not uri.startswith(("docker://", "dockerd://")):
        err(f"[ERROR] Invalid image reference: {uri}")
        return 1
    name = uri.split("//", 1)[1]
    target = target or name.replace("/", "+").replace("#", "+").replace(":", "+") + ".sqsh"
    if os.path.exists(target):
        err(f"[ERROR] File already exists: {target}")
        return 1
    out(f"[INFO] Querying registry for permission grant\n[INFO] Fetching image manifest\n[INFO] Downloading 61 missing layers...\n"
        f"[INFO] Extracting image layers...\n[INFO] Creating squashfs filesystem...")
    temporary = f"{target}.{os.getpid()}.part"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    write_all(fd, b"hsqs lab image of " + name.encode() + b"\n")
    os.close(fd)
    os.rename(temporary, target)
    return 0


def tool_nvidia_bug_report_sh(lab: Lab, argv: list[str]) -> int:
    """nvidia-bug-report.sh [--output-file FILE]: writes FILE.gz where it is started, as the real one does."""
    node = own(lab, "nvidia-bug-report.sh")
    target = "nvidia-bug-report.log"
    for i, arg in enumerate(argv):
        if arg == "--output-file" and i + 1 < len(argv):
            target = argv[i + 1]
        elif arg.startswith("--output-file="):
            target = arg.partition("=")[2]
    target = target.removesuffix(".gz")
    line = "_" * 44
    smi = lost_text(min(node.lost())) + "\n" if node.lost() else smi_header(node) + "\n" + smi_query(node)
    text = (
        f"Start of NVIDIA bug report log file.  Please include this file, along\nwith a detailed description of your problem.\n\n"
        f"nvidia-bug-report.sh Version: 33845131\n\nDate: {time.strftime('%a %b %e %H:%M:%S %Z %Y')}\nuname: Linux {node.name}\n\n"
        f"{line}\n\n/usr/bin/dmesg\n\n{dmesg(node)}\n{line}\n\n/usr/bin/nvidia-smi --query\n\n{smi}\n{line}\n\n"
        "End of NVIDIA bug report log file.\n"
    )
    import gzip

    with gzip.open(target + ".gz", "wb") as file:
        file.write(text.encode())
    out(f"\nnvidia-bug-report.sh will now collect information about your\nsystem and create the file '{target}.gz' in the current directory.\n\nRunning nvidia-bug-report.sh... complete.\n")
    return 0


# --- the technician ------------------------------------------------------------------------------------------------------------------


def tool_dctech(lab: Lab, argv: list[str]) -> int:
    """dctech NODE PART: the datacenter technician puts right what is wrong with that part."""
    if len(argv) != 2 or argv[0].startswith("-"):
        err("usage: dctech NODE PART        (dctech dgx05 gpu5; dctech fabric PART; dctech storage storage; dctech config config)")
        return 2
    where, part = argv
    if where in lab.nodes:
        cls = part_class(part, lab.gpus)
        if cls is None or cls in ("switch", "storage", "config"):
            known = parts_text(lab.gpus, ("gpu", "hca", "fan", "psu", "node", "inlet", "stack", "tool"))
            err(f"dctech: {where} has no part {part!r}; it has {known}")
            return 1
        mine = [f for f in lab.open_faults(where) if f["part"] == part or (f["part"], part) in (("inlet", "node"), ("node", "inlet"))]
    elif where in ("fabric", "switch", "cluster", "storage", "config", "stack"):
        words = {part, where} if where in ("storage", "config", "stack") else {part}
        mine = [f for f in lab.faults if f["node"] is None and f["part"] in words and not lab.repaired(f)]
        if part_class(part, lab.gpus) is None:
            err(f"dctech: there is no part {part!r} in the {where}")
            return 1
        where = CLUSTER
    else:
        err(f"dctech: there is no node {where!r}; the nodes are in {lab.source}")
        return 1
    if not mine:
        err(f"dctech: nothing is wrong with {part} of {where}; nothing was done")
        return 1
    reboot = any(KINDS[f["kind"]].reboot for f in mine)
    lab.record(where, e="repair", part=part, faults=[f["id"] for f in mine], reboot=reboot, t=round(time.time(), 3))
    for text in dict.fromkeys(KINDS[f["kind"]].fix for f in mine):
        out(f"dctech: {where} {part}: {text}")
    node = Node(lab, where) if where != CLUSTER else None
    if node is not None and part.startswith("gpu"):
        out(f"dctech: {where} {part}: serial number is now {node.serial(int(part[3:]))}")
    elif node is not None and part.startswith("mlx5_"):
        out(f"dctech: {where} {part}: serial number is now {node.hca_serial(int(part[5:]))}")
    if reboot and node is not None:
        out(f"dctech: {where} was rebooted")
    return 0


TOOLS = {
    "dmesg": tool_dmesg,
    "nvidia-smi": tool_nvidia_smi,
    "dcgmi": tool_dcgmi,
    "mlxlink": tool_mlxlink,
    "ibdiagnet": tool_ibdiagnet,
    "ibdev2netdev": tool_ibdev2netdev,
    "ipmitool": tool_ipmitool,
    "pdsh": tool_pdsh,
    "enroot": tool_enroot,
    "nvidia-bug-report.sh": tool_nvidia_bug_report_sh,
    "dctech": tool_dctech,
}


def run(lab: Lab, name: str, argv: list[str]) -> int:
    """Run the tool of this name."""
    tool = TOOLS.get(name)
    if tool is None:
        raise LabError(f"lab: there is no program {name}")
    return tool(lab, argv)
