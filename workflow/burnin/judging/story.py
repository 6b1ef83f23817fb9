# SPDX-License-Identifier: Apache-2.0
"""The story of a node in a campaign, told as a colleague would: what failed, where, when, because of which lines, what next. Pure."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin.nodes import fold

Gate = Mapping[str, Any]
Finding = Mapping[str, Any]

#: What a fault means, as one says it; {part} is the piece.
FAULTS: Mapping[str, str] = {
    "gpu_off_bus": "{part} fell off the bus",
    "fan_failed": "{part} does not turn",
    "psu_failed": "{part} failed or lost its input",
    "link_degrading": "the link of {part} carries errors",
    "link_flap": "the link of {part} went down",
    "transceiver_hot": "the transceiver of {part} is too hot",
    "rail_slow": "{part} runs below its rate",
    "fabric_slow": "the fabric between groups is slow",
    "nvlink_error": "the NVLinks of {part} have errors",
    "gpu_slow": "{part} is slow",
    "hbm_ecc_uncorrectable": "the memory of {part} has uncorrectable errors",
    "row_remap_failed": "the memory of {part} can no longer be repaired",
    "silent_data_corruption": "it computed or carried wrong numbers",
    "inlet_hot": "its inlet air is too hot",
    "node_crash": "the node was lost",
    "hang": "it hung",
    "nan_loss": "the training loss became NaN",
    "straggler": "{part} is slower than all others",
    "storage_slow": "its way to the storage is slow",
    "checkpoint_fails": "it could not write checkpoints",
    "nccl_on_sockets": "NCCL does not use its InfiniBand ports",
    "oom_one_node": "it has less free memory than the others",
    "driver_mismatch": "its driver does not fit the container",
    "missing_gpu": "a GPU is missing",
    "probe_unreadable": "its tools cannot be read",
}
#: What a signal shows, where that says more than the fault it stands for.
SIGNALS: Mapping[str, str] = {
    "throttle": "{part} throttles",
    "dcgm_health": "DCGM is not content with {part}",
    "cuda_error": "the process on {part} got a CUDA error",
    "cuda_ecc": "the process on {part} got an uncorrectable memory error",
    "gpu_requires_reset": "{part} asks for a reset",
    "gpu_temperature": "{part} is much hotter than its neighbours",
    "nccl_port_error": "NCCL saw a port error on {part}",
    "ib_port_down": "the kernel saw the port of {part} go down",
    "link_down_count": "the link of {part} went down",
    "link_recovery_count": "the link of {part} had to recover",
    "link_effective_ber": "the bit error rate of {part} is too high",
    "module_rx_power": "a lane of {part} receives too little light",
    "ecc_uncorrectable": "{part} counted uncorrectable memory errors",
    "hca_event": "the adapter of {part} complained",
}
SURE = {
    "certain": "The tool names the part: this is certain.",
    "likely": "This is the likely cause, not a proven one.",
    "possible": "This is one possible cause; look further before parts are changed.",
}
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the story finds what gates do not hold: `quote(evidence)` is the line, `started(run)` its time (s) or None."""

    quote: Callable[[str], str | None] = lambda place: None
    started: Callable[[str], float | None] = lambda run: None
    notes: Sequence[str] = field(default_factory=tuple)


def headline(found: Finding) -> str:
    """Return a finding in one clause: what the part did."""
    return FAULTS.get(found["fault"], "{part}: " + str(found["fault"])).format(part=_part(found))


def _part(found: Finding) -> str:
    words = {"node": "the node", "config": "the configuration", "stack": "the stack", "storage": "the storage"}
    return words.get(found["part"], str(found["part"]))


def sight(found: Finding) -> str:
    """Return a finding in one clause: what was seen."""
    return SIGNALS[found["signal"]].format(part=_part(found)) if found["signal"] in SIGNALS else headline(found)


