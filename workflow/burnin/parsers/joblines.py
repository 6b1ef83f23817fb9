# SPDX-License-Identifier: Apache-2.0
"""Lines that any job's log may hold, whatever the workload: NCCL, CUDA, PyTorch, torchrun, MPI and Slurm messages.

One scanner, used by the readers of nccl, hpl, nemo, squad and slurm-step, so that a CUDA error is the same signal in
all of them. Sources: NCCL src/debug.cc and src/transport/net_ib*; nccl-tests src/common.cu; PyTorch
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and torch/distributed/elastic; Slurm src/srun and src/slurmd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from burnin.parsers.common import Prefix, expand_ranges, signal
from burnin.parsers.reading import Signal

#: Cheap test whether a line can hold anything for `JobLines.scan`.
GATE = re.compile(
    r"NCCL (?:WARN|INFO)|Test (?:NCCL |CUDA )?failure|Test timeout|C[Uu][Dd][Aa] (?:error|failure|out of|driver)"
    r"|Watchdog caught|detected by watchdog|Root Cause"
    r"|srun: |slurmstepd|\*\*\* |oom[-_]kill|noticed that process|GPU is lost|fallen off the bus|pyxis: "
)

NCCL_LINE = re.compile(
    r"(?:\[(?P<ts>\d[\d :.-]{8,40})\]\s+)?(?P<host>[^\s:\[\]]{1,253}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    r" \[(?P<dev>-?\d{1,4})\] "
    r"(?:(?P<src>\S{1,200}:\d{1,6})(?: \([^)]{0,200}\))? )?NCCL (?P<lvl>WARN|INFO|TRACE|CALL) (?P<msg>.*)"
)
_ASYNC = re.compile(
    r"(?:(?P<hca>[\w.-]{1,64}):(?P<port>\d+) )?"
    r"(?:Got async (?:error )?event ?:|async fatal event on [^:]{1,80}:) ?(?P<what>[\w ()/-]{1,120})"
)
# One regex for all published forms of the completion error, oldest to newest.
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S{1,100}?)<(?P<port>[\d_]+)> )?"
    r"with (?:error|status)[ =](?:[A-Z_]{1,60}\()?(?P<st>\d+)\)?"
    r".*?vendor[ _]err[ =]?(?P<ve>\d+)(?: \((?P<dir>Send|Recv)\))?"
    r"(?:.*?localGid (?P<lg>\S+) remoteGids?\s?(?P<rg>[0-9a-fA-F:.]+))?(?:.*? hca (?P<hca>\S+))?"
)
_NETWORK = re.compile(r"Using network (?P<net>[\w./+-]{1,60})")
_VIA_SOCKET = re.compile(r"NET/Socket(?: : Using|/\d)")

_TEST_FAILURE = re.compile(
    r"(?:(?P<host>[\w.-]{1,253}): )?Test (?P<what>NCCL|CUDA) failure (?P<src>\S{1,200}:\d+) '(?P<msg>[^']{0,300})"
)
_TEST_TIMEOUT = re.compile(r"(?:(?P<host>[\w.-]{1,253}): )?Test timeout \((?P<s>\d+)s\)")

_CUDA = re.compile(r"C[Uu][Dd][Aa] (?:error|failure)(?: \d+)?[: ]+'?(?P<what>[^'\n]{1,160})")
_OOM = re.compile(r"CUDA out of memory")
_OOM_SIZE = re.compile(r"Tried to allocate (?P<size>[\d.]+ [KMGT]iB)")
_OOM_GPU = re.compile(r"\(?GPU (?P<gpu>\d{1,3})(?:;| has a total)")
_DRIVER = re.compile(r"CUDA driver version is insufficient for CUDA runtime version")
_RANK = re.compile(r"\[(?:PG [^\]]{0,80})?[Rr]ank (?P<rank>\d{1,7})\]")
_WATCHDOG = re.compile(
    r"(?:\[(?:PG [^\]]{0,80})?[Rr]ank (?P<rank>\d{1,7})\] )?Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)(?:, NumelIn=(?P<in>\d+), NumelOut=(?P<out>\d+))?,"
    r" Timeout\(ms\)=(?P<timeout>\d+)\)(?: ran for (?P<ran>\d+) milliseconds)?"
)
_WATCHDOG_WORDS = "Watchdog caught collective operation timeout"
_WATCHDOG_STATUS = re.compile(
    r"[Rr]ank (?P<rank>\d{1,7})\][^\n]{0,200}?detected by watchdog at work: (?P<at>\d+),"
    r" last enqueued NCCL work: (?P<enq>\d+), last completed NCCL work: (?P<done>-?\d+)"
)

_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")
_TORCHRUN_KEY = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,12}: (?P<value>.*)")
_TORCHRUN_RANK = re.compile(r"(?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_TORCHRUN_EXIT = re.compile(r"(?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")

_SRUN_TASK = re.compile(
    r"srun: error: (?P<host>[\w.-]{1,253}): tasks? (?P<tasks>[\d,-]{1,2000}): (?P<state>[^\n]{1,160})"
)
_SRUN_NODE = re.compile(r"srun: error: (?:Node failure on|node failure on|Node) (?P<host>[\w.\[\],-]{1,253})")
_SRUN_LAUNCH = re.compile(
    r"(?:srun: error: (?:Unable to (?:create step|allocate resources|confirm allocation|contact)|Task launch for"
    r"|Application launch failed|Invalid job id|Batch job submission failed|task \d+ launch failed)"
    r"|slurmstepd: error: (?:execve\(\)|couldn't chdir|pyxis|spank: required plugin|Unable to create)"
    r"|pyxis: failed|srun: fatal:)"
)
_LAUNCH_HOST = re.compile(r"failed on node (?P<host>[\w.-]{1,253})")
STEP_END = re.compile(
    r"\*\*\* (?P<what>JOB|STEP) (?P<id>\S{1,60}) ON (?P<node>\S{1,253})"
    r" (?P<act>CANCELLED AT \S{1,40}|FAILED \([^)]{0,80}\))"
    r"(?: DUE (?:TO|to) (?P<why>.{1,200}?))? \*\*\*"
)
_STEPD = re.compile(
    r"\*\*\* (?:JOB|STEP) (?P<id>\S{1,60}) STEPD TERMINATED ON (?P<node>\S{1,253}) AT (?P<at>\S{1,40})"
    r" DUE TO (?P<why>[^*]{1,120}?) \*\*\*"
)
_OOM_KILL = re.compile(r"Detected (?P<n>\d+) oom[-_]kill events?(?:\(s\))? in (?:step |StepId=)(?P<id>[\w.+]{1,60})")
_SLURM_OTHER = re.compile(r"(?:srun|slurmstepd): error: |srun: (?:Force Terminated|Job step aborted|Terminating)")
_MPI = re.compile(
    r"noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<host>[\w.-]{1,253})"
    r" (?P<what>exited on signal \d+[^.]{0,60}|[^.]{1,80})"
)
_LOST = re.compile(r"GPU is lost|GPU has fallen off the bus")

#: Kinds that say that the program itself failed, not merely that something was noticed.
FATAL = frozenset(
    {
        "nccl_test_failure",
        "nccl_timeout",
        "watchdog_timeout",
        "cuda_error",
        "cuda_ecc",
        "cuda_nvlink",
        "oom_gpu",
        "driver_mismatch",
        "gpu_lost",
    }
)


def cuda_kind(what: str) -> str:
    """Return the signal kind of a CUDA error's text."""
    low = what.lower()
    if "uncorrectable ecc" in low:
        return "cuda_ecc"
    if "nvlink" in low:
        return "cuda_nvlink"
    if "out of memory" in low:
        return "oom_gpu"
    if "driver version is insufficient" in low:
        return "driver_mismatch"
    return "cuda_error"


