# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM105  (contextlib takes longer to import than most of this)
"""The lab's Slurm: node states, jobs, and the commands around them except srun."""

from __future__ import annotations

import os
import time

from model.base import (
    LabError,
    append_line,
    dumps,
    err,
    expand_hosts,
    fold_hosts,
    loads,
    out,
    read_records,
    read_text,
    stamp,
    write_atomic,
)
from model.store import Lab

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

PARTITION = "batch"


def _events_path(lab: Lab) -> str:
    return os.path.join(lab.folder, "slurm", "events")


def user_name() -> str:
    """Who calls."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def node_down(lab: Lab, node: str, reason: str) -> None:
    """slurmctld's view of a node that stopped answering."""
    append_line(
        _events_path(lab), {"node": node, "do": "down", "reason": reason, "user": "slurm", "t": round(time.time(), 3)}
    )


class State:
    """Slurm's view of one node."""

    __slots__ = ("down", "drain", "job", "reason", "silent", "t", "user", "wrong")

    def __init__(self) -> None:
        self.drain = self.down = self.silent = self.wrong = False
        self.reason, self.user, self.t = "", "", 0.0
        self.job: str | None = None

    def base(self) -> str:
        """DOWN, ALLOCATED or IDLE."""
        return "DOWN" if self.down else "ALLOCATED" if self.job else "IDLE"

    def full(self) -> str:
        """As scontrol writes it."""
        flags = [
            w for w, on in (("DRAIN", self.drain), ("NOT_RESPONDING", self.silent), ("INVALID_REG", self.wrong)) if on
        ]
        return "+".join([self.base(), *flags])

    def long(self) -> str:
        """As sinfo's %T writes it."""
        if self.drain and not self.down:
            word = "draining" if self.job else "drained"
        else:
            word = {"DOWN": "down", "ALLOCATED": "allocated", "IDLE": "idle"}[self.base()]
            if self.wrong and not self.down:
                word = "inval"
        return word + ("*" if self.silent else "")

    def short(self) -> str:
        """As sinfo's %t writes it."""
        words = {"draining": "drng", "drained": "drain", "allocated": "alloc"}
        word = self.long()
        star = "*" if word.endswith("*") else ""
        return words.get(word.rstrip("*"), word.rstrip("*")) + star


def states(lab: Lab) -> dict[str, State]:
    """Every node's state, in the order of the scenario."""
    found = {node: State() for node in lab.nodes}
    for event in read_records(_events_path(lab)):
        state = found.get(str(event.get("node")))
        if state is None:
            continue
        do = event.get("do")
        if do in ("drain", "down"):
            if do == "drain":
                state.drain = True
            else:
                state.down = True
            state.reason = str(event.get("reason", ""))
            state.user, state.t = str(event.get("user", "")), float(str(event.get("t", 0)))
        elif do == "resume":
            state.drain = state.down = False
            state.reason = ""
        elif do == "undrain":
            state.drain = False
            state.reason = ""
    for fault in lab.faults:
        if fault["kind"] == "node_crash" and lab.has_shown(fault) and not lab.repaired(fault):
            state = found[fault["node"]]
            state.down = state.silent = True
            state.reason = state.reason or "Not responding"
            state.user = state.user or "slurm"
        elif fault["kind"] == "missing_gpu" and lab.has_shown(fault) and not lab.repaired(fault):
            state = found[fault["node"]]
            state.wrong = True
            if not state.reason:
                state.reason = f"gres/gpu count reported lower than configured ({lab.gpus - 1} < {lab.gpus})"
                state.user, state.t = "slurm", lab.created
    for job in jobs(lab):
        for node in job["nodes"]:
            if node in found:
                found[node].job = str(job["id"])
    return found


# --- jobs -------------------------------------------------------------------------------------------------------------


