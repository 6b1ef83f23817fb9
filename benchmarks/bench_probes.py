# SPDX-License-Identifier: Apache-2.0
"""What probes cost: bytes a node, bytes a day at 1,024 nodes, seconds until all nodes are read.

`python benchmarks/bench_probes.py [NODES]` takes the probe of a lab node with the commands of config/config.yaml, adds the
kernel log of a real node to it (some 4,000 lines after boot; the lab prints 40), reads copies of it as a run would, and says
what that is for NODES nodes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from burnin import config as configuration
from burnin import parsers, storage
from burnin.campaign import Campaign
from burnin.paths import RunRef
from burnin.runs import journal, probing
from burnin.runs.news import Known
from burnin.runs.probing import Probe
from burnin.runs.spec import RunSpec

ROOT = Path(__file__).resolve().parents[1]
KERNEL_LINES = 4000
SAMPLE = 32  # nodes that are really read
WORDS = (
    "pci 0000:{:02x}:00.0: BAR {}: assigned [mem 0x{:08x}-0x{:08x} 64bit pref]",
    "nvme nvme{}: {}/{}/{} default/read/poll queues",
    "systemd[1]: Started unit {} after {} with {} and {}.",
    "ACPI: SSDT 0x{:016x} {:06d} (v02 {} {})",
)


def spec_of(folder: Path, nodes: int) -> RunSpec:
    """Return a run of so many nodes of the lab."""
    raw = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    names = f"dgx[0001-{nodes:04d}]"
    folder.mkdir()
    scenario = folder / "scenario.yaml"
    scenario.write_text(yaml.safe_dump({"nodes": names, "gpus_per_node": 8, "faults": []}))
    raw |= {"results": str(folder / "results"), "nodes": names, "scenario": str(scenario), "path_first": ["lab/slurm"]}
    campaign = Campaign(configuration.load(raw, ROOT))
    campaign.begin()
    ref = RunRef(campaign.dir, "full", 0, "nccl", "everybody")
    return RunSpec(ref, "0" * 16, campaign.config, campaign.config.nodes, {"hours": 24.0}, 0)


def probe_of_one_node(folder: Path) -> bytes:
    """Return the file of one lab node, its kernel log as long as a real one's."""
    spec = spec_of(folder, 1)
    attempt = spec.run_dir / "attempt0"
    probe = Probe(spec, attempt, "before", spec.environment(os.environ), Known())
    (summary,) = probe.collect().values()
    lines = storage.read_raw(spec.run_dir / summary["file"]).decode().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("#@burnin begin dmesg")) + 1
    noise = [WORDS[i % 4].format(i % 256, i * 7919, i * 104729, i * 15485863) for i in range(KERNEL_LINES)]
    stamp = lines[at].partition("]")[0]
    lines[at:at] = [f"{stamp}] {text}" for text in noise]
    return ("\n".join(lines) + "\n").encode()


def measured(spec: RunSpec, content: bytes, name: str, known: Known) -> tuple[float, dict[str, Any], int]:
    """Read such a file of every node; return seconds, the journal's record, bytes kept on disk."""
    attempt = spec.run_dir / "attempt0"
    probe = Probe(spec, attempt, name, {**os.environ, "PATH": "/nonexistent"}, known)
    for node in spec.nodes:
        (probe.folder / f"{node}.txt").write_bytes(content)
    probe._began = time.time()
    began = time.perf_counter()
    nodes = probe.collect()
    seconds = time.perf_counter() - began
    record = {"type": "probe", "when": name, "time": time.time(), "nodes": nodes}
    known.add(nodes, name, time.time())
    disk = sum(p.stat().st_size for p in probe.folder.iterdir() if p.suffix == ".gz")
    return seconds, record, disk


def main() -> None:
    """Print the table."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as name:
        content = probe_of_one_node(Path(name, "one"))
        spec = spec_of(Path(name, "many"), SAMPLE)
        known = Known()
        seconds, first, disk = measured(spec, content, "before", known)
        again, later, _ = measured(spec, content, "during-1", known)
        began = time.process_time()
        parsers.read_lines("probe", content.decode().splitlines())
        each = time.process_time() - began
    section = spec.config.document
    every, per_day = float(section["watch"]["probe_every_minutes"]), int(section["probes"]["keep_per_day"])
    packed = disk / SAMPLE
    of_first, of_later = (len(journal._line(r)) / SAMPLE for r in (first, later))
    rounds = 24 * 60 / every
    print(
        f"a probe of one node         {len(content):>10,} bytes, {content.count(10):,} lines, {KERNEL_LINES:,} of them the kernel's"
    )
    print(f"  kept, compressed          {packed:>10,.0f} bytes")
    print(f"  journal, before and after {of_first:>10,.0f} bytes each; during, nothing new: {of_later:,.0f} bytes")
    print(f"  reading it                {1000 * each:>10,.0f} ms of a processor")
    print(f"{nodes} nodes, every {every:g} minutes, 24 hours, keep_per_day {per_day}")
    print(f"  all files as they come    {nodes * rounds * len(content) / 1e9:>10,.1f} GB")
    print(f"  all files compressed      {nodes * rounds * packed / 1e9:>10,.1f} GB")
    print(f"  kept, nothing is wrong    {nodes * per_day / 2 * packed / 1e9:>10,.1f} GB")
    print(f"  kept at most              {nodes * per_day * packed / 1e9:>10,.1f} GB")
    print(f"  journal                   {nodes * (2 * of_first + rounds * of_later) / 1e9:>10,.2f} GB")
    count = min(probing.MOST_READERS, nodes)
    print(f"  read by {count} processors      {nodes * each / count:>10,.1f} s")
    print(f"measured: {SAMPLE} nodes in {seconds:.1f} s and {again:.1f} s with {probing.readers()} readers")


if __name__ == "__main__":
    main()
