# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of a cluster, made into a config. Pure: texts of scontrol and srun in, a Survey and a YAML text out.

Nothing is guessed: what Slurm does not tell is listed, and stays marked CHANGE in the config.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnin import topology
from burnin.arithmetic import References
from burnin.errors import CampaignError, ConfigError
from burnin.ladder import steps
from burnin.nodes import NODE_NAME, expand, fold
from burnin.parsers import read_lines
from burnin.parsers.scontrol import fields

#: Hours of a burn-in's windows (common practice of acceptance plans), where the partition's limit allows them.
WINDOWS = {"nccl": 12.0, "hpl": 4.0, "nemo": 8.0}
#: What a job needs beside its window (minutes): `slurm.time_margin_minutes` of config/config.yaml.
MARGIN_MINUTES = 30
#: MPI plugins of srun that containers and MPI programs can use, best first.
MPI = ("pmix", "pmix_v5", "pmix_v4", "pmix_v3", "pmi2", "cray_shasta", "openmpi", "none")


@dataclass(frozen=True, slots=True)
class Node:
    """A node as Slurm knows it. `gpus` of one type (`kind`, "" if Slurm has none)."""

    name: str
    gpus: int
    kind: str
    state: str
    reason: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `limit_minutes` and `most_nodes`: None = no limit."""

    name: str
    nodes: tuple[str, ...]
    limit_minutes: int | None
    most_nodes: int | None
    default: bool
    up: bool
    accounts: str
    needs_reservation: bool


@dataclass(slots=True)
class Survey:
    """Everything that was found out. `trouble`: what could not be, in sentences."""

    nodes: dict[str, Node]
    partitions: dict[str, Partition]
    cluster: str = ""
    version: str = ""
    mpi: str = ""
    needs_account: bool = False
    topology_text: str = ""
    trouble: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------ reading Slurm


def gpus_of(gres: str | None) -> tuple[int, str]:
    """Return (count, type) of the GPUs in a Gres text such as `gpu:h100:8(S:0-1),shard:16`; of several types the most."""
    found: Counter[str] = Counter()
    for entry in re.sub(r"\([^)]*\)", "", gres or "").split(","):
        name, *parts = entry.strip().split(":")
        if name != "gpu":
            continue
        count = int(parts.pop()) if parts and parts[-1].isdigit() else 1
        kinds = [p for p in parts if p != "no_consume"]
        found[kinds[0] if kinds else ""] += count
    return (0, "") if not found else (found.most_common(1)[0][1], found.most_common(1)[0][0])


def minutes_of(text: str) -> int | None:
    """Return a time limit (7-00:00:00, 12:00:00, 90, UNLIMITED) in whole minutes; None for no limit or an unreadable one."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        return None
    days, first, second, third = (None if g is None else int(g) for g in match.groups())
    if days is not None:  # days-hours[:minutes[:seconds]]
        return days * 1440 + (first or 0) * 60 + (second or 0)
    if third is not None:  # hours:minutes:seconds
        return (first or 0) * 60 + (second or 0)
    return first or 0  # minutes[:seconds]


