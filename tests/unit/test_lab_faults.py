# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  (the table of cases reads best with few lines a case)
"""Every kind of fault: it shows in every tool that would show it on real hardware, and in no other; repairs end it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from lab_bench import HPL, NCCL, SCENARIOS, Bench, Result
from model.base import LabError
from model.compile import compile_scenario
from model.kinds import KINDS

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "scenario.schema.json").read_text())
DMESG, HEALTH, SMI, NVLINK = "dmesg -T", "dcgmi health -c", "nvidia-smi -q", "nvidia-smi nvlink -s"
SDR, SEL = "ipmitool sdr elist", "ipmitool sel list"


def normal(text: str) -> str:
    """Probe text without what differs between two labs powered on at different times."""
    text = re.sub(r"\[\w{3} \w{3} [ \d]\d [\d:]+ \d{4}\]", "[]", text)
    text = re.sub(r"(Time Since Last Clear \[Min\] +: )\S+", r"\1", text)
    return re.sub(r"\d\d/\d\d/\d{4} \| \d\d:\d\d:\d\d", "", text)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Probes of a node of a lab where nothing is wrong."""
    bench = Bench(tmp_path_factory.mktemp("healthy"), "healthy")
    seen: dict[str, dict[str, str]] = {}

    def probes(node: str) -> dict[str, str]:
        if node not in seen:
            seen[node] = {k: normal(v) for k, v in bench.probes(node).items()}
        return seen[node]

    return probes


@dataclass
class Case:
    """How a kind is provoked and what must be seen."""

    kind: str
    nodes: str  # the group that shows it
    program: str  # nccl, hpl or nemo
    says: str  # a pattern the workload's output must have
    tools: tuple[str, ...] = ()  # node tools that tell, on the faulty node; all others must be as on a healthy one
    shows: dict[str, str] = field(default_factory=dict)  # tool -> pattern
    status: int | None = 0
    repair: tuple[str, str] | None = None  # dctech NODE PART
    step: str = ""
    iteration: int = 1

    @property
    def node(self) -> str | None:
        faults = yaml.safe_load((SCENARIOS / f"{self.kind}.yaml").read_text())["faults"]
        node: str | None = faults[0].get("node")
        return node


