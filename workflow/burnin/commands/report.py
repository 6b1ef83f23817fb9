# SPDX-License-Identifier: Apache-2.0
"""`burnin report`: the acceptance report of a campaign, over or not."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="[CAMPAIGN_DIR]", required=False, type=click.Path(path_type=Path))
def report(folder: Path | None) -> None:
    """Write report.html, summary.csv and junit.xml of a campaign (default: the newest below results/) into its folder."""
    from burnin.commands.explain import newest
    from burnin.report.write import write

    facts, paths = write(folder or newest(Path("results")))
    for path in paths:
        click.echo(f"burnin: {path} ({path.stat().st_size / 1e3:,.0f} kB)", err=True)
    for text in facts.unreadable[:10]:
        click.echo(f"burnin: could not be read for the report: {text}", err=True)
