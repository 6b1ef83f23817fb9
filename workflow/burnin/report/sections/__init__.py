# SPDX-License-Identifier: Apache-2.0
"""The sections of the report, in their order. Each module makes some: facts in, blocks out."""

from __future__ import annotations

from burnin.report.blocks import Section
from burnin.report.facts import Facts
from burnin.report.sections import course, failures, health, nodes, records, scope, speed, trials, verdict
from burnin.report.sections.view import View


def build(facts: Facts) -> list[Section]:
    """Return all sections of a campaign's report."""
    view = View(facts)
    return [
        verdict.section(view),
        nodes.section(view),
        failures.section(view),
        failures.open_questions(view),
        scope.section(view),
        scope.criteria(view),
        *speed.sections(view),
        health.temperatures(view),
        health.links(view),
        trials.halves(view),
        trials.resume(view),
        course.section(view),
        records.section(view),
        records.sign_off(view),
    ]
