# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to jobs, nodes, slurmctld or the head: the same verdicts as without it, and nothing runs twice."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Campaign, Cluster

pytestmark = [pytest.mark.slurm]
Make = Callable[..., Campaign]
FOUR = "dgx[01-04]"


def verdicts(summary: dict[str, Any]) -> dict[str, str]:
    return {node: entry["status"] for node, entry in summary["nodes"].items()}


def accepted(*nodes: str) -> dict[str, str]:
    return dict.fromkeys(nodes, "accepted")


@pytest.mark.parametrize("victim", ["dgx01", "dgx03"], ids=["batch_host", "other_node"])
def test_a_node_dies_in_a_four_node_run(campaign: Make, cluster: Cluster, victim: str) -> None:
    """The lost node fails as node_crash, its partners owe and pass in the next heat: in the same invocation."""
    run = campaign(nodes=FOUR)
    run.start()
    run.until_held()
    cluster("power-cut", victim)
    run.until(lambda: " died: " in run.log())
    summary = run.finish()
    assert verdicts(summary) == {**accepted("dgx01", "dgx02", "dgx03", "dgx04"), victim: "failed"}
    node = summary["nodes"][victim]
    assert (node["fault"], node["part"], node["failed_step"]) == ("node_crash", "node", "full")
    casualty = run.casualty()
    assert casualty["state"] == "NODE_FAIL" and casualty["lost"] == [victim]
    assert run.heats() == 2
    run.assert_nothing_ran_twice()


def iterations(run: Campaign, but: str) -> dict[tuple[str, str], list[Any]]:
    """Return (step, group) -> iterations (number, command, verdict) of all finished runs of groups without a node.

    Those of its window: a half goes on while the other's window is not full, so how many it adds is a matter of time.
    """
    found = {}
    for path in sorted(run.result.glob("*/heat*/*/*/result.json")):
        document = json.loads(path.read_text())
        if but not in document["nodes"]:
            assert document["state"] == "complete", path
            done = [[i["iteration"], i["command"], i["verdict"]] for i in document["iterations"]]
            window = done[: document["window"]["iterations"]] if document["step"] == "halves" else done
            assert len(window) == document["window"]["iterations"] and {d[2] for d in done} == {"pass"}, path
            found[document["step"], ",".join(document["nodes"])] = window
    return found


def test_everything_is_killed_once_in_one_campaign(campaign: Make, cluster: Cluster, tmp_path: Path) -> None:
    """Head, slurmctld and batch host die during the last run, one after the other; the rest is as if nothing had happened.

    What it is compared with: an undisturbed campaign in which the same node is lost in the same run, for a fan. The machine that
    is killed fails by design (node_crash), and so does the other; what must be the same is everything else: who fails and
    where, who is accepted, which groups ran, how many heats it took, and every iteration of every node that was not hit.
    """
    hit = "dgx01"  # the first node of its groups: there runs the batch script
    scenario = tmp_path / "fan.yaml"
    fault = {"kind": "fan_failed", "node": hit, "part": "FAN6", "step": "full"}
    scenario.write_text(json.dumps({"nodes": FOUR, "gpus_per_node": 8, "faults": [fault]}))
    calm = campaign(hold=False, nodes=FOUR, scenario=str(scenario), drain="print")
    calm.start()
    expected = calm.finish()
    run = campaign(nodes=FOUR)
    run.start()
    job = run.until_held()
    time.sleep(7)  # slurmctld has saved the job by then
    run.kill()
    cluster("kill-ctld")
    cluster("start-ctld")
    run.start()
    run.until(lambda: f"(Slurm job {job}) is RUNNING: taken up again" in run.log())
    cluster("power-cut", hit)
    run.until(lambda: " died: " in run.log())
    summary = run.finish()
    assert verdicts(summary) == verdicts(expected) == {**accepted("dgx01", "dgx02", "dgx03", "dgx04"), hit: "failed"}
    assert summary["verdict"] == expected["verdict"] == "rejected"
    assert summary["nodes"][hit]["failed_step"] == expected["nodes"][hit]["failed_step"] == "full"
    assert (summary["nodes"][hit]["fault"], expected["nodes"][hit]["fault"]) == ("node_crash", "fan_failed")
    heats = [[(h["step"], h["heat"], h["groups"], h["outcome"]) for h in s["heats"]] for s in (summary, expected)]
    assert heats[0] == heats[1], "the same groups in the same heats, with the same outcome for everybody"
    assert iterations(run, hit) == iterations(calm, hit) and len(iterations(run, hit)) >= 6
    assert run.casualty()["state"] == "NODE_FAIL" and run.casualty()["lost"] == [hit]
    run.assert_nothing_ran_twice()


def test_a_node_reboots_quickly(campaign: Make, cluster: Cluster) -> None:
    """It is back before Slurm has missed it; the boot time tells."""
    run = campaign(nodes="dgx[02-03]")
    run.start()
    run.until_held()
    time.sleep(4)  # boot times are known to a second or two: not to be taken for a boot before the job
    cluster("reboot-node", "dgx03")
    summary = run.finish()
    assert verdicts(summary) == {"dgx02": "accepted", "dgx03": "failed"}
    assert summary["nodes"]["dgx03"]["fault"] == "node_crash"  # by the job's death, or by the boot id if it lived on
    run.assert_nothing_ran_twice()