def read(answers: Mapping[str, str | None]) -> Survey:
    """Return the survey of the answers to `nodes`, `partitions`, `config`, `topology` (scontrol show) and `mpi` (srun).

    None: the command did not answer, which is said. Raises CampaignError if there is no node to be found.
    """
    survey = Survey({}, {})
    for record in read_lines("scontrol", (answers.get("nodes") or "").splitlines()).data.get("nodes", []):
        name = str(record["name"])
        if not NODE_NAME.fullmatch(name):
            survey.trouble.append(
                f"node {_plain(name)!r} is left out: its name is none that a file or a command can carry"
            )
            continue
        count, kind = gpus_of(record.get("gres"))
        inside = tuple(p for p in str(record.get("partitions") or "").split(",") if p)
        state = "+".join([str(record["base"] or "?"), *record["flags"]])
        survey.nodes[name] = Node(name, count, kind, state, str(record["reason"] or ""), inside)
    if not survey.nodes:
        raise CampaignError(
            "Slurm shows no node",
            "start burnin init on a head node where `scontrol show node` answers, or copy config/dgx-h100.yaml and fill it in",
        )
    for line in (answers.get("partitions") or "").splitlines():
        record_fields = fields(line.strip())
        if name := record_fields.get("PartitionName", ""):
            survey.partitions[name] = _partition(name, record_fields, survey)
    settings = _settings(answers.get("config") or "")
    survey.cluster, survey.version = settings.get("clustername", ""), settings.get("slurm_version", "")
    survey.needs_account = "associations" in settings.get("accountingstorageenforce", "").lower()
    words = set(re.findall(r"[a-z][a-z0-9_]*", answers.get("mpi") or ""))
    survey.mpi = next((m for m in MPI if m in words), "") if "types are" in (answers.get("mpi") or "") else ""
    survey.topology_text = answers.get("topology") or ""
    asked = {"partitions": "scontrol show partition", "config": "scontrol show config", "mpi": "srun --mpi=list"}
    survey.trouble += [f"`{command}` gave no answer" for key, command in asked.items() if not answers.get(key)]
    return survey


def _partition(name: str, record: Mapping[str, str], survey: Survey) -> Partition:
    """Return a partition of its record; its nodes are those that say they are in it, or those it lists."""
    members = [n.name for n in survey.nodes.values() if name in n.partitions]
    if not members:
        try:
            members = [n for n in expand(record.get("Nodes", ""), "Nodes") if n in survey.nodes]
        except ConfigError:
            members = []
    most = record.get("MaxNodes", "")
    return Partition(
        name,
        tuple(members),
        minutes_of(record.get("MaxTime", "")),
        int(most) if most.isdigit() else None,
        record.get("Default") == "YES",
        record.get("State", "UP") == "UP",
        record.get("AllowAccounts", "ALL"),
        record.get("ReqResv") == "YES",
    )


def _settings(text: str) -> dict[str, str]:
    """Return `scontrol show config` as lower-case key -> value."""
    found = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign and re.fullmatch(r"[A-Za-z_]+\s*", key):
            found[key.strip().lower()] = value.strip()
    return found


