# SPDX-License-Identifier: Apache-2.0
"""What ran, on what, for how long; and the criteria it was judged by, with their origin and date. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from burnin.judging import signatures
from burnin.report import words
from burnin.report.blocks import Block, Cell, Details, Pairs, Section, Table, Text
from burnin.report.sections.nodes import window
from burnin.report.sections.view import View

#: Parts of the stack that are the same thing of several devices, such as `mlx5_0 firmware`.
FOLDABLE = re.compile(r"[A-Za-z0-9_]+[0-9] [a-z]+")
#: Changes of the config that are listed.
MOST_CHANGES = 40
#: Up to so many nodes the serial numbers of their GPUs are listed.
MOST_SERIALS = 64


def section(view: View) -> Section:
    """Return what ran, on what, for how long."""
    facts, config = view.facts, view.facts.config
    starts = [r.started for r in facts.runs if r.started is not None]
    ends = [r.ended for r in facts.runs if r.ended is not None]
    spent: dict[str, float] = {}
    for run in facts.runs:
        spent[run.workload] = spent.get(run.workload, 0.0) + run.hours * len(run.nodes)
    gpus = int(config["gpus_per_node"])
    pairs: list[tuple[str, Cell]] = [
        ("Nodes", Cell(f"{words.listed(facts.nodes)} ({len(facts.nodes):,}, {gpus} GPUs each)")),
        ("Fabric ports read", Cell(str(config["hcas"]) or "none")),
        ("Topology", Cell("known: groups follow leaves, racks and PDUs" if config["topology"] else "not known to the campaign")),
        ("First run", Cell(words.when(min(starts, default=None)))),
        ("Last run", Cell(words.when(max(ends, default=None)))),
        ("Load", Cell(", ".join(f"{w} {load(h)}" for w, h in spent.items()) or "none")),
        ("Probes", Cell(f"{', '.join(config['probes']['commands'])}: before and after every run, and every "
                        f"{config['watch']['probe_every_minutes']:g} minutes while it runs")),
        ("Nodes that fail are", Cell("drained in Slurm" if config["drain"] == "drain" else "named, and not drained")),
    ]  # fmt: skip
    blocks: list[Block] = [Pairs(pairs), _workloads(view)]
    if changed := config_changes(facts.config_versions):
        cells = [(Cell(key), Cell(was), Cell(now)) for key, was, now in changed[:MOST_CHANGES]]
        more = f", the first {MOST_CHANGES} of {len(changed)}" if len(changed) > MOST_CHANGES else ""
        blocks.append(
            Table(("Key", "Was", "Became"), cells, f"Config: what was changed during the campaign{more}", stack=True)
        )
    if facts.preflight:
        blocks += list(_stack(view, facts.preflight))
    else:
        blocks.append(Text("The stack is not known: no preflight was made.", "warn"))
    return Section("scope", "What ran, on what", blocks)


def config_changes(versions: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return (key, value before, value after) of all that was changed from version to version, in order."""
    out = []
    for before, after in pairwise([_flat(v) for v in versions]):
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key):
                out.append((key, _short(before.get(key, "–")), _short(after.get(key, "–"))))
    return out


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return a nested document as dotted key -> value."""
    if not isinstance(value, Mapping) or not value:
        return {key: value}
    return {
        k: v for name, inner in value.items() for k, v in _flat(inner, f"{key}.{name}" if key else str(name)).items()
    }


def _short(value: Any, most: int = 200) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def load(node_hours: float) -> str:
    """Return how long so many nodes were under load, all together."""
    return f"{node_hours:,.0f} node-hours" if node_hours >= 10 else f"{words.duration(3600 * node_hours)} x node"


def _workloads(view: View) -> Table:
    """Return the command lines and windows of every workload."""
    rows = []
    for workload in view.facts.config["workloads"]:
        definition = view.facts.definition(workload)
        windows: dict[str, list[str]] = {}
        for step, of in view.facts.steps.items():
            if workload in of:
                windows.setdefault(window(view, step, workload), []).append(step)
        told = "; ".join(f"{w} in {', '.join(s)}" for w, s in windows.items())
        rows.append((Cell(workload), Cell(told), Cell(" ".join(str(definition["launch"]).split()), "mono")))
        rows += [(Cell(""), Cell(""), Cell(" ".join(str(c).split()), "mono")) for c in definition["commands"].values()]
    caption = "Command lines as in the config: what starts the tasks, then each command"
    return Table(("Workload", "Window", "Command line"), rows, caption, stack=True)


def _stack(view: View, preflight: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the stack that was frozen before the first run, and what differed from it."""
    nodes = preflight["nodes"]
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for key, common in preflight["stack"].items():
        others: dict[str, list[str]] = {}
        for name, node in nodes.items():
            value = node["stack"].get(key)
            if value != common:
                others.setdefault(str(value or "not told"), []).append(name)
        differ = "; ".join(f"{v} on {words.listed(n, 10)}" for v, n in others.items())
        short = " / ".join(part.strip() for part in str(common or "no majority").splitlines())
        device, _, what = key.partition(" ") if FOLDABLE.fullmatch(key) else (key, "", "")
        # mlx5_0 firmware, mlx5_1 firmware ... are one line where they say the same
        same = (device.rstrip("0123456789") if what else key, what, short, differ)
        alike.setdefault(same, []).append(device if what else key)
    rows: list[tuple[Cell, ...]] = [
        (Cell(f"{words.listed(devices)} {what}" if what else devices[0]), Cell(short),
         Cell(differ or "all alike", "doubt" if differ else "quiet"))
        for (_, what, short, differ), devices in alike.items()
    ]  # fmt: skip
    for container in preflight["containers"]:
        staged = "staged" if container["staged"] else "not staged"
        rows.append((Cell("container"), Cell(container["image"]), Cell(f"{staged}, SHA-256 {container['sha256']}")))
    caption = f"Stack at the preflight of {words.when(preflight['time'])}: what most nodes have, and who differs"
    yield Table(("Part", "Most nodes", "Other"), rows, caption, stack=True)
    if view.facts.stack_changes:
        changes = [
            (Cell(words.when(r.get("time"))), Cell(str(r.get("anew", ""))), Cell(str(r.get("by", ""))))
            for r in view.facts.stack_changes
        ]
        yield Table(
            ("When", "Why", "By"), changes, "Changes of the stack that an operator accepted in mid-campaign", stack=True
        )
    if fabric := preflight["fabric"]:
        yield Text(
            f"Fabric: {fabric.get('cas', '?')} CAs and {fabric.get('switches', '?')} switches discovered; port counters "
            f"{'cleared before the first run' if fabric.get('counters_cleared') else 'not cleared'}."
        )
    found = preflight["findings"]
    if found:
        findings = [
            (Cell(f["node"] or "all"), Cell(f["part"]), Cell(f["reason"]),
             Cell(f["evidence"][0] if f["evidence"] else "", href=(view.facts.link(f["evidence"][0]) or "") if f["evidence"] else ""))
            for f in found[:50]
        ]  # fmt: skip
        yield Table(
            ("Node", "Part", "What", "Evidence"),
            findings,
            f"Preflight: {words.count(len(found), 'finding')}",
            stack=True,
        )
    else:
        yield Text(f"Preflight of {words.count(len(nodes), 'node')}: no finding.", "note")
    if nodes and len(nodes) <= MOST_SERIALS:
        serials = [(Cell(n), Cell(", ".join(of["serials"].values()) or "not told")) for n, of in nodes.items()]
        yield Details("Serial numbers of the GPUs", [Table(("Node", "GPUs in PCI order"), serials, stack=True)])
    elif nodes:
        yield Text("Serial numbers of the GPUs: preflight/preflight.json in the campaign's folder.", "note")


