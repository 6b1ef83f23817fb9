# SPDX-License-Identifier: Apache-2.0
"""Robust statistics: what is healthy stays healthy whatever a neighbour does, and what is broken is found."""

from __future__ import annotations

import json
import math
import random

import pytest
from burnin.statistics import (
    Check,
    against_baseline,
    checkpoint_growth,
    first_against_last,
    mad,
    median,
    outliers,
    period_of,
    pin,
    spike_positions,
    spikes,
    sudden_drop,
    theil_sen,
    trend,
    without_spikes,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

HPL = {
    "dgx01": 4.312e5, "dgx02": 4.298e5, "dgx03": 3.791e5, "dgx04": 4.321e5,
    "dgx05": 4.305e5, "dgx06": 4.317e5, "dgx07": 4.301e5, "dgx08": 4.309e5,
}  # fmt: skip


def spread(values: dict[str, float | None], **more: object) -> dict[str, Check]:
    arguments: dict[str, object] = {"better": "higher", "tolerance": 0.05, "unit": "Gflops", **more}
    return outliers(values, **arguments)  # type: ignore[arg-type]


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.outcome == "fail"}


# ------------------------------------------------------------------------------------------------------------ helpers


def test_median_and_deviation_ignore_what_is_no_number() -> None:
    assert median([3, None, 1, math.nan, 2, math.inf]) == 2
    assert mad([1, 1, 1, 50]) == 0
    assert mad([1, 1, 1, 50], floor=0.5) == 0.5
    assert mad([1, 2, 3, 4, 100]) == 1
    for call in (median, mad):
        with pytest.raises(ValueError, match="no finite value"):
            call([None, math.nan])


# ------------------------------------------------------------------------------------------------------------- spread


def test_the_guides_slow_node_is_the_only_one() -> None:
    checks = spread(HPL)
    assert failed(checks) == {"dgx03"}
    assert checks["dgx03"].detail["relative"] == pytest.approx(-0.12, abs=0.002)
    assert (
        "dgx03: value 3.791e+05 Gflops is 12.0 % below the median 4.309e+05 Gflops of its 7 peers"
        in checks["dgx03"].sentence
    )


def test_too_few_peers_says_so() -> None:
    checks = spread({"a": 100.0, "b": 50.0, "c": 100.0})
    assert {c.outcome for c in checks.values()} == {"unknown"}
    assert "only 2 peers" in checks["a"].sentence and "at least 3" in checks["a"].sentence
    assert failed(spread({"a": 100.0, "b": 50.0, "c": 100.0}, least_peers=2)) == {"b"}
    assert "only 1 peer to" in spread({"a": 1.0, "b": 2.0})["a"].sentence


def test_a_missing_or_nan_value_is_unknown_and_no_peer() -> None:
    checks = spread({**HPL, "dgx09": None, "dgx10": math.nan})
    assert checks["dgx09"].outcome == checks["dgx10"].outcome == "unknown"
    assert checks["dgx01"].detail["peers"] == 7 and failed(checks) == {"dgx03"}


def test_a_wide_spread_makes_no_outlier_of_an_ordinary_value() -> None:
    wide = {str(i): v for i, v in enumerate([80.0, 90.0, 100.0, 110.0, 120.0])}
    assert failed(spread(wide)) == set()
    assert failed(spread(wide, mad_factor=0)) == {"0", "1"}


def test_a_floor_in_units_keeps_small_numbers_quiet() -> None:
    small = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0}
    assert failed(spread(small, better="lower", unit="C")) == {"d"}
    assert failed(spread(small, better="lower", unit="C", floor=5.0)) == set()


HEALTHY = st.lists(st.floats(0.99, 1.01), min_size=4, max_size=12)


@given(HEALTHY, st.floats(-1e6, 1e6), st.sampled_from(["higher", "lower"]))
def test_one_outlier_never_moves_the_verdict_of_the_others(healthy: list[float], odd: float, better: str) -> None:
    values: dict[str, float | None] = {f"n{i}": v for i, v in enumerate(healthy)}
    checks = spread({**values, "odd": odd}, better=better)
    assert failed(checks) <= {"odd"}
    far = odd < 0.9 if better == "higher" else odd > 1.1
    assert (checks["odd"].outcome == "fail") == far or 0.9 <= odd <= 1.1


