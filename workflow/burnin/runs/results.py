# SPDX-License-Identifier: Apache-2.0
"""From an attempt's journal and raw files to result.json: the same code for a run that ended and for one that died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnin import parsers, storage
from burnin.runs import attempts, journal
from burnin.runs.evaluate import iteration_summary
from burnin.runs.spec import RunSpec

#: Points kept of one of the site's own readings.
MOST_SITE = 200


def empty(spec: RunSpec, state: str, reason: str, casualty: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the result of a run that has no attempt: it was skipped, or its job died before it could begin."""
    return {
        "campaign": spec.campaign,
        "step": spec.step,
        "heat": spec.heat,
        "workload": spec.workload,
        "group": spec.group,
        "phase": spec.ref.phase,
        "nodes": spec.nodes,
        "state": state,
        "reason": reason,
        "casualty": dict(casualty) if casualty else None,
        "window": spec.window,
        "attempt": None,
        "iterations": [],
        "interrupted": [],
        "signals": [],
        "probes": {},
        "facts": {},
        "started": None,
        "ended": None,
        "hours": 0.0,
        "jobs": [],
        "earlier_attempts": len(attempts.numbers(spec)),
        "spec": storage.digest(spec.identity()),
    }


def collect(spec: RunSpec, number: int, casualty: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the result of an attempt from its journal; `casualty` if its job died."""
    found = attempts.records(spec, number) or []
    folder = attempts.folder(spec, number)
    stop = next((r for r in found if r["type"] == "stop"), None)
    state = "casualty" if casualty else "stopped" if stop else "complete"
    reason = str(casualty["text"]) if casualty else stop["reason"] if stop else "the window is full"
    result = empty(spec, state, reason, casualty)
    result["attempt"], result["earlier_attempts"] = number, len(attempts.numbers(spec)) - 1
    pairs = journal.completed(found)
    for start, end in pairs:
        result["iterations"].append(_iteration(spec, folder, start, end))
        result["signals"] += _signals(end["summary"]["signals"], f"{folder.name}/{start['output']}")
    for start in journal.interrupted(found):
        summary = read_output(spec, folder / start["output"])
        end = {"time": start["time"], "exit": None, "ended": "interrupted", "summary": summary}
        result["interrupted"].append(_iteration(spec, folder, start, end))
        result["signals"] += _signals(summary["signals"], f"{folder.name}/{start['output']}")
    for number, record in enumerate(found, 1):
        if record["type"] == "stack":
            # what changed is said in the journal alone: a record is a line
            result["signals"] += [
                {**s, "file": f"{folder.name}/journal.jsonl", "line": number} for s in record["signals"]
            ]
    _add_probes(result, found, folder.name)
    times = [r["time"] for r in found if "time" in r]
    result["started"], result["ended"] = (min(times), max(times)) if times else (None, None)
    result["hours"] = sum(max(0.0, e["time"] - s["time"]) for s, e in pairs) / 3600
    result["jobs"] = [str(r["job_id"]) for r in found if r["type"] == "job" and r.get("job_id")]
    result["facts"] = next((r["facts"] for r in reversed(found) if r["type"] in ("final", "cancelled")), {})
    if site := _site(found):
        result["facts"] = {**result["facts"], "site": site}
    return result


def _site(found: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return name -> (time, value) of what the site's own commands said with the probes, at most some hundred of each."""
    series: dict[str, list[tuple[float, float]]] = {}
    for record in found:
        for name, entry in record.get("site", {}).items():
            if entry["value"] is not None:
                series.setdefault(name, []).append((record["time"], entry["value"]))
    return {name: points[:: -(-len(points) // MOST_SITE)] for name, points in series.items()}


def probed(spec: RunSpec, number: int, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the result of an attempt as far as the probes in its journal tell it, without reading any output again."""
    result = empty(spec, "complete", "")
    _add_probes(result, found, attempts.folder(spec, number).name)
    times = [r["time"] for r in found if "time" in r]
    result["started"], result["ended"] = (min(times), max(times)) if times else (None, None)
    return result


def _add_probes(result: dict[str, Any], found: Sequence[Mapping[str, Any]], attempt: str) -> None:
    """Add the journal's probes and the signals in them to a result, and the boots between two probes of one job.

    `attempt`: its folder's name. What a probe said whose file was not kept stands in the journal: a record is a line.
    """
    boots: dict[str, str] = {}
    for number, record in enumerate(found, 1):
        if record["type"] == "job":
            boots = {}  # between two jobs the node was not ours: whoever rebooted it then had the right to
        if record["type"] != "probe":
            continue
        for node, summary in record["nodes"].items():
            result["probes"].setdefault(record["when"], {})[node] = {
                "tools": summary["tools"],
                "problems": summary["problems"],
                "gpus": summary["gpus"],
                "clock": summary.get("clock") or {},
                "file": summary.get("file"),
                "time": record["time"],
                **({"stack": summary["stack"]} if "stack" in summary else {}),
            }
            in_journal = {} if summary.get("file") else {"file": f"{attempt}/journal.jsonl", "line": number}
            for item in _signals(summary["signals"], summary.get("file") or ""):
                result["signals"].append({**item, "node": node, "when": record["when"], **in_journal})
            boot = (summary.get("clock") or {}).get("boot")
            if boot and boots.setdefault(node, boot) != boot:
                result["signals"].append({**_rebooted(record, node, boots[node], boot), **in_journal})
                boots[node] = boot


def _rebooted(record: Mapping[str, Any], node: str, before: str, now: str) -> dict[str, Any]:
    """Return the signal of a node that booted while the run went on: it may be back before anybody missed it."""
    up = record["nodes"][node]["clock"].get("up")
    return {
        "kind": "rebooted",
        "line": 1,
        "text": f"{node} has booted during the run: boot id {before}, now {now}" + (f", up {up:g} s" if up else ""),
        "detail": {"before": before, "now": now},
        "file": record["nodes"][node].get("file") or "",
        "node": node,
        "when": record["when"],
    }


def read_output(spec: RunSpec, path: Path) -> dict[str, Any]:
    """Return the summary of an iteration's raw output; a missing file is no output."""
    definition = spec.definition
    reading = parsers.read_file(definition["parser"], path)
    summary = iteration_summary(definition["metric"], reading, len(spec.nodes), spec.gpus_per_node)
    if not reading.complete:
        summary["facts"]["lines"] = count_lines(path)  # where it is cut
    return summary


def count_lines(path: Path) -> int:
    """Return the number of lines of an output, 1 if it is empty or not there."""
    try:
        with path.open("rb") as stream:
            return max(1, sum(1 for _ in stream))
    except OSError:
        return 1


def _iteration(spec: RunSpec, folder: Path, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """Return one iteration in the form of result.schema.json."""
    summary = end["summary"]
    return {
        "iteration": start["iteration"],
        "command": start["command"],
        "start": start["time"],
        "end": end["time"],
        "exit": end["exit"],
        "output": f"{folder.name}/{start['output']}",
        "ended": end["ended"],
        **{k: summary[k] for k in ("verdict", "complete", "value", "value_line", "unit", "problems", "facts")},
    }


def _signals(signals: list[dict[str, Any]], file: str) -> list[dict[str, Any]]:
    """Return signals with the file they stand in, relative to the run directory."""
    return [{**s, "file": file} for s in signals]


def publish(spec: RunSpec, result: Mapping[str, Any]) -> None:
    """Write the result beside the attempt's files first, then where Snakemake looks for it."""
    if result["attempt"] is not None:
        storage.write_json(attempts.folder(spec, result["attempt"]) / "result.json", result, "result")
    storage.write_json(spec.ref.result, result, "result")
