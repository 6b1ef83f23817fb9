# SPDX-License-Identifier: Apache-2.0
"""The rerun limit: the cure names what was missing, and where to look."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_heat import PAIR, gate_of
from tests.world import TOOLS, iteration

FOUR = [(f"n{i:03d}",) for i in range(4)]


def three_heats(step: str, groups: list[tuple[str, ...]], of: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the gates of three heats in each of which nccl leaves the same; `of`: first node of a group -> what."""
    gates: list[dict[str, Any]] = []
    for heat in range(3):
        changes = {("nccl", node): change for node, change in of.items()}
        gates.append(gate_of(step, groups, changes, heat=heat, gates=list(gates)))
    return gates


def probes(nodes: tuple[str, ...], tools: dict[str, str], problem: str, file: str | None = "f.txt") -> dict[str, Any]:
    """Return the probes of a run whose last one could not be read."""
    good = {n: {"tools": dict(TOOLS), "problems": [], "file": f"attempt0/b/{n}.txt", "time": 1.0} for n in nodes}
    bad = {
        n: {**good[n], "tools": tools, "problems": [problem], "file": file and f"attempt0/a/{n}-{file}"} for n in nodes
    }
    return {"probes": {"before": good, "after": bad}}


def test_iterations_that_are_missing_are_named_and_not_the_probes() -> None:
    gates = three_heats("x2", [PAIR], {PAIR[0]: {"iterations": [iteration(0, "nccl")]}})
    assert [g["stopped"] for g in gates[:2]] == [None, None] and "failed" not in gates[-1]["outcome"].values()
    stopped = gates[-1]["stopped"]
    assert stopped["kind"] == "inconclusive" and "3 times for n[000-001]" in stopped["text"]
    assert all(w in stopped["cure"] for w in ("n[000-001]: 1 of 2 iterations", "/attempt0/journal.jsonl:1)"))
    assert "probes" not in stopped["cure"]


def test_the_command_of_a_probe_is_named_with_the_nodes_and_their_files() -> None:
    tools = {**TOOLS, "ipmi": "unknown", "mlxlink:mlx5_0": "unknown", "mlxlink:mlx5_1": "unknown"}
    of = {n: probes((n,), tools, "exit status 1") for (n,) in FOUR}
    stopped = three_heats("single", FOUR, of)[-1]["stopped"]
    wanted = (
        "n[000-003]",
        "exit status 1",
        "/attempt0/a/n000-f.txt:1",
        "probes.commands.ipmi, probes.commands.mlxlink",
    )
    assert all(w in stopped["cure"] for w in wanted), stopped["cure"]
    assert stopped["cure"].count("probes.commands.mlxlink") == 1


def test_a_probe_that_left_nothing_is_the_launchs() -> None:
    of = {n: probes((n,), dict.fromkeys(TOOLS, "unknown"), "the node left no probe file", None) for (n,) in FOUR}
    cure = three_heats("single", FOUR, of)[-1]["stopped"]["cure"]
    assert "the node left no probe file" in cure and "probes.launch" in cure and "probes.commands" not in cure
    of = {n: {"probes": {"before": probes((n,), TOOLS, "")["probes"]["before"], "after": {}}} for (n,) in FOUR}
    cure = three_heats("single", FOUR, of)[-1]["stopped"]["cure"]
    assert "n[000-003]: no probe after the run" in cure


def cut(lines: int) -> dict[str, Any]:
    item = iteration(1, "nccl") | {"verdict": "unknown", "complete": False, "problems": ["the footer is missing"]}
    return {"iterations": [iteration(0, "nccl"), {**item, "facts": {"lines": lines}}]}


def test_an_output_that_is_cut_is_named_with_the_line_where_it_is() -> None:
    cure = three_heats("single", FOUR, {n: cut(812) for (n,) in FOUR})[-1]["stopped"]["cure"]
    assert all(
        w in cure for w in ("the footer is missing", "/attempt0/out-00001.log:812)", "workload_definitions.nccl")
    )
    alone = three_heats("single", FOUR, {"n002": cut(7)})[-1]
    assert alone["outcome"]["n002"] == "failed" and alone["stopped"] is None
    (finding,) = alone["findings"]
    assert finding["evidence"][0].endswith("/out-00001.log:7") and "BMC" not in finding["next_action"]


def test_halves_that_did_not_run_together_are_named() -> None:
    late = {"iterations": [iteration(n, "nccl", start=5000.0 + n, end=5001.0 + n) for n in (0, 1)]}
    stopped = three_heats("halves", [PAIR, ("n002", "n003")], {PAIR[0]: late})[-1]["stopped"]
    assert stopped["kind"] == "overlap" and "the halves ran together for 0%" in stopped["cure"]
    assert "slurm.start_timeout_minutes" in stopped["cure"]


def test_all_that_is_missing_is_named_what_is_alike_once() -> None:
    both = cut(9) | probes(("n000",), {**TOOLS, "ipmi": "unknown"}, "N/A")
    of = {"n000": both, "n001": cut(3), "n002": cut(3), "n003": probes(("n003",), {**TOOLS, "dmesg": "unknown"}, "no")}
    last = three_heats("single", FOUR, of)[-1]
    cure = last["stopped"]["cure"]
    assert "n[000-002]: iteration 1" in cure and "n000: ipmi could not be read" in cure and "n003: dmesg" in cure
    assert "; ipmi" in last["owes"]["n000"]["text"]
    many = {n: probes((n,), {**TOOLS, f"t{n}": "unknown"}, "no") for (n,) in [*FOUR, ("n004",)]}
    cure = three_heats("single", [*FOUR, ("n004",)], many)[-1]["stopped"]["cure"]
    assert cure.endswith("; and 2 more like that")


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "FAILED"])
def test_what_is_no_lack_of_evidence_has_the_cure_of_its_cause(state: str) -> None:
    dead = {
        "state": "casualty",
        "iterations": [],
        "casualty": {"state": state, "lost": [], "text": state, "job_id": "1"},
    }
    stopped = three_heats("x2", [PAIR], {PAIR[0]: dead})[-1]["stopped"]
    words = {"CANCELLED": "who cancels", "TIMEOUT": "slurm.time_limit_minutes", "FAILED": "remove the cause"}
    assert words[state] in stopped["cure"]
