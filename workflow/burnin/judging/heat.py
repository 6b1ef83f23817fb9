# SPDX-License-Identifier: Apache-2.0
"""The gate: the outcome of every node of a heat, from its plan and its results. Pure.

Order of reasoning for a run: (1) is somebody known to be guilty: he fails, his partners owe; (2) is it the
configuration: nobody fails, the campaign stops with a cure; (3) did its job die, was it cancelled, did it not start: the
nodes owe; (4) did the group fail with nobody known: a node alone fails, a group is suspect; (5) is it slow among its
peers or below its baseline: likewise; (6) is evidence missing: owes; (7) passed. Unknown is never pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from burnin import xid
from burnin.judging import resume
from burnin.judging.attribution import Places, counting, gpu_of, gpu_places, node_of
from burnin.judging.signatures import TABLE, Signature, signature_of

Result = Mapping[str, Any]
STATE_KINDS = frozenset(row.kind for row in TABLE if row.state)
#: Fault of a node that is slow alone, by what was measured.
SLOW_FAULT = {"busbw": "link_degrading", "gflops": "gpu_slow", "step_time": "straggler", "f1": "silent_data_corruption"}
#: Causes of owing that repeat without anybody learning anything; they are counted against `rerun_limit`.
COUNTED = frozenset({"cancelled", "time_limit", "died", "not_started", "inconclusive", "overlap"})
DEATHS = {
    "CANCELLED": "cancelled",
    "PREEMPTED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "not_started",
    "NOT_STARTED": "not_started",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the gate needs beside plan and results.

    `definitions`: workload -> its definition. `earlier`: results of the earlier heats of this step. `gates`: earlier
    gates of this step. `reads_from`: result -> folder of the run relative to the campaign, for evidence.
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


@dataclass(slots=True)
class _Run:
    """One run while it is judged."""

    result: Result
    workload: str
    group: str
    nodes: list[str]
    findings: list[dict[str, Any]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)  # group-level reasons
    trouble_fault: str = ""
    trouble_action: str = ""
    evidence: list[str] = field(default_factory=list)
    quote: str = ""
    slow: dict[str, Any] | None = None
    unread: dict[str, str] = field(default_factory=dict)
    cause: str = ""  # why everybody owes, if nobody is guilty
    cause_text: str = ""

    @property
    def where(self) -> str:
        return f"{self.result['step']}/heat{self.result['heat']}/{self.workload}/{self.group}"

    def guilty(self) -> set[str]:
        return {f["node"] for f in self.findings if f["scope"] == "node"}


def judge_heat(plan: Mapping[str, Any], results: Mapping[tuple[str, str], Result], context: Context) -> dict[str, Any]:
    """Return the gate of a heat (gate.schema.json, without `drained`).

    `results` maps (workload, group) to result.json; a planned run without a result is a programming error (KeyError):
    Snakemake does not start a gate before every run has one.
    """
    runs = [
        _Run(results[workload, name], workload, name, list(group["nodes"]))
        for name, group in plan["groups"].items()
        for workload in group["workloads"]
    ]
    places = gpu_places([*context.earlier, *(r.result for r in runs)], context.gpus_per_node)
    for run in runs:
        _look(run, context, places)
    _configuration(runs, plan)
    _compare(runs, context)
    if plan["step"] == "halves":
        _overlap(runs, context)
    return _decide(plan, runs, context)


# ---------------------------------------------------------------------------------------------------------- one run


def _look(run: _Run, context: Context, places: Places) -> None:
    """Collect what the run's own evidence says."""
    result = run.result
    _signals(run, context, places)
    _xids(run, context, places)
    casualty = result["casualty"]
    if casualty:
        _casualty(run, casualty)
    elif result["state"] == "skipped":
        run.cause, run.cause_text = "not_run", result["reason"]
    elif result["state"] == "stopped" and result["reason"].startswith("hang"):
        _trouble(
            run,
            "hang",
            result["reason"],
            "look at the stacks of the ranks; rerun with NCCL_DEBUG=INFO",
            _last_output(run),
        )
    if result["state"] in ("complete", "stopped"):
        _iterations(run, context)
        _probes(run)
    if result["step"] == "resume" and result["state"] == "complete":
        for item in resume.judge(result, context.criteria["loss_band"]):
            run.findings.append(_finding(run, None, {**item, "scope": "config"}))


