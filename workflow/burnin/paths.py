# SPDX-License-Identifier: Apache-2.0
"""Where everything of a campaign lies (contract C2), and what a path means. No file is touched here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STEP = r"retest|single|x[0-9]+|halves|full|resume"
WORKLOAD = r"[a-z][a-z0-9_]*"
GROUP = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


@dataclass(frozen=True, slots=True)
class RunRef:
    """One run: (step, heat, workload, group) of a campaign. `phase` is `first` for the resume step's first job."""

    campaign_dir: Path
    step: str
    heat: int
    workload: str
    group: str
    phase: str = "result"

    @property
    def run_id(self) -> str:
        """Return the run's name inside its campaign, e.g. `x4/heat0/hpl/dgx01x4-1a2b3c`."""
        base = f"{self.step}/heat{self.heat}/{self.workload}/{self.group}"
        return base if self.phase == "result" else f"{base}/{self.phase}"

    @property
    def heat_dir(self) -> Path:
        """Return the folder of the heat."""
        return heat_dir(self.campaign_dir, self.step, self.heat)

    @property
    def run_dir(self) -> Path:
        """Return the run directory, which Snakemake does not own."""
        return self.heat_dir / self.workload / self.group

    @property
    def result(self) -> Path:
        """Return the result file (`first.json` for the first job of the resume step)."""
        return self.run_dir / f"{self.phase}.json"


def heat_dir(campaign_dir: Path, step: str, heat: int) -> Path:
    """Return the folder of one heat."""
    return campaign_dir / step / f"heat{heat}"


def run_of_result(result: Path) -> RunRef:
    """Return the run that a result path names. Raises ValueError if the path is not one of contract C2."""
    parts = result.parts
    if len(parts) >= 6:
        step, heat, workload, group, name = parts[-5:]
        match = re.fullmatch(r"heat([0-9]+)", heat)
        if (
            match
            and re.fullmatch(STEP, step)
            and re.fullmatch(WORKLOAD, workload)
            and re.fullmatch(GROUP, group)
            and name in ("result.json", "first.json")
        ):
            return RunRef(Path(*parts[:-5]), step, int(match[1]), workload, group, name.removesuffix(".json"))
    raise ValueError(f"{result} is not <campaign>/<step>/heat<k>/<workload>/<group>/result.json")


def group_id(nodes: Sequence[str]) -> str:
    """Return a group's name: the node itself, or first node, size and a digest of all names.

    It is a function of the nodes alone, so a re-made plan finds the runs of the groups that did not change,
    and never takes a run for that of another group.
    """
    ordered = sorted(nodes)
    if len(ordered) == 1:
        return ordered[0]
    digest = hashlib.sha256(",".join(ordered).encode()).hexdigest()[:8]
    return f"{ordered[0]}x{len(ordered)}-{digest}"
