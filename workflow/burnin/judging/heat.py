# SPDX-License-Identifier: Apache-2.0
"""The gate: the outcome of every node of a heat, from its plan and its results. Pure.

Order of reasoning for a run: (1) is somebody known to be guilty: he fails, his partners owe; (2) is it the
configuration: nobody fails, the campaign stops with a cure (a node that alone shows another stack is withdrawn); (3) did its
job die, was it cancelled, did it not start: the nodes owe; (4) did the group fail with nobody known: a node alone fails, a
group is suspect; (5) is it slow among its peers or below its baseline: likewise; (6) is evidence missing: owes; (7) passed.
Unknown is never pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnin.judging import diagnosis, isolating, rerun_limit, resume, xids
from burnin.judging.attribution import Places, gpu_places
from burnin.judging.rerun_limit import COUNTED
from burnin.judging.run import PARTNER, Context, Lack, Result, Run, ended_well
from burnin.judging.signatures import CONSOLE

DEATHS = {
    "CANCELLED": "cancelled",
    "PREEMPTED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "not_started",
    "NOT_STARTED": "not_started",
}
#: Keys of a finding that only judging needs.
INTERNAL = ("rank", "everywhere")


def judge_heat(plan: Mapping[str, Any], results: Mapping[tuple[str, str], Result], context: Context) -> dict[str, Any]:
    """Return the gate of a heat (gate.schema.json, without `drained`).

    `results` maps (workload, group) to result.json; a planned run without a result is a programming error (KeyError):
    Snakemake does not start a gate before every run has one.
    """
    runs = [
        Run(results[workload, name], workload, name, list(group["nodes"]), str(context.criteria["date"]))
        for name, group in plan["groups"].items()
        for workload in group["workloads"]
    ]
    places = gpu_places([*context.earlier, *(r.result for r in runs)], context.gpus_per_node)
    for run in runs:
        _look(run, context, places)
    notes = [n for r in runs for n in r.notes]
    diagnosis.other_stack(runs, plan)
    diagnosis.configuration(runs, plan, context)
    notes += diagnosis.compare(runs, context)
    if plan["step"] == "halves":
        _overlap([r for r in runs if not plan["groups"][r.group]["isolation"]], context)
    return _decide(plan, runs, context, notes)


# ---------------------------------------------------------------------------------------------------------- one run


def _look(run: Run, context: Context, places: Places) -> None:
    """Collect what the run's own evidence says."""
    result = run.result
    diagnosis.signals(run, context, places)
    verdicts = xids.judge(run, context, places)
    diagnosis.contradictions(run, verdicts)
    casualty = result["casualty"]
    if casualty:
        _casualty(run, casualty)
    elif result["state"] == "skipped":
        run.cause, run.cause_text = "not_run", result["reason"]
    elif result["state"] == "stopped" and result["reason"].startswith("hang"):
        action = (
            "a collective or a process is stuck: rerun with NCCL_DEBUG=INFO; nccl-tests on subsets of the nodes and per "
            "rail; link counters; ibdiagnet; stacks of the ranks"
        )
        run.note_trouble("hang", result["reason"], action, run.last_output())
    if result["state"] in ("complete", "stopped"):
        _iterations(run)
        _probes(run)
    if result["state"] == "stopped":
        _stopped(run)
    if result["step"] == "resume" and result["state"] == "complete":
        for item in resume.judge(result, context.criteria["loss_band"]):
            run.findings.append(run.finding(None, **{**item, "scope": "config"}))


def _casualty(run: Run, casualty: Mapping[str, Any]) -> None:
    """A job that died: the nodes it lost fail, otherwise its nodes owe."""
    state, text = casualty["state"], casualty["text"] or casualty["state"]
    lost = [n for n in casualty["lost"] if n in run.nodes]
    if state in ("NOT_STARTED", "DEADLINE"):
        run.cause, run.cause_text = "not_started", text
        run.withdrawn |= dict.fromkeys(lost, text)
        return
    if state not in ("CANCELLED", "PREEMPTED", "TIMEOUT"):
        for node in lost:
            run.findings.append(
                run.finding(
                    node,
                    part="node",
                    fault="node_crash",
                    signal=state,
                    scope="node",
                    evidence=[f"{run.where}/result.json:1"],
                    quote=text,
                    reason=f"the node was lost during the run: {text}"[:400],
                    next_action=CONSOLE,
                    confidence="certain",
                    rank=0,
                )
            )
    run.cause, run.cause_text = DEATHS.get(state, "died"), text