def _signals(run: _Run, context: Context, places: Places) -> None:
    """Turn the signals that count into findings and group-level trouble."""
    for seen in counting(run.result, context.gpus_per_node, STATE_KINDS, places):
        row = signature_of(seen)
        if row is None or row.scope == "note":
            continue
        if seen["kind"] == "link_effective_ber" and (seen.get("value") or 0.0) <= context.criteria["fabric_ber"]:
            continue
        if row.scope == "node" and seen["node"]:
            run.findings.append(_of_signature(run, seen["node"], seen, row, "node"))
        elif row.scope == "config":
            run.findings.append(_of_signature(run, seen["node"], seen, row, "config"))
        elif len(run.nodes) == 1:
            run.findings.append(_of_signature(run, run.nodes[0], seen, row, "node"))
        else:
            action = row.action.format(part="the part")
            _trouble(run, row.fault, f"{seen['kind']}: {seen['text']}"[:300], action, _place(run, seen), seen["text"])


def _xids(run: _Run, context: Context, places: Places) -> None:
    """Judge the Xids that the probes showed, with the Xid table."""
    shown = [s for s in run.result["signals"] if s["kind"] == "xid"]
    if not shown:
        return
    table = context.xid_table or xid.load_table(overrides=context.criteria["xid"])
    events: dict[bool, list[xid.XidEvent]] = {True: [], False: []}
    for seen in shown:
        node = node_of(seen, run.nodes, context.gpus_per_node)
        if node is None:
            continue
        event = xid.XidEvent(
            node=node,
            code=int(seen.get("value") or 0),
            text=seen["text"],
            gpu=gpu_of(seen, node, places),
            bdf=seen.get("bdf"),
            line=seen["line"],
            source=f"{run.where}/{seen['file']}",
            run=run.where,
        )
        events[seen.get("when") == "before"].append(event)
    history = [e for r in context.earlier for e in _events_of(r, context)]
    for verdict in xid.judge_xids(events[False], table, None, None, history, before=events[True]):
        if verdict.counts and verdict.severity == "fatal":
            run.findings.append(_of_xid(run, verdict, table))


def _events_of(result: Result, context: Context) -> list[xid.XidEvent]:
    """Return the Xids of an earlier run, for the codes that only mean hardware when they repeat."""
    nodes = result["nodes"]
    found = []
    for seen in result["signals"]:
        node = node_of(seen, nodes, context.gpus_per_node)
        if seen["kind"] == "xid" and seen.get("when") != "before" and node:
            run = f"{result['step']}/heat{result['heat']}/{result['workload']}/{result['group']}"
            found.append(
                xid.XidEvent(
                    node=node,
                    code=int(seen.get("value") or 0),
                    text=seen["text"],
                    gpu=seen.get("gpu"),
                    bdf=seen.get("bdf"),
                    line=seen["line"],
                    run=run,
                    source=run,
                )
            )
    return found


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


def _of_xid(run: _Run, verdict: xid.XidVerdict, table: xid.XidTable) -> dict[str, Any]:
    """Return the finding of an Xid verdict."""
    return _finding(
        run,
        verdict.node,
        {
            "part": verdict.part,
            "fault": XID_FAULT.get(verdict.code, "gpu_slow"),
            "signal": f"xid {verdict.code}",
            "scope": "node",
            "value": float(verdict.code),
            "unit": "Xid",
            "limit": None,
            "limit_origin": f"{table.source} ({table.as_of})",
            "evidence": [f"{source}:{line}" for source, line in verdict.evidence],
            "quote": verdict.text,
            "reason": f"Xid {verdict.code} on {verdict.part}: {verdict.why}",
            "next_action": verdict.next_action,
            "rank": 2,
        },
    )


