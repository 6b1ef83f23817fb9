# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of its own for these tests, and campaigns on it that stop where a test wants to interfere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("cluster.sh")
LAB, LABNO = "/tmp/burnin-slurm-test", "7"  # beside a cluster of make slurm-up, which has number 0
COMMANDS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "unshare", "nsenter", "ip")


class Cluster:
    """The cluster and what may be done to it."""

    def __init__(self) -> None:
        self.environment = {**os.environ, "LAB": LAB, "LABNO": LABNO, "NDGX": "4"}
        self.client = {**os.environ, "SLURM_CONF": f"{LAB}/etc/slurm.conf"}

    def __call__(self, *arguments: str) -> None:
        subprocess.run(
            [str(SCRIPT), *arguments], env=self.environment, check=True, timeout=200, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, *command: str) -> str:
        """Return what a Slurm command prints."""
        return subprocess.run(command, env=self.client, check=False, timeout=100, capture_output=True, text=True).stdout

    def heal(self) -> None:
        """Bring every node back into service and every job to its end."""
        self("start-ctld")
        self.ask("scancel", "--me")
        for node in self.ask("sinfo", "-h", "-N", "-o", "%N").split():
            self("start-node", node)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            bad = {
                line.split()[0]
                for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
                if not line.endswith(" idle")
            }
            if not bad:
                return
            for node in bad:
                self.ask("scontrol", "update", f"nodename={node}", "state=resume")
            time.sleep(0.5)
        raise AssertionError(self.ask("sinfo", "-R"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    missing = [c for c in COMMANDS if shutil.which(c) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(
            f"a real Slurm needs root and Debian's packages (make slurm-up); missing: {', '.join(missing) or 'root'}"
        )
    found = Cluster()
    found("start")
    yield found
    found("purge")


class Campaign:
    """A campaign in a folder of its own; its runs of the last `step` stop after their first iteration while `hold` exists.

    One node and one step unless the config says more: what a test is about needs no ladder, and the machine is small.
    """

    def __init__(self, folder: Path, cluster: Cluster, config: dict[str, Any]) -> None:
        self.folder, self.cluster = folder, cluster
        self.step = "full" if "nodes" in config else "single"
        self.hold, self.holding = folder / "hold", folder / "holding"
        (folder / "config").symlink_to(ROOT / "config")
        tools = folder / "tools"
        tools.mkdir()
        (tools / "held").write_text(
            "#!/bin/sh\n"
            f'if [ "$BURNIN_STEP" = {self.step} ] && [ "$BURNIN_ITERATION" -ge 1 ]; then\n'
            f'  touch "{self.holding}"\n  while [ -e "{self.hold}" ]; do sleep 0.1; done\nfi\nexec "$@"\n'
        )
        (tools / "held").chmod(0o755)
        definitions = yaml.safe_load((ROOT / "config" / "workloads.yaml").read_text())
        nccl = {**definitions["nccl"], "commands": {"all_reduce": definitions["nccl"]["commands"]["all_reduce"]}}
        nccl["launch"] = "held " + nccl["launch"]
        full: dict[str, Any] = {
            "campaign": "t", "nodes": "dgx01", "workloads": ["nccl"], "scenario": "healthy",
            "windows": {"nccl": {"default": {"iterations": 2}, self.step: {"iterations": 3}}},
            "resume_test": {"workload": None, "steps_after_checkpoint": 5},
            "workload_definitions": {**definitions, "nccl": nccl},
            "path_first": [str(tools)],
        }  # fmt: skip
        (folder / "test.yaml").write_text(yaml.safe_dump({**full, **config}))
        self.result = folder / "results" / "t"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the head; its output goes to `log`."""
        command = [
            sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "slurm"),
            "--configfile", "test.yaml", "--burnin-poll-seconds", "1", *arguments,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=self.cluster.client, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
                # what is started in the background by a shell ignores SIGINT, and so do its children
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        return self.process

    def until(self, what: Callable[[], Any], seconds: float = 90) -> Any:
        """Wait for something to be true while the head runs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s in vain\n{self.log()[-3000:]}")

    def until_held(self) -> str:
        """Wait until the run of the last step holds after its first iteration; return its job id."""
        self.until(self.holding.exists)
        return str(self.submissions(0)[-1]["job_id"])

    def finish(self, seconds: float = 180) -> dict[str, Any]:
        """Let everything go on, wait for the end, return the summary."""
        self.hold.unlink(missing_ok=True)
        assert self.process is not None
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the campaign did not end\n{self.log()[-4000:]}") from None
        assert status == 0, self.log()[-4000:]
        summary: dict[str, Any] = json.loads((self.result / "summary.json").read_text())
        return summary

    def kill(self, sign: int = signal.SIGKILL) -> None:
        """End the head, and only it."""
        assert self.process is not None
        self.process.send_signal(sign)
        self.process.wait(60)

    def log(self) -> str:
        """Return what all heads printed."""
        return (self.folder / "log").read_text(errors="replace")

    def submissions(self, heat: int) -> list[dict[str, Any]]:
        """Return the submissions that got a job id, of the runs of a heat of the last step."""
        files = sorted(self.result.glob(f"{self.step}/heat{heat}/*/*/submissions.jsonl"))
        records = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [r for r in records if r["event"] == "submitted"]

    def casualty(self, heat: int = 0, step: str = "") -> dict[str, Any]:
        """Return the one casualty of a heat, of the last step if no other is named."""
        documents = [
            json.loads(p.read_text()) for p in self.result.glob(f"{step or self.step}/heat{heat}/*/*/result.json")
        ]
        found: list[dict[str, Any]] = [d["casualty"] for d in documents if d["state"] == "casualty"]
        assert len(found) == 1
        return found[0]

    def heats(self) -> int:
        """Return how many heats the last step had."""
        return len(list(self.result.glob(f"{self.step}/heat*/gate.json")))

    def assert_nothing_ran_twice(self) -> None:
        """No iteration that had ended was started again, and none was counted twice."""
        journals = list(self.result.glob("*/heat*/*/*/*attempt*/journal.jsonl"))
        assert journals
        for path in journals:
            records = [json.loads(line) for line in path.read_text().splitlines()]
            ended: set[int] = set()
            started: dict[int, int] = {}
            for record in records:
                if record["type"] == "start":
                    assert record["iteration"] not in ended, f"{path}: iteration {record['iteration']} ran twice"
                    started[record["seq"]] = record["iteration"]
                elif record["type"] == "end" and record["ended"] == "itself":
                    ended.add(started[record["seq"]])


@pytest.fixture
def campaign(tmp_path: Path, cluster: Cluster) -> Iterator[Callable[..., Campaign]]:
    made: list[Campaign] = []

    def make(hold: bool = True, **config: Any) -> Campaign:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        new = Campaign(folder, cluster, config)
        if hold:
            new.hold.touch()
        made.append(new)
        return new

    yield make
    for one in made:
        one.hold.unlink(missing_ok=True)
        if one.process is not None and one.process.poll() is None:
            one.process.kill()
            one.process.wait()
    cluster.heal()
