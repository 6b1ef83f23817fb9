# SPDX-License-Identifier: Apache-2.0
"""How many tests and rounds isolation takes: 232 nodes, 5 bad ones (or one bad link) that only show in groups.

`python benchmarks/bench_isolation.py [seeds]` drives whole campaigns in memory (ladder and gate are the real ones) and
prints the median and the worst over all seeds. A test is one isolation group; a round is a heat that has some.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from burnin.ladder import LadderConfig

from tests.world import Campaign, ladder, result

NODES, BAD = 232, 5


def hang(found: dict[str, Any]) -> dict[str, Any]:
    """Let a run hang, with no evidence of who it was."""
    found |= {"state": "stopped", "reason": "hang: no output for 300 s"}
    found["iterations"] = found["iterations"][:1]
    return found


def campaign(seed: int, min_nodes: int, link: bool) -> tuple[int, int, bool]:
    """Return tests, rounds, and whether exactly the truth was found."""
    chance = random.Random(seed)
    config = ladder(NODES, ["nccl"])
    # steps in which nothing can show are left out: they cost time and tell nothing
    kept = {n: w for n, w in config.workloads.items() if n[0] != "x" or int(n[1:]) >= min_nodes}
    del kept["single"]
    config = LadderConfig(config.nodes, kept)
    bad = set(chance.sample(config.nodes, 2 if link else BAD))

    def run(step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> dict[str, Any]:
        found = result(step, heat, workload, group, nodes)
        here = len(bad & set(nodes))
        shows = here == 2 if link else here > 0
        return hang(found) if shows and len(nodes) >= min_nodes else found

    done = Campaign(config, run).to_end()
    rounds = [h for h in done.heats if any(g.isolation for g in h.groups)]
    tests = sum(len(g.workloads) for h in rounds for g in h.groups if g.isolation)
    if link:
        found = [sorted([*e["between"][0], *e["between"][1]]) for g in done.gates for e in g["links"]]
        return tests, len(rounds), found == [sorted(bad)] and done.suspects == bad and not done.failed
    return tests, len(rounds), done.failed == bad and not done.suspects


def main() -> None:
    """Print one line for each kind of fault."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"{NODES} nodes, {seeds} seeds", flush=True)
    for link, text in ((False, f"{BAD} bad nodes"), (True, "1 bad link")):
        for min_nodes in (2,) if link else (2, 8, 32):
            found = [campaign(seed, min_nodes, link) for seed in range(seeds)]
            tests, rounds = [f[0] for f in found], [f[1] for f in found]
            print(
                f"{text:11} at >= {min_nodes:2} nodes: tests median {median(tests):g}, worst {max(tests)}; rounds median "
                f"{median(rounds):g}, worst {max(rounds)}; truth found in {sum(f[2] for f in found)} of {seeds}",
                flush=True,
            )


if __name__ == "__main__":
    main()
