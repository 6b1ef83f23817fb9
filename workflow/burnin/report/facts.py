# SPDX-License-Identifier: Apache-2.0
"""What the report knows of a campaign, in one typed document, and what is taken from a run's result. Pure.

A run's result may be large (every reading of every probe stands in it): only what the report shows is kept of it, series
thinned so that a dip or a peak is never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from burnin.judging import performance
from burnin.ladder import is_gate

#: Points kept of one series of one run. A plot is some 300 pixels wide.
MOST_POINTS = 40
#: Counters of a link: what counts is their growth during the campaign.
LINK_COUNTERS = ("link_down_count", "link_recovery_count", "link_effective_errors")

#: Signals of probes that the report shows; all others are passed over as early as possible.
SHOWN = frozenset({"gpu_temperature", "inlet_temperature", "throttle", "link_effective_ber", *LINK_COUNTERS})

Point = tuple[float, float]


class Peak(NamedTuple):
    """The worst of a kind of reading: its value, what it is of, the evidence and the step."""

    value: float
    part: str
    place: str
    step: str
    margin: float | None = None


class Event(NamedTuple):
    """Something that was seen in probes: how often, and where first."""

    times: int
    time: float
    place: str
    step: str
    text: str


class Counter(NamedTuple):
    """A counter that was not zero: its first and last reading by time, the evidence of the last, and the highest."""

    first_time: float
    first: float
    last_time: float
    last: float
    place: str
    most: float


@dataclass(slots=True)
class Sensors:
    """What the probes of one node read in a campaign."""

    gpu: Peak | None = None  # hottest GPU (C); margin: to its own slowdown limit (C)
    inlet: Peak | None = None  # C
    gpu_of_step: dict[str, float] = field(default_factory=dict)
    throttles: dict[tuple[str, str], Event] = field(default_factory=dict)  # (part, reason)
    worst_ber: dict[str, Peak] = field(default_factory=dict)  # port -> highest effective BER above the limit
    counters: dict[tuple[str, str], Counter] = field(default_factory=dict)  # (port, kind)
    ports: set[str] = field(default_factory=set)
    looks: int = 0
    first_look: float | None = None  # time (s since 1970) of the first probe: what it did not count was zero then
    unread: int = 0  # tools of a look that could not be read


@dataclass(slots=True)
class RunFacts:
    """One finished run. `series`: command -> (s since 1970, value); `medians`: command -> value and its evidence."""

    step: str
    heat: int
    workload: str
    group: str
    nodes: tuple[str, ...]
    state: str
    reason: str
    casualty: Mapping[str, Any] | None
    window: Mapping[str, float]
    started: float | None
    ended: float | None
    hours: float
    jobs: tuple[str, ...]
    earlier_attempts: int
    iterations: int
    interrupted: int
    series: dict[str, list[Point]]
    medians: dict[str, tuple[float, str]]
    saves: list[Point]
    span: tuple[float, float] | None  # from the start of its first iteration to the end of its last (s since 1970)
    details: dict[str, Any]  # of the last iteration: network, residual, loss ...
    first: Mapping[str, Any] | None  # resume test: facts of the first job

    @property
    def where(self) -> str:
        """Return the run's folder below the campaign's."""
        return f"{self.step}/heat{self.heat}/{self.workload}/{self.group}"


class OpenRun(NamedTuple):
    """A run that is planned and has no result: when its newest attempt began (None: not yet), complete iterations."""

    step: str
    heat: int
    workload: str
    group: str
    nodes: tuple[str, ...]
    started: float | None
    iterations: int


class Version(NamedTuple):
    """A kept version of a gate: which criteria it was judged by, and what it said."""

    criteria: str
    outcome: Mapping[str, str]


@dataclass(slots=True)
class Facts:
    """A campaign as its files tell it. `made`: when they were read (s since 1970)."""

    campaign: str
    uid: str
    created: str
    version: str  # of burnin
    made: float
    config: Mapping[str, Any]
    nodes: list[str]
    steps: dict[str, tuple[str, ...]]  # step -> workloads, in ladder order
    summary: Mapping[str, Any]
    events: list[Mapping[str, Any]]  # gates, {"repair": record}, {"returned": record}: see burnin.ladder
    plans: dict[tuple[str, int], Mapping[str, Any]]
    runs: list[RunFacts] = field(default_factory=list)
    open_runs: list[OpenRun] = field(default_factory=list)
    sensors: dict[str, Sensors] = field(default_factory=dict)
    preflight: Mapping[str, Any] | None = None
    versions: dict[tuple[str, int], list[Version]] = field(default_factory=dict)
    criteria_texts: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # digest -> criteria, oldest first
    config_versions: list[Mapping[str, Any]] = field(default_factory=list)  # what runs depend on, oldest first
    reruns: list[Mapping[str, Any]] = field(default_factory=list)
    stack_changes: list[Mapping[str, Any]] = field(default_factory=list)  # accepted by an operator (burnin freeze)
    manifest: list[tuple[str, str]] = field(default_factory=list)  # (SHA-256, path below the campaign)
    unreadable: list[str] = field(default_factory=list)
    quote: Callable[[str], str | None] = lambda place: None
    link: Callable[[str], str | None] = lambda place: None  # evidence -> path below the campaign's folder

    @property
    def gates(self) -> list[Mapping[str, Any]]:
        """Return the gates in order."""
        return [e for e in self.events if is_gate(e)]

    @property
    def criteria(self) -> Mapping[str, Any]:
        """Return the pass criteria."""
        found: Mapping[str, Any] = self.config["criteria"]
        return found

    def definition(self, workload: str) -> Mapping[str, Any]:
        """Return a workload's definition."""
        found: Mapping[str, Any] = self.config["workload_definitions"][workload]
        return found

    def workloads_of(self, metric: str) -> list[str]:
        """Return the campaign's workloads that are judged by a metric."""
        return [w for w in self.config["workloads"] if self.definition(w)["metric"] == metric]


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Return at most about `most` points of a series in time order: of every stretch its lowest and its highest."""
    if len(points) <= most:
        return list(points)
    stretch = -(-len(points) // max(1, most // 2))
    out: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        out += sorted(ends)
    return out


def run_facts(result: Mapping[str, Any]) -> RunFacts:
    """Return what the report keeps of a result. Raises KeyError, TypeError or ValueError if it has not that form."""
    items = result["iterations"]
    commands = list(dict.fromkeys(i["command"] for i in items))
    series, medians = {}, {}
    for command in commands:
        times, values, _ = performance.series_of(result, command)
        if values:
            series[command] = thin(list(zip(times, values, strict=True)))
            medians[command] = performance.value_of(result, command) or (0.0, "")
    last = items[-1]["facts"] if items else {}
    keep = ("network", "ranks", "max_size", "n", "nb", "p", "q", "residual", "exact_match", "loss_first", "loss_last",
            "resumed_from", "steps", "global_batch_size", "consumed_samples_last")  # fmt: skip
    details = {k: last[k] for k in keep if last.get(k) is not None}
    curve = [(float(s), float(v)) for s, v in last.get("curve") or [] if s is not None and v is not None]
    if curve:
        details["curve"] = thin(curve)
    span = (float(items[0]["start"]), float(items[-1]["end"])) if items else None
    return RunFacts(
        step=result["step"], heat=result["heat"], workload=result["workload"], group=result["group"],
        nodes=tuple(result["nodes"]), state=result["state"], reason=result["reason"], casualty=result["casualty"],
        window=result["window"], started=result["started"], ended=result["ended"], hours=float(result["hours"]),
        jobs=tuple(result["jobs"]), earlier_attempts=result["earlier_attempts"], iterations=len(items),
        interrupted=len(result["interrupted"]), series=series, medians=medians,
        saves=thin([(t, s) for t, s, _ in performance.checkpoints_of(result)]), span=span, details=details,
        first=result["facts"].get("first"),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- sensors


def add_sensors(sensors: dict[str, Sensors], result: Mapping[str, Any]) -> None:
    """Add what the probes of a run read to what is known of its nodes."""
    times: dict[tuple[str, str], float] = {}
    for when, of_nodes in result["probes"].items():
        for node, seen in of_nodes.items():
            mine = sensors.setdefault(node, Sensors())
            mine.looks += 1
            for tool, verdict in seen["tools"].items():
                mine.unread += verdict == "unknown"
                if tool.startswith("mlxlink:") and verdict != "unknown":
                    mine.ports.add(tool.partition(":")[2])
            at = times[when, node] = float(seen.get("time") or 0.0)
            mine.first_look = at if mine.first_look is None else min(mine.first_look, at)
    where = f"{result['step']}/heat{result['heat']}/{result['workload']}/{result['group']}"
    for seen in result["signals"]:
        if seen["kind"] not in SHOWN:
            continue
        node, when = seen.get("node"), seen.get("when")
        if node is None or when is None:
            continue
        mine = sensors.setdefault(node, Sensors())
        if seen["kind"] in ("gpu_temperature", "inlet_temperature"):
            if seen.get("value") is not None:
                _temperature(mine, seen, where, result["step"])
        else:
            _signal(mine, seen, f"{where}/{seen['file']}:{seen['line']}", result["step"], times.get((when, node), 0.0))


def _temperature(mine: Sensors, seen: Mapping[str, Any], where: str, step: str) -> None:
    """Add a temperature; most of a campaign's readings are these, so a text is only made of one that is a new peak."""
    value = float(seen["value"])
    gpu = seen["kind"] == "gpu_temperature"
    if gpu and value > mine.gpu_of_step.get(step, -1e9):
        mine.gpu_of_step[step] = value
    known = mine.gpu if gpu else mine.inlet
    if known is not None and value < known.value:
        return
    place = f"{where}/{seen['file']}:{seen['line']}"
    if known is not None and value == known.value and place >= known.place:
        return
    if gpu:
        detail = seen.get("detail") or {}
        limit, slowdown = detail.get("t_limit"), detail.get("t_limit_slowdown")
        margin = limit - slowdown if limit is not None and slowdown is not None else None
        mine.gpu = Peak(value, _part("gpu", seen), place, step, margin)
    else:
        mine.inlet = Peak(value, str(seen.get("device") or "inlet"), place, step)


