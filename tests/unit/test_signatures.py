# SPDX-License-Identifier: Apache-2.0
"""From log lines to part and next action: every row of the table that convicts, and what must convict nobody.

The lines go through their own reader and the gate, so that a word which a reader no longer produces is noticed here.
"""

from __future__ import annotations

from typing import Any

import pytest
from burnin import parsers, xid
from burnin.judging.diagnosis import must_stop
from burnin.judging.heat import judge_heat
from burnin.judging.signatures import TABLE, XID_KINDS, signature_of, stops_run
from burnin.ladder import Group, Heat
from burnin.parsers.kinds import KINDS

from tests.world import context, iteration, plan_of, result

PAIR = ("dgx01", "dgx02")
OUT, PROBE = "attempt0/out-00000.log", "attempt0/probe-after/{}.txt"


def output(tool: str, text: str) -> list[dict[str, Any]]:
    """Return the signals of a workload's output."""
    return [{**s.to_dict(), "file": OUT} for s in parsers.read_lines(tool, text.splitlines()).signals]


def probed(tool: str, text: str, node: str, when: str = "after", **options: Any) -> list[dict[str, Any]]:
    """Return the signals that a node tool's text shows in a probe."""
    reading = parsers.read_lines(tool, text.splitlines(), host=node, **options)
    file = PROBE.format(node).replace("after", when)
    return [
        {**s.to_dict(), "file": file, "node": node, "when": when, "detail": {**s.detail, "tool": tool}}
        for s in reading.signals
    ]


def gate_of(groups: list[tuple[str, ...]], signals: dict[str, list[dict[str, Any]]], **changes: Any) -> dict[str, Any]:
    """Judge a heat of nccl in which the group of each node in `signals` showed them."""
    step = changes.pop("step", "single" if len(groups[0]) == 1 else f"x{len(groups[0])}")
    heat = Heat(step, 0, tuple(Group(g, g, ("nccl",)) for g in groups))
    plan = plan_of(heat)
    results = {}
    for name, group in plan["groups"].items():
        mine = [s for n in group["nodes"] for s in signals.get(n, [])]
        more = {"signals": mine, **(changes if mine else {})}
        results["nccl", name] = result(step, 0, "nccl", name, group["nodes"], **more)
    return judge_heat(plan, results, context())


def test_every_word_of_the_readers_has_a_row() -> None:
    assert {row.kind for row in TABLE} | XID_KINDS == set(KINDS)
    for row in TABLE:
        assert row.action.format(part="gpu5") and row.fault


MLX = """\
Operational Info
----------------
State                              : {state}
Physical state                     : {physical}
Speed                              : {speed}
Width                              : 4x
FEC                                : Interleaved_Standard_RS_FEC_PLR - (544,514)
Supported Info
--------------
Enabled Link Speed (Ext.)          : 0x00000080 (NDR)
Supported Cable Speed (Ext.)       : 0x000000c0 (NDR,HDR)
Troubleshooting Info
--------------------
Status Opcode                      : {opcode}
Recommendation                     : {advice}
Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 1440.2
Effective Physical Errors          : 0
Effective Physical BER             : {ber}
Raw Physical BER                   : 2E-9
Link Down Counter                  : {down}
Link Error Recovery Counter        : {recovery}
"""


def mlxlink(**fields: Any) -> str:
    usual = {"state": "Active", "physical": "LinkUp", "speed": "IB-NDR", "opcode": 0, "advice": "No issue was observed"}
    return MLX.format(**{**usual, "ber": "15E-255", "down": 0, "recovery": 0, **fields})


FAN = "FAN6_F           | 3Ah | cr  | 29.6 | 0 RPM\n"
SMI = """\
==============NVSMI LOG==============
Timestamp                                 : Tue Nov 10 11:42:08 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4
Attached GPUs                             : 1
GPU 00000000:C3:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : {rows}
        Pending                           : No
        Remapping Failure Occurred        : {remap}
    Temperature
        GPU Current Temp                  : 88 C
        GPU T.Limit Temp                  : -3 C
        GPU Slowdown T.Limit Temp         : -2 C
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
        SW Thermal Slowdown               : Not Active
"""

