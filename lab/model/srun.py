# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM105  (contextlib takes longer to import than most of this)
"""The lab's srun: one process for a workload program (its rank 0), one process a task for everything else."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C module below `signal`, which costs an enum
import os
import sys
import time

from model.base import LabError, err, expand_hosts, fold_hosts, out, stamp, write_all
from model.slurm import finish, next_id, register, start_ticks, states, user_name
from model.store import LAB_FOLDER, Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

#: Programs whose rank 0 prints for all ranks.
WORKLOADS = (
    "all_reduce_perf",
    "all_gather_perf",
    "reduce_scatter_perf",
    "alltoall_perf",
    "hpl.sh",
    "nemo",
    "question_answering.py",
)

#: How many tasks of one step are started at the same time, since the lab is meant for small machines; as many more
#: after each half second without a word, so that tasks which wait (for each other, for a tool) do not hold up the rest.
AT_A_TIME = 4

_SHORT_VALUED = "NnwxpAtJcoeiDGqCdmrBS"
# fmt: off
_LONG_VALUED = (
    "nodes", "ntasks", "nodelist", "ntasks-per-node", "gpus-per-node", "gpus", "gpus-per-task", "mpi",
    "job-name", "time", "cpus-per-task", "cpu-bind", "mem", "partition", "account", "output", "error",
    "input", "chdir", "exclude", "export", "gres", "jobid", "qos", "constraint", "distribution", "comment",
    "wait", "container-image", "container-mounts", "container-workdir", "container-name", "container-env",
    "relative", "reservation", "gpu-bind", "mem-per-cpu", "mem-per-gpu", "bcast", "open-mode", "task-prolog",
    "task-epilog", "prolog", "epilog", "threads-per-core", "signal", "deadline",
)
# fmt: on
_MEANING = {
    "N": "nodes",
    "n": "ntasks",
    "w": "nodelist",
    "x": "exclude",
    "t": "time",
    "J": "job-name",
    "o": "output",
    "e": "error",
    "D": "chdir",
    "l": "label",
    "k": "no-kill",
    "Q": "quiet",
}


def parse(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """(options, program and its arguments)."""
    options: dict[str, str] = {}
    i = 0
    while i < len(argv):
        arg = argv[i]
        if arg == "--":
            i += 1
            break
        if not arg.startswith("-") or arg == "-":
            break
        i += 1
        if arg.startswith("--"):
            name, eq, value = arg[2:].partition("=")
            if not eq and name in _LONG_VALUED:
                if i >= len(argv):
                    raise LabError(f"srun: option '--{name}' requires an argument")
                value = argv[i]
                i += 1
            options[name] = value
            continue
        j = 1
        while j < len(arg):
            letter = arg[j]
            j += 1
            if letter in _SHORT_VALUED:
                value = arg[j:]
                if not value:
                    if i >= len(argv):
                        raise LabError(f"srun: option requires an argument -- '{letter}'")
                    value = argv[i]
                    i += 1
                options[_MEANING.get(letter, letter)] = value.removeprefix("=")
                break
            options[_MEANING.get(letter, letter)] = ""
    return options, argv[i:]


def _whole(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    low = text.partition("-")[0]
    if not low.isdigit() or int(low) < 1:
        raise LabError(f'srun: error: "{text}" is not a valid number for --{name}')
    return int(low)


def minutes(text: str) -> float:
    """Slurm's time: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]] -> seconds."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(p.isdigit() for p in parts) or (dash and not days.isdigit()) or len(parts) > 3:
        raise LabError("srun: error: Invalid --time specification")
    numbers = [int(p) for p in parts]
    if dash:
        hours, mins, secs = (*numbers, 0, 0)[:3]
        return int(days) * 86400 + hours * 3600 + mins * 60 + secs
    if len(numbers) == 1:
        return numbers[0] * 60
    if len(numbers) == 2:
        return numbers[0] * 60 + numbers[1]
    return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]


