# SPDX-License-Identifier: Apache-2.0
"""Each failure with its evidence quoted, its fix or next action, and how sure it is; then what nobody could decide. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from burnin.judging import story
from burnin.ladder import is_gate, repaired_by
from burnin.report import words
from burnin.report.blocks import Block, Cell, Failure, Quotation, Section, Table, Text
from burnin.report.sections.view import View

#: So many failures have a card each; the rest is a table.
MOST_CARDS = 40
#: Findings shown on a card, and places quoted of each.
MOST_FINDINGS, MOST_PLACES = 6, 3


class Failed(NamedTuple):
    """A node that failed: in which gate, with what, and the repairs that followed before it failed again."""

    node: str
    number: int  # 0: its first failure
    gate: Mapping[str, Any]
    findings: Sequence[Mapping[str, Any]]
    repairs: Sequence[Mapping[str, Any]]


def failures(view: View) -> Iterator[Failed]:
    """Yield every failure in order, those that were repaired since included."""
    events = view.facts.events
    seen: dict[str, int] = {}
    for at, event in enumerate(events):
        if not is_gate(event):
            continue
        for node, outcome in event["outcome"].items():
            if outcome != "failed":
                continue
            repairs = []
            for later in events[at + 1 :]:
                if "repair" in later and node in repaired_by(later["repair"]):
                    repairs.append(later["repair"])
                elif is_gate(later) and later["outcome"].get(node) == "failed":
                    break
            found = [f for f in event["findings"] if f["node"] == node and f["scope"] == "node"]
            yield Failed(node, seen.get(node, 0), event, found, repairs)
            seen[node] = seen.get(node, 0) + 1


def section(view: View) -> Section:
    """Return the failures."""
    found = list(failures(view))
    if not found:
        return Section("failures", "Failures", [Text("No node failed.")])
    blocks: list[Block] = [
        Text(f"{words.count(len(found), 'failure')} of {words.count(len({f.node for f in found}), 'node')}, in order.")
    ]
    blocks += [card(view, f) for f in found[:MOST_CARDS]]
    if len(found) > MOST_CARDS:
        rows = [_row(view, f) for f in found[MOST_CARDS:]]
        blocks.append(
            Table(
                ("Node", "Step", "Fault", "Part", "Evidence", "Next action"),
                rows,
                "Further failures, in order",
                stack=True,
            )
        )
    return Section("failures", "Failures", blocks)


def card(view: View, failed: Failed) -> Failure:
    """Return everything about one failure."""
    gate, node = failed.gate, failed.node
    lead = failed.findings[0] if failed.findings else None
    if lead is None:
        return Failure(
            f"{node}: no finding is kept", "bad", "failed", [("Step", Cell(gate["step"]))], [], view.anchor(node)
        )
    others = [n for n in gate["groups"].get(lead["group"], []) if n != node]
    facts: list[tuple[str, Cell]] = [
        ("Fault", Cell(f"{lead['fault']}, part {lead['part']}")),
        ("Confidence", Cell(story.SURE[lead.get("confidence", "likely")])),
        ("Where", Cell(story.run_of(lead), href=_folder(view, story.run_of(lead)))),
        ("When", Cell(_started(view, lead))),
        ("Together with", Cell(words.listed(others, 10) if others else "nobody: it ran alone")),
    ]
    action = view.entry(node)["next_action"] if not failed.repairs else None
    if failed.repairs:
        facts += [("Repaired", Cell(repair_text(r))) for r in failed.repairs]
        facts += [("Serial numbers", Cell(text)) for text in view.entry(node).get("exchanged", [])]
    facts.append(
        (
            "Next action" if not failed.repairs else "Action asked for",
            Cell(words.sentence(str(action or lead["next_action"]))),
        )
    )
    if state := gate.get("drained", {}).get(node):
        facts.append(("Slurm", Cell(state)))
    bundle = f"evidence/{node}-{gate['step']}-heat{gate['heat']}.tar.gz"
    if view.facts.link(f"{bundle}:1"):
        facts.append(("All its files", Cell(bundle, href=bundle)))
    for text in dict.fromkeys(c for f in failed.findings for c in f.get("contradicted_by", [])):
        facts.append(("Speaks against it", Cell(text)))
    findings: dict[str, list[Quotation]] = {}
    for found in failed.findings:  # two runs of a heat may have seen the same
        quotes = quotations(view, found)
        findings.setdefault(finding_text(found, quotes[0].text if quotes else None), []).extend(quotes)
    shown = [(text, quotes[:MOST_PLACES]) for text, quotes in list(findings.items())[:MOST_FINDINGS]]
    if len(findings) > MOST_FINDINGS:
        shown.append((f"and {len(findings) - MOST_FINDINGS} more in {gate['step']}/heat{gate['heat']}/gate.json", []))
    state, tone = _state(view, failed)
    return Failure(f"{node}: {story.headline(lead)}", tone, state, facts, shown, view.anchor(node, failed.number))


def _state(view: View, failed: Failed) -> tuple[str, str]:
    """Return what became of a failed node, and the tone."""
    status = view.entry(failed.node)["status"]
    if not failed.repairs:
        return "not repaired", "bad"
    if status == "accepted":
        return "repaired, and accepted since", "ok"
    return f"repaired; the node is now: {status}", "doubt"


def repair_text(record: Mapping[str, Any]) -> str:
    """Return what was repaired, how, by whom and when."""
    what = record.get("link") or record.get("part") or "node"
    serial = f", new serial {record['serial']}" if record.get("serial") else ""
    return f"{what}: {record['fix']}{serial} (by {record.get('by', 'unknown')}, {words.when(record['time'])})"


def _started(view: View, lead: Mapping[str, Any]) -> str:
    run = next((r for r in view.facts.runs if r.where == story.run_of(lead)), None)
    if run is None or run.started is None:
        return "not known"
    return (
        f"run started {words.when(run.started)}, ended after {words.duration((run.ended or run.started) - run.started)}"
    )


def _folder(view: View, run: str) -> str:
    """Return the link to a run's folder; a folder is opened as it is, result.json tells that it is there."""
    return f"{run}/" if view.facts.link(f"{run}/result.json:1") else ""


