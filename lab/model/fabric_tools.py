# SPDX-License-Identifier: Apache-2.0
"""mlxlink, ibdiagnet, ibdev2netdev and ofed_info in full."""

from __future__ import annotations

import time

from model.base import dumps, err, hexes, out
from model.common_tools import emit, own, silenced
from model.render import (
    Node,
    link_counters,
    mlxlink_counters,
    mlxlink_head,
    mlxlink_module,
)
from model.store import CLUSTER, Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any


def tool_mlxlink(lab: Lab, argv: list[str]) -> int:
    """mlxlink -d DEVICE [-c] [-m] [--json] [-pc]."""
    node = own(lab)
    device = ""
    for i, arg in enumerate(argv):
        if arg in ("-d", "--device") and i + 1 < len(argv):
            device = argv[i + 1]
        elif arg.startswith("--device="):
            device = arg.partition("=")[2]
    hca = int(device[5:]) if device.startswith("mlx5_") and device[5:].isdigit() else -1
    if silenced(node, "mlxlink"):
        err(f'\n-E- Failed to open device: "{device}". Cannot open the device: Operation not permitted.\n')
        return 1
    if not 0 <= hca < node.gpus:
        err(
            f'\n-E- Failed to open device: "{device}". No such file or directory\n'
            if device
            else "\n-E- Device was not specified\n"
        )
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


def counter_line(where: str, counter: str, value: int) -> str:
    """One port counter that grew, as ibdiagnet names it."""
    return f'-E- {where} - "{counter}" increased by {value} (difference value={value},difference allowed threshold=1)'


def tool_ibdiagnet(lab: Lab, argv: list[str]) -> int:
    """ibdiagnet [-pc]: the whole fabric, from any node or the head."""
    if "-pc" in argv or "--pc" in argv:
        for name in lab.nodes:
            if any(
                link_counters(Node(lab, name), h)["effective"] or link_counters(Node(lab, name), h)["down"]
                for h in range(lab.gpus)
            ):
                lab.record(name, e="clear", t=round(time.time(), 3))
        cleared = True
    else:
        cleared = False
    cas = len(lab.nodes) * lab.gpus + 1
    switches = switch_count(lab)
    errors, slow = [], []
    for name in lab.nodes:
        if not any(f["node"] == name for f in lab.faults):
            continue
        node = Node(lab, name)
        for hca in range(node.gpus):
            c = link_counters(node, hca)
            lid = lab.nodes.index(name) * lab.gpus + hca + 3
            where = f"lid=0x{lid:04x} dev=4129 {name}/U{hca + 1}/P1"
            for key, counter in (
                ("down", "link_down_counter"),
                ("symbol", "symbol_error_counter"),
                ("recovery", "link_error_recovery_counter"),
            ):
                if c[key]:
                    errors.append(counter_line(where, counter, c[key]))
            if f"mlx5_{hca}" in node.part_of("rail_slow"):
                slow.append(
                    f"-E- Link: {name}/U{hca + 1}/P1<-->leaf{hca + 1:02d}/U1/P{lab.nodes.index(name) + 1} - "
                    'Unexpected actual link speed 50 (enable_speed1="100", therefore final speed should be 100)'
                )
    for fault in lab.faults:
        if fault["kind"] == "fabric_slow" and lab.has_shown(fault) and not lab.repaired(fault):
            n = sum(1 for e in lab.events(CLUSTER) if e.get("id") == fault["id"])
            where = f"lid=0x0402 dev=54002 {fault['part']}/U1/P33"
            errors.append(counter_line(where, "port_rcv_remote_physical_errors", 211 * n))
    counter_errors = 0 if cleared else len(errors)
    stages = [
        ("Discovery", 0),
        ("Lids Check", 0),
        ("Links Check", 0),
        ("Subnet Manager", 0),
        ("Port Counters", counter_errors),
        ("Nodes Information", 0),
        ("Speed / Width checks", len(slow)),
        ("Virtualization", 0),
        ("Partition Keys", 0),
        ("Alias GUIDs", 0),
    ]
    text = [
        "Loading IBDIAGNET from: /usr/lib/x86_64-linux-gnu/ibdiagnet2.1.1",
        "-" * 49,
        "ibdiagnet v2.13.0 (build 2401151405)",
        "",
        "Discovery",
        f"-I- Discovering ... {switches + cas} nodes ({switches} Switch(es) & {cas} CA(s)) discovered.",
        "-I- Fabric Discover finished successfully",
        "",
        "Lids Check",
        "-I- Lids Check finished successfully",
        "",
        "Links Check",
        "-I- Links Check finished successfully",
        "",
        "Subnet Manager",
        "-I- SM Info retrieving finished successfully",
        "",
        "Port Counters",
    ]
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
        text += [
            "-I- Link Speed Check (Compare to supported link speed)",
            "-I- Links Speed Check finished successfully",
        ]
    text += ["", "Summary", "-I- Stage                     Warnings   Errors     Comment"]
    text += [f"-I- {name:<25s} {0:<10d} {n:<10d}".rstrip() for name, n in stages]
    text += ["", "-I- You can find detailed errors/warnings in: /var/tmp/ibdiagnet2/ibdiagnet2.log"]
    out("\n".join(text))
    return 1 if counter_errors or slow else 0