# ------------------------------------------------------------------------------------------------------------ criteria

#: key of the criteria -> its numbers for each workload: key -> (what is judged, unit; `value`: that of the workload).
KNOWN: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "spread": {
        "tolerance": ("behind the median of its peers, at most", "fraction"),
        "least_peers": ("peers that a median needs", "runs"),
        "floor": ("distance to the median that is never held against anybody", "value"),
    },
    "plausible": {
        "least_nodes": ("plausible value: smallest group that is held against it", "nodes"),
        "value": ("plausible value: nothing healthy is worse", "value"),
        "commands": ("plausible value: commands", ""),
    },
    "scaling": {
        "tolerance": ("behind the median of the step before, at most", "fraction"),
        "least_nodes": ("smallest group that is held against the step before", "nodes"),
        "commands": ("held against the step before: commands", ""),
    },
    "trend": {
        "first_last": ("last part of a run worse than its first, at most", "fraction"),
        "drift": ("drift over a run (if it is 95 % certain), at most", "fraction"),
        "drop": ("drop at one moment that stays, at most", "fraction"),
        "spikes": ("share of values that may be slow without a checkpoint beside them", "fraction"),
        "span_minutes": ("first and last part of a run", "min"),
        "least_values": ("values that a trend needs", "values"),
    },
}
PLAIN: Mapping[str, tuple[str, str]] = {
    "mad_factor": ("distance to the median of peers must also exceed, in median absolute deviations", ""),
    "halves_overlap": ("share of their time that the halves must run together, at least", "fraction"),
    "loss_band": ("resume test: loss may be off the curve before it, at most", "fraction"),
    "fabric_ber": ("effective bit error rate of a link, at most", "errors per bit"),
    "checkpoints.growth": ("checkpoints: growth of their duration over a run, at most", "fraction"),
    "checkpoints.floor_s": ("checkpoints: duration that is never held against the storage", "s"),
    "checkpoints.least_saves": ("checkpoints: saves needed to judge growth", "saves"),
    "checkpoints.against_step_before": ("checkpoints: longer than in the step before, at most", "fraction"),
}


