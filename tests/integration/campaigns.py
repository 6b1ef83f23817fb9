# SPDX-License-Identifier: Apache-2.0
"""Runs whole campaigns through Snakemake, for the tests: small ones, each in a results folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]

#: Small and quick: what a test does not care about is left out.
QUICK: dict[str, Any] = {
    "campaign": "test",
    "nodes": "dgx[01-04]",
    "workloads": ["nccl"],
    "windows": {w: {"default": {"iterations": 2}} for w in ("nccl", "hpl", "nemo")},
    "resume_test": {"workload": None, "steps_after_checkpoint": 5},
    "watch": {"hang_first_seconds": 5, "hang_least_seconds": 3},
    "preflight": {"run": False},
}


class Lab:
    """A campaign on the lab (or on a real Slurm) in a folder of its own."""

    def __init__(
        self, folder: Path, faults: list[dict[str, Any]] | None = None, profile: str = "lab", **config: Any
    ) -> None:
        self.folder, self.profile = folder, profile
        # a working directory of its own: Snakemake removes the folder of all locks when it ends, also another's
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        for name in ("config", "lab"):
            if not (self.work / name).exists():
                (self.work / name).symlink_to(ROOT / name)
        scenario = folder / "scenario.yaml"
        scenario.write_text(
            yaml.safe_dump({"nodes": "dgx[01-08]", "gpus_per_node": 8, "faults": faults or []}), encoding="utf-8"
        )
        document = {**QUICK, "results": str(folder / "results"), "scenario": str(scenario), **config}
        if profile == "lab":
            document["path_first"] = ["lab/slurm"]
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.dir = folder / "results" / document["campaign"]

    def command(self, *arguments: str) -> list[str]:
        """Return the snakemake command line of the campaign."""
        profile = str(ROOT / "profiles" / self.profile)
        return [
            "snakemake",
            "-s",
            str(ROOT / "Snakefile"),
            *arguments,
            "--profile",
            profile,
            "--configfile",
            str(self.config),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Return an environment in which the virtual environment is active."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BURNIN_")}
        return {**clean, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def snakemake(self, *arguments: str, timeout: float = 400, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run snakemake from the repository root."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"snakemake ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
            )
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start snakemake in a session of its own; its output goes to head.log."""
        with (self.folder / "head.log").open("a") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.work,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    @property
    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        document: dict[str, Any] = json.loads((self.dir / "summary.json").read_text(encoding="utf-8"))
        return document

    def statuses(self) -> dict[str, str]:
        """Return node -> status."""
        return {n: e["status"] for n, e in self.summary["nodes"].items()}

    def faults(self) -> dict[str, tuple[str, str]]:
        """Return failed node -> (fault, part)."""
        return {n: (e["fault"], e["part"]) for n, e in self.summary["nodes"].items() if e["status"] == "failed"}

    def results(self) -> dict[str, dict[str, Any]]:
        """Return run id -> result.json."""
        found = {}
        for path in sorted(self.dir.glob("*/heat*/*/*/result.json")):
            found[str(path.parent.relative_to(self.dir))] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def journals(self) -> dict[str, list[dict[str, Any]]]:
        """Return attempt folder -> its journal's records."""
        from burnin.runs import journal

        return {
            str(p.parent.relative_to(self.dir)): journal.read(p)
            for p in sorted(self.dir.glob("*/heat*/*/*/*attempt*/journal.jsonl"))
        }
