# SPDX-License-Identifier: Apache-2.0
"""Compare the readers' speed with `grep -E` on the same files, in the same run (`make bench-read`).

Writes a 1 GB nccl-tests log with NCCL_DEBUG=INFO, a 24-hour `dcgmi dmon` file of 8 GPUs and a 100 MB kernel log into a
temporary folder, then runs grep and the reader in turns, each as a process of its own, `--repeat` times, and prints
the median of the ratios of wall time (and the lowest), the best times, and the reader's peak memory. Targets: nccl at
most 2 times grep and 200 MB, the others at most 3 times grep.

The reader's own time excludes what a process does once before it reads anything: the start of Python and the loading of
the reader's modules, numpy among them for dcgmi dmon (each reader reads the first 2 MB of the file once before the
clock starts). Both are printed: for files of some MB they are longer than the whole reading.

The record of dcgmi dmon is that of GPUs under a constant load. One in whose columns numbers now have more, now fewer
digits (99 and 100, in all of them but one) took about four times grep, when it was tried once.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PATTERN = "Avg bus bandwidth|#wrong|WARN|error"
#: What grep would have to be asked to find the lines that the reader reads, where that is not `PATTERN`.
SAME_LINES = {
    "dcgmi-dmon": "^GPU [0-9]+",
    "dmesg": "NVRM|SXid|mlx5_core|PCIe Bus Error|EDAC MC|AER: |Hardware Error|blocked for more|Out of memory",
}
ROOT = Path(__file__).resolve().parents[1]
READER = """
import sys, time, json
sys.path.insert(0, sys.argv[3])
from burnin import parsers
begin = time.perf_counter()
with open(sys.argv[2], "rb") as file:
    parsers.read_bytes(sys.argv[1], file.read(2 << 20))
loading = time.perf_counter() - begin
wall, cpu = time.perf_counter(), time.process_time()
reading = parsers.read_file(sys.argv[1], sys.argv[2], strict=True)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, loading, reading.recognised, reading.complete,
                  reading.verdict, len(reading.signals)]))
