# SPDX-License-Identifier: Apache-2.0
"""Speed: among peers, against baselines and the step before, and over time; what is everybody's; what is a hiccup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config, storage
from burnin.errors import ConfigError
from burnin.judging import baselines, performance
from burnin.judging.heat import judge_heat
from burnin.ladder import Group, Heat
from burnin.parsers import read_lines
from burnin.runs.evaluate import iteration_summary
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world import context, iteration, plan_of, result

ROOT = Path(__file__).resolve().parents[2]
CRITERIA: dict[str, Any] = yaml.safe_load((ROOT / "config" / "criteria.yaml").read_text(encoding="utf-8"))
DEFINITIONS: dict[str, dict[str, Any]] = {
    "nccl": {"commands": {"all_reduce": "", "alltoall": ""}, "metric": "busbw"},
    "hpl": {"commands": {"hpl": ""}, "metric": "gflops"},
    "nemo": {"commands": {"pretrain": ""}, "metric": "step_time"},
}


def series(
    values: Sequence[float], workload: str = "nccl", command: str = "all_reduce", hour: float = 0.1
) -> list[dict[str, Any]]:
    """Return iterations with these values, one every `hour` hours."""
    unit = {"nccl": "GB/s", "hpl": "GFLOPS", "nemo": "s"}[workload]
    return [
        iteration(n, "nccl", v, command=command, unit=unit, start=1000 + n * hour * 3600, end=1000 + (n + 1) * hour * 3600)
        for n, v in enumerate(values)
    ]  # fmt: skip


def gate_of(
    step: str,
    workload: str,
    groups: Sequence[Sequence[str]],
    values: dict[str, Sequence[float]],
    usual: Sequence[float],
    **more: Any,
) -> dict[str, Any]:
    """Judge a heat of one workload; `values` of a group by its first node, `usual` of all others."""
    heat = Heat(step, more.pop("heat", 0), tuple(Group(tuple(g), tuple(g), (workload,)) for g in groups))
    plan = plan_of(heat)
    results = {
        (workload, n): result(
            step, heat.heat, workload, n, g["nodes"],
            iterations=series(values.get(g["nodes"][0], usual), workload, next(iter(DEFINITIONS[workload]["commands"]))),
            window={"hours": 1.0}, hours=1.0,
        )
        for n, g in plan["groups"].items()
    }  # fmt: skip
    fields = {"criteria": CRITERIA, "definitions": DEFINITIONS, **more}
    gate = judge_heat(plan, results, context(**fields))
    storage.check(gate | {"drained": {}}, "gate", "test")
    return gate


def nodes(count: int) -> list[tuple[str]]:
    return [(f"n{i:03d}",) for i in range(count)]


def pairs(count: int) -> list[tuple[str, str]]:
    return [(f"n{2 * i:03d}", f"n{2 * i + 1:03d}") for i in range(count)]


# ------------------------------------------------------------------------------------------------------ peers, hiccups


def test_a_finding_has_unit_limit_origin_and_date() -> None:
    gate = gate_of("single", "hpl", nodes(8), {"n003": [3.79e5] * 3}, [4.31e5] * 3)
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["n003"]
    (found,) = gate["findings"]
    assert found["unit"] == "GFLOPS" and found["value"] == 3.79e5 and found["limit"] == pytest.approx(0.95 * 4.31e5)
    assert "7 others" in found["limit_origin"] and found["limit_date"] == CRITERIA["date"]
    assert "12.1 % below" in found["reason"] and found["signal"] == "slow (spread)" and found["confidence"] == "likely"
    assert "throttle reasons" in found["next_action"]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_one_slow_iteration_drops_nobody_and_is_said(count: int) -> None:
    values = [373.0] * count
    values[-1] = 250.0
    gate = gate_of("single", "nccl", nodes(5), {"n001": values}, [373.0] * count)
    assert set(gate["outcome"].values()) == {"passed"} and not gate["findings"]
    if count < 3:  # with more, the median does not even see it
        assert any("one slow iteration" in n and "drops nobody" in n for n in gate["notes"])


def test_two_slow_iterations_are_no_hiccup() -> None:
    gate = gate_of("single", "nccl", nodes(5), {"n001": [330.0, 335.0]}, [373.0, 373.0])
    assert gate["outcome"]["n001"] == "failed" and gate["findings"][0]["fault"] == "nvlink_error", (
        "no fabric inside a node"
    )


def test_too_few_peers_are_said() -> None:
    gate = gate_of("x2", "nccl", pairs(2), {"n000": [200.0] * 3}, [373.0] * 3)
    assert set(gate["outcome"].values()) == {"passed"}
    assert any("fewer than 2 other runs of 2 nodes" in n and "no baseline" in n for n in gate["notes"])


def test_a_wide_spread_of_healthy_peers_makes_no_outlier() -> None:
    usual = {f"n{i:03d}": [373.0 * (1 + 0.04 * (i % 5 - 2))] * 3 for i in range(10)}
    gate = gate_of("single", "nccl", nodes(10), usual, [373.0])
    assert set(gate["outcome"].values()) == {"passed"}


def test_gflops_of_halves_are_compared_per_node() -> None:
    halves = [tuple(f"n{i:03d}" for i in range(9)), tuple(f"n{i:03d}" for i in range(9, 17))]
    values = {"n000": [9 * 4.1e5] * 3, "n009": [8 * 4.1e5] * 3}
    assert set(gate_of("halves", "hpl", halves, values, [])["outcome"].values()) == {"passed"}


# ------------------------------------------------------------------------------------------------- baseline, everybody

BASE = {"workload": "nccl", "command": "all_reduce", "nodes": 2, "value": 373.0, "unit": "GB/s"} | {
    "band": 0.05,
    "origin": "validation",
    "date": "2026-11-10",
}


def test_a_baseline_judges_a_lone_group_of_its_own_size_only() -> None:
    criteria = {**CRITERIA, "baselines": [BASE]}
    gate = gate_of("x2", "nccl", pairs(1), {}, [331.0] * 3, criteria=criteria)
    assert set(gate["outcome"].values()) == {"suspect"}
    four = [("n000", "n001", "n002", "n003")]
    assert set(gate_of("x4", "nccl", four, {}, [331.0] * 3, criteria=criteria)["outcome"].values()) == {"passed"}


def test_a_baseline_of_another_message_size_is_not_compared() -> None:
    criteria = {**CRITERIA, "baselines": [{**BASE, "message_bytes": 1 << 34}]}
    gate = gate_of("x2", "nccl", pairs(1), {}, [331.0] * 3, criteria=criteria)
    assert set(gate["outcome"].values()) == {"passed"}


def test_all_groups_alike_below_the_baseline_are_the_stack_and_nobody_is_dropped() -> None:
    criteria = {**CRITERIA, "baselines": [BASE]}
    gate = gate_of("x2", "nccl", pairs(4), {}, [300.0] * 3, criteria=criteria)
    assert set(gate["outcome"].values()) == {"owes"}
    assert gate["stopped"]["kind"] == "slow_everywhere" and "all 4 groups" in gate["stopped"]["text"]
    assert "NCCL_IB_HCA" in gate["stopped"]["cure"]


@pytest.mark.parametrize("groups", [1, 4])
def test_ten_gigabytes_on_every_group_are_sockets(groups: int) -> None:
    gate = gate_of("x2", "nccl", pairs(groups), {}, [9.7] * 3)
    assert set(gate["outcome"].values()) == {"owes"} and gate["stopped"]["kind"] == "nccl_on_sockets"
    assert "NET/Socket" in gate["stopped"]["cure"]


def test_ten_gigabytes_on_one_group_of_many_is_that_groups() -> None:
    gate = gate_of("x2", "nccl", pairs(4), {"n002": [9.7] * 3}, [373.0] * 3)
    assert gate["stopped"] is None and {n for n, o in gate["outcome"].items() if o == "suspect"} == {"n002", "n003"}


def test_what_somebody_passed_earlier_is_not_everybodys() -> None:
    gates = [{"step": "x2", "heat": 0, "passed": {"n008": ["nccl"]}, "owes": {}, "stopped": None}]
    gate = gate_of("x2", "nccl", pairs(2), {}, [9.7] * 3, heat=1, gates=gates)
    assert gate["stopped"] is None and set(gate["outcome"].values()) == {"suspect"}


def test_what_smaller_groups_could_do_is_not_the_stacks() -> None:
    before = [result("x2", 0, "nccl", n, [n, f"{n}b"], iterations=series([373.0])) for n in ("a", "b")]
    gate = gate_of("x4", "nccl", [("n000", "n001", "n002", "n003")], {}, [9.7] * 3, siblings=before)
    assert gate["stopped"] is None and set(gate["outcome"].values()) == {"suspect"}


def test_a_drop_against_the_step_before_points_at_the_fabric() -> None:
    before = [result("x2", 0, "nccl", n, [n, f"{n}b"], iterations=series([373.0])) for n in ("a", "b")]
    four = [("n000", "n001", "n002", "n003")]
    slow = gate_of("x4", "nccl", four, {}, [265.0] * 3, siblings=before)
    assert set(slow["outcome"].values()) == {"suspect"} and slow["stopped"] is None
    assert "step x2's 373" in slow["suspects"][0]["reason"]
    assert set(gate_of("x4", "nccl", four, {}, [350.0] * 3, siblings=before)["outcome"].values()) == {"passed"}


# --------------------------------------------------------------------------------------------------------------- trends


def test_a_drop_that_stays_convicts_a_node_alone_and_suspects_a_group() -> None:
    """The guide's log: 373 GB/s, then 331 to 345 after a port error."""
    values = [373.4, 372.8, 372.9, 373.1, 331.1, 344.6, 340.2, 338.0]
    gate = gate_of("single", "nccl", nodes(4), {"n002": values}, [373.0] * 8)
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["n002"]
    (found,) = gate["findings"]
    assert found["signal"] == "slow (drop)" and found["unit"] == "%" and found["limit"] == pytest.approx(5.0)
    assert "did not recover" in found["reason"] and "under heat" in found["next_action"]
    group = gate_of("x2", "nccl", pairs(3), {"n002": values}, [373.0] * 8)
    assert {n for n, o in group["outcome"].items() if o == "suspect"} == {"n002", "n003"}