@given(st.lists(st.floats(10, 1000), min_size=4, max_size=12), st.floats(0.001, 1000))
def test_spread_does_not_depend_on_the_unit(numbers: list[float], scale: float) -> None:
    values: dict[str, float | None] = {str(i): v for i, v in enumerate(numbers)}
    before = spread(values)
    assume(all(abs((c.value or 0) - (c.limit or 0)) > 1e-6 for c in before.values()))
    assert failed(before) == failed(spread({k: (v or 0) * scale for k, v in values.items()}))


@given(st.lists(st.floats(0, 100), min_size=4, max_size=12), st.floats(-1000, 1000))
def test_spread_in_deviations_does_not_depend_on_the_zero(numbers: list[float], shift: float) -> None:
    # temperatures: no percentage, only deviations and a floor in degrees
    values: dict[str, float | None] = {str(i): v for i, v in enumerate(numbers)}
    before = spread(values, better="lower", tolerance=0, floor=8.0)
    assume(all(abs((c.value or 0) - (c.limit or 0)) > 1e-6 for c in before.values()))
    moved: dict[str, float | None] = {k: (v or 0) + shift for k, v in values.items()}
    assert failed(before) == failed(spread(moved, better="lower", tolerance=0, floor=8.0))


def test_baseline() -> None:
    good = against_baseline(360.0, 373.0, better="higher", band=0.05, unit="GB/s", what="busbw")
    assert good.outcome == "pass" and good.limit == pytest.approx(354.35)
    bad = against_baseline(331.08, 373.0, better="higher", band=0.05, unit="GB/s", what="busbw")
    assert bad.outcome == "fail" and "11.2 % below the baseline 373 GB/s" in bad.sentence
    assert against_baseline(2.3, 2.1, better="lower", band=0.05, unit="s").outcome == "fail"
    assert against_baseline(None, 2.1, better="lower", band=0.05, unit="s").outcome == "unknown"


def test_pinning_takes_outliers_out_one_by_one() -> None:
    check = pin([*HPL.values(), 1.0], tolerance=0.02)
    assert check.outcome == "pass" and check.detail["removed"] == [1.0, 3.791e5]
    assert check.value == pytest.approx(4.309e5)
    assert pin([1.0, None, 2.0], tolerance=0.02).outcome == "unknown"
    assert pin([5.0] * 4, tolerance=0.02).detail["removed"] == []


# -------------------------------------------------------------------------------------------------------------- trend


def hours(count: int, total_h: float = 24.0) -> list[float]:
    return [3600 * total_h * i / (count - 1) for i in range(count)]