#: tool, text, part, fault, words of the next action, confidence
ON_A_NODE = [
    ("ipmi", FAN, "FAN6", "fan_failed", "replace FAN6; check the airflow", "certain"),
    (
        "ipmi",
        "PSU2_STATUS      | C9h | cr  | 10.2 | Power Supply AC lost\n",
        "PSU2",
        "psu_failed",
        "replace PSU2 or restore",
        "certain",
    ),
    ("mlxlink", mlxlink(ber="3E-10"), "mlx5_3", "link_degrading", "cable and transceiver of mlx5_3", "certain"),
    ("mlxlink", mlxlink(down=2), "mlx5_3", "link_flap", "reseat or replace cable", "certain"),
    ("mlxlink", mlxlink(state="Down", physical="Polling"), "mlx5_3", "link_flap", "switch port of mlx5_3", "certain"),
    ("mlxlink", mlxlink(speed="IB-HDR"), "mlx5_3", "rail_slow", "trained below its rate", "certain"),
    ("mlxlink", mlxlink(recovery=57), "mlx5_3", "link_degrading", "both ends", "likely"),
    (
        "nvidia-smi",
        SMI.format(slow="Active", remap="No", rows=0),
        "gpu0",
        "gpu_slow",
        "check fans and airflow first",
        "certain",
    ),
    (
        "nvidia-smi",
        SMI.format(slow="Not Active", remap="Yes", rows=4),
        "gpu0",
        "row_remap_failed",
        "replace gpu0",
        "certain",
    ),
    (
        "dmesg",
        "[  100.000000] mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN\n",
        "mlx5_3",
        "link_flap",
        "mlxlink -c on both ends",
        "certain",
    ),
    (
        "dmesg",
        "[  100.000000] NVRM: GPU 0000:c3:00.0: GPU has fallen off the bus.\n",
        "gpu@0000:c3:00",
        "gpu_off_bus",
        "reseat or replace",
        "certain",
    ),
    (
        "dmesg",
        "[  100.000000] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0\n",
        None,
        "node_crash",
        "memory module",
        "certain",
    ),
    (
        "dmesg",
        "[  100.000000] Kernel panic - not syncing: Fatal machine check\n",
        "node",
        "node_crash",
        "console and BMC",
        "certain",
    ),
    (
        "dcgmi-health",
        "+---------------------------+----------------------------------------------------------+\n"
        "| Health Monitor Report                                                                |\n"
        "+===========================+==========================================================+\n"
        "| Overall Health            | Failure                                                  |\n"
        "| GPU                       |                                                          |\n"
        "| -> 3                      | Failure                                                  |\n"
        "|    -> Errors              |                                                          |\n"
        "|       -> Memory system    | Failure                                                  |\n"
        "|                           | A DBE was found in GPU 3.                                |\n"
        "+---------------------------+----------------------------------------------------------+\n",
        "gpu3",
        "gpu_slow",
        "dcgmi diag -r 3",
        "likely",
    ),
]


@pytest.mark.parametrize(("tool", "text", "part", "fault", "action", "confidence"), ON_A_NODE)
def test_what_a_node_tool_shows_names_node_part_and_next_action(
    tool: str, text: str, part: str | None, fault: str, action: str, confidence: str
) -> None:
    options = {"device": "mlx5_3"} if tool == "mlxlink" else {}
    gate = gate_of([PAIR], {"dgx02": probed(tool, text, "dgx02", **options)})
    assert gate["outcome"] == {"dgx01": "owes", "dgx02": "failed"}
    found = [f for f in gate["findings"] if f["fault"] == fault]
    assert found, [(f["fault"], f["signal"]) for f in gate["findings"]]
    assert part is None or found[0]["part"] == part
    assert action in found[0]["next_action"] and found[0]["confidence"] == confidence
    assert found[0]["evidence"][0].startswith("x2/heat0/nccl/") and "probe-after/dgx02.txt:" in found[0]["evidence"][0]
    assert found[0]["unit"] is not None and found[0]["limit"] is not None and found[0]["limit_date"]


XIDS = [
    (79, "GPU has fallen off the bus.", "gpu_off_bus", "reseat or replace"),
    (48, "DBE (double bit error) ECC Error", "hbm_ecc_uncorrectable", ""),
    (64, "Failed to persist row remap table", "row_remap_failed", ""),
    (74, "NVLink: fatal error detected on link 5(0x10000, 0x0)", "nvlink_error", ""),
    (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "hbm_ecc_uncorrectable", ""),
]


