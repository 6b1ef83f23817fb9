# SPDX-License-Identifier: Apache-2.0
"""What a run takes beside its workload, on a real Slurm of its own (root, Debian's Slurm packages).

`python benchmarks/bench_overhead.py [ITERATIONS]` runs nccl on eight nodes in the step `full`. A wrapper around each launch
writes down when the workload itself began and ended; all else between the start of the job and its last word is
overhead. The same again with a probe every few seconds, to see what the workload feels of it.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from burnin.runs import journal

from tests.integration.slurm.conftest import Campaign, Cluster

TIMED = """#!/bin/sh
at=$(date +%s.%N)
"$@"
status=$?
echo "$at $(date +%s.%N)" >> {log}.$BURNIN_STEP
exit $status
"""
SECONDS = 3.0  # of the lab's workload


def run(cluster: Cluster, folder: Path, iterations: int, every: float) -> dict[str, Any]:
    """Run one campaign; return what its last step took (s). `every`: minutes between two probes."""
    folder.mkdir()
    windows = {"nccl": {"default": {"iterations": 1}, "full": {"iterations": iterations}}}
    campaign = Campaign(
        folder, cluster,
        {"nodes": "dgx[01-08]", "windows": windows, "environment": {"BURNIN_LAB_ITERATION_SECONDS": str(SECONDS)},
         "watch": {"probe_every_minutes": every}},
    )  # fmt: skip
    log = folder / "spans"
    (folder / "tools" / "held").write_text(TIMED.format(log=log))
    campaign.start()
    campaign.finish(600)
    (path,) = campaign.result.glob("full/heat0/nccl/*/attempt0/journal.jsonl")
    records = journal.read(path)
    spans = [tuple(float(t) for t in line.split()) for line in Path(f"{log}.full").read_text().splitlines()]
    at = {r["type"] if r["type"] != "probe" else r["when"]: r["time"] for r in records if r["type"] != "end"}
    submitted = [json.loads(x) for x in (path.parents[1] / "submissions.jsonl").read_text().splitlines()]
    work = sum(end - begin for begin, end in spans)
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(spans)]
    return {
        "iterations": len(spans),
        "work": median(end - begin for begin, end in spans),
        "gap": median(gaps),
        "worst": max(gaps),
        "before": at["before"] - at["job"],
        "after": at["after"] - spans[-1][1],
        "all": at["final"] - at["job"] - work,
        "queue": at["job"] - submitted[0]["time"],
        "probes": sum(r["type"] == "probe" and r["when"].startswith("during-") for r in records),
    }


def main() -> None:
    """Measure and print."""
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    cluster = Cluster()
    cluster.environment["NDGX"] = "8"
    cluster("purge")  # what another size left
    cluster("start")
    try:
        with tempfile.TemporaryDirectory(prefix="burnin-overhead-") as name:
            quiet = run(cluster, Path(name, "quiet"), iterations, 60.0)
            probed = run(cluster, Path(name, "probed"), iterations, 0.1)
    finally:
        cluster("purge")
    print(f"8 nodes, {quiet['iterations']} iterations of {quiet['work']:.2f} s (the launch with srun included)")
    print(f"  sbatch to the job's first word      {quiet['queue']:.2f} s")
    print(f"  start of the job to the first launch, with its probe {quiet['before']:.2f} s")
    print(f"  between two iterations              {quiet['gap']:.3f} s, worst {quiet['worst']:.3f} s")
    print(f"  last iteration to the last word, with its probe {quiet['after']:.2f} s")
    print(f"  all of it, in the job               {quiet['all']:.2f} s")
    for minutes in (1, 10):
        count = 60 // minutes
        share = (quiet["before"] + quiet["after"] + count * quiet["gap"]) / 3600
        print(f"  a window of one hour with {count} iterations of {minutes} min: {100 * share:.2f} %")
    print(
        f"with {probed['probes']} probes while it ran: iterations of {probed['work']:.2f} s, between them {probed['gap']:.3f} s"
    )


if __name__ == "__main__":
    main()