def choose_nodes(lab: Lab, options: dict[str, str]) -> list[str]:
    """The nodes of the step, in rank order."""
    count = _whole(options, "nodes")
    named = expand_hosts(options["nodelist"]) if options.get("nodelist") else []
    excluded = set(expand_hosts(options.get("exclude", "")))
    known = states(lab)
    for name in [*named, *excluded]:
        if name not in known:
            raise LabError("srun: error: Unable to allocate resources: Invalid node name specified")
    named = list(dict.fromkeys(named))
    pool = expand_hosts(os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("BURNIN_NODES") or "") or lab.nodes
    if not named:
        pool = [n for n in pool if n in known and n not in excluded and not known[n].down]
        wanted = count or 1
        named = pool[:wanted]
    elif count is not None and count < len(named):
        raise LabError(
            f"srun: error: Required nodelist includes more nodes than permitted by max-node count ({len(named)} > {count}). "
            "Eliminating nodes from the nodelist.\nsrun: error: Unable to allocate resources: Requested node configuration "
            "is not available"
        )
    elif count is not None and count > len(named):
        named += [n for n in pool if n in known and n not in named and n not in excluded and not known[n].down][
            : count - len(named)
        ]
    if not named or (count is not None and len(named) < count):
        raise LabError("srun: error: Unable to allocate resources: Requested node configuration is not available")
    down = [n for n in named if known[n].down]
    if down and "no-kill" in options:
        for name in down:
            err(f"srun: error: Node failure on {name}")
        named = [n for n in named if n not in down]
        if not named:
            raise LabError(
                "srun: error: Unable to allocate resources: Required node not available (down, drained or reserved)"
            )
    elif down:
        raise LabError(
            "srun: error: Unable to allocate resources: Required node not available (down, drained or reserved)"
        )
    order = {n: i for i, n in enumerate(lab.nodes)}
    return sorted(named, key=order.__getitem__)


