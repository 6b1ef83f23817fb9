# SPDX-License-Identifier: Apache-2.0
"""HPL.dat for a group of nodes: the process grid P x Q, the problem size N, and the file.

**How N is chosen.** The matrix of N x N doubles takes 8 N^2 bytes. On one node, N is the largest multiple of
NB x lcm(P, Q) whose matrix fits in `fraction` of the GPUs' memory, so that every process row and column gets equally
many blocks. On n nodes, N is that N times sqrt(n), rounded down to a multiple of NB: every rung of the ladder fills
each GPU as much as the single-node run did (never more), so per-node Gflops of different rungs are comparable, and N
grows with n whatever the shape of the grid.

**Where `fraction` comes from.** The reference values are N = 270336 (264 blocks of 1024) for 8 GPUs as 2 x 4 and
N = 1081344 (1056 blocks) for 128 GPUs as 8 x 16, on H100 80 GB. Both are 68.06 GiB per GPU, and 1056 = 4 x 264 =
sqrt(16) x 264, so the second follows from the first by the rule above. 264 blocks (the next step would be 268) come out
for every fraction from 0.8546 to 0.8806 of the 81559 MiB that nvidia-smi prints, and from 0.8508 to 0.8767 of a nominal
80 GiB; 0.86 lies in both with room on either side. Rounding N to NB x lcm(P, Q) at *every* size would give the two
reference values too, but is not monotonic: 31 nodes (8 x 31) would get a smaller problem than 30 (15 x 16).

The file has the layout of netlib HPL 2.x, which NVIDIA's container reads; depth, broadcast and factorisation are those
of the reference output's WR01C2R4.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from burnin.errors import ConfigError

#: Share of GPU memory for the matrix; see the module docstring for its derivation.
FRACTION = 0.86
#: Block size of NVIDIA's sample files for 80 GB parts and larger.
BLOCK = 1024
#: Grids flatter than this (Q / P) lose enough to communication to be worth a remark.
FLAT = 4.0

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HplPlan:
    """One HPL problem. `matrix_mib_per_gpu`: the matrix on each GPU (MiB); `remarks`: sentences, may be empty."""

    nodes: int
    gpus_per_node: int
    n: int
    nb: int
    p: int
    q: int
    matrix_mib_per_gpu: float
    flops: float
    remarks: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Return the number of processes, one a GPU."""
        return self.nodes * self.gpus_per_node

    def seconds_at(self, gflops: float) -> float:
        """Return how long the run takes (s) at a total speed in Gflops, without set-up and check."""
        return self.flops / (gflops * 1e9)


def grid(processes: int) -> tuple[int, int]:
    """Return (P, Q), P <= Q, P x Q = processes, as near to a square as the divisors allow."""
    if processes < 1:
        raise ConfigError("nodes x gpus_per_node", processes, "at least 1", "correct the sizes")
    p = max(d for d in range(1, math.isqrt(processes) + 1) if processes % d == 0)
    return p, processes // p


