# SPDX-License-Identifier: Apache-2.0
"""Repairs: who is let in again by one, what is doubtful about it, and whether anything was exchanged at all. Pure.

A record is a line of repairs.jsonl (repair.schema.json): a node's repair, a link's, or that a node which was out without
blame is back. What they mean for the ladder stands in `burnin.ladder`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from burnin.errors import CampaignError
from burnin.ladder import is_gate, repaired_by
from burnin.nodes import fold
from burnin.topology import Topology

Summary = Mapping[str, Any]
#: PCI address -> (GPU index or None, serial number or None), of a listing that shows all GPUs of a node
Gpus = Mapping[str, tuple[int | None, str | None]]

#: What a node is out for, and a repair lets it in again.
OUT = ("failed", "suspect", "withdrawn")
#: Parts that are a node as a whole: any of its GPUs may have been exchanged with it.
WHOLE = frozenset({"node", "board", "baseboard", "hgx", "chassis", "stack"})


# ------------------------------------------------------------------------------------------------------------- records


def check(record: Mapping[str, Any], summary: Summary, gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is doubtful about a repair, as sentences. `gates`: all of the campaign, in order.

    Raises CampaignError if a node is not out, or if the record does not say what was done.
    """
    campaign = summary["campaign"]
    for node in repaired_by(record):
        entry = summary["nodes"].get(node)
        if entry is None:
            raise CampaignError(f"{node} is no node of campaign {campaign}", "see burnin show for the nodes")
        if entry["status"] not in OUT:
            raise CampaignError(
                f"{node} is {entry['status']}, not failed: there is nothing to repair", "see burnin show"
            )
    if len(record["fix"].strip()) < 3:
        raise CampaignError("a repair without a fix proves nothing", "say with --fix what was done")
    return [] if record.get("kind") == "link" else _other_part(record, summary, gates)