SLOW_BUS = r"Avg bus bandwidth    : (3[0-4]\d|35[0-4]|2\d\d|[5-9]|1\d)(\.|\d\.)"
CASES = [
    Case(
        "link_degrading", "dgx[01-02]", "nccl", r"NCCL WARN NET/IB : mlx5_3:1 Got async event: port error",
        (DMESG, "mlxlink -d mlx5_3 -c", "mlxlink -d mlx5_3 -m"),
        {DMESG: r"mlx5_3: Port: 1 Link DOWN", "mlxlink -d mlx5_3 -c": r"Effective Physical BER +: \dE-1[0-2]\n[\s\S]*Link Down Counter +: 1\n"},
        repair=("dgx02", "mlx5_3"),
    ),
    Case(
        "link_flap", "dgx[05-06]", "nccl", r"mlx5_1:1 Got async event: port active",
        (DMESG, "mlxlink -d mlx5_1 -c"), {"mlxlink -d mlx5_1 -c": r"Effective Physical BER +: 15E-255\n[\s\S]*Link Down Counter +: 1\n"},
        repair=("dgx06", "mlx5_1"),
    ),
    Case(
        "transceiver_hot", "dgx[03-04]", "nccl", SLOW_BUS, (DMESG, "mlxlink -d mlx5_6 -c", "mlxlink -d mlx5_6 -m"),
        {DMESG: r"Cable error, High Temperature", "mlxlink -d mlx5_6 -m": r"Temperature \[C\] +: 77 \[-5\.\.75\]"}, repair=("dgx04", "mlx5_6"),
    ),
    Case("rail_slow", "dgx[07-08]", "nccl", SLOW_BUS, ("mlxlink -d mlx5_2 -c", "mlxlink -d mlx5_2 -m"),
         {"mlxlink -d mlx5_2 -c": r"Speed +: IB-HDR"}, repair=("dgx07", "mlx5_2")),
    Case("fabric_slow", "dgx[01-08]", "nccl", SLOW_BUS, repair=("fabric", "spine01")),
    Case("nvlink_error", "dgx06", "nccl", r"Avg bus bandwidth    : 41\d", (DMESG, HEALTH, NVLINK),
         {DMESG: r"Xid \(PCI:0000:52:00\): 74,", HEALTH: r"NVLINK system +\| Failure", NVLINK: "<inactive>"}, repair=("dgx06", "gpu2")),
    Case("gpu_off_bus", "dgx[05-08]", "nemo", r"\[rank5\]: RuntimeError: CUDA error: [\s\S]*\[rank31\].*Watchdog caught",
         (DMESG, HEALTH, SMI, SDR), {DMESG: r"Xid \(PCI:0000:c3:00\): 79", SMI: r"Unable to determine the device handle for GPU0000:C3:00.0",
                                     HEALTH: r"-> 5 +\| Failure"}, 1, ("dgx05", "gpu5")),
    Case("gpu_slow", "dgx04", "hpl", r"WR01C2R4 .* 3\.\d+e\+05", (HEALTH, SMI),
         {SMI: r"GPU 00000000:61:00\.0[\s\S]*HW Power Brake Slowdown +: Active", HEALTH: "Power system +\\| Warning"}, repair=("dgx04", "gpu3")),
    Case("hbm_ecc_uncorrectable", "dgx[07-08]", "hpl", r"rank 1: CUDA error: uncorrectable ECC error", (DMESG, HEALTH, SMI),
         {DMESG: r": 48,[\s\S]*: 63,[\s\S]*: 94,", SMI: r"DRAM Uncorrectable +: 1", HEALTH: "Memory system +\\| Failure"}, 1, ("dgx07", "gpu1")),
    Case("row_remap_failed", "dgx08", "hpl", "PASSED", (DMESG, HEALTH, SMI),
         {DMESG: r": 64,", SMI: r"Remapping Failure Occurred +: Yes"}, repair=("dgx08", "gpu6")),
    Case("silent_data_corruption", "dgx06", "nccl", r"Out of bounds values : [1-9]\d* FAILED", status=7, repair=("dgx06", "gpu2")),
    Case("fan_failed", "dgx03", "hpl", r"WR01C2R4 .* 3\.\d+e\+05", (HEALTH, SMI, SDR, SEL),
         {SDR: r"FAN6_F +\| 3Ah \| cr  \| 29\.6 \| 0 RPM", SMI: r"GPU T.Limit Temp +: -3 C", HEALTH: "Thermal system +\\| Warning"}, repair=("dgx03", "FAN6")),
    Case("psu_failed", "dgx02", "hpl", "PASSED", (SDR, SEL), {SDR: r"PSU2_STATUS.*Power Supply AC lost"}, repair=("dgx02", "PSU2")),
    Case("inlet_hot", "dgx08", "hpl", r"WR01C2R4 .* 3\.9\d+e\+05", (HEALTH, SMI, SDR, SEL),
         {SDR: r"TEMP_INLET +\| 10h \| cr  \| 64\.1 \| 43 degrees C", SMI: "SW Thermal Slowdown +: Active"}, repair=("dgx08", "node")),
    Case("node_crash", "dgx[01-04]", "hpl", r"srun: error: Node failure on dgx04[\s\S]*DUE TO NODE FAILURE", (SEL,), {SEL: "IERR"}, 137, ("dgx04", "node")),
    Case("nan_loss", "dgx[03-04]", "nemo", "reduced_train_loss: nan", repair=("dgx03", "node")),
    Case("straggler", "dgx05", "nemo", r"Node=dgx05 Score=0\.[56]\d[\s\S]*train_step_timing in s: 3\.", repair=("dgx05", "node")),
    Case("storage_slow", "dgx[01-04]", "nemo", r"Save duration: (9|1[0-4])\d", repair=("storage", "storage")),
    Case("checkpoint_fails", "dgx[01-04]", "nemo", r"No space left on device", status=1, repair=("storage", "storage")),
    Case("nccl_on_sockets", "dgx[07-08]", "nccl", r"dgx07:.*NET/IB : No device found\.[\s\S]*Using network Socket", repair=("dgx07", "stack")),
    Case("oom_one_node", "dgx[01-02]", "nemo", r"\[rank8\]: torch\.OutOfMemoryError", (SMI,), {SMI: r"Used GPU Memory +: 61876 MiB"}, 1, ("dgx02", "node")),
    Case("oom_all_nodes", "dgx[01-02]", "nemo", r"\[rank0\]: torch\.OutOf[\s\S]*\[rank15\]: torch\.OutOf", status=1, repair=("config", "config")),
    Case("driver_mismatch", "dgx[05-06]", "nccl", r"dgx05: Test CUDA failure .*driver version is insufficient", (DMESG, SMI), {SMI: r"Driver Version +: 535"}, 2, ("dgx05", "stack")),
    Case("missing_gpu", "dgx03", "nccl", r"dgx03: Test CUDA failure .*'invalid device ordinal'", (DMESG, SMI, NVLINK, SDR),
         {SMI: "Attached GPUs +: 7", DMESG: "fallen off the bus and is not responding"}, 2, ("dgx03", "gpu4")),
    Case("time_limit", "dgx[01-04]", "nemo", r"DUE TO TIME LIMIT \*\*\*", status=143, repair=("config", "config")),
    Case("probe_unreadable", "dgx06", "nccl", "Avg bus", (HEALTH,), {HEALTH: "Unable to connect to host engine"}, repair=("dgx06", "dcgmi")),
]  # fmt: skip