def _casualty(run: _Run, casualty: Mapping[str, Any]) -> None:
    """A job that died: the nodes it lost fail, otherwise its nodes owe."""
    state, text = casualty["state"], casualty["text"] or casualty["state"]
    lost = [n for n in casualty["lost"] if n in run.nodes]
    if state in ("NOT_STARTED", "DEADLINE"):
        run.cause, run.cause_text = "not_started", text
        for node in lost:
            run.unread[node] = "withdrawn"
        return
    if state not in ("CANCELLED", "PREEMPTED", "TIMEOUT"):
        for node in lost:
            run.findings.append(
                _finding(
                    run,
                    node,
                    {
                        "part": "node",
                        "fault": "node_crash",
                        "signal": state,
                        "scope": "node",
                        "value": None,
                        "unit": None,
                        "limit": None,
                        "limit_origin": "zero tolerance",
                        "evidence": [f"{run.where}/result.json:1"],
                        "quote": text,
                        "reason": f"the node was lost during the run: {text}"[:400],
                        "next_action": "look at the node's console and BMC event log before it is used again",
                        "rank": 0,
                    },
                )
            )
    run.cause, run.cause_text = DEATHS.get(state, "died"), text


def _iterations(run: _Run, context: Context) -> None:
    """Every iteration of the window must be there, complete and passed."""
    result = run.result
    for item in result["iterations"]:
        if item["verdict"] == "pass" and item["exit"] == 0 and item["ended"] == "itself":
            continue
        if run.result["step"] == "resume" and item["ended"] == "interrupted":
            continue
        problem = item["problems"][0] if item["problems"] else f"exit status {item['exit']}"
        text = f"iteration {item['iteration']} ({item['command']}) is {item['verdict']}: {problem}"
        _trouble(run, "", text[:400], "read the output of the iteration", [f"{run.where}/{item['output']}:1"])
        return
    wanted = result["window"].get("iterations")
    done = len(result["iterations"])
    if result["state"] == "complete" and (done == 0 or (wanted and done < wanted)):
        _trouble(run, "", f"{done} of {wanted} iterations were found", "run it again", [f"{run.where}/result.json:1"])


def _probes(run: _Run) -> None:
    """Every node must have been read, before and after, by every tool."""
    for node in run.nodes:
        for when in ("before", "after"):
            seen = run.result["probes"].get(when, {}).get(node)
            if seen is None:
                run.unread[node] = f"no probe {when} the run"
                continue
            unknown = sorted(t for t, verdict in seen["tools"].items() if verdict == "unknown")
            if unknown or not seen["tools"]:
                why = f" ({seen['problems'][0]})" if seen["problems"] else ""
                run.unread[node] = f"{', '.join(unknown) or 'the probe'} could not be read {when} the run{why}"


def _trouble(run: _Run, fault: str, text: str, action: str, evidence: list[str], quote: str = "") -> None:
    """Note something that convicts the group, the first with a fault name leads."""
    if fault and not run.trouble_fault:
        run.trouble_fault, run.trouble_action, run.quote = fault, action, quote
        run.trouble.insert(0, text)
        run.evidence[:0] = evidence
    else:
        run.trouble.append(text)
        run.evidence += evidence


# ------------------------------------------------------------------------------------------------------- across runs