def run_of(found: Finding) -> str:
    """Return the run of a finding as a path in the campaign."""
    return f"{found['step']}/heat{found['heat']}/{found['workload']}/{found['group']}"


def tell(name: str, summary: Mapping[str, Any], gates: Sequence[Gate], sources: Sources) -> str:
    """Return the story of a node. `gates` in the order in which they were decided; `name` must be a node of `summary`."""
    entry = summary["nodes"][name]
    status = entry["status"]
    mine = [g for g in gates if name in g["outcome"]]
    lines: list[str] = []
    if status == "failed":
        lines += _failed(name, summary, mine, sources)
    elif status == "suspect":
        lines += _suspect(name, summary, mine)
    elif status == "withdrawn":
        lines += _wrap(f"{name} was withdrawn from campaign {summary['campaign']}: {entry['reason']}.")
        lines += _wrap("It is not to blame for anything, and what it passed stays passed.")
        lines += ["", *_next(str(entry["next_action"]))]
    else:
        lines += _in(name, summary, mine, sources)
    if entry["repairs"]:
        lines += ["", "Repairs so far"]
        for done in entry["repairs"]:
            text = (
                f"- {done.get('part')}: {done.get('fix')} ({_when(done.get('time'))}, by {done.get('by', 'unknown')})"
            )
            lines += _wrap(text, "  ", "    ")
        for text in entry.get("exchanged", []):
            lines += _wrap(f"- {text}", "  ", "    ")
    gone = [a for a in entry.get("away", []) if a["back"]]
    if gone:
        lines += ["", "When it was out and not to blame"]
        for away in gone:
            lines += _wrap(
                f"- {away['step']} heat {away['heat']}: {away['why']}; back {_when(away['back'])}", "  ", "    "
            )
    said = [n for g in mine for n in g["notes"] if name in n]
    if said:
        lines += ["", "Also noted"]
        for note in dict.fromkeys(said):
            lines += _wrap(f"- {note}", "  ", "    ")
    return plain("\n".join(lines)) + "\n"