@pytest.mark.parametrize(("code", "words", "fault", "action"), XIDS)
def test_a_fatal_xid_is_its_gpus(code: int, words: str, fault: str, action: str) -> None:
    line = f"[  100.000000] NVRM: Xid (PCI:0000:c3:00): {code}, pid=48122, name=python, {words}"
    gate = gate_of([PAIR], {"dgx02": probed("dmesg", line, "dgx02")})
    assert gate["outcome"]["dgx02"] == "failed" and gate["outcome"]["dgx01"] == "owes"
    found = next(f for f in gate["findings"] if f["signal"] == f"xid {code}")
    assert found["fault"] == fault and found["part"] == "gpu@0000:c3:00" and action in found["next_action"]
    assert found["quote"] == line and "catalog" in found["limit_origin"].lower() and found["limit_date"]
    assert stops_run({"kind": "xid", "value": float(code)})


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63])
def test_an_applications_xid_convicts_nobody(code: int) -> None:
    line = f"[  100.000000] NVRM: Xid (PCI:0000:c3:00): {code}, pid=1, name=python, Graphics Exception"
    gate = gate_of([PAIR], {"dgx02": probed("dmesg", line, "dgx02")})
    assert set(gate["outcome"].values()) == {"passed"}


DRIVER = "[rank0]: RuntimeError: CUDA driver version is insufficient for CUDA runtime version"
OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.26 GiB. GPU 0 has a total capacity of 79.10 GiB"
FULL = "[rank0]: OSError: [Errno 28] No space left on device: '/ckpt/weights/__0_0.distcp'"

#: tool, output, scope in a group of two, fault, words of the next action
IN_THE_OUTPUT = [
    ("nccl", "dgx02:4821:4839 [3] NCCL WARN NET/IB : Got async event : port error", "node", "link_flap", "split nccl-tests by rail"),
    ("nemo", "[rank13]: RuntimeError: CUDA error: unspecified launch failure", "node", "gpu_off_bus", "look for an Xid of gpu5"),
    ("nemo", "[rank13]: RuntimeError: CUDA error: uncorrectable ECC error encountered", "node", "hbm_ecc_uncorrectable", "gpu5"),
    (
        "nemo",
        "GPU relative performance:\n Worst performing 2/16 ranks:\n  Rank=13 Node=dgx02 Score=0.62\n  Rank=1 Node=dgx01 Score=0.94\n",
        "node",
        "straggler",
        "clocks, throttle reasons and power of gpu5",
    ),
    (
        "nemo",
        "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
        "group",
        "hang",
        "NCCL_DEBUG=INFO; nccl-tests on subsets of the nodes and per rail; link counters; ibdiagnet",
    ),
    (
        "nemo",
        "Training epoch 0, iteration 5/59 | lr: 1e-05 | global_batch_size: 128 | global_step: 5 | reduced_train_loss: nan | "
        "train_step_timing in s: 2.1 | consumed_samples: 768",
        "group",
        "nan_loss",
        "rerun without the suspect node; dcgmi diag -r 3 or -r 4",
    ),
    (
        "hpl",
        "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        3.2e+03 ...... FAILED",
        "group",
        "silent_data_corruption",
        "never tuning",
    ),
    ("nemo", DRIVER, "config", "driver_mismatch", "pick a container that fits the driver"),
    ("nccl", "dgx01:1:1 [0] NCCL INFO NET/IB : No device found.", "config", "nccl_on_sockets", "nccl-tests in the same container"),
    ("nccl", "dgx01:1:1 [0] NCCL INFO Using network Socket", "config", "nccl_on_sockets", "never burn in on sockets"),
    ("nemo", OOM, "config", "oom_all_nodes", "lower MBS or sequence length"),
    ("nemo", FULL, "config", "checkpoint_fails", "space, quota and rights"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "text", "scope", "fault", "action"), IN_THE_OUTPUT)
def test_what_the_output_says_in_a_group(tool: str, text: str, scope: str, fault: str, action: str) -> None:
    gate = gate_of([PAIR], {"dgx01": output(tool, text)}, state="stopped", reason="it")
    if scope == "node":
        assert gate["outcome"] == {"dgx01": "owes", "dgx02": "failed"}
        found = gate["findings"][0]
        assert found["fault"] == fault and action in found["next_action"]
    elif scope == "group":
        assert set(gate["outcome"].values()) == {"suspect"} and not gate["stopped"]
        alone = gate_of(
            [("dgx01",), ("dgx02",), ("dgx03",)], {"dgx01": output(tool, text)}, state="stopped", reason="it"
        )
        assert alone["outcome"] == {"dgx01": "failed", "dgx02": "passed", "dgx03": "passed"}
        assert alone["findings"][0]["fault"] == fault and action in alone["findings"][0]["next_action"]
    else:
        assert set(gate["outcome"].values()) == {"owes"}
        assert gate["stopped"]["kind"] == fault and action in gate["stopped"]["cure"]


