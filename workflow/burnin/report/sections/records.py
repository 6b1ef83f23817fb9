# SPDX-License-Identifier: Apache-2.0
"""What the report rests on, by hash, and the lines to sign. Pure."""

from __future__ import annotations

import hashlib

from burnin.report import words
from burnin.report.blocks import Block, Cell, Pairs, Section, SignOff, Table, Text
from burnin.report.facts import Facts
from burnin.report.sections.verdict import headline
from burnin.report.sections.view import View

MANIFEST = "report.sha256"


def manifest_text(facts: Facts) -> str:
    """Return the hashes of all files that the report was made from, in the form that sha256sum -c reads."""
    return "".join(f"{digest}  {path}\n" for digest, path in sorted(facts.manifest, key=lambda m: m[1]))


def manifest_digest(facts: Facts) -> str:
    """Return the SHA-256 of the manifest."""
    return hashlib.sha256(manifest_text(facts).encode()).hexdigest()


def section(view: View) -> Section:
    """Return the hashes."""
    facts, summary = view.facts, view.facts.summary
    files = words.count(len(facts.manifest), "file")
    pairs = [
        ("Results", Cell(f"SHA-256 {manifest_digest(facts)} of {MANIFEST}, which lists {files}", href=MANIFEST)),
        ("Config", Cell(f"{summary['config']} (SHA-256, first 16 digits; without the criteria)", href="config.json")),
        ("Criteria", Cell(f"{summary['criteria']} (SHA-256, first 16 digits)", href="config.json")),
        ("Campaign", Cell(f"{facts.campaign}, id {facts.uid}, begun {facts.created}")),
        ("Software", Cell(f"burnin {facts.version}")),
    ]  # fmt: skip
    blocks: list[Block] = [
        Pairs(pairs),
        Text(
            f"To check that nothing was changed since: cd into the campaign's folder, sha256sum -c --quiet {MANIFEST}",
            "note",
        ),
    ]
    if facts.unreadable:
        rows = [(Cell(text),) for text in facts.unreadable[:50]]
        blocks.append(Table(("File",), rows, f"{words.count(len(facts.unreadable), 'file')} that could not be read"))
    return Section("records", "Records", blocks)


def sign_off(view: View) -> Section:
    """Return the lines to sign. What is signed is named by its hash."""
    verdict = {"accepted": "ACCEPTED", "rejected": "REJECTED", "running": "NOT OVER"}[view.facts.summary["verdict"]]
    sentence = (
        f"Campaign {view.facts.campaign}: {verdict}. {headline(view)} The undersigned have read this report, made of the "
        f"results with SHA-256 {manifest_digest(view.facts)[:16]}…, and its exceptions."
    )
    return Section("signoff", "Sign-off", [SignOff(("For the installer", "For the customer"), sentence)])
