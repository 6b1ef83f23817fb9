# SPDX-License-Identifier: Apache-2.0
"""Every row of the table that convicts somebody, from the tool's own lines to the part and the next action."""

from __future__ import annotations

import re
from typing import Any

import pytest
from burnin import parsers
from burnin.judging.attribution import counting, gpu_places
from burnin.judging.diagnosis import STATE_KINDS
from burnin.judging.signatures import TABLE, Signature, signature_of
from burnin.runs import stack
from burnin.runs.results import _rebooted

from tests.unit.parser_samples import DATA
from tests.unit.test_signatures import FAN, IN_THE_OUTPUT, ON_A_NODE, OUT, probed
from tests.world import result


def sample(tool: str, name: str, *changes: tuple[str, str]) -> str:
    """Return a sample, with some of its text replaced."""
    text = (DATA / tool / name).read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


PORT_EVENT = (
    "[  100.000000] mlx5_core 0000:bc:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, "
)
HEALTHY = sample("nvidia-smi", "q-550-h100-healthy.txt")
AER = "[  100.000000] nvidia 0000:c3:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)"
WEAK = "m-ib-ndr-optic-weak-lane.txt"
LOSS = (
    "Training epoch 0, iteration {0}/59 | lr: 1e-05 | global_batch_size: 128 | global_step: {0} | reduced_train_loss: {1} | "
    "train_step_timing in s: 2.1 | consumed_samples: {0}"
)

#: tool, text, option `when` or `device`, fault, part, words of the next action
ON_THE_NODE: list[tuple[str, str, dict[str, Any], str, str, str]] = [
    ("nvidia-smi", sample("nvidia-smi", "lost-handle-535.txt"), {"when": "before"}, "missing_gpu", "gpu5", "does not show"),
    ("nvidia-smi", sample("nvidia-smi", "q-550-h100-remap-failed.txt"), {}, "hbm_ecc_uncorrectable", "gpu3", "dcgmi diag -r 3"),
    ("nvidia-smi", sample("nvidia-smi", "q-550-h100-healthy.txt", ("State                             : Completed",
      "State                             : In Progress")), {}, "nvlink_error", "gpu0", "NVLinks of gpu0"),
    ("nvidia-smi", sample("nvidia-smi", "q-550-h100-requires-reset.txt"), {}, "gpu_off_bus", "gpu5", "reset gpu5"),
    ("dmesg", "[  100.0000] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", {},
     "nvlink_error", "nvswitch", "NVSwitch or its board"),
    ("dmesg", AER, {}, "gpu_off_bus", "gpu5", "riser and slot of gpu5"),
    ("dmesg", "[  100.000000] {1}[Hardware Error]: event severity: fatal\n"
     "[  100.000001] {1}[Hardware Error]:   section_type: general processor error", {}, "node_crash", "node", "machine check"),
    ("dmesg", PORT_EVENT + "Cable error, High Temperature", {}, "transceiver_hot", "hca@0000:bc:00", "replace the transceiver"),
    ("dmesg", PORT_EVENT + "Cable error, Bus stuck (I2C or data shorted)", {}, "link_flap", "hca@0000:bc:00", "slot power"),
    ("mlxlink", sample("mlxlink", WEAK), {"device": "mlx5_3"}, "link_degrading", "mlx5_3", "clean the connector"),
    ("mlxlink", sample("mlxlink", "m-ib-ndr-optic-dark-lane.txt"), {"device": "mlx5_3"}, "transceiver_hot", "mlx5_3", "airflow"),
    ("mlxlink", sample("mlxlink", WEAK, ("0.8,0.9,0.8,0.8 [-8.2..5.0]", "0.8,-9.9,0.8,0.8 [-8.2..5.0]")),
     {"device": "mlx5_3"}, "link_degrading", "mlx5_3", "its laser is weak"),
    ("mlxlink", sample("mlxlink", "c-ib-opcode-high-ber.txt"), {"device": "mlx5_3"}, "link_degrading", "mlx5_3",
     "mlxlink's own recommendation for mlx5_3"),
    ("ipmi", "TEMP_INLET       | 10h | ucr | 64.1 | 47 degrees C", {}, "inlet_hot", "TEMP_INLET", "cold aisle"),
    ("ipmi", "TEMP_CPU1        | 11h | ucr |  3.1 | 99 degrees C", {}, "inlet_hot", "TEMP_CPU1", "check TEMP_CPU1"),
    ("ipmi", "P12V             | 30h | ucr |  7.1 | 14.10 Volts", {}, "node_crash", "P12V", "BMC event log; check P12V"),
    ("dcgmi-diag", sample("dcgmi-diag", "json-2.4-fail.json"), {}, "gpu_slow", "gpu3", "replace gpu3"),
    ("nvidia-smi", sample("nvidia-smi", "q-550-h100-single.txt"), {},
     "missing_gpu", "gpu?", "find the GPU that does not show"),
]  # fmt: skip