def provoke(bench: Bench, case: Case) -> Result:
    program = {"nccl": NCCL, "hpl": HPL, "nemo": bench.nemo()}[case.program]
    return bench.work(case.nodes, *program, iteration=case.iteration, step=case.step)


def differing(bench: Bench, healthy: Callable[[str], dict[str, str]], node: str) -> dict[str, str]:
    """The node's tools that print something else than on a healthy node."""
    seen = {k: normal(v) for k, v in bench.probes(node).items()}
    return {k: v for k, v in seen.items() if v != healthy(node)[k]}


def test_every_kind_has_a_case() -> None:
    assert {c.kind for c in CASES} | {"hang", "resume_from_scratch"} == set(KINDS)
    assert set(KINDS) | {"tickets", "healthy"} == {p.stem for p in SCENARIOS.glob("*.yaml")}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kind)
def test_a_fault_shows_where_it_would_and_nowhere_else(
    case: Case, tmp_path: Path, healthy: Callable[[str], dict[str, str]]
) -> None:
    bench = Bench(tmp_path, case.kind)
    done = provoke(bench, case)
    assert re.search(case.says, done.text), done.text[-3000:]
    assert done.status == case.status
    from model.base import expand_hosts

    group = expand_hosts(case.nodes)
    node = case.node or group[0]
    told = differing(bench, healthy, node)
    assert set(told) == set(case.tools)
    for tool, pattern in case.shows.items():
        assert re.search(pattern, told[tool]), f"{tool}:\n{told[tool]}"
    other = next(n for n in ("dgx02", "dgx07") if n != node)
    assert differing(bench, healthy, other) == {}
    assert case.repair is not None
    # The wrong part is refused, the right one is put right, and that ends it; a second time there is nothing to do.
    if case.node:
        wrong = bench.call("dctech", case.node, "mlx5_7")
        assert (wrong.status, "nothing is wrong" in wrong.err) == (1, True)
    fixed = bench.call("dctech", *case.repair)
    assert fixed.status == 0, fixed.err
    assert fixed.out.startswith("dctech: ")
    if case.kind == "node_crash":
        assert bench.call("sinfo", "-h", "-N", "-n", "dgx04", "-o", "%T").out.strip() == "down"
        assert bench.call("scontrol", "update", "nodename=dgx04", "state=resume").status == 0
        assert bench.call("sinfo", "-h", "-N", "-n", "dgx04", "-o", "%T").out.strip() == "idle"
    again = provoke(bench, case)
    assert again.status == 0, again.text[-2000:]
    good = {"nccl": r"Out of bounds values : 0 OK[\s\S]*Avg bus bandwidth    : (4[78]\d|37\d)\.", "hpl": r"WR01C2R4 .* (4\.[23]|8\.[45]|1\.6).*e\+0\d\n[\s\S]*PASSED",
            "nemo": r"train_step_timing in s: 2\.[01]"}[case.program]  # fmt: skip
    assert re.search(good, again.text), again.text[-2000:]
    assert not re.search(r"nan|WARN|rror", again.text)
    after = differing(bench, healthy, node)
    history = {DMESG, SEL} if not KINDS[case.kind].reboot else {SEL}
    moved = {t for t in after if t.endswith("-m")} if case.repair[1].startswith("mlx5") else set()
    serial = {SMI, NVLINK} if case.repair[1].startswith("gpu") else set()
    assert set(after) <= history | moved | serial, after.keys()
    if serial:
        assert normal(bench.probes(node)[SMI]) != healthy(node)[SMI], "another module has another serial number"
    assert bench.call("dctech", *case.repair).status == 1