def next_id(lab: Lab) -> int:
    """A job id nobody else has: the length of a file that everyone appends one byte to."""
    fd = os.open(os.path.join(lab.folder, "slurm", "ids"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, b".")
        return 5100 + os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def start_ticks(pid: int) -> str | None:
    """When a process started, as the kernel counts: a pid alone may be another process by now."""
    try:
        text = read_text(f"/proc/{pid}/stat")
    except ProcessLookupError:  # it ended between the opening and the reading
        return None
    if text is None:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _running(lab: Lab, job: object) -> str:
    return os.path.join(lab.folder, "slurm", "running", str(job))


def register(lab: Lab, job: dict[str, Any]) -> None:
    """Write a job down as running."""
    write_atomic(_running(lab, job["id"]), dumps(job))


def finish(lab: Lab, job: dict[str, Any], state: str, code: str) -> None:
    """Write a job down as ended."""
    append_line(
        os.path.join(lab.folder, "slurm", "ended"), {**job, "state": state, "code": code, "end": round(time.time(), 3)}
    )
    try:
        os.unlink(_running(lab, job["id"]))
    except FileNotFoundError:
        pass


def jobs(lab: Lab) -> list[dict[str, Any]]:
    """The running jobs; one whose srun was killed is put among the ended ones."""
    found = []
    try:
        names = os.listdir(os.path.join(lab.folder, "slurm", "running"))
    except OSError:
        return []
    for name in sorted(names):
        if not name.isdigit():
            continue
        try:
            job: Any = loads(read_text(_running(lab, name)) or "")
        except ValueError:
            continue
        if start_ticks(job["pid"]) != job["ticks"]:
            finish(lab, job, "FAILED", "0:9")
        else:
            found.append(job)
    return found


def ended(lab: Lab) -> list[dict[str, Any]]:
    """The jobs that are over."""
    unique: dict[int, dict[str, Any]] = {}
    for job in read_records(os.path.join(lab.folder, "slurm", "ended")):
        unique.setdefault(int(str(job["id"])), job)
    return list(unique.values())


# --- scontrol -----------------------------------------------------------------------------------------------------------


def _show_node(lab: Lab, names: list[str], oneline: bool) -> int:
    from model.render import KERNEL, Node

    known = states(lab)
    status = 0
    for name in names:
        state = known.get(name)
        if state is None:
            out(f"Node {name} not found")
            status = 1
            continue
        node = Node(lab, name)
        used = 224 if state.job else 0
        gres = f"gpu:h100:{lab.gpus}"
        rows = [
            f"NodeName={name} Arch=x86_64 CoresPerSocket=56 ",
            f"CPUAlloc={used} CPUEfctv=224 CPUTot=224 CPULoad={'N/A' if state.silent else '0.52'}",
            "AvailableFeatures=(null)",
            "ActiveFeatures=(null)",
            f"Gres={gres}",
            f"NodeAddr={name} NodeHostName={name} Version=23.11.4",
            f"OS=Linux {KERNEL} #42-Ubuntu SMP Mon Feb 5 18:22:41 UTC 2024 ",
            f"RealMemory=2000000 AllocMem=0 FreeMem={'N/A' if state.silent else 1951644} Sockets=2 Boards=1",
            f"State={state.full()} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            f"Partitions={PARTITION} ",
            f"BootTime={stamp(node.boot)} SlurmdStartTime={stamp(node.boot + 74)}",
            f"LastBusyTime={stamp(lab.created)} ResumeAfterTime=None",
            f"CfgTRES=cpu=224,mem=2000000M,billing=224,gres/gpu={lab.gpus}",
            f"AllocTRES={f'cpu=224,gres/gpu={lab.gpus}' if state.job else ''}",
            "CapWatts=n/a",
            "CurrentWatts=0 AveWatts=0",
            "ExtSensorsJoules=n/a ExtSensorsWatts=0 ExtSensorsTemp=n/a",
        ]
        if state.reason:
            rows.append(f"Reason={state.reason} [{state.user}@{stamp(state.t)}]")
        out((" " if oneline else "\n   ").join(r.rstrip() if oneline else r for r in rows) + ("" if oneline else "\n"))
    return status


def _update(lab: Lab, words: list[str]) -> int:
    fields: dict[str, str] = {}
    for word in words:
        key, eq, value = word.partition("=")
        if not eq:
            err(f"Update of this entity is not supported: {word}\nRequest aborted")
            return 1
        fields[key.lower()] = value
    names_text = fields.pop("nodename", None)
    if names_text is None:
        err('No valid entity in update command\nInput line must include "NodeName"')
        return 1
    try:
        names = lab.nodes if names_text.upper() == "ALL" else expand_hosts(names_text)
    except LabError:
        names = [names_text]
    state = fields.pop("state", "").lower()
    reason = fields.pop("reason", "").strip()
    known = states(lab)
    if not names or any(n not in known for n in names):
        err("slurm_update error: Invalid node name specified")
        return 1
    if state and state not in ("drain", "down", "resume", "undrain", "idle"):
        err(f"Invalid input: state={state}\nRequest aborted")
        return 1
    if state in ("drain", "down") and not reason:
        err("You must specify a reason when DOWNING or DRAINING a node. Request denied")
        return 1
    status = 0
    for name in names:
        now = known[name]
        if state in ("resume", "undrain", "idle") and not (now.drain or (now.down and state != "undrain")):
            status = 1
            continue
        record: dict[str, object] = {"node": name, "do": "resume" if state == "idle" else state or "drain"}
        if not state:
            if not reason:
                continue
            record["do"] = "drain" if now.drain else "down" if now.down else ""
            if not record["do"]:
                continue
        if record["do"] in ("drain", "down"):
            record.update(reason=reason, user=user_name())
        record["t"] = round(time.time(), 3)
        append_line(_events_path(lab), record)
    if status:
        err("slurm_update error: Invalid node state specified")
    return status


def scontrol(lab: Lab, argv: list[str]) -> int:
    """scontrol show node|job|config|hostnames|hostlist, update, ping."""
    oneline = False
    words = []
    for arg in argv:
        if arg in ("-o", "--oneliner"):
            oneline = True
        elif arg == "--json":
            err("scontrol: error: the lab has no --json")
            return 1
        elif not arg.startswith("-"):
            words.append(arg)
    what = [w.lower() for w in words[:2]] + ["", ""]
    if what[0] == "ping":
        out(f"Slurmctld(primary) at {os.uname().nodename} is UP")
        return 0
    if what[0] == "show" and what[1] in ("node", "nodes"):
        names = lab.nodes if len(words) < 3 else expand_hosts(",".join(words[2:]))
        return _show_node(lab, names, oneline)
    if what[0] == "show" and what[1] == "hostnames":
        out("\n".join(expand_hosts(",".join(words[2:]) or os.environ.get("SLURM_JOB_NODELIST", ""))))
        return 0
    if what[0] == "show" and what[1] in ("hostlist", "hostlistsorted"):
        out(fold_hosts(expand_hosts(",".join(words[2:]))))
        return 0
    if what[0] == "show" and what[1] in ("partition", "partitions"):
        out(
            f"PartitionName={PARTITION}\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n   Default=YES MaxTime=UNLIMITED "
            f"MinNodes=0\n   Nodes={fold_hosts(lab.nodes)}\n   State=UP TotalCPUs={224 * len(lab.nodes)} "
            f"TotalNodes={len(lab.nodes)} SelectTypeParameters=NONE\n"
        )
        return 0
    if what[0] == "show" and what[1] == "config":
        out(
            f"Configuration data as of {stamp()}\nClusterName             = lab\nMessageTimeout          = 10 sec\n"
            "MpiDefault              = pmix\nReturnToService         = 1\nSelectType              = select/cons_tres\n"
            "SlurmdTimeout           = 300 sec\nSLURM_VERSION           = 23.11.4\n"
        )
        return 0
    if what[0] == "show" and what[1] in ("job", "jobs"):
        return _show_job(lab, words[2:], oneline)
    if what[0] == "update":
        return _update(lab, words[1:])
    err(f"invalid keyword: {' '.join(words)}")
    return 1


def _show_job(lab: Lab, wanted: list[str], oneline: bool) -> int:
    found = {str(j["id"]): (j, "RUNNING") for j in jobs(lab)}
    for job in ended(lab):
        found.setdefault(str(job["id"]), (job, str(job["state"]).split()[0]))
    names = [w.split(".")[0] for w in wanted] or list(found)
    for name in names:
        if name not in found:
            err("slurm_load_jobs error: Invalid job id specified")
            return 1
        job, state = found[name]
        rows = [
            f"JobId={name} JobName={job['name']}",
            f"UserId={job['user']}({job['uid']}) GroupId=root(0) MCS_label=N/A",
            f"JobState={state} Reason=None Dependency=(null)",
            f"Requeue=0 Restarts=0 BatchFlag=0 Reboot=0 ExitCode={job.get('code', '0:0')}",
            f"SubmitTime={stamp(job['start'])} StartTime={stamp(job['start'])} EndTime={stamp(job['end']) if 'end' in job else 'Unknown'}",
            f"NodeList={fold_hosts(job['nodes'])}",
            f"NumNodes={len(job['nodes'])} NumTasks={job['tasks']}",
            f"Comment={job['comment']}",
        ]
        out((" " if oneline else "\n   ").join(rows) + ("" if oneline else "\n"))
    return 0


# --- sinfo, squeue, scancel, sacct -------------------------------------------------------------------------------------


def _format(text: str, values: dict[str, str]) -> str:
    """printf-like `%.20N`, `%-10T`, `%N`: letters from `values`, width with an optional leading dot = right-justified."""
    line, i = "", 0
    while i < len(text):
        if text[i] != "%":
            line += text[i]
            i += 1
            continue
        i += 1
        right = i < len(text) and text[i] == "."
        i += right
        digits = ""
        while i < len(text) and text[i].isdigit():
            digits += text[i]
            i += 1
        letter = text[i : i + 1]
        i += 1
        value = "%" if letter == "%" else values.get(letter, "")
        if digits:
            width = int(digits)
            value = value[:width].rjust(width) if right else value[:width].ljust(width)
        line += value
    return line


def _options(argv: list[str], valued: str, long: dict[str, str], flags: str) -> tuple[dict[str, str], list[str]]:
    """A small getopt: letters with values, long names mapped to letters; LabError for what is not known."""
    found: dict[str, str] = {}
    rest: list[str] = []
    i = 0
    while i < len(argv):
        arg = argv[i]
        i += 1
        if arg.startswith("--") and len(arg) > 2:
            name, eq, value = arg[2:].partition("=")
            letter = long.get(name)
            if letter is None:
                raise LabError(f"unrecognized option '--{name}'")
            if letter in valued and not eq:
                if i >= len(argv):
                    raise LabError(f"option '--{name}' requires an argument")
                value = argv[i]
                i += 1
            found[letter] = value
        elif arg.startswith("-") and len(arg) > 1:
            j = 1
            while j < len(arg):
                letter = arg[j]
                j += 1
                if letter in valued:
                    value = arg[j:]
                    if not value:
                        if i >= len(argv):
                            raise LabError(f"option requires an argument -- '{letter}'")
                        value = argv[i]
                        i += 1
                    found[letter] = value.removeprefix("=")
                    break
                if letter not in flags:
                    raise LabError(f"invalid option -- '{letter}'")
                found[letter] = ""
        else:
            rest.append(arg)
    return found, rest


def _ages(seconds: float) -> str:
    s = int(seconds)
    days, hours, minutes = s // 86400, s // 3600 % 24, s // 60 % 60
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{s % 60:02d}"
    return f"{hours}:{minutes:02d}:{s % 60:02d}" if hours else f"{minutes}:{s % 60:02d}"


def sinfo(lab: Lab, argv: list[str]) -> int:
    """sinfo, with -h -N -R -n -p -t -o -l."""
    long = {
        "noheader": "h",
        "Node": "N",
        "list-reasons": "R",
        "nodes": "n",
        "partition": "p",
        "states": "t",
        "format": "o",
        "long": "l",
        "all": "a",
        "exact": "e",
        "version": "V",
        "responding": "r",
        "dead": "d",
    }
    opts, _rest = _options(argv, "npto", long, "hNRlaeVrd")
    if "V" in opts:
        out("slurm 23.11.4")
        return 0
    known = states(lab)
    names = [n for n in lab.nodes if "n" not in opts or n in set(expand_hosts(opts["n"]))]
    if "p" in opts and PARTITION not in opts["p"].split(","):
        names = []
    if "t" in opts:
        wanted = {w.lower() for w in opts["t"].split(",")}
        names = [
            n
            for n in names
            if wanted
            & {
                known[n].long().rstrip("*"),
                known[n].short().rstrip("*"),
                known[n].base().lower(),
                *(["drain"] if known[n].drain else []),
            }
        ]
    if "R" in opts:
        names = [n for n in names if known[n].reason and (known[n].drain or known[n].down)]
        text = opts.get("o", "%20E %9u %19H %N" + (" %T" if "l" in opts else ""))
    elif "N" in opts:
        text = opts.get("o", "%.10N %.6D %.9P %6t")
    else:
        text = opts.get("o", "%9P %.5a %.10l %.6D %6t %N")
    heads = {
        "N": "NODELIST",
        "n": "HOSTNAMES",
        "T": "STATE",
        "t": "STATE",
        "E": "REASON",
        "u": "USER",
        "H": "TIMESTAMP",
        "P": "PARTITION",
        "R": "PARTITION",
        "D": "NODES",
        "a": "AVAIL",
        "l": "TIMELIMIT",
        "c": "CPUS",
        "m": "MEMORY",
        "G": "GRES",
        "C": "CPUS(A/I/O/T)",
        "f": "AVAIL_FEATURES",
        "U": "USER",
    }

    def values(node: str) -> dict[str, str]:
        s = known[node]
        return {
            "n": node,
            "T": s.long(),
            "t": s.short(),
            "E": s.reason or "none",
            "u": s.user if s.reason else "Unknown",
            "U": s.user if s.reason else "Unknown",
            "H": stamp(s.t) if s.reason else "Unknown",
            "P": PARTITION + "*",
            "R": PARTITION,
            "a": "up",
            "l": "infinite",
            "c": "224",
            "m": "2000000",
            "G": f"gpu:h100:{lab.gpus}",
            "C": "224/0/0/224" if s.job else "0/224/0/224",
            "f": "(null)",
        }

    if "h" not in opts:
        out(_format(text, heads).rstrip())
    groups: dict[str, list[str]] = {}
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        row = values(name)
        key = name if "N" in opts else _format(text.replace("%N", "").replace("%D", ""), row)
        groups.setdefault(key, []).append(name)
        rows[key] = row
    for key, members in groups.items():
        out(_format(text, {**rows[key], "N": fold_hosts(members), "D": str(len(members))}).rstrip())
    return 0


def squeue(lab: Lab, argv: list[str]) -> int:
    """squeue, with -h -o -n -j -u -t -w --me."""
    long = {
        "noheader": "h",
        "format": "o",
        "name": "n",
        "jobs": "j",
        "job": "j",
        "user": "u",
        "users": "u",
        "states": "t",
        "nodelist": "w",
        "me": "m",
        "partition": "p",
        "all": "a",
        "account": "A",
        "version": "V",
        "long": "l",
    }
    opts, _rest = _options(argv, "onjutwpA", long, "hmaVl")
    if "V" in opts:
        out("slurm 23.11.4")
        return 0
    found = [(j, "RUNNING") for j in jobs(lab)]
    now = time.time()
    if "j" in opts or opts.get("t", "").lower() == "all":
        found += [(j, str(j["state"]).split()[0]) for j in ended(lab) if now - float(str(j["end"])) < 300]
    if "j" in opts:
        wanted = {w.split(".")[0] for w in opts["j"].split(",")}
        found = [f for f in found if str(f[0]["id"]) in wanted]
        if len(wanted) == 1 and not found:
            err("slurm_load_jobs error: Invalid job id specified")
            return 1
    if "n" in opts:
        found = [f for f in found if f[0]["name"] in opts["n"].split(",")]
    if "u" in opts or "m" in opts:
        users = opts.get("u", user_name()).split(",")
        found = [f for f in found if f[0]["user"] in users]
    if "t" in opts and opts["t"].lower() != "all":
        found = [
            f
            for f in found
            if f[1]
            in {w.upper() for w in opts["t"].split(",")}
            | {"RUNNING" if w.upper() == "R" else "" for w in opts["t"].split(",")}
        ]
    if "w" in opts:
        there = set(expand_hosts(opts["w"]))
        found = [f for f in found if there & set(f[0]["nodes"])]
    text = opts.get("o", "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R")
    heads = {
        "i": "JOBID",
        "A": "JOBID",
        "j": "NAME",
        "T": "STATE",
        "t": "ST",
        "N": "NODELIST",
        "k": "COMMENT",
        "u": "USER",
        "M": "TIME",
        "D": "NODES",
        "R": "NODELIST(REASON)",
        "P": "PARTITION",
        "C": "CPUS",
        "S": "START_TIME",
        "V": "SUBMIT_TIME",
        "r": "REASON",
        "l": "TIME_LIMIT",
        "B": "EXEC_HOST",
    }
    short = {"RUNNING": "R", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F", "NODE_FAIL": "NF", "TIMEOUT": "TO"}
    if "h" not in opts:
        out(_format(text, heads).rstrip())
    for job, state in found:
        nodes = fold_hosts(job["nodes"])
        out(
            _format(
                text,
                {
                    "i": str(job["id"]),
                    "A": str(job["id"]),
                    "j": job["name"],
                    "T": state,
                    "t": short.get(state, "?"),
                    "N": nodes,
                    "k": job["comment"],
                    "u": job["user"],
                    "M": _ages(float(str(job.get("end", now))) - job["start"]),
                    "D": str(len(job["nodes"])),
                    "R": nodes,
                    "P": PARTITION,
                    "C": str(224 * len(job["nodes"])),
                    "S": stamp(job["start"]),
                    "V": stamp(job["start"]),
                    "r": "None",
                    "l": job.get("limit") or "UNLIMITED",
                    "B": job["nodes"][0],
                },
            ).rstrip()
        )
    return 0


def scancel(lab: Lab, argv: list[str]) -> int:
    """scancel ID..., --name NAME, -u USER, --me; ends sruns of this state folder only."""
    long = {
        "name": "n",
        "jobname": "n",
        "user": "u",
        "me": "m",
        "signal": "s",
        "quiet": "Q",
        "verbose": "v",
        "full": "f",
        "batch": "b",
        "state": "t",
        "nodelist": "w",
        "partition": "p",
        "account": "A",
        "ctld": "c",
        "wckey": "W",
        "hurry": "H",
    }
    opts, rest = _options(argv, "nustwpAW", long, "mQvfbciH")
    if not rest and not {"n", "u", "m", "w"} & set(opts):
        err("scancel: error: No job identification provided")
        return 1
    import _signal  # type: ignore[import-not-found]  # the C module below `signal`, which costs an enum

    number = int(_signal.SIGTERM)
    name = opts.get("s", "").upper().removeprefix("SIG")
    if name:
        if name.isdigit():
            number = int(name)
        elif hasattr(_signal, "SIG" + name):
            number = int(getattr(_signal, "SIG" + name))
        else:
            err(f"scancel: error: Unknown job signal: {opts['s']}")
            return 1
    running = {str(j["id"]): j for j in jobs(lab)}
    status, chosen = 0, []
    if rest:
        done = {str(j["id"]) for j in ended(lab)}
        for word in rest:
            job = running.get(word.split(".")[0])
            if job is not None:
                chosen.append(job)
            elif word.split(".")[0] in done:
                if "Q" not in opts:
                    err(f"scancel: error: Kill job error on job id {word}: Job/step already completing or completed")
            else:
                status = 1
                if "Q" not in opts:
                    err(f"scancel: error: Kill job error on job id {word}: Invalid job id specified")
    else:
        chosen = list(running.values())
    if "n" in opts:
        wanted = set(opts["n"].split(","))
        chosen = [j for j in chosen if j["name"] in wanted]
    if "u" in opts or "m" in opts:
        who = opts.get("u", user_name())
        chosen = [j for j in chosen if j["user"] == who]
    if "w" in opts:
        nodes = set(expand_hosts(opts["w"]))
        chosen = [j for j in chosen if nodes & set(j["nodes"])]
    for job in chosen:
        # Checked again right before: never signal a process that only inherited the number.
        if start_ticks(job["pid"]) == job["ticks"]:
            try:
                os.kill(job["pid"], number)
            except (ProcessLookupError, PermissionError):
                status = 1
    return status


def sacct(lab: Lab, argv: list[str]) -> int:
    """sacct, with -j -X -n -P -p -o --name -s -S -u."""
    long = {
        "jobs": "j",
        "job": "j",
        "allocations": "X",
        "noheader": "n",
        "parsable2": "P",
        "parsable": "p",
        "format": "o",
        "name": "N",
        "state": "s",
        "starttime": "S",
        "endtime": "E",
        "user": "u",
        "allusers": "a",
        "duplicates": "D",
        "nodelist": "w",
        "units": "U",
        "delimiter": "d",
        "version": "V",
        "truncate": "T",
    }
    opts, _rest = _options(argv, "joNsSEuwUd", long, "XnPpaDVT")
    if "V" in opts:
        out("slurm 23.11.4")
        return 0
    fields = opts.get("o", "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode").split(",")
    everything: list[dict[str, Any]] = [*ended(lab), *({**j, "state": "RUNNING", "code": "0:0"} for j in jobs(lab))]
    if "j" in opts:
        wanted = {w.split(".")[0] for w in opts["j"].split(",")}
        everything = [j for j in everything if str(j["id"]) in wanted]
    if "N" in opts:
        everything = [j for j in everything if j["name"] in opts["N"].split(",")]
    widths = {
        "jobname": 10,
        "state": 10,
        "jobid": 12,
        "exitcode": 8,
        "nodelist": 15,
        "start": 19,
        "end": 19,
        "submit": 19,
    }
    names = {
        "jobid": "JobID",
        "jobname": "JobName",
        "partition": "Partition",
        "account": "Account",
        "alloccpus": "AllocCPUS",
        "state": "State",
        "exitcode": "ExitCode",
        "nodelist": "NodeList",
        "start": "Start",
        "end": "End",
        "elapsed": "Elapsed",
        "comment": "Comment",
        "jobidraw": "JobIDRaw",
        "user": "User",
        "submit": "Submit",
        "nnodes": "NNodes",
        "derivedexitcode": "DerivedExitCode",
        "reason": "Reason",
        "alloctres": "AllocTRES",
        "maxrss": "MaxRSS",
    }
    plain = [f.split("%")[0].strip().lower() for f in fields]
    for field in plain:
        if field not in names:
            err(f'sacct: error: Invalid field requested: "{field}"')
            return 1

    def show(values: list[str]) -> None:
        delimiter = opts.get("d", "|")
        if "P" in opts or "p" in opts:
            out(delimiter.join(values) + (delimiter if "p" in opts else ""))
            return
        cells = []
        for field, spec, value in zip(plain, fields, values, strict=True):
            width = int(spec.partition("%")[2] or widths.get(field, 10))
            cells.append((value[: abs(width) - 1] + "+" if len(value) > abs(width) else value).rjust(abs(width)))
        out(" ".join(cells) + " ")

    if "n" not in opts:
        show([names[f] for f in plain])
        if "P" not in opts and "p" not in opts:
            out(
                " ".join(
                    "-" * abs(int(s.partition("%")[2] or widths.get(f, 10))) for f, s in zip(plain, fields, strict=True)
                )
                + " "
            )
    for job in sorted(everything, key=lambda j: int(str(j["id"]))):
        over = "end" in job
        base = {
            "partition": PARTITION,
            "account": "lab",
            "alloccpus": str(224 * len(job["nodes"])),
            "exitcode": str(job["code"]),
            "nodelist": fold_hosts(job["nodes"]),
            "start": stamp(job["start"]),
            "submit": stamp(job["start"]),
            "end": stamp(job["end"]) if over else "Unknown",
            "user": job["user"],
            "nnodes": str(len(job["nodes"])),
            "comment": job["comment"],
            "derivedexitcode": "0:0",
            "reason": "None",
            "alloctres": "",
            "maxrss": "",
        }
        s = int(float(str(job.get("end", time.time()))) - job["start"])
        base["elapsed"] = f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}"
        state = str(job["state"])
        if "s" in opts and state.split()[0] not in {w.upper() for w in opts["s"].split(",")}:
            continue
        number = str(job["id"])
        show([{**base, "jobid": number, "jobidraw": number, "jobname": job["name"], "state": state}[f] for f in plain])
        if "X" not in opts:
            step = {
                **base,
                "jobid": f"{number}.0",
                "jobidraw": f"{number}.0",
                "jobname": job["program"],
                "state": state.split()[0],
                "user": "",
                "partition": "",
            }
            show([step[f] for f in plain])
    return 0
