# SPDX-License-Identifier: Apache-2.0
"""The two runs of `halves` begin together and end together: each says when it is ready and when its window is full.

Two files a run in `<heat>/<workload>/barrier/`: `<group>` when it is ready to load the machine, `<group>.full` when its
window is full. A run waits for the others before its first iteration, and goes on with further iterations until the
others' windows are full too, so that each has the other's load for its whole window. The overlap itself is proven
later, from the times of the iterations.
"""

from __future__ import annotations

import time
from pathlib import Path

from burnin import storage
from burnin.runs.spec import RunSpec


class Barrier:
    """The meeting of the runs of one heat and workload; only `halves` has one."""

    def __init__(self, spec: RunSpec, attempt: int) -> None:
        self.spec = spec
        self.folder = spec.ref.heat_dir / spec.workload / "barrier"
        self.token = f"attempt {attempt}"
        minutes = float(spec.config.document["slurm"]["start_timeout_minutes"])
        self.patience = minutes * 60
        self.reason = ""
        self._others: list[str] = []

    def wait(self) -> bool:
        """Return True when the others are ready too; False (with `reason`) if they did not come in time."""
        if self.spec.step != "halves":
            return True
        plan = storage.read_json(self.spec.ref.heat_dir / "plan.json", "plan")
        if plan["groups"][self.spec.group]["isolation"]:
            return True  # a part of a suspected half looks for the culprit; it is no half, and nobody waits for it
        groups = [(g, e) for g, e in plan["groups"].items() if not e["isolation"]]
        self._others = [g for g, e in groups if self.spec.workload in e["workloads"] and g != self.spec.group]
        storage.write_text(self.folder / self.spec.group, self.token + "\n")
        end = time.monotonic() + self.patience
        pause = 0.005
        while time.monotonic() < end:
            if all((self.folder / g).exists() or self._over(g) for g in self._others):
                return True
            time.sleep(pause)
            pause = min(pause * 1.2, 1.0)
        self.reason = f"the other half was not ready within {self.patience / 60:.0f} minutes: not tested together"
        return False

    def others_need_load(self) -> bool:
        """Say that this run's window is full; return True while another run's window is not."""
        if self.spec.step != "halves":
            return False
        mark = self.folder / f"{self.spec.group}.full"
        if not mark.exists():
            storage.write_text(mark, self.token + "\n")
        return not all((self.folder / f"{g}.full").exists() or self._over(g) for g in self._others)

    def _over(self, group: str) -> bool:
        """Tell whether the other run has a result already (it died, or was skipped)."""
        return Path(self.spec.ref.heat_dir, self.spec.workload, group, "result.json").exists()
