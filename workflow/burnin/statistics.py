# SPDX-License-Identifier: Apache-2.0
"""Robust statistics of a burn-in: spread against peers, and trends over a run. Pure, standard library only.

Medians everywhere, never means: one bad iteration or node must not move what the others are judged by. Each check
returns a `Check` with the number, the limit, the unit and a sentence. Three-valued: too few values is `unknown`, never
a pass. A value that is not finite is left out and counted in the sentence; that a result was NaN is a finding of its
own.

`better` says which way is good: "higher" for bandwidth and Gflops, "lower" for step times and durations. Tolerances are
fractions of the level they are compared with (0.05 = 5 %).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import NormalDist
from statistics import median as _median
from typing import Any, Literal

Outcome = Literal["pass", "fail", "unknown"]
Better = Literal["higher", "lower"]

#: Trends look at no more points than this; longer series are folded into medians of equal stretches, which also takes
#: out what single spikes remain. The cost of a slope is quadratic in it.
MOST_POINTS = 200


@dataclass(frozen=True, slots=True)
class Check:
    """One number held against one limit.

    `value` and `limit` are in `unit` (None where there is none to give); `detail` has the numbers that the sentence
    speaks of. The sentence says what was seen, not what to do.
    """

    kind: str
    outcome: Outcome
    value: float | None
    limit: float | None
    unit: str
    sentence: str
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


# ------------------------------------------------------------------------------------------------------ basic helpers


def finite(values: Iterable[float | None]) -> list[float]:
    """Return the values that are numbers: no None, NaN or infinity."""
    return [v for v in values if v is not None and math.isfinite(v)]


def median(values: Iterable[float | None]) -> float:
    """Return the median of the finite values. Raises ValueError if there are none."""
    known = finite(values)
    if not known:
        raise ValueError("no finite value, so no median")
    return float(_median(known))


def mad(values: Iterable[float | None], floor: float = 0.0) -> float:
    """Return the median absolute deviation from the median (not scaled to a sigma), at least `floor`.

    The floor keeps identical values from making any difference at all an outlier. Raises ValueError without values.
    """
    known = finite(values)
    centre = median(known)
    return max(floor, median(abs(v - centre) for v in known))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _number(value: float) -> str:
    """Return a number with four significant digits and no exponent in the range people read."""
    return f"{value:.4g}" if abs(value) < 1e5 and (abs(value) >= 1e-3 or value == 0) else f"{value:.3e}"


def _badness(change: float, better: Better) -> float:
    """Return `change` with its bad direction positive."""
    return -change if better == "higher" else change


def _left_out(count: int) -> str:
    return f" ({count} value{'s' if count > 1 else ''} that are no numbers left out)" if count else ""


# -------------------------------------------------------------------------------------------------- spread, baseline


def outliers(
    values: Mapping[str, float | None],
    *,
    better: Better,
    tolerance: float,
    unit: str,
    mad_factor: float = 5.0,
    floor: float = 0.0,
    least_peers: int = 3,
    what: str = "value",
    only: str | None = None,
) -> dict[str, Check]:
    """Hold each node (or group, GPU, lane) against the median of the *others*.

    It fails if it is worse than their median by more than the largest of: `tolerance` x median, `mad_factor` x their
    median absolute deviation, and `floor` (absolute, in `unit`). All three, because each alone misleads: a percentage
    flags ordinary values of a wide spread, deviations alone flag nothing-at-all in a tight one. With fewer than
    `least_peers` others it is `unknown`, and the sentence says so. `only`: judge just this one (the cost of judging all
    is quadratic).
    """
    out: dict[str, Check] = {}
    for name, value in values.items():
        if only is not None and name != only:
            continue
        peers = finite(v for other, v in values.items() if other != name)
        out[name] = _against_peers(name, value, peers, better, tolerance, mad_factor, floor, least_peers, unit, what)
    return out


def _against_peers(
    name: str,
    value: float | None,
    peers: Sequence[float],
    better: Better,
    tolerance: float,
    mad_factor: float,
    floor: float,
    least_peers: int,
    unit: str,
    what: str,
) -> Check:
    if value is None or not math.isfinite(value):
        return Check("spread", "unknown", None, None, unit, f"{name} has no {what} that could be compared.")
    if len(peers) < least_peers:
        sentence = (
            f"{name}: {what} {_number(value)} {unit}, but only {len(peers)} peer{'' if len(peers) == 1 else 's'} to "
            f"compare with; at least {least_peers} are needed for a median worth the name."
        )
        return Check("spread", "unknown", value, None, unit, sentence, {"peers": len(peers)})
    centre, spread = median(peers), mad(peers)
    allowed = max(tolerance * abs(centre), mad_factor * spread, floor)
    limit = centre - allowed if better == "higher" else centre + allowed
    distance = value - centre
    bad = _badness(distance, better) > allowed
    relative = distance / abs(centre) if centre else None
    off = f"{_percent(abs(relative))} " if relative is not None else f"{_number(abs(distance))} {unit} "
    side = ("below" if distance < 0 else "above") if distance else "from"
    sentence = (
        f"{name}: {what} {_number(value)} {unit} is {off}{side} the median {_number(centre)} {unit} of its "
        f"{len(peers)} peers; limit {_number(limit)} {unit}."
    )
    detail = {"median": centre, "mad": spread, "peers": len(peers), "relative": relative}
    return Check("spread", "fail" if bad else "pass", value, limit, unit, sentence, detail)


def against_baseline(
    value: float | None, baseline: float, *, better: Better, band: float, unit: str, what: str = "value"
) -> Check:
    """Hold a value against a pinned one of the same size: fails if worse by more than `band` (fraction)."""
    if value is None or not math.isfinite(value):
        return Check("baseline", "unknown", None, None, unit, f"There is no {what} to hold against the baseline.")
    limit = baseline - band * abs(baseline) if better == "higher" else baseline + band * abs(baseline)
    bad = value < limit if better == "higher" else value > limit
    change = (value - baseline) / abs(baseline) if baseline else 0.0
    sentence = (
        f"{what} {_number(value)} {unit} is {_percent(abs(change))} {'below' if change < 0 else 'above'} the baseline "
        f"{_number(baseline)} {unit}; limit {_number(limit)} {unit}."
    )
    detail = {"baseline": baseline, "relative": change}
    return Check("baseline", "fail" if bad else "pass", value, limit, unit, sentence, detail)


def pin(values: Iterable[float | None], *, tolerance: float, mad_factor: float = 5.0, least: int = 3) -> Check:
    """Return the median of a validation's values after outliers were taken out one by one, worst first.

    A value is an outlier if it is further from the median of the rest than `tolerance` and `mad_factor` deviations
    allow, on either side. `unknown` if fewer than `least` remain; `detail["removed"]` lists what was taken out.
    """
    kept = sorted(finite(values))
    removed: list[float] = []
    while len(kept) >= max(2, least):
        worst = max(kept, key=lambda v: abs(v - median(kept)))
        rest = list(kept)
        rest.remove(worst)
        centre = median(rest)
        if abs(worst - centre) <= max(tolerance * abs(centre), mad_factor * mad(rest)):
            break
        kept = rest
        removed.append(worst)
    detail = {"kept": len(kept), "removed": removed}
    if len(kept) < least:
        sentence = f"Only {len(kept)} values are left, {least} are needed for a baseline."
        return Check("pin", "unknown", None, None, "", sentence, detail)
    value = median(kept)
    taken = f", {len(removed)} taken out as outliers" if removed else ""
    return Check("pin", "pass", value, None, "", f"Median {_number(value)} of {len(kept)} values{taken}.", detail)


# ------------------------------------------------------------------------------------------------------------ series


def _series(times: Sequence[float], values: Sequence[float | None]) -> tuple[list[float], list[float], int]:
    """Return times and values in time order without what is not finite, and how many were left out."""
    if len(times) != len(values):
        raise ValueError(f"{len(times)} times but {len(values)} values")
    pairs = sorted(
        (t, v) for t, v in zip(times, values, strict=True) if v is not None and math.isfinite(v) and math.isfinite(t)
    )
    return [t for t, _ in pairs], [v for _, v in pairs], len(times) - len(pairs)


def _folded(
    times: Sequence[float], values: Sequence[float], most: int = MOST_POINTS
) -> tuple[list[float], list[float]]:
    """Return at most `most` points: medians of equally many neighbours."""
    n = len(values)
    if n <= most:
        return list(times), list(values)
    edges = [round(i * n / most) for i in range(most + 1)]
    return (
        [median(times[a:b]) for a, b in pairwise(edges)],
        [median(values[a:b]) for a, b in pairwise(edges)],
    )


def first_against_last(
    times: Sequence[float],
    values: Sequence[float | None],
    *,
    better: Better,
    tolerance: float,
    unit: str,
    span_s: float = 3600.0,
    least: int = 3,
    what: str = "value",
) -> Check:
    """Compare the median of the last hour with that of the first (`span_s` seconds each).

    A run shorter than two spans is compared by its first and last third. Fewer than `least` values in one of them is
    `unknown`. `value` is the change for the worse in per cent of the first (negative = better).
    """
    at, known, lost = _series(times, values)
    kind, share = "first_last", tolerance * 100
    if len(known) < 2 * least:
        sentence = f"{len(known)} values are too few to compare the start of the run with its end{_left_out(lost)}."
        return Check(kind, "unknown", None, share, "%", sentence, {"values": len(known)})
    hours = at[-1] - at[0] >= 2 * span_s
    if hours:
        first = [v for t, v in zip(at, known, strict=True) if t <= at[0] + span_s]
        last = [v for t, v in zip(at, known, strict=True) if t >= at[-1] - span_s]
        names = ("first hour", "last hour") if span_s == 3600.0 else (f"first {span_s:g} s", f"last {span_s:g} s")
    else:
        third = max(least, len(known) // 3)
        first, last = known[:third], known[-third:]
        names = (f"first {third} values", f"last {third} values")
    if min(len(first), len(last)) < least:
        sentence = f"The {names[0]} and the {names[1]} have {len(first)} and {len(last)} values; {least} are needed."
        return Check(kind, "unknown", None, share, "%", sentence, {"first": len(first), "last": len(last)})
    start, end = median(first), median(last)
    if start == 0:
        return Check(kind, "unknown", None, share, "%", f"The {names[0]} has a median of 0 {unit}.", {"last": end})
    change = _badness((end - start) / abs(start), better)
    sentence = (
        f"{what}: {_number(end)} {unit} in the {names[1]}, {_number(start)} {unit} in the {names[0]}: "
        f"{_percent(abs(change))} {'worse' if change > 0 else 'better'}; limit {_percent(tolerance)} worse"
        f"{_left_out(lost)}."
    )
    detail = {"first_median": start, "last_median": end, "unit": unit}
    return Check(kind, "fail" if change > tolerance else "pass", 100 * change, share, "%", sentence, detail)


@dataclass(frozen=True, slots=True)
class Slope:
    """A Theil-Sen slope per unit of time with its confidence interval; `intercept` is the line's value at time 0."""

    slope: float
    low: float
    high: float
    intercept: float
    points: int


