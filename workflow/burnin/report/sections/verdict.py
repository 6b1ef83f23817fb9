# SPDX-License-Identifier: Apache-2.0
"""Verdict on top: accepted or not, by which rule, who is out, and what a reader must know before trusting it. Pure."""

from __future__ import annotations

from burnin.judging import story
from burnin.report import words
from burnin.report.blocks import Block, Cell, Section, Table, Text, Tiles
from burnin.report.sections.view import View

#: Rows of nodes that are not accepted; the matrix has all.
MOST_ROWS = 100


def section(view: View) -> Section:
    """Return the first section."""
    facts = view.facts
    by = view.by_status()
    blocks: list[Block] = [Text(headline(view), "lead"), Text(rule(view))]
    blocks += [Text(text, "warn") for text in warnings(view)]
    blocks.append(Tiles(_tiles(view)))
    over = facts.summary["verdict"] != "running"
    shown = ("failed", "suspect", "withdrawn", *(("repaired", "running") if over else ()))
    rows: dict[tuple[Cell, ...], list[str]] = {}
    for node in (n for status in shown for n in by.get(status, [])):
        rows.setdefault(_row(view, node), []).append(node)
    if rows:
        told = [
            (Cell(words.listed(n), href=f"#{view.anchor(n[0])}" if view.entry(n[0])["status"] == "failed" else ""), *row)
            for row, n in rows.items()
        ]  # fmt: skip
        more = f": the first {MOST_ROWS} of {len(told)} rows" if len(told) > MOST_ROWS else ""
        head = ("Node", "Status", "What", "Step", "Next action")
        blocks.append(Table(head, told[:MOST_ROWS], f"Nodes that are not accepted{more}", stack=True))
    waiting = [link for link in facts.summary["links"] if link.get("waits", True)]
    if waiting:
        sides = [
            " and ".join(words.listed(s, 4) for s in link["between"] if s) + f" ({link['fault']})" for link in waiting
        ]
        more = f" and {len(sides) - 12} more" if len(sides) > 12 else ""
        text = (
            f"Open between nodes: {'; '.join(sides[:12])}{more}. Their evidence stands under Exclusions and unknowns."
        )
        blocks.append(Text(text, "warn"))
    return Section("verdict", "Verdict", blocks)


def headline(view: View) -> str:
    """Return the verdict with its numbers in one sentence."""
    by = view.by_status()
    total = len(view.facts.nodes)
    told = [f"{len(by[s]):,} {s}" for s in ("failed", "suspect", "withdrawn", "repaired", "running") if by.get(s)]
    rest = f"; {', '.join(told)}" if told else ""
    return f"{len(by.get('accepted', [])):,} of {words.count(total, 'node')} accepted{rest}."


def rule(view: View) -> str:
    """Return by which rule of the config the verdict came about."""
    summary = view.facts.summary
    allowed = int(view.facts.config["acceptance"]["failed_nodes_allowed"])
    bad = sum(entry["status"] != "accepted" for entry in summary["nodes"].values())
    text = (
        f"The config allows {words.count(allowed, 'node')} that {'is' if allowed == 1 else 'are'} not accepted "
        "(acceptance.failed_nodes_allowed), and no fault between nodes that is left open. A node is accepted when it has "
        "passed every workload of every step since its last repair."
    )
    if summary["verdict"] == "running":
        return f"The campaign is not over: there is no verdict yet. {text}"
    reasons = []
    if bad > allowed:
        reasons.append(f"{words.count(bad, 'node is', 'nodes are')} not accepted")
    if bad == len(summary["nodes"]):
        reasons.append("no node is accepted")
    if waiting := sum(bool(link.get("waits", True)) for link in summary["links"]):
        reasons.append(f"{words.count(waiting, 'fault')} between nodes {'is' if waiting == 1 else 'are'} open")
    return f"{'Rejected, because ' + ', and '.join(reasons) + '.' if reasons else 'Accepted.'} {text}"


