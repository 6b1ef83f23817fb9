# SPDX-License-Identifier: Apache-2.0
"""Writing the report of a campaign into its folder."""

from __future__ import annotations

from pathlib import Path

from burnin import storage
from burnin.report import junit, page, table
from burnin.report.collect import collect
from burnin.report.facts import Facts
from burnin.report.sections import records


def write(folder: Path) -> tuple[Facts, list[Path]]:
    """Write report.html, summary.csv, junit.xml and the hashes they rest on; return the facts and the paths.

    Raises CampaignError if there is no campaign in the folder.
    """
    facts = collect(folder)
    texts = {
        records.MANIFEST: records.manifest_text(facts),
        "summary.csv": table.write(facts),
        "junit.xml": junit.write(facts),
        "report.html": page.render(facts),
    }
    for name, text in texts.items():
        storage.write_text(folder / name, text)
    return facts, [folder / name for name in reversed(texts)]
