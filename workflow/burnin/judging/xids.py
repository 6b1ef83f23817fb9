# SPDX-License-Identifier: Apache-2.0
"""The Xids of a run: which of its probes' kernel lines are events for the Xid table, and the findings it makes of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnin import xid
from burnin.judging.attribution import Places, boot_time, gpu_of, node_of, was_read
from burnin.judging.run import Context, Run

#: The fault that a code is a sign of; what is not here is the GPU's in general.
XID_FAULT = {
    79: "gpu_off_bus",
    48: "hbm_ecc_uncorrectable",
    94: "hbm_ecc_uncorrectable",
    95: "hbm_ecc_uncorrectable",
    140: "hbm_ecc_uncorrectable",
    171: "hbm_ecc_uncorrectable",
    172: "hbm_ecc_uncorrectable",
    64: "row_remap_failed",
    157: "row_remap_failed",
    74: "nvlink_error",
    136: "nvlink_error",
    **{c: "nvlink_error" for c in range(144, 151)},
}


def _events(
    result: Mapping[str, Any], where: str, gpus_per_node: int, places: Places, before: bool
) -> list[xid.XidEvent]:
    """Return the Xid lines of the probes before a run, or of the later ones."""
    found = []
    for seen in result["signals"]:
        if seen["kind"] != "xid" or (seen.get("when") == "before") != before:
            continue
        node = node_of(seen, result["nodes"], gpus_per_node)
        if node is None:
            continue
        found.append(
            xid.XidEvent(
                node=node,
                code=int(seen.get("value") or 0),
                text=seen["text"],
                gpu=gpu_of(seen, node, places),
                bdf=seen.get("bdf"),
                time=xid.epoch_time(seen.get("detail") or {}, *boot_time(result, node)),
                line=seen["line"],
                source=f"{where}/{seen['file']}",
                run=where,
            )
        )
    return found


def _where(result: Mapping[str, Any]) -> str:
    return f"{result['step']}/heat{result['heat']}/{result['workload']}/{result['group']}"


def judge(run: Run, context: Context, places: Places) -> list[xid.XidVerdict]:
    """Add the findings that the Xid table makes of a run, and return all its verdicts.

    An event is new in the run if the probe before the run did not list it. Where that probe could not read the kernel
    log, the time of the line must lie in the run; a line whose time is not known is then only noted, since it may be
    older than the run.
    """
    result = run.result
    now = _events(result, run.where, context.gpus_per_node, places, before=False)
    if not now:
        return []
    table = context.xid_table or xid.load_table(overrides=context.criteria["xid"])
    listed = _events(result, run.where, context.gpus_per_node, places, before=True)
    history = [e for r in context.earlier for e in _events(r, _where(r), context.gpus_per_node, places, before=False)]
    known = {n for n in run.nodes if was_read(result, n, "dmesg")}
    verdicts = xid.judge_xids([e for e in now if e.node in known], table, None, None, history, before=listed)
    blind = [e for e in now if e.node not in known]
    if blind and result["started"] is not None:
        verdicts += xid.judge_xids(blind, table, result["started"], result["ended"], history)
    for verdict in verdicts:
        if not verdict.counts or verdict.severity not in ("fatal", "counted"):
            continue
        if not verdict.certain:
            run.notes.append(f"{run.where}: {verdict.why} Not counted.")
        elif verdict.severity == "fatal":
            run.findings.append(finding_of(run, verdict, table))
        else:
            run.notes.append(f"{run.where}: {verdict.why}")
    return verdicts


def finding_of(run: Run, verdict: xid.XidVerdict, table: xid.XidTable) -> dict[str, Any]:
    """Return the finding of an Xid verdict."""
    return run.finding(
        verdict.node,
        part=verdict.part if verdict.part.startswith("gpu") else f"gpu@{verdict.part}",
        fault=XID_FAULT.get(verdict.code, "gpu_slow"),
        signal=f"xid {verdict.code}",
        scope="node",
        value=float(verdict.count),
        unit=f"times Xid {verdict.code}",
        limit_origin=table.source,
        limit_date=table.as_of,
        evidence=[f"{source}:{line}" for source, line in verdict.evidence],
        quote=verdict.text,
        reason=verdict.why,
        next_action=verdict.next_action,
        confidence="likely" if verdict.ends else "certain",
        rank=2,
    )


def applications(verdicts: Sequence[xid.XidVerdict]) -> set[tuple[str, int | None]]:
    """Return (node, GPU) whose only Xids in a run are the application's own doing (13, 31, ...)."""
    app = {(v.node, v.gpu) for v in verdicts if v.severity == "app"}
    return app - {(v.node, v.gpu) for v in verdicts if v.severity == "fatal"}