#: tool, text of a run's output, fault, part, words of the next action
IN_A_RUN = [
    ("nemo", "[rank13]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution", "nvlink_error",
     "gpu5", "other ends"),
    ("nemo", sample("nemo", "megatron-rerun-persistent.log"), "silent_data_corruption", "gpu3", "replace gpu3"),
    ("slurm-step", "srun: error: Node failure on dgx02", "node_crash", "node", "console and BMC"),
    ("slurm-step", sample("slurm-step", "22.05-oom-kill.log"), "oom_one_node", "node", "left-over process"),
    ("nccl", sample("nccl", "2.13-allreduce-wrong.log"), "silent_data_corruption", "node", "never tuning"),
    ("nemo", "\n".join(LOSS.format(i, 3.0 if i < 20 else 30.0) for i in range(22)), "nan_loss", "node", "NaN follows one node"),
    ("nemo", sample("nemo", "nemo2-cuda-error-watchdog.log"), "hang", "node", "the rank that failed first"),
    ("nccl", sample("nccl", "2.18-allreduce-timeout.log"), "hang", "node", "NCCL_DEBUG=INFO"),
    ("nccl", sample("nccl", "2.14-allreduce-port-error-crash.log"), "link_flap", "node", "link counters of both ends"),
    ("nccl", sample("nccl", "2.14-allreduce-port-error-crash.log"), "hang", "node", "first error of the log"),
    ("ibdiagnet", sample("ibdiagnet", "console-2.11-errors.txt"), "fabric_slow", "fabric", "ibdiagnet2.log"),
    ("ibqueryerrors", sample("ibqueryerrors", "errors-5.x.txt"), "link_degrading", "leaf01/17", "transceiver of leaf01/17"),
    ("hpl", sample("hpl", "netlib-2.3-illegal-input.out"), "oom_all_nodes", "config", "correct HPL.dat"),
    ("nccl", sample("nccl", "2.14-no-mpi-two-nodes.log"), "driver_mismatch", "config", "MPI plugin"),
    ("slurm-step", sample("slurm-step", "24.05-no-such-program.log"), "driver_mismatch", "config", "container image, its mounts"),
    ("nccl", sample("nccl", "2.18-allreduce-N0-time-limit.log"), "time_limit", "config", "raise the time limit"),
]  # fmt: skip


def rows_of(signals: list[dict[str, Any]]) -> list[tuple[Signature, str, str]]:
    """Return (row, part, next action) of every signal that counts, as a gate would take it."""
    run = result("single", 0, "nccl", "dgx02", ["dgx02"], signals=signals)
    gpus = parsers.read_lines("nvidia-smi", HEALTHY.splitlines()).data["gpus"]
    run["probes"]["after"]["dgx02"]["gpus"] = {g["bdf"]: {"index": g["index"]} for g in gpus}
    out = []
    for seen in counting(run, 8, STATE_KINDS, gpu_places([run], 8)):
        row = signature_of(seen)
        if row is not None and row.scope != "note":
            out.append((row, row.part(seen), row.action.format(part=row.part(seen))))
    return out


def on_the_node(tool: str, text: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    options = dict(options)
    when = options.pop("when", "after")
    return probed(tool, text, "dgx02", when, **options)


def in_a_run(tool: str, text: str) -> list[dict[str, Any]]:
    return [{**s.to_dict(), "file": OUT} for s in parsers.read_lines(tool, text.splitlines()).signals]


@pytest.mark.parametrize(("tool", "text", "options", "fault", "part", "action"), ON_THE_NODE)
def test_a_node_tools_lines(tool: str, text: str, options: dict[str, Any], fault: str, part: str, action: str) -> None:
    found = rows_of(on_the_node(tool, text, options))
    assert [f for f in found if f[0].fault == fault and f[1].startswith(part) and action in f[2]], found


@pytest.mark.parametrize(("tool", "text", "fault", "part", "action"), IN_A_RUN)
def test_the_lines_of_a_run(tool: str, text: str, fault: str, part: str, action: str) -> None:
    found = rows_of(in_a_run(tool, text))
    assert [f for f in found if f[0].fault == fault and f[1].startswith(part) and action in f[2]], found


def made() -> list[dict[str, Any]]:
    """Return the signals that no tool prints: the runner makes them of two probes."""
    record = {"when": "after", "nodes": {"dgx02": {"clock": {"up": 31.0}, "file": "probe-after/dgx02.txt"}}}
    (changed,) = stack.changed([("driver", "550.54.15", "550.90.07")], {}, "dgx02")
    return [_rebooted(record, "dgx02", "a", "b"), {**changed, "file": OUT, "node": "dgx02"}]


def test_what_two_probes_show_together() -> None:
    found = {row.fault: (part, action) for row, part, action in rows_of(made())}
    assert found["node_crash"][0] == "node" and "console" in found["node_crash"][1]
    assert found["stack"][0] == "stack" and "burnin freeze" in found["stack"][1]


def test_every_row_that_convicts_was_reached_from_a_tools_lines() -> None:
    reached = {id(row) for row, _, _ in rows_of(made())}
    for tool, text, options, *_ in ON_THE_NODE:
        reached |= {id(row) for row, _, _ in rows_of(on_the_node(tool, text, options))}
    for tool, text, *_ in [*IN_A_RUN, *[(c[0], c[1]) for c in IN_THE_OUTPUT]]:
        reached |= {id(row) for row, _, _ in rows_of(in_a_run(tool, text))}
    for tool, text, *_ in [*ON_A_NODE, ("ipmi", FAN)]:
        options = {"device": "mlx5_3"} if tool == "mlxlink" else {}
        reached |= {id(row) for row, _, _ in rows_of(on_the_node(tool, text, options))}
    assert [(r.kind, r.fault) for r in TABLE if r.scope != "note" and id(r) not in reached] == []
    assert all(re.search(r"\w", r.action) for r in TABLE)