def test_rank_37_of_eight_nodes_is_gpu_5_of_the_fifth() -> None:
    nodes = tuple(f"dgx{i:02d}" for i in range(1, 9))
    text = "[rank37]: RuntimeError: CUDA error: unspecified launch failure\n" + "\n".join(
        f"[rank{r}]:[E ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
        for r in range(64)
        if r != 37
    )
    gate = gate_of([nodes], {"dgx01": output("nemo", text)}, state="stopped", reason="cuda_error")
    (found,) = gate["findings"]
    assert (found["node"], found["part"], found["confidence"]) == ("dgx05", "gpu5", "likely")
    assert found["contradicted_by"] == ["the kernel log of dgx05 shows no Xid in this run"]
    assert [n for n, o in gate["outcome"].items() if o == "owes"] == [n for n in nodes if n != "dgx05"]


def test_an_xid_makes_the_ranks_error_certain_and_another_nodes_contradicts_it() -> None:
    error = output("nemo", "[rank13]: RuntimeError: CUDA error: unspecified launch failure")
    line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus."
    both = gate_of([PAIR], {"dgx02": [*error, *probed("dmesg", line, "dgx02")]}, state="stopped", reason="x")
    assert both["outcome"] == {"dgx01": "owes", "dgx02": "failed"}
    assert {f["confidence"] for f in both["findings"]} == {"certain"}
    apart = gate_of([PAIR], {"dgx02": error, "dgx01": probed("dmesg", line, "dgx01")}, state="stopped", reason="x")
    assert apart["outcome"] == {"dgx01": "failed", "dgx02": "owes"}
    (found,) = apart["findings"]
    assert found["node"] == "dgx01" and "hardware evidence is on dgx01" in found["contradicted_by"][0]
    assert any("dgx02 is not convicted and runs again" in n for n in apart["notes"])


def test_evidence_on_another_gpu_of_the_node_and_an_unrelated_fault_elsewhere() -> None:
    error = output("nemo", "[rank11]: RuntimeError: CUDA error: unspecified launch failure")
    line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus."
    xid_of_5 = [{**s, "gpu": 5} for s in probed("dmesg", line, "dgx02")]
    gate = gate_of([PAIR], {"dgx02": [*error, *xid_of_5]}, state="stopped", reason="x")
    found = next(f for f in gate["findings"] if f["signal"] == "cuda_error")
    assert found["part"] == "gpu3" and found["confidence"] == "likely"
    assert "the hardware evidence names gpu5" in found["contradicted_by"][0]
    fan = gate_of([PAIR], {"dgx02": error, "dgx01": probed("ipmi", FAN, "dgx01")}, state="stopped", reason="x")
    assert fan["outcome"] == {"dgx01": "failed", "dgx02": "failed"}, "a dead fan beside it explains no CUDA error"


def test_an_applications_xid_takes_the_conviction_from_the_ranks_error() -> None:
    error = output("nemo", "[rank13]: RuntimeError: CUDA error: an illegal memory access was encountered")
    line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 31, pid=1, name=python, MMU Fault"
    gate = gate_of([PAIR], {"dgx02": [*error, *probed("dmesg", line, "dgx02")]}, state="stopped", reason="x")
    assert "failed" not in gate["outcome"].values()


def test_what_was_there_before_the_run_never_counts() -> None:
    old = mlxlink(down=2, recovery=5)
    before = probed("mlxlink", old, "dgx02", "before", device="mlx5_3")
    same = probed("mlxlink", old, "dgx02", device="mlx5_3")
    assert set(gate_of([PAIR], {"dgx02": [*before, *same]})["outcome"].values()) == {"passed"}
    grown = probed("mlxlink", mlxlink(down=3, recovery=5), "dgx02", device="mlx5_3")
    gate = gate_of([PAIR], {"dgx02": [*before, *grown]})
    assert gate["outcome"]["dgx02"] == "failed"
    (found,) = gate["findings"]
    assert found["value"] == 1.0 and "+1 in this run" in found["reason"]


