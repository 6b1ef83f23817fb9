# SPDX-License-Identifier: Apache-2.0
"""Whole campaigns on the lab through Snakemake: each fault is found on the right node, as the right part, or is nobody's."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin.errors import CampaignError
from burnin.report.write import write
from burnin.runs.journal import completed

from tests.integration.campaigns import QUICK, ROOT, Lab

FOUND = [
    ("fan_failed", {"node": "dgx03", "part": "FAN6"}, "hpl", ("fan_failed", "FAN6")),
    ("link_degrading", {"node": "dgx02", "part": "mlx5_3", "min_nodes": 2}, "nccl", ("link_degrading", "mlx5_3")),
    ("gpu_off_bus", {"node": "dgx04", "part": "gpu5", "step": "halves"}, "nemo", ("gpu_off_bus", "gpu5")),
    (
        "silent_data_corruption",
        {"node": "dgx03", "part": "gpu2", "step": "single"},
        "nccl",
        ("silent_data_corruption", "node"),
    ),
    ("node_crash", {"node": "dgx02", "step": "halves"}, "nccl", ("node_crash", "node")),
    ("hang", {"node": "dgx01", "step": "single"}, "nccl", ("hang", "node")),
    ("nan_loss", {"node": "dgx04", "step": "single"}, "nemo", ("nan_loss", "node")),
]


@pytest.mark.parametrize(("kind", "fields", "workload", "expected"), FOUND, ids=[f[0] for f in FOUND])
def test_a_fault_is_found_and_nobody_else_fails(
    tmp_path: Path, kind: str, fields: dict[str, Any], workload: str, expected: tuple[str, str]
) -> None:
    lab = Lab(tmp_path, [{"kind": kind, **fields}], workloads=[workload])
    lab.snakemake()
    assert lab.faults() == {fields["node"]: expected}
    others = {n: s for n, s in lab.statuses().items() if n != fields["node"]}
    assert set(others.values()) == {"accepted"}
    summary = lab.summary
    assert summary["verdict"] == "rejected"
    entry = summary["nodes"][fields["node"]]
    assert entry["failed_step"] == fields.get("step", entry["failed_step"]) and entry["failed_workload"] == workload
    for place in entry["evidence"]:
        path, line = place.rsplit(":", 1)
        assert len((lab.dir / path).read_text(errors="replace").splitlines()) >= int(line), place
    for node in others:
        for step in ("single", "halves", "full"):
            assert summary["nodes"][node]["hours"][step][workload] > 0, f"{node} has no time in {step}"
    drained = (lab.dir / "single" / "heat0" / "gate.json").parent.parent.parent
    reasons = [g for g in drained.rglob("gate.json") if f'"{fields["node"]}": "drained: burnin test: ' in g.read_text()]
    assert reasons, "the failed node was drained with an owned reason"


def test_out_of_memory_everywhere_stops_with_a_cure_and_drops_nobody(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [{"kind": "oom_all_nodes"}], workloads=["nemo"])
    done = lab.snakemake(check=False)
    assert done.returncode != 0 and "recipe" in done.stderr and "What to do" in done.stderr
    assert not lab.faults() and set(lab.statuses().values()) == {"running"}
    again = lab.snakemake(check=False)
    assert again.returncode != 0, "the same command tries once more, and stops again"
    assert (lab.dir / "single" / "heat1" / "gate.json").exists() and not lab.faults()


def test_a_resume_from_scratch_stops_and_drops_nobody(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path,
        [{"kind": "resume_from_scratch"}],
        nodes="dgx01",
        workloads=["nemo"],
        resume_test={"workload": "nemo", "steps_after_checkpoint": 5},
    )
    done = lab.snakemake(check=False)
    assert done.returncode != 0 and "resume_from_scratch" in done.stderr
    assert not lab.faults()


@pytest.mark.parametrize("nodes", ["dgx01", "dgx[01-02]", "dgx[01-03]", "dgx[01-05]", "dgx[01-07]"])
def test_any_number_of_healthy_nodes_is_accepted(tmp_path: Path, nodes: str) -> None:
    lab = Lab(tmp_path, nodes=nodes, windows={w: {"default": {"iterations": 1}} for w in ("nccl", "hpl", "nemo")})
    lab.snakemake()
    assert lab.summary["verdict"] == "accepted", lab.summary
    assert set(lab.statuses().values()) == {"accepted"}
    made = {name: (lab.dir / name).read_text(encoding="utf-8") for name in ("report.html", "summary.csv", "junit.xml")}
    assert "ACCEPTED" in made["report.html"] and "<failure" not in made["junit.xml"]
    for node in lab.statuses():
        assert all(node in text for text in made.values()), node


def test_a_campaign_that_is_over_has_its_report_with_a_new_version_of_burnin_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, nodes="dgx01", workloads=["hpl"], windows={"hpl": {"default": {"iterations": 1}}})
    lab.snakemake()
    path = lab.dir / "config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    del stored["config"]["isolation"]
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(CampaignError, match="of another version"):
        write(lab.dir)
    done = lab.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr
    write(lab.dir)


def test_the_dry_run_shows_the_whole_ladder_before_and_in_the_middle(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path, [{"kind": "fan_failed", "node": "dgx03", "part": "FAN6"}], nodes="dgx[01-08]", workloads=["hpl"]
    )
    before = lab.snakemake("-n").stdout
    assert not lab.dir.exists(), "a dry run leaves nothing"
    runs = re.findall(r"run hpl on (\S+) \((\w+), heat (\d+)\)", before)
    assert len(runs) == 8 + 4 + 2 + 2 + 1
    lab.snakemake("single")
    middle = lab.snakemake("-n").stdout
    runs = re.findall(r"run hpl on (\S+) \((\w+), heat (\d+)\)", middle)
    assert [r for r in runs if r[1] == "single"] == []
    assert len([r for r in runs if r[1] == "x2"]) == 3 + 1, (
        "seven nodes: three pairs, then the left-over with a passed one"
    )
    assert len(runs) == 4 + 1 + 1 + 2 + 1
    for graph in ("--dag", "--rulegraph", "--d3dag"):
        drawn = lab.snakemake(graph).stdout
        assert "halves" in drawn or "burn_in" in drawn
    assert lab.snakemake("--dag").stdout.count("burn_in") >= 9


def test_killed_heads_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    """kill -9 of Snakemake and of all it started, again and again; the verdict is that of an undisturbed campaign."""
    faults = [{"kind": "fan_failed", "node": "dgx03", "part": "FAN6", "step": "halves"}]
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    undisturbed = Lab(quiet, faults, workloads=["hpl"])
    undisturbed.snakemake()
    lab = Lab(tmp_path, faults, workloads=["hpl"], environment={"BURNIN_LAB_ITERATION_SECONDS": "0.4"})
    for patience in (5.0, 7.0, 9.0):
        head = lab.start()
        time.sleep(patience)
        if head.poll() is None:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
        kill_orphans(lab)
    finished = {a: len(completed(r)) for a, r in lab.journals().items()}
    lab.snakemake()
    assert {n: (e["status"], e["fault"], e["part"], e["failed_step"]) for n, e in lab.summary["nodes"].items()} == {
        n: (e["status"], e["fault"], e["part"], e["failed_step"]) for n, e in undisturbed.summary["nodes"].items()
    }
    for attempt, records in lab.journals().items():
        iterations = [s["iteration"] for s, _ in completed(records)]
        assert iterations == sorted(set(iterations)), f"{attempt}: an iteration was counted twice"
        assert len(iterations) >= finished.get(attempt, 0), f"{attempt}: a finished iteration was lost"
    for run, document in lab.results().items():
        if document["state"] == "complete":
            window = QUICK["windows"]["hpl"]["default"]["iterations"]
            done = len(document["iterations"])  # a half goes on until the other one's window is full
            assert done >= window if run.startswith("halves/") else done == window, run
        assert document["earlier_attempts"] == 0, f"{run}: the journal was not continued"


def kill_orphans(lab: Lab) -> None:
    """End every process of the campaign that the killed head left behind: the machine went down with it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            where = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(entry.name) != os.getpid() and str(lab.folder) in words + where and "pytest" not in words:
            try:
                os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue


