# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: sections in, text out. No network, no script; styles and plots stand in the file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from burnin.report import sections, words
from burnin.report.blocks import Section
from burnin.report.facts import Facts

TEMPLATES = Path(__file__).resolve().parent / "templates"
VERDICTS = {"accepted": ("ACCEPTED", "ok"), "rejected": ("REJECTED", "bad"), "running": ("NOT OVER", "doubt")}


@functools.cache
def _environment() -> Any:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters["urlpath"] = urlpath
    return made


def urlpath(path: str) -> str:
    """Return a path below the campaign's folder, or an anchor of the page, as a relative URL.

    `./` keeps a name with a colon, such as `javascript:x`, from being read as a scheme.
    """
    return "#" + quote(path[1:]) if path.startswith("#") else "./" + quote(path)


def render(facts: Facts) -> str:
    """Return the report's HTML."""
    return write(facts, sections.build(facts))


def write(facts: Facts, parts: Sequence[Section]) -> str:
    """Return the page of some sections."""
    verdict, tone = VERDICTS[facts.summary["verdict"]]
    text: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"{facts.campaign}: burn-in {verdict.lower()}",
            campaign=facts.campaign,
            verdict=verdict,
            tone=tone,
            version=facts.version,
            made=f"{words.count(len(facts.nodes), 'node')}: {words.listed(facts.nodes, 20)}. "
            f"Campaign {facts.uid}, begun {facts.created}; report made {words.when(facts.made)} by burnin {facts.version}.",
            style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
            sections=parts,
            footer=f"Campaign {facts.campaign} ({facts.uid}). Evidence links lead into the campaign's folder, in which this "
            "file lies: keep them together. Times are UTC.",
        )
    )
    return text
