# SPDX-License-Identifier: Apache-2.0
"""What the Snakefile and its rules ask: input functions, targets, the projection. Rules only call this.

A checkpoint hides everything behind it from `-n`, `--dag` and `--rulegraph`. When nothing is executed, the walk along
the ladder therefore goes on behind the last gate on the assumption that everybody passes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from snakemake.exceptions import IncompleteCheckpointException
from snakemake.io import checkpoint_target

from burnin import config as configuration
from burnin import lock, plan_check, validation
from burnin.campaign import Campaign
from burnin.errors import CampaignError
from burnin.ladder import Heat
from burnin.runs.returning import take_back

# A dry run at 1,024 nodes makes millions of objects and no garbage; looking for it costs a tenth of the time.
gc.set_threshold(100_000, 50, 100)


P = ParamSpec("P")
T = TypeVar("T")


def says_why(function: Callable[P, T]) -> Callable[P, T]:
    """Let an input function end Snakemake with a sentence; as an exception it would come with a traceback."""

    @functools.wraps(function)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*arguments, **keywords)
        except CampaignError as error:
            print(f"burnin: {error}", file=sys.stderr)
            raise SystemExit(error.exit_status) from None

    # Snakemake asks for it twice a job; worked out each time it would be one per cent of a dry run
    wrapped.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return wrapped


class Workflow:
    """A campaign as seen from the Snakefile."""

    def __init__(self, config: Mapping[str, Any], workflow: Any, root: str) -> None:
        self.workflow = workflow
        settings = workflow.config_settings
        merged = configuration.whole_windows(config, [*workflow.configfiles, *settings.configfiles], settings.config)
        self.config = configuration.load(merged, Path(root).resolve())
        plan_check.check_config(self.config)
        self.campaign = Campaign(self.config)
        self.dir = str(self.campaign.dir)
        self.steps = [s.name for s in self.config.ladder.steps()]
        self.checkpoints: Any = None
        self._head = False
        self._projection: tuple[list[tuple[Heat, bool]], dict[tuple[str, int], int]] | None = None
        self.invocation = os.environ.setdefault("BURNIN_INVOCATION", secrets.token_hex(8))
        # the rules' commands find `burnin` beside the Python that runs Snakemake, and tools where the config says
        here = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
        os.environ.update(self.config.environment(os.environ))

    # ------------------------------------------------------------------------------------------------------- modes

    def projecting(self) -> bool:
        """Tell whether nothing is executed (-n, --dag, --rulegraph, --summary ...)."""
        return self.workflow.executor_plugin is None or bool(self.workflow.dryrun)

    @says_why
    def prepare(self) -> None:
        """Before anything is executed: the campaign's files, what is not proven, and somebody who looks now and then."""
        self.campaign.begin()
        print(f"burnin: campaign {self.config.campaign} in {Path(self.dir).resolve()}", file=sys.stderr, flush=True)
        if doubt := validation.warning(validation.state(self.config)):
            print(f"burnin: {doubt}", file=sys.stderr, flush=True)
        from burnin import publishing  # a dry run does not need it

        if publishing.wanted(self.config.document):
            threading.Thread(target=self._look_again, daemon=True).start()

    def _look_again(self) -> None:
        """Look for hangs and stalls every minute, as long as this head lives; in a process of its own, which may fail."""
        pause = float((self.config.document.get("notify") or {}).get("look_every_seconds", 60))
        while True:
            time.sleep(pause)
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [sys.executable, "-m", "burnin", "notify", self.dir],
                    stdin=subprocess.DEVNULL,
                    timeout=600,
                    check=False,
                )

    def become_head(self) -> None:
        """Refuse to start beside a living head; remove the lock of a dead one.

        Called while the jobs are worked out: before that it is not known whether anything will be executed, and
        right after it Snakemake looks at its own lock. A job's own Snakemake (DRMAA) is no head.

        What --forcerun names is taken away here, as burnin rerun does it. Snakemake's own mark is not enough: a forced job
        hides those behind it, and what comes after it as `ancient` input is not triggered by it. Of three workloads of a group,
        all forced, it would run the first, judge the heat, run the second, and end.
        """
        if not self.workflow.is_main_process or self._head:
            return
        if not self.projecting():
            lock.take(Path(self.dir), Path(".snakemake", "locks"))
        self._head = True
        if not self.projecting():
            if doubt := self.campaign.other_scenario():
                print(f"burnin: {doubt}", file=sys.stderr, flush=True)
            for text in take_back(self.campaign, self.config.environment(os.environ)):
                print(f"burnin: {text}", file=sys.stderr, flush=True)
            if (self.campaign.dir / "config.json").exists():
                # a campaign that is over executes nothing, and its config must follow a new version of burnin all the same
                self.campaign.begin()
        if forced := self._forced_runs():
            if not self.projecting():
                self.campaign.take_away(forced)
            names = [str(p.parent.relative_to(self.campaign.dir)) for p in forced]
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            print(
                f"burnin: to be run again: {', '.join(names[:10])}{more}; what they gave is kept",
                file=sys.stderr,
                flush=True,
            )

    def _forced_runs(self) -> list[Path]:
        """Return the results of the runs that --forcerun names, as files or through their rule."""
        settings = self.workflow.dag_settings
        names = {str(n) for n in settings.forcerun}
        if not names and not settings.forceall:
            return []
        found = []
        for heat, _ in self.campaign.projection():
            for group in heat.groups:
                for workload in group.workloads:
                    path = self.campaign.result_path(heat.step, heat.heat, workload, group.name)
                    resumes = heat.step == "resume"
                    rules = {"resume_first", "resume_second"} if resumes else {"burn_in"}
                    wanted = {str(path), *rules, *([str(path.with_name("first.json"))] if resumes else [])}
                    if (names & wanted or settings.forceall) and path.exists():
                        found.append(path)
        return found

    # --------------------------------------------------------------------------------------------------- the walk

    def _table(self) -> tuple[list[tuple[Heat, bool]], dict[tuple[str, int], int]]:
        """Return the projected heats and where each stands; computed once, since nothing changes in a dry run."""
        if self._projection is None:
            heats = self.campaign.projection()
            self._projection = heats, {(h.step, h.heat): i for i, (h, _) in enumerate(heats)}
        return self._projection

    def _fresh(self, gate: Path) -> bool:
        """Tell whether a gate on disk is newer than all it was decided from (as Snakemake will see it)."""
        if self.workflow.dag_settings.forcerun or self.workflow.dag_settings.forceall:
            return False  # what is forced may change any decision: ask the checkpoint
        decided = gate.stat().st_mtime_ns
        plan = gate.with_name("plan.json")
        sources = [Path(p) for p in self.criteria_files]
        if plan.exists():
            document = self.campaign.load(plan, "plan")
            sources += [
                gate.parent / w / g / "result.json" for g, e in document["groups"].items() for w in e["workloads"]
            ]
        return all(s.exists() and s.stat().st_mtime_ns <= decided for s in sources)

    @says_why
    def gates(self, until: str | None = None) -> list[str]:
        """Return the gates of the ladder up to the end of a step (None: of all steps).

        While executing, this asks the checkpoint of the first gate that is missing, so Snakemake makes that one first
        and asks again.
        """
        self.become_head()
        last = self.steps.index(until) if until else len(self.steps) - 1
        if last and len(self.config.nodes) > 1 and not self.projecting() and self._alone_only():
            raise CampaignError(
                "this executor knows no groups of nodes: it runs the single-node step only",
                "name that step: snakemake --profile drmaa single; the rest of the ladder needs --profile slurm",
            )
        wanted = {"retest", *self.steps[: last + 1]}
        if self.projecting():
            heats = [h for h, _ in self._table()[0] if until is None or h.step in wanted]
            return [str(self.campaign.gate_path(h.step, h.heat)) for h in heats]
        paths = []
        for heat, gate, *_ in self.campaign.walk(usable=self._usable):
            if until and heat.step not in wanted:
                break
            if gate is None:
                self.checkpoints.gate.get(step=heat.step, heat=str(heat.heat))
                # Snakemake remembers the gate as made, but it was taken away since (its groups changed): make it anew
                path = str(self.campaign.gate_path(heat.step, heat.heat))
                raise IncompleteCheckpointException(self.checkpoints.gate.rule, checkpoint_target(path))
            paths.append(str(self.campaign.gate_path(heat.step, heat.heat)))
        return paths

    def _alone_only(self) -> bool:
        """Tell whether the executor can only start jobs on one node (DRMAA has no word for a list of nodes)."""
        return str(self.workflow.executor_plugin.name) == "drmaa"

    def _usable(self, gate: Path) -> bool:
        """Tell whether the walk may go on behind a gate; asks the checkpoint if it looks stale."""
        if self._fresh(gate):
            return True
        step, heat = gate.parts[-3], gate.parts[-2].removeprefix("heat")
        self.checkpoints.gate.get(step=step, heat=heat)
        return True

    @says_why
    def gate_before(self, wildcards: Any) -> list[str]:
        """Return the gate that a plan follows: none for the first heat."""
        key = (wildcards.step, int(wildcards.heat))
        if self.projecting():
            heats, index = self._table()
            at = index.get(key)
            return [str(self.campaign.gate_path(heats[at - 1][0].step, heats[at - 1][0].heat))] if at else []
        before: list[str] = []
        for heat, gate, *_ in self.campaign.walk():
            if (heat.step, heat.heat) == key:
                return before
            if gate is not None:
                before = [str(self.campaign.gate_path(heat.step, heat.heat))]
        return before

    def preflight(self, wildcards: Any) -> list[str]:
        """Return the preflight's file if a plan waits for it: only the campaign's first one, unless it is made already."""
        path = self.campaign.dir / "preflight" / "preflight.json"
        plan = self.campaign.plan_path(wildcards.step, int(wildcards.heat))
        wanted = self.config.document["preflight"]["run"] and (wildcards.step, wildcards.heat) == (self.steps[0], "0")
        return [str(path)] if wanted and (path.exists() or not plan.exists()) else []

    def _heat(self, step: str, heat: int) -> Heat:
        """Return a heat that was planned, or is projected."""
        path = self.campaign.plan_path(step, heat)
        if not self.projecting():
            self.checkpoints.plan.get(step=step, heat=str(heat))
        if path.exists():
            return self.campaign.planned(Heat(step, heat, ()))
        heats, index = self._table()
        return heats[index[step, heat]][0]

    @says_why
    def results_of_heat(self, wildcards: Any) -> list[str]:
        """Return the results that a gate waits for."""
        heat = self._heat(wildcards.step, int(wildcards.heat))
        return [
            self.campaign.result_name(heat.step, heat.heat, workload, group.name)
            for group in heat.groups
            for workload in group.workloads
        ]

    @says_why
    def results_before(self, wildcards: Any) -> list[str]:
        """Return the results that a run waits for: those of the workload before it, on its own nodes.

        Both halves start together, so each waits for both.
        """
        self.become_head()
        step, heat_number = wildcards.step, int(wildcards.heat)
        if self.projecting():
            groups = self._groups_of_projection(step, heat_number)
        else:
            plan = self.campaign.load(self.campaign.plan_path(step, heat_number), "plan")
            groups = {g: tuple(e["workloads"]) for g, e in plan["groups"].items()}
        mine = groups.get(wildcards.group, ())
        if wildcards.workload not in mine or mine.index(wildcards.workload) == 0:
            return []
        before = mine[mine.index(wildcards.workload) - 1]
        names = [g for g, w in groups.items() if before in w] if step == "halves" else [wildcards.group]
        return [self.campaign.result_name(step, heat_number, before, g) for g in names]

    def _groups_of_projection(self, step: str, heat: int) -> dict[str, tuple[str, ...]]:
        """Return group -> workloads of a projected heat, computed once a heat."""
        cache: dict[tuple[str, int], dict[str, tuple[str, ...]]] = self.__dict__.setdefault("_groups_cache", {})
        if (step, heat) not in cache:
            heats, index = self._table()
            at = index.get((step, heat))
            cache[step, heat] = {g.name: g.workloads for g in heats[at][0].groups} if at is not None else {}
        return cache[step, heat]

    @functools.cached_property
    def criteria_files(self) -> list[str]:
        """Return the files whose change judges everything again."""
        return [str(p) for p in configuration.criteria_files(self.workflow.globals["config"], self.config.root)]


def step_targets(flow: Workflow, steps: Sequence[str]) -> dict[str, Callable[[Any], list[str]]]:
    """Return an input function for each step's target rule."""

    def target(step: str) -> Callable[[Any], list[str]]:
        return lambda wildcards: flow.gates(step)

    return {step: target(step) for step in steps}
