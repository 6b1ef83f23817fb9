# SPDX-License-Identifier: Apache-2.0
"""Is a run as fast as it should be: among its peers, against its baseline and siblings, and over its own time. Pure.

A step is judged against its own size: peers are runs of the same step, workload, command and number of nodes; a
baseline is that of the same size; siblings are the groups of the step before. Every check gives the number, the limit,
where the limit comes from, and the line of the value. One slow iteration among good ones drops nobody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from burnin import statistics
from burnin.statistics import Better, Check

Result = Mapping[str, Any]

UNITS = {"busbw": "GB/s", "gflops": "GFLOPS", "step_time": "s", "f1": "%"}
#: Fault of a node that is slow, by what was measured.
SLOW_FAULT = {"busbw": "link_degrading", "gflops": "gpu_slow", "step_time": "straggler", "f1": "silent_data_corruption"}

LOOK_AT = {
    "busbw": "read mlxlink -c on every HCA and nvidia-smi nvlink -e on the node; run nccl-tests per rail",
    "gflops": "look at throttle reasons, clocks, power and fans of the node, then dcgmi diag -r 3",
    "step_time": "look for the slowest GPU (straggler report, throttle reasons, clocks), then at the links",
    "f1": "check precision settings and data files, then dcgmi diag -r 4 on the node",
}
LOOK_AT_TREND = (
    "find the part that degrades under heat: throttle reasons of each GPU, link error counters over time, inlet "
    "temperature; then dcgmi diag -r 3"
)


@dataclass(slots=True)
class Slow:
    """One check that a run did not pass. `distance` (fraction) orders them."""

    check: str
    command: str
    fault: str
    value: float | None
    unit: str
    limit: float | None
    limit_origin: str
    evidence: list[str]
    reason: str
    next_action: str
    distance: float
    part: str = "node"


@dataclass(slots=True)
class Speed:
    """What all checks of one run said."""

    slow: list[Slow] = field(default_factory=list)
    storage: list[Slow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def worst(self) -> Slow | None:
        """Return what leads: an implausible value first, then the largest distance."""
        return self.worst_of(None)

    def worst_of(self, checks: frozenset[str] | None) -> Slow | None:
        """Return the worst of some kinds of check, or None."""
        some = [s for s in self.slow if checks is None or s.check in checks]
        return max(some, key=lambda s: (s.check == "plausible", s.distance), default=None)


def better_of(metric: str) -> Better:
    """Return which way is good for a metric."""
    return "lower" if metric == "step_time" else "higher"


def values_of(result: Result, command: str) -> list[tuple[float, str]]:
    """Return a command's values in a run, each with output:line."""
    return [
        (float(i["value"]), f"{i['output']}:{i['value_line'] or 1}")
        for i in result["iterations"]
        if i["command"] == command and i["value"] is not None
    ]


def value_of(result: Result, command: str) -> tuple[float, str] | None:
    """Return the median of a command's values in a run and the evidence of the value next to it, or None."""
    found = values_of(result, command)
    if not found:
        return None
    middle = median(v for v, _ in found)
    return middle, min(found, key=lambda f: abs(f[0] - middle))[1]


class Measured(NamedTuple):
    """What peers are compared by: computed once for each run, since every run of a heat is held against all others."""

    result: Result
    nodes: int
    values: dict[str, float]  # command -> its value


def measured(result: Result) -> Measured:
    """Return what a run's commands gave."""
    commands = dict.fromkeys(i["command"] for i in result["iterations"])
    values = {c: v[0] for c in commands if (v := value_of(result, c)) is not None}
    return Measured(result, len(result["nodes"]), values)


