# SPDX-License-Identifier: Apache-2.0
"""Draining failed nodes with an owned reason (contract C8). Never touches what somebody else drained."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

#: Slurm keeps a reason on one line; what comes from a log must not break it or look like somebody else's.
REASON_LIMIT = 160


def reason(campaign: str, finding: Mapping[str, Any]) -> str:
    """Return the drain reason of a failed node: owner first, then part, fault and where it failed. Pure."""
    text = f"burnin {campaign}: {finding['fault']} {finding['part']} ({finding['step']} {finding['workload']})"
    return re.sub(r"[^\x20-\x7e]|[\"'`$\\]", "?", text)[:REASON_LIMIT]


def is_ours(campaign: str, text: str) -> bool:
    """Tell whether a drain reason was set by this campaign. Pure."""
    return text.startswith(f"burnin {campaign}:")


def plan_drains(
    campaign: str, gate: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (node -> reason to drain with, node -> why it is left alone) for the failed nodes of a gate. Pure.

    `states`: node -> {"flags": [...], "reason": text} of `scontrol show node`; a node that is drained already, by us
    or by somebody else, keeps its reason.
    """
    wanted: dict[str, str] = {}
    left: dict[str, str] = {}
    for node, outcome in gate["outcome"].items():
        if outcome != "failed":
            continue
        finding = next(f for f in gate["findings"] if f["node"] == node and f["scope"] == "node")
        state = states.get(node)
        if state is None:
            left[node] = "Slurm does not know this node"
        elif "DRAIN" in state["flags"]:
            left[node] = f"drained already: {state['reason']}"
        else:
            wanted[node] = reason(campaign, finding)
    return wanted, left


def drain(nodes: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Drain each node with its reason; return node -> what scontrol said against it (empty if it did it).

    One scontrol for each failed node: failed nodes are few, and each has a reason of its own.
    """
    answers = {}
    for node, text in nodes.items():
        done = _scontrol(["update", f"nodename={node}", "state=drain", f"reason={text}"], environment)
        answers[node] = "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[:300]
    return answers


def plan_resumes(campaign: str, nodes: Sequence[str], states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the nodes to put back into service: drained, with nothing running on them, by this campaign. Pure."""
    busy = {"ALLOCATED", "MIXED", "COMPLETING"}
    return [
        n
        for n in nodes
        if (state := states.get(n))
        and "DRAIN" in state["flags"]
        and is_ours(campaign, state["reason"] or "")
        and not busy & {state.get("base", state["state"]), *state["flags"]}
    ]


#: States of a node that starts jobs, now or when its turn comes.
IN_SERVICE = frozenset(
    {"IDLE", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP", "PLANNED", "CLOUD", "DYNAMIC_NORM"}
)
#: States of a node with nothing on it.
IDLE = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM"})
#: ... and those of a node in a reservation, where the campaign has one.
RESERVED = frozenset({"RESERVED", "RES", "MAINT", "MAINTENANCE"})


def plan_returns(
    away: Mapping[str, int], states: Mapping[str, Mapping[str, Any]], reservation: bool, limit: int | None = None
) -> dict[str, str]:
    """Return node -> state of those that were out without blame and that Slurm has in service again. Pure.

    `away`: node -> how often it came back in vain since it last passed anything. `limit`: who came back so often is left
    alone (None: no limit); a node that Slurm calls idle and that starts no job must not make a campaign go round for ever.
    """
    fine = IN_SERVICE | RESERVED if reservation else IN_SERVICE
    found = {}
    for node, times in away.items():
        state = states.get(node)
        words = {state.get("base", state["state"]), *state["flags"]} if state else set()
        if state and words <= fine and (limit is None or times < limit):
            found[node] = str(state["state"])
    return found


def plan_looks(nodes: Sequence[str], states: Mapping[str, Mapping[str, Any]], reservation: bool) -> list[str]:
    """Return the nodes on which a short job starts at once: nothing runs on them. Pure."""
    fine = IDLE | RESERVED if reservation else IDLE
    return [n for n in nodes if (s := states.get(n)) and {s.get("base", s["state"]), *s["flags"]} <= fine]


def resume(node: str, environment: Mapping[str, str]) -> str:
    """Put a node back into service; return what scontrol said against it (empty if it did it)."""
    done = _scontrol(["update", f"nodename={node}", "state=resume"], environment)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[:300]


def node_states(nodes: Sequence[str], environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return node -> {"flags", "reason", ...} for all nodes with one call. An unanswered call gives nothing."""
    from burnin import parsers
    from burnin.nodes import fold

    done = _scontrol(["show", "node", "-o", fold(nodes)], environment)
    reading = parsers.read_lines("scontrol", done.stdout.splitlines())
    return {str(n["name"]): n for n in reading.data.get("nodes", [])}


def _scontrol(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run scontrol; a missing program or no answer is a failed call, not an exception."""
    try:
        return subprocess.run(
            ["scontrol", *arguments],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(arguments, 1, "", f"scontrol: {error}")
