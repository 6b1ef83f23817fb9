# SPDX-License-Identifier: Apache-2.0
"""Training logs: NeMo 1 and 2, Megatron-LM, Megatron-Bridge, PyTorch's failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from burnin import parsers

from tests.unit.parser_samples import DATA, guide, kinds, read, read_text, samples

SCRATCH = {"resume_from_scratch": 1}
EXPECTED: dict[str, tuple[bool, str, dict[str, int]]] = {
    "megatron-bridge-0.2.log": (True, "pass", {}),
    "megatron-core-0.11.log": (True, "pass", {}),
    "megatron-core-0.5-no-stamp.log": (True, "pass", {}),
    "megatron-interleaved-damaged.log": (True, "pass", {}),
    "megatron-loss-vanished.log": (True, "fail", {"loss_nan": 8}),
    "megatron-rerun-persistent.log": (False, "fail", {"persistent_error": 3, "task_exit": 1}),
    "megatron-resume-from-scratch.log": (True, "pass", {"resume_from_scratch": 2}),
    "megatron-resumed-srun-l.log": (True, "pass", {}),
    "megatron-torchrun-tee.log": (True, "pass", {}),
    "megatron-watchdog-2.1.log": (False, "fail", {"watchdog_timeout": 1}),
    "nemo1-error-glued-to-bar.log": (False, "fail", {"watchdog_timeout": 1}),
    "nemo1-nan.log": (True, "fail", {"loss_nan": 41}),
    "nemo1-progress-bar.log": (True, "pass", {}),
    "nemo2-async-last-not-finalized.log": (True, "pass", {}),
    "nemo2-checkpoint-failed.log": (False, "unknown", SCRATCH | {"checkpoint_failed": 1, "task_exit": 1}),
    "nemo2-cuda-error-watchdog.log": (
        False,
        "fail",
        SCRATCH | {"cuda_error": 1, "watchdog_timeout": 3, "torchrun_root_cause": 1, "task_exit": 3},
    ),
    "nemo2-cut.log": (False, "unknown", SCRATCH),
    "nemo2-driver-mismatch.log": (False, "fail", {"driver_mismatch": 1}),
    "nemo2-loss-nan.log": (True, "fail", SCRATCH | {"loss_nan": 8}),
    "nemo2-oom-step1.log": (False, "fail", SCRATCH | {"oom_gpu": 4, "task_exit": 1}),
    "nemo2-resumed.log": (True, "pass", {}),
    "nemo2-socket.log": (True, "pass", SCRATCH | {"nccl_no_device": 1, "nccl_socket": 1}),
    "nemo2-sync-checkpoint.log": (True, "pass", SCRATCH),
    "nemo2-time-limit-after-end.log": (True, "pass", SCRATCH | {"time_limit": 1}),
    "nemo2-time-limit-before-end.log": (False, "unknown", SCRATCH | {"time_limit": 1}),
    "nemo2-two-runs-from-scratch.log": (True, "unknown", {"resume_from_scratch": 2, "step_cancelled": 1}),
    "nemo2-two-runs-resumed.log": (True, "pass", SCRATCH | {"step_cancelled": 1}),
}


@pytest.mark.parametrize("path", samples("nemo"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("nemo", path)
    assert reading.recognised
    assert (reading.complete, reading.verdict, kinds(reading)) == EXPECTED[path.name]


def data(name: str) -> dict[str, object]:
    return read("nemo", DATA / "nemo" / name).data


def test_nemo2_counts_from_0() -> None:
    d = data("nemo2-sync-checkpoint.log")
    steps = d["steps"]
    assert (steps["count"], steps["first"], steps["last"], steps["max_steps"]) == (20, 9, 199, 200)  # type: ignore[index]
    # the first record holds compilation and is left out
    assert steps["step_time_median_s"] == pytest.approx(2.106, abs=0.01)  # type: ignore[index]
    assert d["global_batch_size"] == 128
    assert d["global_step_last"] == 199
    assert d["consumed_samples_last"] == 25600.0
    assert d["stopped"] == "`max_steps=200` reached."


def test_sync_checkpoints() -> None:
    points = data("nemo2-sync-checkpoint.log")["checkpoints"]
    assert [(c["iteration"], c["duration_s"], c["finalized"]) for c in points] == [  # type: ignore[attr-defined]
        (49, 30.49, True),
        (99, 30.99, True),
        (149, 31.49, True),
        (199, 31.99, True),
    ]


def test_async_checkpoint_exists_only_when_finalized() -> None:
    reading = read("nemo", DATA / "nemo" / "nemo2-async-last-not-finalized.log")
    assert [c["finalized"] for c in reading.data["checkpoints"]] == [True, True, True, False]
    assert any("step 199" in p and "not finished" in p for p in reading.problems)


def test_megatron_checkpoints_and_rate() -> None:
    d = data("megatron-core-0.11.log")
    assert [(c["iteration"], c["finalized"], c["path"]) for c in d["checkpoints"]][:1] == [(50, True, "/ckpt")]  # type: ignore[attr-defined]
    assert d["checkpoints"][0]["duration_s"] == pytest.approx(41.05, abs=0.1)  # type: ignore[index]
    assert d["tflops_per_gpu_median"] == 412.6
    assert d["validation"][0]["loss"] == 3.5  # type: ignore[index]
    assert data("megatron-bridge-0.2.log")["tflops_per_gpu_median"] is not None


@pytest.mark.parametrize(
    ("name", "step"),
    [("nemo2-resumed.log", 99), ("megatron-resumed-srun-l.log", 100), ("nemo2-two-runs-resumed.log", 99)],
)
def test_resume(name: str, step: int) -> None:
    d = data(name)
    assert d["resumed_from"]["step"] == step  # type: ignore[index]
    assert d["steps"]["first"] in (109, 110)  # type: ignore[index]
    assert d["segments"][-1]["loss_first"] < 6  # type: ignore[index]


def test_restart_from_scratch_shows_two_runs() -> None:
    segments = data("nemo2-two-runs-from-scratch.log")["segments"]
    assert [(s["first"], s["last"], s["complete"]) for s in segments] == [(9, 99, False), (9, 199, True)]  # type: ignore[attr-defined]
    assert segments[1]["loss_first"] > 10  # type: ignore[index]


def test_first_error_is_the_cuda_error_not_the_watchdogs() -> None:
    reading = read("nemo", DATA / "nemo" / "nemo2-cuda-error-watchdog.log")
    by_kind = {s.kind: s for s in reversed(reading.signals)}
    assert (by_kind["cuda_error"].rank, by_kind["cuda_error"].detail["what"]) == (11, "unspecified launch failure")
    assert by_kind["cuda_error"].line < by_kind["watchdog_timeout"].line
    assert by_kind["watchdog_timeout"].detail["ran_ms"] == 600021
    root = by_kind["torchrun_root_cause"]
    assert (root.host, root.rank, root.gpu, root.detail["exitcode"]) == ("burn02", 11, 3, -6)
    exits = [s for s in reading.signals if s.kind == "task_exit"]
    assert next((s.host, s.rank, s.detail.get("victim")) for s in exits) == ("burn02", 11, None)
    assert all(s.detail["victim"] for s in exits[1:])
    assert reading.data["watchdog"]["1"]["completed"] == 411


def test_watchdog_glued_to_the_progress_bar() -> None:
    (s,) = read("nemo", DATA / "nemo" / "nemo1-error-glued-to-bar.log").signals
    assert (s.rank, s.detail["op"], s.line) == (5, "ALLREDUCE", 2)


def test_rerun_machine_names_rank_node_and_gpu() -> None:
    signals = [
        s for s in read("nemo", DATA / "nemo" / "megatron-rerun-persistent.log").signals if s.kind == "persistent_error"
    ]
    assert [(s.rank, s.detail["class"]) for s in signals] == [(3, "unexpected"), (3, "persistent"), (3, "where")]
    assert (signals[2].host, signals[2].gpu) == ("burn05", 3)


def test_out_of_memory_has_local_gpu() -> None:
    signals = [s for s in read("nemo", DATA / "nemo" / "nemo2-oom-step1.log").signals if s.kind == "oom_gpu"]
    assert [(s.rank, s.gpu) for s in signals] == [(r, r) for r in range(4)]


def test_progress_bar_times_and_steps() -> None:
    d = data("nemo1-progress-bar.log")
    assert d["framework"] == "nemo1"
    assert (d["steps"]["last"], d["steps"]["count"]) == (500, 100)  # type: ignore[index]
    assert d["steps"]["step_time_median_s"] == pytest.approx(1 / 1.63, rel=1e-3)  # type: ignore[index]
    slow = data("nemo1-error-glued-to-bar.log")
    assert slow["steps"]["step_time_median_s"] == pytest.approx(2.1)  # type: ignore[index]


def test_missing_records_are_counted(tmp_path: Path) -> None:
    lines = (DATA / "nemo" / "nemo2-sync-checkpoint.log").read_text().split("\n")
    kept = [line for line in lines if "iteration 119/" not in line and "iteration 129/" not in line]
    reading = read_text("nemo", "\n".join(kept), tmp_path)
    assert reading.verdict == "unknown"
    assert any("2 step records are missing" in p for p in reading.problems)


def test_loss_jump(tmp_path: Path) -> None:
    lines = (DATA / "nemo" / "nemo2-sync-checkpoint.log").read_text().split("\n")
    i = next(i for i, line in enumerate(lines) if "iteration 159/" in line)
    lines[i] = lines[i].replace("reduced_train_loss: ", "reduced_train_loss: 1")
    reading = read_text("nemo", "\n".join(lines), tmp_path)
    assert [s.detail["step"] for s in reading.signals if s.kind == "loss_jump"] == [159]


def test_max_steps_option() -> None:
    path = DATA / "nemo" / "nemo2-sync-checkpoint.log"
    assert parsers.read_file("nemo", path, max_steps=200).verdict == "pass"
    assert parsers.read_file("nemo", path, max_steps=300).verdict == "unknown"


def test_last_line_cut_in_a_number(tmp_path: Path) -> None:
    text = (DATA / "nemo" / "nemo2-resumed.log").read_text()
    end = text.index("iteration 199/199") + 80
    assert read_text("nemo", text[:end], tmp_path).verdict == "unknown"


def test_a_qa_log_is_sent_to_squad() -> None:
    reading = parsers.read_file("nemo", DATA / "squad" / "nemo1-two-epochs.log")
    assert not reading.recognised
    assert "squad" in reading.problems[0]


def test_step_series_is_thinned(tmp_path: Path) -> None:
    rows = [
        f"Training epoch 0, iteration {i}/29999 | lr: 3e-4 | global_batch_size: 8 | global_step: {i} | "
        f"reduced_train_loss: 3.4 | train_step_timing in s: 2.1 | consumed_samples: {i * 8}"
        for i in range(30_000)
    ]
    d = read_text("nemo", "\n".join(rows) + "\n", tmp_path).data
    assert len(d["step_series"]) <= 2001
    assert d["step_series"][-1]["step"] == 29999
    assert d["steps"]["count"] == 30_000


def test_guide_pretraining(tmp_path: Path) -> None:
    reading = read_text("nemo", guide("srun -N 8 --ntasks-per-node=8"), tmp_path)
    d = reading.data
    assert reading.complete
    assert (d["steps"]["max_steps"], d["steps"]["last"], d["global_batch_size"]) == (5000, 4999, 128)
    assert d["steps"]["step_time_median_s"] == pytest.approx(2.1, abs=0.01)
    assert [(c["iteration"], c["duration_s"]) for c in d["checkpoints"]] == [(499, 37.882)]
    assert (d["loss_first"], d["loss_last"], d["consumed_samples_last"]) == (8.912, 3.402, 640000.0)
    assert kinds(reading) == {}
    # the sample leaves out most records, so it proves nothing of the steps between
    assert reading.verdict == "unknown"