def test_a_step_time_that_creeps_up_over_hours_is_found() -> None:
    creeping = [2.1 * (1 + 0.004 * n) for n in range(40)]
    gate = gate_of("single", "nemo", nodes(4), {"n001": creeping}, [2.25] * 40)
    assert gate["outcome"]["n001"] == "failed"
    assert gate["findings"][0]["fault"] == "straggler" and gate["findings"][0]["signal"] in (
        "slow (trend)",
        "slow (first_last)",
    )


def test_a_drop_that_recovers_and_noise_drop_nobody() -> None:
    noisy = [373.0 + (n * 7 % 5 - 2) for n in range(30)]
    dip = [*noisy[:10], 320.0, 325.0, *noisy[12:]]
    gate = gate_of("single", "nccl", nodes(4), {"n001": dip}, noisy)
    assert set(gate["outcome"].values()) == {"passed"}


def test_a_short_window_says_that_no_trend_was_judged() -> None:
    gate = gate_of("single", "nccl", nodes(4), {}, [373.0] * 2)
    assert any("no trend was judged" in n for n in gate["notes"])


def log(steps: int, every: int, spike: float, odd: Sequence[int] = (), save: Sequence[float] = ()) -> list[str]:
    """Return a NeMo log with a save every so many steps; `odd`: slow steps away from the saves."""
    lines, saves = [], list(save)
    for step in range(steps):
        seconds = 2.1 + (spike if (step + 1) % every == 0 or step in odd else 0.001 * (step % 3))
        lines.append(
            f"Training epoch 0, iteration {step}/{steps - 1} | lr: 1e-05 | global_batch_size: 128 | global_step: {step} | "
            f"reduced_train_loss: {12 - step / steps:.4g} | train_step_timing in s: {seconds:.4g} | consumed_samples: {128 * (step + 1)}"
        )
        if (step + 1) % every == 0:
            took = saves.pop(0) if saves else 37.9
            lines.append(
                f"[NeMo I 2026-11-10 10:21:19 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: {step} : "
                f"Start time: 1794053679.112s : Save duration: {took:.3f}s"
            )
    return [*lines, f"`Trainer.fit` stopped: `max_steps={steps}` reached."]


