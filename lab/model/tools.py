# SPDX-License-Identifier: Apache-2.0
"""The BMC, the helpers of an operator, the technician, and the table of all tools."""

from __future__ import annotations

import os
import time

from model.base import LabError, err, expand_hosts, out, write_all
from model.common_tools import emit, own, silenced
from model.fabric_tools import (
    tool_ibdev2netdev,
    tool_ibdiagnet,
    tool_ibqueryerrors,
    tool_ibstat,
    tool_mlxlink,
    tool_ofed_info,
)
from model.gpu_tools import tool_dcgmi, tool_dmesg, tool_nvidia_smi
from model.kinds import KINDS, part_class, parts_text
from model.render import (
    Node,
    dmesg,
    lost_text,
    sdr_elist,
    sensors,
    smi_header,
    smi_query,
)
from model.store import CLUSTER, Lab


def sel(node: Node) -> list[str]:
    """The BMC's event log."""
    rows: list[tuple[float, str]] = [
        (node.boot, "System Boot Initiated | Initiated by power up | Asserted"),
        (node.boot + 1, "OS Boot | C: boot completed | Asserted"),
    ]
    for t, fault, _index in node.log:
        kind, part = fault["kind"], fault["part"]
        if kind == "fan_failed":
            rows += [
                (t, f"Fan {part}_{s} | Lower Critical going low  | Asserted | Reading 0 < Threshold 1960 RPM")
                for s in "FR"
            ]
        elif kind == "psu_failed":
            rows.append((t, f"Power Supply {part}_STATUS | Power Supply AC lost | Asserted"))
        elif kind == "inlet_hot":
            rows.append(
                (
                    t,
                    "Temperature TEMP_INLET | Upper Critical going high | Asserted | Reading 43 > Threshold 38 degrees C",
                )
            )
    for event in node.lab.events(node.name):
        kinds = [f["kind"] for f in node.lab.faults if f["id"] == event.get("id")]
        if kinds == ["node_crash"]:
            rows.append((float(event["t"]), "Processor CPU0_STATUS | IERR | Asserted"))
    lines = []
    for n, (t, text) in enumerate(sorted(rows), 1):
        lines.append(f"{n:4x} | {time.strftime('%m/%d/%Y | %H:%M:%S', time.localtime(t))} | {text}")
    return lines


def tool_ipmitool(lab: Lab, argv: list[str]) -> int:
    """ipmitool sdr [list|elist|type X], sensor, sel list|elist|info, mc info; -H NODE-bmc asks a node's BMC from anywhere."""
    words, i, host = [], 0, ""
    while i < len(argv):
        if argv[i] in ("-I", "-H", "-U", "-P", "-E", "-L", "-f", "-N", "-R"):
            if argv[i] == "-H" and i + 1 < len(argv):
                host = argv[i + 1].removesuffix("-bmc")
            i += 1 if argv[i] == "-E" else 2
            continue
        words.append(argv[i])
        i += 1
    if host and host not in lab.nodes:
        err(f"Address lookup for {host} failed\nError: Unable to establish IPMI v2 / RMCP+ session")
        return 1
    node = Node(lab, host) if host else own(lab)
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
            out(
                "SEL Information\nVersion          : 1.5 (v1.5, v2 compliant)\n"
                f"Entries          : {len(sel(node))}\nOverflow         : false"
            )
        else:
            for line in sel(node):
                out(line)
    elif words[:2] == ["mc", "info"]:
        out(
            "Device ID                 : 32\nFirmware Revision         : 24.01\n"
            "IPMI Version              : 2.0\nManufacturer ID           : 5703"
        )
    elif words[:2] == ["chassis", "status"]:
        out("System Power         : on\nPower Overload       : false\nMain Power Fault     : false")
    else:
        err("Invalid command: " + " ".join(words))
        return 1
    return 0


def tool_pdsh(lab: Lab, argv: list[str]) -> int:
    """pdsh [-N] [-S] -w NODES COMMAND: the command on every node, its lines prefixed with the node's name.

    With -S it returns the largest status of the commands, 254 where a node could not be reached; else 0.
    """
    targets: list[str] = []
    words: list[str] = []
    excluded: set[str] = set()
    prefix, tells, worst, i = True, False, 0, 0
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
        elif arg == "-S":
            tells = True
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
            worst = max(worst, 254)
            continue
        if known[name].silent:
            err(
                f"{name}: ssh: connect to host {name} port 22: Connection timed out\npdsh@head: {name}: ssh exited with exit code 255"
            )
            worst = max(worst, 254)
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
        write_all(
            1,
            b"".join(head + line + b"\n" for line in text.split(b"\n")[: -1 if text.endswith(b"\n") else None] if text),
        )
        if status:
            err(f"pdsh@head: {name}: ssh exited with exit code {status}")
        worst = max(worst, status % 256)
    return worst if tells else 0


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
    out(
        "[INFO] Querying registry for permission grant\n[INFO] Fetching image manifest\n[INFO] Downloading 61 missing layers...\n"
        "[INFO] Extracting image layers...\n[INFO] Creating squashfs filesystem..."
    )
    temporary = f"{target}.{os.getpid()}.part"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    write_all(fd, b"hsqs lab image of " + name.encode() + b"\n")
    os.close(fd)
    os.rename(temporary, target)
    return 0


def tool_nvidia_bug_report_sh(lab: Lab, argv: list[str]) -> int:
    """nvidia-bug-report.sh [--output-file FILE]: writes FILE.gz where it is started, as the real one does."""
    node = own(lab)
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
    out(
        "\nnvidia-bug-report.sh will now collect information about your\nsystem and create the file "
        f"'{target}.gz' in the current directory.\n\nRunning nvidia-bug-report.sh... complete.\n"
    )
    return 0


def tool_dctech(lab: Lab, argv: list[str]) -> int:
    """dctech NODE PART: the datacenter technician puts right what is wrong with that part."""
    if len(argv) != 2 or argv[0].startswith("-"):
        err(
            "usage: dctech NODE PART        (dctech dgx05 gpu5; dctech fabric PART; dctech storage storage; dctech config config)"
        )
        return 2
    where, part = argv
    if where in lab.nodes:
        cls = part_class(part, lab.gpus)
        if cls is None or cls in ("switch", "storage", "config"):
            known = parts_text(lab.gpus, ("gpu", "hca", "fan", "psu", "node", "inlet", "stack", "tool"))
            err(f"dctech: {where} has no part {part!r}; it has {known}")
            return 1
        mine = [
            f
            for f in lab.open_faults(where)
            if f["part"] == part or (f["part"], part) in (("inlet", "node"), ("node", "inlet"))
        ]
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
    "ibstat": tool_ibstat,
    "ofed_info": tool_ofed_info,
    "ibqueryerrors": tool_ibqueryerrors,
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
