# SPDX-License-Identifier: Apache-2.0
"""The rerun limit: what repeats without anybody learning anything comes to an end, and what was missing is named. Pure.

Evidence that one node alone does not give fails it; what nobody is to blame for stops the campaign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.judging.run import Context, Lack, Run
from burnin.nodes import fold

#: Causes of owing that repeat without anybody learning anything; they are counted against `rerun_limit`.
COUNTED = frozenset({"cancelled", "time_limit", "died", "not_started", "inconclusive", "overlap"})
CURES = {
    "time_limit": "raise slurm.time_limit_minutes or shorten the window",
    "cancelled": "find out who cancels the jobs; then start snakemake again",
}
#: So many kinds of what is missing are named.
MOST_LACKS = 3


@dataclass(slots=True)
class Over:
    """Whose count is over the limit: nodes that fail for it, each with its finding, and why the campaign stops."""

    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    stopped: dict[str, str] | None = None


def apply(
    owes: Mapping[str, Mapping[str, str]],
    failed: Mapping[str, Any],
    passed: Mapping[str, Sequence[str]],
    context: Context,
    runs: Sequence[Run],
) -> Over:
    """Hold everybody who owes against the limit. `failed`, `passed`: what the gate has decided so far."""
    unread_here = [n for n, o in owes.items() if o["cause"] == "inconclusive"]
    # nodes that the same probes could read in this step, now or in an earlier heat: then the tools work
    readable = {n for g in (*context.gates, {"passed": passed}) for n in g["passed"]} - set(unread_here)
    found = Over()
    in_vain: dict[str, int] = {}
    for node, entry in owes.items():
        if node in failed or entry["cause"] not in COUNTED:
            continue
        since, causes = _count(node, entry["cause"], context.gates)
        if since < context.rerun_limit:
            continue
        run = next((r for r in runs if node in r.unread), None)
        if run and causes == {"inconclusive"} and len(unread_here) <= len(readable):
            found.failed[node] = _convict(run, node, since + 1, entry["text"], context)
        else:
            in_vain[node] = since + 1
    if in_vain:
        found.stopped = _stop(owes, in_vain, runs)
    return found


def _count(node: str, cause: str, gates: Sequence[Mapping[str, Any]]) -> tuple[int, set[str]]:
    """Return how many earlier heats gave nothing for a node since the last stop, and for which causes."""
    since, causes = 0, {cause}
    for gate in reversed(gates):
        if gate.get("stopped"):
            break  # the operator went on after a stop: the count starts anew
        before = gate["owes"].get(node, {}).get("cause")
        since += before in COUNTED
        causes |= {before} & COUNTED
    return since, causes


def _convict(run: Run, node: str, heats: int, text: str, context: Context) -> dict[str, Any]:
    """Return the finding on a node that alone gives no evidence."""
    lacks = run.unread[node]
    return run.finding(
        node,
        part="node",
        fault="probe_unreadable",
        signal="unreadable",
        scope="node",
        value=float(heats),
        unit="heats",
        limit=float(context.rerun_limit),
        limit_origin="config rerun_limit",
        evidence=list(dict.fromkeys(place for lack in lacks for place in lack.evidence)),
        reason=f"this node alone gave no evidence in {heats} heats: {text}"[:400],
        next_action=f"{'; '.join(dict.fromkeys(lack.cure for lack in lacks))}; without evidence it does not pass",
        confidence="certain",
        rank=95,
    )


def _stop(owes: Mapping[str, Mapping[str, str]], in_vain: Mapping[str, int], runs: Sequence[Run]) -> dict[str, str]:
    """Return why the campaign stops: what was run in vain, for whom, and what was missing each time."""
    first = next(iter(in_vain))
    cause = owes[first]["cause"]
    alike = [n for n in in_vain if owes[n]["cause"] == cause]
    step = runs[0].result["step"]
    missing = _missing(alike, runs) if cause in ("inconclusive", "overlap") else ""
    return {
        "kind": cause,
        "text": f"{step} was run {in_vain[first]} times for {fold(alike)} without a result: {owes[first]['text']}",
        "cure": missing or CURES.get(cause, "remove the cause; then start snakemake again"),
    }


def _missing(nodes: Sequence[str], runs: Sequence[Run]) -> str:
    """Return what was missing of nodes, what is missing alike of several once, with what makes it be there."""
    alike: dict[tuple[str, str], tuple[list[str], Lack]] = {}
    for node in nodes:
        for run in (r for r in runs if node in r.nodes):
            for lack in (*run.unread.get(node, ()), *((run.lack,) if run.lack else ())):
                members, _ = alike.setdefault((lack.text, lack.cure), ([], lack))
                members.append(node)
    told = [
        f"{fold(dict.fromkeys(who))}: {lack.text} ({lack.evidence[0]}): {lack.cure}" for who, lack in alike.values()
    ]
    more = [f"and {len(told) - MOST_LACKS} more like that"] if len(told) > MOST_LACKS else []
    return "; ".join([*told[:MOST_LACKS], *more])
