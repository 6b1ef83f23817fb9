# SPDX-License-Identifier: Apache-2.0
"""What a heat measured, in a few numbers for each workload and command: for people and metrics, it judges nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from burnin.judging.performance import measured


def figures(results: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return workload -> command -> {unit, groups, least, median, most} over the runs of a heat.

    A run counts with the median of its iterations; runs without a value (casualties, skipped ones) do not count.
    """
    values: dict[tuple[str, str], list[float]] = {}
    units: dict[tuple[str, str], str] = {}
    for result in results:
        for command, value in measured(result).values.items():
            key = (str(result["workload"]), command)
            values.setdefault(key, []).append(value)
            unit = next((i["unit"] for i in result["iterations"] if i["command"] == command and i["unit"]), "")
            units.setdefault(key, unit)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (workload, command), each in values.items():
        found.setdefault(workload, {})[command] = {
            "unit": units[workload, command],
            "groups": len(each),
            "least": min(each),
            "median": median(each),
            "most": max(each),
        }
    return found
