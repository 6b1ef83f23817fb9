# SPDX-License-Identifier: Apache-2.0
"""What squeue, scontrol, sacct and sbatch print, and what it means for a run: pure functions.

Text in, records and verdicts out; no clock, no subprocess. Times are seconds since the epoch: the caller sets
SLURM_TIME_FORMAT=%s, and ISO times (Slurm's default) are understood too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

#: separates the columns of squeue: a character that no job name or comment has
SEPARATOR = "\x1f"

#: squeue's --format. The comment comes last, the free text of other people's jobs cannot shift a column before it.
SQUEUE_FORMAT = SEPARATOR.join(["%A", "%T", "%S", "%e", "%N", "%r", "%j", "%k"])

#: sacct's --format; with -P its columns are divided by "|", the free text again last
SACCT_FORMAT = "JobIDRaw,State,Start,End,JobName,Comment"

#: still queued or running, or on its way from the one to the other (squeue's JOB STATE CODES)
ACTIVE = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "SUSPENDED",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "COMPLETING",
        "POWER_UP_NODE",
    }
)

#: the job got its nodes, so that what happens to a node from here on happens to the run
STARTED = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "COMPLETING"})

#: Slurm has put the job back into the queue although it was told not to
REQUEUED = frozenset({"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})

#: the words of a casualty for every final state
ENDED = {
    "COMPLETED": "FAILED",  # used only where no result was written: the run ended without its one product
    "FAILED": "FAILED",
    "NODE_FAIL": "NODE_FAIL",
    "BOOT_FAIL": "BOOT_FAIL",
    "CANCELLED": "CANCELLED",
    "REVOKED": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
    "DEADLINE": "DEADLINE",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "PREEMPTED": "PREEMPTED",
    "LAUNCH_FAILED": "FAILED",
    "RECONFIG_FAIL": "FAILED",
}

#: pending reasons that no waiting will change: the request itself cannot be granted
HOPELESS = {
    "PartitionNodeLimit": "the partition does not have, or does not allow, that many nodes; choose another one",
    "PartitionTimeLimit": "the partition's time limit is shorter than the run; shorten the window, or choose another",
    "BadConstraints": "these nodes cannot give what is asked for; compare GPUs per node with scontrol show node",
    "AccountNotAllowed": "the account may not use this partition; set account or partition in the config",
    "InvalidAccount": "the account does not exist; set account in the config",
    "InvalidQOS": "the QOS does not exist; set qos in the config",
    "QOSNotAllowed": "the QOS may not be used with this account or partition; set qos in the config",
    "ReservationDeleted": "the reservation was deleted; set reservation in the config",
    "DependencyNeverSatisfied": "the job waits for one that failed; remove the dependency from the extra options",
    "JobArrayTaskLimit": "job arrays must not be used; remove the option from the extra options",
}

#: the same for limits whose names vary ("QOSMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit", ...)
_HOPELESS_LIMIT = re.compile(r"^(QOS|Assoc)\w*PerJob(Limit)?$")

#: pending reasons that say that the pinned nodes themselves are the obstacle
_UNAVAILABLE = re.compile(r"^(ReqNodeNotAvail|Nodes_required_for_job_are_DOWN|NodeDown|Reservation|InactiveLimit)")

#: the node list inside "ReqNodeNotAvail, UnavailableNodes:dgx[02,05]"
_UNAVAILABLE_NODES = re.compile(r"UnavailableNodes:([^\s()]*)")

#: states in which a node will not start a job until a person (or a boot) changes it (sinfo's NODE STATE CODES)
_UNUSABLE = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "FAILED", "ERROR", "INVAL", "INVALID", "INVALID_REG"}
)

#: states in which a node works for somebody, so that its turn may simply not have come
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP"})

#: states of a node that is no longer there
_GONE = frozenset({"DOWN", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWERING_DOWN"})

#: sbatch's complaints that pass by themselves (slurm_errno.c: communication, timeouts, a busy or absent controller)
_TRANSIENT = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|connection reset|connection timed out"
    r"|zero bytes were transmitted|communication connection failure|communication shutdown failure"
    r"|message (send|receive) failure|temporarily unable|resource temporarily unavailable|backup controller in standby"
    r"|transport endpoint|no route to host|unable to establish controller|header lengths are longer"
    r"|protocol authentication error|invalid authentication credential|munge|in the process of being|job state file"
    r"|submit ?job ?limit|maxsubmit|too many (open )?jobs|maximum job limit",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class QueueJob:
    """One job as squeue or sacct shows it. Times in seconds since the epoch, None where Slurm does not know."""

    job_id: str
    state: str
    start: float | None
    end: float | None
    nodes: str
    reason: str
    name: str
    comment: str

    @property
    def active(self) -> bool:
        """Whether it is queued or running, as far as this look can tell (an unknown word counts as active)."""
        return self.state not in ENDED

    @property
    def started(self) -> bool:
        """Whether it has its nodes now."""
        return self.state in STARTED


@dataclass(frozen=True)
class Node:
    """One node as `scontrol show node` shows it."""

    name: str
    states: frozenset[str]
    boot_time: float | None
    reason: str
    reason_time: float | None

    @property
    def state(self) -> str:
        """The state as Slurm writes it, base state and flags joined by +."""
        return "+".join(sorted(self.states, key=lambda word: (word not in _BASE_STATES, word)))

    def told(self) -> str:
        """One phrase for a message: state and reason."""
        return f"{self.name} is {self.state}" + (f" ({self.reason})" if self.reason else "")


_BASE_STATES = frozenset({"DOWN", "IDLE", "ALLOCATED", "MIXED", "ERROR", "FUTURE", "UNKNOWN"})


def time_of(text: str) -> float | None:
    """Seconds since the epoch for a time as Slurm prints it; None for Unknown, N/A, None or anything unreadable."""
    text = text.strip()
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def state_word(text: str) -> str:
    """The bare state: "CANCELLED by 1000" is CANCELLED, "NODE_FAIL+" (cut by a narrow column) NODE_FAIL."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else ""


