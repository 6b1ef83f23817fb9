# SPDX-License-Identifier: Apache-2.0
"""A campaign on disk: its plans, results and gates in ladder order, and what comes next.

The thin layer between the pure ladder and the files of contract C2. Files are read once for each version of them.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnin import storage
from burnin.config import Config
from burnin.errors import CampaignError, EvidenceError
from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.judging.summary import summarise
from burnin.ladder import Group, Heat, Isolation, assume_passed, heat_of_standing, next_heat, replay
from burnin.paths import heat_dir


class Campaign:
    """The files of one campaign."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dir = config.campaign_dir
        self._read: dict[Path, tuple[int, int, Any]] = {}

    # ------------------------------------------------------------------------------------------------------ files

    def plan_path(self, step: str, heat: int) -> Path:
        """Return the path of a heat's plan."""
        return heat_dir(self.dir, step, heat) / "plan.json"

    def gate_path(self, step: str, heat: int) -> Path:
        """Return the path of a heat's gate."""
        return heat_dir(self.dir, step, heat) / "gate.json"

    def result_path(self, step: str, heat: int, workload: str, group: str) -> Path:
        """Return the path of a run's result."""
        return Path(self.result_name(step, heat, workload, group))

    def result_name(self, step: str, heat: int, workload: str, group: str) -> str:
        """Return the path of a run's result as text (a dry run at 1,024 nodes asks for it ten thousand times)."""
        return f"{self.dir}/{step}/heat{heat}/{workload}/{group}/result.json"

    def load(self, path: Path, schema: str) -> Any:
        """Return a validated file, read again only if it changed."""
        stat = path.stat()
        known = self._read.get(path)
        if known is None or known[:2] != (stat.st_mtime_ns, stat.st_size):
            known = (stat.st_mtime_ns, stat.st_size, storage.read_json(path, schema))
            self._read[path] = known
        return known[2]

    # ------------------------------------------------------------------------------------------------------- walk

    def walk(self, usable: Any = None) -> Iterator[tuple[Heat, dict[str, Any] | None]]:
        """Yield the heats in ladder order with their gates; the first one without a gate comes last, with None.

        `usable(path)` may refuse a gate that is there but must be decided anew.
        """
        standing = replay(self.config.ladder, [])
        gates: list[dict[str, Any]] = []
        while (heat := heat_of_standing(self.config.ladder, standing)) is not None:
            path = self.gate_path(heat.step, heat.heat)
            if not path.exists() or (usable is not None and not usable(path)):
                yield heat, None
                return
            gate = self.load(path, "gate")
            gates.append(gate)
            yield self.planned(heat), gate
            standing = replay(self.config.ladder, gates)

    def gates(self) -> list[dict[str, Any]]:
        """Return the gates decided so far, in ladder order."""
        return [gate for _, gate in self.walk() if gate is not None]

    def planned(self, heat: Heat) -> Heat:
        """Return the heat as its plan on disk has it, if there is one."""
        path = self.plan_path(heat.step, heat.heat)
        if not path.exists():
            return heat
        plan = self.load(path, "plan")
        return replace(heat, groups=tuple(_group(g) for g in plan["groups"].values()))

    def projection(self) -> list[tuple[Heat, bool]]:
        """Return all heats of the ladder, as they were and as they will be if all pass, each with `has a gate`."""
        heats: list[tuple[Heat, bool]] = []
        gates: list[Mapping[str, Any]] = []
        for heat, gate in self.walk():
            if gate is not None:
                heats.append((heat, True))
                gates.append(gate)
        standing = replay(self.config.ladder, gates)
        while (heat_now := heat_of_standing(self.config.ladder, standing)) is not None:
            heat_now = self.planned(heat_now)
            heats.append((heat_now, False))
            _assume(standing, heat_now)
        return heats

    # -------------------------------------------------------------------------------------------------- decisions

    def make_plan(self, step: str, heat: int, invocation: str) -> None:
        """Decide who runs with whom in a heat and write plan.json.

        Raises CampaignError if the gate before stopped the campaign in this very invocation, or if the ladder does
        not want this heat next.
        """
        gates: list[dict[str, Any]] = []
        wanted: Heat | None = None
        for found, gate in self.walk():
            if (found.step, found.heat) == (step, heat):
                wanted = next_heat(self.config.ladder, gates)
                break
            if gate is not None:
                gates.append(gate)
        if wanted is None:
            raise CampaignError(f"the ladder does not want {step}/heat{heat} now", "start snakemake again")
        before = gates[-1] if gates else None
        if before and before["stopped"] and before["invocation"] == invocation:
            stop = before["stopped"]
            raise CampaignError(
                f"the campaign stops at {before['step']}/heat{before['heat']} ({stop['kind']}): {stop['text']}",
                stop["cure"],
            )
        plan = {
            "campaign": self.config.campaign,
            "step": step,
            "heat": heat,
            "roster": replay(self.config.ladder, gates).roster(self.config.nodes),
            "groups": {g.name: _group_document(g) for g in wanted.groups},
            "windows": {
                w: self.config.window(w, step) for w in dict.fromkeys(w for g in wanted.groups for w in g.workloads)
            },
            "why": "everybody" if heat == 0 else "those who still owe this step",
            "config": self.config.runs_digest,
            "invocation": invocation,
        }
        self._write(self.plan_path(step, heat), plan, "plan")

    def make_gate(self, step: str, heat: int, invocation: str) -> dict[str, Any]:
        """Judge a heat and write gate.json. Returns the gate. Draining is the caller's."""
        plan = self.load(self.plan_path(step, heat), "plan")
        results = {
            (w, name): self.load(self.result_path(step, heat, w, name), "result")
            for name, g in plan["groups"].items()
            for w in g["workloads"]
        }
        earlier_heats = [h for h in range(heat) if self.gate_path(step, h).exists()]
        gate = judge_heat(plan, results, self._context(step, earlier_heats, invocation))
        gate["drained"] = {}
        return gate

    def _context(self, step: str, earlier_heats: Sequence[int], invocation: str) -> Context:
        """Return what the gate needs beside plan and results."""
        earlier = []
        for heat in earlier_heats:
            plan = self.load(self.plan_path(step, heat), "plan")
            earlier += [
                self.load(self.result_path(step, heat, w, name), "result")
                for name, g in plan["groups"].items()
                for w in g["workloads"]
            ]
        return Context(
            gpus_per_node=int(self.config.document["gpus_per_node"]),
            criteria=self.config.criteria,
            criteria_digest=self.config.criteria_digest,
            definitions=self.config.document["workload_definitions"],
            rerun_limit=int(self.config.document["rerun_limit"]),
            earlier=earlier,
            siblings=self._siblings(step),
            gates=[self.load(self.gate_path(step, h), "gate") for h in earlier_heats],
            invocation=invocation,
        )

    def _siblings(self, step: str) -> list[dict[str, Any]]:
        """Return the results of the groups that passed the step before this one: what its own are to be near to."""
        names = [s.name for s in self.config.ladder.steps()]
        if step == "resume" or step not in names or names.index(step) == 0:
            return []
        before = names[names.index(step) - 1]
        found = []
        heat = 0
        while self.gate_path(before, heat).exists():
            gate = self.load(self.gate_path(before, heat), "gate")
            for name, nodes in gate["groups"].items():
                for workload in gate["passed"].get(nodes[0], []) if nodes else []:
                    path = self.result_path(before, heat, workload, name)
                    if path.exists() and all(workload in gate["passed"].get(n, []) for n in nodes):
                        found.append(self.load(path, "result"))
            heat += 1
        return found

    def write_gate(self, gate: Mapping[str, Any]) -> None:
        """Write gate.json and keep its version."""
        self._write(self.gate_path(gate["step"], gate["heat"]), gate, "gate")

    def write_summary(self, pending_gate: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write summary.json from the gates on disk, plus one that is decided but not yet written."""
        gates: list[Mapping[str, Any]] = list(self.gates())
        if pending_gate is not None:
            key = (pending_gate["step"], pending_gate["heat"])
            gates = [g for g in gates if (g["step"], g["heat"]) != key] + [pending_gate]
        standing = replay(self.config.ladder, gates)
        over = heat_of_standing(self.config.ladder, standing) is None
        summary = summarise(self.config, gates, standing, over)
        storage.write_json(self.dir / "summary.json", summary, "summary")
        return summary

    def _write(self, path: Path, document: Mapping[str, Any], schema: str) -> None:
        """Write a decision and keep all its versions."""
        storage.write_json(path, document, schema)
        storage.keep_version(path, path.read_text(encoding="utf-8"))

    # ------------------------------------------------------------------------------------------------------ start

    def begin(self) -> str:
        """Make the campaign's folder ready for runs: identity once, the resolved config each time. Returns the uid."""
        self.dir.mkdir(parents=True, exist_ok=True)
        identity = self.dir / "campaign.json"
        try:
            uid = str(storage.read_json(identity, "campaign")["uid"])
        except FileNotFoundError:
            uid = secrets.token_hex(8)
            created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            storage.write_json(identity, {"campaign": self.config.campaign, "uid": uid, "created": created}, "campaign")
        stored = {"root": str(self.config.root), "config": json.loads(json.dumps(self.config.document))}
        path = self.dir / "config.json"
        try:
            unchanged = storage.read_json(path, "stored_config") == stored
        except (FileNotFoundError, EvidenceError):
            unchanged = False
        if not unchanged:
            self._write(path, stored, "stored_config")
        if self.config.document["scenario"]:
            self.config.lab_dir.mkdir(parents=True, exist_ok=True)
        return uid

    def note_reruns(self, results: Sequence[Path]) -> None:
        """Record that the operator forces these runs to be run again (append-only; see `runs.spec.count_reruns`)."""
        if not results:
            return
        who = {"by": getpass.getuser(), "host": socket.gethostname(), "time": time.time()}
        lines = [json.dumps({"run": str(p.parent.relative_to(self.dir)), **who}) + "\n" for p in results]
        with (self.dir / "reruns.jsonl").open("a", encoding="utf-8") as stream:
            stream.write("".join(lines))
            stream.flush()
            os.fsync(stream.fileno())


def _assume(standing: Any, heat: Heat) -> None:
    """Let everybody of a heat pass."""
    gate = assume_passed(heat)
    standing.heats[heat.step] = heat.heat + 1
    for node, workloads in gate["passed"].items():
        standing.passed[node].update((heat.step, w) for w in workloads)
    standing.suspects = [s for s in standing.suspects if s.step != heat.step]


def _group(document: Mapping[str, Any]) -> Group:
    """Return a group of plan.json."""
    isolation = document["isolation"]
    return Group(
        tuple(document["nodes"]),
        tuple(document["owed"]),
        tuple(document["workloads"]),
        Isolation(tuple(isolation["of"]), isolation["part"], tuple(isolation["suspects"])) if isolation else None,
    )


def _group_document(group: Group) -> dict[str, Any]:
    """Return a group in the form of plan.json."""
    isolation = group.isolation
    return {
        "nodes": list(group.nodes),
        "owed": list(group.owed),
        "workloads": list(group.workloads),
        "isolation": {"of": list(isolation.of), "part": isolation.part, "suspects": list(isolation.suspects)}
        if isolation
        else None,
    }