def theil_sen(times: Sequence[float], values: Sequence[float], confidence: float = 0.95) -> Slope | None:
    """Return the median of the slopes between all pairs of points, with Sen's interval from Kendall's variance.

    Robust against up to 29 % outliers, needs no distribution. None with fewer than 4 points or all at one time.
    Series longer than `MOST_POINTS` are folded first. Source: P. K. Sen, JASA 63 (1968) 1379.
    """
    at, known, _ = _series(times, values)
    at, known = _folded(at, known)
    n = len(known)
    if n < 4:
        return None
    slopes = sorted((known[j] - known[i]) / (at[j] - at[i]) for i in range(n) for j in range(i + 1, n) if at[j] > at[i])
    if not slopes:
        return None
    middle = float(_median(slopes))
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, math.floor((len(slopes) - half) / 2) - 1)
    high = min(len(slopes) - 1, math.ceil((len(slopes) + half) / 2))
    intercept = median(v - middle * t for t, v in zip(at, known, strict=True))
    return Slope(middle, slopes[low], slopes[high], intercept, n)


def trend(
    times: Sequence[float],
    values: Sequence[float | None],
    *,
    better: Better,
    tolerance: float,
    unit: str,
    confidence: float = 0.95,
    least: int = 6,
    what: str = "value",
) -> Check:
    """Say whether the values drift for the worse: a slope that is certain *and* large.

    Certain: the whole confidence interval lies on the bad side. Large: over the run it makes more than `tolerance` of
    the level at the start. Both, because with ten thousand steps any slope is certain. `value` is the drift over the
    run in per cent, bad direction positive; `detail["per_hour"]` the slope in `unit` per hour (times in seconds).
    """
    at, known, lost = _series(times, values)
    kind, share = "trend", 100 * tolerance
    fit = theil_sen(at, known, confidence) if len(known) >= least else None
    if fit is None:
        sentence = f"{len(known)} values are too few for a trend, {least} are needed{_left_out(lost)}."
        return Check(kind, "unknown", None, share, "%", sentence, {"values": len(known)})
    length = at[-1] - at[0]
    level = abs(fit.intercept + fit.slope * at[0])
    if level == 0:
        return Check(kind, "unknown", None, share, "%", f"{what} starts at 0 {unit}: no relative trend.", {})
    bounds = sorted((_badness(fit.low, better), _badness(fit.high, better)))
    drift = _badness(fit.slope, better) * length / level
    least_drift, most_drift = (bound * length / level for bound in bounds)
    certain = bounds[0] > 0
    bad = certain and drift > tolerance
    sentence = (
        f"{what} drifts by {_percent(abs(drift))} for the {'worse' if drift > 0 else 'better'} over the run "
        f"({_number(3600 * fit.slope)} {unit} an hour; {_percent(least_drift)} to {_percent(most_drift)} worse with "
        f"{100 * confidence:.0f} % confidence); limit {_percent(tolerance)}{_left_out(lost)}."
    )
    detail = {
        "per_hour": 3600 * fit.slope,
        "low_per_hour": 3600 * fit.low,
        "high_per_hour": 3600 * fit.high,
        "certain": certain,
        "points": fit.points,
        "unit": unit,
    }
    return Check(kind, "fail" if bad else "pass", 100 * drift, share, "%", sentence, detail)


