# SPDX-License-Identifier: Apache-2.0
"""Where a campaign stands, from its files alone: steps x workloads, runs in progress, what is still owed, an estimate.

`standing_table` is pure; `collect` reads the journals of the heat in progress only, so it is cheap at any size.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnin.campaign import Campaign
from burnin.ladder import Heat
from burnin.nodes import fold
from burnin.paths import RunRef
from burnin.runs import attempts, journal
from burnin.runs.spec import load_spec


@dataclass(frozen=True, slots=True)
class Progress:
    """A run of the heat in progress. `done` is the share of its window (0 to 1); `last` what its last iteration gave."""

    run_id: str
    nodes: str
    state: str  # waiting, running, or the state of its result
    done: float
    iterations: int
    last: str
    since: float | None  # time of the newest record (seconds since the epoch)


def standing_table(heats: Sequence[tuple[Heat, bool]], gates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a step: nodes that passed, failed, owe, and the heats decided and projected. Pure."""
    rows: dict[str, dict[str, Any]] = {}
    for heat, decided in heats:
        row = rows.setdefault(
            heat.step, {"step": heat.step, "heats": 0, "to come": 0, "runs to come": 0, "outcomes": Counter()}
        )
        row["heats" if decided else "to come"] += 1
        if not decided:
            row["runs to come"] += sum(len(g.workloads) for g in heat.groups)
    latest: dict[tuple[str, str], str] = {}
    for gate in gates:
        for node, outcome in gate["outcome"].items():
            latest[gate["step"], node] = outcome
    for (step, _), outcome in latest.items():
        if step in rows:
            rows[step]["outcomes"][outcome] += 1
    return list(rows.values())


def collect(campaign: Campaign) -> tuple[list[dict[str, Any]], list[Progress], str]:
    """Return the table, the runs of the heat in progress, and what the campaign waits for."""
    heats = campaign.projection()
    table = standing_table(heats, campaign.gates())
    current = next((h for h, decided in heats if not decided), None)
    if current is None:
        return table, [], "the ladder is done"
    if not campaign.plan_path(current.step, current.heat).exists():
        return table, [], f"{current.step}, heat {current.heat}, is next"
    runs = [_progress(campaign, current, g.name, w, g.nodes) for g in current.groups for w in g.workloads]
    open_runs = [r for r in runs if r.state in ("running", "waiting")]
    waits = f"{len(open_runs)} of {len(runs)} runs of {current.step}, heat {current.heat}" if open_runs else "the gate"
    return table, runs, f"waits for {waits}"


def _progress(campaign: Campaign, heat: Heat, group: str, workload: str, nodes: Sequence[str]) -> Progress:
    """Return how far one run is."""
    ref = RunRef(campaign.dir, heat.step, heat.heat, workload, group)
    if ref.result.exists():
        document = campaign.load(ref.result, "result")
        last = document["iterations"][-1] if document["iterations"] else None
        return Progress(
            ref.run_id,
            fold(nodes),
            document["state"],
            1.0,
            len(document["iterations"]),
            _value(last),
            document["ended"],
        )
    if heat.step == "retest":
        return Progress(ref.run_id, fold(nodes), "waiting", 0.0, 0, "", None)
    spec = load_spec(ref.result)
    number = attempts.current(spec)
    records = (attempts.records(spec, number) or []) if number is not None else []
    pairs = journal.completed(records)
    spent = sum(e["time"] - s["time"] for s, e in pairs)
    window = spec.window
    done = len(pairs) / window["iterations"] if "iterations" in window else spent / (window["hours"] * 3600)
    last = {**pairs[-1][1]["summary"], "command": pairs[-1][0]["command"]} if pairs else None
    since = max((r["time"] for r in records if "time" in r), default=None)
    return Progress(
        ref.run_id, fold(nodes), "running" if records else "waiting", min(done, 1.0), len(pairs), _value(last), since
    )


def _value(item: Mapping[str, Any] | None) -> str:
    """Return the last iteration's value in words."""
    if not item:
        return ""
    value = "no value" if item["value"] is None else f"{item['value']:.4g} {item['unit']}"
    return f"{item['command']} {value} {item['verdict']}"


def render(campaign: Campaign, now: float | None = None) -> str:
    """Return the status as text for a terminal."""
    table, runs, waits = collect(campaign)
    lines = [f"campaign {campaign.config.campaign}: {waits}", ""]
    lines.append(f"{'step':8} {'heats':>5} {'to come':>8} {'runs to come':>13}  nodes")
    for row in table:
        told = ", ".join(f"{n} {word}" for word, n in sorted(row["outcomes"].items())) or "-"
        lines.append(f"{row['step']:8} {row['heats']:>5} {row['to come']:>8} {row['runs to come']:>13}  {told}")
    shown = [r for r in runs if r.state == "running"] or [r for r in runs if r.state == "waiting"][:5]
    if shown:
        lines += ["", f"{'run':44} {'nodes':20} {'window':>7} {'iterations':>11}  last iteration"]
    for run in shown[:40]:
        quiet = "" if run.since is None else f" ({(now or time.time()) - run.since:.0f} s ago)"
        lines.append(f"{run.run_id:44} {run.nodes:20} {run.done:>6.0%} {run.iterations:>11}  {run.last}{quiet}")
    if len(shown) > 40:
        lines.append(f"... and {len(shown) - 40} more")
    return "\n".join(lines)