def warnings(view: View) -> list[str]:
    """Return what a reader must know before the verdict is trusted."""
    facts, summary = view.facts, view.facts.summary
    out = []
    if facts.config["scenario"]:
        out.append(
            f"This was a simulated cluster (scenario {facts.config['scenario']}): programs that imitate hardware ran, and "
            "no hardware was tested."
        )
    if summary.get("stopped"):
        stop = summary["stopped"]
        out.append(f"The campaign stopped ({stop['kind']}): {stop['text']} What to do: {words.sentence(stop['cure'])}")
    if changed := [d for d in facts.criteria_texts if _judged_by(view, d)][1:]:
        out.append(
            f"The pass criteria were changed after results existed ({words.count(len(changed) + 1, 'version')}); every gate "
            "was decided again. What changed stands under Criteria."
        )
    if len(facts.config_versions) > 1:
        out.append(
            f"The config was changed during the campaign ({len(facts.config_versions)} versions): not all runs were started "
            "with the same one. What was changed stands under What ran, on what."
        )
    if facts.stack_changes:
        told = words.count(len(facts.stack_changes), "time")
        out.append(
            f"The stack was changed on purpose in mid-campaign ({told}): not everything ran on the stack listed below."
        )
    for step in summary.get("steps_not_possible", []):
        out.append(f"Step {step} could not be run: too few nodes were left.")
    state = summary.get("validation") or {}
    if state.get("verdict") not in (None, "accepted"):
        out.append(words.sentence(str(state["text"])))
    if facts.preflight is None:
        out.append("No preflight was made: nothing is known of the stack before the first run.")
    if facts.unreadable:
        out.append(
            f"{words.count(len(facts.unreadable), 'file')} could not be read for this report, the first is {facts.unreadable[0]}"
        )
    return out


def _judged_by(view: View, digest: str) -> bool:
    """Tell whether any gate, kept versions included, was decided by criteria."""
    return any(v.criteria == digest for of in view.facts.versions.values() for v in of)


def _tiles(view: View) -> list[tuple[str, str, str]]:
    facts, by = view.facts, view.by_status()
    accepted = by.get("accepted", [])
    tiles = [(f"{len(accepted):,}", "nodes accepted", "ok" if accepted else "")]
    for status in ("failed", "suspect", "withdrawn", "running", "repaired"):
        if by.get(status):
            tiles.append((f"{len(by[status]):,}", f"nodes {status}", words.TONES[status]))
    gpus = int(facts.config["gpus_per_node"])
    if gpus:
        tiles.append((f"{gpus * len(accepted):,}", "GPUs in accepted nodes", ""))
    spent = sorted(view.hours(n) for n in accepted)
    if spent:
        tiles.append((words.duration(3600 * spent[0]), "under load at least, each accepted node", ""))
    times = [t for r in facts.runs for t in (r.started, r.ended) if t is not None]
    if times:
        tiles.append((words.duration(max(times) - min(times)), "first run to last", ""))
    tiles.append((f"{len(facts.runs):,}", "runs finished", ""))
    fixed = sum("repair" in e for e in facts.events)
    if fixed:
        tiles.append((f"{fixed:,}", "repairs recorded", ""))
    return tiles


def _row(view: View, node: str) -> tuple[Cell, ...]:
    """Return what is to be said of a node that is not accepted; nodes of which the same is said share a row."""
    entry = view.entry(node)
    what = str(entry["reason"] or "")
    if entry["fault"]:
        what = story.headline({"fault": entry["fault"], "part": entry["part"]}) + f" ({entry['fault']})"
    step = ", ".join(str(s) for s in (entry["failed_step"], entry["failed_workload"]) if s)
    # a failed node has a card of its own, and so a row of its own
    own = node if entry["status"] == "failed" else ""
    return (
        Cell(entry["status"], words.TONES[entry["status"]]), Cell(what, title=own), Cell(step), Cell(str(entry["next_action"] or "")),
    )  # fmt: skip