def sudden_drop(
    times: Sequence[float],
    values: Sequence[float | None],
    *,
    better: Better,
    tolerance: float,
    unit: str,
    mad_factor: float = 5.0,
    least_before: int = 3,
    least_after: int = 2,
    what: str = "value",
) -> Check:
    """Say whether the values fell at one moment to a worse level and did not come back.

    The moment is the split that leaves the smallest sum of distances from the two medians. It fails if the level after
    it is worse by more than `tolerance` and `mad_factor` deviations within the levels, the last two values are still
    beyond the tolerance, and a step describes the series better than a straight line (a slow drift is `trend`'s). One
    bad value at the end is no drop yet: `detail["last_only"]` is set. `detail["time"]` is when it happened.
    """
    at, known, lost = _series(times, values)
    kind, share = "drop", 100 * tolerance
    if len(known) < least_before + least_after:
        sentence = (
            f"{len(known)} values are too few to see a drop, {least_before + least_after} are needed{_left_out(lost)}."
        )
        return Check(kind, "unknown", None, share, "%", sentence, {"values": len(known)})
    # The moment is looked for in the folded series, the levels are those of all values.
    coarse_at, coarse = _folded(at, known)
    split = _best_split(coarse, least_before, least_after)
    moment = coarse_at[split]
    cut = next(i for i, t in enumerate(at) if t >= moment)
    cut = min(max(cut, least_before), len(known) - least_after)
    before, after = known[:cut], known[cut:]
    high, low = median(before), median(after)
    if high == 0:
        return Check(kind, "unknown", None, share, "%", f"{what} starts at 0 {unit}: no relative drop.", {})
    change = _badness((low - high) / abs(high), better)
    scatter = median([abs(v - high) for v in before] + [abs(v - low) for v in after])
    fell = change > tolerance and abs(low - high) > mad_factor * scatter
    # The end counts by its last two values: one good one after a long bad stretch is no recovery, two are.
    recovered = _badness((median(known[-2:]) - high) / abs(high), better) <= tolerance
    line = theil_sen(coarse_at, coarse)
    step_cost = _cost(coarse[:split]) + _cost(coarse[split:])
    drifting = line is not None and step_cost > sum(
        abs(v - line.intercept - line.slope * t) for t, v in zip(coarse_at, coarse, strict=True)
    )
    bad = fell and not recovered and not drifting
    last_only = not bad and _badness((known[-1] - high) / abs(high), better) > tolerance
    where = f"at value {cut + 1} of {len(known)}"
    if bad:
        sentence = (
            f"{what} fell from {_number(high)} to {_number(low)} {unit} ({_percent(change)} worse) {where} and did not "
            f"recover; limit {_percent(tolerance)}{_left_out(lost)}."
        )
    elif fell and drifting:
        sentence = f"{what} gets worse gradually rather than at one moment; see its trend{_left_out(lost)}."
    elif last_only:
        sentence = (
            f"{what}: only the last value, {_number(known[-1])} {unit}, is more than {_percent(tolerance)} worse than "
            f"{_number(high)} {unit}; one value is no drop yet{_left_out(lost)}."
        )
    else:
        sentence = f"{what}: no lasting drop of more than {_percent(tolerance)}{_left_out(lost)}."
    detail = {
        "before": high,
        "after": low,
        "index": cut,
        "time": at[cut],
        "recovered": fell and recovered,
        "drifting": fell and drifting,
        "last_only": last_only,
        "unit": unit,
    }
    return Check(kind, "fail" if bad else "pass", 100 * change, share, "%", sentence, detail)


