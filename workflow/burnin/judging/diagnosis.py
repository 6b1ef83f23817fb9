# SPDX-License-Identifier: Apache-2.0
"""What the runs of a heat say together: is it one node's, the group's, the configuration's, or do they contradict. Pure.

A fault of the configuration never drops a node: what most runs of a heat show alike is nobody's. What one node shows
while the others are free of it is that node's. Where two pieces of evidence point at different nodes, the one that
names hardware stands, and the other is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from burnin import arithmetic, xid
from burnin.judging import performance, throughput, xids
from burnin.judging.attribution import FIRST_ONLY, Places, counting, gpu_places
from burnin.judging.run import MOST_EVIDENCE, Context, Run
from burnin.judging.signatures import NODES_STACK, TABLE, config_row, nobodys, signature_of, stops_run
from burnin.judging.xids import applications
from burnin.nodes import fold

#: Of the changed parts of a node's stack, so many are told.
MOST_PARTS = 3
STATE_KINDS = frozenset(row.kind for row in TABLE if row.state)
#: Checks that may mean the stack: they hold a run against numbers from outside this campaign. What falls behind the step
#: before it alone points at the fabric between the groups instead, and is isolated.
WIDE = frozenset({"baseline", "plausible"})
#: Faults that make a rank of the same or another node fail: the dead fan of a neighbour does not.
EXPLAINS = frozenset(
    ["gpu_off_bus", "hbm_ecc_uncorrectable", "row_remap_failed", "nvlink_error", "missing_gpu", "node_crash"]
)
EVERYWHERE_ACTION = {
    "busbw": (
        "compare the NCCL settings with the reference: transport (NET/IB, not NET/Socket), NCCL_IB_HCA, GPU Direct RDMA, "
        "PCIe settings (ACS, IOMMU); rerun one group with NCCL_DEBUG=INFO"
    ),
    "gflops": "compare container, HPL.dat, clocks and power limits with the reference (nvidia-smi -q -d PERFORMANCE)",
    "step_time": (
        "compare the recipe with the reference (precision, CUDA_DEVICE_MAX_CONNECTIONS=1, parallelism), check the NCCL "
        "transport and nvidia-smi -q -d PERFORMANCE for power or clock caps"
    ),
    "f1": "check data files, precision settings and the container",
}


# ---------------------------------------------------------------------------------------------------------- one run


def signals(run: Run, context: Context, places: Places) -> None:
    """Turn the signals that count into findings and group-level trouble."""
    limit = context.criteria["fabric_ber"]
    for seen in counting(run.result, context.gpus_per_node, STATE_KINDS, places):
        row = signature_of(seen)
        if row is None or row.scope == "note":
            continue
        if seen["kind"] == "link_effective_ber" and (seen.get("value") or 0.0) <= limit:
            continue
        if row.scope == "node" and seen["node"]:
            found = run.of_signature(seen["node"], seen, row, "node", limit)
            run.add({**found, "everywhere": row.everywhere} if row.everywhere else found)
        elif row.scope == "config":
            run.add(run.of_signature(seen["node"], seen, row, "config", limit))
        elif len(run.nodes) == 1:
            found = run.of_signature(run.nodes[0], seen, row, "node", limit)
            run.add({**found, "everywhere": row.everywhere})
        else:
            action = row.action.format(part="the part")
            text = f"{seen['kind']}: {seen['text']}"[:300]
            run.note_trouble(row.fault, text, action, run.place(seen), seen["text"], row)
    _name_ports(run)


def must_stop(result: Mapping[str, Any], context: Context) -> str:
    """Return what a run's probes so far show that forbids going on, or "": only what lasts or is new in the run.

    A kernel log lists old events, too, and counters stand where they stood: neither ends a run by being there.
    """
    places = gpu_places([result], context.gpus_per_node)
    for seen in counting(result, context.gpus_per_node, STATE_KINDS, places):
        within = seen["kind"] == "link_effective_ber" and (seen.get("value") or 0.0) <= context.criteria["fabric_ber"]
        if seen.get("when") and stops_run(seen) and not within:
            return f"{seen['kind']} on {seen['node']}: {seen['text']}"[:300]
    run = Run(result, result["workload"], result["group"], list(result["nodes"]))
    xids.judge(run, context, places)
    return str(run.findings[0]["reason"])[:300] if run.findings else ""


def _name_ports(run: Run) -> None:
    """Give a port that the kernel names by its PCI address its name: another line's, or that of the one bad port."""
    names = {
        s["bdf"]: str(s["device"]).split(":")[0] for s in run.result["signals"] if s.get("bdf") and s.get("device")
    }
    for found in run.findings:
        if not str(found["part"]).startswith("hca@"):
            continue
        others = {f["part"] for f in run.findings if f["node"] == found["node"] and str(f["part"]).startswith("mlx5_")}
        name = names.get(found["part"].removeprefix("hca@")) or (next(iter(others)) if len(others) == 1 else None)
        if name:
            for key in ("reason", "next_action"):
                found[key] = found[key].replace(found["part"], name)
            found["part"] = name