def _configuration(runs: Sequence[_Run], plan: Mapping[str, Any]) -> None:
    """Decide of config-like findings whether they are one node's or the campaign's.

    What shows on one node while others of the heat are free of it is that node's (a left-over process, another driver);
    what shows on most, or cannot be told apart, is the configuration's, and nobody fails.
    """
    for workload in {r.workload for r in runs}:
        mine = [r for r in runs if r.workload == workload and r.result["state"] != "skipped"]
        everybody = {n for r in mine for n in r.nodes}
        for fault in {f["fault"] for r in mine for f in r.findings if f["scope"] == "config"}:
            touched: set[str] = set()
            for run in mine:
                for item in run.findings:
                    if item["scope"] == "config" and item["fault"] == fault:
                        touched |= {item["node"]} if item["node"] else set(run.nodes)
            if plan["step"] != "resume" and len(touched) * 2 < len(everybody):
                for run in mine:
                    _narrow(run, fault)
        dead = [
            r for r in mine if r.trouble and not r.trouble_fault and not r.findings and r.result["state"] != "casualty"
        ]
        if (len(dead) >= 2 and len(dead) * 2 >= len(mine)) or (len(dead) == len(mine) == 1 and _not_started(dead[0])):
            for run in dead:
                run.findings.append(
                    _finding(
                        run,
                        None,
                        {
                            "part": "config",
                            "fault": "driver_mismatch",
                            "signal": "incomplete",
                            "scope": "config",
                            "value": None,
                            "unit": None,
                            "limit": None,
                            "limit_origin": "most runs of the heat failed alike, without a sign of hardware",
                            "evidence": run.evidence[:3],
                            "quote": run.quote,
                            "reason": run.trouble[0],
                            "next_action": "run the command line of one iteration by hand; correct workload_definitions",
                            "rank": 90,
                        },
                    )
                )


def _not_started(run: _Run) -> bool:
    """Tell whether the command itself could not be started: never a node's fault."""
    return any("could not be started" in t or "127" in t for t in [*run.trouble, run.result["reason"]])


def _narrow(run: _Run, fault: str) -> None:
    """Turn the config-like findings of a minority into findings on the nodes that showed them."""
    rename = {"oom_all_nodes": "oom_one_node"}
    for item in run.findings:
        if item["scope"] == "config" and item["fault"] == fault:
            node = item["node"] or (run.nodes[0] if len(run.nodes) == 1 else None)
            if node is None:
                item["scope"] = "group"
                _trouble(
                    run, rename.get(fault, fault), item["reason"], item["next_action"], item["evidence"], item["quote"]
                )
            else:
                item.update(
                    scope="node",
                    node=node,
                    fault=rename.get(fault, fault),
                    part="node" if fault == "oom_all_nodes" else item["part"],
                )
                if fault == "oom_all_nodes":
                    item["next_action"] = (
                        "look on this node for a left-over process, MIG, another GPU model (nvidia-smi)"
                    )
    run.findings = [f for f in run.findings if not (f["scope"] == "group" and f["fault"] == fault)]


def value_of(result: Result, command: str) -> tuple[float, str] | None:
    """Return the median of a command's values in a run and the evidence of the value next to it, or None."""
    found = [
        (i["value"], f"{i['output']}:{i['value_line'] or 1}")
        for i in result["iterations"]
        if i["command"] == command and i["value"] is not None
    ]
    if not found:
        return None
    middle = median(v for v, _ in found)
    return middle, min(found, key=lambda f: abs(f[0] - middle))[1]


def _compare(runs: Sequence[_Run], context: Context) -> None:
    """Compare every finished run with its peers (same step, workload, command, size) and with the pinned baseline."""
    for run in runs:
        if run.result["state"] != "complete" or run.result["step"] == "resume":
            continue
        for command in context.definitions[run.workload]["commands"]:
            mine = value_of(run.result, command)
            if mine is None:
                continue
            metric = context.definitions[run.workload]["metric"]
            worse = _below(metric)
            others = [r.result for r in runs if r is not run] + list(context.earlier)
            peers = [
                v[0]
                for o in others
                if o["workload"] == run.workload
                and o["state"] == "complete"
                and _alike(o, run.result)
                and (v := value_of(o, command))
            ]
            _against_peers(run, command, metric, mine, peers, worse, context)
            _against_baseline(run, command, metric, mine, worse, context)


def _below(metric: str) -> int:
    """Return +1 if smaller values are worse, -1 if larger ones are."""
    return -1 if metric == "step_time" else 1


def _alike(one: Result, other: Result) -> bool:
    """Tell whether two runs are of the same size (the two halves may differ by a node)."""
    return abs(len(one["nodes"]) - len(other["nodes"])) <= (1 if other["step"] == "halves" else 0)


