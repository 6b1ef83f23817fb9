# SPDX-License-Identifier: Apache-2.0
"""dmesg, nvidia-smi and dcgmi in full."""

from __future__ import annotations

import time

from model.base import between, dumps, err, nap, out, pick
from model.common_tools import emit, own, silenced
from model.render import (
    Node,
    _wrap,
    dcgm_index,
    dcgmi_health,
    dmesg,
    gpu_bus,
    health_incidents,
    lost_text,
    smi_query,
)
from model.store import Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any


def tool_dmesg(lab: Lab, argv: list[str]) -> int:
    """dmesg, with -T, --time-format, -x, -l/--level, --color."""
    node = own(lab)
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
    node = own(lab)
    if silenced(node, "nvidia-smi"):
        out(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running."
        )
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
            text = (
                arg.partition("=")[2]
                if arg.startswith("--display=")
                else argv[i + 1]
                if arg == "-d" and i + 1 < len(argv)
                else ""
            )
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
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y"),
        bar,
        f"| NVIDIA-SMI {node.driver():<22s} Driver Version: {node.driver():<14s} CUDA Version: 12.4     |",
        bar,
    ]
    for gpu in present:
        lines.append(
            f"| {gpu:3d}  NVIDIA H100 80GB HBM3          On  |   00000000:{gpu_bus(gpu).upper()}:00.0 Off |                    0 |"
        )
        lines.append(
            f"| N/A   {node.temperature(gpu)}C    P0             {node.power(gpu):4.0f}W /  700W |"
            "       7MiB /  81559MiB |      0%      Default |"
        )
    out("\n".join([*lines, bar]))
    return 0


def health_json(node: Node) -> str:
    """`dcgmi health -c -j`."""
    body: dict[str, Any] = {}
    incidents = health_incidents(node)
    overall = "Failure" if any(i[2] == "Failure" for i in incidents) else "Warning" if incidents else "Healthy"
    if incidents:
        gpus: dict[str, Any] = {}
        for gpu, system, level, message in incidents:
            entry = gpus.setdefault(
                str(dcgm_index(node, gpu)), {"children": {"Errors": {"children": {}}}, "value": level}
            )
            if level == "Failure":
                entry["value"] = level
            entry["children"]["Errors"]["children"][system] = {"overflow": _wrap(message, 54), "value": level}
        body["GPU"] = {"children": gpus}
    body["Overall Health"] = {"value": overall}
    return dumps({"body": body, "header": ["Health Monitor Report"]})


DIAG = (
    (
        "Deployment",
        (
            "Denylist",
            "NVML Library",
            "CUDA Main Library",
            "Permissions and OS Blocks",
            "Persistence Mode",
            "Environment Variables",
            "Page Retirement/Row Remap",
            "Graphics Processes",
            "Inforom",
        ),
        1,
    ),
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
            found.setdefault("Diagnostic", {})[gpu] = (
                f"GPU {gpu}: There was an inconsistency in the calculation results. Run a field diagnostic on the GPU."
            )
        elif kind in ("gpu_slow", "straggler") and part.startswith("gpu"):
            found.setdefault("Targeted Stress", {})[gpu] = (
                f"GPU {gpu}: Performance of 25630.12 did not meet the minimum of 29250.00 GFLOPS."
            )
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
                found.setdefault("Targeted Power", {})[hot] = (
                    f"GPU {hot}: Thermal violations totaling 11.4 seconds started at 4.1 seconds into the test."
                )
        elif kind == "inlet_hot" and shown:
            for hot in range(node.gpus):
                found.setdefault("Targeted Power", {})[hot] = (
                    f"GPU {hot}: Thermal violations totaling 3.7 seconds started at 21.0 seconds into the test."
                )
    return found


def dcgmi_diag(node: Node, level: int, as_json: bool) -> int:
    """`dcgmi diag -r N [-j]`."""
    present = [g for g in range(node.gpus) if g not in node.missing()]
    failures = diag_failures(node)
    ids = ",".join("2330" for g in present if g not in node.lost())
    cell_width = 46
    lines = [
        "Successfully ran diagnostic for group.",
        "+---------------------------+------------------------------------------------+",
        "| Diagnostic                | Result                                         |",
        "+===========================+================================================+",
        "|-----  Metadata  ----------+------------------------------------------------|",
    ]

    def row(name: str, result: str) -> str:
        return f"| {name:<25s} | {result:<{cell_width}s} |"

    lines += [
        row("DCGM Version", "3.3.5"),
        row("Driver Version Detected", node.driver()),
        row("GPU Device IDs Detected", ids),
    ]
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
            results = [
                {
                    "gpu_id": str(dcgm_index(node, g)),
                    "status": "Fail" if g in bad else "Skip" if test == "EUD Test" else "Pass",
                    **({"warnings": [{"error_id": 28, "warning": bad[g]}]} if g in bad else {}),
                }
                for g in present
            ]
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
                lines.append(
                    row(
                        test,
                        "Fail - GPU"
                        + ("s" if len(bad) > 1 else "")
                        + ": "
                        + ", ".join(str(dcgm_index(node, g)) for g in sorted(bad)),
                    )
                )
                good = [g for g in present if g not in bad]
                lines.append(row("", "Pass - GPUs: " + ", ".join(str(dcgm_index(node, g)) for g in good)))
            for gpu in sorted(bad):
                text = bad[gpu]
                pieces = [text[i : i + 45] for i in range(0, len(text), 45)]
                lines += [row("Warning" if i == 0 else "", piece) for i, piece in enumerate(pieces)]
        categories.append({"category": section, "tests": rows})
    lines.append("+---------------------------+------------------------------------------------+")
    if as_json:
        import json  # only here: it costs every other call of a tool some milliseconds

        root = {
            "version": "3.3.5",
            "Driver Version Detected": node.driver(),
            "GPU Device IDs": ids.split(",") if ids else [],
            "test_categories": categories,
        }
        out(json.dumps({"DCGM GPU Diagnostic": root}, indent=3, separators=(",", " : ")))
    else:
        out("\n".join(lines))
    return 226 if failures else 0


def dcgmi_dmon(node: Node, argv: list[str]) -> int:
    """`dcgmi dmon -e 150,155,203,1002 -d MS -c N`."""
    names = {
        "150": ("TMPTR", "C"),
        "155": ("POWER", "W"),
        "203": ("GPUTL", ""),
        "1002": ("SMACT", ""),
        "230": ("XIDER", ""),
        "140": ("MMTMP", "C"),
        "100": ("SMCLK", ""),
        "112": ("DVCCTR", ""),
    }
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
    node = own(lab)
    if silenced(node, "dcgmi"):
        out(
            "Error: unable to establish a connection to the specified host: localhost\n"
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected."
        )
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
            dead = {
                pick(0, 17, "link", *node.noise(f["id"]))
                for f, _e in node.of("nvlink_error")
                if f["part"] == f"gpu{gpu}"
            }
            lines += [f"    gpuId {index}:", "        " + " ".join("D" if n in dead else "U" for n in range(18))]
        out("\n".join(lines))
        return 0
    err("PARSE ERROR: Argument: subsystem\n             Required argument missing: subsystem")
    return 1