def _blocks_of_one_node(gpus: int, memory_mib: float, fraction: float, nb: int) -> int:
    """Return N / NB of the single-node problem, 0 if not even the smallest fits."""
    p, q = grid(gpus)
    step = math.lcm(p, q)
    # Whole MiB first: a fraction such as 0.86 is not exact in binary, and N must not depend on its last bit.
    budget = math.floor(memory_mib * fraction + 1e-6) * gpus * MIB
    return math.isqrt(budget // (8 * nb * nb)) // step * step


def plan_hpl(nodes: int, gpus_per_node: int, memory_mib: float, fraction: float = FRACTION, nb: int = BLOCK) -> HplPlan:
    """Return the problem for a group of nodes; `memory_mib` is one GPU's memory as nvidia-smi prints it (MiB).

    Raises ConfigError with the sizes if they make no problem: less than one block, or fewer block columns than Q, so
    that some GPUs would have nothing to do.
    """
    for key, value in (("nodes", nodes), ("gpus_per_node", gpus_per_node), ("nb", nb)):
        if value < 1:
            raise ConfigError(f"hpl.{key}", value, "a whole number of at least 1", f"correct hpl.{key}")
    if not 0 < fraction <= 0.95:
        raise ConfigError(
            "hpl.memory_fraction",
            fraction,
            "more than 0 and at most 0.95",
            "leave some memory to the workspace; 0.86 is usual",
        )
    if not memory_mib > 0 or not math.isfinite(memory_mib):
        raise ConfigError(
            "hpl.gpu_memory_mib", memory_mib, "the GPU's memory in MiB", "take it from nvidia-smi -q -d MEMORY"
        )
    base = _blocks_of_one_node(gpus_per_node, memory_mib, fraction, nb)
    if base == 0:
        raise ConfigError(
            "hpl.gpu_memory_mib",
            memory_mib,
            f"enough for one block of NB={nb} a process on {gpus_per_node} GPUs at fraction {fraction}",
            "use a smaller NB, a larger fraction, or the right memory size (MiB, not GB)",
        )
    p, q = grid(nodes * gpus_per_node)
    blocks = math.isqrt(base * base * nodes)
    n = blocks * nb
    if blocks < q:
        raise ConfigError(
            "hpl.nb",
            nb,
            f"an NB so small that N={n} has at least Q={q} blocks ({nodes} nodes x {gpus_per_node} GPUs = {p} x {q})",
            "use a smaller NB",
        )
    remarks = []
    if nodes * gpus_per_node > 3 and q / p > FLAT:
        remarks.append(
            f"{nodes} nodes x {gpus_per_node} GPUs only make a grid of {p} x {q}, far from square: expect fewer Gflops "
            "per node than at neighbouring sizes, and judge this size against itself"
        )
    return HplPlan(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        n=n,
        nb=nb,
        p=p,
        q=q,
        matrix_mib_per_gpu=8 * n * n / (nodes * gpus_per_node) / MIB,
        flops=2 / 3 * n**3 + 3 / 2 * n**2,
        remarks=tuple(remarks),
    )


#: (value, comment) of each line, netlib's order; None = filled from the plan.
_LAYOUT: tuple[tuple[str, str], ...] = (
    ("HPL.out", "output file name (if any)"),
    ("6", "device out (6=stdout,7=stderr,file)"),
    ("1", "# of problems sizes (N)"),
    ("{n}", "Ns"),
    ("1", "# of NBs"),
    ("{nb}", "NBs"),
    ("1", "PMAP process mapping (0=Row-,1=Column-major)"),
    ("1", "# of process grids (P x Q)"),
    ("{p}", "Ps"),
    ("{q}", "Qs"),
    ("16.0", "threshold"),
    ("1", "# of panel fact"),
    ("2", "PFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of recursive stopping criterium"),
    ("4", "NBMINs (>= 1)"),
    ("1", "# of panels in recursion"),
    ("2", "NDIVs"),
    ("1", "# of recursive panel fact."),
    ("1", "RFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of broadcast"),
    ("1", "BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)"),
    ("1", "# of lookahead depth"),
    ("0", "DEPTHs (>=0)"),
    ("2", "SWAP (0=bin-exch,1=long,2=mix)"),
    ("64", "swapping threshold"),
    ("0", "L1 in (0=transposed,1=no-transposed) form"),
    ("0", "U  in (0=transposed,1=no-transposed) form"),
    ("1", "Equilibration (0=no,1=yes)"),
    ("8", "memory alignment in double (> 0)"),
)


def render(plan: HplPlan) -> str:
    """Return the text of HPL.dat.

    The threshold stays 16.0: with 0 or less HPL does not check the residual, and an unchecked run proves nothing.
    """
    sizes = {"{n}": plan.n, "{nb}": plan.nb, "{p}": plan.p, "{q}": plan.q}
    lines = [
        "HPLinpack benchmark input file",
        f"burnin: {plan.nodes} nodes x {plan.gpus_per_node} GPUs",
        *(f"{sizes.get(value, value)!s:<12} {comment}" for value, comment in _LAYOUT),
    ]
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[int, int, int, int]:
    """Return (N, NB, P, Q) of the first problem in the text of an HPL.dat. Raises ValueError saying what is missing."""
    lines = text.splitlines()
    found: dict[str, int] = {}
    for name, index in (("Ns", 5), ("NBs", 7), ("Ps", 10), ("Qs", 11)):
        first = re.match(r"\s*(\d+)", lines[index]) if index < len(lines) else None
        if first is None or int(first[1]) < 1:
            raise ValueError(f"HPL.dat has no {name} on line {index + 1}")
        found[name] = int(first[1])
    return found["Ns"], found["NBs"], found["Ps"], found["Qs"]
