# SPDX-License-Identifier: Apache-2.0
"""`burnin explain NODE`: why a node is out (or in), with the evidence quoted, and what to do."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

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
    return story.tell(node, summary, gates, _Files(folder).sources())


class _Files:
    """The campaign's raw files, for quotations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sources(self) -> Any:
        """Return what the story asks for."""
        from burnin.judging.story import Sources

        return Sources(quote=self.quote, started=self.started)

    def quote(self, place: str) -> str | None:
        """Return the line that an evidence names, or None if it cannot be read."""
        path, _, line = place.rpartition(":")
        target = (self.folder / path).resolve()
        if not line.isdigit() or not target.is_relative_to(self.folder.resolve()):
            return None
        try:
            with target.open("rb") as stream:
                for number, raw in enumerate(stream, 1):
                    if number == int(line):
                        text = raw[:2000].decode("utf-8", "replace").strip()
                        return "".join(c for c in text if c.isprintable() or c == "\t")
        except OSError:
            return None
        return None

    def started(self, run: str) -> float | None:
        """Return when a run started."""
        try:
            value = json.loads((self.folder / run / "result.json").read_text(encoding="utf-8"))["started"]
        except (OSError, ValueError, KeyError):
            return None
        return float(value) if value is not None else None
