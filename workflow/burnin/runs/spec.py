# SPDX-License-Identifier: Apache-2.0
"""What exactly one run is: derived from its result path, the campaign's config and the heat's plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin import plan_check, preflight, storage
from burnin.config import Config
from burnin.errors import CampaignError, ConfigError
from burnin.paths import RunRef, run_of_result
from burnin.runs import stack


@dataclass(frozen=True)
class RunSpec:
    """One run, complete: who, with what, for how long."""

    ref: RunRef
    uid: str
    config: Config
    nodes: list[str]
    window: dict[str, float]
    reruns: int  # how often the operator forced this run to be run again

    @property
    def campaign(self) -> str:
        """Return the campaign's name."""
        return self.config.campaign

    @property
    def step(self) -> str:
        """Return the step."""
        return self.ref.step

    @property
    def heat(self) -> int:
        """Return the heat."""
        return self.ref.heat

    @property
    def workload(self) -> str:
        """Return the workload."""
        return self.ref.workload

    @property
    def group(self) -> str:
        """Return the group's name."""
        return self.ref.group

    @property
    def run_id(self) -> str:
        """Return the run's name inside its campaign."""
        return self.ref.run_id

    @property
    def run_dir(self) -> Path:
        """Return the run directory."""
        return self.ref.run_dir

    @property
    def job_name(self) -> str:
        """Return the Slurm job name: unique to this campaign and run, safe in every Slurm option."""
        return f"burnin-{self.uid}-{storage.digest(self.run_id)}"

    @property
    def slurm(self) -> Mapping[str, Any]:
        """Return the config's section `slurm`."""
        section: Mapping[str, Any] = self.config.document["slurm"]
        return section

    @property
    def gpus_per_node(self) -> int:
        """Return the number of GPUs of a node."""
        return int(self.config.document["gpus_per_node"])

    @property
    def definition(self) -> Mapping[str, Any]:
        """Return the workload's definition."""
        return self.config.definition(self.workload)

    @property
    def time_limit_minutes(self) -> int:
        """Return Slurm's time limit for the run, in whole minutes."""
        return plan_check.time_limit_minutes(self.window, self.slurm)

    @property
    def checkpoint_dir(self) -> Path:
        """Return the folder for this run's checkpoints; both jobs of the resume test share it."""
        root = self.definition.get("training", {}).get("checkpoint_root")
        base = Path(root) / self.campaign / self.uid if root else self.ref.campaign_dir.resolve() / "checkpoints"
        return base / self.step / f"heat{self.heat}" / self.workload / self.group

    def identity(self) -> dict[str, Any]:
        """Return what makes two starts the same run: with any difference the journal is not continued."""
        definition = {k: v for k, v in self.definition.items() if k not in ("steps", "like_for_like", "files")}
        return {
            "uid": self.uid,
            "run": self.run_id,
            "nodes": self.nodes,
            "window": self.window,
            "definition": definition,
            "environment": dict(self.config.document["environment"]),
            "gpus_per_node": self.gpus_per_node,
            "mpi": self.slurm["mpi"],
            "scenario": self.config.document["scenario"],
            "reruns": self.reruns,
        }

    def command_name(self, iteration: int) -> str:
        """Return which of the workload's commands an iteration runs: they take turns."""
        names = list(self.definition["commands"])
        return str(names[iteration % len(names)])

    def command(self, iteration: int, checkpoint_dir: Path, hpl_dat: Path) -> list[str]:
        """Return the argument list of an iteration."""
        training = self.definition.get("training", {})
        values: dict[str, object] = {
            "nodes": len(self.nodes),
            "nodelist": ",".join(self.nodes),
            "gpus_per_node": self.gpus_per_node,
            "ntasks": len(self.nodes) * max(1, self.gpus_per_node),
            "mpi": self.slurm["mpi"],
            "iteration": iteration,
            "run_dir": self.run_dir.resolve(),
            "checkpoint_dir": checkpoint_dir,
            "hpl_dat": hpl_dat,
            "max_steps": training.get("max_steps", ""),
            "checkpoint_every": training.get("checkpoint_every", ""),
            **{name: training.get(name, "") for name in configuration.TRAINING_NUMBERS},
            "global_batch_size": plan_check.fitted_batch(training, len(self.nodes) * max(1, self.gpus_per_node)) or "",
        }
        template = self.definition["commands"][self.command_name(iteration)]
        return configuration.render(self.definition["launch"], values) + configuration.render(template, values)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the workload's commands."""
        result = self.config.environment(base)
        for section in (self.config.document["environment"], self.definition["environment"]):
            result.update({k: str(v) for k, v in section.items()})
        result.update(
            BURNIN_CAMPAIGN=self.campaign,
            BURNIN_STEP=self.step,
            BURNIN_HEAT=str(self.heat),
            BURNIN_WORKLOAD=self.workload,
            BURNIN_GROUP=self.group,
            BURNIN_NODES=",".join(self.nodes),
            BURNIN_GPUS_PER_NODE=str(self.gpus_per_node),
            BURNIN_RUN_DIR=str(self.run_dir.resolve()),
        )
        if "SLURM_JOB_ID" not in base:
            # outside a job, srun makes its own; the name lets scancel find exactly that one
            result["SLURM_JOB_NAME"] = self.job_name
        return result

    def probe_script(self, with_stack: bool = False) -> str:
        """Return the text of the script that reads one node; every word of a command is quoted for the shell."""
        library = self.config.root / "workflow" / "scripts" / "probe_node.sh"
        lines = [f". {shlex.quote(str(library))}"]
        commands = [(tool, False, c) for tool, c in self.config.document["probes"]["commands"].items()]
        commands += [(tool, True, c) for tool, c in stack.as_it_stands(self.config).items() if with_stack]
        for tool, as_it_stands, template in commands:
            for hca in self.config.hcas if "{hca}" in template else [""]:
                words = configuration.render(template, {"hca": hca})
                name = preflight.frame(tool, hca) if as_it_stands else tool
                lines.append(f"probe {shlex.quote(name)} {shlex.join(words)}")
        return "\n".join([*lines, "finish", ""])

    def probe_command(self, script: Path, folder: Path) -> list[str]:
        """Return the argument list that reads all nodes of the group at once, one task a node."""
        values = {
            "nodes": len(self.nodes),
            "nodelist": ",".join(self.nodes),
            "gpus_per_node": self.gpus_per_node,
            "mpi": self.slurm["mpi"],
        }
        probes = self.config.document["probes"]
        launch = configuration.render(probes["launch"], values)
        return [*launch, "sh", str(script), str(folder), str(probes["timeout_seconds"])]


