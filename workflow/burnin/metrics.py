# SPDX-License-Identifier: Apache-2.0
"""Metrics of a campaign in Prometheus' text format, for node_exporter's textfile collector. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. In label values backslash, quote and newline are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from burnin.status import Status

#: Name and help of what a workload's metric is called here (base units in the name, as Prometheus wants them).
MEASURED = {
    "busbw": ("burnin_busbw_gigabytes_per_second", "Bus bandwidth of the largest message, over the groups of a step."),
    "gflops": ("burnin_gigaflops", "HPL's result in Gflops, over the groups of a step."),
    "step_time": ("burnin_training_step_seconds", "Median time of a training step, over the groups of a step."),
    "f1": ("burnin_f1_percent", "F1 score, over the groups of a step."),
}
Sample = tuple[dict[str, str], float]


def escape(text: str) -> str:
    """Return a label's value as the format wants it."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def family(name: str, text: str, samples: Iterable[Sample], kind: str = "gauge") -> list[str]:
    """Return the lines of one metric; none if it has no samples."""
    lines = []
    for labels, value in samples:
        inside = ",".join(f'{key}="{escape(label)}"' for key, label in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.10g}")
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines] if lines else []


def render(
    summary: Mapping[str, Any],
    status: Status,
    definitions: Mapping[str, Mapping[str, Any]],
    now: float,
    failed: int = 0,
) -> str:
    """Return the metrics of a campaign. `now`: seconds since the epoch. `failed`: notifications that did not arrive."""
    base = {"campaign": str(summary["campaign"])}
    nodes = summary["nodes"]
    lines = family(
        "burnin_verdict", "Verdict of the campaign, 1 for the one that holds.",
        [({**base, "verdict": v}, float(v == summary["verdict"])) for v in ("running", "accepted", "rejected")],
    )  # fmt: skip
    states = Counter(str(entry["status"]) for entry in nodes.values())
    known = ("accepted", "failed", "repaired", "running", "suspect", "withdrawn")
    lines += family(
        "burnin_nodes", "Nodes by status.", [({**base, "status": s}, states[s]) for s in sorted({*known, *states})]
    )
    lines += family(
        "burnin_node_info", "Each node's status; part and fault if it failed.",
        [
            ({**base, "node": name, "status": entry["status"], "part": entry["part"] or "", "fault": entry["fault"] or "",
              "step": entry["failed_step"] or ""}, 1)
            for name, entry in nodes.items()
        ],
    )  # fmt: skip
    cells = [(row.step, workload, cell) for row in status.rows for workload, cell in row.cells.items()]
    lines += family(
        "burnin_step_nodes", "Nodes by step, workload and what became of them.",
        [
            ({**base, "step": step, "workload": workload, "state": state}, getattr(cell, state))
            for step, workload, cell in cells
            for state in ("passed", "failed", "running", "ran", "owed")
        ],
    )  # fmt: skip
    lines += family("burnin_step_heats", "Heats decided.", [({**base, "step": r.step}, r.heats) for r in status.rows])
    lines += family(
        "burnin_step_done", "1: nobody owes it.", [({**base, "step": r.step}, float(r.done)) for r in status.rows]
    )
    hours: Counter[tuple[str, str]] = Counter()
    for entry in nodes.values():
        for step, of_step in entry["hours"].items():
            for workload, spent in of_step.items():
                hours[step, workload] += spent
    lines += family(
        "burnin_node_hours", "Node-hours in complete iterations, since each node's last repair.",
        [({**base, "step": step, "workload": workload}, spent) for (step, workload), spent in hours.items()],
    )  # fmt: skip
    lines += _measured(base, status, definitions)
    runs = Counter(run.state for run in status.runs)
    lines += family(
        "burnin_runs",
        "Runs of the heat in progress by state.",
        [({**base, "state": s}, n) for s, n in sorted(runs.items())],
    )
    if status.eta_hours is not None:
        lines += family(
            "burnin_remaining_seconds", "Time to the end if all pass, from windows.", [(base, status.eta_hours * 3600)]
        )
    lines += family("burnin_notifications_failed", "Messages that did not arrive.", [(base, failed)])
    lines += family("burnin_updated_timestamp_seconds", "When this was written.", [(base, round(now))])
    return "\n".join(lines) + "\n"


def _measured(base: dict[str, str], status: Status, definitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what was measured in each step: of its heats, the one with most groups counts."""
    best: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for gate in status.gates:
        for workload, commands in gate.get("measured", {}).items():
            for command, entry in commands.items():
                key = (gate["step"], workload, command)
                if key not in best or entry["groups"] >= best[key]["groups"]:
                    best[key] = entry
    samples: dict[str, list[Sample]] = {}
    for (step, workload, command), entry in best.items():
        metric = definitions.get(workload, {}).get("metric", "")
        if metric in MEASURED:
            labels = {**base, "step": step, "workload": workload, "command": command}
            found = [({**labels, "of_groups": w}, float(entry[w])) for w in ("least", "median", "most")]
            samples.setdefault(metric, []).extend(found)
    return [line for metric, found in samples.items() for line in family(*MEASURED[metric], found)]
