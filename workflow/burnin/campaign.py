# SPDX-License-Identifier: Apache-2.0
"""A campaign on disk: its plans, results and gates in ladder order, and what comes next.

The thin layer between the pure ladder and the files of contract C2. Files are read once for each version of them.
"""

from __future__ import annotations

import getpass
import json
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from burnin import repairs as repairing
from burnin import storage, validation
from burnin.config import Config
from burnin.errors import CampaignError, EvidenceError
from burnin.judging.figures import figures
from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.judging.summary import summarise
from burnin.ladder import (
    Group,
    Heat,
    Standing,
    event_of,
    heat_of_standing,
    is_gate,
    isolation_document,
    isolation_of,
    next_heat,
    replay,
    replay_record,
)
from burnin.paths import heat_dir


class Stage(NamedTuple):
    """A heat as the walk meets it: its gate (None: not decided), what happened before, and how many records it knew."""

    heat: Heat
    gate: dict[str, Any] | None
    events: list[Mapping[str, Any]]
    repairs: int


class Away(NamedTuple):
    """A node that is out without blame: how often it came back in vain since it last passed anything; whether for its stack."""

    times: int
    stack: bool


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

    def walk(self, usable: Any = None, pending: Mapping[str, Any] | None = None) -> Iterator[Stage]:
        """Yield the heats in the order in which they happened, with their gates; the first without a gate comes last.

        A record (repair, return) counts from the first plan that knew of it: what was planned before is finished as planned.
        `usable(path)` may refuse a gate that is there but must be decided anew. `pending` is a gate that is decided but
        not yet written: it stands in its place in the order, whatever came after it.
        """
        repairs = self.repairs()
        events: list[Mapping[str, Any]] = []
        known = 0
        while True:
            standing = replay(self.config.ladder, events)
            heat, added = self._heat_after(standing, repairs, known)
            events += [event_of(r) for r in repairs[known : known + added]]
            known += added
            if heat is None:
                return
            gate = self._gate_of(heat, usable, pending)
            if gate is None:
                yield Stage(heat, None, events, known)
                return
            yield Stage(self.planned(heat), gate, list(events), known)
            events.append(gate)

    def _gate_of(self, heat: Heat, usable: Any, pending: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the gate of a heat, or None if it is not decided, or was decided on other groups than are planned now."""
        if pending is not None and (pending["step"], pending["heat"]) == (heat.step, heat.heat):
            return dict(pending)
        path = self.gate_path(heat.step, heat.heat)
        if not path.exists() or (usable is not None and not usable(path)):
            return None
        gate: dict[str, Any] = self.load(path, "gate")
        plan = self.plan_path(heat.step, heat.heat)
        if plan.exists() and set(self.load(plan, "plan")["groups"]) != set(gate["groups"]):
            return None
        return gate

    def _planned_repairs(self, step: str, heat: int) -> int | None:
        """Return how many records a heat's plan knew, None if it was never planned.

        Snakemake deletes a plan before it makes it anew; the kept versions still tell.
        """
        path = self.plan_path(step, heat)
        kept = sorted((path.parent / "history").glob("plan.*.json"))
        found = path if path.exists() else kept[-1] if kept else None
        return int(self.load(found, "plan")["repairs"]) if found else None

    def _heat_after(
        self, standing: Standing, repairs: Sequence[Mapping[str, Any]], known: int
    ) -> tuple[Heat | None, int]:
        """Return the next heat and how many further repairs it takes into account.

        Where a plan is on disk, it tells how many repairs it knew; a heat without a plan knows all.
        """
        heat = heat_of_standing(self.config.ladder, standing)
        for added in range(len(repairs) - known + 1):
            if added:
                replay_record(standing, repairs[known + added - 1])
                heat = heat_of_standing(self.config.ladder, standing)
            left = len(repairs) - known - added
            if heat is not None and left and self._planned_repairs(heat.step, heat.heat) == known + added:
                return heat, added
        return heat, len(repairs) - known

    def repairs(self) -> list[dict[str, Any]]:
        """Return what was recorded beside the gates, in order: repairs, and nodes that came back.

        A torn last line was never recorded.
        """
        path = self.dir / "repairs.jsonl"
        found = []
        for record in storage.records(path)[0]:
            try:
                storage.check(record, "repair", path)
            except EvidenceError:
                continue
            found.append(record)
        return found

    def record_repair(self, record: Mapping[str, Any]) -> list[str]:
        """Append a repair; return what is doubtful about it.

        Raises CampaignError if nobody is out for what was repaired, or if the record says nothing.
        """
        summary = self.write_summary()
        doubts = repairing.check(record, summary, [e for e in self.events() if is_gate(e)])
        storage.check(record, "repair", "the repair")
        storage.append_line(self.dir / "repairs.jsonl", json.dumps(record))
        return doubts

    def touched(self, link: str) -> tuple[list[str], str | None]:
        """Return the nodes that are out because of a link, and the fault. Raises CampaignError if there are none."""
        return repairing.touched(link, self.write_summary(), self.config.topology)

    def away(self) -> dict[str, Away]:
        """Return the nodes that are out without blame."""
        events = self.events()
        standing = replay(self.config.ladder, events)
        return {
            n: Away(repairing.times_away(n, events), standing.away[n][-1]["cause"] == "stack")
            for n in standing.withdrawn
        }

    def record_returns(self, returned: Mapping[str, str]) -> None:
        """Append that nodes are in service again: node -> its state as Slurm tells it."""
        for node, state in returned.items():
            record = {"kind": "returned", "node": node, "state": state, "time": time.time()}
            storage.check(record, "repair", "the return")
            storage.append_line(self.dir / "repairs.jsonl", json.dumps(record))

    def gates(self) -> list[dict[str, Any]]:
        """Return the gates decided so far, in the order in which they were decided."""
        return [stage.gate for stage in self.walk() if stage.gate is not None]

    def events(self, pending: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Return all that happened so far, in order: gates, and the repairs that a plan or the next plan knows of."""
        events: list[Mapping[str, Any]] = []
        known = 0
        for stage in self.walk(pending=pending):
            events, known = [*stage.events, *([stage.gate] if stage.gate else [])], stage.repairs
        return [*events, *(event_of(r) for r in self.repairs()[known:])]

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
        events: list[Mapping[str, Any]] = []
        known = 0
        for stage in self.walk():
            events, known = list(stage.events), stage.repairs
            if stage.gate is not None:
                heats.append((stage.heat, True))
                events.append(stage.gate)
        repairs = self.repairs()
        standing = replay(self.config.ladder, events)
        while True:
            heat, added = self._heat_after(standing, repairs, known)
            known += added
            if heat is None:
                return heats
            heat = self.planned(heat)
            heats.append((heat, False))
            standing.assume(heat)

    # -------------------------------------------------------------------------------------------------- decisions

    def make_plan(self, step: str, heat: int, invocation: str) -> list[str]:
        """Decide who runs with whom in a heat and write plan.json; return its nodes that were ever repaired.

        Raises CampaignError if the gate before stopped the campaign in this very invocation, or if the ladder does
        not want this heat next.
        """
        stage = next((s for s in self.walk() if (s.heat.step, s.heat.heat) == (step, heat)), None)
        wanted = next_heat(self.config.ladder, stage.events) if stage else None
        if stage is None or wanted is None:
            raise CampaignError(f"the ladder does not want {step}/heat{heat} now", "start snakemake again")
        before = next((e for e in reversed(stage.events) if is_gate(e)), None)
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
            "roster": replay(self.config.ladder, stage.events).roster(self.config.nodes),
            "groups": {g.name: self._group_document(g, step) for g in wanted.groups},
            "windows": {
                w: self.config.window(w, step) for w in dict.fromkeys(w for g in wanted.groups for w in g.workloads)
            },
            "why": "everybody" if heat == 0 else "those who still owe this step",
            "config": self.config.runs_digest,
            "repairs": stage.repairs,
            "invocation": invocation,
            "trials": [t.to_dict() for t in wanted.trials],
            "repeats": self.config.ladder.repeats,
        }
        self._write(self.plan_path(step, heat), plan, "plan")
        gate = self.gate_path(step, heat)
        if gate.exists() and set(self.load(gate, "gate")["groups"]) != {g.name for g in wanted.groups}:
            gate.unlink()  # it was decided on other groups; its version is kept in history/
        repaired = replay(self.config.ladder, stage.events).repairs
        return [n for g in wanted.groups for n in g.nodes if n in repaired]

    def _group_document(self, group: Group, step: str) -> dict[str, Any]:
        """Return a group in the form of plan.json; `windows` are those that differ from the step's."""
        isolation = group.isolation
        document = {
            "nodes": list(group.nodes),
            "owed": list(group.owed),
            "workloads": list(group.workloads),
            "isolation": isolation_document(isolation) if isolation else None,
            "unproven": list(group.unproven),
        }
        short = [w for w in group.workloads if isolation and w in self.config.short_windows]
        return document | ({"windows": {w: self.config.window(w, step, True) for w in short}} if short else {})

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
        gate["exchanged"] = self._exchanged(step, heat, results.values())
        gate["measured"] = figures(results.values())
        return gate

    def _exchanged(self, step: str, heat: int, results: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
        """Return what the serial numbers say of the nodes that run for the first time since their repair.

        The retest is passed over: a diagnostic names no serial numbers.
        """
        stage = next((s for s in self.walk() if (s.heat.step, s.heat.heat) == (step, heat)), None)
        if stage is None or step == "retest":
            return {}
        gpus = int(self.config.document["gpus_per_node"])
        found: dict[str, list[str]] = {}
        for node in replay(self.config.ladder, stage.events).repairs:
            now = [repairing.listing(r["probes"], node, gpus, last=False) for r in results if node in r["nodes"]]
            after = next((g for g in now if g), None)
            records = repairing.since_it_ran(node, stage.events)
            before = self._gpus_before(node, stage.events, gpus) if after and records else None
            if after and before and (said := repairing.exchanged(node, before, after, records)):
                found[node] = said
        return found

    def _gpus_before(self, node: str, events: Sequence[Mapping[str, Any]], gpus: int) -> repairing.Gpus | None:
        """Return the newest listing of all GPUs of a node, from a run or else from the preflight."""
        for gate in reversed([e for e in events if is_gate(e)]):
            for name in (g for g, members in gate["groups"].items() if node in members):
                folder = self.gate_path(gate["step"], gate["heat"]).parent
                for path in sorted(folder.glob(f"*/{name}/result.json"), reverse=True):
                    if found := repairing.listing(self.load(path, "result")["probes"], node, gpus, last=True):
                        return found
        path = self.dir / "preflight" / "preflight.json"
        known = self.load(path, "preflight")["nodes"].get(node, {}) if path.exists() else {}
        serials = known.get("serials", {})
        return {bdf: (None, serial) for bdf, serial in serials.items()} if len(serials) == gpus else None

    def _context(self, step: str, earlier_heats: Sequence[int], invocation: str) -> Context:
        """Return what the gate needs beside plan and results."""
        earlier = []
        for heat in earlier_heats:
            plan = self.load(self.plan_path(step, heat), "plan")
            paths = [
                self.result_path(step, heat, w, name) for name, g in plan["groups"].items() for w in g["workloads"]
            ]
            earlier += [self.load(p, "result") for p in paths if p.exists()]
        return Context(
            gpus_per_node=int(self.config.document["gpus_per_node"]),
            criteria=self.config.criteria,
            criteria_digest=self.config.criteria_digest,
            definitions=self.config.document["workload_definitions"],
            rerun_limit=int(self.config.document["rerun_limit"]),
            earlier=earlier,
            siblings=self._siblings(step),
            topology=self.config.topology,
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
        """Write gate.json and keep its version. Raw files that it quotes lie under the names by which it calls them."""
        for found in gate["findings"]:
            for place in found["evidence"]:
                target = (self.dir / place.rpartition(":")[0]).resolve()
                if target.is_relative_to(self.dir.resolve()):
                    storage.unpack(target)
        self._write(self.gate_path(gate["step"], gate["heat"]), gate, "gate")

    def write_summary(self, pending_gate: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write summary.json from the gates on disk, plus one that is decided but not yet written."""
        summary = self.summary(pending_gate)
        storage.write_json(self.dir / "summary.json", summary, "summary")
        return summary

    def summary(self, pending_gate: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what summary.json says now; nothing is written."""
        events = self.events(pending_gate)
        standing = replay(self.config.ladder, events)
        over = heat_of_standing(self.config.ladder, standing) is None
        summary = summarise(self.config, events, standing, over)
        summary["validation"] = validation.state(self.config)
        summary["preflight"] = self._preflight()
        return summary

    def _preflight(self) -> dict[str, Any] | None:
        """Return what was found before the first run, or None if nobody looked."""
        path = self.dir / "preflight" / "preflight.json"
        if not path.exists():
            return None
        document = self.load(path, "preflight")
        return {"file": str(path.relative_to(self.dir)), "stack": document["stack"], "findings": document["findings"]}

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

    def other_scenario(self) -> str:
        """Return a sentence if the campaign has run with another scenario of the lab than the config names now, or ""."""
        try:
            before = storage.read_json(self.dir / "config.json", "stored_config")["config"].get("scenario")
        except (FileNotFoundError, EvidenceError):
            return ""
        now = self.config.document["scenario"]
        if before == now or not any(self.dir.glob("*/heat*/gate.json")):
            return ""
        return (
            f"campaign {self.config.campaign} has run with scenario {before}, now it is {now}: what has run is not run again. "
            "Another scenario wants another campaign name (--config campaign=NAME)"
        )

    def rerun(self, what: str) -> list[Path]:
        """Have runs run again: `what` is a step, a heat, or a run below the campaign (x2, x2/heat0, x2/heat0/hpl/GROUP).

        Their results and the gates of their heats are taken away; attempts and history keep all of it. Raises
        CampaignError if there is no such run, or if one of them failed a node that was not repaired since.
        """
        parts = [p for p in what.strip("/").split("/") if p]
        pattern = "/".join([*parts, *["*"] * (4 - len(parts))])
        if not parts or len(parts) > 4 or any(p in (".", "..") for p in parts):
            raise CampaignError(
                f"{what!r} names no run", "name a step, a heat or a run, e.g. x2/heat0/hpl/dgx01x2-1a2b3c4d"
            )
        found = sorted(p / "result.json" for p in self.dir.glob(pattern) if (p / "result.json").exists())
        if not found:
            raise CampaignError(
                f"campaign {self.config.campaign} has no finished run {what}", "see its folder for the runs"
            )
        self.take_away(found)
        return found

    def take_away(self, results: Sequence[Path]) -> None:
        """Record that runs are to be run again, and take their results and the gates of their heats away.

        Attempts and history keep all of it. Raises CampaignError, and touches nothing, if one of them failed a node.
        """
        self.note_reruns(results)
        for path in results:
            for name in ("result.json", "first.json"):
                path.with_name(name).unlink(missing_ok=True)
            (path.parents[2] / "gate.json").unlink(missing_ok=True)
            # two halves meet anew: the marks of their last meeting would let each start without the other
            for mark in (path.parent.name, f"{path.parent.name}.full"):
                (path.parents[1] / "barrier" / mark).unlink(missing_ok=True)

    def _refuse_rerun_of_a_failure(self, result: Path) -> None:
        """A rerun that passes without a fix proves nothing: a run that failed a node is repaired, not repeated."""
        gate = result.parents[2] / "gate.json"
        if not gate.exists():
            return
        decided = self.load(gate, "gate")
        bad = [
            n
            for n in decided["groups"].get(result.parent.name, [])
            if decided["outcome"].get(n) in ("failed", "suspect")
        ]
        if bad:
            raise CampaignError(
                f"{', '.join(bad)} did not pass in {result.parent.relative_to(self.dir)}: running it again proves nothing",
                "repair the node and record it (burnin repair): then it runs everything again; name other runs by themselves "
                "(x2/heat0/hpl/GROUP)",
            )

    def note_reruns(self, results: Sequence[Path]) -> None:
        """Record that the operator forces these runs to be run again (append-only; see `runs.spec.count_reruns`)."""
        if not results:
            return
        for path in results:
            self._refuse_rerun_of_a_failure(path)
        who = {"by": getpass.getuser(), "host": socket.gethostname(), "time": time.time()}
        lines = [json.dumps({"run": str(p.parent.relative_to(self.dir)), **who}) for p in results]
        storage.append_line(self.dir / "reruns.jsonl", "\n".join(lines))


def _group(document: Mapping[str, Any]) -> Group:
    """Return a group of plan.json."""
    isolation = document["isolation"]
    return Group(
        tuple(document["nodes"]),
        tuple(document["owed"]),
        tuple(document["workloads"]),
        isolation_of(isolation) if isolation else None,
        tuple(document.get("unproven", ())),
    )