def trained(lines: Sequence[str]) -> dict[str, Any]:
    """Return the iteration of result.json that a training log gives."""
    summary = iteration_summary("step_time", read_lines("nemo", lines), 1, 8)
    keep = ("verdict", "complete", "value", "value_line", "unit", "problems", "facts")
    return iteration(0, "nccl", command="pretrain", start=0.0, end=7200.0, **{k: summary[k] for k in keep})


def training_gate(lines: Sequence[str], **more: Any) -> dict[str, Any]:
    heat = Heat("single", 0, tuple(Group(g, g, ("nemo",)) for g in nodes(3)))
    plan = plan_of(heat)
    results = {
        ("nemo", n): result(
            "single", 0, "nemo", n, g["nodes"], window={"hours": 2.0}, hours=2.0,
            iterations=[trained(lines if n == "n000" else log(400, 50, 30))],
        )
        for n, g in plan["groups"].items()
    }  # fmt: skip
    return judge_heat(plan, results, context(criteria=CRITERIA, definitions=DEFINITIONS, **more))


def test_regular_spikes_at_checkpoints_drop_nobody() -> None:
    gate = training_gate(log(400, 50, 35.0))
    assert set(gate["outcome"].values()) == {"passed"}, gate["findings"]


def test_spikes_between_checkpoints_are_found() -> None:
    gate = training_gate(log(400, 50, 5.0, odd=[i for i in range(7, 390, 23) if (i + 1) % 50 > 3]))
    assert gate["outcome"]["n000"] == "failed" and gate["findings"][0]["signal"] == "slow (spikes)"