def plain(text: str) -> str:
    """Return a text without characters that a terminal would act on: logs are quoted, and logs hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest, break_long_words=False,
        break_on_hyphens=False,
    ) or [first]  # fmt: skip


def _next(action: str) -> list[str]:
    return ["What to do next", *_wrap(action[:1].upper() + action[1:] + ("" if action.endswith(".") else "."), "  ")]


def _undrained(action: str, state: str | None) -> str:
    """Return an action without the word to drain a node that is drained already."""
    return re.sub(r"\bdrain the node(?:,| and) ", "", action) if state and state.startswith("drained") else action


def _when(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "time unknown"


def _failed(name: str, summary: Mapping[str, Any], mine: Sequence[Gate], sources: Sources) -> list[str]:
    """Tell what a failed node failed with."""
    entry = summary["nodes"][name]
    gate = next((g for g in reversed(mine) if g["outcome"].get(name) == "failed"), None)
    found = [f for f in gate["findings"] if f["node"] == name and f["scope"] == "node"] if gate else []
    if not gate or not found:
        return _wrap(f"{name} failed in {entry['failed_step']}: {entry['reason']}.")
    lead = found[0]
    lines = _wrap(
        f"{name} is out of campaign {summary['campaign']}: {headline(lead)} ({lead['fault']}, part {lead['part']})."
    )
    lines += _wrap(SURE[lead.get("confidence", "likely")])
    others = [n for n in gate["groups"][lead["group"]] if n != name]
    company = f"together with {fold(others)}" if others else "alone"
    first = sources.started(run_of(lead))
    lines += ["", "Where and when"]
    lines += _wrap(
        f"In step {lead['step']}, heat {lead['heat']}, while it ran {lead['workload']} {company} "
        f"(run {run_of(lead)}, started {_when(first)}).",
        "  ",
    )
    lines += _wrap(_before(name, mine, gate), "  ")
    lines += ["", "What was seen" + (", the cause first" if len(found) > 1 else "")]
    told: set[str] = set()
    for number, item in enumerate(found[:8], 1):
        lines += _seen(number, item, sources, again=sight(item) in told)
        told.add(sight(item))
    if len(found) > 8:
        lines.append(f"  ... and {len(found) - 8} more in {lead['step']}/heat{lead['heat']}/gate.json")
    parts = list(dict.fromkeys(f["part"] for f in found))
    if len(parts) > 1:
        lines += _wrap(
            f"Several parts are named ({', '.join(parts)}): if one explains the others, as a dead fan explains a hot GPU, "
            "repair that one first; otherwise each is a fault of its own.",
            "  ",
        )
    against = list(dict.fromkeys(c for f in found for c in f.get("contradicted_by", [])))
    if against:
        lines += ["", "What speaks against it"]
        for text in against:
            lines += _wrap(f"- {text}", "  ", "    ")
    state = gate["drained"].get(name)
    lines += ["", *_next(_undrained(str(entry["next_action"] or lead["next_action"]), state))]
    more = [_undrained(f["next_action"], state) for f in found[1:] if f["part"] != lead["part"]]
    for action in dict.fromkeys(more):
        lines += _wrap(f"Also: {action}.", "  ")
    lines += _wrap(
        f'Then tell the campaign: burnin repair {name} --part {lead["part"]} --fix "what was done", and start the same '
        "snakemake command again: the node is retested and catches up.",
        "  ",
    )
    if state:
        lines += _wrap(f"Slurm: {state}.", "  ")
    if others:
        lines += ["", "Its partners", *_wrap(_partners(others, gate), "  ")]
    return lines


def _seen(number: int, item: Finding, sources: Sources, again: bool = False) -> list[str]:
    """Tell one finding with its evidence quoted."""
    what = sight(item) + (", as another line says" if again else "")
    measure = ""
    if str(item["signal"]).startswith("xid"):
        measure = f", {item['value']:.0f} times" if (item["value"] or 0) > 1 else ""
    elif item["value"] is not None and item["limit"] is not None:
        measure = f": {item['value']:.6g} {item['unit'] or ''}".rstrip() + f", limit {item['limit']:.6g}"
        if item["unit"] == "events":
            measure = "" if item["value"] == 1 else f", {item['value']:.0f} times in this run"
    origin = "" if item["limit_origin"] == "zero tolerance" else f" ({item['limit_origin']})"
    lines = _wrap(f"{number}. {what} [{item['signal']}]{measure}{origin}.", "  ", "     ")
    repeats = item["reason"].startswith(
        f"{item['fault']} on {item['part']}: "
    )  # and then the line that is quoted below
    if (not item["zero_tolerance"] or item["signal"].startswith("xid")) and not repeats:
        lines += _wrap(item["reason"], "     ")
    for place in item["evidence"][:3]:
        lines.append(f"     {place}")
        quoted = sources.quote(place) or (item["quote"] if place == item["evidence"][0] else None)
        if quoted and not place.rsplit(":", 1)[0].endswith(".json"):
            lines.append(f"     | {' '.join(quoted.split())[:160]}")
    return lines


def _before(name: str, mine: Sequence[Gate], until: Gate) -> str:
    """Tell what a node had passed before it failed."""
    done: dict[str, list[str]] = {}
    for gate in mine:
        if gate is until:
            break
        for workload in gate["passed"].get(name, []):
            done.setdefault(gate["step"], []).append(workload)
    here = [w for w in until["passed"].get(name, [])]
    if here:
        done.setdefault(f"{until['step']} (this heat)", []).extend(here)
    if not done:
        return "It had passed nothing before: it was so from the start."
    listed = "; ".join(f"{step}: {', '.join(dict.fromkeys(w))}" for step, w in done.items())
    return f"Before that it had passed {listed}."


def _partners(others: Sequence[str], gate: Gate) -> str:
    """Tell what became of those who ran with a failed node."""
    by: dict[str, list[str]] = {}
    for node in others:
        by.setdefault(gate["outcome"].get(node, "unknown"), []).append(node)
    words = {"owes": "not to blame, ran or will run again without it", "passed": "passed", "failed": "failed as well"}
    return "; ".join(f"{fold(nodes)}: {words.get(outcome, outcome)}" for outcome, nodes in by.items()) + "."


def _suspect(name: str, summary: Mapping[str, Any], mine: Sequence[Gate]) -> list[str]:
    """Tell of a node that could neither be cleared nor convicted."""
    entry = summary["nodes"][name]
    lines = _wrap(
        f"{name} is not accepted, and not convicted either: {entry['reason']} (since step {entry['failed_step']})."
    )
    lines += ["", "How it was isolated"]
    for gate in mine:
        for suspect in gate["suspects"]:
            if name in suspect["nodes"]:
                lines += _wrap(
                    f"- {gate['step']} heat {gate['heat']}: {fold(suspect['nodes'])} under suspicion with "
                    f"{suspect['workload']}: {suspect['reason']}",
                    "  ",
                    "    ",
                )
    for link in summary["links"]:
        if any(name in side for side in link["between"]) and not link.get("repairs"):
            sides = " and ".join(fold(list(side)) for side in link["between"])
            lines += _wrap(f"The fault lies between {sides}, or it comes and goes: {link['fault']}.", "  ")
            lines += [f"     {place}" for place in link["evidence"][:6]]
    lines += ["", *_next(str(entry["next_action"]))]
    lines += _wrap(
        f'Then tell the campaign: burnin repair --link {name}/PORT --fix "what was done" (both ends, if both were found, as '
        "A/PORT,B/PORT), and start the same snakemake command again: the nodes that wait for it are retested and catch up.",
        "  ",
    )
    return lines


def _in(name: str, summary: Mapping[str, Any], mine: Sequence[Gate], sources: Sources) -> list[str]:
    """Tell of a node that is still in: nothing to say is also said."""
    entry = summary["nodes"][name]
    status = entry["status"]
    words = {
        "accepted": "is accepted",
        "running": "is in the campaign, which is not over",
        "repaired": "was repaired and is catching up",
    }
    lines = _wrap(f"{name} {words.get(status, status)} (campaign {summary['campaign']}).")
    hours = entry["hours"]
    if hours:
        lines += ["", "What it passed"]
        for step, of in hours.items():
            lines += _wrap(f"- {step}: " + ", ".join(f"{w} {_hours(h)}" for w, h in of.items()), "  ", "    ")
    else:
        lines += _wrap("It has not passed anything yet.", "  ")
    again = []
    for gate in mine:
        reason = gate["owes"].get(name)
        if reason and gate["outcome"].get(name) == "owes":
            again.append(f"- {gate['step']} heat {gate['heat']}: ran again ({reason['cause']}): {reason['text']}")
        elif gate["outcome"].get(name) == "suspect":
            again.append(f"- {gate['step']} heat {gate['heat']}: was under suspicion with its group, and was cleared")
    if again:
        lines += ["", "Where it had to run again"]
        for text in again:
            lines += _wrap(text, "  ", "    ")
    old = [f for g in mine for f in g["findings"] if f["node"] == name]
    if old:
        lines += ["", "What was found on it earlier"]
        for number, item in enumerate(old[:5], 1):
            lines += _seen(number, item, sources)
    else:
        lines += ["", "Nothing was found on it."]
    if summary.get("stopped") and status == "running":
        stop = summary["stopped"]
        lines += ["", *_wrap(f"The campaign stopped ({stop['kind']}): {stop['text']}"), *_next(stop["cure"])]
    return lines


def _hours(value: float) -> str:
    return f"{value:.1f} h" if value >= 0.1 else f"{value * 3600:.0f} s"