def test_forced_runs_are_run_again_the_old_ones_are_kept_and_gates_judged_anew(tmp_path: Path) -> None:
    lab = Lab(tmp_path, nodes="dgx[01-02]", workloads=["nccl", "hpl"])
    lab.snakemake()
    before = lab.results()

    def changed(*targets: str) -> None:
        """Force runs; these and no others are run again, and what they gave before is kept."""
        nonlocal before
        done = lab.snakemake("--forcerun", *[str(lab.dir / t / "result.json") for t in targets])
        assert all(t in done.stderr for t in targets) and "to be run again" in done.stderr
        after = lab.results()
        assert {r for r, d in after.items() if d["started"] != before[r]["started"]} == set(targets)
        assert all(after[t]["earlier_attempts"] == before[t]["earlier_attempts"] + 1 for t in targets)
        before = after

    # all workloads of both nodes at once: Snakemake alone would run the first ones, judge the heat, and end
    changed(*[f"single/heat0/{w}/{n}" for w in ("nccl", "hpl") for n in ("dgx01", "dgx02")])
    assert (lab.dir / "single/heat0/hpl/dgx01/attempt0/result.json").exists()
    # both halves meet anew
    changed(*[f"halves/heat0/nccl/{n}" for n in ("dgx01", "dgx02")])
    assert len(list((lab.dir / "single/heat0/history").glob("gate.*.json"))) == 2
    assert not (lab.dir / "halves/heat1").exists() and lab.summary["verdict"] == "accepted"


