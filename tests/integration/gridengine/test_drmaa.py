# SPDX-License-Identifier: Apache-2.0
"""The single-node step through DRMAA on a real Grid Engine: every run on its own node, and no death loses anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from burnin.runs.journal import completed

from tests.integration.campaigns import Lab

pytestmark = [pytest.mark.drmaa]

SCRIPT = Path(__file__).with_name("cluster.sh")
LIBRARY = Path("/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0")
COMMANDS = ("sge_qmaster", "sge_execd", "qconf", "qdel", "unshare", "nsenter", "ip")
NODES = ["dgx01", "dgx02", "dgx03"]
PROMPT = ("--seconds-between-status-checks", "1", "--latency-wait", "5")


class Engine:
    """The Grid Engine and what may be done to it."""

    def __init__(self) -> None:
        # beside a cluster of make drmaa-up, which has number 0
        self.environment = {
            **os.environ,
            "GELAB": "/tmp/burnin-gridengine-test",
            "GELABNO": "7",
            "NDGX": str(len(NODES)),
        }

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(SCRIPT), *arguments], env=self.environment, check=False, timeout=200, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"cluster.sh {arguments}: {done.stdout[-2000:]}"
        return done.stdout

    def client(self) -> dict[str, str]:
        """Return the variables that the script says clients need."""
        words = [line.removeprefix("export ").split("=", 1) for line in self("env").splitlines()]
        return {key: value for key, value in words}

    def ask(self, *command: str) -> str:
        """Return what a Grid Engine command prints."""
        environment = {**os.environ, **self.client()}
        return subprocess.run(command, env=environment, check=False, timeout=60, capture_output=True, text=True).stdout

    def job_on(self, node: str) -> str:
        """Return the id of the job that runs on a node."""
        lines = [line.split() for line in self.ask("qstat", "-s", "r").splitlines() if f"@{node}" in line]
        assert len(lines) == 1, f"one slot a node: {lines}"
        return lines[0][0]

    def jobs(self) -> list[str]:
        """Return the ids of all jobs that are not over."""
        return [line.split()[0] for line in self.ask("qstat").splitlines()[2:]]

    def clear(self) -> None:
        """End all jobs."""
        left = self.jobs()
        if left:
            self.ask("qdel", "-f", *left)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    missing = [c for c in COMMANDS if shutil.which(c) is None] + ([] if LIBRARY.exists() else [str(LIBRARY)])
    if os.geteuid() != 0 or missing:
        pytest.skip(
            f"Grid Engine needs root and Debian's packages (make drmaa-up); missing: {', '.join(missing) or 'root'}"
        )
    found = Engine()
    found("start")
    try:
        yield found
    finally:
        found("purge")


@pytest.fixture
def client(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Snakemake finds the engine; whatever a test leaves in the queue is removed."""
    for key, value in engine.client().items():
        monkeypatch.setenv(key, value)
    engine.clear()
    yield engine
    engine.clear()


def campaign(folder: Path, faults: list[dict[str, Any]] | None = None, **config: Any) -> Lab:
    return Lab(folder, faults, "drmaa", **{"nodes": "dgx[01-03]", "path_first": ["lab/slurm"], **config})


def until(what: Callable[[], Any], seconds: float, lab: Lab) -> None:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, (lab.folder / "head.log").read_text()[-4000:]
        time.sleep(0.2)


def progress(lab: Lab, node: str) -> int:
    """Return how many iterations of a node's run have ended."""
    return len(completed(lab.journals().get(f"single/heat0/nccl/{node}/attempt0", [])))


def starts(lab: Lab, node: str) -> int:
    """Return how many jobs have begun with a node's run."""
    return sum(r["type"] == "job" for r in lab.journals().get(f"single/heat0/nccl/{node}/attempt0", []))