# ----------------------------------------------------------------------------------------------------------- choosing


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes that a campaign takes, all alike, and why others are left out."""

    partition: Partition | None
    nodes: tuple[str, ...]
    gpus: int
    kind: str
    notes: tuple[str, ...]


def choose(survey: Survey, partition: str | None = None, nodes: str | None = None) -> Choice:
    """Return the nodes to burn in: those named, or the largest set of like nodes in the partition (named, or with most GPUs).

    Raises CampaignError for a partition or a node that Slurm does not have, and where no node is left.
    """
    notes: list[str] = []
    if partition is not None and partition not in survey.partitions:
        raise CampaignError(
            f"Slurm has no partition {partition!r}",
            f"name one of {', '.join(map(_plain, survey.partitions)) or 'none'}",
        )
    wanted = None
    if nodes is not None:
        wanted = expand(nodes, "--nodes")
        if missing := [n for n in wanted if n not in survey.nodes]:
            raise CampaignError(f"Slurm has no node {fold(missing)}", "see sinfo for the nodes")
    chosen = survey.partitions.get(partition or "")
    if chosen is None:
        chosen = _best(survey, wanted)
        others = [p.name for p in survey.partitions.values() if chosen and p.name != chosen.name]
        if others and chosen:
            notes.append(
                f"partition {_plain(chosen.name)} is taken; there are also {', '.join(map(_plain, others))} (--partition)"
            )
    members = wanted or (list(chosen.nodes) if chosen else list(survey.nodes))
    alike = Counter((survey.nodes[n].gpus, survey.nodes[n].kind) for n in members)
    if not alike:
        raise CampaignError("there is no node to burn in", "name them with --nodes or another --partition")
    gpus, kind = max(alike, key=lambda k: (k[0] > 0, alike[k], k))
    taken = [n for n in members if (survey.nodes[n].gpus, survey.nodes[n].kind) == (gpus, kind)]
    left: dict[tuple[int, str], list[str]] = {}
    for name in members:
        if name not in taken:
            left.setdefault((survey.nodes[name].gpus, survey.nodes[name].kind), []).append(name)
    for (count, other), names in left.items():
        notes.append(
            f"{fold(names)} left out: {count} GPUs{f' ({_plain(other)})' if other else ''}, not {gpus}; a campaign of their own"
        )
    for name in taken:
        node = survey.nodes[name]
        if not re.match(r"IDLE$|ALLOC|MIX", node.state):
            notes.append(f"{name} is {_plain(node.state)}{f': {_plain(node.reason)}' if node.reason else ''}")
    notes += _limits(chosen, len(taken))
    return Choice(chosen, tuple(taken), gpus, kind, tuple(notes))


def _best(survey: Survey, wanted: Sequence[str] | None) -> Partition | None:
    """Return the partition that has all wanted nodes, else the one with most GPUs; the default one among equals."""
    fitting = [p for p in survey.partitions.values() if p.nodes and (wanted is None or set(wanted) <= set(p.nodes))]
    if not fitting:
        return None
    gpus = {p.name: sum(survey.nodes[n].gpus for n in p.nodes) for p in fitting}
    return max(fitting, key=lambda p: (p.up, gpus[p.name], p.default, -len(p.nodes), p.name))


def _limits(partition: Partition | None, count: int) -> list[str]:
    """Return what of a partition stands in the way of a burn-in."""
    if partition is None:
        return []
    notes = []
    name = _plain(partition.name)
    if not partition.up:
        notes.append(f"partition {name} is not UP: no job starts in it")
    if partition.most_nodes is not None and partition.most_nodes < count:
        notes.append(
            f"partition {name} allows {partition.most_nodes} nodes a job, the step full needs {count}: ask for more"
        )
    if partition.needs_reservation:
        notes.append(f"partition {name} only takes jobs of a reservation: fill in slurm.reservation")
    if partition.accounts != "ALL":
        notes.append(f"partition {name} only takes the accounts {_plain(partition.accounts)}: fill in slurm.account")
    return notes


# ------------------------------------------------------------------------------------------------------------ writing


def _plain(text: str) -> str:
    """Return text for a comment or a message: printable ASCII on one line."""
    return re.sub(r"[^\x20-\x7e]", "?", text)[:200]


def _scalar(value: Any) -> str:
    """Return a value as YAML in one line."""
    import yaml

    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("\n").removesuffix("\n...")


#: The template's value stays.
KEEP: Any = object()
#: value (or KEEP), comment (None: the template's stays)
Fill = tuple[Any, str | None]
_KEY = re.compile(r"^( *)([A-Za-z_][\w-]*):(?: (.*))?$")


def fill(template: str, values: Mapping[str, Fill], header: Sequence[str]) -> str:
    """Return a config with values and comments of some keys replaced (by dotted name), and a header of its own.

    Raises KeyError for a key that the template does not have: a template that changed must not be filled in silently.
    """
    lines = template.splitlines()
    body = lines[next(i for i, line in enumerate(lines) if not line.startswith("#")) :]
    out = ["# SPDX-License-Identifier: Apache-2.0", *(f"# {line}".rstrip() for line in header)]
    place: list[tuple[int, str]] = []
    missing = dict(values)
    dropping = False
    for line in body:
        match = _KEY.match(line)
        if match is None:
            if not (dropping and line.lstrip().startswith("#")):
                dropping = False
                out.append(line)
            continue
        indent = len(match[1])
        place = [(i, n) for i, n in place if i < indent] + [(indent, match[2])]
        value, comment = missing.pop(".".join(n for _, n in place), (KEEP, None))
        if isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values()) and indent == 0:
            import yaml

            block = str(yaml.safe_dump(dict(value), default_flow_style=False, sort_keys=False, width=10_000))
            out += [f"{match[1]}{match[2]}:", textwrap.indent(block.rstrip("\n"), match[1] + "  ")]
        else:
            out.append(line if value is KEEP else f"{match[1]}{match[2]}: {_scalar(value)}")
        dropping = comment is not None
        out += [f"{match[1]}# {part}" for part in textwrap.wrap(comment or "", 118 - indent)]
    if missing:
        raise KeyError(", ".join(missing))
    return "\n".join(out) + "\n"


def write(
    survey: Survey, choice: Choice, references: References, templates: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the config and what could not be found. `templates`: the texts of `gpu` and `cpu` campaigns.

    Raises CampaignError if no window fits into the partition's limit.
    """
    limit = choice.partition.limit_minutes if choice.partition else None
    room = math.inf if limit is None else (limit - MARGIN_MINUTES) / 60
    if room < 0.25:
        raise CampaignError(
            f"partition {_plain(choice.partition.name if choice.partition else '')} ends jobs after {limit} minutes: no burn-in fits",
            "name another one with --partition, or have its MaxTime raised",
        )
    cluster = re.sub(r"[^A-Za-z0-9_.-]+", "-", survey.cluster).strip("-._")[:40]
    unknown = ["whether you may drain and resume nodes (drain), and which probes need sudo (probes)"]
    values: dict[str, Fill] = {
        "campaign": (
            f"{cluster or 'cluster'}-first",
            "One name for each burn-in; the same name goes on where it stopped.",
        ),
        "nodes": (fold(choice.nodes), f"Found in Slurm: {len(choice.nodes)} nodes that are alike."),
        "gpus_per_node": (choice.gpus, f"Found in Slurm{f': {_plain(choice.kind)}' if choice.kind else ''}."),
    }
    if choice.gpus:
        values |= _of_gpus(survey, choice, references, room, unknown)
    else:
        unknown.append("GPUs: this is a campaign for CPU nodes, with sizes for a trial")
    told = "Slurm has no fitting one." if choice.partition is None else "Found in Slurm."
    slurm = {"partition": (choice.partition.name if choice.partition else None, told)}
    text = fill(templates["gpu" if choice.gpus else "cpu"], values, _header(survey, choice, unknown))
    if not choice.gpus:
        # the template of CPU nodes leaves all of this to config/config.yaml
        extra = {"partition": slurm["partition"][0], "partition_limit_minutes": limit, "mpi": survey.mpi or "pmix"}
        block = "".join(
            f"  {k}: {_scalar(v)}\n  # {told if k == 'partition' else 'Found in Slurm.'}\n" for k, v in extra.items()
        )
        text = text.replace("\nslurm:\n", f"\nslurm:\n{block}", 1)
    return text, unknown