def noise(count: int, size: float = 0.003, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [source.uniform(-size, size) for _ in range(count)]


UP: dict[str, object] = {"better": "higher", "tolerance": 0.05, "unit": "GB/s"}
DOWN: dict[str, object] = {"better": "lower", "tolerance": 0.05, "unit": "s"}


def test_last_hour_against_first_hour() -> None:
    times = hours(241)
    flat = [373 * (1 + n) for n in noise(241)]
    assert first_against_last(times, flat, **UP).outcome == "pass"  # type: ignore[arg-type]
    worn = [v * (1 - 0.08 * i / 240) for i, v in enumerate(flat)]
    check = first_against_last(times, worn, **UP)  # type: ignore[arg-type]
    assert check.outcome == "fail" and check.value == pytest.approx(7.9, abs=0.6)
    assert "in the last hour" in check.sentence and "worse; limit 5.0 %" in check.sentence
    assert first_against_last(times, worn, **DOWN).outcome == "pass"  # type: ignore[arg-type]


def test_a_24_hour_average_hides_what_the_last_hour_shows() -> None:
    values = [373.0] * 220 + [331.0] * 21
    assert sum(values) / len(values) > 0.95 * 373
    assert first_against_last(hours(241), values, **UP).outcome == "fail"  # type: ignore[arg-type]


def test_a_short_run_is_compared_by_thirds() -> None:
    check = first_against_last(hours(9, 0.5), [10.0] * 6 + [9.0] * 3, **UP)  # type: ignore[arg-type]
    assert check.outcome == "fail" and "last 3 values" in check.sentence
    assert first_against_last(hours(4), [1.0] * 4, **UP).outcome == "unknown"  # type: ignore[arg-type]
    sparse = first_against_last([0.0, 1, 2, 40000, 80000, 90000], [1.0] * 6, **UP)  # type: ignore[arg-type]
    assert sparse.outcome == "unknown"


def test_theil_sen_finds_a_line_through_outliers() -> None:
    times = [float(i) for i in range(40)]
    values = [2 * t + 5 + n for t, n in zip(times, noise(40, 0.5), strict=True)]
    for i in (3, 11, 17, 25, 33):
        values[i] = 1000.0
    fit = theil_sen(times, values)
    assert fit is not None
    assert fit.slope == pytest.approx(2, abs=0.05)
    assert fit.low < 2 < fit.high and fit.high - fit.low < 0.2
    assert fit.intercept == pytest.approx(5, abs=1)
    assert theil_sen([1.0] * 10, [1.0] * 10) is None
    assert theil_sen([1.0, 2, 3], [1.0, 2, 3]) is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    source = random.Random(7)
    covered = 0
    for _ in range(200):
        values = [0.1 * t + source.gauss(0, 1) for t in range(20)]
        fit = theil_sen([float(t) for t in range(20)], values)
        covered += fit is not None and fit.low <= 0.1 <= fit.high
    assert covered >= 180


@given(st.floats(-0.5, 0.5), st.floats(0.01, 100), st.floats(-1e4, 1e4), st.integers(0, 50))
def test_slope_scales_and_shifts(slope: float, scale: float, shift: float, seed: int) -> None:
    times = [float(t) for t in range(12)]
    values = [slope * t + n for t, n in zip(times, noise(12, 0.2, seed), strict=True)]
    plain, scaled = theil_sen(times, values), theil_sen(times, [scale * v for v in values])
    moved = theil_sen([t + shift for t in times], [v + shift for v in values])
    assert plain is not None and scaled is not None and moved is not None
    assert scaled.slope == pytest.approx(scale * plain.slope, rel=1e-6, abs=1e-9)
    assert moved.slope == pytest.approx(plain.slope, rel=1e-4, abs=1e-6)
    assert moved.high == pytest.approx(plain.high, rel=1e-4, abs=1e-6)


def test_a_creeping_step_time_is_a_trend_and_a_flat_one_is_not() -> None:
    times = hours(300, 6)
    creeping = [2.1 * (1 + 0.1 * i / 299) * (1 + n) for i, n in enumerate(noise(300, 0.01))]
    check = trend(times, creeping, **DOWN)  # type: ignore[arg-type]
    assert check.outcome == "fail" and check.value == pytest.approx(10, abs=0.7)
    assert check.detail["per_hour"] == pytest.approx(0.035, abs=0.003)
    assert "95 % confidence" in check.sentence
    assert trend(times, creeping, better="higher", tolerance=0.05, unit="s").outcome == "pass"
    flat = trend(times, [2.1 * (1 + n) for n in noise(300, 0.01)], **DOWN)  # type: ignore[arg-type]
    assert flat.outcome == "pass" and abs(flat.value or 0) < 1


def test_a_certain_but_small_slope_is_no_fault_and_a_large_uncertain_one_is_not_either() -> None:
    small = trend(hours(1000), [1 + 0.01 * i / 999 for i in range(1000)], **DOWN)  # type: ignore[arg-type]
    assert small.outcome == "pass" and small.detail["certain"]
    wild = trend(hours(6), [1.0, 1.4, 0.8, 1.5, 0.9, 1.3], **DOWN)  # type: ignore[arg-type]
    assert wild.outcome == "pass" and not wild.detail["certain"]


def test_a_trend_of_too_few_values_is_unknown() -> None:
    assert trend(hours(5), [1.0] * 5, **DOWN).outcome == "unknown"  # type: ignore[arg-type]
    lost = trend(hours(8), [1.0, None, math.nan, 1.0, 1.0, 1.0, 1.0, math.inf], **DOWN)  # type: ignore[arg-type]
    assert lost.outcome == "unknown" and "3 values that are no numbers left out" in lost.sentence
    with pytest.raises(ValueError, match="2 times but 1 values"):
        trend([1.0, 2.0], [1.0], **DOWN)  # type: ignore[arg-type]


@given(st.integers(0, 99), st.floats(0.01, 100), st.floats(0, 1e6))
def test_one_wild_value_does_not_make_a_trend(position: int, wild: float, start: float) -> None:
    values: list[float | None] = [2.1 * (1 + n) for n in noise(100)]
    values[position] = wild
    times = [start + t for t in hours(100)]
    assert trend(times, values, **DOWN).outcome == "pass"  # type: ignore[arg-type]
    assert sudden_drop(times, values, **DOWN).outcome == "pass"  # type: ignore[arg-type]
    assert first_against_last(times, values, **DOWN).outcome == "pass"  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- drop


def test_the_guides_drop_after_a_port_error() -> None:
    values = [373.37, 372.84, 372.95, 331.08, 344.61]
    check = sudden_drop([600.0 * i for i in range(5)], values, **UP)  # type: ignore[arg-type]
    assert check.outcome == "fail" and check.detail["index"] == 3 and check.detail["time"] == 1800
    assert "fell from 372.9 to 337.8 GB/s (9.4 % worse) at value 4 of 5 and did not recover" in check.sentence


def test_a_drop_that_recovers_is_none() -> None:
    values = [373.0 + n for n in noise(20, 1)] + [331.0] * 15 + [373.0] * 2
    check = sudden_drop(hours(37), values, **UP)  # type: ignore[arg-type]
    assert check.outcome == "pass" and check.detail["recovered"]
    late = [373.0] * 5 + [331.0] * 3 + [373.0] * 30
    assert sudden_drop(hours(38), late, **UP).outcome == "pass"  # type: ignore[arg-type]


def test_one_bad_value_at_the_end_is_no_drop_yet_two_are() -> None:
    one = sudden_drop(hours(11), [373.0] * 10 + [331.0], **UP)  # type: ignore[arg-type]
    assert one.outcome == "pass" and one.detail["last_only"] and "only the last value" in one.sentence
    two = sudden_drop(hours(12), [373.0] * 10 + [331.0] * 2, **UP)  # type: ignore[arg-type]
    assert two.outcome == "fail" and two.detail["index"] == 10


def test_a_slow_drift_is_left_to_the_trend() -> None:
    values = [373 * (1 - 0.12 * i / 99) for i in range(100)]
    check = sudden_drop(hours(100), values, **UP)  # type: ignore[arg-type]
    assert check.outcome == "pass"
    assert trend(hours(100), values, **UP).outcome == "fail"  # type: ignore[arg-type]


def test_a_drop_in_a_long_series_is_found_at_its_place() -> None:
    values = [2.1 * (1 + n) for n in noise(5000)]
    for i in range(3333, 5000):
        values[i] *= 1.1
    check = sudden_drop([float(i) for i in range(5000)], values, **DOWN)  # type: ignore[arg-type]
    assert check.outcome == "fail" and abs(check.detail["index"] - 3333) <= 30


def test_too_few_values_for_a_drop() -> None:
    assert sudden_drop(hours(4), [1.0] * 4, **UP).outcome == "unknown"  # type: ignore[arg-type]


@given(st.integers(3, 40), st.integers(2, 40), st.floats(0.08, 0.9), st.floats(0.01, 1e5), st.integers(0, 20))
def test_any_lasting_drop_is_found_in_any_unit(before: int, after: int, size: float, scale: float, seed: int) -> None:
    values = [scale * (1 + n) for n in noise(before + after, 0.004, seed)]
    for i in range(before, before + after):
        values[i] *= 1 - size
    times = [10.0 * i for i in range(before + after)]
    check = sudden_drop(times, values, **UP)  # type: ignore[arg-type]
    found = check.outcome == "fail"
    # with very few values on either side a step cannot be told from a line; then the trend or the ends must say it
    ends = first_against_last(times, values, **UP)  # type: ignore[arg-type]
    assert found or check.detail["drifting"] or ends.outcome == "fail"
    if before >= 5 and after >= 5:
        assert found and check.detail["index"] == before


# ------------------------------------------------------------------------------------------------------------- spikes


def training(count: int = 1000, interval: int = 100, spike: float = 38.0, seed: int = 3) -> list[float | None]:
    values: list[float | None] = [2.1 * (1 + n) for n in noise(count, 0.01, seed)]
    for step in range(interval, count, interval):
        values[step] = spike
    return values


def test_checkpoint_spikes_are_no_fault() -> None:
    values, steps = training(), list(range(1000))
    for known in ({"checkpoint_interval": 100}, {"checkpoint_steps": range(99, 1000, 100)}, {}):
        check = spikes(steps, values, unit="s", **known)  # type: ignore[arg-type]
        assert check.outcome == "pass" and check.value == 0, known
        assert check.detail["spikes"] == 9
    assert trend([float(s) for s in steps], values, **DOWN).outcome == "pass"  # type: ignore[arg-type]


def test_random_spikes_between_checkpoints_are_reported() -> None:
    values = training()
    source = random.Random(5)
    for _ in range(60):
        values[source.randrange(1000)] = 4.0
    check = spikes(list(range(1000)), values, unit="s", checkpoint_interval=100)
    assert check.outcome == "fail" and (check.value or 0) > 40
    assert "spikes that no checkpoint explains (limit 20)" in check.sentence


def test_one_slow_step_is_no_fault() -> None:
    values = training()
    values[555] = 9.0
    check = spikes(list(range(1000)), values, unit="s", checkpoint_interval=100)
    assert check.outcome == "pass" and check.detail["unexplained"] == [555]


def test_spikes_of_too_few_values_are_unknown() -> None:
    assert spikes([1, 2], [1.0, 2.0], unit="s").outcome == "unknown"
    with pytest.raises(ValueError, match="steps"):
        spikes([1], [], unit="s")


def test_half_of_the_values_being_high_is_a_level_not_spikes() -> None:
    assert spike_positions([1.0] * 6 + [9.0] * 5) == []
    assert spike_positions([1.0, None, math.nan]) == []


@pytest.mark.parametrize(
    ("positions", "period"),
    [([100, 200, 300], 100), ([99, 200, 300, 500], 100), ([3, 50, 61], None), ([5, 6, 7], None), ([10, 20], None), ([2, 4, 8], 2)],
)  # fmt: skip
def test_periods(positions: list[int], period: int | None) -> None:
    assert period_of(positions) == period


@settings(max_examples=15)
@given(st.integers(0, 30), st.floats(1.5, 100))
def test_trends_are_the_same_with_and_without_checkpoints(seed: int, spike: float) -> None:
    steps = [float(i) for i in range(400)]
    plain, spiky = training(400, 10_000, seed=seed), training(400, 40, 2.1 * spike, seed=seed)
    kept_times, kept = without_spikes(steps, spiky)
    assert len(kept) == 400 - 9
    for check in (trend, first_against_last, sudden_drop):
        outcome = check(steps, plain, **DOWN).outcome  # type: ignore[operator]
        assert outcome == check(steps, spiky, **DOWN).outcome == check(kept_times, kept, **DOWN).outcome == "pass"  # type: ignore[operator]


# -------------------------------------------------------------------------------------------------------- checkpoints


def test_growing_checkpoints_are_a_fault_and_steady_ones_are_not() -> None:
    steady = [37.882 * (1 + n) for n in noise(10, 0.05)]
    assert checkpoint_growth(hours(10), steady).outcome == "pass"
    growing = [v * (1 + 0.08 * i) for i, v in enumerate(steady)]
    check = checkpoint_growth(hours(10), growing)
    assert check.outcome == "fail" and (check.value or 0) > 40
    assert "(+" in check.sentence and "10 saves" in check.sentence
    assert checkpoint_growth(hours(4), [30.0, 35.0, 42.0, 50.0]).outcome == "fail"
    assert checkpoint_growth(hours(3), [30.0, 40.0, 50.0]).outcome == "unknown"


def test_one_slow_save_and_small_saves_are_no_growth() -> None:
    assert checkpoint_growth(hours(8), [30.0, 30.5, 29.5, 90.0, 30.0, 30.2, 29.8, 30.1]).outcome == "pass"
    assert checkpoint_growth(hours(8), [0.1 * (1 + 0.1 * i) for i in range(8)]).outcome == "pass"
    assert checkpoint_growth(hours(8), [30.0] * 7 + [90.0]).outcome == "pass"


@given(st.lists(st.floats(1e-3, 1e6), min_size=0, max_size=30), st.sampled_from([1.0, 1e-3, 60.0]))
def test_every_check_of_any_series_is_a_sentence_and_json(values: list[float], pace: float) -> None:
    times = [pace * i for i in range(len(values))]
    for check in (
        trend(times, values, **DOWN),  # type: ignore[arg-type]
        sudden_drop(times, values, **UP),  # type: ignore[arg-type]
        first_against_last(times, values, **UP),  # type: ignore[arg-type]
        spikes(list(range(len(values))), values, unit="s"),
        checkpoint_growth(times, values),
        *outliers({str(i): v for i, v in enumerate(values)}, better="lower", tolerance=0.05, unit="s").values(),
        pin(values, tolerance=0.05),
    ):
        json.dumps(check.to_dict(), allow_nan=False)
        assert check.sentence.endswith(".") and check.outcome in ("pass", "fail", "unknown")


def test_speed_of_a_day_of_steps() -> None:
    import time

    values = training(40_000, 500)
    steps = [float(i) for i in range(40_000)]
    begin = time.process_time()
    trend(steps, values, **DOWN)  # type: ignore[arg-type]
    sudden_drop(steps, values, **DOWN)  # type: ignore[arg-type]
    spikes(list(range(40_000)), values, unit="s", checkpoint_interval=500)
    assert time.process_time() - begin < 3
