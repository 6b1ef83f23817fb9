# SPDX-License-Identifier: Apache-2.0
"""One run while it is judged, and the form of a finding. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin import xid
from burnin.judging.performance import Slow
from burnin.judging.signatures import Signature
from burnin.topology import Topology

Result = Mapping[str, Any]

#: Cause of owing: the run's own evidence is good, what failed is another node or the other half.
PARTNER = "partner"
#: Places kept of one finding.
MOST_EVIDENCE = 6
#: What is counted where a signal is an event without a number of its own; one is one too many.
EVENTS = "events"
#: Unit and limit of the zero-tolerance signals that have a number. A residual is held against HPL.dat's own threshold.
QUANTITY: Mapping[str, tuple[str, float]] = {
    "wrong_elements": ("wrong elements", 0.0),
    "out_of_bounds": ("wrong elements", 0.0),
    "residual_failed": ("scaled residual", 16.0),
    "straggler": ("relative score", 0.7),
}


def ended_well(item: Mapping[str, Any]) -> bool:
    """Tell whether an iteration (or its summary with `exit`) came to its end as it should: status 0, or endless by design."""
    return item["exit"] == 0 or (bool(item["facts"].get("endless")) and item["verdict"] == "pass")


@dataclass(frozen=True, slots=True)
class Context:
    """What the gate needs beside plan and results.

    `definitions`: workload -> its definition. `earlier`: results of the earlier heats of this step. `gates`: earlier
    gates of this step. `siblings`: results of the groups that passed the step before this one.
    """

    gpus_per_node: int
    criteria: Mapping[str, Any]
    criteria_digest: str
    definitions: Mapping[str, Mapping[str, Any]]
    rerun_limit: int
    earlier: Sequence[Result] = ()
    gates: Sequence[Mapping[str, Any]] = ()
    xid_table: xid.XidTable | None = None
    invocation: str = ""
    siblings: Sequence[Result] = ()
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """Evidence that is missing: what, what makes it be there, and where to look (file:line below the campaign)."""

    text: str
    cure: str
    evidence: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """One run while it is judged."""

    result: Result
    workload: str
    group: str
    nodes: list[str]
    date: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)  # group-level reasons
    trouble_fault: str = ""
    trouble_action: str = ""
    trouble_row: Signature | None = None
    evidence: list[str] = field(default_factory=list)
    quote: str = ""
    slow: Slow | None = None
    wide: Slow | None = None  # the worst that may be everybody's
    unread: dict[str, list[Lack]] = field(default_factory=dict)  # node -> all that is missing of it
    withdrawn: dict[str, str] = field(default_factory=dict)  # node -> why it is out, and nobody's fault
    cause: str = ""  # why everybody owes, if nobody is guilty
    cause_text: str = ""
    lack: Lack | None = None  # what is missing of the whole run, if that is why
    notes: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Return the run's folder, relative to the campaign."""
        return f"{self.result['step']}/heat{self.result['heat']}/{self.workload}/{self.group}"

    def guilty(self) -> set[str]:
        """Return the nodes that a finding convicts."""
        return {f["node"] for f in self.findings if f["scope"] == "node"}

    def lacks(self, node: str, lack: Lack) -> None:
        """Note that evidence about a node is missing."""
        self.unread.setdefault(node, []).append(lack)

    def finding(self, node: str | None, **fields: Any) -> dict[str, Any]:
        """Return a finding in the form of gate.schema.json, plus `rank`; what is not given is that of an event."""
        return {
            "node": node,
            "step": self.result["step"],
            "heat": self.result["heat"],
            "workload": self.workload,
            "group": self.group,
            "zero_tolerance": fields.get("limit_origin", "zero tolerance") == "zero tolerance"
            or str(fields["signal"]).startswith("xid"),
            "value": 1.0,
            "unit": EVENTS,
            "limit": 0.0,
            "limit_origin": "zero tolerance",
            "limit_date": self.date,
            "quote": "",
            "confidence": "likely",
            **fields,
        }

    def add(self, found: dict[str, Any]) -> None:
        """Add a finding; what says the same of the same part once more only adds its evidence."""
        for known in self.findings:
            if all(known.get(k) == found.get(k) for k in ("node", "part", "fault", "signal", "scope")):
                places = [*known["evidence"], *(e for e in found["evidence"] if e not in known["evidence"])]
                known["evidence"] = places[:MOST_EVIDENCE]
                return
        self.findings.append(found)

    def at(self, name: str) -> str:
        """Return a name in the run's folder, relative to the campaign."""
        return f"{self.where}/{name}"

    def place(self, seen: Mapping[str, Any]) -> list[str]:
        """Return file:line of a signal, relative to the campaign."""
        return [self.at(f"{seen['file']}:{seen['line']}")]

    def last_output(self) -> list[str]:
        """Return the output of the last iteration."""
        items = [*self.result["iterations"], *self.result["interrupted"]]
        return [self.at(f"{items[-1]['output'] if items else 'result.json'}:1")]

    def note_trouble(
        self,
        fault: str,
        text: str,
        action: str,
        evidence: list[str],
        quote: str = "",
        row: Signature | None = None,
    ) -> None:
        """Note something that convicts the group; the first with a fault's name leads."""
        if fault and not self.trouble_fault:
            self.trouble_fault, self.trouble_action, self.quote, self.trouble_row = fault, action, quote, row
            self.trouble.insert(0, text)
            self.evidence[:0] = evidence
        else:
            self.trouble.append(text)
            self.evidence += evidence

    def of_signature(
        self, node: str | None, seen: Mapping[str, Any], row: Signature, scope: str, ber_limit: float
    ) -> dict[str, Any]:
        """Return the finding of a signal that fits a row of the table."""
        part = row.part(seen)
        growth = seen.get("growth")
        grown = f" (+{growth:g} in this run)" if growth is not None else ""
        value, unit, limit = 1.0, EVENTS, 0.0
        origin = "zero tolerance"
        if growth is not None:
            value = float(growth)
        elif seen["kind"] == "link_effective_ber":
            value, unit, limit, origin = float(seen["value"]), "errors per bit", ber_limit, "criteria fabric_ber"
        elif seen.get("value") is not None and seen.get("limit") is not None:
            value, unit, limit = (
                float(seen["value"]),
                str(seen.get("unit") or QUANTITY.get(seen["kind"], ("",))[0]),
                float(seen["limit"]),
            )
        elif seen.get("value") is not None and seen["kind"] in QUANTITY:
            value, (unit, limit) = float(seen["value"]), QUANTITY[seen["kind"]]
        return self.finding(
            node,
            part=part,
            fault=row.fault,
            signal=seen["kind"],
            scope=scope,
            value=value if value == value and abs(value) != float("inf") else None,
            unit=unit,
            limit=limit,
            limit_origin=origin,
            evidence=self.place(seen),
            quote=seen["text"],
            reason=f"{row.fault} on {part}: {seen['text'].strip()}{grown}"[:400],
            next_action=row.action.format(part=part),
            confidence=row.confidence,
            rank=row.rank,
        )