def load_spec(result: Path) -> RunSpec:
    """Return the run that writes `result`. Raises CampaignError if the campaign does not know such a run."""
    try:
        ref = run_of_result(result)
    except ValueError as error:
        raise CampaignError(str(error), "give the path of a result.json below results/<campaign>") from None
    config = configuration.from_file(ref.campaign_dir)
    identity = storage.read_json(ref.campaign_dir / "campaign.json", "campaign")
    plan = storage.read_json(ref.heat_dir / "plan.json", "plan")
    group = plan["groups"].get(ref.group)
    if group is None or ref.workload not in group["workloads"]:
        raise CampaignError(
            f"{ref.heat_dir / 'plan.json'} has no run {ref.workload}/{ref.group}", "run snakemake again"
        )
    if ref.step != "retest" and ref.workload not in config.document["workload_definitions"]:
        raise ConfigError("workload_definitions", ref.workload, "the workload of a planned run", "put it back")
    window = group.get("windows", {}).get(ref.workload, plan["windows"][ref.workload])
    return RunSpec(ref, identity["uid"], config, list(group["nodes"]), dict(window), count_reruns(ref))


def count_reruns(ref: RunRef) -> int:
    """Return how often the operator asked for this run again (`--forcerun`; recorded in reruns.jsonl, append-only)."""
    wanted = f"{ref.step}/heat{ref.heat}/{ref.workload}/{ref.group}"
    return sum(record.get("run") == wanted for record in storage.records(ref.campaign_dir / "reruns.jsonl")[0])