def processes_of(lab: Lab, node: str) -> list[str]:
    """Return the living processes of a node's run: the workload has a session of its own, the engine must find it too."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words and f"BURNIN_RUN_DIR={lab.dir}/single/heat0/nccl/{node}".encode() in where:
            found.append(words)
    return found


def test_each_run_is_on_its_own_node_and_the_gate_decides(client: Engine, tmp_path: Path) -> None:
    lab = campaign(tmp_path, [{"kind": "fan_failed", "node": "dgx02", "part": "FAN6"}], workloads=["hpl"])
    lab.snakemake("single", *PROMPT)
    results = lab.results()
    assert sorted(results) == [f"single/heat0/hpl/{n}" for n in NODES]
    for attempt, records in lab.journals().items():
        node = attempt.split("/")[3]
        assert [r["host"] for r in records if r["type"] == "job"] == [node], "one job, on the node that it names"
    assert lab.faults() == {"dgx02": ("fan_failed", "FAN6")}
    # in the jobs Snakemake decided nothing: one plan, one gate, one head
    decisions = {str(p.relative_to(lab.dir)) for p in lab.dir.glob("*/heat*/*.json")}
    assert decisions == {"single/heat0/plan.json", "single/heat0/gate.json"}
    again = lab.snakemake("single", *PROMPT)
    assert "Submitted" not in again.stdout + again.stderr and client.jobs() == []
    # groups of several nodes are not what this is for: refused at once, and nobody gets a job that waits for ever
    beyond = lab.snakemake(*PROMPT, check=False)
    assert beyond.returncode != 0, beyond.stdout
    assert client.jobs() == [] and all(len(d["nodes"]) == 1 for d in lab.results().values())


def test_killed_jobs_nodes_and_heads_lose_nothing_and_run_nothing_twice(client: Engine, tmp_path: Path) -> None:
    """In one campaign: qdel of a job, death of a node, then kill -9 of the head; the same command each time."""
    lab = campaign(
        tmp_path,
        windows={"nccl": {"default": {"iterations": 6}}},
        environment={"BURNIN_LAB_ITERATION_SECONDS": "3"},
    )
    head = lab.start("single", *PROMPT)
    try:
        until(lambda: all(progress(lab, n) >= 1 for n in NODES), 90, lab)
        client.ask("qdel", client.job_on("dgx01"))
        lost = client.job_on("dgx02")
        client("crash-node", "dgx02")
        until(lambda: not processes_of(lab, "dgx01"), 10, lab)
        client.ask("qdel", "-f", lost)  # Grid Engine waits for the node, which may never come back: a person decides
        assert head.wait(120) != 0
        assert progress(lab, "dgx03") == 6 and "dgx03" in str(sorted(lab.results())), "the others went on"
        assert not (lab.dir / "single" / "heat0" / "gate.json").exists(), "nothing is decided on half the evidence"
        kept = {n: progress(lab, n) for n in NODES}
        client("start-node", "dgx02")
        head = lab.start("single", *PROMPT)
        until(lambda: starts(lab, "dgx01") == 2 and starts(lab, "dgx02") == 2, 90, lab)
        os.killpg(head.pid, signal.SIGKILL)  # its jobs live on
        head.wait()
        assert len(client.jobs()) == 2
        lab.snakemake("single", *PROMPT)
    finally:
        if head.poll() is None:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
    assert client.jobs() == []
    journals = lab.journals()
    assert sorted(journals) == [f"single/heat0/nccl/{n}/attempt0" for n in NODES], "every journal was continued"
    for attempt, records in journals.items():
        node = attempt.split("/")[3]
        iterations = [start["iteration"] for start, _ in completed(records)]
        assert iterations == list(range(6)), f"{attempt}: each iteration once, in order"
        assert len([r for r in records if r["type"] == "start"]) == 6 + (node != "dgx03"), (
            "only the cut one began again"
        )
        assert {r["host"] for r in records if r["type"] == "job"} == {node}
    assert kept["dgx01"] >= 1 and kept["dgx02"] >= 1
    for document in lab.results().values():
        assert document["state"] == "complete" and len(document["iterations"]) == 6
    assert lab.statuses() == dict.fromkeys(NODES, "running"), "all passed the step, the ladder goes on elsewhere"
