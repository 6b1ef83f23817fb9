# SPDX-License-Identifier: Apache-2.0
"""`burnin explain NODE`: why a node is out (or in), with the evidence quoted, and what to do."""

from __future__ import annotations

import difflib
from pathlib import Path

import click


@click.command()
@click.argument("node")
@click.argument("folder", metavar="[CAMPAIGN_DIR]", required=False, type=click.Path(path_type=Path))
def explain(node: str, folder: Path | None) -> None:
    """Tell the story of NODE in a campaign (default: the newest below results/)."""
    click.echo(story_of(node, folder or newest(Path("results"))), nl=False)


def newest(results: Path) -> Path:
    """Return the campaign below `results` whose summary is newest. Raises CampaignError if there is none."""
    from burnin.errors import CampaignError

    found = sorted(results.glob("*/summary.json"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise CampaignError(
            f"no campaign with a summary was found below {results}/", "give its folder: burnin explain NODE FOLDER"
        )
    return found[-1].parent


def story_of(node: str, folder: Path) -> str:
    """Return the story of a node in the campaign in `folder`. Raises CampaignError for what is not there."""
    from burnin import storage
    from burnin.errors import CampaignError
    from burnin.judging import story
    from burnin.nodes import fold
    from burnin.quotations import Files

    try:
        summary = storage.read_json(folder / "summary.json", "summary")
    except FileNotFoundError:
        raise CampaignError(f"{folder} has no summary yet", "the first gate writes it; see burnin status") from None
    if node not in summary["nodes"]:
        names = list(summary["nodes"])
        close = difflib.get_close_matches(node, names, 1)
        raise CampaignError(
            f"{node} is no node of campaign {summary['campaign']}; its nodes are {fold(names)}",
            f"did you mean {close[0]}?" if close else "name one of them",
        )
    gates = []
    for heat in summary["heats"]:
        path = folder / str(heat["step"]) / f"heat{heat['heat']}" / "gate.json"
        if path.exists():
            gates.append(storage.read_json(path, "gate"))
    files = Files(folder)
    return story.tell(node, summary, gates, story.Sources(quote=files.quote, started=files.started))
