# SPDX-License-Identifier: Apache-2.0
"""The lab's programs: what they print when nothing is wrong, their Slurm, their state, their speed."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lab_bench import HPL, LAB, NCCL, SCENARIOS, Bench

BUSBW = re.compile(r"# Avg bus bandwidth    : ([\d.]+)")
GFLOPS = re.compile(r"^WR01C2R4 .* (\S+)$", re.M)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "healthy")


def busbw(text: str) -> float:
    found = BUSBW.search(text)
    assert found, text
    return float(found[1])


# --- healthy workloads ---


@pytest.mark.parametrize(
    ("program", "single", "multi"),
    [
        ("all_reduce_perf", 480, 374),
        ("all_gather_perf", 366, 370),
        ("reduce_scatter_perf", 370, 371),
        ("alltoall_perf", 343, 48.3),
    ],
)
def test_nccl_bandwidths(bench: Bench, program: str, single: float, multi: float) -> None:
    one = bench.work("dgx01", program, *NCCL[1:])
    many = bench.work("dgx[01-08]", program, *NCCL[1:])
    assert one.status == many.status == 0
    assert abs(busbw(one.out) / single - 1) < 0.015
    assert abs(busbw(many.out) / multi - 1) < 0.015
    assert "# Out of bounds values : 0 OK" in one.out
    rows = [line.split() for line in many.out.splitlines() if re.match(r"\s+\d{9,}", line)]
    assert [len(r) for r in rows] == [13, 13]
    ranks = 64
    size, count = int(rows[0][0]), int(rows[0][1])
    assert count == (size // 4 if program == "all_reduce_perf" else size // 4 // ranks)
    factor = {"all_reduce_perf": 2 * (ranks - 1) / ranks}.get(program, (ranks - 1) / ranks)
    for row in rows:
        time_us, algbw, bus = float(row[5]), float(row[6]), float(row[7])
        assert abs(algbw - int(row[0]) / time_us / 1e3) < 0.02 * algbw
        assert abs(bus - algbw * factor) < 0.02 * bus
        assert row[8] == "0"
        assert row[12] == ("N/A" if program == "alltoall_perf" else "0")
    assert len(re.findall(r"^#  Rank ", many.out, re.M)) == ranks
    assert re.search(
        r"^#  Rank 13 Group  0 Pid +\d+ on +dgx02 device  5 \[0xc3\] NVIDIA H100 80GB HBM3$", many.out, re.M
    )


def test_nccl_options(bench: Bench) -> None:
    unchecked = bench.work("dgx01", "all_reduce_perf", "-b8M", "-e", "1G", "-f", "2", "-c", "0")
    rows = [line.split() for line in unchecked.out.splitlines() if re.match(r"\s+\d{7,}", line)]
    assert len(rows) == 8
    assert {r[8] for r in rows} == {"N/A"}
    assert "validation: 0" in unchecked.out
    cycles = bench.work("dgx01", "all_reduce_perf", "-b", "8G", "-e", "16G", "-f", "2", "-N", "3")
    assert "run cycles: 3" in cycles.out
    assert len(re.findall(r"^ +8589934592 ", cycles.out, re.M)) == 3
    bad = bench.work("dgx01", "all_reduce_perf", "-b", "eight")
    assert bad.status == 1
    assert "eight" in bad.err


def test_endless_cycles_end_with_the_step(bench: Bench) -> None:
    process = bench.start("srun", "-N1", "-w", "dgx01", "all_reduce_perf", "-b", "8G", "-e", "8G", "-N", "0")
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.startswith("  8589934592")
        if seen == 3:
            process.send_signal(signal.SIGTERM)
            break
    rest = process.stdout.read()
    assert process.wait(10) == 143
    assert "CANCELLED AT" in rest
    assert "Avg bus bandwidth" not in rest


def test_noise_is_the_same_for_the_same_iteration(bench: Bench, tmp_path: Path) -> None:
    def strip(text: str) -> str:
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "", text)

    first = bench.work("dgx[01-02]", *NCCL, iteration=4).out
    other = Bench(tmp_path / "again", "healthy")
    other.folder.mkdir()
    assert strip(other.work("dgx[01-02]", *NCCL, iteration=4).out) == strip(first)
    assert strip(bench.work("dgx[01-02]", *NCCL, iteration=5).out) != strip(first)


def test_hpl(bench: Bench, tmp_path: Path) -> None:
    values = []
    for node in ("dgx01", "dgx02", "dgx03", "dgx04"):
        text = bench.work(node, *HPL).out
        assert "WR01C2R4      270336  1024     2     4 " in text
        assert "...... PASSED" in text
        assert text.rstrip().endswith("=" * 80)
        values.append(float(GFLOPS.findall(text)[0]))
    assert max(values) / min(values) < 1.01
    eight = float(GFLOPS.findall(bench.work("dgx[01-08]", *HPL).out)[0]) / 8
    assert 0.94 < eight / (sum(values) / 4) < 0.98
    dat = tmp_path / "HPL.dat"
    dat.write_text(
        "HPLinpack benchmark input file\nInnovative Computing Laboratory\nHPL.out      output file name (if any)\n"
        "6            device out (6=stdout,7=stderr,file)\n1            # of problems sizes (N)\n92160        Ns\n"
        "1            # of NBs\n768          NBs\n0            PMAP process mapping (0=Row-,1=Column-major)\n"
        "1            # of process grids (P x Q)\n4            Ps\n4            Qs\n16.0         threshold\n"
    )
    text = bench.work("dgx[01-02]", "hpl.sh", "--dat", str(dat)).out
    assert "WR01C2R4       92160   768     4     4 " in text
    one = bench.work("dgx01", "hpl.sh", "--dat", str(dat))
    assert one.status == 1
    assert "Need at least 16 processes for these tests" in one.out
    gone = bench.work("dgx01", "hpl.sh", "--dat", str(tmp_path / "no.dat"))
    assert gone.status == 1
    assert f"cannot open file {tmp_path / 'no.dat'}" in gone.out


LINE = re.compile(
    r"Training epoch 0, iteration (\d+)/(\d+) \| lr: (\S+) \| global_batch_size: (\d+) \| global_step: (\d+) \| "
    r"reduced_train_loss: (\S+) \| train_step_timing in s: (\S+) \| consumed_samples: (\S+)"
)


def test_nemo_trains_saves_and_resumes(bench: Bench) -> None:
    whole = bench.work("dgx[01-02]", *bench.nemo(40, 20, "whole"))
    records = LINE.findall(whole.out)
    assert [int(r[0]) for r in records] == list(range(40))
    assert {r[1] for r in records} == {"39"}
    assert [float(r[7]) for r in records] == [128 * (i + 1) for i in range(40)]
    losses = [float(r[5]) for r in records]
    assert 11.6 < losses[0] < 12
    assert losses[-1] < losses[20] < losses[0]
    assert all(2.05 < float(r[6]) < 2.15 for r in records)
    assert (
        len(
            re.findall(
                r"Global Checkpoint Save : Rank: 0 : Iteration: (?:19|39) : .* Save duration: 3[78]\.", whole.out
            )
        )
        == 2
    )
    assert "`Trainer.fit` stopped: `max_steps=40` reached." in whole.out
    assert "Training from scratch" in whole.out
    # The first job of a resume test ends after a checkpoint, the second goes on from it.
    bench.work("dgx[01-02]", *bench.nemo(25, 20, "cut"))
    again = bench.work("dgx[01-02]", *bench.nemo(40, 20, "cut"))
    resumed = LINE.findall(again.out)
    assert [int(r[0]) for r in resumed] == list(range(20, 40))
    assert float(resumed[0][7]) == 128 * 21
    assert abs(float(resumed[0][5]) - losses[20]) < 0.02
    assert re.search(r"Restoring states from the checkpoint path at .*step=19", again.out)
    assert "Global Checkpoint Load : Rank : 0 : Start time : " in again.out
    folder = bench.folder / "cut" / "default" / "checkpoints"
    newest = next(p for p in folder.iterdir() if "step=39" in p.name)
    assert json.loads((newest / "metadata.json").read_text())["global_step"] == 40
    # A checkpoint that was not finished is not resumed from.
    (folder / (newest.name + "-unfinished")).touch()
    once_more = bench.work("dgx[01-02]", *bench.nemo(41, 20, "cut"))
    assert "step=19" in once_more.out.split("Restoring states from")[1].splitlines()[0]


def test_nemo_dry_run_and_refusals(bench: Bench) -> None:
    dry = bench.work("dgx01", *bench.nemo(40, 20, "log"), "--dryrun")
    assert dry.status == 0
    assert "  max_steps: 40" in dry.out
    assert "Training epoch" not in dry.out
    assert not (bench.folder / "log").exists()
    assert bench.work("dgx01", "nemo", "llm", "finetune").status == 2
    assert "give a whole number" in bench.work("dgx01", *bench.nemo(), "trainer.max_steps=many").err
    wrong = bench.work("dgx[01-02]", *bench.nemo(), "trainer.num_nodes=4")
    assert wrong.status == 1
    assert "num_nodes=4" in wrong.out


def test_no_healthy_tool_complains(bench: Bench) -> None:
    bench.work("dgx[01-08]", *NCCL)
    for node in ("dgx01", "dgx08"):
        probes = bench.probes(node)
        assert "Overall Health            | Healthy" in probes["dcgmi health -c"]
        assert "Xid" not in probes["dmesg -T"]
        assert "Link DOWN" not in probes["dmesg -T"]
        smi = probes["nvidia-smi -q"]
        assert smi.count("GPU 00000000:") == 8
        assert ": Active" not in smi
        assert "GPU 00000000:C3:00.0" in smi
        assert len(set(re.findall(r"Serial Number +: (\d+)", smi))) == 8
        for name, text in probes.items():
            if name.startswith("mlxlink") and name.endswith("-c"):
                assert "Effective Physical BER             : 15E-255" in text
                assert "Link Down Counter                  : 0" in text
        assert not re.search(r"\| (cr|nr|nc|ns) ", probes["ipmitool sdr elist"])
    assert bench.call("sinfo", "-h", "-o", "%T").out.split() == ["idle"]
    assert bench.call("ibdiagnet").status == 0


# --- srun ---


def test_srun_runs_a_command_on_every_node(bench: Bench) -> None:
    script = 'for i in 1 2 3; do echo "$SLURMD_NODENAME $SLURM_PROCID $SLURM_NODEID $SLURM_NTASKS $SLURM_JOB_NODELIST $1"; done'
    done = bench.call(
        "srun", "-N", "3", "-w", "dgx[02-03,05]", "--ntasks-per-node=1", "--overlap", "sh", "-c", script, "x", "a b"
    )
    assert done.status == 0
    lines = sorted(set(done.out.splitlines()))
    assert lines == [f"{n} {i} {i} 3 dgx[02-03,05] a b" for i, n in enumerate(("dgx02", "dgx03", "dgx05"))]
    assert len(done.out.splitlines()) == 9


def test_srun_labels_tasks_and_tells_what_failed(bench: Bench) -> None:
    done = bench.call(
        "srun", "-N2", "--ntasks-per-node=2", "-l", "sh", "-c", 'echo hi; printf "no newline"; exit $SLURM_PROCID'
    )
    assert sorted(done.out.splitlines()) == sorted([f"{i}: {t}" for i in range(4) for t in ("hi", "no newline")])
    assert done.status == 3
    assert "srun: error: dgx02: task 3: Exited with exit code 3" in done.err
    assert "srun: error: dgx01: task 1: Exited with exit code 1" in done.err


def test_srun_never_mixes_lines(bench: Bench) -> None:
    text = "x" * 3000
    done = bench.call("srun", "-N", "8", "sh", "-c", f"for i in 1 2 3 4 5 6 7 8 9; do echo {text}; done")
    assert set(done.out.splitlines()) == {text}
    assert len(done.out.splitlines()) == 72


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-w", "dgx99", "true"], "Invalid node name specified"),
        (["-N", "9", "true"], "Requested node configuration is not available"),
        (["-N", "1", "-w", "dgx01,dgx02", "true"], "more nodes than permitted"),
        (["-N", "two", "true"], "is not a valid number"),
        (["-N", "1"], "No command given"),
        (["-N", "1", "no-such-program"], "No such file or directory"),
        (["-w", "dgx[01-", "true"], "brackets do not match"),
    ],
)
def test_srun_refuses(bench: Bench, argv: list[str], message: str) -> None:
    done = bench.call("srun", *argv)
    assert done.status != 0
    assert message in done.err


def test_srun_takes_no_shell_words_from_names(bench: Bench, tmp_path: Path) -> None:
    scenario = tmp_path / "evil.yaml"
    scenario.write_text('nodes: ["dgx01;touch pwned"]\n')
    other = Bench(tmp_path, scenario)
    done = other.call("sinfo")
    assert done.status == 1
    assert "is not a node name" in done.err
    bench.on("dgx01; touch pwned", "dmesg")
    bench.call("dctech", "dgx01", "gpu5; touch pwned")
    bench.call("srun", "--job-name", "$(touch pwned)", "-N1", "true")
    assert not (tmp_path / "pwned").exists()


def test_time_limit_of_srun(bench: Bench) -> None:
    begin = time.monotonic()
    done = bench.call("srun", "-N1", "-t", "0:01", *NCCL, BURNIN_LAB_ITERATION_SECONDS="60")
    assert time.monotonic() - begin < 8
    assert done.status == 143
    assert "DUE TO TIME LIMIT ***" in done.err
    assert bench.call("sacct", "-X", "-n", "-P", "-o", "State").out.split() == ["TIMEOUT"]


def wait_for(what: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_scancel_ends_exactly_the_named_job(bench: Bench) -> None:
    slow = {"BURNIN_LAB_STEP_SECONDS": "0.1"}
    one = bench.start("srun", "-J", "first", "-N1", "-w", "dgx01", *bench.nemo(400, 5, "a"), **slow)
    two = bench.start("srun", "-J", "second", "-N1", "-w", "dgx02", *bench.nemo(400, 5, "b"), **slow)
    try:
        wait_for(lambda: len(bench.call("squeue", "-h", "-o", "%j %T").out.splitlines()) == 2)
        assert sorted(bench.call("squeue", "-h", "-o", "%j|%T|%N").out.split()) == [
            "first|RUNNING|dgx01",
            "second|RUNNING|dgx02",
        ]
        assert "allocated" in bench.call("sinfo", "-h", "-N", "-n", "dgx01", "-o", "%T").out
        assert one.stdout is not None
        for line in one.stdout:
            if "Global Checkpoint Save" in line:
                break
        assert bench.call("scancel", "--name", "first").status == 0
        rest = one.stdout.read()
        assert one.wait(10) == 143
        assert "Trainer.fit" not in rest
        assert re.search(r"slurmstepd: error: \*\*\* STEP \d+\.0 ON dgx01 CANCELLED AT \S+ \*\*\*", rest)
        assert two.poll() is None
        number = bench.call("squeue", "-h", "-n", "second", "-o", "%i").out.strip()
        assert bench.call("scancel", number).status == 0
        assert two.wait(10) == 143
    finally:
        for process in (one, two):
            if process.poll() is None:
                process.kill()
            process.communicate()
    states = bench.call("sacct", "-X", "-n", "-P", "-o", "JobName,State").out.split("\n")
    assert sorted(states)[1:] == [f"first|CANCELLED by {os.getuid()}", f"second|CANCELLED by {os.getuid()}"]
    done = bench.call("scancel", "1")
    assert done.status == 1
    assert "Invalid job id specified" in done.err
    assert bench.call("scancel", "--name", "first").status == 0


def test_a_killed_srun_leaves_nothing_running(bench: Bench) -> None:
    process = bench.start("srun", "-N1", *NCCL, BURNIN_LAB_ITERATION_SECONDS="60")
    wait_for(lambda: bench.call("squeue", "-h").out != "")
    process.kill()
    assert process.stdout is not None
    process.stdout.read()  # ends only when the workload, too, has closed its output
    assert process.wait(5) == -9
    assert bench.call("squeue", "-h").out == ""
    assert bench.call("sacct", "-X", "-n", "-P", "-o", "State,ExitCode").out.split() == ["FAILED|0:9"]


def test_output_comes_line_by_line(bench: Bench) -> None:
    process = bench.start("srun", "-N1", *HPL, BURNIN_LAB_ITERATION_SECONDS="1.5")
    assert process.stdout is not None
    times = [time.monotonic() for line in process.stdout if "Prog=" in line]
    assert process.wait(5) == 0
    assert times[-1] - times[0] > 0.8
    assert len(times) == 12


# --- scontrol, sinfo ---


def test_drain_and_resume(bench: Bench) -> None:
    assert "must specify a reason" in bench.call("scontrol", "update", "nodename=dgx05", "state=drain").err
    assert bench.call("scontrol", "update", "nodename=dgx99", "state=drain", "reason=x").status == 1
    assert (
        bench.call("scontrol", "update", "NodeName=dgx05", "State=DRAIN", "Reason=burnin demo: Xid 79 on gpu5").out
        == ""
    )
    reasons = bench.call("sinfo", "-R").out.splitlines()
    assert reasons[0] == "REASON               USER      TIMESTAMP           NODELIST"
    assert re.match(r"burnin demo: Xid 79  \S+ +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d dgx05$", reasons[1])
    assert (
        bench.call("sinfo", "-h", "-N", "-o", "%N|%T|%E").out.splitlines()[4]
        == "dgx05|drained|burnin demo: Xid 79 on gpu5"
    )
    shown = bench.call("scontrol", "show", "node", "-o", "dgx[04-05]").out.splitlines()
    assert "State=IDLE ThreadsPerCore" in shown[0]
    assert "State=IDLE+DRAIN " in shown[1]
    assert re.search(r"Reason=burnin demo: Xid 79 on gpu5 \[\S+@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]$", shown[1])
    assert bench.work("dgx05", *NCCL).status == 0, "a drained node still runs what is started on it by hand"
    assert bench.call("scontrol", "update", "nodename=dgx05", "state=resume").status == 0
    assert bench.call("sinfo", "-h", "-R").out == ""
    again = bench.call("scontrol", "update", "nodename=dgx05", "state=resume")
    assert again.status == 1
    assert "Invalid node state specified" in again.err


def test_sinfo_folds_nodes_of_one_state(bench: Bench) -> None:
    bench.call("scontrol", "update", "nodename=dgx[02-03]", "state=drain", "reason=x")
    assert bench.call("sinfo", "-h", "-o", "%D %T %N").out.splitlines() == [
        "6 idle dgx[01,04-08]",
        "2 drained dgx[02-03]",
    ]


# --- state ---


def test_nothing_is_written_outside_the_state_folder(bench: Bench, tmp_path: Path) -> None:
    before = subprocess.run(
        ["git", "status", "--porcelain", "--ignored", str(LAB)], capture_output=True, text=True, check=False
    ).stdout
    del bench.env["BURNIN_LAB_PYCACHE"]
    bench.work("dgx[01-08]", *NCCL)
    bench.work("dgx01", *bench.nemo())
    bench.probes("dgx01")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lab"]
    after = subprocess.run(
        ["git", "status", "--porcelain", "--ignored", str(LAB)], capture_output=True, text=True, check=False
    ).stdout
    assert [line for line in after.splitlines() if "pycache" in line] == [
        line for line in before.splitlines() if "pycache" in line
    ]


def test_a_torn_event_is_as_if_never_written(bench: Bench) -> None:
    bench.call("sinfo")
    events = bench.state / "nodes" / "dgx01" / "events"
    events.write_text('{"e": "fault", "id": "link_degr')
    assert "Healthy" in bench.on("dgx01", "dcgmi", "health", "-c").out
    assert bench.work("dgx01", *NCCL).status == 0


def test_a_view_taken_away_comes_back(bench: Bench) -> None:
    first = bench.on("dgx01", "ipmitool", "sdr", "elist").out
    view = bench.state / "nodes" / "dgx01" / "view"
    assert view.is_dir()
    assert (view / "sdr-elist").read_text() == first
    for file in view.iterdir():
        file.unlink()
    view.rmdir()
    (bench.state / "nodes" / "dgx01" / "view.new").mkdir()
    (bench.state / "nodes" / "dgx01" / "view.new" / "dmesg").write_text("half")
    assert bench.on("dgx01", "ipmitool", "sdr", "elist").out == first
    assert "Linux version" in bench.on("dgx01", "dmesg").out


def test_many_at_once_count_every_event(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "link_flap")
    processes = [
        bench.start(
            "srun",
            "-N2",
            "-w",
            "dgx05,dgx06",
            *NCCL,
            BURNIN_ITERATION=str(i + 1),
            BURNIN_STEP="x2",
            BURNIN_WORKLOAD="nccl",
        )
        for i in range(8)
    ]
    assert [p.wait(30) for p in processes] == [0] * 8
    for process in processes:
        process.communicate()
    assert "Link Down Counter                  : 8" in bench.on("dgx06", "mlxlink", "-d", "mlx5_1", "-c").out
    numbers = bench.call("sacct", "-X", "-n", "-P", "-o", "JobID").out.split()
    assert len(set(numbers)) == 8


def test_another_scenario_in_the_same_folder_is_noticed(bench: Bench) -> None:
    assert "RPM" in bench.on("dgx03", "ipmitool", "sdr", "elist").out
    done = bench.on("dgx03", "ipmitool", "sdr", "elist", BURNIN_SCENARIO=str(SCENARIOS / "fan_failed.yaml"))
    assert "| cr " not in done.out, "a shell tool knows only its view"
    bench.env["BURNIN_SCENARIO"] = str(SCENARIOS / "fan_failed.yaml")
    bench.call("srun", "-N1", "true")
    assert "| cr " in bench.on("dgx03", "ipmitool", "sdr", "elist").out


def test_tools_find_the_newest_lab_below_results(bench: Bench, tmp_path: Path) -> None:
    bench.call("sinfo", BURNIN_LAB=str(tmp_path / "results" / "demo" / "lab"))
    del bench.env["BURNIN_LAB"], bench.env["BURNIN_SCENARIO"]
    assert bench.call("sinfo", "-h", "-o", "%N").out.strip() == "dgx[01-08]"
    assert bench.on("dgx02", "dcgmi", "health", "-c").status == 0
    lost = bench.call("sinfo", cwd=Path("/"))
    assert lost.status == 1
    assert "set BURNIN_LAB" in lost.err


def test_a_machine_that_is_no_node_says_so(bench: Bench) -> None:
    done = bench.on("head01", "nvidia-smi", "-q")
    assert done.status == 1
    assert "head01 is no node of the simulated cluster" in done.err


# --- as on a real Slurm: one process a rank ---


def rank(bench: Bench, nodes: list[str], number: int, *argv: str, **env: str) -> subprocess.Popen[str]:
    return bench.start(
        *argv,
        SLURM_JOB_ID="77",
        SLURM_STEP_ID="3",
        SLURM_PROCID=str(number),
        SLURM_LOCALID=str(number % 8),
        SLURM_NTASKS=str(8 * len(nodes)),
        SLURMD_NODENAME=nodes[number // 8],
        SLURM_JOB_NODELIST=",".join(nodes),
        BURNIN_STEP="x4",
        BURNIN_WORKLOAD="nemo",
        BURNIN_ITERATION="0",
        **env,
    )


def test_the_rank_of_the_lost_gpu_fails_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "tickets")
    bench.call("sinfo")
    nodes = ["dgx04", "dgx05", "dgx06", "dgx07"]
    processes = {r: rank(bench, nodes, r, *bench.nemo()) for r in (0, 1, 8, 13, 15, 31)}
    ended: dict[int, float] = {}
    while len(ended) < len(processes):
        for r, process in processes.items():
            if r not in ended and process.poll() is not None:
                ended[r] = time.monotonic()
        time.sleep(0.01)
    codes = {r: p.returncode for r, p in processes.items()}
    texts = {r: p.communicate()[0] for r, p in processes.items()}
    assert codes == {0: 1, 1: 0, 8: 0, 13: 1, 15: 0, 31: 0}
    assert ended[13] < ended[0]
    assert "[rank13]: RuntimeError: CUDA error" in texts[0]
    assert all(not text for r, text in texts.items() if r != 0)
    assert "Xid (PCI:0000:c3:00): 79" in bench.on("dgx05", "dmesg").out


def test_a_crashing_node_runs_the_crash_command_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "node_crash")
    bench.call("sinfo")
    nodes = ["dgx01", "dgx02", "dgx03", "dgx04"]
    mark = tmp_path / "crashed"
    env = {"BURNIN_LAB_CRASH_COMMAND": f"echo $SLURMD_NODENAME > {mark}"}
    processes = []
    for r in (0, 24, 25):
        process = rank(bench, nodes, r, *HPL, **env)
        processes.append(process)
    try:
        # rank() says nemo; the scenario wants hpl
        wait_for(lambda: processes[2].poll() is not None)
        assert not mark.exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    env["BURNIN_WORKLOAD"] = "hpl"
    base = {k: v for k, v in env.items() if k != "BURNIN_WORKLOAD"}
    processes = []
    for r in (0, 24, 25):
        bench.env["LAB_TEST"] = "1"
        process = subprocess.Popen(
            HPL,
            env={
                **bench.env,
                **base,
                "SLURM_JOB_ID": "78",
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": str(r),
                "SLURM_LOCALID": str(r % 8),
                "SLURMD_NODENAME": nodes[r // 8],
                "SLURM_JOB_NODELIST": "dgx[01-04]",
                "BURNIN_STEP": "x4",
                "BURNIN_WORKLOAD": "hpl",
                "BURNIN_ITERATION": "0",
            },
            stdout=subprocess.DEVNULL,
        )
        processes.append(process)
    try:
        wait_for(lambda: mark.exists() and mark.read_text() != "")
        assert mark.read_text().strip() == "dgx04"
        assert processes[0].poll() is None, "rank 0 waits for the dead node until Slurm ends the step"
        assert processes[2].wait(5) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


# --- speed ---


def cpu_per_call(bench: Bench, calls: int, *argv: str, **env: str) -> float:
    """CPU milliseconds of one call, children included."""
    bench.call(*argv, **env)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(calls):
        subprocess.run(
            argv, env={**bench.env, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / calls * 1e3


def test_calls_cost_little(bench: Bench, record_property: Callable[[str, object], None]) -> None:
    """The targets of the lab with room for a busy machine: 3 ms a probe, 40 ms a workload or srun."""
    limits = {
        ("dmesg", "-T"): 9.0,
        ("dcgmi", "health", "-c"): 9.0,
        ("nvidia-smi", "-q"): 12.0,
        ("mlxlink", "-d", "mlx5_3", "-c"): 9.0,
        ("ipmitool", "sdr", "elist"): 9.0,
        ("srun", "-N", "8", "--ntasks-per-node=8", *NCCL): 120.0,
        ("srun", "-N", "8", "--ntasks-per-node=8", *HPL): 120.0,
        ("srun", "-N", "8", "--ntasks-per-node=8", *bench.nemo(60)): 120.0,
    }
    for argv, limit in limits.items():
        cost = cpu_per_call(bench, 8, *argv, SLURMD_NODENAME="dgx02")
        record_property(" ".join(argv[:6]), round(cost, 2))
        assert cost < limit, f"{' '.join(argv)} took {cost:.1f} ms of CPU"


def test_squad(bench: Bench, tmp_path: Path) -> None:
    done = bench.work("dgx03", "question_answering.py", "trainer.max_epochs=2", workload="squad")
    assert done.status == 0
    assert [round(float(x)) for x in re.findall(r"val exact match (\S+)", done.out)] == [83, 84]
    assert re.findall(r"val f1 (\d+)", done.out)[-1] in ("90", "91")
    assert "`Trainer.fit` stopped: `max_epochs=2` reached." in done.out
    bench.call("get_squad.py", "--destDir", str(tmp_path / "squad"))
    assert json.loads((tmp_path / "squad" / "v1.1" / "dev-v1.1.json").read_text())["version"] == "1.1"