def test_what_the_probe_before_could_not_read_proves_nothing_new() -> None:
    line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus."
    lost = "[  100.000000] mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN"
    heat = Heat("single", 0, (Group(("dgx01",), ("dgx01",), ("nccl",)),))
    plan = plan_of(heat)
    found = result("single", 0, "nccl", "dgx01", ["dgx01"])
    found["signals"] = probed("dmesg", f"{line}\n{lost}", "dgx01")
    found["probes"]["before"]["dgx01"] = {**found["probes"]["before"]["dgx01"], "tools": {"dmesg": "unknown"}}
    gate = judge_heat(plan, {("nccl", "dgx01"): found}, context())
    assert gate["outcome"] == {"dgx01": "owes"} and gate["owes"]["dgx01"]["cause"] == "inconclusive"
    assert not gate["findings"] and any("Not counted" in n for n in gate["notes"])
    # the node's own clock can prove that the event is of this run
    clock = {"time": 1015.0, "up": 105.0}
    found["probes"]["after"]["dgx01"] = {**found["probes"]["after"]["dgx01"], "clock": clock}
    gate = judge_heat(plan, {("nccl", "dgx01"): found}, context())
    assert gate["outcome"] == {"dgx01": "failed"} and gate["findings"][0]["signal"] == "xid 79"


def test_a_kernel_line_is_old_even_if_its_stamp_moved_a_second() -> None:
    text = "[Tue Nov 10 13:47:{:02d} 2026] mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN"
    before = probed("dmesg", text.format(5), "dgx02", "before")
    assert set(
        gate_of([PAIR], {"dgx02": [*before, *probed("dmesg", text.format(6), "dgx02")]})["outcome"].values()
    ) == {"passed"}
    later = gate_of([PAIR], {"dgx02": [*before, *probed("dmesg", text.format(50), "dgx02")]})
    assert later["outcome"]["dgx02"] == "failed"


def test_several_faults_at_once_each_get_an_entry() -> None:
    signals = {
        "dgx01": probed("ipmi", FAN, "dgx01"),
        "dgx02": probed("mlxlink", mlxlink(ber="3E-10"), "dgx02", device="mlx5_3"),
    }
    gate = gate_of([PAIR], signals)
    assert gate["outcome"] == {"dgx01": "failed", "dgx02": "failed"}
    assert {(f["node"], f["part"]) for f in gate["findings"]} == {("dgx01", "FAN6"), ("dgx02", "mlx5_3")}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nan_on_most_nodes_is_the_recipe_and_drops_nobody(count: int) -> None:
    nan = output(
        "nemo",
        "Training epoch 0, iteration 5/59 | lr: 1e-05 | global_batch_size: 128 | global_step: 5 | reduced_train_loss: nan | "
        "train_step_timing in s: 2.1 | consumed_samples: 768",
    )
    groups = [(f"dgx{i:02d}",) for i in range(count)]
    gate = gate_of(groups, {g[0]: nan for g in groups}, state="stopped", reason="loss_nan")
    assert "failed" not in gate["outcome"].values()
    assert gate["stopped"]["kind"] == "nan_loss" and "learning rate" in gate["stopped"]["cure"]


def test_wrong_sums_everywhere_are_hardware_all_the_same() -> None:
    wrong = [{"kind": "wrong_elements", "line": 1, "text": "#wrong 4", "value": 4.0, "file": OUT}]
    groups = [("dgx01",), ("dgx02",)]
    gate = gate_of(groups, {g[0]: wrong for g in groups}, state="stopped", reason="wrong")
    assert set(gate["outcome"].values()) == {"failed"}
    assert gate["findings"][0]["unit"] == "wrong elements" and gate["findings"][0]["value"] == 4.0


def test_a_config_fault_of_a_minority_is_theirs() -> None:
    text = "[rank0]: RuntimeError: CUDA driver version is insufficient for CUDA runtime version"
    groups = [(f"dgx{i:02d}",) for i in range(4)]
    gate = gate_of(groups, {"dgx02": output("nemo", text)}, state="stopped", reason="driver")
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["dgx02"] and not gate["stopped"]
    assert gate["findings"][0]["part"] == "stack" and "others'" in gate["findings"][0]["next_action"]


