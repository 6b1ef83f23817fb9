# SPDX-License-Identifier: Apache-2.0
"""The picture of the ladder: runs of a workload in a heat are one box, and its label says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from burnin import dag

ROOT = Path(__file__).resolve().parents[2]
NODE = '\t{}[label = "{}", color = "0.04 0.6 0.85", style="rounded{}"];'


def dot(jobs: list[tuple[int, str, str]], edges: list[tuple[int, int]]) -> str:
    """Return a graph as Snakemake prints it: (number, label, style)."""
    nodes = [NODE.format(*job) for job in jobs]
    return "\n".join(["digraph snakemake_dag {", *nodes, *(f"\t{a} -> {b}" for a, b in edges), "}"])


TEXT = dot(
    [
        (0, "all", ""), (1, "gate", ""), (2, "plan\\nheat: 0\\nstep: x2", ",dashed"),
        (3, "burn_in\\ngroup: dgx01x2-950968c2\\nworkload: nccl", ""), (4, "burn_in\\nworkload: hpl", ""),
        (5, "burn_in\\ngroup: dgx03x2-1705101f\\nworkload: nccl", ""), (6, "burn_in\\nworkload: hpl", ""),
        (7, "plan\\nheat: 1", ""), (8, "gate", ""),
    ],
    [(1, 0), (8, 0), (2, 1), (2, 3), (2, 4), (3, 4), (2, 5), (5, 6), (2, 6), (3, 1), (4, 1), (5, 1), (6, 1), (1, 7), (7, 8)],
)  # fmt: skip


def test_wildcards_come_from_the_inputs() -> None:
    jobs = dag.read(TEXT)
    assert jobs["4"].wildcards == {"workload": "hpl", "group": "dgx01x2-950968c2", "step": "x2", "heat": "0"}
    assert jobs["1"].wildcards == {"step": "x2", "heat": "0"} and jobs["0"].wildcards == {}
    assert jobs["7"].wildcards == {"step": "x2", "heat": "1"} and jobs["2"].done and not jobs["1"].done


def test_runs_are_folded_and_only_the_longest_ways_are_drawn() -> None:
    text = dag.fold(TEXT)
    assert 'label="nccl\\n2 x 2 nodes"' in text and 'label="hpl\\n2 x 2 nodes"' in text
    assert 'label="x2"' in text and 'label="x2, heat 1"' in text
    assert text.count(" -> ") == 6  # plan, nccl, hpl, gate, plan, gate, all
    assert 'label="plan", style="rounded,dashed"' in text


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="snakemake --dag"):
        dag.fold("Building DAG of jobs...\n")


def test_the_whole_ladder_of_64_nodes_is_a_small_picture() -> None:
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    made = subprocess.run(
        [snakemake, "--profile", "lab", "--quiet", "all", "--dag", "--config", "campaign=never", "nodes=n[01-64]"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = dag.fold(made.stdout)
    for words in ("nccl\\n64 x 1 node", "hpl\\n4 x 16 nodes", "nemo\\n2 x 32 nodes", "nemo, resumed\\n1 x 64 nodes"):
        assert words in text
    assert text.count("[label=") < 50
