# SPDX-License-Identifier: Apache-2.0
"""Judging logs that the workflow did not produce: readings of files in, the same findings and words out. Pure.

Nothing is known of such logs but what stands in them. Which host a file is of comes from its prefixes, its node list or
its name; what was there before the test is only known if there is a file from before (`before` or `pre` in its name).
Where it is not, a counter or an event counts with less confidence, and the finding says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnin import statistics, xid
from burnin.judging import diagnosis, performance
from burnin.judging.attribution import COUNTERS, FIRST_ONLY
from burnin.judging.run import Context, Run
from burnin.nodes import fold
from burnin.parsers.reading import Reading

#: Tools whose files are logs of jobs; all others look at one node (or at the fabric).
JOBS = ("nccl", "hpl", "nemo", "squad", "straggler", "slurm-step")
FABRIC = ("ibdiagnet", "ibqueryerrors", "sacct", "scontrol")
#: What a complete set of logs has of every node.
OF_EVERY_NODE = ("dmesg", "nvidia-smi", "dcgmi-health", "mlxlink", "ipmi")
METRIC = {"nccl": "busbw", "hpl": "gflops", "nemo": "step_time", "squad": "f1"}
#: Files named of those that no reader knows.
MOST_NAMED = 12
#: Stands for the nodes of a job that nothing names.
OTHERS = "(others)"
OLD = "nothing here shows whether it is older than the test: there is no file of the time before"

_BEFORE = re.compile(r"(?:^|[^a-z])(?:before|pre|baseline|start)(?:[^a-z]|$)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
_HOST = re.compile(r"[A-Za-z]+\d+|[A-Za-z]+(?:-[A-Za-z]+)*-\d+")
#: Letters that stand before a number without making a host's name.
_NO_HOST = frozenset(
    [
        "attempt",
        "fan",
        "gb",
        "gpu",
        "gpus",
        "h",
        "hca",
        "heat",
        "hpl",
        "iter",
        "job",
        "link",
        "log",
        "mlx",
        "n",
        "nccl",
        "nemo",
        "np",
        "nvlink",
        "out",
        "part",
        "port",
        "probe",
        "psu",
        "rank",
        "rtx",
        "run",
        "slurm",
        "squad",
        "step",
        "v",
        "x",
        "xid",
    ]
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file that was read: its path below the folder, the tool whose output it is, the reading."""

    path: str
    tool: str
    reading: Reading
    device: str | None = None

    @property
    def before(self) -> bool:
        """Tell whether its name says that it is from before the test."""
        return any(_BEFORE.search(part) for part in self.path.split("/"))


@dataclass(slots=True)
class _File(Run):
    """A job's log, or a node's files, while they are judged: evidence is named by its path in the folder."""

    def at(self, name: str) -> str:
        return name

    @property
    def where(self) -> str:
        return "."


@dataclass(slots=True)
class Verdict:
    """What a folder of logs says."""

    hosts: list[str]
    files: list[dict[str, Any]]
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unrecognised: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "hosts": self.hosts,
            "files": self.files,
            "findings": self.findings,
            "notes": self.notes,
            "missing": self.missing,
            "unrecognised": self.unrecognised,
        }


# --------------------------------------------------------------------------------------------------------------- hosts


def _runs(reading: Reading) -> list[Mapping[str, Any]]:
    """Return the runs of a benchmark's log; other tools use the word for other things."""
    runs = reading.data.get("runs")
    return runs if isinstance(runs, list) and reading.tool in ("nccl", "hpl") else []


def _names(found: Any) -> list[str]:
    return [str(n) for n in found] if isinstance(found, Mapping | list | tuple) else []


def hosts_in(reading: Reading) -> list[str]:
    """Return the hosts that a reading names, in order of appearance."""
    found: dict[str, None] = {}
    for run in _runs(reading):
        for node in run.get("nodes") or []:
            found[str(node)] = None
    for name in (reading.data.get("node"), *_names(reading.data.get("hosts"))):
        if name:
            found[str(name)] = None
    for seen in reading.signals:
        if seen.host:
            found[seen.host.split(".")[0]] = None
    return list(found)


