# SPDX-License-Identifier: Apache-2.0
"""nccl-tests: all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf."""

from __future__ import annotations

import os
import time

from model.base import LabError, around, err, nap, out, pick
from model.faults import Run, gpu_of
from model.render import gpu_bus
from model.store import Lab
from model.work import Pace, ended_early, exit_ranks, host_of, need, pid_of

#: Bus bandwidth at large sizes, GB/s: inside one H100 node, between nodes with eight NDR rails.
PEAK = {
    "all_reduce": (480.0, 373.8),
    "all_gather": (366.0, 369.5),
    "reduce_scatter": (370.0, 371.0),
    "alltoall": (343.0, 48.3),
}


NCCL_VERSION = "2.21.5+cuda12.4"


def size_of(text: str) -> int:
    """`8G` -> bytes (powers of 1024, as nccl-tests reads them)."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    number, unit = text, 1
    if text and text[-1].lower() in units:
        number, unit = text[:-1], units[text[-1].lower()]
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e15:
        raise LabError(f"invalid size specified for 'minbytes' or 'maxbytes': {text!r}")
    return int(value * unit)


def _time_text(us: float) -> str:
    return f"{us:7.0f}" if us >= 10000 else f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"


class Test:
    """One program run."""

    def __init__(self, lab: Lab, program: str, argv: list[str]) -> None:
        self.collective = program.removesuffix("_perf")
        self.run = Run(lab, "nccl")
        self.low, self.high, self.factor, self.step_bytes = 32 << 20, 32 << 20, 0, 1 << 20
        self.iters, self.warmup, self.check, self.cycles = 20, 5, 1, 1
        self._parse(argv)

    def _parse(self, argv: list[str]) -> None:
        long = {
            "minbytes": "b",
            "maxbytes": "e",
            "stepbytes": "i",
            "stepfactor": "f",
            "iters": "n",
            "warmup_iters": "w",
            "check": "c",
            "run_cycles": "N",
        }
        i = 0
        while i < len(argv):
            arg, value = argv[i], None
            if arg.startswith("--"):
                name, eq, text = arg[2:].partition("=")
                key = long.get(name, "?")
                value = text if eq else None
            elif arg.startswith("-") and len(arg) >= 2:
                key = arg[1]
                value = arg[2:] or None
            else:
                i += 1
                continue
            if value is None:
                i += 1
                value = argv[i] if i < len(argv) else None
            i += 1
            if key == "b":
                self.low = size_of(need(value, arg))
            elif key == "e":
                self.high = size_of(need(value, arg))
            elif key == "i":
                self.step_bytes = size_of(need(value, arg))
            elif key in "fnwcN":
                text = need(value, arg)
                if not text.isdigit():
                    raise LabError(f"{arg} {text!r}: give a whole number")
                number = int(text)
                if key == "f":
                    self.factor = number
                elif key == "n":
                    self.iters = number
                elif key == "w":
                    self.warmup = number
                elif key == "c":
                    self.check = number
                else:
                    self.cycles = number
        self.high = max(self.high, self.low)
        if self.factor == 1:
            raise LabError("invalid size steps: -f 1 never ends")

    def sizes(self) -> list[int]:
        """The sizes of one sweep, bytes."""
        sizes: list[int] = []
        size = self.low
        while size <= self.high and len(sizes) < 4096:
            sizes.append(size)
            if self.factor > 1:
                size *= self.factor
            elif self.step_bytes:
                size += self.step_bytes
            else:
                break
            if size == 0:
                break
        return sizes

    def cells(self, size: int, placement: str, cycle: int) -> tuple[float, float, float]:
        """(time us, algbw, busbw) of one measurement."""
        run = self.run
        ranks = len(run.nodes) * run.gpus
        single, multi = PEAK[self.collective]
        peak = single
        if run.multi:
            # A few GB/s more on few nodes: trees are shallower, NVLink carries a larger share.
            peak = multi * (1.0 + 0.012 / len(run.nodes))
        peak *= min(run.fabric_factor(size), run.nvlink_factor())
        peak *= around(0.0016, self.collective, size, placement, cycle, *run.key)
        if placement == "in":
            peak *= 1.0009
        peak *= size / (size + 24e6) if size else 0.0
        share = (ranks - 1) / ranks if ranks > 1 else 0.0
        share = 2 * share if self.collective == "all_reduce" else share
        if not share or not peak:
            return (5.0, 0.0, 0.0)
        algbw = max(peak / share, size / 40e3 / 1e3 if size < 1e6 else 0.0)
        us = size / (algbw * 1e3)
        return (us, algbw, algbw * share)

    def wrong(self, size: int, placement: str, cycle: int) -> int:
        """Elements that came out wrong."""
        fault = self.run.find("silent_data_corruption")
        if fault is None or size < self.high or (placement == "in" and self.collective == "alltoall"):
            return 0
        self.run.happened(fault)
        return pick(1, 24, "wrong", placement, cycle, *self.run.key)

    def header(self) -> None:
        """Parameters and devices."""
        run = self.run
        cycles = "" if self.cycles == 1 else f" run cycles: {self.cycles}"
        step = f"{self.factor}(factor)" if self.factor > 1 else f"{self.step_bytes}(bytes)"
        lines = [
            f"# nThread 1 nGpus 1 minBytes {self.low} maxBytes {self.high} step: {step} warmup iters: {self.warmup} "
            f"iters: {self.iters} agg iters: 1 validation: {int(bool(self.check))} graph: 0{cycles}",
            "#",
            "# Using devices",
        ]
        ranks = len(run.nodes) * run.gpus
        width = max(2, len(str(ranks - 1)))
        for rank in range(ranks):
            lines.append(
                f"#  Rank {rank:{width}d} Group  0 Pid {pid_of(run, rank):6d} on {host_of(run, rank):>10s} device "
                f"{rank % run.gpus:2d} [0x{gpu_bus(rank % run.gpus)}] NVIDIA H100 80GB HBM3"
            )
        lines.append("#")
        out("\n".join(lines))

    def network(self) -> None:
        """NCCL's own lines about the transport (the lab's /etc/nccl.conf says NCCL_DEBUG=INFO, subsystems INIT,NET)."""
        level = os.environ.get("NCCL_DEBUG", "INFO").upper()
        if level in ("INFO", "TRACE"):
            network_lines(self.run)
        elif level in ("WARN", "VERSION"):
            out(f"NCCL version {NCCL_VERSION}")

    def table_head(self) -> None:
        """The three lines above the rows."""
        out(
            "#                                                              out-of-place                       in-place\n"
            "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
            "busbw #wrong\n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
        )

    def row_head(self, size: int) -> str:
        """The five fields that are printed before the measurement."""
        count = size // 4
        if self.collective != "all_reduce":
            count //= len(self.run.nodes) * self.run.gpus
        redop = "none" if self.collective in ("all_gather", "alltoall") else "sum"
        return f"{size:12d}  {count:12d}  {'float':>8s}  {redop:>6s}  {-1:6d}"

    def fail_before(self) -> int | None:
        """Ways to end before the first row."""
        run = self.run
        fault = run.find("driver_mismatch")
        if fault:
            run.happened(fault)
            rank = run.rank(fault)
            host = fault["node"]
            out(
                f"{host}: Test CUDA failure common.cu:964 'CUDA driver version is insufficient for CUDA runtime version'\n"
                f" .. {host} pid {pid_of(run, rank)}: Test failure common.cu:843"
            )
            return exit_ranks(run, [rank], 2)
        fault = run.find("missing_gpu") or (run.find("gpu_off_bus") if self._gone_before() else None)
        if fault:
            rank = run.failing_rank(fault)
            word = "invalid device ordinal" if fault["kind"] == "missing_gpu" else "no CUDA-capable device is detected"
            host = fault["node"]
            out(
                f"{host}: Test CUDA failure common.cu:964 '{word}'\n"
                f" .. {host} pid {pid_of(run, rank)}: Test failure common.cu:843"
            )
            return exit_ranks(run, [rank], 2)
        fault = run.find("oom_one_node")
        if fault:
            run.happened(fault)
            rank, host = run.rank(fault), fault["node"]
            self.header()
            out(
                f"{host}: Test CUDA failure common.cu:421 'out of memory'\n"
                f" .. {host} pid {pid_of(run, rank)}: Test failure common.cu:1021"
            )
            return exit_ranks(run, [rank], 2)
        return None

    def _gone_before(self) -> bool:
        fault = self.run.find("gpu_off_bus")
        return fault is not None and self.run.was_there(fault)

    def fail_amid(self) -> int | None:
        """Ways to end between the rows; the row's first fields are out already."""
        run = self.run
        status = ended_early(run, before_limit=lambda: out(""))
        if status is not None:
            return status
        fault = run.find("gpu_off_bus", "hbm_ecc_uncorrectable")
        if fault:
            run.happened(fault)
            rank, host, gpu = run.rank(fault), fault["node"], gpu_of(fault, run.lab)
            word = {
                "gpu_off_bus": "unspecified launch failure",
                "hbm_ecc_uncorrectable": "uncorrectable ECC error encountered",
            }[fault["kind"]]
            out("")
            out(f"\n{host}:{pid_of(run, rank)}:{pid_of(run, rank) + 171} [{gpu}] NCCL WARN Cuda failure '{word}'")
            out(
                f"{host}: Test CUDA failure common.cu:303 '{word}'\n"
                f" .. {host} pid {pid_of(run, rank)}: Test failure common.cu:401"
            )
            for other in range(len(run.nodes) * run.gpus):
                if other != rank:
                    name = host_of(run, other)
                    out(
                        f"{name}: Test NCCL failure common.cu:303 'remote process exited or there was a network error / '\n"
                        f" .. {name} pid {pid_of(run, other)}: Test failure common.cu:401"
                    )
            return exit_ranks(run, [rank], 2)
        return None

    def amid(self) -> None:
        """What NCCL warns about while it runs on."""
        port_warnings(self.run)

    def main(self) -> int:
        """Print one run."""
        run = self.run
        status = self.fail_before()
        if status is not None:
            return status
        self.header()
        self.network()
        sizes = self.sizes()
        pace = Pace(2 * len(sizes) * max(self.cycles, 1))
        busbws: list[float] = []
        errors, cycle = 0, 0
        fail_at = min(1, len(sizes) - 1)
        while self.cycles == 0 or cycle < self.cycles:
            self.table_head()
            for index, size in enumerate(sizes):
                head = self.row_head(size)
                if index == fail_at and cycle == 0:
                    if run.find("hang", "node_crash", "time_limit", "gpu_off_bus", "hbm_ecc_uncorrectable"):
                        pace()
                        os.write(1, head.encode())
                        status = self.fail_amid()
                        if status is not None:
                            return status
                    self.amid()
                cells = []
                for placement in ("out", "in"):
                    us, algbw, busbw = self.cells(size, placement, cycle)
                    wrong = self.wrong(size, placement, cycle) if self.check else 0
                    errors += bool(wrong)
                    unchecked = not self.check or (placement == "in" and self.collective == "alltoall")
                    cells.append(f"  {_time_text(us)}  {algbw:6.2f}  {busbw:6.2f}  {'N/A' if unchecked else wrong:>5}")
                    busbws.append(busbw)
                    pace()
                out(head + cells[0] + cells[1])
            cycle += 1
            if self.cycles == 0 and pace.each <= 0:
                nap(0.2)
        out(f"# Out of bounds values : {errors} {'FAILED' if errors else 'OK'}")
        out(f"# Avg bus bandwidth    : {sum(busbws) / len(busbws):g} ")
        out("#\n")
        for fault in run.shows:
            run.happened(fault)
        return exit_ranks(run, list(range(len(run.nodes) * run.gpus)), 7, True) if errors else 0