def _against_peers(
    run: _Run, command: str, metric: str, mine: tuple[float, str], peers: list[float], worse: int, context: Context
) -> None:
    """Mark the run as slow if it is an outlier on the bad side: beyond the tolerance and beyond k x MAD."""
    limits = context.criteria["spread"].get(run.workload)
    if limits is None or len(peers) + 1 < limits["least_peers"]:
        return
    middle = median([*peers, mine[0]])
    spread = median(abs(v - middle) for v in [*peers, mine[0]])
    allowed = max(limits["tolerance"] * middle, context.criteria["mad_factor"] * spread)
    if (middle - mine[0]) * worse > allowed:
        limit = middle - worse * allowed
        _slow(
            run,
            command,
            metric,
            mine,
            middle,
            limit,
            f"peers: median of {len(peers) + 1} of this step, tolerance {limits['tolerance']:.0%}",
            context,
        )


def _against_baseline(
    run: _Run, command: str, metric: str, mine: tuple[float, str], worse: int, context: Context
) -> None:
    """Mark the run as slow if it is outside the band of the baseline of its own size."""
    for base in context.criteria["baselines"]:
        if (base["workload"], base["command"], base["nodes"]) == (run.workload, command, len(run.nodes)):
            limit = base["value"] * (1 - worse * base["band"])
            if (limit - mine[0]) * worse > 0:
                _slow(
                    run,
                    command,
                    metric,
                    mine,
                    base["value"],
                    limit,
                    f"{base['origin']} of {base['date']}, band {base['band']:.0%}",
                    context,
                )


def _slow(
    run: _Run,
    command: str,
    metric: str,
    mine: tuple[float, str],
    reference: float,
    limit: float,
    origin: str,
    context: Context,
) -> None:
    """Note that the run is slower than allowed, the worst comparison wins."""
    unit = {"busbw": "GB/s", "gflops": "GFLOPS", "step_time": "s", "f1": "%"}[metric]
    distance = abs(mine[0] - reference) / reference
    if run.slow is None or distance > run.slow["distance"]:
        run.slow = {
            "distance": distance,
            "fault": SLOW_FAULT[metric],
            "value": mine[0],
            "unit": unit,
            "limit": limit,
            "limit_origin": f"{origin} ({context.criteria['source']}, {context.criteria['date']})",
            "evidence": [f"{run.where}/{mine[1]}"],
            "reason": f"{command} {mine[0]:.4g} {unit} is {distance:.0%} from {reference:.4g} {unit}, limit {limit:.4g} {unit}",
        }


def _overlap(runs: Sequence[_Run], context: Context) -> None:
    """The two halves must have been under load together: proven from the times of their iterations."""
    for workload in {r.workload for r in runs}:
        pair = [r for r in runs if r.workload == workload and r.result["state"] == "complete"]
        if len(pair) != 2:
            for run in pair:
                run.cause, run.cause_text = run.cause or "overlap", run.cause_text or "the other half did not finish"
            continue
        spans = [
            (r.result["iterations"][0]["start"], r.result["iterations"][-1]["end"])
            for r in pair
            if r.result["iterations"]
        ]
        if len(spans) != 2:
            continue
        together = min(e for _, e in spans) - max(s for s, _ in spans)
        shorter = min(e - s for s, e in spans)
        share = max(0.0, together) / shorter if shorter > 0 else 0.0
        if share < context.criteria["halves_overlap"]:
            for run in pair:
                run.cause = run.cause or "overlap"
                run.cause_text = run.cause_text or (
                    f"the halves ran together for {share:.0%} of their time, limit {context.criteria['halves_overlap']:.0%}: not tested"
                )


# ---------------------------------------------------------------------------------------------------------- decision


