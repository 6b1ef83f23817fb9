# SPDX-License-Identifier: Apache-2.0
"""`burnin simulate`: campaigns in memory, and what must never happen in them."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--nodes", type=click.IntRange(1), help="Size of the cluster; default: random, 1 to 33.")
@click.option("--seed", type=int, default=1, show_default=True, help="Everything that is random comes from it.")
@click.option("--campaigns", type=click.IntRange(1), default=1, show_default=True, help="How many, from this seed on.")
@click.option("--check", "checking", is_flag=True, help="Only check what must never happen; exit 1 if it did.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes for --check.")
def simulate(nodes: int | None, seed: int, campaigns: int, checking: bool, workers: int) -> None:
    """Drive whole campaigns in memory: random faults, repairs and operators, the real ladder and gates."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial

    from burnin import simulate as world

    first = seed * 1_000_000
    seeds = range(first, first + campaigns)
    if not checking:
        for number in seeds:
            sim = world.simulate(number, nodes)
            click.echo("\n".join([world.report(sim), *(f"  VIOLATED: {v}" for v in world.violations(sim))]))
        return
    totals: dict[str, float] = {}
    count = 0
    with ProcessPoolExecutor(workers) as pool:
        for number, found, figures in pool.map(partial(world.check, nodes=nodes), seeds, chunksize=20):
            for sentence in found:
                click.echo(f"seed {number}: {sentence}")
            count += len(found)
            for key, value in figures.items():
                totals[key] = totals.get(key, 0) + value
    click.echo(
        f"{campaigns} campaigns, {totals['nodes']:.0f} nodes, {totals['heats']:.0f} heats, {totals['tests']:.0f} "
        f"isolation tests: {totals['accepted']:.0f} accepted, {totals['failed']:.0f} failed, "
        f"{totals['suspects']:.0f} suspect at the end; {count} violations of (a)-(g)"
    )
    if count:
        sys.exit(1)
