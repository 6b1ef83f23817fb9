# SPDX-License-Identifier: Apache-2.0
"""hpl.sh of the NVIDIA HPC-Benchmarks container (24.3 layout)."""

from __future__ import annotations

import math
import time

from model.base import around, between, err, out, read_text
from model.faults import Run, gpu_of
from model.nccl import network_lines, port_warnings
from model.render import gpu_bus
from model.store import Lab
from model.work import Pace, ended_early, exit_ranks, host_of, pid_of

NODE_GFLOPS = 4.312e5
LABELS = {"Ns": "n", "NBs": "nb", "Ps": "p", "Qs": "q", "threshold": "threshold", "PMAP": "pmap"}


def read_dat(text: str) -> dict[str, list[float]]:
    """Values of an HPL.dat by what their line's label says."""
    values: dict[str, list[float]] = {}
    for line in text.splitlines():
        words = line.split()
        numbers = []
        for word in words:
            try:
                numbers.append(float(word))
            except ValueError:
                break
        if numbers and len(words) > len(numbers) and words[len(numbers)] in LABELS:
            values[LABELS[words[len(numbers)]]] = numbers
    return values


def near_square(ranks: int) -> tuple[int, int]:
    """P x Q = ranks, as square as it goes, P <= Q."""
    p = math.isqrt(ranks)
    while ranks % p:
        p -= 1
    return p, ranks // p