def parse_squeue(text: str) -> dict[str, QueueJob]:
    """Jobs by id, from `squeue -h -t all -o SQUEUE_FORMAT`; a line that is not of that shape is passed over."""
    jobs: dict[str, QueueJob] = {}
    for line in text.splitlines():
        columns = line.split(SEPARATOR, 7)
        if len(columns) != 8 or not columns[0].strip().isdigit():
            continue
        job_id, state, start, end, nodes, reason, name, comment = columns
        jobs[job_id.strip()] = QueueJob(
            job_id.strip(),
            state_word(state),
            time_of(start),
            time_of(end),
            nodes.strip(),
            reason.strip(),
            name.strip(),
            "" if comment.strip() == "(null)" else comment.strip(),
        )
    return jobs


def parse_sacct(text: str) -> dict[str, QueueJob]:
    """Jobs by id, from `sacct -n -P -X -D -o SACCT_FORMAT`. Of several records of one id the last one counts."""
    jobs: dict[str, QueueJob] = {}
    for line in text.splitlines():
        columns = line.split("|", 5)
        if len(columns) != 6 or not columns[0].strip().isdigit():
            continue
        job_id, state, start, end, name, comment = columns
        jobs[job_id.strip()] = QueueJob(
            job_id.strip(), state_word(state), time_of(start), time_of(end), "", "", name.strip(), comment.strip()
        )
    return jobs


_JOB_FIELD = {
    name: re.compile(rf"(?:^|\s){name}=(\S*)")
    for name in ("JobId", "JobName", "JobState", "Reason", "StartTime", "EndTime", "NodeList", "Restarts")
}
_JOB_COMMENT = re.compile(r"\sComment=(.*?)\s+(?:StdErr|SystemComment|AdminComment)=")


