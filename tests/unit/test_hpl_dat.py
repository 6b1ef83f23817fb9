# SPDX-License-Identifier: Apache-2.0
"""HPL.dat: the reference values come out, sizes grow with the group, and the file says what was planned."""

from __future__ import annotations

import math

import pytest
from burnin.errors import ConfigError
from burnin.hpl_dat import MIB, HplPlan, grid, plan_hpl, read, render
from hypothesis import given
from hypothesis import strategies as st

H100 = 81559.0  # MiB, as nvidia-smi prints it


@pytest.mark.parametrize("memory", [H100, 80 * 1024.0])
def test_the_reference_values_come_out(memory: float) -> None:
    one = plan_hpl(1, 8, memory)
    assert (one.n, one.nb, one.p, one.q) == (270336, 1024, 2, 4)
    sixteen = plan_hpl(16, 8, memory)
    assert (sixteen.n, sixteen.nb, sixteen.p, sixteen.q) == (1081344, 1024, 8, 16)


@pytest.mark.parametrize(
    ("nodes", "n", "p", "q"),
    [
        (1, 270336, 2, 4),
        (2, 381952, 4, 4),
        (3, 467968, 4, 6),
        (7, 714752, 7, 8),
        (16, 1081344, 8, 16),
        (128, 3057664, 32, 32),
    ],
)
def test_sizes_of_the_ladder(nodes: int, n: int, p: int, q: int) -> None:
    plan = plan_hpl(nodes, 8, H100)
    assert (plan.n, plan.p, plan.q) == (n, p, q)
    assert not plan.remarks
    assert 0.99 < plan.matrix_mib_per_gpu / plan_hpl(1, 8, H100).matrix_mib_per_gpu <= 1.0


def test_the_reference_time_is_what_its_own_gflops_say() -> None:
    assert plan_hpl(1, 8, H100).seconds_at(4.312e5) == pytest.approx(30.55, rel=0.001)
    assert plan_hpl(16, 8, H100).seconds_at(6.551e6) == pytest.approx(128.67, rel=0.001)


@given(
    st.integers(1, 300), st.sampled_from([1, 2, 4, 8]), st.floats(8192, 300_000), st.sampled_from([128, 384, 512, 1024])
)
def test_every_plan_is_sound(nodes: int, gpus: int, memory: float, nb: int) -> None:
    try:
        plan = plan_hpl(nodes, gpus, memory, nb=nb)
    except ConfigError as error:
        assert error.cure
        return
    assert plan.p * plan.q == nodes * gpus and plan.p <= plan.q
    assert plan.n % nb == 0 and plan.n // nb >= plan.q
    assert plan.matrix_mib_per_gpu <= 0.86 * memory
    bigger = plan_hpl(nodes + 1, gpus, memory, nb=nb) if plan.n // nb >= grid((nodes + 1) * gpus)[1] else plan
    assert bigger.n >= plan.n
    assert read(render(plan)) == (plan.n, plan.nb, plan.p, plan.q)


@given(st.integers(1, 5000))
def test_the_grid_is_the_squarest(processes: int) -> None:
    p, q = grid(processes)
    assert p * q == processes and p <= q
    assert all(processes % d for d in range(p + 1, math.isqrt(processes) + 1))


def test_a_grid_far_from_square_is_remarked() -> None:
    assert "8 x 127" in plan_hpl(127, 8, H100).remarks[0]
    assert not plan_hpl(1, 3, H100).remarks


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [
        ((0, 8, H100), "hpl.nodes", "at least 1"),
        ((1, 0, H100), "hpl.gpus_per_node", "at least 1"),
        ((1, 8, H100, 1.2), "hpl.memory_fraction", "0.95"),
        ((1, 8, H100, 0.86, 0), "hpl.nb", "at least 1"),
        ((1, 8, 2.0), "hpl.gpu_memory_mib", "NB=1024 a process on 8 GPUs"),
        ((1, 8, float("nan")), "hpl.gpu_memory_mib", "MiB"),
        ((127, 8, 30.0), "hpl.nb", "127 nodes x 8 GPUs = 8 x 127"),
    ],
)
def test_sizes_that_make_no_problem_are_refused(arguments: tuple[float, ...], key: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan_hpl(*arguments)  # type: ignore[arg-type]
    assert error.value.key == key
    assert words in str(error.value)


def test_the_file_has_netlibs_layout() -> None:
    text = render(plan_hpl(1, 8, H100))
    lines = text.splitlines()
    assert len(lines) == 31 and text.endswith("\n")
    assert lines[0] == "HPLinpack benchmark input file"
    assert lines[4].split()[0] == "1" and lines[5].split() == ["270336", "Ns"]
    assert lines[7].split() == ["1024", "NBs"]
    assert lines[8].startswith("1            PMAP")
    assert (lines[10].split()[0], lines[11].split()[0], lines[12].split()[0]) == ("2", "4", "16.0")
    # netlib reads the values by position: these are the meanings that its own sample file has there
    for index, word in (
        (14, "PFACTs"),
        (16, "NBMINs"),
        (18, "NDIVs"),
        (20, "RFACTs"),
        (22, "BCASTs"),
        (24, "DEPTHs"),
        (30, "alignment"),
    ):
        assert word in lines[index]


@pytest.mark.parametrize("text", ["", "a\nb\n", render(plan_hpl(1, 8, H100)).replace("270336", "x     ")])
def test_a_damaged_file_says_what_is_missing(text: str) -> None:
    with pytest.raises(ValueError, match="no Ns on line 6"):
        read(text)


def test_memory_is_in_mib() -> None:
    plan = HplPlan(1, 1, 1024, 1024, 1, 1, 8 * 1024 * 1024 / MIB, 0.0)
    assert plan.matrix_mib_per_gpu == 8 and plan.gpus == 1
