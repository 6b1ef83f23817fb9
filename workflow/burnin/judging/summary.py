# SPDX-License-Identifier: Apache-2.0
"""summary.json (contract C3): what is to be said of every node after the gates so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnin.config import Config
from burnin.ladder import Standing, is_gate, repaired_by
from burnin.repairs import history

EMPTY: dict[str, Any] = {
    "failed_step": None,
    "failed_workload": None,
    "part": None,
    "fault": None,
    "reason": None,
    "evidence": [],
    "next_action": None,
}


def summarise(config: Config, events: Sequence[Mapping[str, Any]], standing: Standing, over: bool) -> dict[str, Any]:
    """Return the summary of what happened (`events`: see `burnin.ladder`). `over`: the ladder wants no further heat.

    The campaign is `accepted` when it is over, no more nodes are missing than the config allows, and no link that was
    found waits for its repair: what nobody could clear is not accepted.
    """
    nodes = {n: _node(n, events, standing, over) for n in config.nodes}
    gates = [e for e in events if is_gate(e)]
    links = standing.links
    bad = sum(entry["status"] != "accepted" for entry in nodes.values())
    if not over:
        verdict = "running"
    else:
        allowed = int(config.document["acceptance"]["failed_nodes_allowed"])
        open_links = any(link["waits"] for link in links)
        verdict = "accepted" if bad <= allowed and bad < len(nodes) and not open_links else "rejected"
    last = gates[-1] if gates else None
    return {
        "campaign": config.campaign,
        "verdict": verdict,
        "nodes": nodes,
        "links": links,
        "heats": [
            {"step": g["step"], "heat": g["heat"], "groups": g["groups"], "outcome": g["outcome"]} for g in gates
        ],
        "stopped": last["stopped"] if last and not over else None,
        "steps_not_possible": list(standing.impossible),
        "criteria": config.criteria_digest,
        "criteria_changed": sorted({g["criteria"] for g in gates} - {config.criteria_digest}),
        "config": config.runs_digest,
    }


def _node(name: str, events: Sequence[Mapping[str, Any]], standing: Standing, over: bool) -> dict[str, Any]:
    """Return the entry of one node. Its hours are those since its last repair: the clock started anew."""
    hours: dict[str, dict[str, float]] = {}
    gates = [e for e in events if is_gate(e)]
    exchanged: list[str] = []
    for gate in events:
        if not is_gate(gate):
            if name in repaired_by(gate.get("repair", {"node": None})):
                hours = {}
            continue
        exchanged += gate.get("exchanged", {}).get(name, [])
        for workload, spent in gate["hours"].get(name, {}).items():
            of_step = hours.setdefault(gate["step"], {})
            of_step[workload] = round(of_step.get(workload, 0.0) + spent, 6)
    entry: dict[str, Any] = {"status": "running", **EMPTY, "repairs": standing.repairs.get(name, []), "hours": hours}
    entry |= {"exchanged": exchanged, "away": standing.away.get(name, [])}
    if name in standing.failed:
        *before, found = [
            [f for f in g["findings"] if f["node"] == name and f["scope"] == "node"]
            for g in gates
            if g["outcome"].get(name) == "failed"
        ]
        best = found[0] if found else None
        entry["status"] = "failed"
        if best:
            entry |= {
                "failed_step": best["step"],
                "failed_workload": best["workload"],
                "part": best["part"],
                "fault": best["fault"],
                "reason": best["reason"],
                "next_action": _escalated(best, before, entry["repairs"]),
                "evidence": list(dict.fromkeys(e for f in found for e in f["evidence"]))[:20],
            }
    elif name in standing.unresolved:
        step, _ = standing.unresolved[name]
        why = next(
            s["reason"] for g in reversed(gates) for s in g["suspects"] if s["unresolved"] and name in s["nodes"]
        )
        entry |= {"status": "suspect", "failed_step": step, "reason": why, "next_action": _between(name, standing)}
    elif name in standing.withdrawn:
        step, _ = standing.withdrawn[name]
        entry |= {
            "status": "withdrawn",
            "failed_step": step,
            "reason": standing.withdrawn_why.get(name, "not available"),
            "next_action": "ask who took the node out of Slurm; the burn-in did not. When it is in service again, it comes back",
        }
        last = next(g for g in reversed(gates) if g["outcome"].get(name) == "withdrawn")
        for shown in [f for f in last["findings"] if f["node"] == name and f["scope"] == "nobody"][:1]:
            keys = ("part", "fault", "reason", "next_action", "evidence")
            entry |= {k: shown[k] for k in keys} | {"failed_workload": shown["workload"]}
    elif over:
        entry["status"] = "accepted"
    elif entry["repairs"]:
        entry["status"] = "repaired"
    return entry


def _escalated(
    best: Mapping[str, Any], before: Sequence[Sequence[Mapping[str, Any]]], repairs: Sequence[Mapping[str, Any]]
) -> str:
    """Return the next action; a fault that returned after a repair wants a new part, with its history shown."""
    again = any(f["fault"] == best["fault"] and f["part"] == best["part"] for found in before for f in found)
    if not again or not repairs:
        return str(best["next_action"])
    return f"replace {best['part']}, do not reseat it: {best['fault']} returned after: {history(repairs)}"


def _between(name: str, standing: Standing) -> str:
    """Return what to do about a suspect; a link that was found again after a repair wants new parts."""
    mine = [link for link in standing.links if any(name in side for side in link["between"])]
    now = next((link for link in reversed(mine) if name in link["waits"]), None)
    ends = [set(side) for side in now["between"]] if now else []
    before = [
        link for link in mine if link["repairs"] and link is not now and [set(s) for s in link["between"]] == ends
    ]
    if now and before:
        return f"replace the cable and the transceivers, do not reseat them: it returned after: {history(before[-1]['repairs'])}"
    action = (
        now["next_action"] if now and "next_action" in now else "look at what lies between the parts (cables, switches)"
    )
    return f"{action}; the node is not drained and not accepted"