def _iterations(run: Run) -> None:
    """Every iteration of the window must be there, complete and passed."""
    result = run.result
    for item in result["iterations"]:
        if item["verdict"] == "pass" and ended_well(item) and item["ended"] == "itself":
            continue
        if run.result["step"] == "resume" and item["ended"] == "interrupted":
            continue
        problem = item["problems"][0] if item["problems"] else f"exit status {item['exit']}"
        text = f"iteration {item['iteration']} ({item['command']}) is {item['verdict']}: {problem}"
        if item["verdict"] == "unknown" and len(run.nodes) == 1 and (item["exit"] == 0 or result["step"] == "retest"):
            # a program that ended well and whose output is cut, or a diagnostic that did not speak, convicts nobody
            _no_evidence(run, _cut(run, item, text))
            return
        run.note_trouble("", text[:400], "read the output of the iteration", [f"{run.where}/{item['output']}:1"])
        return
    if result["state"] == "complete":
        _window(run)


def _window(run: Run) -> None:
    """The window must be full, and no iteration missing between the first and the last."""
    result = run.result
    numbers = [i["iteration"] for i in result["iterations"]]
    wanted, hours = result["window"].get("iterations"), result["window"].get("hours")
    if not numbers or (wanted and len(numbers) < wanted):
        of = f" of {wanted}" if wanted else ""
        _no_evidence(run, _not_on_record(run, f"{len(numbers)}{of} iterations were found"))
    elif missing := sorted(set(range(max(numbers))) - set(numbers)):
        _no_evidence(run, _not_on_record(run, f"iteration {missing[0]} is missing"))
    elif hours and result["hours"] < hours * (1 - 1e-6):
        _no_evidence(run, _not_on_record(run, f"{result['hours']:.3g} of {hours:g} hours were run"))


def _cut(run: Run, item: Mapping[str, Any], text: str) -> Lack:
    """Return what is missing of an iteration whose program ended well: the end of its output, where it is cut."""
    key = "retest.command" if run.result["step"] == "retest" else f"workload_definitions.{run.workload}"
    cure = (
        f"see how the output ends and why (quota, lost writes of the shared storage), or correct the command line ({key}): "
        "it ended well and printed no whole result"
    )
    return Lack(text, cure, (run.at(f"{item['output']}:{item['facts'].get('lines', 1)}"),))


def _not_on_record(run: Run, text: str) -> Lack:
    """Return what is missing of a run that says that its window is full: iterations that its journal should have."""
    cure = (
        "the run ended as if its window were full: find out what happened to its journal and outputs (lost writes of the "
        "shared storage, files that somebody removed)"
    )
    items = run.result["iterations"]
    folder = items[0]["output"].rpartition("/")[0] if items else ""
    return Lack(text, cure, (run.at(f"{folder}/journal.jsonl:1" if folder else "result.json:1"),))


def _no_evidence(run: Run, lack: Lack) -> None:
    """What should prove that the run passed is missing: no pass and no fault; a node alone answers for its own evidence."""
    if len(run.nodes) == 1:
        run.lacks(run.nodes[0], lack)
    elif not run.cause:
        run.cause, run.cause_text, run.lack = "inconclusive", lack.text, lack


def _stopped(run: Run) -> None:
    """A run that was ended early has not filled its window: if nothing else says why, that alone is no pass."""
    if run.findings or run.trouble or run.cause or set(run.nodes) <= run.unread.keys():
        return
    reason = run.result["reason"]
    if run.result["step"] == "halves" and not run.result["iterations"]:
        _apart(run, reason)
    else:
        run.note_trouble("", f"the run was stopped: {reason}"[:400], "read why the run was stopped", run.last_output())


def _probes(run: Run) -> None:
    """Every node must have been read, before and after, by every tool (a retest is itself the reading)."""
    if run.result["step"] == "retest":
        return
    for node in run.nodes:
        for when in ("before", "after"):
            seen = run.result["probes"].get(when, {}).get(node)
            if seen is None:
                cure = (
                    "the run ended without that probe on record: see what its log says of it (config key probes.launch)"
                )
                run.lacks(node, Lack(f"no probe {when} the run", cure, (run.at("result.json:1"),)))
                continue
            unknown = sorted(t for t, verdict in seen["tools"].items() if verdict == "unknown")
            if unknown or not seen["tools"]:
                run.lacks(node, _unread(run, seen, unknown, when))
        _unexplained(run, node)


def _unread(run: Run, seen: Mapping[str, Any], tools: Sequence[str], when: str) -> Lack:
    """Return what is missing of a node's probe: some of its commands, or all of it."""
    why = f" ({seen['problems'][0]})" if seen["problems"] else ""
    text = f"{', '.join(tools) or 'the probe'} could not be read {when} the run{why}"
    if not seen.get("file") or not tools:
        cure = "the probe left nothing of the node: correct config key probes.launch, or what keeps it from the node"
        return Lack(text, cure, (run.at("result.json:1"),))
    keys = ", ".join(dict.fromkeys(f"probes.commands.{t.partition(':')[0]}" for t in tools))
    cure = f"correct config key {keys}, or make it work on the node (driver, BMC, rights)"
    return Lack(text, cure, (run.at(f"{seen['file']}:1"),))


