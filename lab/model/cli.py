# SPDX-License-Identifier: Apache-2.0
"""From a program's name to what it does."""

from __future__ import annotations

import os

from model.base import LabError, err
from model.store import Lab


def run_program(lab: Lab, name: str, argv: list[str]) -> int:
    """Run one workload program as rank 0 or as the rank the launcher says."""
    if name.endswith("_perf"):
        from model import nccl

        if os.environ.get("SLURM_PROCID", "0") != "0":
            from model.work import other_rank

            return other_rank(lab, "nccl")
        return nccl.main(lab, name, argv)
    workload = {"hpl.sh": "hpl", "question_answering.py": "squad"}.get(name, "nemo")
    if os.environ.get("SLURM_PROCID", "0") != "0":
        from model.work import other_rank

        return other_rank(lab, workload)
    if workload == "hpl":
        from model import hpl

        return hpl.main(lab, argv)
    if workload == "squad":
        from model import squad

        return squad.main(lab, argv)
    from model import nemo

    return nemo.main(lab, argv)


def dispatch(name: str, argv: list[str]) -> int:
    """Open the lab and run the program."""
    lab = Lab.open()
    if name == "srun":
        from model import srun

        return srun.main(lab, argv)
    if name in ("scontrol", "sinfo", "squeue", "scancel", "sacct"):
        from model import slurm

        try:
            return int(getattr(slurm, name)(lab, argv))
        except LabError as problem:
            err(f"{name}: error: {problem}")
            return 1
    if name.endswith("_perf") or name in ("hpl.sh", "nemo", "question_answering.py"):
        return run_program(lab, name, argv)
    from model import tools

    return tools.run(lab, name, argv)


def main(name: str, argv: list[str]) -> None:
    """Run and end the process at once (nothing is left to clean up, and that saves time)."""
    try:
        status = dispatch(name, argv)
    except LabError as problem:
        err(str(problem))
        status = 1
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        status = 141
    os._exit(status)