def network_lines(run: Run) -> None:
    """Which transport NCCL took, from the first rank of each node that has something else to say than the first."""
    host, pid = run.nodes[0], pid_of(run, 0)
    fault = run.find("nccl_on_sockets")
    where = f"{host}:{pid}:{pid} [0] NCCL INFO"
    out(f"{host}:{pid}:{pid} [0] NCCL INFO NCCL version {NCCL_VERSION}")
    bad = [] if fault is None else [fault["node"]] if fault["node"] else run.nodes
    if fault is not None:
        run.happened(fault)
    if not bad:
        devices = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(run.gpus))
        out(f"{where} NET/IB : Using {devices} [RO]; OOB eth0:10.0.0.{run.lab.nodes.index(host) % 250 + 1}<0>")
        out(f"{where} Using network IB")
        return
    for name in bad:
        first = run.nodes.index(name) * run.gpus
        at = f"{name}:{pid_of(run, first)}:{pid_of(run, first)} [0] NCCL INFO"
        address = f"10.0.0.{run.lab.nodes.index(name) % 250 + 1}"
        out(f"{at} NET/IB : No device found.\n{at} NET/Socket : Using [0]eth0:{address}<0>\n{at} Using network Socket")


def port_warnings(run: Run) -> None:
    """Port errors of degraded links, once an iteration, where there is traffic between nodes."""
    if not run.multi:
        return
    for fault in run.shows:
        if fault["kind"] not in ("link_degrading", "link_flap"):
            continue
        run.happened(fault)
        if fault["kind"] == "link_degrading" and run.age(fault) % 2:
            continue
        hca = fault["part"]
        gpu = int(hca[5:])
        rank = run.nodes.index(fault["node"]) * run.gpus + gpu
        pid = pid_of(run, rank)
        for word in ("port error", "port active"):
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            out(
                f"\n[{when}] {fault['node']}:{pid}:{pid + 179} [{gpu}] transport/net_ib.cc:199 NCCL WARN NET/IB : "
                f"{hca}:1 Got async event: {word}"
            )


def main(lab: Lab, program: str, argv: list[str]) -> int:
    """Entry of the four programs."""
    try:
        return Test(lab, program, argv).main()
    except LabError as problem:
        err(f"{program}: {problem}")
        return 1