def test_a_forced_run_that_failed_a_node_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    faults = [{"kind": "fan_failed", "node": "dgx02", "part": "FAN6"}]
    lab = Lab(tmp_path, faults, nodes="dgx[01-02]", workloads=["nccl"])
    lab.snakemake("single")
    before = {p: p.read_bytes() for p in lab.dir.rglob("*.json")}
    done = lab.snakemake("--forcerun", "burn_in", check=False)
    assert done.returncode == 1 and "burnin: dgx02 did not pass in single/heat0/nccl/dgx02" in done.stderr
    assert "burnin repair" in done.stderr and "Traceback" not in done.stderr
    assert {p: p.read_bytes() for p in before} == before and not (lab.dir / "reruns.jsonl").exists()


def test_changed_criteria_judge_again_and_run_nothing(tmp_path: Path) -> None:
    import yaml

    from tests.integration.campaigns import ROOT

    criteria = yaml.safe_load((ROOT / "config" / "criteria.yaml").read_text())
    path = tmp_path / "criteria.yaml"
    path.write_text(yaml.safe_dump(criteria))
    lab = Lab(tmp_path, nodes="dgx[01-02]", workloads=["hpl"], criteria=str(path))
    lab.snakemake()
    started = {r: d["started"] for r, d in lab.results().items()}
    base = {
        "workload": "hpl",
        "command": "hpl",
        "nodes": 1,
        "value": 9.9e5,
        "unit": "GFLOPS",
        "band": 0.05,
        "origin": "site",
        "date": "d",
    }
    path.write_text(yaml.safe_dump({**criteria, "baselines": [base]}))
    done = lab.snakemake(check=False)
    assert {r: d["started"] for r, d in lab.results().items()} == started
    # all groups alike are far below it: no node is dropped, the campaign stops and says what to compare
    assert done.returncode != 0 and "slow alike" in done.stderr
    assert not lab.faults() and lab.summary["stopped"]["kind"] == "slow_everywhere"
    path.write_text(yaml.safe_dump({**criteria, "baselines": [{**base, "value": 4.3e5}]}))
    lab.snakemake()
    assert {r: d["started"] for r, d in lab.results().items()} == started
    assert lab.summary["verdict"] == "accepted" and lab.summary["criteria_changed"] == []