def _unexplained(run: Run, node: str) -> None:
    """A tool that found a failure only after the run is no pass, even if no row of the table knows what it saw.

    The kernel log is left out: what its new lines mean is the Xid table's and the signatures' to say.
    """
    before, after = (run.result["probes"].get(w, {}).get(node, {}).get("tools", {}) for w in ("before", "after"))
    new = sorted(t for t, v in after.items() if v == "fail" and before.get(t) == "pass" and t != "dmesg")
    if new and node not in run.unread and not any(f["node"] == node for f in run.findings):
        text = f"{', '.join(new)} found a failure in this run that no criterion names"
        cure = f"read what {', '.join(new)} found on the node, and repair that"
        file = run.result["probes"]["after"][node].get("file")
        run.lacks(node, Lack(text, cure, (run.at(f"{file}:1" if file else "result.json:1"),)))


# ------------------------------------------------------------------------------------------------------- across runs


#: How far apart two runs that a barrier releases may start on a busy machine.
START_SKEW_SECONDS = 0.5


def _overlap(runs: Sequence[Run], context: Context) -> None:
    """The two halves must have been under load together: proven from the times of their iterations."""
    for workload in {r.workload for r in runs}:
        pair = [r for r in runs if r.workload == workload and r.result["state"] == "complete"]
        if len(pair) != 2:
            for run in pair:
                # what kept the other half from finishing is counted there
                run.cause, run.cause_text = run.cause or PARTNER, run.cause_text or "the other half did not finish"
            continue
        spans = [
            (r.result["iterations"][0]["start"], r.result["iterations"][-1]["end"])
            for r in pair
            if r.result["iterations"]
        ]
        if len(spans) != 2:
            continue
        share, limit = together(spans[0], spans[1]), context.criteria["halves_overlap"]
        for run in (r for r in pair if share < limit and not r.cause):
            _apart(run, f"the halves ran together for {share:.0%} of their time, limit {limit:.0%}: not tested")


def _apart(run: Run, text: str) -> None:
    """Note that a half was not under load together with the other."""
    cure = (
        "see why one half began or ended so much later than the other (a full queue, other jobs on the nodes: start and end "
        "of both results); slurm.start_timeout_minutes is how long one waits for the other"
    )
    run.cause, run.cause_text = "overlap", text
    run.lack = Lack(text, cure, (run.at("result.json:1"),))


