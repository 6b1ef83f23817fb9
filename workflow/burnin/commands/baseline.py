# SPDX-License-Identifier: Apache-2.0
"""`burnin baseline`: pin what a finished validation measured, for criteria key `baselines`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Baselines, pinned by `burnin baseline` from the validation {campaign} ({verdict}). Name this file under `baselines` in the
# criteria. A group is judged against the row of its own size. value: median of n passed iterations, outliers (`removed`)
# taken out one by one, worst first. band: how far a run may stay behind (fraction); change it if the acceptance plan says so.
"""


@click.command()
@click.argument("folder", metavar="CAMPAIGN_DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("config/baselines.yaml"), show_default=True)
@click.option("--band", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="Allowed distance (fraction).")
def baseline(folder: Path, out: Path, band: float | None) -> None:
    """Pin the baselines of a finished validation campaign into a file for the criteria.

    Per workload, command and number of nodes: the median of the passed runs, outliers taken out one by one.
    """
    import time

    from burnin import storage
    from burnin.errors import CampaignError
    from burnin.judging.baselines import pin

    try:
        summary = storage.read_json(folder / "summary.json", "summary")
        stored = storage.read_json(folder / "config.json", "stored_config")["config"]
    except FileNotFoundError as error:
        raise CampaignError(
            f"{error.filename} is missing: {folder} is no finished campaign",
            "run the validation first: snakemake --profile slurm --configfile config/validation.yaml",
        ) from None
    if summary["verdict"] == "running":
        raise CampaignError(
            f"the campaign {summary['campaign']} is not finished", "start snakemake again; pin when it is over"
        )
    results = passed_results(folder)
    if not results:
        raise CampaignError(
            f"no run of {folder} passed: there is nothing to pin", "find out why first; see burnin show"
        )
    date = time.strftime("%Y-%m-%d", time.localtime(max(r["ended"] or 0.0 for r in results)))
    rows, notes = pin(results, stored["workload_definitions"], stored["criteria"], summary["campaign"], date, band)
    text = HEAD.format(campaign=summary["campaign"], verdict=summary["verdict"])
    text += "".join(f"- {json.dumps(row)}\n" for row in rows)  # JSON is YAML
    storage.write_text(out, text)
    for note in notes:
        click.echo(f"burnin: {note}", err=True)
    if summary["verdict"] != "accepted":
        click.echo("burnin: this validation was not accepted; only what passed in it was pinned", err=True)
    click.echo(f"{len(rows)} baselines written to {out}; name it in the criteria: `baselines: {out}`")


def passed_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results of the runs that every node of their group passed."""
    from burnin import storage

    found = []
    for path in sorted(folder.glob("*/heat*/gate.json")):
        gate = storage.read_json(path, "gate")
        if gate["step"] == "resume":
            continue
        for name, nodes in gate["groups"].items():
            for workload in sorted(set.intersection(*(set(gate["passed"].get(n, [])) for n in nodes))):
                result = path.parent / workload / name / "result.json"
                if result.exists():
                    found.append(storage.read_json(result, "result"))
    return found