@pytest.mark.parametrize("part", ["node", "gpu3"])
def test_hang(part: str, tmp_path: Path, healthy: Callable[[str], dict[str, str]]) -> None:
    scenario = tmp_path / "hang.yaml"
    scenario.write_text(f"nodes: dgx[01-08]\nfaults: [{{kind: hang, node: dgx06, part: {part}, step: x2}}]\n")
    bench = Bench(tmp_path, scenario)
    process = bench.start(
        "srun", "-N2", "-w", "dgx[05-06]", *NCCL, BURNIN_STEP="x2", BURNIN_WORKLOAD="nccl", BURNIN_ITERATION="0"
    )
    try:
        with pytest.raises(Exception, match="timed out"):
            process.wait(1.5)
        told = differing(bench, healthy, "dgx06")
        assert set(told) == ({DMESG} if part == "node" else set())
        if told:
            assert "blocked for more than 120 seconds" in told[DMESG]
    finally:
        process.terminate()
        text = process.communicate()[0]
    assert process.returncode == 143
    assert re.search(r"^  8589934592 ", text, re.M), "the rows before it were printed"
    assert "Avg bus" not in text


def test_resume_from_scratch(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "resume_from_scratch")
    first = bench.work("dgx[01-08]", *bench.nemo(12, 10, "log"), step="resume")
    assert "Training from scratch" in first.out
    second = bench.work("dgx[01-08]", *bench.nemo(20, 10, "log"), step="resume")
    assert "Training from scratch" in second.out
    assert "Restor" not in second.out
    assert re.search(r"iteration 0/19 .*global_step: 0 \| reduced_train_loss: 11\.", second.out)
    assert bench.call("dctech", "config", "config").status == 0
    third = bench.work("dgx[01-08]", *bench.nemo(30, 10, "log"), step="resume")
    assert re.search(r"iteration 20/29 .*consumed_samples: 2688$", third.out, re.M)


def test_nan_from_corruption_and_residual(tmp_path: Path) -> None:
    scenario = tmp_path / "sdc.yaml"
    scenario.write_text("nodes: dgx[01-08]\nfaults: [{kind: silent_data_corruption, node: dgx02, part: gpu7}]\n")
    bench = Bench(tmp_path, scenario)
    assert "reduced_train_loss: nan" in bench.work("dgx02", *bench.nemo()).out
    hpl = bench.work("dgx[01-02]", *HPL).out
    assert re.search(r"=\s+\d\.\d+e\+0\d \.\.\.\.\.\. FAILED", hpl)
    assert "              1 tests completed and failed residual checks," in hpl
    assert "FAILED" not in bench.work("dgx01", *HPL).out
    diag = bench.on("dgx02", "dcgmi", "diag", "-r", "3")
    assert "| Diagnostic                | Fail - GPU: 7" in diag.out
    assert diag.status == 226
    good = bench.on("dgx01", "dcgmi", "diag", "-r", "3")
    assert good.status == 0
    assert good.out.count("Pass - All") == 6
    assert "| EUD Test                  | Skip - All" in good.out