def _cost(values: Sequence[float]) -> float:
    centre = median(values)
    return sum(abs(v - centre) for v in values)


def _best_split(values: Sequence[float], least_before: int, least_after: int) -> int:
    first = min(least_before, len(values) - 1)
    last = max(first, len(values) - least_after)
    return min(range(first, last + 1), key=lambda k: (_cost(values[:k]) + _cost(values[k:]), k))


# ------------------------------------------------------------------------------------------------------------ spikes


def spike_positions(
    values: Sequence[float | None], *, better: Better = "lower", tolerance: float = 0.1, mad_factor: float = 10.0
) -> list[int]:
    """Return the indices of values on the bad side of the median of all by more than `tolerance` and `mad_factor` MAD.

    At most a quarter of the values can be spikes; more is a level of its own, and then none is.
    """
    known = finite(values)
    if len(known) < 4:
        return []
    centre = median(known)
    allowed = max(tolerance * abs(centre), mad_factor * mad(known))
    found = [
        i for i, v in enumerate(values) if v is not None and math.isfinite(v) and _badness(v - centre, better) > allowed
    ]
    return found if 4 * len(found) <= len(known) else []


def period_of(positions: Sequence[int]) -> int | None:
    """Return the interval of regular positions (all gaps multiples of the smallest, give or take one), else None."""
    gaps = [b - a for a, b in pairwise(positions)]
    if len(gaps) < 2 or min(gaps) < 2:
        return None
    step = min(gaps)
    if step < 4:  # so small a period would explain nearly anything
        return step if all(gap % step == 0 for gap in gaps) else None
    return step if all(min(gap % step, step - gap % step) <= 1 for gap in gaps) else None