def criteria(view: View) -> Section:
    """Return the limits with unit, origin and date, whether they were changed, and what is zero tolerance."""
    facts, limits = view.facts, view.facts.criteria
    numbers = list(stated(view, limits))
    workloads = list(dict.fromkeys(w for _, w, _, _ in numbers if w and w in facts.config["workloads"]))
    table: dict[tuple[str, str], dict[str, str]] = {}
    for key, workload, text, number in numbers:
        table.setdefault((key, text), {})[workload] = number
    per_workload = [
        (Cell(text), *(Cell(of.get(w, "–")) for w in workloads), Cell(key))
        for (key, text), of in table.items() if "" not in of
    ]  # fmt: skip
    plain = [(Cell(text), Cell(of[""]), Cell(key)) for (key, text), of in table.items() if "" in of]
    origin = f"{limits['source']}, {limits['date']}"
    rows = []
    for base in limits.get("baselines", []):
        unit = base.get("unit", "")
        what = f"{base['workload']} {base['command']} on {words.count(base['nodes'], 'node')}: baseline"
        of = f"{base['origin']}, {base['date']}" + (f", median of {base['n']} values" if base.get("n") else "")
        number = f"{words.value(base['value'], unit)}, at most {words.percent(base['band'], 0)} worse"
        rows.append((Cell(what), Cell(number), Cell(of)))
    blocks: list[Block] = [
        Text(f"Criteria {facts.summary['criteria']} of {limits['date']}, from: {limits['source']}."),
        *_changes(view),
        Text("Zero tolerance: one event fails the node, whatever the numbers are. " + zero_tolerance() + " A hang, a "
             "missing or an incomplete iteration, and evidence that cannot be read, are no pass."),
        Table(("What is judged", *workloads, "Key"), per_workload, f"Limits of each workload (origin: {origin})", stack=True),
        Table(("What is judged", "Limit", "Key"), plain, f"Other limits (origin: {origin})", stack=True),
    ]  # fmt: skip
    if rows:
        blocks.append(Table(("Baseline", "Value and limit", "Origin"), rows, "Pinned values", stack=True))
    else:
        blocks.append(
            Text(
                "No baselines were pinned: values were judged against peers, the step before, and plausible values.",
                "note",
            )
        )
    return Section("criteria", "Criteria", blocks)