class Crowd:
    """All complete runs of one workload in a step, sorted once: tells in no time of most runs that they are like the others.

    It gives the same answers as comparing each run with all others, which for a thousand nodes would take a minute.
    """

    def __init__(self, runs: Sequence[Measured]) -> None:
        self.runs = list(runs)
        self.sizes = {m.nodes for m in runs}
        self._sorted: dict[tuple[str, int], list[float]] = {}
        for run in runs:
            for command, value in run.values.items():
                self._sorted.setdefault((command, run.nodes), []).append(value)
        for values in self._sorted.values():
            values.sort()

    def others(self, result: Result) -> list[Measured]:
        """Return the runs but for this one."""
        return [m for m in self.runs if m.result is not result]

    def has_like(self, command: str, nodes: int, value: float, metric: str, limits: Mapping[str, Any]) -> bool:
        """Say whether a run of the crowd is within the tolerance of the median of the others of its size."""
        values = self._sorted.get((command, nodes), [])
        if len(values) <= limits["least_peers"] or any(s != nodes and _alike(s, nodes) for s in self.sizes):
            return False
        mine = bisect_left(values, value)
        if mine == len(values) or values[mine] != value:
            return False  # not one of the crowd
        middle = [i if i < mine else i + 1 for i in ((len(values) - 2) // 2, (len(values) - 1) // 2)]
        centre = (values[middle[0]] + values[middle[1]]) / 2
        worse = centre - value if better_of(metric) == "higher" else value - centre
        return bool(worse <= limits["tolerance"] * centre)


def per_node(metric: str, value: float, nodes: int) -> float:
    """Return a value that can be compared between sizes: Gflops count all nodes, bandwidth and step time do not."""
    return value / nodes if metric == "gflops" and nodes else value


# ------------------------------------------------------------------------------------------------------------- judging


def judge(
    result: Result,
    where: str,
    definition: Mapping[str, Any],
    criteria: Mapping[str, Any],
    crowd: Crowd,
    siblings: Sequence[Result] = (),
) -> Speed:
    """Return what all checks say of a complete run.

    `crowd`: the complete runs of its step and workload (of any size; the right ones are chosen here). `siblings`:
    passed runs of the step before. `where` is the run's folder in the campaign, for evidence.
    """
    speed = Speed()
    metric = definition["metric"]
    better = better_of(metric)
    limits: dict[str, tuple[float, int]] = {}  # command -> (limit, what its values are divided by)
    size = len(result["nodes"])
    for command in definition["commands"]:
        mine = value_of(result, command)
        if mine is None:
            continue
        place = [f"{where}/{mine[1]}"]
        check = None
        spread = criteria["spread"].get(result["workload"])
        if spread is not None and not crowd.has_like(command, size, mine[0], metric, spread):
            alike = [p for p in crowd.others(result) if _alike(p.nodes, size)]
            check = _spread(result, command, metric, mine[0], alike, criteria)
        if check is not None and check.outcome == "unknown" and result["nodes"]:
            speed.notes.append(_few(result, criteria, command))
        for name, found, origin in (
            ("spread", check, "peers of this step"),
            *_fixed(result, command, metric, mine[0], criteria, siblings),
        ):
            if found is None or found.outcome != "fail" or found.limit is None:
                continue
            scaled = metric == "gflops" and name in ("spread", "scaling")
            limits.setdefault(command, (found.limit, len(result["nodes"]) if scaled else 1))
            speed.slow.append(_of_check(result, name, command, metric, found, origin, place, criteria))
    _forgive_hiccup(speed, result, where, better, limits)
    speed.slow += _trends(result, where, definition, criteria, speed.notes)
    speed.storage += _checkpoints(result, where, criteria, siblings)
    return speed


def _alike(one: int, other: int) -> bool:
    """Tell whether two sizes are the same; halves of a larger cluster may differ by a node."""
    return abs(one - other) <= (1 if min(one, other) >= 8 else 0)


def _spread(
    result: Result, command: str, metric: str, mine: float, peers: Sequence[Measured], criteria: Mapping[str, Any]
) -> Check:
    """Hold a run against the median of the others."""
    limits = criteria["spread"][result["workload"]]
    better = better_of(metric)
    values: dict[str, float | None] = {"this run": per_node(metric, mine, len(result["nodes"]))}
    for number, peer in enumerate(peers):
        if command in peer.values:
            values[str(number)] = per_node(metric, peer.values[command], peer.nodes)
    return statistics.outliers(
        values,
        better=better,
        tolerance=limits["tolerance"],
        unit=UNITS[metric],
        mad_factor=criteria["mad_factor"],
        floor=limits.get("floor", 0.0),
        least_peers=limits["least_peers"],
        what=f"{command}{' per node' if metric == 'gflops' and len(result['nodes']) > 1 else ''}",
        only="this run",
    )["this run"]


def _few(result: Result, criteria: Mapping[str, Any], command: str) -> str:
    least = criteria["spread"][result["workload"]]["least_peers"]
    size = len(result["nodes"])
    based = any(_is_base(b, result, command) for b in criteria["baselines"])
    return (
        f"{result['workload']}: fewer than {least} other runs of {size} node{'s' if size > 1 else ''} to compare with: "
        f"the spread between peers was not judged{'' if based else ', and there is no baseline of this size'}"
    )


def _is_base(base: Mapping[str, Any], result: Result, command: str) -> bool:
    return (base["workload"], base["command"], base["nodes"]) == (result["workload"], command, len(result["nodes"]))


def _fixed(
    result: Result, command: str, metric: str, mine: float, criteria: Mapping[str, Any], siblings: Sequence[Result]
) -> Iterator[tuple[str, Check, str]]:
    """Yield the checks against pinned baselines, what is believable at all, and the step before."""
    better, unit, size = better_of(metric), UNITS[metric], len(result["nodes"])
    for base in criteria["baselines"]:
        # a message size in the baseline must be the one that was measured; a run that does not say it is not compared
        if not _is_base(base, result, command) or not _same_message(base, result, command):
            continue
        check = statistics.against_baseline(
            mine, base["value"], better=better, band=base["band"], unit=unit, what=command
        )
        yield "baseline", check, f"{base['origin']} of {base['date']}, band {base['band']:.0%}"
    least = criteria.get("plausible", {}).get(result["workload"])
    if least and size >= least["least_nodes"] and command in least.get("commands", [command]):
        bad = mine < least["value"] if better == "higher" else mine > least["value"]
        sentence = (
            f"{command} {mine:.4g} {unit} on {size} node{'s' if size > 1 else ''}: nothing healthy is "
            f"{'below' if better == 'higher' else 'above'} {least['value']:g} {unit}"
        )
        distance = abs(mine - least["value"]) / least["value"]
        outcome: statistics.Outcome = "fail" if bad else "pass"
        detail = {"relative": distance}
        check = Check("plausible", outcome, mine, least["value"], unit, sentence, detail)
        yield "plausible", check, "what this machine can be believed to give"
    scaling = criteria.get("scaling", {}).get(result["workload"])
    if scaling and command in scaling.get("commands", [command]):
        before = [
            per_node(metric, v[0], len(s["nodes"]))
            for s in siblings
            if s["workload"] == result["workload"]
            and scaling["least_nodes"] <= len(s["nodes"]) <= size
            and (v := value_of(s, command)) is not None
        ]
        if before and size >= scaling["least_nodes"]:
            check = statistics.against_baseline(
                per_node(metric, mine, size),
                median(before),
                better=better,
                band=scaling["tolerance"],
                unit=unit,
                what=f"{command}{' per node' if metric == 'gflops' else ''}",
            )
            step = next(s["step"] for s in siblings if s["workload"] == result["workload"])
            check = replace(check, sentence=check.sentence.replace("the baseline", f"step {step}'s"))
            yield "scaling", check, f"median of {len(before)} runs of step {step}, band {scaling['tolerance']:.0%}"


def _same_message(base: Mapping[str, Any], result: Result, command: str) -> bool:
    wanted = base.get("message_bytes")
    if wanted is None:
        return True
    sizes = {i["facts"].get("max_size") for i in result["iterations"] if i["command"] == command}
    return sizes == {wanted}


def _of_check(
    result: Result,
    name: str,
    command: str,
    metric: str,
    check: Check,
    origin: str,
    evidence: list[str],
    criteria: Mapping[str, Any],
) -> Slow:
    """Return a failed check in the form of a finding."""
    relative = check.detail.get("relative")
    fault = SLOW_FAULT[metric]
    if metric == "busbw" and len(result["nodes"]) == 1:
        fault = "nvlink_error"  # inside one node there is no fabric
    if name == "plausible" and metric == "busbw" and len(result["nodes"]) > 1:
        fault = "nccl_on_sockets"
    tolerance = criteria["spread"].get(result["workload"], {}).get("tolerance")
    if name == "spread" and tolerance is not None:
        origin = f"peers: median of {check.detail.get('peers')} others of this step, tolerance {tolerance:.0%}"
    return Slow(
        check=name,
        command=command,
        fault=fault,
        value=check.value,
        unit=check.unit,
        limit=check.limit,
        limit_origin=f"{origin} ({criteria['source']}, {criteria['date']})",
        evidence=evidence,
        reason=check.sentence.removeprefix("this run: "),
        next_action=LOOK_AT[metric],
        distance=abs(relative) if relative is not None else 0.0,
    )


def _forgive_hiccup(
    speed: Speed, result: Result, where: str, better: Better, limits: Mapping[str, tuple[float, int]]
) -> None:
    """Take back what one single slow iteration among others accuses: it is said, and drops nobody."""
    if len([i for i in result["iterations"] if i["value"] is not None]) < 2 or not speed.slow:
        return
    slow = [
        (value, place, command)
        for command, (limit, divisor) in limits.items()
        for value, place in values_of(result, command)
        if (value / divisor < limit if better == "higher" else value / divisor > limit)
    ]
    if len(slow) == 1:
        value, place, command = slow[0]
        speed.notes.append(
            f"{where}: one slow iteration ({command} {value:.4g} at {where}/{place}) among "
            f"{len(result['iterations'])} iterations: noted, it drops nobody"
        )
        speed.slow.clear()


# -------------------------------------------------------------------------------------------------------------- trends


def series_of(result: Result, command: str) -> tuple[list[float], list[float], list[str]]:
    """Return times (s), values and evidence of everything that a run measured with a command, in time order.

    Inside an iteration that repeats by itself (nccl-tests -N, training steps) every cycle or stretch of steps is a
    point; otherwise the iteration is one.
    """
    times: list[float] = []
    values: list[float] = []
    places: list[str] = []
    for item in result["iterations"]:
        if item["command"] != command or item["value"] is None:
            continue
        facts = item["facts"]
        inner: list[tuple[float, int | None]] = []
        if facts.get("cycles"):
            inner = [(float(c["busbw"]), c.get("line")) for c in facts["cycles"] if c.get("busbw") is not None]
        elif facts.get("step_times"):
            inner = [(float(seconds), line) for _, seconds, line in facts["step_times"]]
        if len(inner) < 2:
            inner = [(float(item["value"]), item["value_line"])]
        length = max(0.0, item["end"] - item["start"])
        for number, (value, line) in enumerate(inner):
            times.append(item["start"] + length * (number + 0.5) / len(inner))
            values.append(value)
            places.append(f"{item['output']}:{line or 1}")
    return times, values, places


def _trends(
    result: Result, where: str, definition: Mapping[str, Any], criteria: Mapping[str, Any], notes: list[str]
) -> list[Slow]:
    """Look at a run over its time: last hour against first, drift, a drop that stays, spikes without a reason."""
    limits = criteria.get("trend", {}).get(result["workload"])
    if limits is None:
        return []
    metric = definition["metric"]
    better, unit = better_of(metric), UNITS[metric]
    out: list[Slow] = []
    short = True
    for command in definition["commands"]:
        times, values, places = series_of(result, command)
        if len(values) < limits["least_values"]:
            continue
        short = False
        if max(values) - min(values) <= min(limits["drop"], limits["first_last"], limits["drift"]) * median(values):
            continue  # all of it lies closer together than any of the limits: nothing to look for
        steady_times, steady = statistics.without_spikes(times, values, better=better)
        checks = [
            statistics.sudden_drop(times, values, better=better, tolerance=limits["drop"], unit=unit, what=command),
            statistics.first_against_last(
                steady_times,
                steady,
                better=better,
                tolerance=limits["first_last"],
                unit=unit,
                span_s=limits["span_minutes"] * 60.0,
                what=command,
            ),
            statistics.trend(steady_times, steady, better=better, tolerance=limits["drift"], unit=unit, what=command),
        ]
        bad = [c for c in checks if c.outcome == "fail"]
        notes += [f"{where}: {c.sentence}" for c in checks if c.detail.get("last_only")]
        if not bad:
            continue
        lead = bad[0]
        at = int(lead.detail["index"]) if lead.kind == "drop" else len(places) - 1
        rest = "" if len(bad) == 1 else " " + " ".join(c.sentence for c in bad[1:])
        origin = {"drop": "drop that stays", "first_last": "last hour against first", "trend": "drift over the run"}
        out.append(
            Slow(
                check=lead.kind,
                command=command,
                fault="nvlink_error" if metric == "busbw" and len(result["nodes"]) == 1 else SLOW_FAULT[metric],
                value=lead.value,
                unit=lead.unit,
                limit=lead.limit,
                limit_origin=f"{origin[lead.kind]} ({criteria['source']}, {criteria['date']})",
                evidence=list(dict.fromkeys([f"{where}/{places[0]}", f"{where}/{places[at]}"])),
                reason=(lead.sentence + rest)[:700],
                next_action=LOOK_AT_TREND,
                distance=(lead.value or 0.0) / 100,
            )
        )
    odd = [i for i in result["iterations"] if (i["facts"].get("spikes") or {}).get("unexplained")]
    count = sum(i["facts"]["spikes"]["unexplained"] for i in odd)
    steps = sum((i["facts"].get("spikes") or {}).get("steps", 0) for i in result["iterations"])
    allowed = max(2.0, limits.get("spikes", 0.02) * steps)
    if odd and count > allowed:
        out.append(
            Slow(
                check="spikes",
                command=odd[0]["command"],
                fault=SLOW_FAULT[metric],
                value=float(count),
                unit="steps",
                limit=allowed,
                limit_origin=f"slow steps that no checkpoint explains ({criteria['source']}, {criteria['date']})",
                evidence=[f"{where}/{i['output']}:{i['facts']['spikes'].get('line') or 1}" for i in odd[:5]],
                reason=f"{count} of {steps} steps were slow without a checkpoint beside them; limit {allowed:g}",
                next_action=LOOK_AT["step_time"],
                distance=count / max(1, steps),
            )
        )
    if short and result["iterations"]:
        notes.append(
            f"{result['workload']}: fewer than {limits['least_values']} values of each command in the window: "
            "no trend was judged"
        )
    return out


# ------------------------------------------------------------------------------------------------------------- storage


def checkpoints_of(result: Result) -> list[tuple[float, float, str]]:
    """Return (time, seconds, output:line) of the saves of a run; the place in the run stands for the time."""
    out = []
    for item in result["iterations"]:
        saves = [c for c in item["facts"].get("checkpoints") or [] if c.get("duration_s") is not None]
        length = max(0.0, item["end"] - item["start"])
        for number, save in enumerate(saves):
            at = item["start"] + length * (number + 0.5) / len(saves)
            out.append((at, float(save["duration_s"]), f"{item['output']}:{save.get('line') or 1}"))
    return out


def _checkpoints(result: Result, where: str, criteria: Mapping[str, Any], siblings: Sequence[Result]) -> list[Slow]:
    """Saves that take longer and longer, or much longer than one step of the ladder before: the storage's fault."""
    limits = criteria.get("checkpoints")
    saves = checkpoints_of(result)
    if not limits or not saves:
        return []
    base = f"{criteria['source']}, {criteria['date']}"
    action = (
        "look at the file system the checkpoints go to (full or rebuilding targets, quota, other writers); no node is "
        "to blame"
    )
    growth = statistics.checkpoint_growth(
        [t for t, _, _ in saves],
        [s for _, s, _ in saves],
        tolerance=limits["growth"],
        floor_s=limits["floor_s"],
        least=limits["least_saves"],
    )
    if growth.outcome == "fail":
        places = [f"{where}/{saves[0][2]}", f"{where}/{saves[-1][2]}"]
        return [
            Slow("checkpoint_growth", "checkpoint", "storage_slow", growth.value, "%", growth.limit,
                 f"checkpoints, end against start of the run ({base})", places, growth.sentence, action,
                 (growth.value or 0.0) / 100, "storage")
        ]  # fmt: skip
    rising = _rising(result, limits)
    if rising is not None:
        first, last, places = rising
        return [
            Slow(
                "checkpoint_growth",
                "checkpoint",
                "storage_slow",
                100 * (last / first - 1),
                "%",
                100 * limits["growth"],
                f"checkpoints, end against start of every iteration ({base})",
                [f"{where}/{p}" for p in places],
                f"in every iteration each checkpoint took longer than the one before it, {first:.4g} s first and "
                f"{last:.4g} s last; limit {limits['growth']:.0%}",
                action,
                last / first - 1,
                "storage",
            )
        ]
    before = [s for r in siblings if r["workload"] == result["workload"] for _, s, _ in checkpoints_of(r)]
    if not before:
        return []
    middle, usual = median(s for _, s, _ in saves), median(before)
    limit = usual * (1 + limits["against_step_before"])
    if middle <= limit or middle - usual <= limits["floor_s"]:
        return []
    reason = f"checkpoints took {middle:.4g} s, {usual:.4g} s in the step before; limit {limit:.4g} s"
    worst = max(saves, key=lambda s: s[1])
    origin = f"median of {len(before)} saves of the step before ({base})"
    return [
        Slow("checkpoint_time", "checkpoint", "storage_slow", middle, "s", limit, origin, [f"{where}/{worst[2]}"],
             reason, action, middle / usual - 1, "storage")
    ]  # fmt: skip


def _rising(result: Result, limits: Mapping[str, Any]) -> tuple[float, float, list[str]] | None:
    """Return (first, last, evidence) if the saves of every iteration rise from each to the next, by more than the limit.

    Iterations that start their training anew also start the storage's growth anew; over all saves together that is a
    saw, which has no trend.
    """
    per = [
        [
            (float(c["duration_s"]), f"{i['output']}:{c.get('line') or 1}")
            for c in i["facts"].get("checkpoints") or []
            if c.get("duration_s")
        ]
        for i in result["iterations"]
    ]
    per = [saves for saves in per if saves]
    if sum(len(saves) for saves in per) < limits["least_saves"] or any(len(saves) < 3 for saves in per):
        return None
    for saves in per:
        steps = [b[0] > a[0] for a, b in pairwise(saves)]
        grown = saves[-1][0] - saves[0][0]
        if not all(steps) or grown <= max(limits["floor_s"], limits["growth"] * saves[0][0]):
            return None
    return per[0][0][0], per[0][-1][0], [per[0][0][1], per[0][-1][1], per[-1][-1][1]]
