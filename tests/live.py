# SPDX-License-Identifier: Apache-2.0
"""A campaign on disk in the middle of a heat, without anything having run: for what people look at, and its cost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin.campaign import Campaign
from burnin.ladder import Heat, assume_passed
from burnin.runs import journal

ROOT = Path(__file__).resolve().parents[1]


def campaign(folder: Path, nodes: str, decided: int, **changes: Any) -> Campaign:
    """Return a campaign of which `decided` heats have a gate in which all passed, and the next one is planned."""
    given = {"results": str(folder), "campaign": "t", "nodes": nodes, "scenario": None, "windows": HOURS, **changes}
    found = Campaign(configuration.from_files([], ROOT, given))
    found.begin()
    for heat, _ in found.projection()[:decided]:
        found.make_plan(heat.step, heat.heat, "test")
        found.write_gate(gate_of(found, heat))
    heat = found.projection()[decided][0]
    found.make_plan(heat.step, heat.heat, "test")
    return found


SUMMARY = {
    "verdict": "pass",
    "complete": True,
    "value_line": 17,
    "unit": "GB/s",
    "problems": [],
    "signals": [],
    "facts": {},
}
HOURS = {"nccl": {"default": {"hours": 12}}, "hpl": {"default": {"hours": 4}}, "nemo": {"default": {"hours": 8}}}


def gate_of(found: Campaign, heat: Heat, **changes: Any) -> dict[str, Any]:
    """Return a whole gate in which everybody passes but for what `changes` say."""
    return {
        **assume_passed(heat), "campaign": "t", "criteria": found.config.criteria_digest, "owes": {}, "hours": {},
        "findings": [], "links": [], "invocation": "test", "notes": [], "drained": {}, "withdrawn": {}, "trials": [],
        "groups": {g.name: list(g.nodes) for g in heat.groups},
    } | changes  # fmt: skip


def finding(node: str, step: str, workload: str, **changes: Any) -> dict[str, Any]:
    """Return a finding that fails a node."""
    return {
        "node": node, "part": "gpu5", "fault": "gpu_off_bus", "signal": "gpu_lost", "scope": "node", "step": step, "heat": 0,
        "workload": workload, "group": "g", "value": None, "unit": None, "limit": None, "limit_origin": "zero tolerance",
        "evidence": ["a:1"], "quote": "q", "reason": "gpu_off_bus on gpu5: fallen off the bus", "next_action": "reseat it",
        "zero_tolerance": True,
    } | changes  # fmt: skip


def run(
    found: Campaign,
    workload: str,
    group: str,
    iterations: int,
    seconds: float,
    now: float,
    probes: Mapping[str, Any] | None = None,
    value: float = 370.0,
) -> Path:
    """Let a run of the planned heat be at work: so many iterations of so many seconds, the last one ended at `now`."""
    heat = next(p.parent for p in found.dir.glob("*/heat*/plan.json") if not p.with_name("gate.json").exists())
    folder = heat / workload / group / "attempt0"
    folder.mkdir(parents=True)
    lines = [{"type": "header", "what": {}, "time": now - iterations * seconds}]
    for seq in range(iterations):
        begin = now - (iterations - seq) * seconds
        if probes and seq % 4 == 0:
            lines.append({"type": "probe", "time": begin, "when": "during", "nodes": dict(probes)})
        start = {
            "seq": seq,
            "iteration": seq,
            "command": "all_reduce",
            "output": f"out-{seq:05d}.log",
            "argv": ["x"] * 20,
        }
        lines.append({"type": "start", "time": begin, **start})
        end = {"seq": seq, "exit": 0, "ended": "itself", "summary": {**SUMMARY, "value": value}}
        lines.append({"type": "end", "time": begin + seconds, **end})
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(journal._line(line) + b"\n" for line in lines))
    os.utime(path, (now, now))
    return path