def finding_text(found: Mapping[str, Any], quoted: str | None) -> str:
    """Return a finding in words: what was seen, the number, its limit, and where the limit comes from.

    What the finding says beyond the line that is `quoted` follows: a comparison with others, the lines after it.
    """
    measured = ""
    if found["unit"] == "events" or str(found["signal"]).startswith("xid"):
        measured = f"{words.count(int(found['value'] or 1), 'event')}, limit 0"
    elif found["value"] is not None and found["limit"] is not None:
        measured = f"{words.value(found['value'], found['unit'])}, limit {words.value(found['limit'], found['unit'])}"
    elif found["value"] is not None:
        measured = words.value(found["value"], found["unit"])
    origin = f"{found['limit_origin']}{', ' + found['limit_date'] if found.get('limit_date') else ''}"
    seen = f"{story.sight(found)} [{found['signal']}]"
    compared = str(found["signal"]).startswith(("slow", "xid", "unreadable")) or not found["quote"]
    more = found["reason"] if compared else "" if _same(found["quote"], quoted) else found["quote"]
    return f"{seen}: {measured or 'no number'} ({origin}).{' ' + more.strip().removesuffix('.') + '.' if more else ''}"


def _same(text: str, line: str | None) -> bool:
    """Tell whether a line says all of a text, whatever its spaces."""
    return line is not None and " ".join(text.split()) in " ".join(line.split())


def quotations(view: View, found: Mapping[str, Any]) -> list[Quotation]:
    """Return the evidence of a finding with its lines."""
    out = []
    for number, place in enumerate(found["evidence"][:MOST_PLACES]):
        path = place.rpartition(":")[0]
        text = None if path.endswith(".json") else view.facts.quote(place)
        if text is None and number == 0 and found["quote"]:
            text = str(found["quote"])
        out.append(Quotation(place, view.facts.link(place), text))
    return out


def _row(view: View, failed: Failed) -> tuple[Cell, ...]:
    lead = failed.findings[0] if failed.findings else None
    place = lead["evidence"][0] if lead and lead["evidence"] else ""
    fixed = "; ".join(repair_text(r) for r in failed.repairs)
    return (
        Cell(failed.node),
        Cell(f"{failed.gate['step']}, heat {failed.gate['heat']}"),
        Cell(lead["fault"] if lead else "–"),
        Cell(lead["part"] if lead else "–"),
        Cell(place, href=view.facts.link(place) or "" if place else ""),
        Cell(f"repaired: {fixed}" if fixed else str(lead["next_action"]) if lead else ""),
    )