def _decide(plan: Mapping[str, Any], runs: Sequence[_Run], context: Context) -> dict[str, Any]:
    """Put everything together into the gate."""
    failed: dict[str, dict[str, Any]] = {}
    findings: list[dict[str, Any]] = []
    owes: dict[str, dict[str, str]] = {}
    passed: dict[str, list[str]] = {}
    hours: dict[str, dict[str, float]] = {}
    withdrawn: dict[str, str] = {}
    suspects: list[dict[str, Any]] = []
    stopped: dict[str, str] | None = None
    notes: list[str] = []
    isolation: dict[tuple[str, ...], list[tuple[_Run, Mapping[str, Any], str]]] = {}
    for run in runs:
        group = plan["groups"][run.group]
        guilty = run.guilty()
        config = [f for f in run.findings if f["scope"] == "config"]
        if not guilty and not config and not run.cause and (run.trouble or run.slow):
            if len(run.nodes) == 1 or (group["isolation"] and len(group["isolation"]["suspects"]) == 1):
                who = run.nodes[0] if len(run.nodes) == 1 else group["isolation"]["suspects"][0]
                run.findings.append(_convict(run, who))
                guilty = {who}
        findings += run.findings
        for node in guilty:
            best = min((f for f in run.findings if f["node"] == node and f["scope"] == "node"), key=lambda f: f["rank"])
            if node not in failed or best["rank"] < failed[node]["rank"]:
                failed[node] = best
        verdict = "passed"
        if guilty:
            verdict = "partner"
            for node in run.nodes:
                if node not in guilty:
                    owes.setdefault(
                        node, {"cause": "partner", "text": f"{', '.join(sorted(guilty))} failed in {run.where}"}
                    )
        elif config:
            verdict = "config"
            for node in run.nodes:
                owes[node] = {"cause": "config", "text": config[0]["reason"]}
            stopped = stopped or {
                "kind": config[0]["fault"],
                "text": f"{run.where}: {config[0]['reason']}",
                "cure": config[0]["next_action"],
            }
        elif run.cause:
            verdict = run.cause
            for node in run.nodes:
                if run.unread.get(node) == "withdrawn":
                    withdrawn[node] = run.cause_text
                else:
                    owes.setdefault(node, {"cause": run.cause, "text": run.cause_text})
        elif run.trouble or run.slow:
            verdict = "suspect"
            if not group["isolation"]:
                reason = (run.trouble or [run.slow["reason"] if run.slow else ""])[0]
                suspects.append(
                    {
                        "workload": run.workload,
                        "nodes": list(group["nodes"]),
                        "size": len(group["nodes"]),
                        "unresolved": False,
                        "reason": f"{run.where}: {reason}",
                    }
                )
        else:
            spent = run.result["hours"]
            for node in run.nodes:
                if node in run.unread:
                    owes.setdefault(node, {"cause": "inconclusive", "text": f"{run.where}: {run.unread[node]}"})
                else:
                    passed.setdefault(node, []).append(run.workload)
                    hours.setdefault(node, {})[run.workload] = spent
        if group["isolation"]:
            isolation.setdefault(tuple(group["isolation"]["of"]), []).append((run, group, verdict))
    links: list[dict[str, Any]] = []
    for of, parts in isolation.items():
        _isolated(of, parts, suspects, links)
    stopped = _limits(plan, owes, failed, passed, context, stopped, findings, runs)
    outcome = _outcome(plan, failed, owes, passed, suspects, withdrawn)
    return {
        "campaign": plan["campaign"],
        "step": plan["step"],
        "heat": plan["heat"],
        "criteria": context.criteria_digest,
        "outcome": outcome,
        "passed": {n: w for n, w in passed.items() if n not in failed},
        "owes": {n: o for n, o in owes.items() if outcome.get(n) == "owes"},
        "hours": hours,
        "findings": [
            {k: v for k, v in f.items() if k != "rank"}
            for f in sorted(findings, key=lambda f: (str(f["node"]), f["rank"]))
        ],
        "withdrawn": {n: w for n, w in withdrawn.items() if outcome.get(n) == "withdrawn"},
        "suspects": suspects,
        "links": links,
        "stopped": stopped,
        "invocation": context.invocation,
        "groups": {name: list(g["nodes"]) for name, g in plan["groups"].items()},
        "notes": notes,
    }


