# SPDX-License-Identifier: Apache-2.0
"""summary.csv: a row for every node, step, workload and command, for spreadsheets and for pandas. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from burnin.report.facts import Facts, RunFacts
from burnin.report.sections.view import View

COLUMNS = (
    "campaign", "node", "status", "step", "workload", "outcome", "heats", "hours", "command", "value", "unit", "nodes_in_group",
    "group", "part", "fault", "reason", "evidence", "next_action", "repairs",
)  # fmt: skip
#: A cell that begins so is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe in front. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ").replace("\n", " ")
    return f"'{text}" if value.startswith(FORMULA) else text


def rows(facts: Facts) -> Iterator[dict[str, Any]]:
    """Yield the rows: for each node its steps and workloads in ladder order, a row for each command that gave a value."""
    view = View(facts)
    by_place: dict[tuple[str, int, str, str], RunFacts] = {(r.step, r.heat, r.workload, r.group): r for r in facts.runs}
    for node in facts.nodes:
        entry = view.entry(node)
        common = {
            "campaign": facts.campaign,
            "node": node,
            "status": entry["status"],
            "repairs": "; ".join(f"{r['part']}: {r['fix']}" for r in entry["repairs"]),
        }
        for step, workloads in facts.steps.items():
            for workload in workloads:
                cell = view.cells[node][step, workload]
                here = (step, workload) == (entry["failed_step"], entry["failed_workload"])
                row = {
                    **common,
                    "step": step,
                    "workload": workload,
                    "outcome": cell.state,
                    "heats": cell.heats,
                    "hours": entry["hours"].get(step, {}).get(workload),
                    "group": cell.group,
                    "reason": entry["reason"] if here else cell.text,
                }
                if here:
                    row |= {k: entry[k] for k in ("part", "fault", "next_action")}
                    row["evidence"] = " ".join(entry["evidence"][:3])
                run = by_place.get((step, cell.heat if cell.heat is not None else -1, workload, cell.group))
                if run is None or not run.medians:
                    yield row
                    continue
                row["nodes_in_group"] = len(run.nodes)
                unit = _unit(facts, workload)
                for command, (value, _) in run.medians.items():
                    yield {**row, "command": command, "value": value, "unit": unit}


def _unit(facts: Facts, workload: str) -> str:
    from burnin.report.words import UNITS

    return UNITS[facts.definition(workload)["metric"]]


def write(facts: Facts) -> str:
    """Return the table as CSV."""
    import pandas

    frame = pandas.DataFrame([{k: harmless(v) for k, v in row.items()} for row in rows(facts)], columns=list(COLUMNS))
    for column in ("heats", "nodes_in_group"):
        frame[column] = frame[column].astype("Int64")
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text