def test_saves_that_grow_are_the_storages_fault_and_drop_nobody() -> None:
    gate = training_gate(log(400, 50, 30, save=[38, 41, 47, 55, 66, 80, 95, 120]))
    assert "failed" not in gate["outcome"].values()
    found = next(f for f in gate["findings"] if f["fault"] == "storage_slow")
    assert found["part"] == "storage" and found["unit"] == "%" and len(found["evidence"]) == 2
    assert gate["stopped"]["kind"] == "storage_slow"


def again(lines: Sequence[str]) -> dict[str, Any]:
    """Return the next iteration of a run."""
    return trained(lines) | {"iteration": 1, "start": 7200.0, "end": 14400.0}


def test_saves_that_grow_in_every_iteration_are_found_though_each_starts_anew() -> None:
    rising, flat = log(150, 50, 30, save=[101, 131, 161]), log(150, 50, 30, save=[38.0, 38.4, 37.9])
    run = result("single", 0, "nemo", "n000", ["n000"], iterations=[trained(rising), again(rising)])
    (found,) = performance.judge(run, "w", DEFINITIONS["nemo"], CRITERIA, performance.Crowd([])).storage
    assert found.check == "checkpoint_growth" and "every iteration" in found.reason and len(found.evidence) == 3
    steady = {**run, "iterations": [trained(rising), again(flat)]}
    assert not performance.judge(steady, "w", DEFINITIONS["nemo"], CRITERIA, performance.Crowd([])).storage


def test_saves_much_slower_than_in_the_step_before_stop_with_a_cure() -> None:
    before = [result("single", 0, "nemo", "n000", ["n000"], iterations=[trained(log(400, 50, 30))])]
    heat = Heat("x2", 0, (Group(("n000", "n001"), ("n000", "n001"), ("nemo",)),))
    plan = plan_of(heat)
    slow = trained(log(400, 50, 30, save=[130.0] * 8))
    results = {
        ("nemo", n): result("x2", 0, "nemo", n, g["nodes"], iterations=[slow], window={"hours": 1.0}, hours=1.0)
        for n, g in plan["groups"].items()
    }
    gate = judge_heat(plan, results, context(criteria=CRITERIA, definitions=DEFINITIONS, siblings=before))
    assert gate["stopped"]["kind"] == "storage_slow" and "file system" in gate["stopped"]["cure"]
    assert set(gate["outcome"].values()) == {"owes"}