def open_questions(view: View) -> Section:
    """Return exclusions, unknowns and suspects: whatever is not settled."""
    facts, by = view.facts, view.by_status()
    blocks: list[Block] = []
    out: dict[tuple[str, str, str, str], list[str]] = {}
    for status in ("suspect", "withdrawn"):
        for node in by.get(status, []):
            entry = view.entry(node)
            what = (status, str(entry["failed_step"] or "–"), str(entry["reason"]), str(entry["next_action"] or ""))
            out.setdefault(what, []).append(node)
    if out:
        rows = [
            (Cell(words.listed(n)), Cell(status, "doubt"), Cell(step), Cell(why), Cell(action))
            for (status, step, why, action), n in out.items()
        ]  # fmt: skip
        head = ("Node", "Status", "Step", "Why", "Next action")
        blocks.append(Table(head, rows, "Excluded without a proven fault", stack=True))
    for link in facts.summary["links"]:
        sides = " and ".join(words.listed(side, 8) for side in link["between"] if side)
        fixed = "; ".join(repair_text(r) for r in link.get("repairs", []))
        state = f" Repaired: {fixed}." if fixed else " It waits for its repair."
        tone = "warn" if link.get("waits", True) else "note"
        blocks.append(Text(f"Between {sides}: {link['fault']}. {words.sentence(link['reason'])}{state}", tone))
        blocks.append(Table(("Evidence",), [(Cell(p, href=facts.link(p) or ""),) for p in link["evidence"][:6]]))
    away = [
        (Cell(n), Cell(f"{a['step']}, heat {a['heat']}"), Cell(str(a["why"])), Cell(words.when(a["back"]) if a["back"] else "not back"))
        for n in facts.nodes for a in view.entry(n).get("away", [])
    ]  # fmt: skip
    if away:
        head_away = ("Node", "Step", "Why", "Back")
        blocks.append(
            Table(
                head_away,
                away[:100],
                "Out without blame: taken out of Slurm by somebody else, or on another stack",
                stack=True,
            )
        )
    unknown: dict[tuple[str, str, str], list[str]] = {}
    for node, of in view.cells.items():
        for (step, workload), cell in of.items():
            if cell.state in ("unknown", "owes") and view.entry(node)["status"] != "accepted":
                unknown.setdefault((step, workload, cell.text), []).append(node)
    if unknown:
        blocks.append(Table(
            ("Step", "Workload", "Nodes", "Why it is not decided"),
            [(Cell(s), Cell(w), Cell(words.listed(n)), Cell(text)) for (s, w, text), n in unknown.items()],
            "Owed or unknown: no pass, and no failure", stack=True,
        ))  # fmt: skip
    never = {
        n: s
        for n in facts.nodes
        if (s := [t for t in facts.steps if view.step_cell(n, t).state in ("not run", "not counted")])
    }
    by_steps: dict[tuple[str, ...], list[str]] = {}
    for node, steps in never.items():
        by_steps.setdefault(tuple(steps), []).append(node)
    if by_steps:
        blocks.append(Table(
            ("Nodes", "Steps that they never finished"),
            [(Cell(words.listed(n)), Cell(", ".join(s))) for s, n in by_steps.items()],
            "Not tested: steps that a node did not come to, or that do not count for it", stack=True,
        ))  # fmt: skip
    unread = {n: s.unread for n, s in facts.sensors.items() if s.unread}
    if unread:
        total = sum(unread.values())
        blocks.append(Text(
            f"{words.count(total, 'reading')} of {words.count(len(unread), 'node')} could not be taken "
            f"({words.listed(unread)}); what a run lost by that was run again or is listed above.", "note"
        ))  # fmt: skip
    none = [
        what for what, found in (
            ("suspect", by.get("suspect")), ("withdrawn", by.get("withdrawn")), ("owing a run", unknown),
            ("with readings that could not be taken", unread),
        ) if not found
    ]  # fmt: skip
    if none:
        blocks.insert(0, Text(f"No node is {', '.join(none[:-1])}{' or ' if none[1:] else ''}{none[-1]}."))
    return Section("open", "Exclusions and unknowns", blocks)