def contradictions(run: Run, verdicts: Sequence[xid.XidVerdict]) -> None:
    """Let evidence that names hardware stand over a rank's own words, and say where they disagree.

    A rank's CUDA error is only how the fault reached one process. If the kernel calls what happened on that GPU the
    application's, nobody is convicted by it alone; if another node of the run has hardware evidence, that stands and
    this node runs again.
    """
    ours = [f for f in run.findings if f["scope"] == "node" and f["signal"] in FIRST_ONLY]
    if not ours:
        return
    proof = [f for f in run.findings if f["scope"] == "node" and f["fault"] in EXPLAINS and f not in ours]
    hard = {f["node"] for f in proof}
    app = applications(verdicts)
    for found in ours:
        node, gpu = found["node"], found["part"]
        elsewhere = sorted(hard - {node})
        if node in hard:
            parts = {f["part"] for f in proof if f["node"] == node}
            # a GPU of which only the address is known may be any of them
            if gpu in parts or not all(re.fullmatch(r"gpu\d+", p) for p in parts):
                found["confidence"] = "certain"
            else:
                named = ", ".join(sorted(parts))
                found["contradicted_by"] = [f"the first error is that of {gpu}, the hardware evidence names {named}"]
        elif elsewhere:
            text = (
                f"{run.where}: {gpu} of {node} reported the first error ({found['quote'].strip()[:120]}), but the "
                f"hardware evidence is on {', '.join(elsewhere)}: {node} is not convicted and runs again"
            )
            run.findings.remove(found)
            run.notes.append(text)
            for other in run.findings:
                if other["node"] in elsewhere and other["scope"] == "node":
                    other["contradicted_by"] = [*other.get("contradicted_by", []), text]
        elif any(n == node and (g is None or f"gpu{g}" == gpu) for n, g in app):
            run.findings.remove(found)
            text = (
                f"{found['reason']}; but the kernel's Xid for it is one that applications cause: not the GPU's until "
                "it repeats on it"
            )
            if len(run.nodes) > 1:
                run.note_trouble("hang", text[:400], found["next_action"], found["evidence"], found["quote"])
            else:
                run.findings.append({**found, "confidence": "possible", "reason": text[:400]})
        else:
            read = (run.result["probes"].get("after") or {}).get(node, {}).get("tools", {}).get("dmesg")
            if read == "pass":
                found["contradicted_by"] = [f"the kernel log of {node} shows no Xid in this run"]


# ------------------------------------------------------------------------------------------------------- across runs


def configuration(runs: Sequence[Run], plan: Mapping[str, Any], context: Context) -> None:
    """Decide of what looks like configuration whether it is one node's or the campaign's."""
    for workload in dict.fromkeys(r.workload for r in runs):
        mine = [r for r in runs if r.workload == workload and r.result["state"] != "skipped"]
        # a run that never began, or ended before its first iteration did, is not free of what the others show
        free = {n for r in mine for n in r.nodes if any(i["verdict"] == "pass" for i in r.result["iterations"])}
        for fault in dict.fromkeys(f["fault"] for r in mine for f in r.findings if f["scope"] == "config"):
            touched: set[str] = set()
            for run in mine:
                for item in run.findings:
                    if item["scope"] == "config" and item["fault"] == fault:
                        touched |= {item["node"]} if item["node"] else set(run.nodes)
            if plan["step"] != "resume" and not nobodys(fault) and len(touched) * 2 < len(touched | free):
                for run in mine:
                    _narrow(run, fault)
        # groups that were put together to find a fault show it alike because that is what they are for
        usual = [r for r in mine if not plan["groups"][r.group]["isolation"]]
        _alike_in_trouble(usual)
        _hang_before_step_one(usual)
        _alike_dead(usual)