def host_of_name(path: str, known: Iterable[str]) -> str | None:
    """Return the host that a file's path names: a known one, or a word that looks like one (letters, then digits).

    The file's own name comes before its folders. `dgx01x4-1a2b3c4d` is a group, not a host.
    """
    known = set(known)
    for part in reversed(path.split("/")):
        words: list[str] = _WORD.findall(re.sub(r"\.(?:log|txt|out|json|xml|gz)$", "", part))
        pieces = [w for word in words for w in (word, *_cuts(word))]
        if found := next((w for w in pieces if w in known), None):
            return found
        for word in pieces:
            if _HOST.fullmatch(word) and word.rstrip("0123456789").rstrip("-").lower() not in _NO_HOST:
                return word
    return None


def _cuts(word: str) -> list[str]:
    """Return the runs of neighbouring pieces of a word with hyphens, longer ones first."""
    parts = word.split("-")
    sizes = range(len(parts) - 1, 0, -1)
    return ["-".join(parts[i : i + size]) for size in sizes for i in range(len(parts) - size + 1)]


# ------------------------------------------------------------------------------------------------------------- judging


def judge(
    sources: Sequence[Source],
    unrecognised: Sequence[str],
    criteria: Mapping[str, Any],
    nodes: Sequence[str] = (),
    gpus_per_node: int = 8,
) -> Verdict:
    """Return what the files say together. `nodes`: the job's node list in rank order, if the sender told it."""
    named = list(dict.fromkeys([*nodes, *(h for s in sources for h in hosts_in(s.reading))]))
    host: dict[str, str | None] = {}
    for source in sources:
        own = hosts_in(source.reading)
        by_name = host_of_name(source.path, named)
        host[source.path] = own[0] if len(own) == 1 and source.tool not in JOBS else by_name
    for source in sources:
        for run in _runs(source.reading):
            if run.get("file") and (h := host_of_name(str(run["file"]), named)):
                named.append(h)
    hosts = sorted({*named, *(h for h in host.values() if h)})
    out = Verdict(hosts, [_entry(s, host[s.path]) for s in sources], unrecognised=list(unrecognised))
    context = Context(gpus_per_node, _fewer(criteria), "", _definitions(sources), 0)
    places = _places(sources, host, gpus_per_node)
    runs = _jobs(sources, host, nodes, context, places, out)
    _nodes(sources, host, context, places, out)
    _fabric(sources, out)
    _corroborate(out)
    _speed(runs, context, out)
    _temperatures(sources, host, criteria, out)
    out.missing = _missing(sources, host, out)
    order = {"node": 0, "group": 1, "config": 2}
    out.findings.sort(key=lambda f: (order.get(f["scope"], 3), str(f["node"]), f.get("rank", 50)))
    for found in out.findings:
        found["evidence"] = [e.removeprefix("./") for e in found["evidence"]]
        for key in ("rank", "everywhere", "step", "heat", "group"):
            found.pop(key, None)
    out.notes = [n.replace("./", "") for n in dict.fromkeys(out.notes)]
    return out


def _entry(source: Source, host: str | None) -> dict[str, Any]:
    reading = source.reading
    return {
        "path": source.path,
        "tool": source.tool,
        "host": host,
        "before": source.before,
        "verdict": reading.verdict,
        "complete": reading.complete,
        "problems": reading.problems[:5],
    }