def _other_part(record: Mapping[str, Any], summary: Summary, gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say that the repaired part is none of those that were found, if so."""
    node, part = record["node"], record["part"]
    if summary["nodes"][node]["status"] != "failed":
        return []
    gate = next((g for g in reversed(gates) if g["outcome"].get(node) == "failed"), None)
    found = [f for f in gate["findings"] if f["node"] == node and f["scope"] == "node"] if gate else []
    parts = list(dict.fromkeys(str(f["part"]) for f in found))
    if not parts or part.lower() in {p.lower() for p in parts} or part.lower() in WHOLE or set(parts) & WHOLE:
        return []
    return [
        f"{node} failed with {', '.join(parts)} ({found[0]['fault']}), and {part} was repaired: if that is not what you "
        "meant, record the repair again with the right --part"
    ]


def times_away(node: str, events: Sequence[Mapping[str, Any]]) -> int:
    """Return how often a node came back into service, and was taken out again, since it last passed anything."""
    count = 0
    for event in reversed(events):
        if is_gate(event):
            if event["passed"].get(node):
                break
        elif event.get("returned", {}).get("node") == node:
            count += 1
    return count


def since_it_ran(node: str, events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the repairs of a node since it last ran anything but its retest; none if it has run since the last one."""
    found: list[Mapping[str, Any]] = []
    for event in reversed(events):
        if not is_gate(event):
            record = event.get("repair")
            if record and node in repaired_by(record):
                found.insert(0, record)
        elif event["step"] != "retest" and any(node in members for members in event["groups"].values()):
            break
    return found


# --------------------------------------------------------------------------------------------------------------- links


def ends_of(link: str) -> list[tuple[str, str]]:
    """Return (node or switch, port) of each end of `dgx02/mlx5_3` or `dgx02/mlx5_3,leaf1/17`; the port may be missing."""
    ends = [tuple(part.strip() for part in end.partition("/")[::2]) for end in link.split(",")]
    if not all(name for name, _ in ends):
        raise CampaignError(f"{link!r} names no link", "name its ends: dgx02/mlx5_3, or dgx02/mlx5_3,leaf1/17")
    return [(name, port) for name, port in ends]


def touched(link: str, summary: Summary, topology: Topology | None) -> tuple[list[str], str | None]:
    """Return the nodes that are out because of a link, in config order, and the fault that was found.

    Those are: a node that failed with the port that an end names; and the suspects of the links found, which are still
    open, that have the ends: one end on each side where two are known, else on any. A switch (leaf or above, if the
    topology is known) stands for all nodes below it, but convicts none that failed with a port of its own.
    Raises CampaignError if nobody is out because of it.
    """
    ends = ends_of(link)
    nodes = summary["nodes"]
    sets = [s for s in ({n} if n in nodes else _below(n, topology) & set(nodes) for n, _ in ends) if s]
    if not sets:
        raise CampaignError(
            f"{link} has no end that is known: neither a node of campaign {summary['campaign']} nor a switch of its topology",
            "name the node at one end: --link dgx02/mlx5_3, or --link leaf1/17,dgx02/mlx5_3",
        )
    found: set[str] = set()
    faults: list[str] = []
    others: list[str] = []
    for name, port in ends:
        entry = nodes.get(name)
        if entry is None or entry["status"] != "failed":
            continue
        if not port or str(entry["part"]).split("/")[0] == port:
            found.add(name)
            faults.append(str(entry["fault"]))
        else:
            others.append(f"{name} failed with {entry['part']}, not with {port}")
    open_links = [e for e in summary["links"] if e.get("waits")]
    across = [e for e in open_links if len(sets) > 1 and _across(e["between"], sets)]
    for entry in across or [e for e in open_links if any(s & _all(e["between"]) for s in sets)]:
        found |= {n for n in entry["waits"] if nodes.get(n, {}).get("status") == "suspect"}
        faults.append(str(entry["fault"]))
    if not found:
        known = "; ".join(" - ".join(fold(s) for s in e["between"] if s) for e in open_links)
        raise CampaignError(
            f"nobody is out because of {link}" + (f" ({'; '.join(others)})" if others else ""),
            f"the links that were found: {known}"
            if known
            else "record the repair of the node: burnin repair NODE --part ...",
        )
    return [n for n in nodes if n in found], faults[0] if faults else None


def _all(sides: Iterable[Iterable[str]]) -> set[str]:
    return {n for side in sides for n in side}


def _across(sides: Sequence[Sequence[str]], ends: Sequence[set[str]]) -> bool:
    """Tell whether a link found between two sides has one end of the named ones on each."""
    one, two = (set(s) for s in sides)
    return any((a & one and b & two) or (a & two and b & one) for i, a in enumerate(ends) for b in ends[i + 1 :])


def _below(switch: str, topology: Topology | None) -> set[str]:
    """Return the nodes that a switch carries."""
    if topology is None:
        return set()
    return {
        n
        for n, p in topology.places.items()
        if switch in (p.leaf, *p.above, *(s for _, s in p.rails)) or switch in str(p.leaf or "").split(",")
    }


# ------------------------------------------------------------------------------------------------------------- serials


def listing(probes: Mapping[str, Mapping[str, Any]], node: str, gpus_per_node: int, last: bool) -> Gpus | None:
    """Return the last (or first) listing of a node in a result's `probes` that shows all its GPUs, or None."""
    seen = [p[node] for p in probes.values() if node in p and len(p[node].get("gpus") or {}) == gpus_per_node]
    if not seen or not gpus_per_node:
        return None
    chosen = (max if last else min)(seen, key=lambda s: s["time"])
    return {bdf: (g.get("index"), g.get("serial")) for bdf, g in chosen["gpus"].items()}


def exchanged(node: str, before: Gpus, after: Gpus, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the serial numbers say of a node's repair, as sentences. `records`: what was recorded in between.

    Only GPUs have serial numbers that are read in every run; of another part nothing can be said, and nothing is.
    """
    index = {bdf: i for listed in (before, after) for bdf, (i, _) in listed.items() if i is not None}
    names = {bdf: f"gpu{index[bdf]}" if bdf in index else f"the GPU at {bdf}" for bdf in {*before, *after}}
    known = {b for b in before if b in after and _real(before[b][1]) and _real(after[b][1])}
    changed = {b for b in known if before[b][1] != after[b][1]}
    said: list[str] = []
    told: set[str] = set()
    for record in records:
        part, serial = str(record.get("part", "")).lower(), record.get("serial")
        mine = {b for b in known if names[b] == part}
        for bdf in sorted(mine):
            told.add(bdf)
            old, new = before[bdf][1], after[bdf][1]
            if bdf in changed:
                said.append(f"{node}: {part} was exchanged: its serial number was {old} and is {new}")
            else:
                said.append(
                    f"{node}: {part} is the same as before the repair (serial number {new}): it was not exchanged"
                )
            if serial and serial != new:
                said.append(f"{node}: the repair says that {part} has serial number {serial} now, but it has {new}")
        if re.fullmatch(r"gpu\d+", part) and not mine:
            said.append(
                f"{node}: no serial number of {part} was read before and after the repair: nothing can be compared"
            )
        if part in WHOLE and known:
            told |= changed
            names_changed = ", ".join(sorted(names[b] for b in changed)) or f"none of its {len(known)} GPUs"
            said.append(f"{node}: {names_changed} has another serial number than before the repair")
    for bdf in sorted(changed - told):
        said.append(
            f"{node}: {names[bdf]} was exchanged ({before[bdf][1]}, now {after[bdf][1]}), and no repair says so"
        )
    return list(dict.fromkeys(said))


def _real(serial: str | None) -> bool:
    """Tell a serial number from what is printed for none ("N/A", "0")."""
    return bool(serial) and str(serial).strip("0") != "" and str(serial).upper() not in ("N/A", "NONE", "UNKNOWN")


# ------------------------------------------------------------------------------------------------------------- history


def history(records: Sequence[Mapping[str, Any]]) -> str:
    """Return what was done so far in one line: fix, part, when, by whom."""
    return "; ".join(
        f"{r['fix']} ({', '.join(x for x in (str(r.get('part') or ''), _day(r.get('time')), 'by ' + str(r.get('by', '?'))) if x)})"
        for r in records
    )


def _day(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if seconds else ""
