# SPDX-License-Identifier: Apache-2.0
"""The retest of a repaired node: only a whole diagnostic of all GPUs that ended well is a pass."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import parsers, storage
from burnin.runs import retest

from tests.unit.parser_samples import DATA
from tests.unit.test_runs import World

SAMPLES = DATA / "dcgmi-diag"


def retested(folder: Path, text: str, status: int = 0, timeout: float = 30, pause: float = 0) -> dict[str, Any]:
    """Return the result of a retest whose diagnostic prints a text and ends with a status."""
    (folder / "diag.txt").write_text(text)
    script = f"sleep {pause}; cat {folder}/diag.txt; exit {status}"
    world = World(folder, retest={"command": f"sh -c {shlex.quote(script)}", "timeout_seconds": timeout})
    campaign = world.campaign
    group = {"nodes": ["n1"], "owed": ["n1"], "workloads": ["diag"], "isolation": None}
    plan = storage.read_json(campaign.plan_path("single", 0), "plan")
    plan |= {"step": "retest", "groups": {"n1": group}, "windows": {"diag": {"iterations": 1}}}
    storage.write_json(campaign.plan_path("retest", 0), plan, "plan")
    path = campaign.result_path("retest", 0, "diag", "n1")
    retest.run(path)
    found: dict[str, Any] = storage.read_json(path, "result")
    return found


@pytest.mark.parametrize(
    "name", ["json-2.4-pass.json", "json-3.3-pass.json", "json-4.1-pass.json", "text-3.3-pass.txt"]
)
def test_a_whole_diagnostic_that_ended_well_is_a_pass(tmp_path: Path, name: str) -> None:
    (item,) = retested(tmp_path, (SAMPLES / name).read_text())["iterations"]
    assert (item["verdict"], item["exit"], item["facts"]) == ("pass", 0, {"gpus": 8})


def test_what_is_no_pass(tmp_path: Path) -> None:
    text = (SAMPLES / "json-4.1-pass.json").read_text()
    trouble: dict[str, tuple[str, int, str]] = {
        "status": (text, 226, "says pass, but ended with status 226"),
        "not reached": ("", 254, "empty"),
        "cut": (text[: text.rindex("}")], 0, "cut or damaged"),
        "seven": (
            (SAMPLES / "json-2.4-pass.json").read_text().replace("0,1,2,3,4,5,6,7", "0,1,2,3,4,5,6"),
            0,
            "saw 7 GPUs",
        ),
    }
    for name, (said, status, words) in trouble.items():
        folder = tmp_path / name.replace(" ", "")
        folder.mkdir()
        (item,) = retested(folder, said, status)["iterations"]
        assert item["verdict"] == "unknown" and words in " ".join(item["problems"]), (name, item["problems"])
        assert name != "cut" or item["facts"]["lines"] == len(said.splitlines()), "where it is cut"
    failed = retested(tmp_path, (SAMPLES / "json-4.1-memory-fail.json").read_text(), 226)
    assert failed["iterations"][0]["verdict"] == "fail"
    assert [(s["gpu"], s["host"]) for s in failed["signals"] if s["kind"] == "dcgm_diag"] == [(3, "n1")]


def test_a_diagnostic_that_does_not_end_proves_nothing(tmp_path: Path) -> None:
    (item,) = retested(tmp_path, (SAMPLES / "json-4.1-pass.json").read_text(), timeout=0.5, pause=5)["iterations"]
    assert (item["verdict"], item["ended"], item["exit"]) == ("unknown", "hang", None)


def test_the_default_is_read_whole_from_the_lab(tmp_path: Path) -> None:
    """The config's own command line, on a healthy node and on one with a fault."""
    from tests.unit.lab_bench import Bench
    from tests.unit.test_runs import ROOT

    command = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())["retest"]["command"]
    bench = Bench(tmp_path, "gpu_slow")
    answers = {}
    for node in ("dgx01", "dgx02", "dgx03", "dgx04", "dgx05", "dgx06", "dgx07", "dgx08"):
        answer = bench.call(*shlex.split(command.format(node=node)))
        reading = parsers.read_lines("dcgmi-diag", answer.out.split("\n"))
        assert reading.complete and reading.data["gpu_count"] == 8
        answers[node] = (answer.status, reading.verdict)
    assert set(answers.values()) == {(0, "pass"), (226, "fail")} and list(answers.values()).count((226, "fail")) == 1