def _fewer(criteria: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the criteria with trends judged from five values on: of a mailed log there is no longer one to wait for."""
    trend = {w: {**limits, "least_values": 5} for w, limits in criteria.get("trend", {}).items()}
    return {**criteria, "trend": trend}


def _definitions(sources: Sequence[Source]) -> dict[str, dict[str, Any]]:
    """Return a definition for each workload: its commands are what stands in the logs."""
    out: dict[str, dict[str, Any]] = {}
    for source in sources:
        if source.tool in METRIC:
            entry = out.setdefault(source.tool, {"metric": METRIC[source.tool], "commands": {}})
            entry["commands"].update(dict.fromkeys(i["command"] for i in _iterations(source)))
    return out


def _places(sources: Sequence[Source], host: Mapping[str, str | None], gpus_per_node: int) -> dict[str, dict[str, int]]:
    """Return node -> PCI address -> GPU index from the listings that show all GPUs of a node; "" is any node's."""
    places: dict[str, dict[str, int]] = {"": {}}
    for source in sources:
        data = source.reading.data
        if source.tool == "probe":
            data = (data.get("sections", {}).get("nvidia-smi") or {}).get("data") or {}
        elif source.tool != "nvidia-smi":
            continue
        gpus = data.get("gpus")
        if not isinstance(gpus, list) or len(gpus) != gpus_per_node:
            continue
        of = {g["bdf"]: int(g["index"]) for g in gpus if g.get("bdf") and g.get("index") is not None}
        places[host[source.path] or ""] = of
        places[""] = {**of, **places[""]}
    return places


def _signals(source: Source, node: str | None, when: str | None) -> list[dict[str, Any]]:
    """Return the signals of a file as a result holds them."""
    out = []
    for seen in source.reading.signals:
        item = {**seen.to_dict(), "file": source.path}
        if source.device and not item.get("device"):
            item["device"] = source.device
        if when:
            own = seen.host.split(".")[0] if seen.host else node
            item |= {"when": when, "node": own}
        out.append(item)
    return out


def _result(workload: str, group: str, nodes: Sequence[str], **fields: Any) -> dict[str, Any]:
    """Return a result as a run would have left it."""
    return {
        "step": "logs",
        "heat": 0,
        "workload": workload,
        "group": group,
        "nodes": list(nodes),
        "state": "complete",
        "reason": "",
        "casualty": None,
        "iterations": [],
        "interrupted": [],
        "signals": [],
        "probes": {},
        "facts": {},
        "started": None,
        "ended": None,
        **fields,
    }


# ---------------------------------------------------------------------------------------------------------------- jobs


def _iterations(source: Source) -> list[dict[str, Any]]:
    """Return what a job's log measured, one record a run in it, in the form of result.json."""
    data = source.reading.data
    out: list[dict[str, Any]] = []
    if source.tool in ("nccl", "hpl"):
        for number, run in enumerate(_runs(source.reading)):
            if source.tool == "nccl":
                value, line = run.get("busbw_max_size"), run.get("busbw_line")
                if value is None:
                    value, line = run.get("avg_busbw"), run.get("avg_line")
                command = _collective(source, run)
            else:
                value, line, command = run.get("gflops"), run.get("line"), "hpl"
            facts = {k: run[k] for k in ("cycles", "max_size", "file", "nodes") if run.get(k)}
            out.append(_iteration(source, number, command, value, line, facts))
    elif source.tool == "nemo":
        steps = data.get("steps") or {}
        series = [p for p in data.get("step_series") or [] if p.get("step_time_s") is not None]
        facts = {
            "steps": steps,
            "step_times": [(p.get("step"), p["step_time_s"], p.get("line")) for p in series],
            "checkpoints": data.get("checkpoints") or [],
        }
        line = series[-1].get("line") if series else None
        out.append(_iteration(source, 0, "training", steps.get("step_time_median_s"), line, facts))
    elif source.tool == "squad":
        out.append(_iteration(source, 0, "squad", data.get("f1"), data.get("f1_line"), {}))
    return out


def _collective(source: Source, run: Mapping[str, Any]) -> str:
    """Return which collective a table is of: what it says, what the file is called, or what its numbers give away.

    busbw / algbw is 2(n-1)/n for all-reduce and (n-1)/n for reduce-scatter, all-gather and alltoall; only the first two
    reduce. What cannot be told apart gets a name of its own, so that nothing is compared with something else.
    """
    if run.get("collective"):
        return str(run["collective"])
    name = source.path.lower().replace("-", "_")
    words = {
        "all_reduce": "all_?reduce",
        "reduce_scatter": "reduce_?scatter",
        "all_gather": "all_?gather",
        "alltoall": "all_?to_?all",
    }
    if found := [word for word, pattern in words.items() if re.search(pattern, name)]:
        return found[0]
    row: Mapping[str, Any] = next(iter(reversed(run.get("rows") or [])), {})
    oop, ranks = row.get("oop") or {}, run.get("ranks")
    if ranks and ranks > 1 and oop.get("algbw") and oop.get("busbw") and row.get("redop") not in (None, "none", ""):
        share = oop["busbw"] / oop["algbw"] * ranks / (ranks - 1)
        if abs(share - 2) < 0.05:
            return "all_reduce"
        if abs(share - 1) < 0.05:
            return "reduce_scatter"
    return f"the collective of {source.path}"


def _iteration(
    source: Source, number: int, command: str, value: float | None, line: int | None, facts: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "iteration": number,
        "command": command,
        "value": value,
        "value_line": line,
        "output": source.path,
        "start": float(number),
        "end": float(number + 1),
        "facts": dict(facts),
        "verdict": source.reading.verdict,
    }


def _jobs(
    sources: Sequence[Source],
    host: Mapping[str, str | None],
    nodes: Sequence[str],
    context: Context,
    places: Mapping[str, Mapping[str, int]],
    out: Verdict,
) -> list[Run]:
    """Judge the jobs' own words; return one run for each job (for each node that one file lists results of)."""
    runs: list[Run] = []
    for source in sources:
        if source.tool not in JOBS:
            continue
        items = _iterations(source)
        members = _members(source, host[source.path], nodes)
        known = bool(members)
        if not known:  # without a node list a rank names nobody, and one named host is not the whole job
            members = [*hosts_in(source.reading), OTHERS, OTHERS]
        result = _result(source.tool, source.path, members, iterations=items, signals=_signals(source, None, None))
        run = _File(result, source.tool, source.path, members, str(context.criteria["date"]))
        diagnosis.signals(run, context if known else replace(context, gpus_per_node=0), places)
        if not known:
            run.nodes = []
            run.result = {**result, "nodes": []}
        if run.trouble:
            run.findings.append(
                run.finding(
                    None, part="node", fault=run.trouble_fault or "unknown", scope="group",
                    signal=run.trouble_row.kind if run.trouble_row else "job", evidence=run.evidence[:5], quote=run.quote,
                    reason=f"somebody among {fold(members) if known else 'the nodes of the job'}: {run.trouble[0]}",
                    next_action=run.trouble_action, confidence="possible", rank=60,
                )
            )  # fmt: skip
        if not known and any(s.rank is not None for s in source.reading.signals):
            out.notes.append(
                f"{source.path}: its lines name ranks, but nothing names its nodes: give the job's node list with --nodes"
            )
        out.findings += run.findings
        if any(i["facts"].get("file") for i in items):  # one listing of several nodes' results
            for item in items:
                one = host_of_name(str(item["facts"].get("file", "")), out.hosts) or item["facts"].get("file", "?")
                alone = _result(source.tool, f"{source.path}:{one}", [one], iterations=[item])
                runs.append(_File(alone, source.tool, source.path, [one], run.date))
        else:
            runs.append(run)
    return runs


def _members(source: Source, host: str | None, nodes: Sequence[str]) -> list[str]:
    """Return the nodes of a job: what its log lists, what the sender told, or the one its name says."""
    listed = [n for run in _runs(source.reading) for n in run.get("nodes") or []]
    if listed:
        return list(dict.fromkeys(str(n) for n in listed))
    if host and host not in nodes:
        return [host]
    if nodes:
        return [host] if host and source.tool in ("hpl", "squad") else list(nodes)
    return [host] if host else []


# --------------------------------------------------------------------------------------------------------------- nodes


def _nodes(
    sources: Sequence[Source],
    host: Mapping[str, str | None],
    context: Context,
    places: Mapping[str, Mapping[str, int]],
    out: Verdict,
) -> None:
    """Judge what looked at the nodes."""
    looks = [s for s in sources if s.tool not in JOBS and s.tool not in FABRIC]
    of: dict[str, list[Source]] = {}
    for source in looks:
        for node in [h.split(".")[0] for h in hosts_in(source.reading)] or [host[source.path] or "unknown host"]:
            of.setdefault(node, []).append(source)
    if "unknown host" in of:
        paths = ", ".join(s.path for s in of["unknown host"][:5])
        out.notes.append(f"no host is named in these files nor in their names: {paths}")
    for node, mine in of.items():
        signals = [
            x for s in mine for x in _signals(s, node, "before" if s.before else "after") if x["node"] in (node, None)
        ]
        earlier = {s.tool for s in mine if s.before}
        # everything counts as read before; what rests on no such file is marked below
        seen: dict[str, Any] = {node: {"tools": {"": "pass", "dmesg": "pass"}, "problems": [], "file": None}}
        result = _result("node", node, [node], signals=signals, probes={"before": seen, "after": seen})
        run = _File(result, "node", node, [node], str(context.criteria["date"]))
        diagnosis.signals(run, context, places)
        for found in run.findings:
            lasting = found["signal"] in diagnosis.STATE_KINDS and found["signal"] not in COUNTERS
            tool = next((s.tool for s in mine if found["evidence"][0].startswith(f"{s.path}:")), "")
            if not lasting and tool not in earlier and "probe" not in earlier:
                found["confidence"] = "likely" if found["confidence"] == "certain" else found["confidence"]
                found["contradicted_by"] = [OLD]
                found["reason"] = re.sub(r" \(\+\S+ in this run\)$", "", found["reason"])
        _xids(run, signals, context, places, bool(earlier & {"dmesg", "probe"}), out)
        for item in signals:
            if item["kind"] == "module_temperature" and item.get("limit") and item.get("value", 0) > item["limit"] - 5:
                out.notes.append(
                    f"{node}: transceiver at {item['value']:g} C, limit {item['limit']:g} C ({item['file']})"
                )
        out.findings += run.findings


def _xids(
    run: Run,
    signals: Sequence[Mapping[str, Any]],
    context: Context,
    places: Mapping[str, Mapping[str, int]],
    compared: bool,
    out: Verdict,
) -> None:
    """Judge the Xids of a node's kernel logs."""
    from burnin.judging.attribution import gpu_of
    from burnin.judging.xids import finding_of

    events: dict[bool, list[xid.XidEvent]] = {True: [], False: []}
    for seen in signals:
        if seen["kind"] == "xid":
            event = xid.XidEvent(
                node=run.nodes[0],
                code=int(seen.get("value") or 0),
                text=seen["text"],
                gpu=gpu_of(seen, run.nodes[0], places),
                bdf=seen.get("bdf"),
                time=xid.epoch_time(seen.get("detail") or {}, None, None),
                line=seen["line"],
                source=str(seen["file"]),
                run=str(seen["file"]),
            )
            events[seen["when"] == "before"].append(event)
    table = context.xid_table or xid.load_table(overrides=context.criteria["xid"])
    verdicts = xid.judge_xids(events[False], table, None, None, before=events[True] if compared else None)
    for verdict in verdicts:
        if verdict.severity != "fatal" or not verdict.counts:
            out.notes.append(f"{verdict.why} ({', '.join(f'{s}:{n}' for s, n in verdict.evidence[:2])})")
            continue
        found = finding_of(run, verdict, table)
        if not verdict.certain:
            found["confidence"] = "likely"  # its words say that it may be older than the test
        run.findings.append(found)


def _fabric(sources: Sequence[Source], out: Verdict) -> None:
    """Say what files about the whole fabric or the scheduler show; they name ports and jobs, not nodes."""
    for source in sources:
        if source.tool not in FABRIC:
            continue
        for seen in source.reading.signals[:20]:
            if seen.kind in ("fabric_check", "port_counter") or (
                seen.kind == "job_state" and source.reading.verdict == "fail"
            ):
                out.notes.append(f"{source.tool}: {' '.join(seen.text.split())[:160]} ({source.path}:{seen.line})")


def _corroborate(out: Verdict) -> None:
    """Hold a rank's own error against the kernel logs: the same node's makes it certain, another's contradicts it."""
    hard = {f["node"] for f in out.findings if f["scope"] == "node" and f["signal"] not in FIRST_ONLY}
    for found in out.findings:
        if found["scope"] == "node" and found["signal"] in FIRST_ONLY:
            if found["node"] in hard:
                found["confidence"] = "certain"
            elif others := sorted(str(n) for n in hard if n):
                found["contradicted_by"] = [f"the hardware evidence is on {', '.join(others)}"]


# --------------------------------------------------------------------------------------------------------------- speed


def _speed(runs: Sequence[Run], context: Context, out: Verdict) -> None:
    """Compare the jobs with each other and each with itself over time."""
    for run in runs:
        if run.workload not in context.definitions:
            continue
        crowd = performance.Crowd([performance.measured(r.result) for r in runs if r.workload == run.workload])
        speed = performance.judge(run.result, ".", context.definitions[run.workload], context.criteria, crowd)
        out.notes += speed.notes
        for slow in [*speed.slow, *speed.storage]:
            alone = run.nodes[0] if len(run.nodes) == 1 and slow.part == "node" else None
            scope = "node" if alone else "config" if slow.part == "storage" else "group"
            out.findings.append(
                run.finding(
                    alone, part=slow.part, fault=slow.fault, signal=f"slow ({slow.check})", scope=scope, value=slow.value,
                    unit=slow.unit, limit=slow.limit, limit_origin=slow.limit_origin, evidence=slow.evidence,
                    reason=slow.reason, next_action=slow.next_action, rank=81,
                )
            )  # fmt: skip


def _temperatures(
    sources: Sequence[Source], host: Mapping[str, str | None], criteria: Mapping[str, Any], out: Verdict
) -> None:
    """Compare the GPUs of a node in a record of its temperatures: one much hotter than the rest is not cooled."""
    for source in sources:
        if source.tool != "dcgmi-dmon":
            continue
        heat = {s.gpu: s for s in source.reading.signals if s.kind == "gpu_temperature" and s.gpu is not None}
        power = {s.gpu: s for s in source.reading.signals if s.kind == "gpu_power"}
        mean = {f"gpu{g}": s.detail.get("mean", s.value) for g, s in heat.items()}
        for part, check in statistics.outliers(
            mean, better="lower", tolerance=0.1, floor=8.0, unit="C", what="mean temperature"
        ).items():
            if check.outcome != "fail":
                continue
            gpu = int(part.removeprefix("gpu"))
            draws = f"; it draws {power[gpu].detail.get('mean', power[gpu].value):.0f} W" if gpu in power else ""
            node = host[source.path]
            run = _File(_result("node", source.path, []), "node", source.path, [], str(criteria["date"]))
            out.findings.append(
                run.finding(
                    node, part=part, fault="gpu_slow", signal="gpu_temperature", scope="node" if node else "group",
                    value=check.value, unit="C", limit=check.limit, limit_origin="the other GPUs of the node",
                    evidence=[f"{source.path}:{heat[gpu].line}"], quote=heat[gpu].text,
                    reason=f"{check.sentence.rstrip('.')}{draws}: the mark of thermal throttling",
                    next_action=f"check fans and airflow first, then the heat sink of {part}", rank=20,
                )
            )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- missing


def _missing(sources: Sequence[Source], host: Mapping[str, str | None], out: Verdict) -> list[str]:
    """Return in sentences what is not in the folder, or not whole: none of it can be a pass."""
    lines: list[str] = []
    has: dict[str, set[str]] = {}
    for source in sources:
        tools = {source.tool}
        if source.tool == "probe":
            tools |= {k.split(":")[0].split("/")[-1] for k in source.reading.data.get("tools", {})}
        for node in {h.split(".")[0] for h in hosts_in(source.reading)} | {host[source.path] or ""}:
            has.setdefault(node, set()).update(tools)
    for tool in OF_EVERY_NODE:
        without = [h for h in out.hosts if tool not in has.get(h, set())]
        if without:
            lines.append(f"no {tool} of {fold(without)}")
    if not any(s.tool in METRIC for s in sources):
        lines.append("no log of a job (NCCL, HPL, NeMo): nothing shows that the nodes did any work")
    if not any(s.before for s in sources):
        lines.append("no file from before the test: counters and events may be older than it")
    for source in sources:
        if not source.reading.complete and source.tool in METRIC:
            why = source.reading.problems[0] if source.reading.problems else "its end is missing"
            lines.append(f"{source.path} is not whole: {why}")
    few = out.unrecognised[:MOST_NAMED]
    if few:
        more = len(out.unrecognised) - len(few)
        lines.append(f"no reader knows {', '.join(few)}" + (f" and {more} more files" if more else ""))
    return lines