def other_stack(runs: Sequence[Run], plan: Mapping[str, Any]) -> None:
    """Take nodes out without blame that show another stack than the frozen one; their runs count for nobody.

    What a node shows is its own: a reboot into another kernel, a board with another firmware. What no node shows (a
    container, the NCCL that a command loads) is everybody's, and so is what more than half of the roster shows: that was
    done to the cluster. Both stay findings on the configuration.
    """
    changed = {run.group + run.workload: _changes(run) for run in runs}
    touched = {node for of_run in changed.values() for node in of_run}
    roster = plan.get("roster") or list(dict.fromkeys(n for g in plan["groups"].values() for n in g["nodes"]))
    everybodys = len(touched) * 2 > len(roster)
    for run in runs:
        of_run = changed[run.group + run.workload]
        for item in [
            f for f in run.findings if f["scope"] == "config" and f["node"] in of_run and f["fault"] == "stack"
        ]:
            seen = of_run[item["node"]]
            if everybodys:
                item["reason"] += f"; so it is on {len(touched)} of {len(roster)} nodes"
                continue
            parts = [
                f"{s['detail']['what']} is {s['detail']['now']!r}, was {s['detail']['before']!r} ({run.place(s)[0]})"
                for s in seen[:MOST_PARTS]
            ]
            more = [f"and {len(seen) - MOST_PARTS} more parts"] if len(seen) > MOST_PARTS else []
            text = f"another stack than the frozen one: {'; '.join([*parts, *more])}"
            places = list(dict.fromkeys(place for s in seen for place in run.place(s)))[:MOST_EVIDENCE]
            item.update(scope="nobody", reason=text, next_action=NODES_STACK, evidence=places, confidence="certain")
            run.withdrawn[item["node"]] = text
        if run.withdrawn and not run.cause:
            run.cause, run.cause_text = (
                "partner",
                f"{fold(run.withdrawn)} in {run.where}: another stack than the frozen one",
            )