def spikes(
    steps: Sequence[int],
    values: Sequence[float | None],
    *,
    unit: str,
    checkpoint_steps: Iterable[int] = (),
    checkpoint_interval: int | None = None,
    better: Better = "lower",
    tolerance: float = 0.1,
    most: float = 0.02,
    what: str = "step time",
) -> Check:
    """Say whether there are spikes that no checkpoint explains.

    A spike at a checkpoint step (or a step beside it), at a multiple of the interval, or in a regular rhythm of its
    own is expected. It fails if more than `most` of the steps, and at least 3, are spikes without such an explanation.
    `value` and `limit` count spikes.
    """
    if len(steps) != len(values):
        raise ValueError(f"{len(steps)} steps but {len(values)} values")
    known = len(finite(values))
    if known < 10:
        return Check("spikes", "unknown", None, None, "spikes", f"{known} values are too few to look for spikes.", {})
    found = [steps[i] for i in spike_positions(values, better=better, tolerance=tolerance)]
    saves = set(checkpoint_steps)
    near = {s + d for s in saves for d in (-1, 0, 1)}

    def explained(step: int) -> bool:
        if step in near:
            return True
        rest = step % checkpoint_interval if checkpoint_interval else None
        return rest is not None and checkpoint_interval is not None and min(rest, checkpoint_interval - rest) <= 1

    odd = [s for s in found if not explained(s)]
    rhythm = period_of(odd) if not saves and checkpoint_interval is None else None
    if rhythm is not None:
        odd = []
    limit = max(2.0, math.floor(most * known))
    bad = len(odd) > limit
    regular = len(found) - len(odd)
    reason = f"every {rhythm} steps" if rhythm is not None else "at checkpoints"
    sentence = (
        f"{what}: {len(odd)} of {known} steps are spikes that no checkpoint explains (limit {limit:g})"
        + (f", {regular} more are regular, {reason}" if regular else "")
        + (f"; at steps {', '.join(str(s) for s in odd[:8])}{' ...' if len(odd) > 8 else ''}" if odd else "")
        + "."
    )
    detail = {"spikes": len(found), "unexplained": odd[:50], "period": rhythm, "unit": unit}
    return Check("spikes", "fail" if bad else "pass", float(len(odd)), limit, "spikes", sentence, detail)


