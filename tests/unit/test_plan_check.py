# SPDX-License-Identifier: Apache-2.0
"""What cannot work is refused at the start, with the sizes named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config as configuration
from burnin import plan_check
from burnin.errors import ConfigError
from burnin.plan_check import (
    Refusal,
    WorkloadNumbers,
    check_config,
    check_hpl,
    check_plan,
    fitted_batch,
    group_sizes,
    time_limit_minutes,
)
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


# ------------------------------------------------------------------------------------------------------- of a config

ROOT = Path(__file__).resolve().parents[2]


def loaded(
    nodes: int, training: dict[str, Any] | None = None, recipe: str = "workloads", **changes: Any
) -> configuration.Config:
    """Return the shipped config for so many nodes, with changes of nemo's training and of the slurm section."""
    raw = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    raw["workload_definitions"] = yaml.safe_load((ROOT / "config" / f"{recipe}.yaml").read_text(encoding="utf-8"))
    raw["workload_definitions"]["nemo"]["training"] |= training or {}
    raw["nodes"] = f"dgx[0001-{nodes:04d}]"
    raw["slurm"] |= changes.pop("slurm", {})
    return configuration.load(raw | changes, ROOT)


@pytest.mark.parametrize("nodes", [*range(1, 9), 16, 31, 1024])
def test_the_shipped_config_passes_on_any_number_of_nodes(nodes: int) -> None:
    check_config(loaded(nodes))


@pytest.mark.parametrize("nodes", [1, 7, 8])
def test_the_second_recipe_is_valid_and_differs_in_the_training_only(nodes: int) -> None:
    bridge, nemo = loaded(nodes, recipe="workloads-megatron-bridge"), loaded(nodes)
    check_config(bridge)
    assert all(bridge.definition(w) == nemo.definition(w) for w in ("nccl", "hpl"))
    assert bridge.definition("nemo")["training"] == nemo.definition("nemo")["training"]
    assert "run_recipe.py" in bridge.definition("nemo")["commands"]["pretrain"]


def test_the_sizes_are_those_of_the_ladder() -> None:
    assert group_sizes(loaded(7), "nemo") == {
        "single": (1,),
        "x2": (2,),
        "halves": (3, 4),
        "full": (7,),
        "resume": (7,),
    }


def test_a_config_with_tp_16_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(loaded(8, {"tensor_parallel": 16}))
    assert caught.value.key == "workload_definitions.nemo.training.tensor_parallel"
    assert "8 GPUs of a node" in str(caught.value) and "use TP 8" in caught.value.cure


def test_a_config_with_gbs_100_on_7_nodes_is_refused_unless_it_is_fitted() -> None:
    fixed = {"global_batch_size": 100, "context_parallel": 1, "fit_batch": False}
    with pytest.raises(ConfigError) as caught:
        check_config(loaded(7, fixed))
    assert caught.value.key == "workload_definitions.nemo.training.global_batch_size"
    assert "on 1, 2, 3, 4 and 7 nodes" in str(caught.value) and "What to do: use GBS" in str(caught.value)
    fitted = loaded(7, fixed | {"fit_batch": True})
    check_config(fitted)
    training = fitted.definition("nemo")["training"]
    assert {n: fitted_batch(training, n * 8) for n in (1, 2, 3, 4, 7, 64)} == {
        1: 104, 2: 96, 3: 96, 4: 96, 7: 112, 64: 512,
    }  # fmt: skip


def test_a_window_longer_than_the_partition_allows_is_refused() -> None:
    windows = {w: {"default": {"hours": 12}} for w in ("nccl", "hpl", "nemo")}
    check_config(loaded(4, windows=windows, slurm={"partition_limit_minutes": 13 * 60}))
    check_config(loaded(4, windows=windows))
    with pytest.raises(ConfigError) as caught:
        check_config(loaded(4, windows=windows, slurm={"partition_limit_minutes": 12 * 60}))
    text = str(caught.value)
    assert caught.value.key == "windows.nccl.default" and text.count("windows.nccl") == 1
    assert "12 h 30 min (window 12 h + overhead 30 min)" in text and "at most 11 h 30 min" in text
    assert "Also: config key 'windows.hpl.default'" in text, "everything that does not fit is said at once"