def _changes(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """Return node -> what changed of its stack, as its probe before the run says."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for seen in run.result["signals"]:
        if seen["kind"] == "stack_changed" and seen.get("node") in run.nodes:
            found.setdefault(seen["node"], []).append(seen)
    return found


def _on_frozen_stack(result: Mapping[str, Any]) -> bool:
    """Tell whether a run has nothing to say against the stack that it ran on: only then is it a peer of others."""
    return not any(seen["kind"] == "stack_changed" for seen in result["signals"])


def _narrow(run: Run, fault: str) -> None:
    """Turn the config-like findings of a minority into findings on the nodes that showed them."""
    row = config_row(fault)
    alone = row.alone if row else None
    for item in [f for f in run.findings if f["scope"] == "config" and f["fault"] == fault]:
        node = item["node"] or (run.nodes[0] if len(run.nodes) == 1 else None)
        action = alone.action if alone else item["next_action"]
        if node is None:
            run.findings.remove(item)
            run.note_trouble(
                alone.fault if alone else fault, item["reason"], action, item["evidence"], item["quote"], row
            )
        else:
            item.update(
                scope="node",
                node=node,
                fault=alone.fault if alone else fault,
                part=alone.part if alone else item["part"],
                next_action=action,
                confidence="likely",
            )


def _alike_in_trouble(mine: Sequence[Run]) -> None:
    """What most groups show and a recipe can do to all of them (a NaN loss) is the recipe's."""
    for fault in dict.fromkeys(r.trouble_fault for r in mine if r.trouble_fault):
        same = [r for r in mine if r.trouble_fault == fault or _alone_with(r, fault)]
        row = next((r.trouble_row for r in mine if r.trouble_fault == fault and r.trouble_row), None)
        if row and row.everywhere and _most(same, mine):
            _blame_config(same, fault, "config", row.everywhere, "most groups of the heat show it alike", fault)
    for fault in dict.fromkeys(f["fault"] for r in mine for f in r.findings if f["scope"] == "node"):
        same = [r for r in mine if _alone_with(r, fault)]
        everywhere = next((f["everywhere"] for r in same for f in r.findings if f.get("everywhere")), "")
        if everywhere and _most(same, mine):
            _blame_config(same, fault, "config", everywhere, "most nodes of the heat show it alike", fault)


def _alone_with(run: Run, fault: str) -> bool:
    """Tell whether a node alone was convicted of a fault that could be everybody's."""
    return any(f["fault"] == fault and f.get("everywhere") for f in run.findings if f["scope"] == "node")


def _most(some: Sequence[Run], mine: Sequence[Run]) -> bool:
    """Tell whether these are most of the runs: two at least, and more than half (both of two)."""
    return len(some) >= 2 and len(some) * 2 > len(mine)


def _hang_before_step_one(mine: Sequence[Run]) -> None:
    """Training that hangs before its first step on most groups: NCCL's network settings, not a node."""
    stuck = [r for r in mine if r.trouble_fault == "hang" and not r.guilty() and _no_step(r)]
    if _most(stuck, mine):
        _blame_config(
            stuck,
            "nccl_on_sockets",
            "config",
            "run nccl-tests in the same container on the same nodes: IB devices, NCCL_IB_HCA, NCCL_SOCKET_IFNAME, memlock",
            "most groups never reached step 1",
            "no first step",
        )


def _no_step(run: Run) -> bool:
    items = [*run.result["iterations"], *run.result["interrupted"]]
    steps = [i["facts"].get("steps") for i in items]
    return bool(steps) and all(s is not None and not s.get("count") for s in steps)


def _alike_dead(mine: Sequence[Run]) -> None:
    """Most runs end without a result and without a sign of hardware: the command line."""
    dead = [r for r in mine if r.trouble and not r.trouble_fault and not r.findings and r.result["state"] != "casualty"]
    if (len(dead) >= 2 and len(dead) * 2 >= len(mine)) or (len(dead) == len(mine) == 1 and _not_started(dead[0])):
        _blame_config(
            dead,
            "driver_mismatch",
            "config",
            "run the command line of one iteration by hand; correct workload_definitions",
            "most runs of the heat failed alike, without a sign of hardware",
            "incomplete",
        )


def _not_started(run: Run) -> bool:
    """Tell whether the command itself could not be started: never a node's fault."""
    return any("could not be started" in t or "127" in t for t in [*run.trouble, run.result["reason"]])


def _blame_config(
    runs: Sequence[Run], fault: str, part: str, action: str, origin: str, signal: str, reason: str = ""
) -> None:
    """Replace what these runs accuse by a finding on the configuration."""
    for run in runs:
        gone = [f for f in run.findings if f["scope"] == "node" and f["fault"] == fault]
        lead = gone[0] if gone else {}
        run.findings = [f for f in run.findings if f not in gone]
        run.findings.append(
            run.finding(
                None,
                part=part,
                fault=fault,
                signal=signal,
                scope="config",
                limit_origin=origin,
                value=float(len(runs)),
                unit="runs alike",
                evidence=lead.get("evidence") or run.evidence[:3] or run.last_output(),
                quote=lead.get("quote") or run.quote,
                reason=reason or lead.get("reason") or run.trouble[0],
                next_action=action,
                confidence="likely",
                rank=90,
            )
        )


# ---------------------------------------------------------------------------------------------------------- slowness


def compare(runs: Sequence[Run], context: Context) -> list[str]:
    """Judge the speed of every finished run, and whether all are slow alike. Returns what could not be judged."""
    notes: list[str] = []
    of: dict[str, list[performance.Measured]] = {r.workload: [] for r in runs}
    for result in (*(r.result for r in runs), *context.earlier):
        if result["workload"] in of and result["state"] == "complete" and _on_frozen_stack(result):
            of[result["workload"]].append(performance.measured(result))
    crowds = {workload: performance.Crowd(found) for workload, found in of.items()}
    for run in runs:
        if run.result["state"] != "complete" or run.result["step"] in ("resume", "retest") or run.withdrawn:
            continue
        speed = performance.judge(
            run.result,
            run.where,
            context.definitions[run.workload],
            context.criteria,
            crowds[run.workload],
            context.siblings,
        )
        run.slow, run.wide = speed.worst, speed.worst_of(WIDE)
        notes += speed.notes
        for item in speed.storage:
            run.findings.append(_of_storage(run, item))
    for workload in dict.fromkeys(r.workload for r in runs):
        notes += _throughput([r for r in runs if r.workload == workload], context)
        _alike_slow([r for r in runs if r.workload == workload], context)
        _alike_storage([r for r in runs if r.workload == workload])
    return list(dict.fromkeys(notes))


def _throughput(mine: Sequence[Run], context: Context) -> list[str]:
    """Say what the training runs are worth, where the config tells their recipe."""
    definition = context.definitions.get(mine[0].workload, {})
    done = [r.result for r in mine if r.result["state"] == "complete" and r.result["step"] != "resume"]
    if not definition.get("like_for_like") or not done:
        return []
    return throughput.notes(done, definition, context.gpus_per_node, arithmetic.load_references())


def _of_storage(run: Run, item: performance.Slow) -> dict[str, Any]:
    return run.finding(
        None,
        part=item.part,
        fault=item.fault,
        signal=item.check,
        scope="config",
        value=item.value,
        unit=item.unit,
        limit=item.limit,
        limit_origin=item.limit_origin,
        evidence=item.evidence,
        reason=item.reason,
        next_action=item.next_action,
        confidence="likely",
        rank=85,
    )


def _alike_storage(mine: Sequence[Run]) -> None:
    """Slow saves of one group while three and more save as ever: that group's way to the storage, not the storage."""
    slow = [r for r in mine if any(f["fault"] == "storage_slow" for f in r.findings)]
    saved = [r for r in mine if r.result["state"] == "complete"]
    if slow and len(slow) * 4 <= len(saved):
        for run in slow:
            _narrow(run, "storage_slow")


def _alike_slow(mine: Sequence[Run], context: Context) -> None:
    """All groups alike far from what they should give: the stack or the configuration, and nobody is dropped."""
    judged = [r for r in mine if r.result["state"] == "complete" and r.result["step"] not in ("resume", "retest")]
    wide = [r for r in judged if r.wide is not None]
    if not judged or len(wide) < len(judged) or _passed_before(wide[0].workload, context):
        return
    if len(wide) == 1 and wide[0].wide is not None and wide[0].wide.check != "plausible":
        return  # one group alone may be slow by itself: it is isolated
    if len(wide) == 1 and any(s["workload"] == wide[0].workload and len(s["nodes"]) > 1 for s in context.siblings):
        return  # smaller groups were fast in the step before: the stack can do it
    for run in wide:
        slow = run.wide
        assert slow is not None
        metric = context.definitions[run.workload]["metric"]
        sockets = slow.fault == "nccl_on_sockets"
        run.findings.append(
            run.finding(
                None,
                part="config" if sockets else "stack",
                fault=slow.fault if sockets else "slow_everywhere",
                signal=slow.check,
                scope="config",
                value=slow.value,
                unit=slow.unit,
                limit=slow.limit,
                limit_origin=slow.limit_origin,
                evidence=slow.evidence,
                reason=f"all {len(wide)} groups of this size are slow alike: {slow.reason}"
                if len(wide) > 1
                else slow.reason,
                next_action=EVERYWHERE_ACTION[metric],
                confidence="likely",
                rank=91,
            )
        )


def _passed_before(workload: str, context: Context) -> bool:
    """Tell whether somebody has passed this workload in an earlier heat of the step: then it is not everybody's."""
    return any(workload in done for gate in context.gates for done in gate["passed"].values())
