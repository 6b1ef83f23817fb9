# SPDX-License-Identifier: Apache-2.0
"""`burnin judge DIR`: logs by mail; and the conclusions that the operators' guide draws from its own sample outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from burnin import parsers
from burnin.commands.judge import judge, judge_folder, recognise
from burnin.errors import CampaignError
from burnin.judging.folder import Verdict, host_of_name
from click.testing import CliRunner

from tests.unit.parser_samples import guide

DATA = Path(__file__).resolve().parents[1] / "data"
#: Samples of which nothing but the program's name tells what they are, and those that are two things.
UNSURE = {"dmesg", "slurm-step", "probe"}


def the(verdict: Verdict, **wanted: str) -> dict[str, object]:
    """Return the one finding with these fields."""
    found = [f for f in verdict.findings if all(f[k] == v for k, v in wanted.items())]
    assert len(found) == 1, [(f["node"], f["part"], f["fault"], f["signal"]) for f in verdict.findings]
    return found[0]


@pytest.mark.parametrize("tool", sorted(d.name for d in DATA.iterdir() if d.is_dir() and d.name in parsers.TOOLS))
def test_every_sample_is_recognised_as_its_own_tools(tool: str) -> None:
    for path in sorted((DATA / tool).iterdir()):
        reading = parsers.read_file(tool, path)
        if path.is_file() and reading.recognised:
            assert recognise(path)[0] == tool, path.name


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("hpl-dgx03.out", "dgx03"),
        ("dgx05/dmesg.txt", "dgx05"),
        ("dgx14/mlx5_3-counters.txt", "dgx14"),
        ("logs/dgx-07-before.txt", "dgx-07"),
        ("nvidia-smi.gpu5.txt", None),
        ("hpl-128gpus.out", None),
        ("nccl-burnin.log", None),
        ("node12_sel.txt", "node12"),
        ("x4/dgx01x4-1a2b3c4d/attempt0/out-00000.log", None),
        ("gpu-a-07/dmesg", "gpu-a-07"),
        ("hpl-rack2-n014.out", "rack2"),
    ],
)
def test_the_host_in_a_files_name(path: str, host: str | None) -> None:
    assert host_of_name(path, ["dgx-07"]) == host


def test_a_folder_of_the_guides_samples_gives_the_guides_conclusions(tmp_path: Path) -> None:
    samples = {
        "hpl-grep.txt": 'grep -E "WR|PASSED',
        "nccl-burnin.log": 'grep -E "Avg bus',
        "dmesg-all.txt": 'pdsh -w dgx[01-32] "dmesg -T',
        "dgx03/nvidia-smi.txt": "nvidia-smi -q -d PERF",
        "dgx03/fans.txt": "ipmitool sdr type fan",
        "dgx03/dmon.txt": "dcgmi dmon",
        "dgx14/mlx5_3-counters.txt": "mlxlink -d mlx5_3 -c",
        "dgx14/mlx5_3-module.txt": "mlxlink -d mlx5_3 -m",
        "nemo.log": "srun -N 8 --ntasks",
        "ibdiagnet.log": "ibdiagnet -pc",
        "dgx01-diag.txt": "dcgmi diag -r 3",
        "dgx01-health.txt": "dcgmi health -s a",
        "squad-dgx01.log": "srun -N 1 --ntasks-per-node=8 --gpus-per-node=8 --container-image=nvcr.io#nvidia/nemo",
    }
    for name, command in samples.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(guide(command))
    verdict = judge_folder(tmp_path)
    assert {f["path"]: f["tool"] for f in verdict.files}["nemo.log"] == "nemo"
    slow = the(verdict, node="dgx03", signal="slow (spread)")
    assert "12.0 % below the median" in str(slow["reason"]) and slow["evidence"] == ["hpl-grep.txt:5"]
    assert the(verdict, node="dgx03", part="FAN6")["fault"] == "fan_failed"
    throttling = the(verdict, node="dgx03", signal="throttle")
    assert throttling["part"] == "gpu@0000:c3:00" and "fans and airflow" in str(throttling["next_action"])
    hot = the(verdict, node="dgx03", signal="gpu_temperature")
    assert hot["part"] == "gpu5" and hot["value"] == 88.0 and "612 W" in str(hot["reason"])
    assert the(verdict, node="dgx05", signal="xid 79")["fault"] == "gpu_off_bus"
    port = the(verdict, node="dgx14", signal="nccl_port_error")
    assert port["part"] == "mlx5_3" and "split nccl-tests by rail" in str(port["next_action"])
    drop = the(verdict, signal="slow (drop)")
    assert drop["node"] is None and "fell from 372.9 to 337.8 GB/s" in str(drop["reason"])
    assert drop["evidence"] == ["nccl-burnin.log:2", "nccl-burnin.log:10"]
    ber = the(verdict, node="dgx14", signal="link_effective_ber")
    assert ber["value"] == 3e-10 and ber["part"] == "mlx5_3"
    down = the(verdict, node="dgx14", signal="link_down_count")
    assert down["value"] == 2.0 and "older than the test" in str(down["contradicted_by"])
    assert the(verdict, node="dgx14", signal="module_rx_power")["evidence"] == ["dgx14/mlx5_3-module.txt:29"]
    assert any("transceiver at 71 C, limit 75 C" in n for n in verdict.notes)
    assert not [f for f in verdict.findings if f["node"] in ("dgx01", "dgx02")], "healthy samples accuse nobody"
    assert any(m.startswith("no ipmi of dgx[01-02,04-08,14]") for m in verdict.missing)


def test_a_file_from_before_decides_what_is_new(tmp_path: Path) -> None:
    line = "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    (tmp_path / "dgx05-dmesg-before.txt").write_text(line)
    (tmp_path / "dgx05-dmesg.txt").write_text(line)
    assert not judge_folder(tmp_path).findings
    (tmp_path / "dgx05-dmesg.txt").write_text(line + line.replace("100.", "900."))
    found = the(judge_folder(tmp_path), signal="xid 79")
    assert found["node"] == "dgx05" and found["confidence"] == "certain"
    assert found["evidence"] == ["dgx05-dmesg.txt:2"]


def test_a_rank_gets_its_node_from_the_list_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("[rank37]: RuntimeError: CUDA error: unspecified launch failure\n")
    without = judge_folder(tmp_path)
    assert not [f for f in without.findings if f["node"]] and any("--nodes" in n for n in without.notes)
    found = the(judge_folder(tmp_path, [f"dgx{i:02d}" for i in range(1, 9)]), signal="cuda_error")
    assert (found["node"], found["part"], found["confidence"]) == ("dgx05", "gpu5", "likely")
    (tmp_path / "dgx05-dmesg.txt").write_text(
        "[  100.000000] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    )
    found = the(judge_folder(tmp_path, [f"dgx{i:02d}" for i in range(1, 9)]), signal="cuda_error")
    assert found["confidence"] == "certain", "the kernel log of the same node bears it out"


def test_collectives_of_different_kinds_are_not_compared(tmp_path: Path) -> None:
    """Logs of old nccl-tests do not say which collective they are of; alltoall is slower than all-reduce."""
    sample = (DATA / "nccl" / "2.13-allreduce-8gpu.log").read_text()
    for n in range(5):
        (tmp_path / f"run{n}.log").write_text(sample)
    (tmp_path / "alltoall-9.log").write_text(re.sub(r"\bsum\b", "none", re.sub(r"(\d\d\d\.\d\d)", "100.00", sample)))
    assert not [f for f in judge_folder(tmp_path).findings if "slow" in str(f["signal"])]


def test_what_only_quotes_logs_is_no_log(tmp_path: Path) -> None:
    line = "FAN6_F           | 3Ah | cr  | 29.6 | 0 RPM"
    (tmp_path / "gate.log").write_text(f"burnin: dgx03 failed in single (nccl): fan_failed on FAN6: {line}\n")
    (tmp_path / "result.json").write_text(
        json.dumps({"signals": [{"text": line}, {"text": "NVRM: Xid (PCI:0000:c3:00): 79"}]})
    )
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "sdr.txt").write_text(line + "\n")
    verdict = judge_folder(tmp_path)
    assert not verdict.findings and verdict.unrecognised == ["gate.log", "result.json"]


def test_nothing_that_a_terminal_would_act_on_is_printed(tmp_path: Path) -> None:
    (tmp_path / "dgx03.ipmi.txt").write_text(
        "FAN6_F\x07\x9b31m | 3Ah | cr  | 29.6 | 0 RPM\nFAN7_F | 3Ah | cr  | 29.6 | 0 RPM\n"
    )
    (tmp_path / "x\x1b]0;title\x07.txt").write_text("rubbish\n")
    done = CliRunner().invoke(judge, [str(tmp_path)], catch_exceptions=False)
    assert all(c.isprintable() or c == "\n" for c in done.output)


def test_rubbish_is_named_and_never_a_pass(tmp_path: Path) -> None:
    (tmp_path / "blob.bin").write_bytes(bytes(range(256)) * 300)
    (tmp_path / "empty").write_text("")
    (tmp_path / "notes.txt").write_text("please look at this\n")
    (tmp_path / "link").symlink_to("/etc/passwd")
    done = CliRunner().invoke(judge, [str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 3 and "no reader knows blob.bin, empty, notes.txt" in " ".join(done.output.split())
    assert "nothing shows that the nodes did any work" in " ".join(done.output.split())
    with pytest.raises(CampaignError, match="is no folder"):
        judge_folder(tmp_path / "none")


def test_json_and_text_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "dgx03.ipmi.txt").write_text("FAN6_F           | 3Ah | cr  | 29.6 | 0 RPM\n")
    text = CliRunner().invoke(judge, [str(tmp_path)], catch_exceptions=False)
    assert text.exit_code == 0 and "dgx03: FAN6 does not turn (fan_failed, part FAN6)" in text.output
    document = json.loads(CliRunner().invoke(judge, [str(tmp_path), "--json"], catch_exceptions=False).output)
    (found,) = document["findings"]
    assert found["node"] == "dgx03" and found["next_action"].startswith("replace FAN6")
    assert "Next: replace FAN6" in text.output