class Hpl:
    """One run of hpl.sh."""

    def __init__(self, lab: Lab, argv: list[str]) -> None:
        self.run = Run(lab, "hpl")
        ranks = len(self.run.nodes) * self.run.gpus
        self.nb = 1024
        self.p, self.q = near_square(ranks)
        self.n = int(270336 * math.sqrt(ranks / 8)) // 1024 * 1024
        self.threshold = 16.0
        self.missing: str | None = None
        for i, arg in enumerate(argv):
            name, eq, value = arg.partition("=")
            if name == "--dat":
                path = value if eq else argv[i + 1] if i + 1 < len(argv) else ""
                text = read_text(path) if path else None
                if text is None:
                    # Paths inside the container do not exist here: the container's sample for this size.
                    if not path.startswith(("/workspace/", "/dat/")):
                        self.missing = path
                    continue
                values = read_dat(text)
                self.n = int(values.get("n", [self.n])[0])
                self.nb = int(values.get("nb", [self.nb])[0]) or 1024
                self.p = int(values.get("p", [self.p])[0])
                self.q = int(values.get("q", [self.q])[0])
                self.threshold = values.get("threshold", [16.0])[0]

    def gflops(self) -> float:
        """Total speed: every node at the pace of the slowest, less what the network costs at scale."""
        run = self.run
        slowest = min(run.compute_factor(node) for node in run.nodes)
        nodes = len(run.nodes)
        scale = 1.0 - min(0.05, 0.0125 * math.log2(nodes))
        fabric = run.fabric_factor("hpl")
        network = 1.0 - (1.0 - fabric) * (0.75 if fabric > 0.1 else 0.68)
        used = min(1.0, self.p * self.q / (nodes * run.gpus))
        nvlink = 0.96 if run.find("nvlink_error") else 1.0
        return NODE_GFLOPS * nodes * slowest * scale * network * nvlink * used * around(0.001, "hpl", *run.key)

    def banner(self) -> None:
        """Everything above the progress lines."""
        run = self.run
        bar = "=" * 80
        out(
            f"pyxis: importing docker image: nvcr.io#nvidia/hpc-benchmarks:24.03\n"
            f"pyxis: imported docker image: nvcr.io#nvidia/hpc-benchmarks:24.03\n"
            f"{bar}\nHPL-NVIDIA 24.3.0  -- NVIDIA accelerated HPL benchmark -- NVIDIA\n{bar}\n"
            "HPLinpack 2.1  --  High-Performance Linpack benchmark  --   October 26, 2012\n"
            "Written by A. Petitet and R. Clint Whaley,  Innovative Computing Laboratory, UTK\n"
            f"{bar}\n\n"
            "An explanation of the input/output parameters follows:\n"
            "T/V    : Wall time / encoded variant.\nN      : The order of the coefficient matrix A.\n"
            "NB     : The partitioning blocking factor.\nP      : The number of process rows.\n"
            "Q      : The number of process columns.\nTime   : Time in seconds to solve the linear system.\n"
            "Gflops : Rate of execution for solving the linear system.\n\n"
            "The following parameter values will be used:\n\n"
            f"N        : {self.n:7d}\nNB       : {self.nb:7d}\nPMAP     : Column-major process mapping\n"
            f"P        : {self.p:7d}\nQ        : {self.q:7d}\n"
            "PFACT    :    Left\nNBMIN    :       2\nNDIV     :       2\nRFACT    :    Left\n"
            "BCAST    :  2ringM\nDEPTH    :       1\nSWAP     : Spread-roll (long)\n"
            "L1       : no-transposed form\nU        : transposed form\nEQUIL    : no\nALIGN    : 8 double precision words\n\n"
            + "-"
            * 80
            + "\n\n- The matrix A is randomly generated for each test.\n"
            "- The following scaled residual check will be computed:\n"
            "      ||Ax-b||_oo / ( eps * ( || x ||_oo * || A ||_oo + || b ||_oo ) * N )\n"
            "- The relative machine precision (eps) is taken to be               1.110223e-16\n"
            f"- Computational tests pass if scaled residuals are less than                {self.threshold:.1f}\n"
        )
        if run.multi or run.find("nccl_on_sockets"):
            network_lines(run)

    def error(self, function: str, text: str) -> None:
        """HPL's own form of an error."""
        out(f"HPL ERROR from process # 0, on line 331 of function {function}:\n>>> {text} <<<\n")

    def cuda(self, rank: int, word: str) -> None:
        """A rank's CUDA error."""
        run = self.run
        out(f"[{host_of(run, rank)}:{pid_of(run, rank)}] rank {rank}: CUDA error: {word} (hpl_gpu.cpp:412)")

    def main(self) -> int:
        """Print one run."""
        run = self.run
        self.banner()
        if self.missing is not None:
            self.error("HPL_pdinfo", f"cannot open file {self.missing}")
            return exit_ranks(run, list(range(len(run.nodes) * run.gpus)), 1, True)
        ranks = len(run.nodes) * run.gpus
        if self.p * self.q > ranks or self.p < 1 or self.q < 1:
            self.error("HPL_pdinfo", f"Need at least {self.p * self.q} processes for these tests")
            self.error("HPL_pdinfo", "Illegal input in file HPL.dat. Exiting ...")
            return exit_ranks(run, list(range(ranks)), 1, True)
        fault = run.find("driver_mismatch")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            self.cuda(rank, "CUDA driver version is insufficient for CUDA runtime version")
            return exit_ranks(run, [rank], 1)
        fault = run.find("missing_gpu", "gpu_off_bus")
        if fault and (fault["kind"] == "missing_gpu" or run.was_there(fault)):
            rank = run.failing_rank(fault)
            self.cuda(
                rank,
                "invalid device ordinal" if fault["kind"] == "missing_gpu" else "no CUDA-capable device is detected",
            )
            return exit_ranks(run, [rank], 1)
        fault = run.find("oom_one_node")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            self.cuda(rank, "out of memory")
            self.error(
                "HPL_pdtest", f"[{rank % self.p},{rank // self.p}] Memory allocation failed for A, x and b. Skip."
            )
            self.footer(1, 0, 0, 1)
            return exit_ranks(run, [rank], 1)
        return self.solve()

    def footer(self, tests: int, passed: int, failed: int, skipped: int) -> None:
        """The count of tests."""
        bar = "=" * 80
        checks = "passed residual checks," if self.threshold > 0 else "without checking,"
        lines = [
            f"Finished {tests:6d} tests with the following results:",
            f"         {passed:6d} tests completed " + (f"and {checks}" if self.threshold > 0 else checks),
        ]
        if self.threshold > 0:
            lines.append(f"         {failed:6d} tests completed and failed residual checks,")
        lines.append(f"         {skipped:6d} tests skipped because of illegal input values.")
        out("\n".join(lines) + "\n" + "-" * 80 + f"\n\nEnd of Tests.\n{bar}")

    def solve(self) -> int:
        """Progress, result, residual."""
        run = self.run
        gflops = self.gflops()
        flops = 2.0 / 3.0 * self.n**3 + 1.5 * self.n**2
        seconds = flops / (gflops * 1e9)
        ranks = self.p * self.q
        steps = 12
        pace = Pace(steps)
        for i in range(1, steps + 1):
            if i == steps // 2:
                status = self.fail_amid()
                if status is not None:
                    return status
                port_warnings(run)
            left = int(self.n * (1.0 - i / (steps + 1)) ** 1.0)
            done = 1.0 - (left / self.n) ** 3
            elapsed = seconds * done
            now = gflops * (1.0 - 0.03 * i / steps) * around(0.004, "igf", i, *run.key)
            mean = gflops * around(0.002, "gf", i, *run.key)
            out(
                f" Prog= {done * 100:.2f}%\tN_left= {left}\tTime= {elapsed:.2f}\tTime_left= {seconds - elapsed:.2f}\t"
                f"iGF= {now:.2f}\tGF= {mean:.2f}\tiGF_per= {now / ranks:.2f}\tGF_per= {mean / ranks:.2f}"
            )
            pace()
        bar, thin = "=" * 80, "-" * 80
        bad = run.find("silent_data_corruption")
        residual = between(2.7e-3, 3.4e-3, "residual", *run.key)
        if bad:
            run.happened(bad)
            residual = between(2.0e3, 9.0e5, "residual", *run.key)
        passed = residual < self.threshold
        start = time.time()
        text = (
            f"{bar}\nT/V                N    NB     P     Q               Time                 Gflops\n{thin}\n"
            f"WR01C2R4{self.n:12d} {self.nb:5d} {self.p:5d} {self.q:5d} {seconds:18.2f} {gflops:22.3e}\n"
            f"HPL_pdgesv() start time {time.ctime(start - seconds)}\n\nHPL_pdgesv() end time   {time.ctime(start)}\n\n{thin}\n"
        )
        if self.threshold > 0:
            text += f"||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)={residual:22.8e} ...... {'PASSED' if passed else 'FAILED'}\n"
            if not passed:
                text += (
                    f"||Ax-b||_oo  . . . . . . . . . . . . . . . . . = {residual * 1e-7:18.6e}\n"
                    f"||A||_oo . . . . . . . . . . . . . . . . . . . = {self.n / 4.0:18.6f}\n"
                )
        out(text + bar + "\n")
        self.footer(1, int(passed or self.threshold <= 0), int(not passed and self.threshold > 0), 0)
        for fault in run.shows:
            run.happened(fault)
        return 0

    def fail_amid(self) -> int | None:
        """Ways to end in the middle."""
        run = self.run
        status = ended_early(run)
        if status is not None:
            return status
        fault = run.find("gpu_off_bus", "hbm_ecc_uncorrectable")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            word = (
                "unspecified launch failure"
                if fault["kind"] == "gpu_off_bus"
                else "uncorrectable ECC error encountered"
            )
            gpu = gpu_of(fault, run.lab)
            out(
                f"\n{host_of(run, rank)}:{pid_of(run, rank)}:{pid_of(run, rank) + 171} [{gpu}] NCCL WARN Cuda failure '{word}'"
            )
            self.cuda(rank, word)
            bdf = f"0000:{gpu_bus(gpu).upper()}:00.0"
            out(f"[{host_of(run, rank)}:{pid_of(run, rank)}] rank {rank}: GPU {bdf} is not usable, aborting")
            return exit_ranks(run, [rank], 1)
        return None


def main(lab: Lab, argv: list[str]) -> int:
    """Entry."""
    if not argv:
        err("hpl.sh: give --dat FILE")
        return 1
    return Hpl(lab, argv).main()
