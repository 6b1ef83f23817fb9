# SPDX-License-Identifier: Apache-2.0
"""The two runs of `halves` begin together: each says it is ready and waits for the other.

One file a run in `<heat>/<workload>/barrier/`, written when the run is ready to load the machine. A run waits until every
run of its plan that is not over has a file. The overlap itself is proven later, from the times of the iterations.
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

    def wait(self) -> bool:
        """Return True when the others are ready too; False (with `reason`) if they did not come in time."""
        if self.spec.step != "halves":
            return True
        plan = storage.read_json(self.spec.ref.heat_dir / "plan.json", "plan")
        others = [g for g, e in plan["groups"].items() if self.spec.workload in e["workloads"] and g != self.spec.group]
        storage.write_text(self.folder / self.spec.group, self.token + "\n")
        end = time.monotonic() + self.patience
        pause = 0.005
        while time.monotonic() < end:
            if all((self.folder / g).exists() or self._over(g) for g in others):
                return True
            time.sleep(pause)
            pause = min(pause * 1.2, 1.0)
        self.reason = f"the other half was not ready within {self.patience / 60:.0f} minutes: not tested together"
        return False

    def _over(self, group: str) -> bool:
        """Tell whether the other run has a result already (it died, or was skipped)."""
        return Path(self.spec.ref.heat_dir, self.spec.workload, group, "result.json").exists()
