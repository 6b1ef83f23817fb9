# SPDX-License-Identifier: Apache-2.0
"""What cannot work is refused at the start, with the sizes named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from burnin.errors import ConfigError
from burnin.plan_check import Refusal, WorkloadNumbers, check_hpl, check_plan
from hypothesis import given
from hypothesis import strategies as st

HOUR = 3600.0
NEMO = WorkloadNumbers(
    "nemo",
    tp=1,
    pp=1,
    cp=2,
    gbs=128,
    mbs=1,
    seq=8192,
    step_seconds={1: 9.2, 2: 4.7, 4: 2.4, 8: 2.1},
    startup_s=90,
    max_steps=500,
    checkpoint_interval_steps=100,
    iteration_limit_s=2 * HOUR,
    window_s=4 * HOUR,
    overhead_s=300,
    time_limit_s=8 * HOUR,
)
LADDER = [1, 2, 4, 8]


def check(workload: WorkloadNumbers, sizes: list[int] = LADDER, limit: float | None = 24 * HOUR) -> list[Refusal]:
    return check_plan([workload], sizes, 8, limit)


def test_a_sound_plan_is_not_refused() -> None:
    assert check(NEMO) == []
    assert check(WorkloadNumbers("nccl", window_s=HOUR)) == []


def test_tp_16_is_refused_once() -> None:
    (refusal,) = check(replace(NEMO, tp=16))
    assert (refusal.key, refusal.value) == ("workloads.nemo.tp", 16)
    assert refusal.sentence == (
        "config key 'workloads.nemo.tp' is 16; expected a divisor of the 8 GPUs of a node, so that TP stays inside its "
        "NVLink domain. What to do: use TP 8 and split further with PP or CP; "
        "across nodes it would measure the wrong thing"
    )


def test_gbs_100_on_7_nodes_is_refused() -> None:
    (refusal,) = check(replace(NEMO, gbs=100), [1, 7])
    assert (refusal.key, refusal.value, refusal.nodes) == ("workloads.nemo.gbs", 100, (7,))
    assert "1 x 28 = 28 (GA would be 3.57, it must be whole)" in refusal.expected
    assert refusal.cure == "use GBS 112, which fits every size of the ladder"
    assert "on 7 nodes" in refusal.sentence and "on 7 nodes" in str(refusal.error())
    assert check(replace(NEMO, gbs=112), [1, 7]) == []


def test_sizes_that_do_not_fit_are_named_together() -> None:
    (refusal,) = check(replace(NEMO, gbs=100), [1, 2, 3, 6, 7])
    assert refusal.nodes == (2, 3, 6, 7)
    assert "on 2, 3, 6 and 7 nodes" in refusal.sentence
    # a batch for all of them would be far from what was asked for, so only the first size's is offered
    (refusal,) = check(replace(NEMO, gbs=10, mbs=4), [1, 7, 11, 13])
    assert "every size" not in refusal.cure


def test_a_split_larger_than_a_group_is_refused_for_those_groups() -> None:
    (refusal,) = check(replace(NEMO, tp=4, pp=8, cp=1), [1, 2, 4, 8])
    assert (refusal.key, refusal.nodes) == ("workloads.nemo.tp x pp x cp", (1, 2))
    assert "multiple of 32 GPUs" in refusal.cure


def test_steps_that_do_not_fit_are_refused_with_the_number_that_does() -> None:
    (refusal,) = check(replace(NEMO, max_steps=2000, time_limit_s=None))
    assert refusal.key == "workloads.nemo.max_steps" and refusal.nodes == (1, 2)
    assert "2000 steps of 9.2 s take 5 h 9 min" in refusal.expected and "limit of 2 h" in refusal.expected
    assert "at most 772 steps" in refusal.cure
    assert check(replace(NEMO, max_steps=772, time_limit_s=None)) == []
    assert check(replace(NEMO, max_steps=773, time_limit_s=None)) != []


def test_a_limit_shorter_than_one_step_asks_for_a_longer_limit() -> None:
    (refusal,) = check(replace(NEMO, iteration_limit_s=60.0))
    assert refusal.cure == "use a longer limit"


@pytest.mark.parametrize("interval", [0, 500, 501, 1000])
def test_a_checkpoint_interval_outside_the_run_is_refused(interval: int) -> None:
    (refusal,) = check(replace(NEMO, checkpoint_interval_steps=interval))
    assert (refusal.key, refusal.value) == ("workloads.nemo.checkpoint_interval_steps", interval)
    assert "at most 499" in refusal.cure
    assert check(replace(NEMO, checkpoint_interval_steps=499)) == []


def test_the_resume_test_needs_steps_after_its_checkpoint() -> None:
    assert check(replace(NEMO, checkpoint_interval_steps=495, resume_margin_steps=10))
    (refusal,) = check(replace(NEMO, max_steps=1, checkpoint_interval_steps=1))
    assert "more than 1 steps" in refusal.cure


def test_a_window_longer_than_the_partitions_limit_is_refused() -> None:
    (refusal,) = check_plan([WorkloadNumbers("hpl", window_s=24 * HOUR)], LADDER, 8, 12 * HOUR)
    assert refusal.key == "workloads.hpl.window" and refusal.value == "24 h"
    assert "limit of 12 h" in refusal.expected and "at most 12 h" in refusal.cure


def test_the_last_iteration_and_the_overhead_count_too() -> None:
    refusals = check(replace(NEMO, window_s=23 * HOUR, time_limit_s=None))
    assert [r.key for r in refusals] == ["workloads.nemo.window"]
    assert "window 23 h + last iteration 1 h 19 min + overhead 5 min" in refusals[0].expected
    assert "at most 22 h 36 min" in refusals[0].cure
    assert check(replace(NEMO, window_s=22 * HOUR + 36 * 60, time_limit_s=None)) == []


def test_a_job_limit_shorter_than_the_run_or_longer_than_the_partitions_is_refused() -> None:
    (refusal,) = check(replace(NEMO, time_limit_s=4 * HOUR))
    assert refusal.key == "workloads.nemo.time_limit" and "Slurm kills a healthy run" in refusal.expected
    (refusal,) = check(replace(NEMO, time_limit_s=48 * HOUR))
    assert "Slurm never starts" in refusal.expected


def test_no_partition_limit_refuses_no_window() -> None:
    assert check(WorkloadNumbers("nccl", window_s=1000 * HOUR), limit=None) == []


def test_numbers_that_make_no_sense_are_refused() -> None:
    assert check(replace(NEMO, max_steps=0))[0].key == "workloads.nemo.max_steps"
    assert check(replace(NEMO, mbs=0))[0].key == "workloads.nemo.gbs, mbs, dp"
    assert check(WorkloadNumbers("nccl", window_s=0))[0].key == "workloads.nccl.window"
    assert check(NEMO, [])[0].key == "nodes"
    assert check(NEMO, [0, 1])[0].key == "nodes"


def test_a_size_without_a_step_time_takes_the_nearest_smaller_one() -> None:
    assert NEMO.step_seconds_on(3) == 4.7
    assert NEMO.step_seconds_on(64) == 2.1
    assert replace(NEMO, step_seconds={4: 2.0}).step_seconds_on(1) == 2.0
    assert replace(NEMO, step_seconds={}).step_seconds_on(1) is None
    assert WorkloadNumbers("x", step_seconds=3).step_seconds_on(9) == 3


def test_hpl_sizes_are_checked_with_all_groups_named() -> None:
    assert check_hpl([1, 2, 3, 7, 16, 128], 8, 81559) == []
    (refusal,) = check_hpl([1, 127, 131], 8, 30.0)
    assert (refusal.key, refusal.nodes) == ("workloads.hpl.nb", (127, 131))
    assert isinstance(refusal.error(), ConfigError)


@given(st.integers(1, 600), st.integers(1, 4), st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_a_suggested_batch_fits_and_a_refused_one_does_not(gbs: int, mbs: int, sizes: list[int]) -> None:
    workload = WorkloadNumbers("nemo", tp=2, gbs=gbs, mbs=mbs)
    refusals = check_plan([workload], sizes, 8)
    bad = [n for n in sorted(set(sizes)) if gbs % (mbs * 4 * n)]
    assert [r.nodes for r in refusals] == ([tuple(bad)] if bad else [])
    for refusal in refusals:
        if "every size" in refusal.cure:
            suggested = int(refusal.cure.split()[2].rstrip(","))
            assert check_plan([replace(workload, gbs=suggested)], sizes, 8) == []
