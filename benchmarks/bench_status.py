# SPDX-License-Identifier: Apache-2.0
"""What one look at a big campaign costs: burnin status in the first step (one run a node) and in the last (one run).

Each run has been going for a day: 180 iterations and 45 probes in its journal.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from burnin import status
from burnin.campaign import Campaign

from tests import live

PROBE = {"tools": {f"mlxlink:mlx5_{i}": "pass" for i in range(8)}, "signals": [{"kind": "link", "text": "x" * 300}] * 8}


def main() -> None:
    """Print seconds by number of nodes."""
    for count in (64, 256, 1024):
        for decided, step in ((0, "single"), (None, "full")):
            with tempfile.TemporaryDirectory() as folder:
                nodes = f"dgx[0001-{count:04d}]"
                steps = count.bit_length()
                found = live.campaign(Path(folder), nodes, decided if decided is not None else steps)
                heat = next(h for h, gate in found.projection() if not gate)
                assert heat.step == step, heat.step
                for group in heat.groups:
                    live.run(found, "nccl", group.name, 180, 240, time.time(), dict.fromkeys(group.nodes, PROBE))
                size = sum(p.stat().st_size for p in Path(folder).rglob("journal.jsonl")) / 1e6
                start = time.process_time()
                text = status.render(Campaign(found.config))
                spent = time.process_time() - start
                assert "GB/s" in text
                print(f"{count:5} nodes, {step:6} {len(heat.groups):5} runs, journals {size:7.1f} MB: {spent:.2f} s")


if __name__ == "__main__":
    main()