def _convict(run: _Run, node: str) -> dict[str, Any]:
    """Return the finding on the one node that a run's trouble or slowness can only come from."""
    if run.trouble:
        fault = run.trouble_fault or "node_crash"
        action = run.trouble_action or "read the output of the run; run dcgmi diag -r 3 on the node"
        return _finding(
            run,
            node,
            {
                "part": "node",
                "fault": fault,
                "signal": fault,
                "scope": "node",
                "value": None,
                "unit": None,
                "limit": None,
                "limit_origin": "zero tolerance",
                "evidence": run.evidence[:5] or [f"{run.where}/result.json:1"],
                "quote": run.quote,
                "reason": run.trouble[0],
                "next_action": action,
                "rank": 80,
            },
        )
    slow = run.slow or {}
    return _finding(
        run,
        node,
        {
            "part": "node",
            "fault": slow["fault"],
            "signal": "slow",
            "scope": "node",
            "value": slow["value"],
            "unit": slow["unit"],
            "limit": slow["limit"],
            "limit_origin": slow["limit_origin"],
            "evidence": slow["evidence"],
            "quote": "",
            "reason": slow["reason"],
            "next_action": "look at throttle reasons, clocks, power and links of the node, then dcgmi diag -r 3",
            "rank": 81,
        },
    )


def _isolated(
    of: tuple[str, ...],
    parts: Sequence[tuple[_Run, Mapping[str, Any], str]],
    suspects: list[dict[str, Any]],
    links: list[dict[str, Any]],
) -> None:
    """Read the parts of a suspect set: the part that fails again stays suspect; if none does, the cut is the finding."""
    again = [(run, group) for run, group, verdict in parts if verdict == "suspect"]
    waiting = [(run, group) for run, group, verdict in parts if verdict not in ("suspect", "passed", "partner")]
    for run, group in [*again, *waiting]:
        suspects.append(
            {
                "workload": run.workload,
                "nodes": list(group["isolation"]["suspects"]),
                "size": len(group["nodes"]),
                "unresolved": False,
                "reason": f"{run.where}: {(run.trouble or [run.cause_text or 'slow'])[0]}",
            }
        )
    if all(verdict == "passed" for _, _, verdict in parts):
        run = parts[0][0]
        between = [list(group["isolation"]["suspects"]) for _, group, _ in parts]
        reason = f"{', '.join(of)} failed {run.workload} together and passed apart: the fault is between the parts, or comes and goes"
        suspects.append(
            {"workload": run.workload, "nodes": list(of), "size": len(of), "unresolved": True, "reason": reason}
        )
        links.append(
            {
                "between": between,
                "fault": "fabric_slow",
                "reason": reason,
                "evidence": [f"{r.where}/result.json:1" for r, _, _ in parts],
            }
        )


def _limits(
    plan: Mapping[str, Any],
    owes: dict[str, dict[str, str]],
    failed: dict[str, dict[str, Any]],
    passed: dict[str, list[str]],
    context: Context,
    stopped: dict[str, str] | None,
    findings: list[dict[str, Any]],
    runs: Sequence[_Run],
) -> dict[str, str] | None:
    """Apply the rerun limit: evidence that one node alone does not give fails it; what nobody is to blame for stops."""
    unread_here = [n for n, o in owes.items() if o["cause"] == "inconclusive"]
    everybody = {n for g in plan["groups"].values() for n in g["nodes"]}
    for node, entry in owes.items():
        if node in failed or entry["cause"] not in COUNTED:
            continue
        since = 0
        for gate in reversed(context.gates):
            if gate.get("stopped"):
                break  # the operator went on after a stop: the count starts anew
            since += gate["owes"].get(node, {}).get("cause") in COUNTED
        if since < context.rerun_limit:
            continue
        if entry["cause"] == "inconclusive" and len(unread_here) * 2 <= len(everybody) and len(everybody) > 1:
            run = next(r for r in runs if node in r.nodes and node in r.unread)
            finding = _finding(
                run,
                node,
                {
                    "part": "node",
                    "fault": "probe_unreadable",
                    "signal": "unreadable",
                    "scope": "node",
                    "value": float(since + 1),
                    "unit": "heats",
                    "limit": float(context.rerun_limit),
                    "limit_origin": "config rerun_limit",
                    "evidence": _probe_evidence(run, node),
                    "quote": "",
                    "reason": f"this node alone gave no evidence in {since + 1} heats: {entry['text']}",
                    "next_action": "make the tool work on this node (driver, BMC, rights); without evidence it does not pass",
                    "rank": 95,
                },
            )
            failed[node] = finding
            findings.append(finding)
        elif stopped is None:
            cures = {
                "time_limit": "raise slurm.time_limit_minutes or shorten the window",
                "cancelled": "find out who cancels the jobs; then start snakemake again",
                "inconclusive": "the probe commands do not work on most nodes: correct config key probes.commands",
            }
            stopped = {
                "kind": entry["cause"],
                "text": f"{plan['step']} was run {since + 1} times for {node} without a result: {entry['text']}",
                "cure": cures.get(entry["cause"], "remove the cause; then start snakemake again"),
            }
    return stopped


