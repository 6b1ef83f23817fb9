# SPDX-License-Identifier: Apache-2.0
"""What a failed node leaves behind, packed at once: its runs' files and a last look at it, with a manifest.

One remote start for each failed node, all at the same time, within one limit for all. What a half-dead node gave before it
went silent is kept; what is missing is listed with the reason. Nothing here decides anything, and nothing here may fail a
gate.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin import parsers, storage
from burnin.config import Config
from burnin.paths import heat_dir
from burnin.runs.preflight import call

#: Nodes that are looked at at the same time; more than so many rarely fail in one heat.
TOGETHER = 32
#: A look is ended so long (s) before the limit, so that there is time to pack.
PACKING = 5.0


def bundle_path(config: Config, node: str, step: str, heat: int) -> Path:
    """Return the path of a node's bundle of a heat."""
    return config.campaign_dir / "evidence" / f"{node}-{step}-heat{heat}.tar.gz"


def gather(config: Config, gate: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Gather the evidence of every failed node of a gate; return node -> what to say about it.

    A bundle that is there is kept: it was made nearer to the fault. Never raises because of a node or a file.
    """
    section = config.document["evidence"]
    failed = [n for n, outcome in gate["outcome"].items() if outcome == "failed"]
    if not section or not failed:
        return {}
    deadline = time.monotonic() + float(section["total_seconds"])

    def one(node: str) -> str:
        try:
            return _gather(config, gate, node, environment, deadline)
        except Exception as error:  # whatever it is: the gate stands
            return f"evidence of {node} could not be packed: {error}"

    with ThreadPoolExecutor(max_workers=min(TOGETHER, len(failed))) as pool:
        return dict(zip(failed, pool.map(one, failed), strict=True))


def _gather(config: Config, gate: Mapping[str, Any], node: str, environment: Mapping[str, str], deadline: float) -> str:
    """Pack one node's evidence."""
    step, heat = gate["step"], gate["heat"]
    target = bundle_path(config, node, step, heat)
    if target.exists():
        return f"bundle {target} (kept)"
    target.parent.mkdir(parents=True, exist_ok=True)
    # on the shared storage: the node itself writes here
    folder = Path(tempfile.mkdtemp(prefix=f".{node}-", dir=target.parent))
    try:
        missing = _from_head(config, node, folder, environment, deadline)
        missing += _look(config, node, folder, environment, deadline)
        live = sorted(p for p in folder.iterdir() if p.name != "look.sh" and p.stat().st_size)
        files = [(f"live/{p.name.removeprefix('.')}", p) for p in live]
        found, absent = _of_runs(config, gate, node)
        limit = float(config.document["evidence"]["most_mib"]) * 2**20
        manifest = _pack(target, files + found, missing + absent, limit, _head(config, gate, node))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lacks = f", {len(manifest['missing'])} things missing" if manifest["missing"] else ""
    return f"bundle {target} ({len(manifest['files'])} files{lacks})"


def _head(config: Config, gate: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return what the manifest begins with."""
    return {
        "campaign": config.campaign,
        "node": node,
        "step": gate["step"],
        "heat": gate["heat"],
        "gathered": time.time(),
        "findings": [f for f in gate["findings"] if f["node"] == node],
    }


# ------------------------------------------------------------------------------------------------------ a last look


def _keys(config: Config) -> dict[str, str]:
    """Return section key -> tool of the commands of the last look."""
    return {
        f"{tool}:{hca}" if hca else tool: tool
        for tool, line in config.document["evidence"]["commands"].items()
        for hca in (config.hcas if "{hca}" in line else [""])
    }


def _script(config: Config, folder: Path) -> str:
    """Return the text of the script of the last look, in the frames of a probe."""
    library = config.root / "workflow" / "scripts" / "probe_node.sh"
    lines = [f". {shlex.quote(str(library))}"]
    for tool, template in config.document["evidence"]["commands"].items():
        for hca in config.hcas if "{hca}" in template else [""]:
            words = configuration.render(template, {"hca": hca, "folder": folder})
            lines.append(f"probe {shlex.quote(tool)} {shlex.join(words)}")
    return "\n".join([*lines, "finish", ""])


def _from_head(
    config: Config, node: str, folder: Path, environment: Mapping[str, str], deadline: float
) -> list[dict[str, str]]:
    """Ask from the head what needs no living node, such as its BMC; return what did not come, each with the reason."""
    section = config.document["evidence"]
    missing = []
    for name, template in section["head_commands"].items():
        log = folder / f"head-{name}.txt"
        patience = min(float(section["timeout_seconds"]), max(1.0, deadline - time.monotonic() - PACKING))
        trouble = call(configuration.render(template, {"node": node}), log, patience, environment, checked=True)
        if trouble or not log.stat().st_size:
            missing.append({"what": f"head-{name}", "why": trouble or "it printed nothing"})
    return missing


def _look(
    config: Config, node: str, folder: Path, environment: Mapping[str, str], deadline: float
) -> list[dict[str, str]]:
    """Look at a node once more; return what did not come, each with the reason."""
    section = config.document["evidence"]
    script = folder / "look.sh"
    storage.write_text(script, _script(config, folder.resolve()))
    words = [
        "env", f"SLURMD_NODENAME={node}", "sh", str(script.resolve()), str(folder.resolve()),
        str(section["timeout_seconds"]),
    ]  # fmt: skip
    # the launcher hands this to the node's shell (pdsh, ssh)
    command = [*configuration.render(section["launch"], {"node": node}), shlex.join(words)]
    patience = max(1.0, deadline - time.monotonic() - PACKING)
    log = folder / "look.log"
    trouble = call(command, log, patience, environment)
    path = next((p for p in (folder / f"{node}.txt", folder / f".{node}.part") if p.exists()), None)
    if path is None:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        why = trouble or next((line for line in said if "ssh" in line or "refused" in line), said[0] if said else "")
        return [{"what": key, "why": f"the node did not answer: {why or 'no output'}"[:300]} for key in _keys(config)]
    sections = parsers.read_file("probe", path).data.get("sections", {})
    missing = []
    for key, tool in _keys(config).items():
        # the probe's reader may give a command a longer key of its own (ipmi:sel)
        section_of = sections.get(key) or next((s for s in sections.values() if key == tool == s["tool"]), None)
        status = section_of["status"] if section_of else None
        if section_of is None:
            missing.append({"what": key, "why": trouble or "the node went silent before it"})
        elif status is None:
            missing.append({"what": key, "why": f"cut, what came is kept: {trouble or 'the node went silent'}"})
        elif status in (124, 137):
            missing.append({"what": key, "why": f"not done within {section['timeout_seconds']} s, what came is kept"})
        elif status != 0:
            missing.append({"what": key, "why": f"ended with status {status}, what came is kept"})
    return missing


# --------------------------------------------------------------------------------------------------- the runs' files


def _of_runs(config: Config, gate: Mapping[str, Any], node: str) -> tuple[list[tuple[str, Path]], list[dict[str, str]]]:
    """Return (name, file) of all that the node's runs of this heat left, what is quoted first; and what is not there."""
    root = config.campaign_dir
    folder = heat_dir(root, gate["step"], gate["heat"])
    plan = storage.read_json(folder / "plan.json", "plan")
    quoted = [root / place.rsplit(":", 1)[0] for f in gate["findings"] if f["node"] == node for place in f["evidence"]]
    small: list[Path] = [folder / "plan.json", folder / "gate.json"]
    big: list[Path] = []
    missing: list[dict[str, str]] = []
    for group, entry in plan["groups"].items():
        if node not in entry["nodes"]:
            continue
        for workload in entry["workloads"]:
            run_dir = folder / workload / group
            small += [run_dir / "result.json", run_dir / "run.log", run_dir / "first.json"]
            for path in sorted(run_dir.glob("*attempt*/**/*")):
                if not path.is_file() or path.name.endswith(".sh"):
                    continue
                path = path.with_name(path.name.removesuffix(storage.COMPRESSED))
                if "probe-" in path.parent.name and path.name not in (f"{node}.txt", f".{node}.part", "launch.log"):
                    continue  # another node's
                (big if path.name.startswith("out-") else small).append(path)
            missing += _absent(run_dir, workload, group, node)
    newest_first = sorted(big, key=lambda p: p.stat().st_mtime, reverse=True)
    ordered = dict.fromkeys(p for p in [*quoted, *small, *newest_first] if storage.stored(p))
    gone = [p for p in dict.fromkeys(quoted) if not storage.stored(p)]
    missing += [{"what": str(p.relative_to(root)), "why": "the file is gone"} for p in gone]
    return [(f"runs/{p.relative_to(root)}", p) for p in ordered], missing


def _absent(run_dir: Path, workload: str, group: str, node: str) -> list[dict[str, str]]:
    """Return what a run should have left of a node and did not."""
    path = run_dir / "result.json"
    if not path.exists():
        return [{"what": f"{workload}/{group} result", "why": "the run left none"}]
    result = storage.read_json(path, "result")
    if result["state"] == "skipped":
        return []  # it never ran, and the result says why
    name = f"{workload}/{group}"
    found = []
    if not result["iterations"] and not result["interrupted"]:
        found.append({"what": f"{name} output", "why": f"no iteration was started ({result['reason'][:200]})"})
    for when in ("before", "after"):
        entry = result["probes"].get(when, {}).get(node)
        if entry is None:
            found.append({"what": f"{name} probe-{when}", "why": f"not taken: {result['reason'][:200]}"})
        elif entry["file"] is None:
            why = entry["problems"][0] if entry["problems"] else "the node left no probe file"
            found.append({"what": f"{name} probe-{when}", "why": why[:300]})
    return found


# ---------------------------------------------------------------------------------------------------------- packing


def _pack(
    target: Path,
    files: Sequence[tuple[str, Path]],
    missing: Sequence[Mapping[str, str]],
    limit: float,
    head: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the bundle beside its name and rename it; return the manifest, which is its first file."""
    packed, left_out, total = [], [], 0
    for name, path in files:
        kept = storage.stored(path) or path
        data = b"" if kept.stat().st_size > limit - total else storage.read_raw(path)
        size = max(kept.stat().st_size, len(data))
        if total + size > limit:
            left_out.append({"what": name, "why": f"{size} bytes would exceed the bundle's limit; it is at {kept}"})
            continue
        total += size
        packed.append((name, data, kept.stat().st_mtime))
    manifest = {
        **head,
        "files": [{"name": n, "bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d, _ in packed],
        "missing": [*missing, *left_out],
    }
    storage.check(manifest, "evidence", target)
    text = json.dumps(manifest, indent=1, allow_nan=False).encode() + b"\n"
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with tarfile.open(part, "w:gz", compresslevel=6) as archive:
            for name, data, changed in [("manifest.json", text, time.time()), *packed]:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(data), int(changed), 0o644
                archive.addfile(entry, io.BytesIO(data))
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return manifest