def test_conditions(tmp_path: Path) -> None:
    scenario = tmp_path / "c.yaml"
    scenario.write_text(
        "nodes: dgx[01-08]\n"
        "faults:\n"
        "  - {kind: nan_loss, node: dgx02, from_iteration: 2, min_nodes: 2, step: [x2, x4]}\n"
        "  - {kind: link_flap, node: dgx05, part: mlx5_0, min_nodes: 2, intermittent: 0.5}\n"
    )
    bench = Bench(tmp_path, scenario)

    def nan(nodes: str, iteration: int, step: str = "") -> bool:
        return "loss: nan" in bench.work(nodes, *bench.nemo(4), iteration=iteration, step=step).out

    assert not nan("dgx[01-02]", 1)
    assert nan("dgx[01-02]", 2)
    assert not nan("dgx02", 2)
    assert not nan("dgx[03-04]", 2)
    assert not nan("dgx[01-08]", 2)
    assert nan("dgx[01-04]", 7)
    seen = ["WARN" in bench.work("dgx[05-06]", *NCCL, iteration=i).out for i in range(16)]
    assert 3 <= sum(seen) <= 13
    assert seen == ["WARN" in bench.work("dgx[05-06]", *NCCL, iteration=i).out for i in range(16)]


def test_counters_grow_with_each_iteration(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "link_degrading")
    values = []
    for i in range(1, 5):
        bench.work("dgx[01-02]", *NCCL, iteration=i)
        text = bench.on("dgx02", "mlxlink", "-d", "mlx5_3", "-c").out
        ber = re.search(r"Effective Physical BER +: (\S+)", text)
        errors = re.search(r"Effective Physical Errors +: (\d+)", text)
        assert ber and errors
        values.append((float(ber[1]), int(errors[1])))
    assert values == sorted(values)
    assert len(set(values)) == 4
    assert bench.call("ibdiagnet").status == 1
    cleared = bench.call("ibdiagnet", "-pc")
    assert "-I- Ports counters were cleared" in cleared.out
    assert "Effective Physical Errors          : 0" in bench.on("dgx02", "mlxlink", "-d", "mlx5_3", "-c").out
    assert bench.call("ibdiagnet").status == 0


def test_a_crashed_node_is_refused_and_the_others_can_be_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "node_crash")
    bench.work("dgx[01-04]", *HPL)
    refused = bench.call("srun", "-N2", "-w", "dgx[03-04]", "true")
    assert refused.status == 1
    assert "Required node not available (down, drained or reserved)" in refused.err
    rest = bench.call("srun", "--no-kill", "-N2", "-w", "dgx[03-04]", "sh", "-c", "echo $SLURMD_NODENAME")
    assert (rest.status, rest.out) == (0, "dgx03\n")
    assert "srun: error: Node failure on dgx04" in rest.err
    assert bench.call("scontrol", "show", "node", "-o", "dgx04").out.find("State=DOWN+NOT_RESPONDING ") > 0
    unreached = bench.call("pdsh", "-w", "dgx[03-04]", "echo hi")
    assert "Connection timed out" in unreached.err and unreached.status == 0
    assert bench.call("pdsh", "-S", "-w", "dgx[03-04]", "echo hi").status == 254, "told with -S only"
    assert bench.call("pdsh", "-S", "-N", "-w", "dgx03", "exit 7").status == 7
    bench.call("scontrol", "update", "nodename=dgx04", "state=resume")
    assert bench.call("sinfo", "-h", "-N", "-n", "dgx04", "-o", "%T").out.strip() == "down*", "the node is still dead"
    states = bench.call("sacct", "-X", "-n", "-P", "-o", "State").out.split()
    assert states[0] == "NODE_FAIL"


