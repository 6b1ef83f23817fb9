# SPDX-License-Identifier: Apache-2.0
"""Grouping figures: time, objective, bound and method for 8 to 1,024 nodes over 2 and 3 tiers, with nodes missing.

Run: python benchmarks/bench_grouping.py [--seed 1] [--nodes 8 64 256 1024] [--details]

Each plan is computed in a fresh state (nothing cached from the plan before; the plan of the whole cluster, which gives
nodes their homes, is part of the time). A line is one cluster with some nodes missing: all group sizes of its ladder
and the halves; `worst` is the slowest of them. Seconds are CPU seconds of this process and the solver, so that others on the
machine do not count; wall seconds of the slowest plan are printed at the end. Exit status 1 if any plan takes more than 2 s.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time

from burnin import grouping
from burnin.topology import Place, Topology

LIMIT_SECONDS = 2.0


def cluster(nodes: int, tiers: int, leaf: int) -> Topology:
    """Return a cluster: `leaf` nodes a leaf, 8 leaves a pod (3 tiers), racks of 4, PDUs A and B a row, zones across."""
    names = [f"dgx{i:04d}" for i in range(nodes)]
    places = {}
    for i, name in enumerate(names):
        above = (f"spine{i // (leaf * 8)}", "core") if tiers == 3 else ("spine",)
        places[name] = Place(
            leaf=f"leaf{i // leaf}",
            above=above,
            rack=f"rack{i // 4}",
            pdus=(f"pdu-a{i // 24}", f"pdu-b{i % 5}"),
            zone=f"zone{i * 3 // nodes}",
        )
    return Topology(tuple(names), places, "file")


def main() -> int:
    """Print the table; return 1 if a plan took too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64, 256, 1024])
    parser.add_argument("--details", action="store_true", help="one line for each plan")
    options = parser.parse_args()
    started = time.perf_counter()
    import pulp  # noqa: F401 - loaded once for all, its cost shown apart

    print(f"loading PuLP: {time.perf_counter() - started:.2f} s (only where a plan needs the solver)")
    print(
        "objective and bound: units spanned minus one, summed over groups, (pods, leaves) or (leaves); halves: uneven"
    )
    print(f"{'nodes':>5} {'tiers':>5} {'leaf':>4} {'gone':>4} | {'plans':>5} {'direct':>6} {'ilp':>4} {'plain':>5} "
          f"{'objective':>9} {'bound':>6} | {'sum s':>6} {'worst s':>7}")  # fmt: skip
    slowest: list[tuple[float, float]] = []
    for nodes in options.nodes:
        for tiers in (2, 3):
            for leaf in sorted({min(nodes, 4), min(nodes // 2, 18), min(nodes // 2, 32)}):
                for gone in sorted({0, 1, nodes // 20, nodes // 5}):
                    slowest.append(row(nodes, tiers, leaf, gone, options.seed, options.details))
    cpu, wall = (max(values) for values in zip(*slowest, strict=True))
    print(f"slowest plan: {cpu:.2f} s of CPU (limit {LIMIT_SECONDS:g} s), {wall:.2f} s on the clock")
    return 1 if cpu > LIMIT_SECONDS else 0


def now() -> tuple[float, float]:
    """Return (CPU seconds of this process and of its children, wall seconds)."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(p.ru_utime + p.ru_stime for p in parts), time.perf_counter()


def row(nodes: int, tiers: int, leaf: int, gone: int, seed: int, details: bool) -> tuple[float, float]:
    """Print one line and return the slowest plan's CPU and wall seconds."""
    topology = cluster(nodes, tiers, leaf)
    missing = set(random.Random(seed).sample(topology.nodes, gone))
    here = [n for n in topology.nodes if n not in missing]
    sizes = [2**k for k in range(1, nodes.bit_length()) if 2**k <= nodes // 2]
    plans, seconds, clock = [], [], []
    for size in [*sizes, 0]:
        grouping.forget()
        cpu, wall = now()
        plan = grouping.plan_groups(here, size, topology) if size else grouping.plan_halves(here, topology)
        seconds.append(now()[0] - cpu)
        clock.append(now()[1] - wall)
        plans.append(plan)
        if details:
            print(
                f"    x{size or 'halves'}: {plan.method} {plan.objective} bound {plan.bound} {seconds[-1]:.3f} s {plan.why}"
            )
    methods = [p.method for p in plans]
    print(f"{nodes:5} {tiers:5} {leaf:4} {gone:4} | {len(plans):5} {methods.count('direct'):6} {methods.count('ilp'):4} "
          f"{methods.count('plain'):5} {sum(sum(p.objective) for p in plans):9} {sum(sum(p.bound) for p in plans):6} | "
          f"{sum(seconds):6.2f} {max(seconds):7.3f}")  # fmt: skip
    return max(seconds), max(clock)


if __name__ == "__main__":
    sys.exit(main())
