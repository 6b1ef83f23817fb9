# SPDX-License-Identifier: Apache-2.0
"""Time and size of the acceptance report of a large campaign: python benchmarks/bench_report.py [--nodes 256,1024] [--keep DIR]

`build` makes the result tree of a campaign that never ran: the real ladder, plans and gates, and results as the runner
writes them, with what the probes of healthy nodes read, over windows of a day. A few nodes have faults, and those that are
repaired come back. Evidence lies where the gates say it does. The unit tests use it, too, with few nodes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from burnin import config as configuration
from burnin import simulate, storage
from burnin.campaign import Campaign
from burnin.judging.heat import judge_heat
from burnin.judging.run import Context
from burnin.report.write import write

ROOT = Path(__file__).resolve().parents[1]
#: When the campaign began (s since 1970): 2026-11-30 08:00 UTC.
BEGIN = 1_796_025_600.0
SERIAL = 1_650_000_000_000
BDF = ("0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00", "0000:9d:00", "0000:c3:00", "0000:d1:00", "0000:df:00")
SPEED = {"all_reduce": 373.0, "all_gather": 369.0, "reduce_scatter": 371.0, "alltoall": 48.5}
HOURS = {"nccl": 12.0, "hpl": 4.0, "nemo": 8.0, "diag": 0.3}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a node: `kind` fan, link, xid, hang, slow, crash; where it shows; whether it is repaired."""

    node: str
    kind: str
    step: str
    workload: str
    fix: str = ""


@dataclass(slots=True)
class World:
    """A campaign while it is built. `iterations`: how many each window has; `clock`: s since 1970."""

    campaign: Campaign
    faults: list[Fault]
    iterations: Mapping[str, int]
    chance: random.Random
    clock: float = BEGIN
    repaired: set[str] = field(default_factory=set)
    kept: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # step -> results