def _of_gpus(
    survey: Survey, choice: Choice, references: References, room: float, unknown: list[str]
) -> dict[str, Fill]:
    """Return what a GPU campaign's template is filled with; adds to `unknown`."""
    values: dict[str, Fill] = {}
    limit = choice.partition.limit_minutes if choice.partition else None
    rungs = ", ".join(s.name for s in steps(len(choice.nodes)))
    values["windows"] = (
        KEEP,
        f"{len(choice.nodes)} nodes have the steps {rungs}. `burnin plan --configfile FILE` tells how long all of it takes.",
    )
    for workload, hours in WINDOWS.items():
        fitting = min(hours, math.floor(room * 4) / 4) if room < hours else hours
        short = (
            f" CHANGE the partition if you can: its limit allows {fitting:g} h, {hours:g} are usual."
            if fitting < hours
            else ""
        )
        whole = int(fitting) if fitting == int(fitting) else fitting
        values[f"windows.{workload}"] = ({"default": {"hours": whole}}, short.strip() or None)
    gpu = references.gpu_type(choice.kind) if choice.kind else None
    memory = "workload_definitions.hpl.hpl.gpu_memory_mib"
    if gpu is not None:
        values[memory] = (int(gpu.memory_mib), f"{gpu.name}: {gpu.source}. Compare with nvidia-smi.")
    else:
        values[memory] = (KEEP, "CHANGE: memory of one GPU as nvidia-smi prints it. Slurm does not tell the model.")
        unknown.append("the model of the GPUs: their memory decides the size of HPL (gpu_memory_mib)")
    if choice.gpus % 2:
        values["workload_definitions.nemo.training.context_parallel"] = (
            1,
            "An odd number of GPUs cannot be split in two.",
        )
    values["slurm.partition"] = (
        choice.partition.name if choice.partition else None,
        "Found in Slurm. Best one that users do not reach.",
    )
    values["slurm.partition_limit_minutes"] = (
        limit,
        "MaxTime of the partition, found in Slurm." if limit else "Found in Slurm: no limit.",
    )
    values["slurm.iteration_minutes"] = (60 if limit is None else min(60, limit - MARGIN_MINUTES), None)
    if survey.mpi:
        values["slurm.mpi"] = (survey.mpi, "Found with srun --mpi=list. The MPI inside the images must understand it.")
    else:
        unknown.append("the MPI plugin (slurm.mpi): see srun --mpi=list")
    if survey.needs_account:
        values["slurm.account"] = (
            KEEP,
            "CHANGE: this cluster takes no job without a known account (AccountingStorageEnforce).",
        )
        unknown.append("the account to charge (slurm.account): see sacctmgr show assoc")
    values["topology"] = _topology(survey, choice, unknown)
    unknown += [
        "container images, mounts and the folder for checkpoints (workload_definitions), storage for results (results)",
        "fabric ports (hcas, NCCL_IB_HCA): those in the file are a DGX H100's; compare with ibdev2netdev",
        "racks, PDUs and cooling zones (topology)",
    ]
    return values