@dataclass(slots=True)
class _Torchrun:
    line: int
    text: str
    fields: dict[str, str]


class JobLines:
    """The scanner. Feed it every line; it keeps the network NCCL chose and how Slurm ended the step.

    `networks`: host or "" -> network name. `ended`: list (at most 50) of {"why", "line", "id", "on"} from Slurm's
    `*** STEP ... ***` lines. `last_completed`: rank -> {"at", "enqueued", "completed", "line"} of PyTorch's watchdog.
    """

    def __init__(self) -> None:
        self.networks: dict[str, str] = {}
        self.ended: list[dict[str, Any]] = []
        self.last_completed: dict[int, dict[str, int]] = {}
        self.nccl_lines = 0
        self.slurm_lines = 0
        self.nccl_version: str | None = None
        self._once: set[tuple[str, str]] = set()
        self._torchrun: _Torchrun | None = None

    def scan(self, number: int, line: str, text: str, prefix: Prefix) -> list[Signal]:
        """Return the signals of one line; `line` is the raw line, `text` and `prefix` what `peel` made of it."""
        out: list[Signal] = []
        if self._torchrun is not None:
            out += self._torchrun_line(number, text, prefix)
        if not GATE.search(line):
            return out
        if "NCCL " in line:
            out += self._nccl(number, line, prefix)
        if "Test " in line:
            out += self._nccl_tests(number, line, prefix)
        if "slurmstepd" in line or "srun: " in line or "*** " in line or "oom" in line or "pyxis" in line:
            out += self._slurm(number, line, prefix)
        if "atchdog" in line:
            out += self._watchdog(number, line, prefix)
        if not out:
            out += self._cuda(number, line, prefix)
        if "Root Cause" in line and _ROOT_CAUSE.search(line):
            out += self._close_torchrun()
            self._torchrun = _Torchrun(number, line, {})
        if "noticed that" in line and (m := _MPI.search(line)):
            state = m["what"].strip()
            out.append(
                signal(
                    "task_exit",
                    number,
                    line,
                    host=m["host"],
                    rank=int(m["rank"]),
                    detail={"state": state, "by": "mpirun"},
                )
            )
        return out

    def finish(self) -> list[Signal]:
        """Return what was still being put together when the text ended."""
        return self._close_torchrun()

    def network(self) -> str | None:
        """Return the network NCCL used; Socket wins when hosts differ, because then the slow one decides."""
        names = set(self.networks.values())
        if not names:
            return None
        return "Socket" if "Socket" in names else sorted(names)[0]

    # ------------------------------------------------------------------------------------------------------- NCCL

    def _first(self, kind: str, host: str) -> bool:
        key = (kind, host)
        if key in self._once or len(self._once) > 20_000:
            return False
        self._once.add(key)
        return True

    def _nccl(self, number: int, line: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        at = 0
        # Two ranks can share one physical line, so look again after every match's own message.
        while m := NCCL_LINE.search(line, at):
            at = m.start("msg")
            nxt = NCCL_LINE.search(line, at)
            message = line[at : nxt.start()] if nxt else m["msg"]
            self.nccl_lines += 1
            out += self._nccl_message(number, line, prefix, m, message)
            if nxt is None:
                break
        return out

    def _nccl_message(self, number: int, line: str, prefix: Prefix, m: re.Match[str], message: str) -> list[Signal]:
        host = m["host"]
        device = int(m["dev"])
        gpu = device if device >= 0 else None
        where: dict[str, Any] = {"host": host, "gpu": gpu, "rank": prefix.any_rank}
        base: dict[str, Any] = {"pid": int(m["pid"])}
        if m["ts"]:
            base["time"] = m["ts"]
        if n := _NETWORK.search(message):
            self.networks[host] = n["net"]
            if n["net"] == "Socket" and self._first("nccl_socket", host):
                return [signal("nccl_socket", number, line, **where, detail=base)]
            return []
        if "NET/Socket" in message and _VIA_SOCKET.search(message):
            self.networks.setdefault(host, "Socket")
            if self._first("nccl_socket", host):
                return [signal("nccl_socket", number, line, **where, detail=base)]
            return []
        if "No device found" in message and "NET/IB" in message:
            if self._first("nccl_no_device", host):
                return [signal("nccl_no_device", number, line, **where, detail=base)]
            return []
        if m["lvl"] != "WARN":
            return []
        if a := _ASYNC.search(message):
            what = a["what"].strip()
            base["event"] = what
            if a["port"]:
                base["port"] = int(a["port"])
            low = what.lower()
            if "port active" in low:
                kind = "nccl_port_active"
            elif "port error" in low or "fatal" in low or "catastrophic" in low or "async fatal" in message:
                kind = "nccl_port_error"
            else:
                kind = "nccl_warn"
            return [signal(kind, number, line, **where, device=a["hca"], detail=base)]
        if c := _COMPLETION.search(message):
            status = int(c["st"])
            if status == 5:  # flushed: always the consequence of an earlier error
                return []
            base |= {"vendor_err": int(c["ve"])}
            for key in ("peer", "dir", "lg", "rg"):
                if c[key]:
                    base[key] = c[key]
            hca = c["hca"]
            return [
                signal("nccl_completion_error", number, line, **where, device=hca, value=float(status), detail=base)
            ]
        if "Cuda failure" in message or "CUDA failure" in message:
            kind = cuda_kind(message)
            return [signal(kind, number, line, **where, detail=base | {"what": message.strip()[:160]})]
        return [signal("nccl_warn", number, line, **where, detail=base | {"message": message.strip()[:200]})]

    def _nccl_tests(self, number: int, line: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        for m in _TEST_FAILURE.finditer(line):
            host = m["host"] or prefix.host
            detail = {"what": m["what"], "source": m["src"], "message": m["msg"].strip(" /")}
            out.append(signal("nccl_test_failure", number, line, prefix, host=host, detail=detail))
            if m["what"] == "CUDA":
                out.append(signal(cuda_kind(m["msg"]), number, line, prefix, host=host, detail={"what": m["msg"]}))
        for m in _TEST_TIMEOUT.finditer(line):
            out.append(
                signal(
                    "nccl_timeout", number, line, prefix, host=m["host"] or prefix.host, value=float(m["s"]), unit="s"
                )
            )
        return out

    # ------------------------------------------------------------------------------------------- CUDA and PyTorch

    def _cuda(self, number: int, line: str, prefix: Prefix) -> list[Signal]:
        rank = prefix.any_rank
        if rank is None and (r := _RANK.search(line)):
            rank = int(r["rank"])
        where: dict[str, Any] = {"host": prefix.host, "rank": rank}
        if _DRIVER.search(line):
            return [signal("driver_mismatch", number, line, **where)]
        if _OOM.search(line):
            detail: dict[str, Any] = {}
            if s := _OOM_SIZE.search(line):
                detail["tried"] = s["size"]
            g = _OOM_GPU.search(line)
            gpu = int(g["gpu"]) if g else prefix.local_rank
            return [signal("oom_gpu", number, line, **where, gpu=gpu, detail=detail)]
        if m := _CUDA.search(line):
            what = m["what"].strip()
            return [signal(cuda_kind(what), number, line, **where, gpu=prefix.local_rank, detail={"what": what})]
        if _LOST.search(line):
            return [signal("gpu_lost", number, line, **where)]
        return []

    def _watchdog(self, number: int, line: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        for m in _WATCHDOG.finditer(line):
            rank = int(m["rank"]) if m["rank"] else prefix.any_rank
            detail: dict[str, Any] = {"seq": int(m["seq"]), "op": m["op"], "timeout_ms": int(m["timeout"])}
            if m["ran"]:
                detail["ran_ms"] = int(m["ran"])
            out.append(signal("watchdog_timeout", number, line, host=prefix.host, rank=rank, detail=detail))
        if not out and _WATCHDOG_WORDS in line:
            out.append(signal("watchdog_timeout", number, line, prefix))
        if m2 := _WATCHDOG_STATUS.search(line):
            rank = int(m2["rank"])
            if rank not in self.last_completed and len(self.last_completed) < 20_000:
                self.last_completed[rank] = {
                    "at": int(m2["at"]),
                    "enqueued": int(m2["enq"]),
                    "completed": int(m2["done"]),
                    "line": number,
                }
        return out

    def _torchrun_line(self, number: int, text: str, prefix: Prefix) -> list[Signal]:
        state = self._torchrun
        assert state is not None
        if number - state.line > 12:
            return self._close_torchrun()
        m = _TORCHRUN_KEY.match(text)
        if m:
            state.fields.setdefault(m["key"], m["value"].strip()[:200])
            if prefix.host:
                state.fields.setdefault("prefix_host", prefix.host)
            if m["key"] == "traceback":
                return self._close_torchrun()
        return []

    def _close_torchrun(self) -> list[Signal]:
        state, self._torchrun = self._torchrun, None
        if state is None or not state.fields:
            return []
        rank = gpu = None
        if r := _TORCHRUN_RANK.search(state.fields.get("rank", "")):
            rank, gpu = int(r["rank"]), int(r["local"])
        detail: dict[str, Any] = {}
        if e := _TORCHRUN_EXIT.search(state.fields.get("exitcode", "")):
            detail["exitcode"] = int(e["code"])
            if detail["exitcode"] == -15:
                detail["victim"] = True  # SIGTERM came from elsewhere
        for key in ("time", "traceback"):
            if state.fields.get(key):
                detail[key] = state.fields[key]
        host = state.fields.get("host") or state.fields.get("prefix_host")
        return [signal("torchrun_root_cause", state.line, state.text, host=host, rank=rank, gpu=gpu, detail=detail)]

    # ------------------------------------------------------------------------------------------------------ Slurm

    def _slurm(self, number: int, line: str, prefix: Prefix) -> list[Signal]:
        out: list[Signal] = []
        for m in _SRUN_TASK.finditer(line):
            self.slurm_lines += 1
            tasks = expand_ranges(m["tasks"])
            state = m["state"].strip()
            detail: dict[str, Any] = {"state": state, "tasks": tasks[:64]}
            if state.startswith(("Terminated", "Killed")):
                detail["victim"] = True  # srun killed them after another task had failed
            if len(tasks) > 64:
                detail["count"] = len(tasks)
            rank = tasks[0] if len(tasks) == 1 else None
            kind = "oom_host" if "Out Of Memory" in state else "task_exit"
            # No prefix: the number `srun -l` puts before srun's own lines names no task.
            out.append(signal(kind, number, line, host=m["host"], rank=rank, detail=detail))
        if out:
            return out
        if m2 := STEP_END.search(line):
            self.slurm_lines += 1
            why = (m2["why"] or "").strip()
            # The node in "ON" is the first of the step, not the one that failed.
            detail = {"id": m2["id"], "on": m2["node"], "what": m2["what"], "act": m2["act"]}
            if why:
                detail["why"] = why
            if len(self.ended) < 50:
                self.ended.append({"why": why, "line": number, "id": m2["id"], "on": m2["node"]})
            low = why.upper()
            kind = "step_cancelled"
            if "TIME LIMIT" in low:
                kind = "time_limit"
            elif "NODE FAILURE" in low:
                kind = "node_failure"
            return [signal(kind, number, line, detail=detail)]
        if m3 := _STEPD.search(line):
            self.slurm_lines += 1
            detail = {"id": m3["id"], "why": m3["why"], "time": m3["at"]}
            return [signal("kernel_hang", number, line, host=m3["node"], detail=detail)]
        if m4 := _OOM_KILL.search(line):
            self.slurm_lines += 1
            detail = {"id": m4["id"]}
            if prefix.task is not None:
                detail["first_task_of_node"] = prefix.task
            return [signal("oom_host", number, line, host=prefix.host, value=float(m4["n"]), detail=detail)]
        if m5 := _SRUN_NODE.search(line):
            self.slurm_lines += 1
            return [signal("node_failure", number, line, host=m5["host"])]
        if _SRUN_LAUNCH.search(line):
            self.slurm_lines += 1
            h = _LAUNCH_HOST.search(line)
            return [signal("launch_error", number, line, host=h["host"] if h else prefix.host)]
        if _SLURM_OTHER.search(line):
            self.slurm_lines += 1
        return []