def test_training_that_hangs_before_step_one_on_most_groups_is_the_network_setup() -> None:
    stuck = {
        "state": "stopped",
        "reason": "hang: no output for 600 s",
        "iterations": [
            iteration(0, "nccl", verdict="unknown", exit=None, ended="hang", facts={"steps": {"count": 0}}, value=None)
        ],
    }
    groups = [("dgx01", "dgx02"), ("dgx03", "dgx04"), ("dgx05", "dgx06")]
    heat = Heat("x2", 0, tuple(Group(g, g, ("nccl",)) for g in groups))
    plan = plan_of(heat)
    results = {("nccl", n): result("x2", 0, "nccl", n, g["nodes"], **stuck) for n, g in plan["groups"].items()}
    gate = judge_heat(plan, results, context())
    assert set(gate["outcome"].values()) == {"owes"}
    assert "NCCL_IB_HCA" in gate["stopped"]["cure"] and "step 1" in gate["findings"][0]["limit_origin"]


def test_symptoms_convict_nobody() -> None:
    text = "srun: error: dgx01: tasks 0-7: Exited with exit code 1\nsrun: error: dgx02: tasks 8-15: Exited with exit code 1"
    for seen in output("nemo", text):
        row = signature_of(seen)
        assert row is not None and row.scope == "note"


def test_the_kernel_log_reader_and_the_table_agree_on_what_is_nobodys_verdict() -> None:
    """The reader's short list must be what the table says, or the two would be two truths."""
    from burnin.parsers.dmesg import NO_VERDICT_XIDS

    table = xid.load_table()
    fatal = {code for code, entry in table.codes.items() if entry.severity == "fatal" and not entry.by_word}
    nobodys = {code for code, entry in table.codes.items() if entry.severity in ("app", "info")}
    assert nobodys <= NO_VERDICT_XIDS and not fatal & NO_VERDICT_XIDS


def test_only_what_lasts_or_is_new_ends_a_run() -> None:
    """A probe in the middle of a run lists old events and old counts, too."""
    xid_line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus."
    old = [
        *probed("dmesg", xid_line, "dgx01", "before"),
        *probed("mlxlink", mlxlink(down=2), "dgx01", "before", device="mlx5_3"),
    ]
    run = result("single", 0, "nccl", "dgx01", ["dgx01"], signals=old)
    assert must_stop(run, context()) == ""
    again = [{**s, "when": "during-1"} for s in old]
    assert must_stop({**run, "signals": [*old, *again]}, context()) == ""
    new = probed("dmesg", f"{xid_line}\n{xid_line.replace('100.', '900.')}", "dgx01", "during-1")
    assert "Xid 79" in must_stop({**run, "signals": [*old, *new]}, context())
    grown = probed("mlxlink", mlxlink(down=3), "dgx01", "during-1", device="mlx5_3")
    assert "link_down_count on dgx01" in must_stop({**run, "signals": [*old, *grown]}, context())
    dead = probed("ipmi", FAN, "dgx01", "before")
    assert "fan_failed on dgx01" in must_stop({**run, "signals": dead}, context()), "a dead fan forbids the run"
    fine = probed("mlxlink", mlxlink(ber="5E-12"), "dgx01", "before", device="mlx5_3")
    loose = context(criteria={**context().criteria, "fabric_ber": 1e-11})
    assert must_stop({**run, "signals": fine}, loose) == "" and must_stop({**run, "signals": fine}, context())


def test_a_gpu_that_the_listing_lacks_is_its_nodes_unless_most_nodes_lack_it() -> None:
    few = SMI.format(slow="Not Active", remap="No", rows=0)
    groups = [(f"dgx{i:02d}",) for i in range(4)]
    gate = gate_of(groups, {"dgx02": probed("nvidia-smi", few, "dgx02", "before")})
    assert [n for n, o in gate["outcome"].items() if o == "failed"] == ["dgx02"] and not gate["stopped"]
    found = next(f for f in gate["findings"] if f["fault"] == "missing_gpu")
    assert found["signal"] == "gpu_count" and found["value"] == 1.0 and "find the GPU" in found["next_action"]
    gate = gate_of(groups, {g[0]: probed("nvidia-smi", few, g[0], "before") for g in groups})
    assert "failed" not in gate["outcome"].values()
    assert gate["stopped"]["kind"] == "missing_gpu" and "gpus_per_node" in gate["stopped"]["cure"]