class Step:
    """One srun."""

    def __init__(self, lab: Lab, options: dict[str, str], argv: list[str]) -> None:
        self.lab, self.options, self.argv = lab, options, argv
        self.nodes = choose_nodes(lab, options)
        per_node = _whole(options, "ntasks-per-node") or 1
        self.tasks = _whole(options, "ntasks") or len(self.nodes) * per_node
        if "ntasks-per-node" not in options:
            per_node = -(-self.tasks // len(self.nodes))
        self.per_node = per_node
        self.path = find_program(argv[0])
        name = os.path.basename(argv[0])
        self.workload = name in WORKLOADS and os.path.realpath(self.path) == os.path.realpath(
            os.path.join(LAB_FOLDER, "bin", name)
        )
        self.limit = minutes(options["time"]) if options.get("time") else 0.0
        self.children: dict[int, tuple[int, str]] = {}  # pid -> (task, node)
        self.cancel: str | None = None
        env = os.environ
        self.job: dict[str, Any] = {
            "id": next_id(lab),
            "name": options.get("job-name") or env.get("SLURM_JOB_NAME") or name,
            "program": name,
            "comment": options.get("comment")
            or "/".join(
                env[k] for k in ("BURNIN_CAMPAIGN", "BURNIN_STEP", "BURNIN_WORKLOAD", "BURNIN_GROUP") if env.get(k)
            ),
            "pid": os.getpid(),
            "ticks": start_ticks(os.getpid()),
            "nodes": self.nodes,
            "tasks": self.tasks,
            "user": user_name(),
            "uid": os.getuid(),
            "limit": options.get("time", ""),
            "start": round(time.time(), 3),
        }

    def environment(self, task: int, node_id: int, local: int) -> dict[str, str]:
        """What Slurm adds to a task's environment."""
        nodes = fold_hosts(self.nodes)
        return {
            "BURNIN_LAB": self.lab.folder,
            "BURNIN_LAB_PYTHON": sys.executable or "python3",
            "SLURMD_NODENAME": self.nodes[node_id],
            "SLURM_JOB_ID": str(self.job["id"]),
            "SLURM_JOBID": str(self.job["id"]),
            "SLURM_STEP_ID": "0",
            "SLURM_STEPID": "0",
            "SLURM_PROCID": str(task),
            "SLURM_NODEID": str(node_id),
            "SLURM_LOCALID": str(local),
            "SLURM_NTASKS": str(self.tasks),
            "SLURM_NPROCS": str(self.tasks),
            "SLURM_NNODES": str(len(self.nodes)),
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_NODELIST": nodes,
            "SLURM_STEP_NODELIST": nodes,
            "SLURM_NTASKS_PER_NODE": str(self.per_node),
            "SLURM_CLUSTER_NAME": "lab",
        }

    def placement(self) -> list[tuple[int, int, int]]:
        """(task, node index, local index), block distribution."""
        places, task = [], 0
        for node_id in range(len(self.nodes)):
            for local in range(self.per_node):
                if task < self.tasks:
                    places.append((task, node_id, local))
                    task += 1
        return places

    # --- signals ---

    def on_signal(self, number: int, _frame: object) -> None:
        """scancel, the time limit, Ctrl-C: end the tasks; the end of the step is told in `end`."""
        if self.cancel is None:
            self.cancel = " DUE TO TIME LIMIT" if number == _signal.SIGALRM else ""
            err("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
            err(
                f"slurmstepd: error: *** STEP {self.job['id']}.0 ON {self.nodes[0]} CANCELLED AT {stamp()}{self.cancel} ***"
            )
            wanted = _signal.SIGTERM
            if not self.workload:
                _signal.setitimer(_signal.ITIMER_REAL, 2.0, 2.0)
        else:
            wanted = _signal.SIGKILL
        for pid in list(self.children):
            try:
                os.kill(pid, wanted)
            except ProcessLookupError:
                pass

    # --- running ---

    def main(self) -> int:
        """Run the step; returns srun's exit status."""
        register(self.lab, self.job)
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGALRM):
            _signal.signal(number, self.on_signal)
        if self.limit:
            _signal.setitimer(_signal.ITIMER_REAL, self.limit)
        code = 0
        try:
            code = self.one_process() if self.workload and "label" not in self.options else self.many()
        finally:
            state = "COMPLETED" if code == 0 else "FAILED"
            if self.cancel is not None:
                state = "TIMEOUT" if self.cancel else f"CANCELLED by {os.getuid()}"
            elif code == 137 and any(s.down for s in self.node_states()):
                state = "NODE_FAIL"
            signalled = code - 128 if code > 128 else 0
            finish(self.lab, self.job, state, f"0:{signalled}" if signalled else f"{code}:0")
        return code

    def node_states(self) -> list[Any]:
        """Slurm's view of this step's nodes."""
        known = states(self.lab)
        return [known[n] for n in self.nodes]

    def child_setup(self, env: dict[str, str]) -> None:
        """In the child: default signals, environment."""
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGALRM, _signal.SIGPIPE):
            _signal.signal(number, _signal.SIG_DFL)
        os.environ.update(env)

    def one_process(self) -> int:
        """A workload program: rank 0 prints for all, so it alone is run, in a fork of this very process."""
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self.child_setup({**self.environment(0, 0, 0), "BURNIN_LAB_SRUN": "1"})
                from model import work
                from model.cli import run_program

                status = run_program(self.lab, self.job["program"], self.argv[1:])
                if status and not work.TOLD:
                    err(f"srun: error: {self.nodes[0]}: task 0: Exited with exit code {status}")
            except BaseException as problem:
                err(f"srun: lab: {type(problem).__name__}: {problem}")
            finally:
                os._exit(status)
        self.children[pid] = (0, self.nodes[0])
        _pid, status = os.waitpid(pid, 0)
        self.children.clear()
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            word = "Terminated" if code == -_signal.SIGTERM else "Killed"
            for i, node in enumerate(self.nodes):
                low, high = i * self.per_node, (i + 1) * self.per_node - 1
                err(f"srun: error: {node}: task{f's {low}-{high}' if high > low else f' {low}'}: {word}")
            code = 128 - code
        return code

    def many(self) -> int:
        """One process a task, a few at a time; their output is passed on in whole lines."""
        import select

        for node in self.nodes:
            self.lab.ensure_view(node)
        todo = self.placement()
        width = len(str(self.tasks - 1))
        label = "label" in self.options
        poll = select.poll()
        buffers: dict[int, list[Any]] = {}  # fd -> [task, target fd, text so far]
        worst, allowed = 0, AT_A_TIME
        failed: dict[tuple[str, str], list[int]] = {}
        running: dict[int, set[int]] = {}

        def pass_on(fd: int, last: bool) -> None:
            task, target, text = buffers[fd]
            cut = len(text) if last else text.rfind(b"\n") + 1
            piece, buffers[fd][2] = text[:cut], text[cut:]
            if piece:
                if last and not piece.endswith(b"\n"):
                    piece += b"\n"
                if label:
                    head = f"{task:>{width}d}: ".encode()
                    piece = b"".join(head + line + b"\n" for line in piece[:-1].split(b"\n"))
                write_all(target, piece)

        while todo or running:
            while todo and len(running) < allowed and self.cancel is None:
                task, node_id, local = todo.pop(0)
                pipes = [os.pipe(), os.pipe()]
                pid = os.fork()
                if pid == 0:
                    try:
                        self.child_setup(self.environment(task, node_id, local))
                        os.dup2(pipes[0][1], 1)
                        os.dup2(pipes[1][1], 2)
                        if task:
                            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
                        os.execv(self.path, self.argv)
                    except OSError as problem:
                        err(f"slurmstepd: error: execve(): {self.argv[0]}: {problem.strerror}")
                    finally:
                        os._exit(2)
                self.children[pid] = (task, self.nodes[node_id])
                running[pid] = set()
                for (read, write), target in zip(pipes, (1, 2), strict=True):
                    os.close(write)
                    buffers[read] = [task, target, b""]
                    running[pid].add(read)
                    poll.register(read, select.POLLIN)
            if self.cancel is not None:
                todo.clear()
            if not running:
                break
            events = poll.poll(500)
            if not events:
                allowed += AT_A_TIME
            for fd, _event in events:
                data = os.read(fd, 1 << 16)
                buffers[fd][2] += data
                if data:
                    if b"\n" in data:
                        pass_on(fd, False)
                    continue
                pass_on(fd, True)
                poll.unregister(fd)
                os.close(fd)
                del buffers[fd]
                for fds in running.values():
                    if fd in fds:
                        fds.remove(fd)
                        break
            for pid in [p for p, fds in running.items() if not fds]:
                _pid, status = os.waitpid(pid, 0)
                del running[pid]
                task, node = self.children.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                if code:
                    word = f"Exited with exit code {code}" if code > 0 else "Terminated" if code == -15 else "Killed"
                    failed.setdefault((node, word), []).append(task)
                    worst = max(worst, code if code > 0 else 128 - code)
        from model.base import fold_numbers

        for (node, word), numbers in failed.items():
            err(f"srun: error: {node}: task{'s' if len(numbers) > 1 else ''} {fold_numbers(numbers)}: {word}")
        return worst


def find_program(name: str) -> str:
    """The program's path; LabError when there is none."""
    if "/" in name:
        if os.access(name, os.X_OK):
            return name
    else:
        for folder in os.environ.get("PATH", "/usr/bin:/bin").split(":"):
            path = os.path.join(folder or ".", name)
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
    raise LabError(
        f"slurmstepd: error: execve(): {name}: No such file or directory\nsrun: error: task 0: Exited with exit code 2"
    )


def main(lab: Lab, argv: list[str]) -> int:
    """Entry."""
    try:
        options, program = parse(argv)
        if "version" in options or "V" in options:
            out("slurm 23.11.4")
            return 0
        if not program:
            raise LabError("srun: fatal: No command given to execute.")
        if options.get("chdir"):
            os.chdir(options["chdir"])
        step = Step(lab, options, program)
        for name, fd in (("output", 1), ("error", 2)):
            if options.get(name) and options[name] != "none":
                path = options[name].replace("%j", str(step.job["id"])).replace("%x", str(step.job["name"]))
                opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(opened, fd)
                if name == "output" and not options.get("error"):
                    os.dup2(opened, 2)
        return step.main()
    except LabError as problem:
        err(str(problem))
        return 2 if "execve" in str(problem) else 1