"""


def nccl_block(rng: random.Random, nodes: int = 2, collectives: int = 400) -> str:
    """Return the output of one iteration of all_reduce_perf with NCCL_DEBUG=INFO: about 1.4 MB."""
    ranks = nodes * 8

    def head(rank: int) -> str:
        return f"burn{rank // 8 + 1:02d}:{41000 + rank}:{41050 + rank} [{rank % 8}] NCCL INFO "

    out = [
        "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20"
        " agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        host, gpu = f"burn{rank // 8 + 1:02d}", rank % 8
        out.append(
            f"#  Rank {rank:2d} Group  0 Pid {41000 + rank:6d} on {host:>10} device {gpu:2d} [0000:{0x1B + gpu * 9:02x}:00]"
            " NVIDIA H100 80GB HBM3"
        )
    for rank in range(ranks):
        out.append(head(rank) + "Using network IB")
        for channel in range(32):
            to = (rank + 1) % ranks
            out.append(
                f"{head(rank)}Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {to}[{to % 8}] [send] via NET/IB/0/GDRDMA"
            )
            out.append(f"{head(rank)}Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {to}[{to % 8}] via P2P/CUMEM/read")
    for operation in range(collectives):
        for rank in range(ranks):
            out.append(
                f"{head(rank)}AllReduce: opCount {operation:x} sendbuff 0x7f{rng.getrandbits(40):010x} recvbuff"
                f" 0x7f{rng.getrandbits(40):010x} acc (nil) count 2147483648 datatype 7 op 0 root 0 comm"
                f" 0x55{rng.getrandbits(32):08x} [nranks={ranks}] stream 0x55{rng.getrandbits(32):08x}"
            )
    busbw = 361.0 + rng.uniform(-0.5, 0.5)
    out += [
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    for size in (8 << 30, 16 << 30):
        algbw = busbw / 1.875
        row = f"{size / algbw / 1e3:8.1f}  {algbw:6.2f}  {busbw:6.2f}      0"
        out.append(f"{size:12d}  {size // 4:12d}     float     sum      -1 {row} {row}")
    out += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {busbw:.3f} ", "#"]
    return "\n".join(out) + "\n"


def write_nccl(path: Path, size: int) -> None:
    """Write iterations until the file has `size` bytes."""
    rng = random.Random(1)
    blocks = [nccl_block(rng).encode() for _ in range(8)]
    written = 0
    with path.open("wb") as handle:
        while written < size:
            written += handle.write(blocks[rng.randrange(8)])


def dmon_rows(seconds: int, step: int) -> Iterator[str]:
    """Yield the blocks of `dcgmi dmon -e 150,155,203,1002 -d <step>` on 8 GPUs."""
    rng = random.Random(2)
    for at in range(0, seconds, step):
        if at % (step * 14) == 0:
            yield "#Entity   TMPTR  POWER                  GPUTL  SMACT\n"
            yield "ID        C      W                      %                \n"
        yield "".join(
            f"GPU {gpu}     {62 + rng.randrange(3):<7d}{690 + rng.random() * 3:<23.3f}{100:<7d}0.98{rng.randrange(9):<6d}\n"
            for gpu in range(8)
        )


def write_dmon(path: Path, size: int) -> None:
    """Write 24 hours, one sample of 8 GPUs every second (dcgmi's default); `size` is ignored."""
    with path.open("w") as handle:
        handle.writelines(dmon_rows(86_400, 1))


def write_dmesg(path: Path, size: int) -> None:
    """Write a kernel log of `size` bytes: mostly noise, a few Xids and AER lines."""
    rng = random.Random(3)
    noise = [
        "systemd[1]: Started Session 411 of User root.",
        'audit: type=1400 audit(1767931912.123:77): apparmor="STATUS" operation="profile_load" name="x" pid=411',
        "IPv6: ADDRCONF(NETDEV_CHANGE): veth411: link becomes ready",
        "docker0: port 3(veth411) entered forwarding state",
        "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        "LNet: 4110:0:(api-ni.c:2010:lnet_startup()) Added LNI 10.0.0.7@o2ib [8/256/0/180]",
    ]
    written, at = 0, 10.0
    with path.open("w") as handle:
        while written < size:
            lines = []
            for _ in range(2000):
                at += rng.random() * 0.2
                lines.append(f"[{at:12.6f}] {noise[rng.randrange(len(noise))]}")
            if rng.random() < 0.02:
                lines.append(
                    f"[{at:12.6f}] NVRM: Xid (PCI:0000:c3:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row"
                )
            written += handle.write("\n".join(lines) + "\n")


def run(argv: list[str]) -> tuple[float, float, int, bytes]:
    """Run a process; return (wall seconds, processor seconds, peak memory in MB, the end of its output).

    No more of the output is kept: a child's peak memory counts from that of its parent.
    """
    begin = time.perf_counter()
    output = b""
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := process.stdout.read(1 << 16):
            output = piece
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begin
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, output


def measure(tool: str, path: Path, repeat: int, limit: float, memory: int | None) -> bool:
    """Run grep and the reader in turns, print one row of the table, and return whether the targets are met."""
    import json

    grep: list[tuple[float, float]] = []
    same: list[tuple[float, float]] = []
    read: list[tuple[float, float]] = []
    start, load, peak, facts = 1e9, 1e9, 0, []
    for _ in range(repeat):
        wall, cpu, _, _ = run(["grep", "-E", PATTERN, str(path)])
        grep.append((wall, cpu))
        wall, cpu, rss, output = run([sys.executable, "-c", READER, tool, str(path), str(ROOT / "workflow")])
        inner_wall, inner_cpu, loading, *facts = json.loads(output)
        read.append((inner_wall, inner_cpu))
        start, load, peak = min(start, wall - inner_wall - loading), min(load, loading), max(peak, rss)
        wall, cpu, _, _ = run(["grep", "-E", SAME_LINES.get(tool, PATTERN), str(path)])
        same.append((wall, cpu))
    (grep_wall, grep_cpu), (same_wall, same_cpu), (read_wall, read_cpu) = (
        tuple(min(v[i] for v in x) for i in (0, 1)) for x in (grep, same, read)
    )
    ratios = sorted(r[0] / g[0] for r, g in zip(read, grep, strict=True))
    ratio = statistics.median(ratios)
    good = ratio <= limit and (memory is None or peak <= memory)
    print(
        f"{tool:11s} {path.stat().st_size / 1e6:5.0f} MB: reader {read_wall:.3f} s ({read_cpu:.3f} cpu), peak {peak} MB\n"
        f"    {ratio:5.2f} x grep {PATTERN!r} in the middle of {repeat} tries, {ratios[0]:.2f} in the best "
        f"({grep_wall:.3f} s, {grep_cpu:.3f} cpu), target {limit:.0f}: {'ok' if good else 'MISSED'}"
    )
    if tool in SAME_LINES:
        print(f"    {read_wall / same_wall:5.2f} x grep for the lines it reads ({same_wall:.3f} s, {same_cpu:.3f} cpu)")
    print(f"    before: start of Python {start:.2f} s, loading the reader {load:.2f} s; reading: {facts}", flush=True)
    return good


def main() -> int:
    """Generate, measure, print; exit 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the nccl log (default 1)")
    parser.add_argument("--repeat", type=int, default=5, help="tries of each; their median counts (default 5)")
    parser.add_argument("--only", choices=("nccl", "dcgmi-dmon", "dmesg"), help="one file only")
    options = parser.parse_args()
    jobs = [
        ("nccl", write_nccl, int(options.gigabytes * (1 << 30)), 2.0, 200),
        ("dcgmi-dmon", write_dmon, 0, 3.0, 200),
        ("dmesg", write_dmesg, 100_000_000, 3.0, 200),
    ]
    good = True
    with tempfile.TemporaryDirectory(prefix="burnin-bench-") as folder:
        for tool, write, size, limit, memory in jobs:
            if options.only not in (None, tool):
                continue
            path = Path(folder) / f"{tool}.log"
            write(path, size)
            good &= measure(tool, path, options.repeat, limit, memory)
            path.unlink()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