def stated(view: View, limits: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, workload or "", what is judged, limit with unit) of all criteria; what has no text is told by its key."""
    for key, value in limits.items():
        if key in ("source", "date", "baselines"):
            continue
        if key in KNOWN:
            for workload, entry in value.items():
                metric = view.facts.config["workload_definitions"].get(workload, {}).get("metric", "")
                for name, number in entry.items():
                    text, unit = KNOWN[key].get(name, (name, ""))
                    unit = words.UNITS.get(metric, "") if unit == "value" else unit
                    yield f"{key}.{name}", workload, text, limit(number, unit)
            continue
        flat = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
        for name, number in flat.items():
            text, unit = PLAIN.get(name, (name, ""))
            yield name, "", text, limit(number, unit)


def limit(number: Any, unit: str) -> str:
    """Return a limit as text: fractions in percent, lists of names as they are."""
    if isinstance(number, list | tuple):
        return ", ".join(map(str, number))
    if isinstance(number, bool) or not isinstance(number, int | float):
        return str(number)
    if unit == "fraction":
        return words.percent(number, 0 if number >= 0.1 else 1)
    return words.value(
        float(number), unit.removesuffix("s") if number == 1 and unit.isalpha() and len(unit) > 3 else unit, 6
    )


def zero_tolerance() -> str:
    """Return what fails a node at once, in words."""
    faults = dict.fromkeys(r.fault for r in signatures.TABLE if r.scope == "node" and r.confidence != "possible")
    return "It is held for: " + ", ".join(faults) + ", and the Xids that the Xid table calls fatal."


def _changes(view: View) -> Iterator[Block]:
    """Yield whether criteria were changed after results existed: what, and what became different by it."""
    facts = view.facts
    used = [d for d in facts.criteria_texts if any(v.criteria == d for of in facts.versions.values() for v in of)]
    unknown = {v.criteria for of in facts.versions.values() for v in of} - set(facts.criteria_texts)
    if len(used) + len(unknown) <= 1:
        yield Text("They were not changed after results existed: all gates were decided by these.")
        return
    yield Text(
        f"They were changed after results existed. Gates were decided by {len(used) + len(unknown)} versions, one after the "
        "other; the decisions that count are those of the last.", "warn"
    )  # fmt: skip
    rows = []
    for before, after in pairwise(used):
        old, new = (
            {f"{k} {w}".strip(): n for k, w, _, n in stated(view, facts.criteria_texts[d])} for d in (before, after)
        )
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                rows.append((Cell(before), Cell(after), Cell(key), Cell(old.get(key, "–")), Cell(new.get(key, "–"))))
        if facts.criteria_texts[before].get("baselines") != facts.criteria_texts[after].get("baselines"):
            counts = [f"{len(facts.criteria_texts[d].get('baselines', []))} rows" for d in (before, after)]
            rows.append((Cell(before), Cell(after), Cell("baselines"), Cell(counts[0]), Cell(counts[1])))
    if rows:
        yield Table(("From", "To", "Key", "Was", "Became"), rows, "What was changed")
    other: list[tuple[Cell, ...]] = []
    for (step, heat), of in facts.versions.items():
        first, last = of[0], of[-1]
        changed: dict[tuple[str, str], list[str]] = {}
        for node, outcome in last.outcome.items():
            if first.criteria != last.criteria and first.outcome.get(node) not in (None, outcome):
                changed.setdefault((first.outcome[node], outcome), []).append(node)
        other += [
            (Cell(f"{step}, heat {heat}"), Cell(words.listed(n)), Cell(was), Cell(now))
            for (was, now), n in changed.items()
        ]
    if other:
        yield Table(("Heat", "Nodes", "Was", "Became"), other, "Decisions that became different")
    else:
        yield Text("No node's outcome became different by it.")