def test_the_first_plan_waits_for_the_preflight_and_the_summary_tells_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [{"kind": "driver_mismatch", "node": "dgx03"}], preflight={"run": True})
    assert "preflight" in lab.snakemake("-n", "single").stdout
    done = lab.snakemake("single")
    assert "preflight: dgx03 stack: driver is 535" in done.stderr
    assert {f["node"] for f in lab.summary["preflight"]["findings"]} == {"dgx03"}
    assert set(lab.faults()) == {"dgx03"}, "failed by its runs; the preflight only tells"
    assert "Nothing to be done" in (again := lab.snakemake("single")).stdout + again.stderr


def test_squad_is_off_and_finds_a_node_that_computes_wrong_where_it_runs(tmp_path: Path) -> None:
    fault = {"kind": "silent_data_corruption", "node": "dgx02", "part": "gpu2", "workload": "squad"}
    lab = Lab(
        tmp_path, [fault], workloads=["squad"], windows={"squad": {"default": {"iterations": 1}}},
        watch={"hang_first_seconds": 30, "hang_least_seconds": 30},
    )  # fmt: skip
    lab.snakemake("single")
    assert set(lab.faults()) == {"dgx02"} and lab.summary["nodes"]["dgx02"]["failed_workload"] == "squad"
    assert set(lab.statuses().values()) == {"failed", "accepted"}, "squad runs on single nodes only: the ladder is over"


