# SPDX-License-Identifier: Apache-2.0
"""What is worth telling people of a campaign: drop-outs, hangs, stalls, steps done, the end, a stop. Pure.

Everything is worked out anew from the campaign's files; each fact has a key, and whoever tells it keeps the keys. So a
fact is told once, whoever finds it first: a gate, the head's look every minute, or the head that takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.nodes import fold
from burnin.status import Status, duration

KINDS = ("drop_out", "hang", "stall", "step_done", "campaign_done", "stopped", "test")

#: A delivery that failed is tried again after so many seconds, then given up.
PAUSES = (60.0, 600.0)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing to be told. Facts of one kind and `place` (a heat, a step) go into one message."""

    kind: str
    key: str
    place: str
    text: str
    item: dict[str, Any] = field(default_factory=dict)


def facts(status: Status, summary: Mapping[str, Any], now: float, stall_hours: float) -> list[Fact]:
    """Return everything that is to be told of a campaign as it stands, in order. `now`: seconds since the epoch."""
    found: list[Fact] = []
    for gate in status.gates:
        found += _drop_outs(gate)
    found += _runs(status, now, stall_hours)
    for row in status.rows:
        if row.done and row.step != "retest":
            passed = min((c.passed for c in row.cells.values()), default=0)
            text = f"{row.step} is done: {passed} nodes passed it"
            found.append(
                Fact(
                    "step_done",
                    f"step_done:{row.step}:{row.heats}",
                    row.step,
                    text,
                    {"step": row.step, "passed": passed},
                )
            )
    if stopped := summary["stopped"]:
        found.append(
            stop(stopped, f"{status.gates[-1]['step']}/heat{status.gates[-1]['heat']}" if status.gates else "")
        )
    if status.current is None and status.gates:
        found.append(_done(summary, len(status.gates)))
    return found


def stop(stopped: Mapping[str, str], place: str) -> Fact:
    """Return the fact that a campaign stopped ({kind, text, cure}) at a place (a heat, an invocation)."""
    text = f"the campaign stopped ({stopped['kind']}): {stopped['text']}. What to do: {stopped['cure']}"
    return Fact("stopped", f"stopped:{place}:{stopped['kind']}", place, text, dict(stopped))


def _drop_outs(gate: Mapping[str, Any]) -> list[Fact]:
    """Return who is out since a gate: who failed, who is suspect and could not be cleared, who is withdrawn."""
    place = f"{gate['step']}/heat{gate['heat']}"
    held = {n: s["reason"] for s in gate["suspects"] if s["unresolved"] for n in s["nodes"]}
    found = []
    for node, outcome in gate["outcome"].items():
        item: dict[str, Any] = {"node": node, "status": outcome}
        if outcome == "failed":
            item["drained"] = gate["drained"].get(node, "")
            reason = next((f for f in gate["findings"] if f["node"] == node and f["scope"] == "node"), None)
            if reason:
                names = ("workload", "part", "fault", "reason", "next_action")
                item |= {name: reason[name] for name in names} | {"evidence": reason["evidence"][:5]}
        elif outcome == "withdrawn":
            item["reason"] = f"withdrawn, and nobody's fault: {gate['withdrawn'].get(node, 'not available')}"
        elif outcome == "suspect" and node in held:
            item["reason"] = f"suspect, not cleared: {held[node]}"
        else:
            continue
        text = f"{node}: {item.get('reason', outcome)}"
        found.append(Fact("drop_out", f"drop_out:{place}:{node}", place, text, item))
    return found


def _runs(status: Status, now: float, stall_hours: float) -> list[Fact]:
    """Return the runs of the heat in progress that hung, and those that give no sign of life."""
    found = []
    for run in status.runs:
        place = run.run_id.rsplit("/", 2)[0]
        item = {"run": run.run_id, "nodes": fold(run.nodes)}
        if run.state == "stopped" and run.reason.startswith("hang"):
            text = f"{run.run_id} on {fold(run.nodes)} hung: {run.reason}"
            found.append(Fact("hang", f"hang:{run.run_id}:{run.ended}", place, text, {**item, "reason": run.reason}))
        elif run.state in ("running", "queued") and run.since is not None and now - run.since > stall_hours * 3600:
            silent = (now - run.since) / 3600
            what = "has given no sign of life for" if run.state == "running" else "has been waiting for Slurm for"
            text = f"{run.run_id} on {fold(run.nodes)} {what} {duration(silent)}"
            # the key has the last sign of life: silence is told once, and again after it was broken
            found.append(
                Fact("stall", f"stall:{run.run_id}:{run.since:.0f}", place, text, {**item, "hours": round(silent, 2)})
            )
    return found


def _done(summary: Mapping[str, Any], gates: int) -> Fact:
    """Return the fact that the ladder is done."""
    by_status: dict[str, list[str]] = {}
    for name, entry in summary["nodes"].items():
        by_status.setdefault(entry["status"], []).append(name)
    told = ", ".join(f"{len(names)} {word} ({fold(names)})" for word, names in sorted(by_status.items()))
    verdict = summary["verdict"]
    item = {"verdict": verdict, "nodes": {word: fold(names) for word, names in by_status.items()}}
    return Fact("campaign_done", f"campaign_done:{gates}:{verdict}", "", f"the campaign is {verdict}: {told}", item)


# ------------------------------------------------------------------------------------------------------------- telling


def due(found: Iterable[Fact], records: Iterable[Mapping[str, Any]], now: float) -> list[Fact]:
    """Return the facts that are to be told now. `records`: what was done for each key so far, in order.

    Told once: a key with an intent and no answer (the head was killed in between) is not told again, nobody knows
    whether it arrived. One whose delivery failed is tried again twice.
    """
    last: dict[str, Mapping[str, Any]] = {}
    failures: dict[str, int] = {}
    for record in records:
        last[record["key"]] = record
        failures[record["key"]] = failures.get(record["key"], 0) + (record["state"] == "failed")
    wanted = []
    for fact in found:
        before, count = last.get(fact.key), failures.get(fact.key, 0)
        again = (
            before
            and before["state"] == "failed"
            and count <= len(PAUSES)
            and now - before["time"] >= PAUSES[count - 1]
        )
        if before is None or again:
            wanted.append(fact)
    return wanted


def messages(wanted: Sequence[Fact], kinds: Sequence[str]) -> list[tuple[dict[str, Any], list[str]]]:
    """Return (what is said, the keys of its facts) for each message: facts of one kind and place are said together."""
    grouped: dict[tuple[str, str], list[Fact]] = {}
    for fact in wanted:
        if fact.kind in kinds:
            grouped.setdefault((fact.kind, fact.place), []).append(fact)
    found = []
    for (kind, place), members in grouped.items():
        text = _headline(kind, place, members)
        said = {"event": kind, "place": place, "text": text, "items": [f.item for f in members if f.item]}
        found.append((said, [f.key for f in members]))
    return found


def _headline(kind: str, place: str, members: Sequence[Fact]) -> str:
    """Return a message's text: what happened, then the first few of many."""
    texts = [f.text for f in members[:5]]
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    if kind == "drop_out":
        names = fold(str(f.item["node"]) for f in members)
        return f"{names} dropped out in {place}: " + "; ".join(texts) + more
    return "; ".join(texts) + more