def _probe_evidence(run: _Run, node: str) -> list[str]:
    """Return the probe files of a node."""
    files = [seen[node]["file"] for seen in run.result["probes"].values() if node in seen and seen[node].get("file")]
    return [f"{run.where}/{f}:1" for f in files] or [f"{run.where}/result.json:1"]


def _outcome(
    plan: Mapping[str, Any],
    failed: Mapping[str, Any],
    owes: dict[str, dict[str, str]],
    passed: Mapping[str, list[str]],
    suspects: Sequence[Mapping[str, Any]],
    withdrawn: Mapping[str, str],
) -> dict[str, str]:
    """Return every node's outcome: failed before suspect before withdrawn before owes before passed."""
    suspected = {n for s in suspects for n in s["nodes"]}
    outcome: dict[str, str] = {}
    for group in plan["groups"].values():
        for node in group["nodes"]:
            if node in failed:
                outcome[node] = "failed"
            elif node in suspected:
                outcome[node] = "suspect"
            elif node in withdrawn:
                outcome[node] = "withdrawn"
            elif set(group["workloads"]) <= set(passed.get(node, [])) or (
                node not in group["owed"] and node not in owes
            ):
                outcome[node] = "passed"
            else:
                owes.setdefault(node, {"cause": "not_run", "text": "not all workloads of the step were run"})
                outcome[node] = "owes"
    return outcome


# ---------------------------------------------------------------------------------------------------------- findings


def _place(run: _Run, seen: Mapping[str, Any]) -> list[str]:
    """Return file:line of a signal, relative to the campaign."""
    return [f"{run.where}/{seen['file']}:{seen['line']}"]


def _last_output(run: _Run) -> list[str]:
    """Return the output of the last iteration."""
    items = [*run.result["iterations"], *run.result["interrupted"]]
    return [f"{run.where}/{items[-1]['output']}:1"] if items else [f"{run.where}/result.json:1"]


def _of_signature(run: _Run, node: str | None, seen: Mapping[str, Any], row: Signature, scope: str) -> dict[str, Any]:
    """Return the finding of a signal that fits a row of the table."""
    part = row.part(seen)
    growth = f" (+{seen['growth']:g} in this run)" if seen.get("growth") is not None else ""
    return _finding(
        run,
        node,
        {
            "part": part,
            "fault": row.fault,
            "signal": seen["kind"],
            "scope": scope,
            "value": seen.get("value"),
            "unit": seen.get("unit"),
            "limit": seen.get("limit"),
            "limit_origin": "zero tolerance",
            "evidence": _place(run, seen),
            "quote": seen["text"],
            "reason": f"{row.fault} on {part}: {seen['text'].strip()}{growth}"[:400],
            "next_action": row.action.format(part=part),
            "rank": row.rank,
        },
    )


def _finding(run: _Run, node: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding in the form of gate.schema.json, plus `rank`."""
    return {
        "node": node,
        "step": run.result["step"],
        "heat": run.result["heat"],
        "workload": run.workload,
        "group": run.group,
        "zero_tolerance": fields["limit_origin"] == "zero tolerance" or str(fields["signal"]).startswith("xid"),
        **fields,
    }
