# SPDX-License-Identifier: Apache-2.0
"""A small bench for tests of the lab's programs: one state folder, one scenario, calls as an operator makes them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "lab"
SCENARIOS = LAB / "scenarios"
if str(LAB) not in sys.path:
    sys.path.insert(0, str(LAB))

NCCL = ["all_reduce_perf", "-b", "8G", "-e", "16G", "-f", "2", "-g", "1", "-n", "20", "-c", "1"]
#: Compiled modules shared by all benches of this test session; each lab by itself would compile them anew.
CACHE = Path(tempfile.mkdtemp(prefix="lab-pycache-"))
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

HPL = ["hpl.sh", "--dat", "/workspace/hpl-linux-x86_64/sample-dat/HPL-8GPUs.dat"]
PROBES = (
    "dmesg -T",
    "dcgmi health -c",
    "nvidia-smi -q",
    "nvidia-smi nvlink -s",
    "ipmitool sdr elist",
    "ipmitool sel list",
    *(f"mlxlink -d mlx5_{i} -c" for i in range(8)),
    *(f"mlxlink -d mlx5_{i} -m" for i in range(8)),
)


@dataclass
class Result:
    """What a program left: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class Bench:
    """One lab."""

    def __init__(self, folder: Path, scenario: Path | str) -> None:
        self.state = folder / "lab"
        self.folder = folder
        path = SCENARIOS / f"{scenario}.yaml" if isinstance(scenario, str) else scenario
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("BURNIN_", "SLURM", "NCCL_"))}
        self.env = {
            **keep,
            "PATH": os.pathsep.join(
                [str(LAB / "slurm"), str(LAB / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "BURNIN_LAB": str(self.state),
            "BURNIN_SCENARIO": str(path),
            "BURNIN_LAB_PYTHON": sys.executable,
            "BURNIN_LAB_PYCACHE": str(CACHE),
        }

    def call(self, *argv: str, timeout: float = 30, cwd: Path | None = None, **env: str) -> Result:
        done = subprocess.run(
            argv,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd or self.folder,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv, env={**self.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder
        )

    def on(self, node: str, *argv: str, **env: str) -> Result:
        """A tool on a node."""
        return self.call(*argv, SLURMD_NODENAME=node, **env)

    def work(
        self,
        nodes: str,
        *program: str,
        step: str = "",
        workload: str = "",
        iteration: int = 0,
        timeout: float = 30,
        **env: str,
    ) -> Result:
        """One iteration of a workload, as a run starts it."""
        from model.base import expand_hosts

        names = expand_hosts(nodes)
        kind = workload or ("hpl" if program[0] == "hpl.sh" else "nemo" if program[0] == "nemo" else "nccl")
        size = len(names)
        return self.call(
            "srun",
            "-N",
            str(size),
            f"--nodelist={','.join(names)}",
            "--ntasks-per-node=8",
            "--gpus-per-node=8",
            "--mpi=pmix",
            *program,
            timeout=timeout,
            BURNIN_STEP=step or ("single" if size == 1 else "full" if size == 8 else f"x{size}"),
            BURNIN_WORKLOAD=kind,
            BURNIN_ITERATION=str(iteration),
            BURNIN_NODES=",".join(names),
            **env,
        )

    def nemo(self, steps: int = 20, every: int = 10, log: str = "") -> list[str]:
        """NeMo's command line."""
        words = ["nemo", "llm", "pretrain", "-y", "--factory", "llama3_8b", f"trainer.max_steps={steps}"]
        words += ["data.global_batch_size=128", f"log.ckpt.every_n_train_steps={every}"]
        return [*words, f"log.log_dir={self.folder / log}"] if log else words

    def probes(self, node: str) -> dict[str, str]:
        """Everything the tools of a node say."""
        script = "\n".join(f"echo '#@ {p}'; {p} 2>&1" for p in PROBES)
        text = self.on(node, "sh", "-c", script).out
        found: dict[str, list[str]] = {}
        name = ""
        for line in text.splitlines():
            if line.startswith("#@ "):
                name = line[3:]
                found[name] = []
            elif not line.startswith("Timestamp"):
                found[name].append(line)
        return {k: "\n".join(v) for k, v in found.items()}