def test_cycles_of_one_long_iteration_are_a_series() -> None:
    cycles = [{"line": 10 + n, "busbw": v} for n, v in enumerate([373.0] * 10 + [340.0] * 10)]
    item = iteration(0, "nccl", 356.0, facts={"cycles": cycles}, start=0.0, end=36000.0)
    speed = performance.judge(
        result("single", 0, "nccl", "n0", ["n0"], iterations=[item]),
        "w",
        DEFINITIONS["nccl"],
        CRITERIA,
        performance.Crowd([]),
    )
    assert [s.check for s in speed.slow] == ["drop"] and speed.slow[0].evidence[-1].endswith(":20")


# ------------------------------------------------------------------------------------------------------------ baselines


def test_pinning_takes_outliers_out_one_by_one() -> None:
    runs = [
        result("single", 0, "nccl", f"n{i}", [f"n{i}"], iterations=series([v]))
        for i, v in enumerate([373, 372, 374, 371, 373, 331, 200])
    ]
    runs.append(result("full", 0, "nccl", "all", ["a", "b"], iterations=series([370.0])))
    rows, notes = baselines.pin(runs, DEFINITIONS, CRITERIA, "validation", "2026-11-20")
    one, two = rows
    assert (one["workload"], one["command"], one["nodes"], one["value"], one["n"]) == (
        "nccl",
        "all_reduce",
        1,
        373.0,
        5,
    )
    assert one["removed"] == [200.0, 331.0] and one["band"] == 0.05 and one["unit"] == "GB/s"
    assert two["n"] == 1 and two["value"] == 370.0
    assert any("2 of 7 values taken out" in n for n in notes) and any("1 value only" in n for n in notes)
    storage.check({**CRITERIA, "baselines": rows}, "criteria", "pinned")


