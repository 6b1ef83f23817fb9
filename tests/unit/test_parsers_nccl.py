# SPDX-License-Identifier: Apache-2.0
"""nccl-tests output in every layout, and NCCL's own lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from burnin import parsers

from tests.unit.parser_samples import DATA, guide, kinds, read, read_text, samples

# sample -> (complete, verdict, kinds of signals)
EXPECTED: dict[str, tuple[bool, str, dict[str, int]]] = {
    "1.0-allreduce-ms.log": (True, "pass", {}),
    "2.8-allgather-error-column.log": (True, "pass", {}),
    "2.8-broadcast-root.log": (True, "pass", {}),
    "2.8-reduce-redop-root.log": (True, "pass", {}),
    "2.10-alltoall-error-in-place-1.log": (True, "pass", {}),
    "2.13-allreduce-8gpu.log": (True, "pass", {}),
    "2.13-allreduce-crlf.log": (True, "pass", {}),
    "2.13-allreduce-cut.log": (False, "unknown", {}),
    "2.13-allreduce-min-bw-failed.log": (True, "fail", {"below_limit": 1}),
    "2.13-allreduce-not-validated.log": (True, "unknown", {}),
    "2.13-allreduce-openmpi-tag.log": (True, "pass", {}),
    "2.13-allreduce-row-split-by-flap.log": (True, "pass", {"nccl_port_error": 1, "nccl_port_active": 1}),
    "2.13-allreduce-wrong.log": (True, "fail", {"wrong_elements": 1, "out_of_bounds": 1}),
    "2.13-hash-lost.log": (True, "pass", {}),
    "2.13-hypercube-blank-redop.log": (True, "pass", {}),
    "2.13-loop-of-three.log": (True, "pass", {}),
    "2.13-one-gpu.log": (True, "unknown", {}),
    "2.13-two-runs-first-died.log": (False, "unknown", {"node_failure": 1}),
    "2.14-allreduce-port-error-crash.log": (
        False,
        "fail",
        {"nccl_port_error": 1, "nccl_completion_error": 1, "nccl_test_failure": 2, "task_exit": 2},
    ),
    "2.14-allreduce-socket.log": (True, "pass", {"nccl_no_device": 2, "nccl_socket": 2}),
    "2.14-alltoall-in-place-na.log": (True, "pass", {}),
    "2.14-no-mpi-four-copies.log": (False, "unknown", {"invalid_launch": 7}),
    "2.14-no-mpi-two-nodes.log": (False, "unknown", {"invalid_launch": 3}),
    "2.16-reduced-max-bytes.log": (True, "unknown", {}),
    "2.17-allgather-padding-rows.log": (True, "pass", {}),
    "2.17.5-allreduce.json": (True, "pass", {}),
    "2.18-allreduce-N0-scancel.log": (False, "unknown", {"step_cancelled": 1}),
    "2.18-allreduce-N0-time-limit.log": (True, "pass", {"time_limit": 1}),
    "2.18-allreduce-N0-wrong.log": (True, "fail", {"wrong_elements": 1, "time_limit": 1}),
    "2.18-allreduce-N3.log": (True, "pass", {}),
    "2.18-allreduce-cuda-error.log": (False, "fail", {"nccl_test_failure": 1, "cuda_ecc": 1}),
    "2.18-allreduce-timeout.log": (False, "fail", {"nccl_timeout": 1}),
    "2.18-gather.log": (True, "pass", {}),
    "2.18-reduce_scatter.log": (True, "pass", {}),
    "2.18-scatter.log": (True, "pass", {}),
    "2.18.0-cut.json": (False, "unknown", {}),
    "2.18.5-allreduce-unchecked.json": (True, "unknown", {}),
    "2.18.5-allreduce-wrong.json": (True, "fail", {"wrong_elements": 1, "out_of_bounds": 1}),
    "2.19-sendrecv-in-place-na.log": (True, "pass", {}),
    "2.19.2-allreduce-iteration-stats.log": (True, "pass", {}),
    "2.19.2-no-end-time.json": (False, "unknown", {}),
    "2.19.2-sendrecv-in-place-null.json": (True, "pass", {}),
    "2.19.6-allreduce-16gpu-info.log": (True, "pass", {}),
    "2.19.6-allreduce-srun-l.log": (True, "pass", {}),
    "2.19.6-allreduce.json": (True, "pass", {}),
    "mscclpp-allreduce.log": (True, "pass", {}),
    "nccl-2.26-warn-only.log": (False, "unknown", {"nccl_port_error": 2}),
    "rccl-allreduce.log": (True, "pass", {}),
}


@pytest.mark.parametrize("path", samples("nccl"), ids=lambda p: p.name)
def test_sample(path: Path) -> None:
    reading = read("nccl", path)
    assert reading.recognised
    assert (reading.complete, reading.verdict, kinds(reading)) == EXPECTED[path.name]


def one(name: str) -> dict[str, object]:
    runs = read("nccl", DATA / "nccl" / name).data["runs"]
    assert len(runs) == 1
    run: dict[str, object] = runs[0]
    return run


@pytest.mark.parametrize(
    ("name", "collective", "ranks", "rows", "busbw", "tolerance"),
    [
        ("1.0-allreduce-ms.log", None, 4, 5, 120.0, 0.2),
        ("2.8-allgather-error-column.log", None, 8, 5, 230.0, 0.3),
        ("2.10-alltoall-error-in-place-1.log", None, 8, 5, 250.0, 0.3),
        ("2.13-allreduce-8gpu.log", None, 8, 8, 471.4, 0.3),
        ("2.13-hypercube-blank-redop.log", None, 8, 5, 90.0, 0.2),
        ("2.17-allgather-padding-rows.log", None, 16, 5, 0.4, 0.02),
        ("2.18-reduce_scatter.log", "reduce_scatter", 16, 5, 180.1, 0.2),
        ("2.19-sendrecv-in-place-na.log", "sendrecv", 16, 5, 46.0, 0.1),
        ("2.19.2-allreduce-iteration-stats.log", "all_reduce", 16, 4, 360.2, 0.3),
        ("2.19.6-allreduce-16gpu-info.log", "all_reduce", 16, 7, 361.2, 0.3),
        ("2.17.5-allreduce.json", "all_reduce", 16, 4, 361.0, 0.01),
        ("rccl-allreduce.log", None, 4, 5, 150.1, 0.2),
        ("mscclpp-allreduce.log", None, 4, 5, 150.0, 0.2),
    ],
)
def test_figures(name: str, collective: str | None, ranks: int, rows: int, busbw: float, tolerance: float) -> None:
    run = one(name)
    assert (run["collective"], run["ranks"], run["row_count"]) == (collective, ranks, rows)
    assert run["busbw_max_size"] == pytest.approx(busbw, abs=tolerance)


def test_old_milliseconds_become_microseconds() -> None:
    row = one("1.0-allreduce-ms.log")["rows"][-1]  # type: ignore[index]
    # size/time must give the printed algorithm bandwidth
    assert row["size"] / row["oop"]["time_us"] / 1e3 == pytest.approx(row["oop"]["algbw"], rel=0.02)


def test_devices_map_ranks_to_nodes_and_gpus() -> None:
    run = one("2.19.6-allreduce-16gpu-info.log")
    assert run["nodes"] == ["burn01", "burn02"]
    assert run["network"] == "IB"
    device = run["devices"][11]  # type: ignore[index]
    assert (device["rank"], device["host"], device["device"], device["bdf"]) == (11, "burn02", 3, "0000:61:00")


def test_row_split_by_a_message_is_put_together() -> None:
    run = one("2.13-allreduce-row-split-by-flap.log")
    assert run["row_count"] == 7
    assert run["validated"]


def test_wrong_names_size_and_line() -> None:
    reading = read("nccl", DATA / "nccl" / "2.13-allreduce-wrong.log")
    wrong = next(s for s in reading.signals if s.kind == "wrong_elements")
    assert (wrong.value, wrong.detail["placement"], wrong.detail["size"]) == (4.0, "ip", 2 << 30)
    assert wrong.text.split()[0] == str(2 << 30)


def test_crash_names_the_port_and_the_peer() -> None:
    reading = read("nccl", DATA / "nccl" / "2.14-allreduce-port-error-crash.log")
    port, completion = (
        next(s for s in reading.signals if s.kind == k) for k in ("nccl_port_error", "nccl_completion_error")
    )
    assert (port.host, port.gpu, port.device, port.detail["port"]) == ("burn02", 3, "mlx5_3", 1)
    assert (completion.value, completion.detail["peer"], completion.device) == (12.0, "10.0.2.12", "mlx5_3")
    assert reading.data["runs"][0]["cut_row"]["size"] == 2 << 30
    # every rank prints its failure: hosts of these lines are victims, so the first signal stays the port's
    assert reading.signals[0].kind == "nccl_port_error"


def test_flushed_completions_are_no_signal(tmp_path: Path) -> None:
    text = "burn01:1:2 [0] NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 244\n"
    assert kinds(read_text("nccl", text, tmp_path)) == {}


@pytest.mark.parametrize(
    ("message", "status", "peer", "hca"),
    [
        ("Got completion with error 12, opcode 1, len 0, vendor err 129", 12, None, None),
        (
            "Got completion from peer 10.0.0.9<41873> with error 12, opcode 1, len 0, vendor err 129 (Send)"
            " localGid fe80::1 remoteGid fe80::2",
            12,
            "10.0.0.9",
            None,
        ),
        (
            "Got completion from peer 10.0.0.9<41873> with status=12 opcode=32656 len=0 vendor err 129 (Recv)"
            " localGid fe80::1 remoteGidsfe80::2 hca mlx5_0",
            12,
            "10.0.0.9",
            "mlx5_0",
        ),
        (
            "Got completion from peer 10.0.0.9<41873> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129",
            12,
            "10.0.0.9",
            None,
        ),
    ],
)
def test_completion_forms(message: str, status: int, peer: str | None, hca: str | None, tmp_path: Path) -> None:
    line = f"[2026-01-09 04:11:52] burn07:31337:31509 [3] transport/net_ib.cc:199 (ncclIbTest) NCCL WARN NET/IB: {message}\n"
    reading = read_text("nccl", line, tmp_path)
    (s,) = reading.signals
    assert (s.kind, s.value, s.host, s.gpu, s.detail.get("peer"), s.device) == (
        "nccl_completion_error",
        status,
        "burn07",
        3,
        peer,
        hca,
    )


def test_two_ranks_on_one_line(tmp_path: Path) -> None:
    text = (
        "a1:1:2 [0] NCCL WARN Got async event : port error "
        "a2:1:2 [1] NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
    )
    reading = read_text("nccl", text, tmp_path)
    assert [(s.kind, s.host, s.gpu) for s in reading.signals][-1] == ("nccl_port_error", "a2", 1)
    assert kinds(reading) == {"nccl_port_error": 2}


def test_endless_cycles_end_with_the_time_limit() -> None:
    run = one("2.18-allreduce-N0-time-limit.log")
    assert run["cycle_count"] == 7  # the last one was cut by the limit, as it must be
    busbw = [c["busbw"] for c in run["cycles"]]  # type: ignore[attr-defined]
    assert busbw[0] == pytest.approx(361.2, abs=0.1)
    assert run["ended"] == "time limit"


def test_counted_cycles_with_one_footer() -> None:
    run = one("2.18-allreduce-N3.log")
    assert [round(c["busbw"]) for c in run["cycles"]] == [361, 360, 359]  # type: ignore[attr-defined]


def test_two_runs_are_not_merged() -> None:
    runs = read("nccl", DATA / "nccl" / "2.13-two-runs-first-died.log").data["runs"]
    assert [(r["row_count"], r["complete"], r["verdict"]) for r in runs] == [(3, False, "unknown"), (7, True, "pass")]
    assert runs[0]["avg_busbw"] is None
    assert len(read("nccl", DATA / "nccl" / "2.13-loop-of-three.log").data["runs"]) == 3


def test_invalid_launches_give_no_bandwidth() -> None:
    for name in ("2.14-no-mpi-four-copies.log", "2.14-no-mpi-two-nodes.log"):
        reading = read("nccl", DATA / "nccl" / name)
        assert all(
            r["busbw_max_size"] is None and r["avg_busbw"] is None for r in reading.data["runs"] if r["row_count"]
        )


def test_expected_ranks() -> None:
    path = DATA / "nccl" / "2.13-allreduce-8gpu.log"
    assert parsers.read_file("nccl", path, expected_ranks=8).verdict == "pass"
    reading = parsers.read_file("nccl", path, expected_ranks=16)
    assert reading.verdict == "unknown"
    assert kinds(reading) == {"invalid_launch": 1}


def test_json_of_another_tool_is_not_recognised(tmp_path: Path) -> None:
    reading = read_text("nccl", '{"results": {"a": 1}}\n', tmp_path)
    assert not reading.recognised


def test_json_nan_and_odd_values(tmp_path: Path) -> None:
    doc = json.loads((DATA / "nccl" / "2.19.6-allreduce.json").read_text())
    doc["results"][0]["out_of_place"]["bus_bw"] = "nan"
    assert read_text("nccl", json.dumps(doc), tmp_path).verdict == "unknown"
    doc["results"] = [1, None, {"size": "x"}]
    assert read_text("nccl", json.dumps(doc), tmp_path).verdict == "unknown"


def test_a_number_cut_at_the_very_end_is_no_end_mark(tmp_path: Path) -> None:
    text = (DATA / "nccl" / "2.13-allreduce-8gpu.log").read_text()
    cut = text[: text.index("# Avg bus bandwidth") + len("# Avg bus bandwidth    : 45")]
    reading = read_text("nccl", cut, tmp_path)
    assert not reading.complete
    assert reading.verdict == "unknown"


def test_live_watching_sees_a_signal_at_its_line() -> None:
    parser = parsers.parser_for("nccl")
    seen = [
        (n, s.kind)
        for n, line in enumerate((DATA / "nccl" / "2.13-allreduce-wrong.log").read_text().split("\n"), 1)
        for s in parser.feed(n, line)
    ]
    assert [k for _, k in seen] == ["wrong_elements", "out_of_bounds"]


def test_rows_are_capped_and_sums_exact(tmp_path: Path) -> None:
    head = (DATA / "nccl" / "2.18-allreduce-N0-time-limit.log").read_text().split("\n")
    rows = [line for line in head if line.strip()[:1].isdigit()][:2]
    text = "\n".join(
        line for line in head if not line.strip()[:1].isdigit() and "slurm" not in line and "srun" not in line
    )
    reading = read_text("nccl", text + "\n" + "\n".join(rows * 5000) + "\n", tmp_path)
    run = reading.data["runs"][0]
    assert run["row_count"] == 10_000
    assert len(run["rows"]) == 80
    assert run["cycle_count"] == 5000


def test_guide_allreduce_of_32_nodes(tmp_path: Path) -> None:
    reading = read_text("nccl", guide("srun -N 32 --ntasks-per-node=8"), tmp_path)
    run = reading.data["runs"][0]
    assert (reading.complete, reading.verdict, run["avg_busbw"], run["ranks"]) == (True, "pass", 373.37, 256)
    assert run["busbw_max_size"] == pytest.approx(373.61)
    assert run["validated"] and run["out_of_bounds"] == 0


def test_guide_trend_and_port_error(tmp_path: Path) -> None:
    reading = read_text("nccl", guide('grep -E "Avg bus bandwidth'), tmp_path)
    assert [r["avg_busbw"] for r in reading.data["runs"]] == [373.37, 372.84, 372.95, 331.08, 344.61]
    (s,) = reading.signals
    assert (s.kind, s.host, s.gpu) == ("nccl_port_error", "dgx14", 3)
    # the drop begins after the port error
    after = [r["avg_busbw"] for r in reading.data["runs"] if r["line"] > s.line]
    assert after == [331.08, 344.61]
    assert reading.verdict == "unknown"  # only the averages are left of these runs


def test_guide_endless_run(tmp_path: Path) -> None:
    reading = read_text("nccl", guide("srun ... ./build/all_reduce_perf"), tmp_path)
    run = reading.data["runs"][0]
    assert kinds(reading) == {"time_limit": 1}
    assert run["ended"] == "time limit"
    assert [round(c["busbw"], 1) for c in run["cycles"]] == [373.5, 373.5, 373.5]
    assert reading.complete


def test_skipping_info_messages_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (DATA / "nccl" / "2.19.6-allreduce-16gpu-info.log").read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if "Using network" in line)
    info = [
        f"burn0{r // 8 + 1}:{41000 + r}:{41050 + r} [{r % 8}] NCCL INFO Channel {c:02d}/0 : {r}[{r % 8}] -> 0[0] via P2P"
        for c in range(400)
        for r in range(16)
    ]
    warn = ["", "burn02:41011:41133 [3] NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"]
    one = lines[:at] + info[:100] + lines[at : at + 2] + info + lines[at + 2 :]
    text = "\n".join([*one, *one[: len(one) // 2], *warn, *one[len(one) // 2 :], *one * 8])
    path = tmp_path / "big.log"
    path.write_text(text)
    assert path.stat().st_size > 4 << 20
    fast = read("nccl", path)
    monkeypatch.setattr("burnin.parsers.common.PARALLEL_FROM", 1)
    assert read("nccl", path) == fast  # two processes
    monkeypatch.setattr("burnin.parsers.common.SPOOL_LIMIT", 1)
    assert read("nccl", path) == fast  # the second one gives up
    monkeypatch.delattr("burnin.parsers.nccl.Parser.candidates")
    slow = read("nccl", path)
    assert fast == slow
    assert fast.verdict == "pass"
    assert kinds(fast) == {"nccl_port_error": 1}
    assert {r["network"] for r in fast.data["runs"]} == {"IB"}


def test_a_hole_in_the_device_list_is_no_pass(tmp_path: Path) -> None:
    text = (DATA / "nccl" / "2.13-allreduce-8gpu.log").read_text()
    lines = [line for line in text.split("\n") if "Rank  3 " not in line]
    reading = read_text("nccl", "\n".join(lines), tmp_path)
    assert len(lines) == text.count("\n") and reading.verdict == "unknown"
    assert "the device list names 7 of 8 ranks" in str(reading.problems)


@pytest.mark.parametrize("name", ["minBytes", "maxBytes"])
def test_a_damaged_line_of_parameters_is_no_pass(name: str, tmp_path: Path) -> None:
    text = (DATA / "nccl" / "2.18-allreduce-N0-time-limit.log").read_text()
    reading = read_text("nccl", text.replace(name, name.replace("B", "x"), 1), tmp_path)
    assert reading.verdict == "unknown" and "line of parameters is damaged" in str(reading.problems)