def together(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the share of the shorter of two spans (start, end in s) in which both were under load."""
    both = min(one[1], other[1]) - max(one[0], other[0])
    shorter = min(one[1] - one[0], other[1] - other[0])
    # two processes do not start in the same instant: less than half a second is no lack of overlap
    slack = min(START_SKEW_SECONDS, shorter / 4)
    return min(1.0, max(0.0, both + slack) / shorter) if shorter > 0 else 0.0


# ---------------------------------------------------------------------------------------------------------- decision


def _decide(plan: Mapping[str, Any], runs: Sequence[Run], context: Context, notes: list[str]) -> dict[str, Any]:
    """Put everything together into the gate."""
    failed: dict[str, dict[str, Any]] = {}
    findings: list[dict[str, Any]] = []
    owes: dict[str, dict[str, str]] = {}
    passed: dict[str, list[str]] = {}
    hours: dict[str, dict[str, float]] = {}
    withdrawn = {n: why for run in reversed(runs) for n, why in run.withdrawn.items()}
    stopped: dict[str, str] | None = None
    isolated = isolating.isolate(plan, runs, _convict, context.topology)
    for run in runs:
        group = plan["groups"][run.group]
        guilty = run.guilty()
        config = [f for f in run.findings if f["scope"] == "config"]
        if not guilty and not config and not run.cause and (run.trouble or run.slow) and len(run.nodes) == 1:
            run.findings.append(_convict(run, run.nodes[0]))
            guilty = set(run.nodes)
        findings += run.findings
        for node in guilty:
            best = min((f for f in run.findings if f["node"] == node and f["scope"] == "node"), key=lambda f: f["rank"])
            if node not in failed or best["rank"] < failed[node]["rank"]:
                failed[node] = best
        if guilty:
            for node in run.nodes:
                if node not in guilty:
                    owes.setdefault(
                        node, {"cause": PARTNER, "text": f"{', '.join(sorted(guilty))} failed in {run.where}"}
                    )
        elif config:
            for node in run.nodes:
                owes[node] = {"cause": "config", "text": config[0]["reason"]}
            stopped = stopped or {
                "kind": config[0]["fault"],
                "text": f"{run.where}: {config[0]['reason']}",
                "cure": config[0]["next_action"],
            }
        elif run.cause:
            for node in run.nodes:
                if node not in run.withdrawn:
                    owes.setdefault(node, {"cause": run.cause, "text": run.cause_text})
        elif run.trouble or run.slow:
            for node in run.nodes:
                # whoever is under suspicion is so by `isolated`; the others just have no passing run
                owes.setdefault(node, {"cause": "suspect", "text": f"{run.where} failed, and nobody is known to blame"})
        else:
            spent = run.result["hours"]
            for node in run.nodes:
                if node in run.unread:
                    text = "; ".join(lack.text for lack in run.unread[node])
                    owes.setdefault(node, {"cause": "inconclusive", "text": f"{run.where}: {text}"})
                elif group["isolation"] and not group["isolation"].get("counts", True):
                    owes.setdefault(
                        node, {"cause": "suspect", "text": f"{run.where} is smaller or shorter than the step wants"}
                    )
                else:
                    passed.setdefault(node, []).append(run.workload)
                    hours.setdefault(node, {})[run.workload] = spent
    over = rerun_limit.apply(owes, failed, passed, context, runs)
    failed |= over.failed
    findings += over.failed.values()
    stopped = stopped or over.stopped
    outcome = _outcome(plan, failed, owes, passed, isolated.suspects, withdrawn)
    return {
        "campaign": plan["campaign"],
        "step": plan["step"],
        "heat": plan["heat"],
        "criteria": context.criteria_digest,
        "outcome": outcome,
        "passed": {n: w for n, w in passed.items() if n not in failed},
        # a suspect whose tests come to nothing owes too: that is counted, and stops the campaign in the end
        "owes": {
            n: o
            for n, o in owes.items()
            if outcome.get(n) == "owes" or (outcome.get(n) == "suspect" and o["cause"] in COUNTED)
        },
        "hours": hours,
        "findings": [
            {k: v for k, v in f.items() if k not in INTERNAL}
            for f in sorted(findings, key=lambda f: (str(f["node"]), f["rank"]))
        ],
        "withdrawn": {n: w for n, w in withdrawn.items() if outcome.get(n) == "withdrawn"},
        "suspects": isolated.suspects,
        "links": isolated.links,
        "trials": isolated.trials,
        "stopped": stopped,
        "invocation": context.invocation,
        "groups": {name: list(g["nodes"]) for name, g in plan["groups"].items()},
        "notes": list(dict.fromkeys(notes))[:200],
    }


def _convict(run: Run, node: str) -> dict[str, Any]:
    """Return the finding on the one node that a run's trouble or slowness can only come from."""
    if run.trouble or run.slow is None:
        fault = run.trouble_fault or "node_crash"
        return run.finding(
            node,
            part="node",
            fault=fault,
            signal=run.trouble_row.kind if run.trouble_row else fault,
            scope="node",
            evidence=run.evidence[:5] or [f"{run.where}/result.json:1"],
            quote=run.quote,
            reason=run.trouble[0],
            next_action=run.trouble_action or "read the output of the run; run dcgmi diag -r 3 on the node",
            rank=80,
        )
    slow = run.slow
    return run.finding(
        node,
        part="stack" if slow.fault == "nccl_on_sockets" else slow.part,
        fault=slow.fault,
        signal=f"slow ({slow.check})",
        scope="node",
        value=slow.value,
        unit=slow.unit,
        limit=slow.limit,
        limit_origin=slow.limit_origin,
        evidence=slow.evidence,
        reason=slow.reason,
        next_action=slow.next_action,
        rank=81,
    )


def _outcome(
    plan: Mapping[str, Any],
    failed: Mapping[str, Any],
    owes: dict[str, dict[str, str]],
    passed: Mapping[str, list[str]],
    suspects: Sequence[Mapping[str, Any]],
    withdrawn: Mapping[str, str],
) -> dict[str, str]:
    """Return every node's outcome: failed before withdrawn before suspect before owes before passed.

    A suspect that nobody can run any more is away; its case stays open. One that is given up stays suspect.
    """
    suspected = {n for s in suspects for n in s["nodes"]}
    given_up = {n for s in suspects if s["unresolved"] for n in s["nodes"]}
    outcome: dict[str, str] = {}
    for group in plan["groups"].values():
        for node in group["nodes"]:
            if node in failed:
                outcome[node] = "failed"
            elif node in withdrawn and node not in given_up:
                outcome[node] = "withdrawn"
            elif node in suspected:
                outcome[node] = "suspect"
            elif set(group["workloads"]) <= set(passed.get(node, [])) or (
                node not in group["owed"] and node not in owes
            ):
                outcome[node] = "passed"
            else:
                owes.setdefault(node, {"cause": "not_run", "text": "not all workloads of the step were run"})
                outcome[node] = "owes"
    return outcome