def _signal(mine: Sensors, seen: Mapping[str, Any], place: str, step: str, time: float) -> None:
    """Add a signal of throttling or of a link."""
    kind, value = seen["kind"], seen.get("value")
    if kind == "throttle":
        part, reason = _part("gpu", seen), str((seen.get("detail") or {}).get("reason") or seen["text"].strip())
        known = mine.throttles.get((part, reason))
        new = Event(1, time, place, step, seen["text"])
        first = new if known is None or (time, place) < (known.time, known.place) else known
        mine.throttles[part, reason] = first._replace(times=known.times + 1 if known else 1)
    elif kind == "link_effective_ber" and value is not None:
        port = str(seen.get("device") or "?")
        mine.worst_ber[port] = _hotter(mine.worst_ber.get(port), Peak(float(value), port, place, step))
    elif value is not None:
        key = (str(seen.get("device") or "?"), kind)
        at, number = (time, float(value))
        counter = mine.counters.get(key) or Counter(at, number, at, number, place, number)
        if at < counter.first_time:
            counter = counter._replace(first_time=at, first=number)
        if at >= counter.last_time:
            counter = counter._replace(last_time=at, last=number, place=place)
        mine.counters[key] = counter._replace(most=max(counter.most, number))


def _hotter(known: Peak | None, new: Peak) -> Peak:
    """Return the higher; of two alike the one whose evidence comes first, so that the order of reading does not matter."""
    return new if known is None or (-new.value, new.place) < (-known.value, known.place) else known