def burnin(lab: Lab, *arguments: str, check: bool = True) -> str:
    """Run the operator's command; return what it said."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "burnin", *arguments]
    environment = {
        **lab.environment,
        "BURNIN_LAB": str(lab.dir / "lab"),
        "BURNIN_SCENARIO": str(lab.folder / "scenario.yaml"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_repaired_node_stays_accepted_whatever_is_decided_again(tmp_path: Path) -> None:
    """Repair, catch-up, then new criteria: the gates of the past are judged again, and the repaired node is not out."""
    import subprocess

    import yaml

    from tests.integration.campaigns import ROOT

    criteria = yaml.safe_load((ROOT / "config" / "criteria.yaml").read_text())
    path = tmp_path / "criteria.yaml"
    path.write_text(yaml.safe_dump(criteria))
    fault = {"kind": "link_degrading", "node": "dgx02", "part": "mlx5_3", "min_nodes": 2}
    lab = Lab(
        tmp_path,
        [fault],
        nodes="dgx[01-03]",
        criteria=str(path),
        windows={w: {"default": {"iterations": 1}} for w in ("nccl", "hpl", "nemo")},
    )
    lab.snakemake()
    assert set(lab.faults()) == {"dgx02"}
    refused = burnin(
        lab, "repair", "dgx01", "--part", "x", "--fix", "reseated", "--campaign", str(lab.dir), check=False
    )
    assert "nothing to repair" in refused
    failed_in = lab.summary["nodes"]["dgx02"]["failed_step"]
    refused = burnin(lab, "rerun", f"{failed_in}/heat0", "--campaign", str(lab.dir), check=False)
    assert "proves nothing" in refused, "a failure is never retried into a pass"
    environment = {
        **lab.environment,
        "BURNIN_LAB": str(lab.dir / "lab"),
        "BURNIN_SCENARIO": str(tmp_path / "scenario.yaml"),
    }
    subprocess.run([str(ROOT / "lab" / "bin" / "dctech"), "dgx02", "mlx5_3"], env=environment, check=True, timeout=60)
    burnin(lab, "repair", "dgx02", "--part", "mlx5_3", "--fix", "cable replaced", "--campaign", str(lab.dir))
    # new criteria at the same start as the repair
    path.write_text(yaml.safe_dump({**criteria, "mad_factor": criteria["mad_factor"] + 1}))
    before = {r: d["started"] for r, d in lab.results().items()}
    lab.snakemake()
    assert lab.summary["verdict"] == "accepted", lab.summary["nodes"]["dgx02"]
    assert {r: s for r, s in before.items()}.items() <= {r: d["started"] for r, d in lab.results().items()}.items()
    # and again afterwards
    path.write_text(yaml.safe_dump({**criteria, "mad_factor": criteria["mad_factor"] + 2}))
    after = {r: d["started"] for r, d in lab.results().items()}
    done = lab.snakemake()
    assert lab.summary["verdict"] == "accepted" and "drained: burnin" not in done.stderr
    assert {r: d["started"] for r, d in lab.results().items()} == after, "nothing is run again"


def test_a_stage_is_run_again_and_a_node_is_added(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path,
        nodes="dgx[01-02]",
        workloads=["hpl", "nemo"],
        windows={w: {"default": {"iterations": 1}} for w in ("nccl", "hpl", "nemo")},
    )
    lab.snakemake()
    before = lab.results()
    assert "4 runs" in burnin(lab, "rerun", "halves", "--campaign", str(lab.dir))
    lab.snakemake()
    after = lab.results()
    again = {r for r in before if before[r]["started"] != after[r]["started"]}
    assert again == {r for r in before if r.startswith("halves/")} and all(
        after[r]["earlier_attempts"] == 1 for r in again
    )
    assert lab.summary["verdict"] == "accepted"
    lab.config.write_text(lab.config.read_text().replace("dgx[01-02]", "dgx[01-03]"))
    lab.snakemake()
    assert lab.statuses() == dict.fromkeys(["dgx01", "dgx02", "dgx03"], "accepted")
    lab.snakemake()


def test_a_damaged_decision_and_a_second_head_are_said(tmp_path: Path) -> None:
    import fcntl

    lab = Lab(tmp_path, nodes="dgx01", workloads=["hpl"])
    lab.snakemake()
    gate = lab.dir / "single" / "heat0" / "gate.json"
    whole = gate.read_text()
    gate.write_text(whole[: len(whole) // 2])
    done = lab.snakemake(check=False)
    assert done.returncode != 0 and "gate.json" in done.stderr and "Traceback" not in done.stderr
    gate.write_text(whole)
    other = lab.snakemake("--config", "scenario=fan_failed")
    assert "now it is fan_failed: what has run is not run again" in other.stderr, "said, where nothing is done"
    with (lab.dir / "head.lock").open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = lab.snakemake(check=False)
    assert done.returncode != 0 and "another snakemake" in done.stderr and "Traceback" not in done.stderr


def test_an_endless_test_that_its_own_limit_ends_is_an_iteration_like_another(tmp_path: Path) -> None:
    """nccl-tests -N 0 under srun --time: the end by the limit is the plan, not a fault."""
    definitions = yaml.safe_load((ROOT / "config" / "workloads.yaml").read_text())
    nccl = definitions["nccl"] | {
        "launch": definitions["nccl"]["launch"].replace("srun ", "srun --time=0:02 ", 1),
        "commands": {"all_reduce": "all_reduce_perf -b 8G -e 16G -f 2 -g 1 -n 20 -c 1 -N 0"},
    }
    lab = Lab(tmp_path, nodes="dgx01", workload_definitions=definitions | {"nccl": nccl})
    lab.snakemake()
    (result,) = lab.results().values()
    assert result["state"] == "complete" and [i["exit"] != 0 for i in result["iterations"]] == [True, True]
    assert all(i["facts"]["endless"] and len(i["facts"]["cycles"]) >= 2 for i in result["iterations"])
    assert lab.statuses() == {"dgx01": "accepted"} and lab.summary["verdict"] == "accepted"