def parse_show_job(text: str) -> QueueJob | None:
    """The job of `scontrol -o show job ID`, None if there is none in the text."""

    def field(name: str) -> str:
        found = _JOB_FIELD[name].search(text)
        return found.group(1) if found else ""

    if not field("JobId").isdigit() or not field("JobState"):
        return None
    comment = _JOB_COMMENT.search(text)
    nodes = field("NodeList")
    return QueueJob(
        field("JobId"),
        state_word(field("JobState")),
        time_of(field("StartTime")),
        time_of(field("EndTime")),
        "" if nodes == "(null)" else nodes,
        field("Reason"),
        field("JobName"),
        comment.group(1).strip() if comment else "",
    )


_NODE_NAME = re.compile(r"^NodeName=(\S+)")
_NODE_STATE = re.compile(r"\sState=(\S+)")
_NODE_BOOT = re.compile(r"\sBootTime=(\S+)")
_NODE_REASON = re.compile(r"\sReason=(.*?)(?:\s\[[^\s\[\]@]+@(?P<when>[^\s\]]+)\])?\s*(?:\s(?:Comment|Extra)=.*)?$")


def parse_show_node(text: str) -> dict[str, Node]:
    """Nodes by name, from `scontrol -o show node LIST` (one line a node); other lines are passed over."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        name, state = _NODE_NAME.search(line), _NODE_STATE.search(line)
        if not name or not state:
            continue
        boot, reason = _NODE_BOOT.search(line), _NODE_REASON.search(line)
        word = state.group(1).upper()
        states = set(re.split(r"\+", word.rstrip("*~#!%$@^-")))
        if "*" in word:
            states.add("NOT_RESPONDING")
        when = reason.group("when") if reason else None
        nodes[name.group(1)] = Node(
            name.group(1),
            frozenset(part for part in states if part),
            time_of(boot.group(1)) if boot else None,
            reason.group(1).strip() if reason else "",
            time_of(when) if when else None,
        )
    return nodes


def unusable(node: Node) -> bool:
    """Whether a job pinned to this node will not start before somebody changes the node's state."""
    return bool(node.states & _UNUSABLE)


#: the reasons that slurmctld itself gives to a node that went away (node_mgr.c); others are somebody's decision
_CRASH_REASONS = ("not responding", "node unexpectedly rebooted")


def crashed(node: Node) -> bool:
    """Whether Slurm itself has given the node up, rather than somebody who took it out of service."""
    return "DOWN" in node.states and node.reason.lower().startswith(_CRASH_REASONS)


def busy(node: Node) -> bool:
    """Whether the node works for some job now."""
    return bool(node.states & _BUSY)


@dataclass(frozen=True)
class Pending:
    """Why a job of ours has not started.

    kind: "turn" (its turn has not come), "stuck" (the nodes are the obstacle, perhaps for a while),
    "nodes" (a node's state says that it will not start), "hopeless" (the request itself is wrong; text has the cure).
    """

    kind: str
    nodes: list[str]
    text: str
    crashed: list[str] = field(default_factory=list)  # those of the nodes that Slurm itself has given up