def _part(name: str, seen: Mapping[str, Any]) -> str:
    return f"{name}{seen['gpu']}" if seen.get("gpu") is not None else str(seen.get("bdf") or name)


def merge(parts: Iterable[Mapping[str, Sensors]]) -> dict[str, Sensors]:
    """Return the sensors of several sets of runs as of all together."""
    out: dict[str, Sensors] = {}
    for part in parts:
        for node, new in part.items():
            if node not in out:
                out[node] = new
                continue
            old = out[node]
            old.gpu = _hotter(old.gpu, new.gpu) if new.gpu else old.gpu
            old.inlet = _hotter(old.inlet, new.inlet) if new.inlet else old.inlet
            for step, value in new.gpu_of_step.items():
                old.gpu_of_step[step] = max(value, old.gpu_of_step.get(step, value))
            for key, event in new.throttles.items():
                known = old.throttles.get(key)
                first = min((e for e in (known, event) if e), key=lambda e: (e.time, e.place))
                old.throttles[key] = first._replace(times=event.times + (known.times if known else 0))
            for port, peak in new.worst_ber.items():
                old.worst_ber[port] = _hotter(old.worst_ber.get(port), peak)
            for key, counter in new.counters.items():
                of = [c for c in (old.counters.get(key), counter) if c]
                first_one, last_one = min(of, key=lambda c: c.first_time), max(of, key=lambda c: c.last_time)
                old.counters[key] = Counter(
                    first_one.first_time, first_one.first, *last_one[2:5], max(c.most for c in of)
                )
            old.ports |= new.ports
            old.looks += new.looks
            old.first_look = min((t for t in (old.first_look, new.first_look) if t is not None), default=None)
            old.unread += new.unread
    return out