def test_scancel_from_outside(campaign: Make, cluster: Cluster) -> None:
    """Nobody's fault: run again in a further heat, all accepted as in an undisturbed campaign."""
    run = campaign()
    run.start()
    cluster.ask("scancel", run.until_held())
    run.until(lambda: " died: " in run.log())
    assert verdicts(run.finish()) == accepted("dgx01")
    assert run.casualty()["state"] == "CANCELLED" and run.casualty()["lost"] == []
    assert run.heats() == 2
    run.assert_nothing_ran_twice()


def test_a_run_over_its_time_limit(campaign: Make) -> None:
    limit = {
        "partition": None, "account": None, "qos": None, "reservation": None, "mpi": "pmix", "gpus_option": True, "extra": [],
        "time_limit_minutes": 1, "iteration_minutes": 0.1, "time_margin_minutes": 0.1, "start_timeout_minutes": 60,
    }  # fmt: skip
    run = campaign(slurm=limit)
    run.start()
    run.until_held()
    run.until(lambda: " died: " in run.log(), seconds=150)
    assert verdicts(run.finish()) == accepted("dgx01")
    assert run.casualty()["state"] == "TIMEOUT"
    run.assert_nothing_ran_twice()


def test_slurmctld_is_killed_and_restarted_during_a_run(campaign: Make, cluster: Cluster) -> None:
    run = campaign()
    run.start()
    run.until_held()
    time.sleep(7)  # slurmctld saves its state with a delay of some 5 s: what it loses by then is another test's matter
    cluster("kill-ctld")
    time.sleep(2)
    run.hold.unlink()  # the run ends while slurmctld is away
    time.sleep(3)
    cluster("start-ctld")
    assert verdicts(run.finish()) == accepted("dgx01")
    assert run.heats() == 1 and len(run.submissions(0)) == 1
    run.assert_nothing_ran_twice()


def test_the_head_is_killed_and_started_again(campaign: Make, cluster: Cluster) -> None:
    """The stale lock is recognised, the running job is taken up, its finished iteration stays."""
    run = campaign(nodes="dgx[01-02]")
    run.start()
    job = run.until_held()
    run.kill()
    assert "RUNNING" in cluster.ask("squeue", "-h", "-j", job, "-o", "%T"), "the job outlives its head"
    run.start()
    run.until(lambda: f"(Slurm job {job}) is RUNNING: taken up again" in run.log())
    assert verdicts(run.finish()) == accepted("dgx01", "dgx02")
    assert run.heats() == 1 and {s["job_id"] for s in run.submissions(0)} == {job}
    run.assert_nothing_ran_twice()


@pytest.mark.parametrize("end", ["result", "scancel"])
def test_a_job_ends_while_no_head_lives(campaign: Make, cluster: Cluster, end: str) -> None:
    run = campaign()
    run.start()
    job = run.until_held()
    run.kill()
    if end == "scancel":
        cluster.ask("scancel", job)
    run.hold.unlink()
    run.until(lambda: not cluster.ask("squeue", "-h", "-j", job, "-o", "%T").strip())
    run.start()
    assert verdicts(run.finish()) == accepted("dgx01")
    assert len(run.submissions(0)) == 1, "looked up, not submitted a second time"
    assert run.heats() == (1 if end == "result" else 2)
    run.assert_nothing_ran_twice()


def test_a_second_head_is_refused_and_the_first_lives_on(campaign: Make) -> None:
    run = campaign()
    first = run.start()
    run.until_held()
    second = run.start()
    assert second.wait(60) != 0 and "another snakemake is running this campaign" in run.log()
    run.process = first
    assert verdicts(run.finish()) == accepted("dgx01")
    assert len(run.submissions(0)) == 1


def test_ctrl_c_cancels_our_jobs_and_the_next_start_goes_on(campaign: Make, cluster: Cluster) -> None:
    foreign = cluster.ask("sbatch", "--parsable", "--nodelist=dgx04", "--output=/dev/null", "--wrap=sleep 300").strip()
    run = campaign()
    run.start()
    job = run.until_held()
    run.kill(signal.SIGINT)
    assert "CANCELLED" in cluster.ask("scontrol", "show", "job", job)
    assert cluster.ask("squeue", "-h", "-j", foreign, "-o", "%T").strip() == "RUNNING", "only ours are cancelled"
    run.start()
    assert verdicts(run.finish()) == accepted("dgx01")
    assert run.heats() == 1 and len(run.submissions(0)) == 2, "withdrawn, not dead"
    run.assert_nothing_ran_twice()


def test_a_node_drained_by_an_administrator_is_noticed_and_never_resumed(campaign: Make, cluster: Cluster) -> None:
    cluster.ask("scontrol", "update", "nodename=dgx02", "state=drain", "reason=alice: new PSU on Monday")
    run = campaign(hold=False, nodes="dgx[01-03]")
    run.start()
    try:
        assert run.process is not None
        run.process.wait(150)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"waited for a node that cannot start\n{run.log()[-3000:]}") from None
    assert run.casualty(step="single")["state"] == "NOT_STARTED" and run.casualty(step="single")["lost"] == ["dgx02"]
    assert "alice: new PSU on Monday" in run.casualty(step="single")["text"]
    shown = cluster.ask("scontrol", "show", "node", "dgx02")
    assert "DRAIN" in shown and "alice: new PSU on Monday" in shown, "not ours: never resumed, its reason stays"
    assert "died" in run.log()
