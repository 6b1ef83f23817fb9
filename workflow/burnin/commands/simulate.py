# SPDX-License-Identifier: Apache-2.0
"""`burnin simulate`: campaigns in memory, and what must never happen in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--nodes", type=click.IntRange(1), help="Size of the cluster; default: random, 1 to 33.")
@click.option("--seed", type=int, default=1, show_default=True, help="Everything that is random comes from it.")
@click.option("--campaigns", type=click.IntRange(1), default=1, show_default=True, help="How many, from this seed on.")
@click.option("--check", "checking", is_flag=True, help="Only check what must never happen; exit 1 if it did.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes for --check.")
def simulate(file: Path | None, nodes: int | None, seed: int, campaigns: int, checking: bool, workers: int) -> None:
    """Drive whole campaigns in memory: the real ladder and gates, no job.

    FILE is a scenario: one of lab/scenarios, or one that also has workloads, windows, topology, operator and repairs
    (workflow/schemas/simulation.schema.json). Without it faults, repairs and operators are random. Printed are the time
    and node-hours it takes, the isolation tests, and the truth against the verdict.
    """
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial

    from burnin import simulate as world

    if file is not None:
        if nodes is not None or campaigns > 1:
            raise click.UsageError("a scenario file says how many nodes there are, and is one campaign")
        sim = world.drive(world.of_document(_read(file), seed, str(file)))
        found = world.violations(sim)
        click.echo("\n".join([world.report(sim), *(f"  VIOLATED: {v}" for v in found)]))
        sys.exit(1 if found else 0)
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
        f"isolation tests, {totals['returns']:.0f} returns: {totals['accepted']:.0f} accepted, {totals['failed']:.0f} failed, "
        f"{totals['suspects']:.0f} suspect at the end; {count} violations of (a)-(g)"
    )
    if count:
        sys.exit(1)


def _read(file: Path) -> Any:
    """Return a scenario's content. Raises ConfigError if there is none."""
    import yaml

    from burnin import storage
    from burnin.errors import ConfigError

    try:
        return storage.parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            "scenario", str(file), "a YAML file", f"correct the path or the file ({str(error)[:200]})"
        ) from None
