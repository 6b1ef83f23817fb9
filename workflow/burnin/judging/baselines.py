# SPDX-License-Identifier: Apache-2.0
"""Pinning baselines: from a finished validation's results to the rows of criteria key `baselines`. Pure.

For each workload, command and number of nodes: the median of what passed, after outliers were taken out one by one. One
bad node that validation let through must not lower what a whole burn-in is judged by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from burnin import statistics
from burnin.judging.performance import UNITS

Result = Mapping[str, Any]


def pin(
    results: Iterable[Result],
    definitions: Mapping[str, Mapping[str, Any]],
    criteria: Mapping[str, Any],
    campaign: str,
    date: str,
    band: float | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the baselines of the runs that passed, and sentences about what they rest on.

    `band` (fraction) is how far a run may stay behind; by default the tolerance between peers of the workload. `date`
    is when the values were measured. A row from fewer than three values says so: nothing could be taken out of them.
    """
    values: dict[tuple[str, str, int], list[float]] = {}
    sizes: dict[tuple[str, str, int], set[Any]] = {}
    for result in results:
        for item in result["iterations"]:
            if item["value"] is None or item["verdict"] != "pass":
                continue
            key = (result["workload"], item["command"], len(result["nodes"]))
            values.setdefault(key, []).append(float(item["value"]))
            sizes.setdefault(key, set()).add(item["facts"].get("max_size"))
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for (workload, command, nodes), found in sorted(values.items()):
        if workload not in definitions:
            continue
        metric = definitions[workload]["metric"]
        limits = criteria["spread"].get(workload, {})
        tolerance = float(limits.get("tolerance", 0.05))
        name = f"{workload} {command} on {nodes} node{'s' if nodes > 1 else ''}"
        check = statistics.pin(found, tolerance=tolerance, mad_factor=criteria["mad_factor"])
        removed: list[float] = check.detail["removed"]
        if check.value is None:
            value = statistics.median(found)
            removed = []
            few = f"{len(found)} value{'s' if len(found) > 1 else ''}"
            notes.append(f"{name}: pinned from {few} only, so no outlier could be told apart.")
        else:
            value = check.value
        if removed:
            gone = ", ".join(f"{v:.6g}" for v in removed)
            notes.append(
                f"{name}: {len(removed)} of {len(found)} values taken out as outliers ({gone} {UNITS[metric]})."
            )
        row: dict[str, Any] = {
            "workload": workload,
            "command": command,
            "nodes": nodes,
            "value": float(f"{value:.6g}"),
            "unit": UNITS[metric],
            "band": tolerance if band is None else band,
            "origin": "validation",
            "date": date,
            "n": len(found) - len(removed),
            "campaign": campaign,
        }
        if removed:
            row["removed"] = [float(f"{v:.6g}") for v in removed]
        size = sizes[workload, command, nodes]
        if len(size) == 1 and (only := next(iter(size))):
            row["message_bytes"] = int(only)
        rows.append(row)
    return rows, notes