def faults_of(nodes: Sequence[str]) -> list[Fault]:
    """Return the faults of a large campaign: one of each kind, spread over the nodes; two of them are repaired."""
    count = len(nodes)
    kinds = [
        ("fan", "single", "nccl", "replaced FAN6"), ("slow", "single", "hpl", ""), ("link", "x2", "nccl", "new cable on mlx5_3"),
        ("xid", "x4", "nemo", ""), ("hang", "x8", "nccl", ""), ("crash", "x16", "hpl", ""),
    ]  # fmt: skip
    return [
        Fault(nodes[(2 * i + 1) * count // (2 * len(kinds))], kind, step, workload, fix)
        for i, (kind, step, workload, fix) in enumerate(kinds)
    ]


def build(
    results: Path, nodes: int, faults: Sequence[Fault] | None = None, iterations: Mapping[str, int] | None = None,
    heats: int = 400, **overrides: Any,
) -> Path:  # fmt: skip
    """Build a campaign below `results` and return its folder. `heats`: stop after so many, as a campaign in progress."""
    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    width = len(str(nodes))
    document |= {"campaign": "simulated", "results": str(results), "nodes": f"dgx[{1:0{width}}-{nodes}]", "scenario": None,
                 "windows": {w: {"default": {"hours": h}} for w, h in HOURS.items() if w != "diag"}, **overrides}  # fmt: skip
    campaign = Campaign(configuration.load(document, ROOT))
    campaign.begin()
    chosen = faults_of(campaign.config.nodes) if faults is None else list(faults)
    world = World(campaign, chosen, iterations or {"nccl": 72, "hpl": 16, "nemo": 8, "diag": 1}, random.Random(1))
    _preflight(world)
    for _ in range(heats):
        stage = _open_stage(campaign)
        if stage is None:
            if not _repairs(world):
                break
            continue
        _heat(world, *stage)
    campaign.write_summary()
    return campaign.dir


def _open_stage(campaign: Campaign) -> tuple[str, int] | None:
    """Return the heat that is to be run next, None if there is none."""
    for stage in campaign.walk():
        if stage.gate is None:
            return stage.heat.step, stage.heat.heat
    return None


def _repairs(world: World) -> bool:
    """Let the technician come: what has a fix is repaired. Tells whether anything was."""
    done = False
    nodes = world.campaign.write_summary()["nodes"]
    for fault in world.faults:
        if fault.fix and fault.node not in world.repaired and nodes[fault.node]["status"] == "failed":
            part = {"fan": "FAN6", "link": "mlx5_3"}.get(fault.kind, "node")
            world.clock += 1800
            world.campaign.record_repair(
                {"node": fault.node, "part": part, "fix": fault.fix, "serial": None, "by": "technician", "host": "head1",
                 "time": world.clock, "fault": None}
            )  # fmt: skip
            world.repaired.add(fault.node)
            done = True
    return done


def _heat(world: World, step: str, heat: int) -> None:
    """Run and judge one heat."""
    campaign = world.campaign
    campaign.make_plan(step, heat, "invocation")
    plan = campaign.load(campaign.plan_path(step, heat), "plan")
    results: dict[tuple[str, str], dict[str, Any]] = {}
    latest = world.clock
    for name, group in plan["groups"].items():
        now = world.clock + world.chance.uniform(5, 60)
        for workload in group["workloads"]:
            result = _run(world, step, heat, workload, name, group["nodes"], now)
            if any(results[w, name]["state"] != "complete" for w in group["workloads"] if (w, name) in results):
                result |= {"state": "skipped", "reason": "the workload before it did not pass", "iterations": [], "probes": {},
                           "signals": [], "started": None, "ended": None, "hours": 0.0}  # fmt: skip
            results[workload, name] = result
            now = (result["ended"] or now) + 30
            path = campaign.result_path(step, heat, workload, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result), encoding="utf-8")
        latest = max(latest, now)
    world.clock = latest + 60
    names = [s.name for s in campaign.config.ladder.steps()]
    before = names[names.index(step) - 1] if step in names[1:] else ""
    context = Context(
        gpus_per_node=8, criteria=campaign.config.criteria, criteria_digest=campaign.config.criteria_digest,
        definitions=campaign.config.document["workload_definitions"], rerun_limit=2, earlier=world.kept.get(step, []),
        siblings=world.kept.get(before, []) if step != "resume" else [],
        gates=[campaign.load(campaign.gate_path(step, h), "gate") for h in range(heat)],
    )  # fmt: skip
    gate = judge_heat(plan, results, context)
    failed = [n for n, o in gate["outcome"].items() if o == "failed"]
    gate["drained"] = {n: f"drained: burnin {campaign.config.campaign}: failed in {step}" for n in failed}
    campaign.write_gate(gate)
    # what the next gates need of a result is its values: the readings of healthy probes would fill the memory
    world.kept.setdefault(step, []).extend({**r, "signals": []} for r in results.values())


def _run(
    world: World, step: str, heat: int, workload: str, group: str, nodes: Sequence[str], start: float
) -> dict[str, Any]:
    """Return what one run leaves, with the faults that show in it."""
    showing = [
        f for f in world.faults
        if f.node in nodes and f.node not in world.repaired and workload == f.workload
        and (step == f.step or (f.kind == "hang" and len(nodes) > 1 and step not in ("single", "x2", "x4")))
    ]  # fmt: skip
    seconds = 3600 * HOURS[workload] if step != "resume" else 1800.0
    count = world.iterations[workload] if step != "resume" else 1
    items = [_iteration(world, workload, n, start, seconds / count, len(nodes), step) for n in range(count)]
    result = simulate.result(
        step, heat, workload, group, nodes, campaign=world.campaign.config.campaign, window={"hours": HOURS[workload]}
        if step not in ("resume", "retest") else {"iterations": 1},
        iterations=items, started=start, ended=start + seconds, hours=seconds / 3600, jobs=["4711"],
        probes={}, signals=[],
    )  # fmt: skip
    for when, at in (("before", start), ("after", start + seconds)):
        of_nodes, signals = {}, []
        for number, node in enumerate(nodes):
            tools = dict.fromkeys(
                ("dmesg", "dcgmi-health", "nvidia-smi", *(f"mlxlink:mlx5_{i}" for i in range(8)), "ipmi"), "pass"
            )
            file = f"attempt0/probe-{when}/{node}.txt"
            gpus = {b: {"index": i, "serial": str(SERIAL + 8 * number + i)} for i, b in enumerate(BDF)}
            of_nodes[node] = {"tools": tools, "problems": [], "gpus": gpus, "clock": {"time": at, "up": 1e5, "boot": node},
                              "file": file, "time": at}  # fmt: skip
            signals += _readings(world, node, file, when)
        result["probes"][when] = of_nodes
        result["signals"] += signals
    if step == "resume":
        curve = [(s, 11.8 * 0.997**s) for s in range(25)]
        saves = [{"iteration": 19, "duration_s": 38.0, "line": 37, "finalized": True, "path": None}]
        result["facts"] = {"host": "head1", "first": {"cancelled_after_step": 24, "checkpoints": saves, "curve": curve,
                                                      "consumed_samples": 3000.0, "loss_first": 11.8, "loss_last": 11.0}}  # fmt: skip
    for fault in showing:
        _show(world, result, fault)
    return result


def _iteration(
    world: World, workload: str, number: int, start: float, length: float, nodes: int, step: str
) -> dict[str, Any]:
    """Return a passing iteration with a value as healthy hardware gives it."""
    noise = world.chance.gauss(1.0, 0.002)
    item = simulate.iteration(
        number, workload, 1.0, start=start + number * length, end=start + (number + 0.95) * length,
        output=f"attempt0/out-{number:05d}.log",
    )  # fmt: skip
    size = max(0, nodes.bit_length() - 1)
    if workload == "nccl":
        command = list(SPEED)[number % len(SPEED)]
        value = SPEED[command] * noise * (1.28 if nodes == 1 else 1.0 - 0.004 * size)
        return item | {
            "command": command,
            "value": round(value, 2),
            "unit": "GB/s",
            "facts": {"ranks": 8 * nodes, "max_size": 17179869184},
        }
    if workload == "hpl":
        facts = {
            "n": 270336 * nodes,
            "nb": 1024,
            "p": 2,
            "q": 4 * nodes,
            "time_s": 30.0,
            "residual": 0.0027 * noise,
            "tests": 1,
        }
        return item | {
            "value": round(430000.0 * nodes * noise * (1 - 0.012 * size), 1),
            "unit": "GFLOPS",
            "facts": facts,
        }
    if workload == "diag":
        return item | {"value": 1.0, "unit": ""}
    times = [(s, round(2.1 * noise * world.chance.gauss(1.0, 0.003), 4), 17 + s) for s in range(0, 600, 6)]
    begin = 20 if step == "resume" else 0
    curve = [(s, round(7.0 + 4.8 * 0.994**s, 3)) for s in range(begin, 600, 6)]
    saves = [
        {
            "iteration": s,
            "duration_s": round(38 * world.chance.gauss(1.0, 0.02), 2),
            "line": 40 + s,
            "finalized": True,
            "path": None,
        }
        for s in range(99, 600, 100)
    ]
    facts = {
        "loss_first": 11.07 if step == "resume" else curve[0][1], "loss_last": curve[-1][1], "consumed_samples_last": 76800.0,
        "global_step_last": 599, "resumed_from": {"step": 19, "line": 18, "path": "x"} if step == "resume" else None,
        "global_batch_size": 128, "stopped": None,
        "steps": {"count": 600, "first": begin, "last": 599, "max_steps": 600, "step_time_median_s": times[50][1]},
        "checkpoints": saves, "step_times": times, "spikes": {"unexplained": 0, "steps": 600, "line": None}, "curve": curve,
    }  # fmt: skip
    return item | {"command": "pretrain", "value": times[50][1], "unit": "s", "value_line": 92, "facts": facts}


def _readings(world: World, node: str, file: str, when: str) -> list[dict[str, Any]]:
    """Return what a probe of a healthy node reads, as many signals as a real one has."""
    base = {"host": node, "file": file, "node": node, "when": when}
    out: list[dict[str, Any]] = [
        {"kind": "ib_port_up", "line": 15 + i, "text": f"[Sat Nov 28 11:38:52 2026] mlx5_core 0000:18:00.0 mlx5_{i}: Port: 1 Link ACTIVE",
         "device": f"mlx5_{i}", "detail": {"port": 1, "time": BEGIN - 9e4, "clock": "local", "tool": "dmesg"}, **base}
        for i in range(8)
    ]  # fmt: skip
    out.append(
        {"kind": "gpu_count", "line": 51, "text": "Attached GPUs : 8", "value": 8.0, "detail": {"attached": 8}, **base}
    )
    for i, bdf in enumerate(BDF):
        heat = round(world.chance.gauss(63, 1.5))
        out.append({"kind": "gpu_temperature", "line": 176 + 100 * i, "text": f"GPU Current Temp : {heat} C", "gpu": i, "bdf": bdf,
                    "value": float(heat), "unit": "C", "detail": {"t_limit": 87.0 - heat, "t_limit_slowdown": -2.0}, **base})  # fmt: skip
        out.append({"kind": "gpu_power", "line": 185 + 100 * i, "text": "Power Draw : 691.23 W", "gpu": i, "bdf": bdf, "value": 691.23,
                    "unit": "W", "limit": 700.0, "detail": {"tool": "nvidia-smi"}, **base})  # fmt: skip
        out.append({"kind": "ecc_correctable", "line": 457, "text": "DRAM Correctable : 1", "gpu": i, "bdf": bdf, "value": 1.0,
                    "detail": {"scope": "volatile", "counter": "dram correctable", "tool": "nvidia-smi"}, **base})  # fmt: skip
    out.append({"kind": "inlet_temperature", "line": 1639, "text": "TEMP_INLET | 24 degrees C", "device": "TEMP_INLET",
                "value": float(round(world.chance.gauss(24, 1))), "unit": "C", "detail": {"status": "ok"}, **base})  # fmt: skip
    return out


LINES = {
    "fan": (1668, "FAN6_F           | 3Ah | cr  | 29.6 | 0 RPM"),
    "hot": (906, "HW Thermal Slowdown               : Active"),
    "link": (1469, "Effective Physical BER             : 3E-10"),
    "down": (1472, "Link Down Counter                  : 2"),
    "xid": (
        35,
        "[Mon Nov 30 13:47:05 2026] NVRM: Xid (PCI:0000:c3:00): 79, pid=48122, name=python, GPU has fallen off the bus.",
    ),
}


def _show(world: World, result: dict[str, Any], fault: Fault) -> None:
    """Let a fault show in a result, and in the file that the gate will name."""
    node, half = fault.node, result["started"] + 0.6 * (result["ended"] - result["started"])
    file = f"attempt0/probe-after/{node}.txt"
    base = {"host": node, "file": file, "node": node, "when": "after"}
    signals: list[dict[str, Any]] = []
    if fault.kind == "fan":
        signals = [
            {"kind": "fan_failed", "line": LINES["fan"][0], "text": LINES["fan"][1], "device": "FAN6_F", "value": 0.0, "unit": "RPM"},
            {"kind": "throttle", "line": LINES["hot"][0], "text": LINES["hot"][1], "gpu": 5, "bdf": BDF[5],
             "detail": {"reason": "hw thermal slowdown"}},
            {"kind": "gpu_temperature", "line": LINES["hot"][0] + 58, "text": "GPU Current Temp : 88 C", "gpu": 5, "bdf": BDF[5],
             "value": 88.0, "unit": "C", "detail": {"t_limit": -3.0, "t_limit_slowdown": -2.0}},
        ]  # fmt: skip
    elif fault.kind == "link":
        signals = [
            {"kind": "link_effective_ber", "line": LINES["link"][0], "text": LINES["link"][1], "device": "mlx5_3", "value": 3e-10,
             "limit": 1e-12},
            {"kind": "link_down_count", "line": LINES["down"][0], "text": LINES["down"][1], "device": "mlx5_3", "value": 2.0},
        ]  # fmt: skip
        for item in result["iterations"][len(result["iterations"]) // 2 :]:
            item["value"] = round(item["value"] * world.chance.uniform(0.8, 0.88), 2)
    elif fault.kind == "xid":
        at, text = LINES["xid"]
        detail = {"time": half, "clock": "local", "tool": "dmesg", "pid": 48122, "process": "python"}
        signals = [{"kind": "xid", "line": at, "text": text, "value": 79.0, "bdf": BDF[5], "gpu": 5, "detail": detail}]
        last = result["iterations"][-1] | {"verdict": "fail", "exit": 1, "problems": ["the text is cut"]}
        result |= {"state": "stopped", "reason": "xid", "iterations": [*result["iterations"][:-1], last], "ended": half}
    elif fault.kind == "hang":
        result |= {"state": "stopped", "reason": "hang: no output for 3600 s", "ended": half,
                   "iterations": result["iterations"][: max(1, len(result["iterations"]) // 2)]}  # fmt: skip
    elif fault.kind == "slow":
        for item in result["iterations"]:
            item["value"] = round(item["value"] * 0.91, 1)
    elif fault.kind == "crash":
        death = {"state": "NODE_FAIL", "lost": [node], "text": f"{node} does not answer", "job_id": "4711"}
        result |= {"state": "casualty", "reason": death["text"], "casualty": death, "ended": half,
                   "iterations": result["iterations"][: len(result["iterations"]) // 2]}  # fmt: skip
        result["probes"].pop("after")
        result["signals"] = [s for s in result["signals"] if s["when"] == "before"]
    run = world.campaign.result_path(result["step"], result["heat"], result["workload"], result["group"]).parent
    if signals:
        result["signals"] += [{**s, **base} for s in signals]
        text = {s["line"]: s["text"] for s in signals}
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).write_text("".join(f"{text.get(n, '')}\n" for n in range(1, max(text) + 1)), encoding="utf-8")
    for item in result["iterations"]:
        (run / item["output"]).parent.mkdir(parents=True, exist_ok=True)
        (run / item["output"]).write_text("".join(f"line {n}\n" for n in range(1, 100)), encoding="utf-8")


def _preflight(world: World) -> None:
    """Write what the look before the first run would have found: one node has another driver."""
    stack = {"driver": "550.54.15", "cuda": "12.4", "gpu product": "NVIDIA H100 80GB HBM3", "kernel": "5.15.0-1042-nvidia",
             **{f"mlx5_{i} firmware": "28.39.1002" for i in range(8)}}  # fmt: skip
    nodes = {}
    for number, name in enumerate(world.campaign.config.nodes):
        own = {**stack, "driver": "550.90.07"} if number == 2 else stack
        nodes[name] = {
            "file": f"preflight/look/{name}.txt", "stack": own, "lines": dict.fromkeys(own, 6), "gpus": 8,
            "serials": {b: str(SERIAL + 8 * number + i) for i, b in enumerate(BDF)},
            "hcas": {f"mlx5_{i}": "Active/LinkUp" for i in range(8)}, "clock_offset": 0.0, "problems": [],
        }  # fmt: skip
    odd = world.campaign.config.nodes[2] if len(nodes) > 2 else None
    found = [{"node": odd, "part": "stack", "reason": "driver is 550.90.07, on the other nodes 550.54.15",
              "evidence": [f"preflight/look/{odd}.txt:6"]}] if odd else []  # fmt: skip
    folder = world.campaign.dir / "preflight"
    (folder / "look").mkdir(parents=True, exist_ok=True)
    if odd:
        (folder / "look" / f"{odd}.txt").write_text("\n" * 5 + "Driver Version : 550.90.07\n", encoding="utf-8")
    document = {
        "campaign": world.campaign.config.campaign, "time": BEGIN - 60, "storage": [], "files": [], "containers": [],
        "fabric": {"version": "2.13.0", "nodes": 8 * len(nodes) + 40, "switches": 40, "cas": 8 * len(nodes), "counters_cleared": True},
        "stack": stack, "nodes": nodes, "findings": found, "dry_runs": {},
    }  # fmt: skip
    storage.write_json(folder / "preflight.json", document, "preflight")


def processor_time() -> float:
    """Return the processor time (s) of this process and those that it waited for."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    """Build campaigns, make their reports, print time and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", default="256,1024")
    parser.add_argument("--keep", type=Path, help="build below this folder and keep it")
    arguments = parser.parse_args()
    for count in (int(n) for n in arguments.nodes.split(",")):
        results = (arguments.keep or Path(tempfile.mkdtemp(prefix="bench-report-"))) / str(count)
        try:
            begin = time.monotonic()
            folder = build(results, count)
            built = time.monotonic() - begin
            size = sum(p.stat().st_size for p in folder.rglob("result.json"))
            begin, busy = time.monotonic(), processor_time()
            facts, paths = write(folder)
            spent, busy = time.monotonic() - begin, processor_time() - busy
            memory = (
                max(resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
            )
            sizes = ", ".join(f"{p.name} {p.stat().st_size / 1e6:.2f} MB" for p in paths)
            print(
                f"{count} nodes: {len(facts.runs)} runs, {size / 1e6:.0f} MB of results (built in {built:.0f} s); report in "
                f"{spent:.1f} s ({busy:.1f} s of processor time); {sizes}; {memory:.0f} MiB at most",
                flush=True,
            )
        finally:
            if not arguments.keep:
                shutil.rmtree(results.parent)


if __name__ == "__main__":
    sys.exit(main())
