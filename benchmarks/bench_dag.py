# SPDX-License-Identifier: Apache-2.0
"""Time of `snakemake -n` over the ladder's size: what an engineer waits for before a campaign of 1,024 nodes.

    python benchmarks/bench_dag.py [NODES ...]

Prints seconds, jobs, and seconds per job relative to the smallest size (1.0 = linear growth).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = "nodes: n[0001-{last:04d}]\ngpus_per_node: 8\nfaults: []\n"


def measure(nodes: int, folder: Path) -> tuple[float, int]:
    """Return (seconds, jobs) of one dry run that prints every job."""
    scenario = folder / f"{nodes}.yaml"
    scenario.write_text(SCENARIO.format(last=nodes), encoding="utf-8")
    values = [f"nodes=n[0001-{nodes:04d}]", f"results={folder}", f"scenario={scenario}"]
    start = time.monotonic()
    done = subprocess.run(
        ["snakemake", "--profile", "lab", "-n", "--config", *values], capture_output=True, text=True, check=True
    )
    seconds = time.monotonic() - start
    total = re.search(r"^total\s+(\d+)", done.stdout, re.MULTILINE)
    return seconds, int(total[1]) if total else 0


def main() -> None:
    """Print the table."""
    sizes = [int(a) for a in sys.argv[1:]] or [64, 256, 1024]
    base = 0.0
    with tempfile.TemporaryDirectory() as folder:
        empty, _ = measure(1, Path(folder))
        print(f"start-up alone (1 node): {empty:.1f} s")
        print(f"{'nodes':>6} {'jobs':>6} {'seconds':>8} {'per job, relative':>18}")
        for nodes in sizes:
            seconds, jobs = measure(nodes, Path(folder))
            each = (seconds - empty) / jobs
            base = base or each
            print(f"{nodes:>6} {jobs:>6} {seconds:>8.1f} {each / base:>18.2f}")


if __name__ == "__main__":
    main()