def test_a_time_limit_that_kills_a_healthy_run_is_refused() -> None:
    windows = {w: {"default": {"hours": 2}} for w in ("nccl", "hpl", "nemo")}
    with pytest.raises(ConfigError, match="at least 2 h 30 min") as caught:
        check_config(loaded(4, windows=windows, slurm={"time_limit_minutes": 120}))
    assert caught.value.key == "slurm.time_limit_minutes"


def test_steps_are_sized_to_the_iteration_and_leave_room_behind_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match="use at most 180 steps"):
        check_config(loaded(4, {"max_steps": 200, "step_seconds": 10}))
    with pytest.raises(ConfigError, match="goes on after a checkpoint"):
        check_config(loaded(4, {"max_steps": 22, "checkpoint_every": 20}))


def test_a_derived_time_limit_stays_within_the_partition() -> None:
    slurm = {"time_limit_minutes": None, "iteration_minutes": 30, "time_margin_minutes": 30}
    assert time_limit_minutes({"hours": 12}, slurm) == 930
    assert time_limit_minutes({"hours": 12}, slurm | {"partition_limit_minutes": 800}) == 800
    assert time_limit_minutes({"iterations": 4}, slurm) == 150


TRAINING = {
    "tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 2, "global_batch_size": 128, "micro_batch_size": 1,
    "sequence_length": 8192, "max_steps": 60, "checkpoint_every": 20, "fit_batch": True,
}  # fmt: skip
#: As the lab prints it, as Python prints a recipe, and in a table whose last column is wrapped.
RESOLVED = """\
data:
  global_batch_size: {gbs}
  micro_batch_size: 1
trainer:
  max_steps: 60
  num_nodes: 8
  strategy.tensor_model_parallel_size: {tp}
  strategy.context_parallel_size: 2
"""
RECIPE = (
    "pretrain(data=MockDataModule(seq_length=8192, global_batch_size={gbs}, micro_batch_size=1), model=LlamaModel(seq_length=4096), "
    "trainer=Trainer(max_steps=60, num_nodes=8, strategy=MegatronStrategy(tensor_model_parallel_size={tp})))"
)
TABLE = """\
│ data     │ MockDataModule(seq_length=8192, global_batch_   │
│          │ size={gbs}, micro_batch_size=1)                 │
│ trainer  │ Trainer(max_steps=60, num_nodes=8, strategy=Mega │
│          │ tronStrategy(tensor_model_parallel_size={tp}))   │
"""


@pytest.mark.parametrize("text", [RESOLVED, RECIPE, TABLE], ids=["lab", "recipe", "table"])
def test_what_the_trainer_resolves_is_held_against_the_config(text: str) -> None:
    def said(gbs: int, tp: int) -> list[tuple[str, object, str]]:
        found = plan_check.contradictions("nemo", TRAINING, 8, 64, text.format(gbs=gbs, tp=tp))
        return [(r.key.rpartition(".")[2], r.value, r.expected) for r in found]

    assert said(128, 1) == []
    (tp, gbs) = said(512, 4)
    assert tp[:2] == ("tensor_parallel", 1) and tp[2].startswith("4, which is what nemo's dry run resolves")
    assert gbs[:2] == ("global_batch_size", 128) and gbs[2].startswith("512, ")


def test_what_the_trainer_does_not_say_is_no_contradiction() -> None:
    assert plan_check.contradictions("nemo", TRAINING, 8, 64, "") == []
    assert plan_check.contradictions("nemo", {}, 8, 64, "global_batch_size: 7") == []
    assert plan_check.contradictions("nemo", TRAINING, 8, 64, "max_steps=None, my_max_steps=7") == []
    # the batch is fitted to the group that the dry run is about: 3 nodes of 8 GPUs take 132
    assert plan_check.contradictions("nemo", TRAINING, 3, 24, "global_batch_size: 132") == []
    (found,) = plan_check.contradictions("nemo", TRAINING, 3, 24, "num_nodes: 8")
    assert (found.key, found.value) == ("nodes", 3)