# --- scenarios ---


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda p: p.stem)
def test_scenario_files_are_valid_by_schema_and_by_the_lab(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)
    assert compile_scenario(str(path))["nodes"][0] == "dgx01"


def test_the_schema_knows_every_kind() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["fault"]["properties"]["kind"]["enum"] == sorted(KINDS)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("{kind: fan_broken, node: dgx01}", "unknown kind 'fan_broken'"),
        ("{kind: fan_failed, node: dgx01}", "needs part, one of FAN1..FAN6"),
        ("{kind: fan_failed, node: dgx01, part: gpu5}", "part 'gpu5' cannot have this fault"),
        ("{kind: fan_failed, node: dgx01, part: FAN7}", "part 'FAN7' cannot have this fault"),
        ("{kind: fan_failed, part: FAN1}", "needs node"),
        ("{kind: fan_failed, node: dgx09, part: FAN1}", "node 'dgx09' is not among dgx[01-08]"),
        ("{kind: gpu_off_bus, node: dgx01, part: gpu8}", "part 'gpu8' cannot have this fault"),
        ("{kind: oom_all_nodes, node: dgx01}", "takes no node"),
        ("{kind: fabric_slow}", "needs between"),
        ("{kind: fabric_slow, between: [dgx01, 'dgx[01-02]']}", "both sides have dgx01"),
        ("{kind: hang, node: dgx01, between: [dgx01, dgx02]}", "takes no between"),
        ("{kind: hang, node: dgx01, colour: red}", "unknown field 'colour'"),
        ("{kind: hang, node: dgx01, step: x3}", "step 'x3': choose"),
        ("{kind: hang, node: dgx01, workload: gromacs}", "workload 'gromacs': choose"),
        ("{kind: hang, node: dgx01, from_iteration: -1}", "from_iteration -1"),
        ("{kind: hang, node: dgx01, min_nodes: 0}", "min_nodes 0"),
        ("{kind: hang, node: dgx01, intermittent: 0}", "intermittent 0"),
        ("{kind: hang, node: dgx01, intermittent: true}", "intermittent True"),
        ("just words", "give a mapping"),
    ],
)
def test_wrong_faults_are_refused_with_a_sentence(fault: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"nodes: dgx[01-08]\nfaults:\n  - {fault}\n")
    with pytest.raises(LabError, match=re.escape(message)) as caught:
        compile_scenario(str(path))
    assert str(path) in str(caught.value)
    assert "fault 1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give a mapping"),
        ("faults: []", "needs nodes"),
        ("nodes: dgx[01-08\n", "brackets do not match"),
        ("nodes: dgx[08-01]\n", "is empty"),
        ("nodes: [dgx01, dgx01]\n", "names dgx01 twice"),
        ("nodes: dgx01\ngpus_per_node: 99\n", "gpus_per_node 99"),
        ("nodes: dgx01\nfaultz: []\n", "unknown field 'faultz'"),
        ("nodes: '../../etc'\n", "is not a node name"),
        ("nodes: [1\n", "is not YAML"),
    ],
)
def test_wrong_scenarios_are_refused_with_a_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    bench = Bench(tmp_path, path)
    done = bench.call("sinfo")
    assert done.status == 1
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_a_missing_scenario_is_said(tmp_path: Path) -> None:
    done = Bench(tmp_path, tmp_path / "no.yaml").call("srun", "-N1", "true")
    assert done.status == 1
    assert done.err == f"lab: the scenario {tmp_path / 'no.yaml'} does not exist\n"


def test_dctech_says_what_is_not_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "tickets")
    assert "there is no node 'dgx99'" in bench.call("dctech", "dgx99", "gpu5").err
    assert "has no part 'gpu99'" in bench.call("dctech", "dgx05", "gpu99").err
    assert bench.call("dctech", "dgx05").status == 2
    assert bench.call("dctech", "dgx03", "FAN6").status == 0
    assert "| cr " not in bench.on("dgx03", "ipmitool", "sdr", "elist").out