def without_spikes(
    times: Sequence[float], values: Sequence[float | None], *, better: Better = "lower", tolerance: float = 0.1
) -> tuple[list[float], list[float | None]]:
    """Return the series without its spikes, for trends that must not see checkpoints."""
    drop = set(spike_positions(values, better=better, tolerance=tolerance))
    keep = [i for i in range(len(values)) if i not in drop]
    return [times[i] for i in keep], [values[i] for i in keep]


def checkpoint_growth(
    times: Sequence[float],
    durations: Sequence[float | None],
    *,
    tolerance: float = 0.2,
    floor_s: float = 1.0,
    least: int = 4,
) -> Check:
    """Say whether checkpoints take longer and longer (s): storage that fills or slows down.

    It fails if the last third of the saves took longer than the first by more than `tolerance` and `floor_s` seconds,
    and either the slope is certain (see `trend`) or every late save exceeds every early one. One slow save is no growth.
    """
    at, known, lost = _series(times, durations)
    kind, share = "checkpoint_growth", 100 * tolerance
    if len(known) < least:
        sentence = (
            f"{len(known)} checkpoints are too few to see whether they grow, {least} are needed{_left_out(lost)}."
        )
        return Check(kind, "unknown", None, share, "%", sentence, {"checkpoints": len(known)})
    third = max(2, len(known) // 3)
    first, last = median(known[:third]), median(known[-third:])
    if first <= 0:
        return Check(kind, "unknown", None, share, "%", f"The first checkpoints took {_number(first)} s.", {})
    growth = last / first - 1
    fit = theil_sen(at, known)
    certain = fit is not None and fit.low > 0
    # With few saves the interval of a slope is wide; then every later save must exceed every earlier one.
    separate = min(known[-third:]) > max(known[:third])
    bad = growth > tolerance and last - first > floor_s and (certain or separate)
    sentence = (
        f"Checkpoints took {_number(first)} s at the start and {_number(last)} s at the end of the run "
        f"({'+' if growth >= 0 else '-'}{_percent(abs(growth))}, {len(known)} saves); limit {_percent(tolerance)}"
        f"{_left_out(lost)}."
    )
    detail = {"first": first, "last": last, "certain": certain, "checkpoints": len(known)}
    return Check(kind, "fail" if bad else "pass", 100 * growth, share, "%", sentence, detail)