def why_pending(job: QueueJob, group: Sequence[str], nodes: Mapping[str, Node]) -> Pending:
    """Judge a pending job pinned to `group` by its reason and by the state of its nodes.

    The reason alone does not do: a job behind others reads "Priority" although one of its nodes was drained.
    """
    reason = job.reason
    if reason in HOPELESS:
        return Pending("hopeless", [], f"{reason}: {HOPELESS[reason]}")
    if _HOPELESS_LIMIT.match(reason):
        return Pending(
            "hopeless", [], f"{reason}: a limit of the account or QOS forbids such a job; ask for another limit"
        )
    broken = [nodes[name] for name in group if name in nodes and unusable(nodes[name])]
    if broken:
        gone = [node.name for node in broken if crashed(node)]
        return Pending("nodes", [node.name for node in broken], "; ".join(node.told() for node in broken), gone)
    if reason.startswith(("JobHeld", "job_requeued_in_held_state")):
        return Pending("stuck", [], f"somebody holds the job ({reason}): scontrol release {job.job_id}")
    if not _UNAVAILABLE.match(reason) or any(name in nodes and busy(nodes[name]) for name in group):
        return Pending("turn", [], reason)
    odd = [
        nodes[name]
        for name in group
        if name in nodes and (nodes[name].states - {"IDLE", "PLANNED", "CLOUD", "DYNAMIC_NORM"})
    ]
    named = _UNAVAILABLE_NODES.search(reason)
    text = "; ".join(node.told() for node in odd) or reason
    if not odd and named and named.group(1):
        text = f"Slurm names {named.group(1)} as unavailable"
    return Pending("stuck", [node.name for node in odd], text)


def lost_nodes(
    state: str,
    start: float | None,
    end: float | None,
    now: float,
    group: Iterable[str],
    nodes: Mapping[str, Node],
    text: str,
) -> list[Node]:
    """Those nodes of a dead job that were lost while it ran.

    A node counts if it booted between the job's start and end (a quick reboot may be over before anyone looks), if it
    went down in that time (the time stamp of its reason), or if it is gone now and the death is fresh. `text` is the
    end of the job's log: Slurm names a failed node there, the last trace of one that has come back since.
    """
    if start is None:
        return []
    slack = 90.0  # between a node's death and Slurm's noticing lie the timeouts; the end of the job is that moment
    until = (end if end is not None else now) + slack
    fresh = end is None or now - end <= 2 * slack
    node_fail = state in ("NODE_FAIL", "BOOT_FAIL")
    named = set(re.findall(r"[Nn]ode failure on ([^\s,:;*]+)", text))
    lost = []
    for name in group:
        node = nodes.get(name)
        if node is None:
            continue
        gone = bool(node.states & _GONE)
        rebooted = node.boot_time is not None and start < node.boot_time and (node.boot_time <= until or node_fail)
        went_down = gone and node.reason_time is not None and start <= node.reason_time <= until
        if rebooted or went_down or (gone and fresh) or (node_fail and name in named):
            lost.append(node)
    return lost


def transient(stderr: str) -> bool:
    """Whether sbatch's complaint passes by itself (nobody answered): the same submission is worth another try."""
    return bool(_TRANSIENT.search(stderr))


_JOB_ID = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)


def submitted_id(stdout: str) -> str | None:
    """The job id that `sbatch --parsable` printed (`ID` or `ID;cluster`), None if there is none."""
    found = _JOB_ID.findall(stdout)
    return found[-1] if found else None


_COMMENT = re.compile(r"^burnin campaign=(?P<campaign>\S+) uid=(?P<uid>\S+) run=(?P<run>\S+) key=(?P<key>\S+)")


@dataclass(frozen=True)
class Mark:
    """What tells a job of ours: written into its comment, read back after a restart."""

    campaign: str
    uid: str
    run_id: str
    key: str

    def comment(self) -> str:
        """The job's comment."""
        return f"burnin campaign={self.campaign} uid={self.uid} run={self.run_id} key={self.key}"


def mark_of(comment: str) -> Mark | None:
    """The mark in a job's comment, None if the job is not of this workflow."""
    found = _COMMENT.match(comment)
    return Mark(found["campaign"], found["uid"], found["run"], found["key"]) if found else None


def is_ours(job: QueueJob, uid: str, run_id: str, job_name: str) -> bool:
    """Whether the job is this run's: by its comment, or by its name where a site overwrites comments."""
    seen = mark_of(job.comment)
    if seen is not None:
        return seen.uid == uid and seen.run_id == run_id
    return job.name == job_name