def _topology(survey: Survey, choice: Choice, unknown: list[str]) -> Fill:
    """Return the section `topology` as far as Slurm knows it."""
    keep = "null, since Slurm knows none. CHANGE if you do: name a copy of config/topology.example.yaml."
    try:
        found = topology.from_slurm(survey.topology_text, choice.nodes)
    except ConfigError as error:
        unknown.append(f"the topology: {_plain(str(error).splitlines()[0])}")
        return KEEP, keep
    if not found.known:
        unknown.append("the topology (leaf switches): Slurm knows none")
        return KEEP, keep
    if found.unplaced:
        unknown.append(f"the leaf switch of {fold(found.unplaced)}")
    return (
        found.document(),
        f"Found in Slurm ({found.source}). Racks, PDUs and zones may be added (config/topology.example.yaml).",
    )


def _header(survey: Survey, choice: Choice, unknown: Sequence[str]) -> list[str]:
    """Return the comment that opens the config."""
    version = f"Slurm {_plain(survey.version)}" if survey.version else "Slurm"
    lines = [f"Written by burnin init from what {version} says of {len(choice.nodes)} nodes."]
    lines += [
        "It is laid over config/config.yaml key by key: what does not stand here keeps the value (and its comment) there.",
        "",
    ]
    notes = [*choice.notes, *survey.trouble]
    lines += ["To note:", *_listed(notes[:60])] if notes else []
    lines += [f"  ... and {len(notes) - 60} more"] if len(notes) > 60 else []
    return [*lines, "Not found, look for CHANGE and fill it in:", *_listed(unknown)]


def _listed(points: Sequence[str]) -> list[str]:
    """Return points as wrapped lines of a list."""
    return [line for p in points for line in textwrap.wrap(p, 116, initial_indent="  - ", subsequent_indent="    ")]