def tool_ibdev2netdev(lab: Lab, _argv: list[str]) -> int:
    """ibdev2netdev."""
    node = own(lab)
    out("\n".join(f"mlx5_{h} port 1 ==> ib{h} (Up)" for h in range(node.gpus)))
    return 0


def tool_ofed_info(lab: Lab, argv: list[str]) -> int:
    """ofed_info -s."""
    own(lab)
    out("MLNX_OFED_LINUX-23.10-1.1.9.0:" if argv == ["-s"] else "MLNX_OFED_LINUX-23.10-1.1.9.0 (OFED-23.10-1.1.9):")
    return 0


def tool_ibstat(lab: Lab, argv: list[str]) -> int:
    """ibstat [CA]."""
    node = own(lab)
    names = [a for a in argv if not a.startswith("-")] or [f"mlx5_{h}" for h in range(node.gpus)]
    for name in names:
        hca = int(name[5:]) if name.startswith("mlx5_") and name[5:].isdigit() else -1
        if not 0 <= hca < node.gpus:
            err(f"ibpanic: [1] main: stat of IB device '{name}' failed: No such file or directory")
            return 1
        guid = hexes(10, "guid", *node.noise(hca))
        rate = 200 if name in node.part_of("rail_slow") else 400
        out(
            f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tHardware version: 0\n"
            f"\tNode GUID: 0xa088c2{guid}\n\tSystem image GUID: 0xa088c2{guid}\n\tPort 1:\n\t\tState: Active\n"
            f"\t\tPhysical state: LinkUp\n\t\tRate: {rate}\n\t\tBase lid: {lab.nodes.index(node.name) * node.gpus + hca + 3}\n"
            f"\t\tLMC: 0\n\t\tSM lid: 1\n\t\tCapability mask: 0xa751e848\n\t\tPort GUID: 0xa088c2{guid}\n"
            "\t\tLink layer: InfiniBand"
        )
    return 0


def tool_ibqueryerrors(lab: Lab, _argv: list[str]) -> int:
    """ibqueryerrors: port counters above their thresholds, of hosts and leaf switches."""
    bad = 0
    for name in lab.nodes:
        if not any(f["node"] == name for f in lab.faults):
            continue
        node = Node(lab, name)
        for hca in range(node.gpus):
            c = link_counters(node, hca)
            pairs = (
                ("SymbolErrorCounter", "symbol"),
                ("LinkErrorRecoveryCounter", "recovery"),
                ("LinkDownedCounter", "down"),
            )
            counters = " ".join(f"[{counter} == {min(c[key], 65535)}]" for counter, key in pairs if c[key])
            if counters:
                bad += 1
                guid = "a088c2" + hexes(10, "guid", *node.noise(hca))
                out(f'Errors for 0x{guid} "{name} mlx5_{hca}"\n   GUID 0x{guid} port 1: {counters}')
    cas = len(lab.nodes) * lab.gpus + 1
    out(f"\n## Summary: {cas + switch_count(lab)} nodes checked, {bad} bad nodes found")
    out(f"##          {cas + 64 * switch_count(lab)} ports checked, {bad} ports have errors beyond threshold")
    return min(bad, 255)


def switch_count(lab: Lab) -> int:
    """Switches of a rail-optimised two-level fabric for so many nodes."""
    leaves = max(2, -(-len(lab.nodes) // 32) * 8)
    return leaves + leaves // 2
