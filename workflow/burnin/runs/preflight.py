# SPDX-License-Identifier: Apache-2.0
"""Before the first plan: containers staged, storage tried, fabric counters cleared, one look at all nodes at once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin import parsers, plan_check, storage
from burnin import preflight as rules
from burnin.cluster.drain import node_states
from burnin.config import Config
from burnin.errors import CampaignError
from burnin.runs import stack

#: Slurm states of a node that srun would wait for in vain.
AWAY = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "NOT_RESPONDING", "MAINT", "POWERED_DOWN", "POWER_DOWN"}
#: What the launch of a look printed.
LOG = "launch.log"
#: After a time-out, srun may take so long (s) to give its allocation back.
GRACE_SECONDS = 10.0


def run(target: Path) -> dict[str, Any]:
    """Look at the cluster and write preflight.json. Raises CampaignError for what makes the campaign impossible."""
    campaign_dir = target.parents[1]
    config = configuration.from_file(campaign_dir)
    section = config.document["preflight"]
    folder = target.parent / time.strftime("look-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    environment = config.environment(os.environ)
    document: dict[str, Any] = {
        "campaign": config.campaign,
        "time": time.time(),
        "storage": [_try_storage(p, float(section["room_gib"])) for p in _folders(config)],
        "files": [_try_file(f["path"], f["contains"]) for f in _files(config)],
        "containers": [_stage(c, float(section["timeout_seconds"]), environment) for c in section["containers"]],
        "fabric": None,
    }
    findings: list[dict[str, Any]] = []
    if section["fabric"]:
        document["fabric"], said = _fabric(config, folder, environment)
        findings += said
    nodes, said = _look(config, folder, environment)
    common = rules.common_stack(nodes)
    findings += said + rules.judge(nodes, common, int(config.document["gpus_per_node"]))
    document["dry_runs"], said = _dry_runs(config, folder, next(iter(nodes), config.nodes[0]), environment)
    findings += said
    document |= {"stack": common, "nodes": nodes, "findings": findings}
    if findings and section["on_finding"] == "stop":
        shown = "\n".join(f"  {sentence(f)}" for f in findings[:20])
        raise CampaignError(
            f"the preflight found {len(findings)} things:\n{shown}",
            "put them right and start snakemake again, or set preflight.on_finding to warn",
        )
    stack.freeze(config, document, {c["file"]: stamp_of(Path(c["file"])) for c in document["containers"]})
    storage.write_json(target, document, "preflight")
    storage.keep_version(target, target.read_text(encoding="utf-8"))
    return document


def sentence(found: Mapping[str, Any]) -> str:
    """Return a finding in one line."""
    where = f"{found['node'] or 'cluster'} {found['part']}"
    return f"{where}: {found['reason']}" + (f" ({found['evidence'][0]})" if found["evidence"] else "")


# ---------------------------------------------------------------------------------------------------- shared storage


def _folders(config: Config) -> list[Path]:
    """Return the folders that the campaign writes to."""
    roots = [config.definition(w).get("training", {}).get("checkpoint_root") for w in config.workloads]
    return list(dict.fromkeys([config.campaign_dir, *(Path(r) for r in roots if r)]))


def _try_storage(folder: Path, room_gib: float) -> dict[str, Any]:
    """Write, sync, read and remove a file; return the room (GiB). Raises CampaignError if that does not work."""
    trial = folder / f".burnin-trial-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = f"burnin {time.time()}\n"
        storage.write_text(trial, text)
        same = trial.read_text(encoding="utf-8") == text
        trial.unlink()
        free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        raise CampaignError(
            f"{folder} cannot be written ({error.strerror})",
            "mount the shared storage, or correct `results` and `checkpoint_root`",
        ) from None
    if not same:
        raise CampaignError(f"{folder} returned other bytes than were written", "look at the shared storage")
    if free < room_gib:
        raise CampaignError(
            f"{folder} has {free:.1f} GiB left, preflight.room_gib asks for {room_gib:g}",
            "make room, or correct preflight.room_gib",
        )
    return {"folder": str(folder), "free_gib": round(free, 1)}


def _files(config: Config) -> list[Mapping[str, Any]]:
    """Return the files that must be there: the campaign's, and those of the workloads that run."""
    of_workloads = [f for w in config.workloads for f in config.definition(w).get("files", [])]
    return [*config.document["preflight"]["files"], *of_workloads]


def _try_file(path: str, contains: str | None) -> dict[str, Any]:
    """Return a file's size; a text that must be in it is looked for at its beginning and end."""
    try:
        with Path(path).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            text = stream.read(65536)
            stream.seek(max(0, size - 65536))
            text += stream.read()
    except OSError as error:
        raise CampaignError(
            f"{path} cannot be read ({error.strerror})",
            "put the file there, or correct `files` (of preflight, or of the workload)",
        ) from None
    if contains is not None and contains.encode() not in text:
        raise CampaignError(f"{path} does not contain {contains!r}", "it is another version: put the right file there")
    return {"path": path, "bytes": size}