def test_the_command_pins_a_finished_campaign_only(tmp_path: Path) -> None:
    from burnin.commands.baseline import baseline
    from click.testing import CliRunner

    folder = campaign(tmp_path, "accepted")
    out = tmp_path / "baselines.yaml"
    done = CliRunner().invoke(baseline, [str(folder), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0 and "1 baselines written" in done.output
    (row,) = yaml.safe_load(out.read_text())
    assert row["value"] == 373.0 and row["origin"] == "validation" and row["campaign"] == "test"
    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    criteria = {**CRITERIA, "baselines": str(out)}
    loaded = config.load({**document, "criteria": criteria}, ROOT)
    assert loaded.criteria["baselines"] == [row], "a file of baselines is read in"
    with pytest.raises(ConfigError, match="baselines"):
        config.load({**document, "criteria": {**CRITERIA, "baselines": "no/such.yaml"}}, ROOT)
    running = CliRunner().invoke(baseline, [str(campaign(tmp_path / "b", "running")), "--out", str(out)])
    assert "not finished" in str(running.exception)


def campaign(folder: Path, verdict: str) -> Path:
    """Write a campaign of one passed run."""
    import json

    run = result("single", 0, "nccl", "n000", ["n000"], iterations=series([373.0, 372.0, 374.0]))
    gate = gate_of("single", "nccl", nodes(1), {}, [373.0] * 3) | {"drained": {}}
    files = {
        "summary.json": {"campaign": "test", "verdict": verdict, "nodes": {}, "links": [], "heats": []},
        "config.json": {"root": str(ROOT), "config": {"workload_definitions": DEFINITIONS, "criteria": CRITERIA}},
        "single/heat0/gate.json": gate,
        "single/heat0/nccl/n000/result.json": run,
    }
    for name, document in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    return folder


def test_a_burn_in_says_what_its_validation_was(tmp_path: Path) -> None:
    import json

    from burnin import validation

    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text()) | {"nodes": "n[000-001]"}

    def state(named: str | None) -> dict[str, Any]:
        return validation.state(config.load({**document, "validation": named}, ROOT))

    assert "no validation named" in validation.warning(state(None))
    assert "not been run" in validation.warning(state(str(tmp_path / "none")))
    path = tmp_path / "summary.json"
    empty = ("failed_step", "failed_workload", "part", "fault", "reason", "next_action")
    entry = {k: None for k in empty} | {"evidence": [], "repairs": [], "hours": {}}
    node = {**entry, "status": "accepted"}
    both = {"n000": node, "n001": {**entry, "status": "failed"}}
    summary = {"campaign": "v", "verdict": "rejected", "nodes": both, "links": [], "heats": []}
    path.write_text(json.dumps(summary))
    assert "rejected" in validation.warning(state(str(tmp_path))) and "n001" in validation.warning(state(str(tmp_path)))
    path.write_text(json.dumps({**summary, "verdict": "accepted", "nodes": {"n000": node, "n001": node}}))
    assert validation.warning(state(str(tmp_path))) == ""


def test_throughput_is_compared_like_for_like_or_refused_with_the_reason() -> None:
    sizes = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "context_parallel": 2,
        "micro_batch_size": 1,
        "sequence_length": 8192,
    }
    like = {
        "model": "llama3_8b",
        "framework": "nemo",
        "container": "nvcr.io#nvidia/nemo:25.07",
        "precision": "fp8",
        "gpu": "H100",
    }

    def notes(seconds: float, **changes: Any) -> list[str]:
        definition = {**DEFINITIONS["nemo"], "training": sizes, "like_for_like": {**like, **changes}}
        items = series([seconds] * 3, "nemo", "pretrain")
        for item in items:
            item["facts"] = {"global_batch_size": 128}
        run = result("single", 0, "nemo", "n000", ["n000"], iterations=items, window={"hours": 1.0}, hours=1.0)
        plan = plan_of(Heat("single", 0, (Group(("n000",), ("n000",), ("nemo",)),)))
        gate = judge_heat(plan, {("nemo", "n000"): run}, context(criteria=CRITERIA, definitions={"nemo": definition}))
        assert gate["outcome"] == {"n000": "passed"}, "a published row is no pass criterion"
        return [n for n in gate["notes"] if "tokens/s/GPU" in n]

    (alike,) = notes(9.14)
    assert "14,340 tokens/s/GPU, 830 TFLOPS/GPU, MFU 42.0 %" in alike and "100.0 % of the 14,340" in alike
    (low,) = notes(12.0)
    assert "76.2 % of the 14,340" in low and "CUDA_DEVICE_MAX_CONNECTIONS" in low
    (refused,) = notes(9.14, precision="bf16")
    assert "Not comparable" in refused and "precision differs: bf16 here, fp8 in the reference" in refused
    (absurd,) = notes(2.1)
    assert "more than the GPU can give" in absurd


@given(st.lists(st.floats(100, 400), min_size=4, max_size=12), st.sampled_from(["nccl", "nemo"]))
@settings(max_examples=200, deadline=None)
def test_the_quick_look_at_a_crowd_says_what_the_comparison_of_each_with_all_says(
    values: list[float], workload: str
) -> None:
    runs = [
        performance.measured(result("single", 0, workload, f"n{i}", [f"n{i}"], iterations=[iteration(0, workload, v)]))
        for i, v in enumerate(values)
    ]
    crowd = performance.Crowd(runs)
    metric, limits = DEFINITIONS[workload]["metric"], CRITERIA["spread"][workload]
    command = next(iter(DEFINITIONS[workload]["commands"]))
    for run, value in zip(runs, values, strict=True):
        if crowd.has_like(command, 1, value, metric, limits):
            others = crowd.others(run.result)
            check = performance._spread(run.result, command, metric, value, others, CRITERIA)
            assert check.outcome == "pass"
