# SPDX-License-Identifier: Apache-2.0
"""summary.json (contract C3): what is to be said of every node after the gates so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnin.config import Config
from burnin.ladder import Standing

EMPTY: dict[str, Any] = {
    "failed_step": None,
    "failed_workload": None,
    "part": None,
    "fault": None,
    "reason": None,
    "evidence": [],
    "next_action": None,
}


def summarise(config: Config, gates: Sequence[Mapping[str, Any]], standing: Standing, over: bool) -> dict[str, Any]:
    """Return the summary. `over`: the ladder wants no further heat.

    The campaign is `accepted` when it is over, no more nodes failed than the config allows, and nothing is left open
    (suspects, links): what nobody could clear is not accepted.
    """
    nodes = {n: _node(n, config, gates, standing, over) for n in config.nodes}
    links = [link for gate in gates for link in gate["links"]]
    bad = sum(entry["status"] != "accepted" for entry in nodes.values())
    if not over:
        verdict = "running"
    else:
        allowed = int(config.document["acceptance"]["failed_nodes_allowed"])
        verdict = "accepted" if bad <= allowed and bad < len(nodes) and not links else "rejected"
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


def _node(
    name: str, config: Config, gates: Sequence[Mapping[str, Any]], standing: Standing, over: bool
) -> dict[str, Any]:
    """Return the entry of one node."""
    hours: dict[str, dict[str, float]] = {}
    for gate in gates:
        for workload, spent in gate["hours"].get(name, {}).items():
            of_step = hours.setdefault(gate["step"], {})
            of_step[workload] = round(of_step.get(workload, 0.0) + spent, 6)
    entry: dict[str, Any] = {"status": "running", **EMPTY, "repairs": [], "hours": hours}
    if name in standing.failed:
        found = [
            f
            for g in gates
            for f in g["findings"]
            if f["node"] == name and f["scope"] == "node" and g["outcome"].get(name) == "failed"
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
                "next_action": best["next_action"],
                "evidence": list(dict.fromkeys(e for f in found for e in f["evidence"]))[:20],
            }
    elif name in standing.unresolved:
        step, _ = standing.unresolved[name]
        why = next(s["reason"] for g in gates for s in g["suspects"] if s["unresolved"] and name in s["nodes"])
        action = "look at what lies between the parts (cables, switches); the node is not drained and not accepted"
        entry |= {"status": "suspect", "failed_step": step, "reason": why, "next_action": action}
    elif name in standing.withdrawn:
        step, _ = standing.withdrawn[name]
        entry |= {
            "status": "withdrawn",
            "failed_step": step,
            "reason": standing.withdrawn_why.get(name, "not available"),
            "next_action": "ask who took the node out of Slurm; the burn-in did not",
        }
    elif over:
        entry["status"] = "accepted"
    return entry