# -------------------------------------------------------------------------------------------------------- containers


def _stage(container: Mapping[str, str], timeout: float, environment: Mapping[str, str]) -> dict[str, Any]:
    """Import a container once, for all campaigns that share the file; return its checksum.

    The lock is held by whoever imports; the image appears under its name only when it is whole.
    """
    file, image = Path(container["file"]), container["image"]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not os.access(file.parent, os.W_OK):
            return {"image": image, "file": str(file), "staged": False, "sha256": digest(file)}
        with file.with_name(f".{file.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            staged = not file.exists()
            if staged:
                _import(file, image, timeout, environment)
            return {"image": image, "file": str(file), "staged": staged, "sha256": _checksum(file)}
    except OSError as error:
        raise CampaignError(
            f"the container {image} cannot be staged as {file} ({error.strerror})", "correct preflight.containers"
        ) from None


def _import(file: Path, image: str, timeout: float, environment: Mapping[str, str]) -> None:
    """Run enroot import beside the target and rename. Raises CampaignError with its last words."""
    part = file.with_name(f".{file.name}.part.sqsh")
    part.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            ["enroot", "import", "-o", str(part), image],
            env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        status = done.returncode
    except subprocess.TimeoutExpired:
        said, status = f"not done within {timeout:.0f} s", 124
    if status != 0 or not part.exists():
        last = said.splitlines()[-1][:300] if said else f"exit status {status}"
        part.unlink(missing_ok=True)
        raise CampaignError(
            f"the container {image} could not be staged as {file}: {last}",
            "import it by hand (enroot import -o FILE IMAGE), or correct preflight.containers",
        )
    part.rename(file)


def _checksum(file: Path) -> str:
    """Return the SHA-256 of a file, kept beside it: an image of many gigabytes is read once."""
    kept = file.with_name(f"{file.name}.sha256")
    stamp = f"# {stamp_of(file)}"
    if kept.exists():
        words = kept.read_text(encoding="utf-8").splitlines()
        if len(words) == 2 and words[1] == stamp:
            return words[0].split()[0]
    value = digest(file)
    storage.write_text(kept, f"{value}  {file.name}\n{stamp}\n")
    return value


def container_now(file: Path, frozen: str) -> str:
    """Return a container as it is now, in the form in which it was frozen ("SHA-256 size time"); `frozen` if it is the same.

    Raises OSError if it cannot be read.
    """
    stamp = stamp_of(file)
    value, _, known = frozen.partition(" ")
    if stamp == known:
        return frozen
    now = _checksum(file) if os.access(file.parent, os.W_OK) else digest(file)
    return frozen if now == value else f"{now} {stamp}"


def stamp_of(file: Path) -> str:
    """Return size and time of change of a file: while they are the same, nobody reads it again."""
    stat = file.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------------------------ fabric


def _fabric(
    config: Config, folder: Path, environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Clear the port counters and count the CAs."""
    section = config.document["preflight"]
    log = folder / "fabric.log"
    trouble = call(configuration.render(section["fabric"], {}), log, float(section["timeout_seconds"]), environment)
    reading = parsers.read_file("ibdiagnet", log)
    file = str(log.relative_to(config.campaign_dir))
    facts = {k: reading.data.get(k) for k in ("version", "nodes", "switches", "cas", "counters_cleared")}
    if trouble or not reading.recognised:
        return facts | {"file": file}, [
            rules.finding(None, "fabric", trouble or "no output of ibdiagnet", [f"{file}:1"])
        ]
    expected = len(config.nodes) * len(config.hcas)
    return facts | {"file": file}, rules.judge_fabric(reading, expected, section["extra_cas"], file)


# ---------------------------------------------------------------------------------------------------------- dry runs


def _dry_runs(
    config: Config, folder: Path, node: str, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Let the trainers print what they would do on all nodes; one that refuses its recipe is a finding."""
    section = config.document["preflight"]
    gpus = max(1, int(config.document["gpus_per_node"]))
    logs, findings = {}, []
    for workload, template in section["dry_runs"].items():
        training = config.document["workload_definitions"][workload].get("training", {})
        values: dict[str, object] = dict.fromkeys(configuration.PLACEHOLDERS, "")
        values |= {k: v for k, v in training.items() if k in values} | {
            "node": node,
            "nodes": len(config.nodes),
            "nodelist": ",".join(config.nodes),
            "gpus_per_node": config.document["gpus_per_node"],
            "ntasks": len(config.nodes) * gpus,
            "mpi": config.document["slurm"]["mpi"],
            "iteration": 0,
            "run_dir": folder.resolve(),
            "checkpoint_dir": (folder / "checkpoints").resolve(),
            "global_batch_size": plan_check.fitted_batch(training, len(config.nodes) * gpus) or "",
        }
        log = folder / f"dryrun-{workload}.log"
        command = configuration.render(template, values)
        trouble = call(command, log, float(section["timeout_seconds"]), _job(config, environment), checked=True)
        logs[workload] = str(log.relative_to(config.campaign_dir))
        if trouble:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = f"{trouble}: {said[-1][:200]}" if said else trouble
            findings.append(rules.finding(None, "config", f"dry run of {workload}: {last}", [f"{logs[workload]}:1"]))
            continue
        resolved = log.read_text(encoding="utf-8", errors="replace")
        nodes = len(config.nodes)
        if refused := plan_check.contradictions(workload, training, nodes, nodes * gpus, resolved):
            raise plan_check.as_error(refused, f"\n  The dry run is {log}")
    return logs, findings


# ------------------------------------------------------------------------------------------------------------- nodes


def _look(config: Config, folder: Path, environment: Mapping[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read all nodes with one launch; nodes that Slurm has put aside are findings, not waited for."""
    section = config.document["preflight"]
    findings = []
    states = node_states(config.nodes, environment)
    names = []
    for node in config.nodes:
        state = states.get(node)
        gone = AWAY & {str(state["state"]), str(state.get("base")), *state["flags"]} if state else set()
        if gone:
            findings.append(rules.finding(node, "node", f"not looked at: Slurm says {'+'.join(sorted(gone))}"))
        else:
            names.append(node)
    if not names:
        return {}, findings
    nodes, unseen = look_at(config, folder, names, section["commands"], float(section["timeout_seconds"]), environment)
    log = str((folder / LOG).relative_to(config.campaign_dir))
    findings += [rules.finding(n, "node", f"not looked at: {why}", [f"{log}:1"]) for n, why in unseen.items()]
    return nodes, findings


def look_at(
    config: Config,
    folder: Path,
    names: Sequence[str],
    commands: Mapping[str, str],
    timeout: float,
    environment: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read some nodes with one launch, one task a node; return (node -> its record, node -> why it left nothing)."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "look.sh"
    storage.write_text(script, _script(config, commands))
    values = {
        "nodes": len(names),
        "nodelist": ",".join(names),
        "gpus_per_node": config.document["gpus_per_node"],
        "mpi": config.document["slurm"]["mpi"],
    }
    probes = config.document["probes"]
    launch = configuration.render(probes["launch"], values)
    command = [*launch, "sh", str(script.resolve()), str(folder.resolve()), str(probes["timeout_seconds"])]
    began = time.time()
    trouble = call(command, folder / LOG, timeout, _job(config, environment))
    span = (began, time.time())
    wanted = rules.wanted(commands, config.hcas)
    nodes, unseen = {}, {}
    for node in names:
        path = folder / f"{node}.txt"
        if not path.exists():
            path = folder / f".{node}.part"
        if not path.exists():
            unseen[node] = trouble or "the node left no file"
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        reading = parsers.read_file("probe", path)
        file = str(path.relative_to(config.campaign_dir))
        nodes[node] = rules.node_record(reading, lines, file, wanted, span)
    return nodes, unseen


def _script(config: Config, commands: Mapping[str, str]) -> str:
    """Return the text of the script that looks at one node, in the frames of a probe."""
    library = config.root / "workflow" / "scripts" / "probe_node.sh"
    lines = [f". {shlex.quote(str(library))}"]
    for tool, template in commands.items():
        for hca in config.hcas if "{hca}" in template else [""]:
            words = configuration.render(template, {"hca": hca})
            lines.append(f"probe {shlex.quote(rules.frame(tool, hca))} {shlex.join(words)}")
    return "\n".join([*lines, "finish", ""])


def _job(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a launch outside of a job: srun then makes a job of its own, and reads these."""
    slurm = config.document["slurm"]
    minutes = max(1, round(float(config.document["preflight"]["timeout_seconds"]) / 60))
    result = {**environment, "SLURM_JOB_NAME": f"burnin-preflight-{config.campaign}", "SLURM_TIMELIMIT": str(minutes)}
    for option in ("partition", "account", "qos", "reservation"):
        if slurm[option]:
            result[f"SLURM_{option.upper()}"] = str(slurm[option])
    return result


def call(command: list[str], log: Path, timeout: float, environment: Mapping[str, str], checked: bool = False) -> str:
    """Run a command with its output in a log; return what went wrong, or an empty text.

    Its exit status decides nothing unless `checked`.
    srun gives its job back when it is interrupted, and only then.
    """
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"{command[0]} could not be started: {error.strerror}"
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.killpg(process.pid, number)
                try:
                    process.wait(GRACE_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue
            return f"{command[0]} was not done within {timeout:.0f} s"
    return f"{command[0]} ended with status {process.returncode}" if checked and process.returncode else ""
