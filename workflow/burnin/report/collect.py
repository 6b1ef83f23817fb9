# SPDX-License-Identifier: Apache-2.0
"""Reading a campaign's files for the report. Nothing is written, so a campaign that runs may be looked at.

Decisions (plans, gates, the config) are read as the ladder reads them, validated by schema. Results were validated when
they were written and when their gate was decided; here they are only taken apart, many at the same time, since those of
a thousand nodes are hundreds of megabytes. What cannot be read is listed, never left out silently.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from burnin import config as configuration
from burnin import storage
from burnin.campaign import Campaign
from burnin.errors import CampaignError
from burnin.quotations import Files
from burnin.report import facts
from burnin.report.facts import Facts, OpenRun, RunFacts, Sensors, Version
from burnin.runs import journal

#: From so many bytes of results on, processes share the reading.
MANY_BYTES = 60_000_000
MOST_PROCESSES = 4


class Part(NamedTuple):
    """What one process read."""

    runs: list[RunFacts]
    sensors: dict[str, Sensors]
    manifest: list[tuple[str, str]]
    unreadable: list[str]


def collect(folder: Path, made: float | None = None) -> Facts:
    """Return the facts of the campaign in a folder. Raises CampaignError if there is no campaign in it."""
    try:
        campaign = Campaign(configuration.from_file(folder))
    except FileNotFoundError:
        raise CampaignError(f"{folder} is no campaign", "name a folder below results/ that has a config.json") from None
    config = campaign.config
    # the folder that was named, not the one the config was written for: a report may be made of a copy
    campaign.dir = folder
    identity = _identity(folder)
    events = campaign.events()
    plans = {
        (step, heat): campaign.load(path, "plan") for step, heat, path in _heats(folder, "plan.json", config.ladder)
    }
    files = Files(folder)
    found = Facts(
        campaign=config.campaign,
        uid=str(identity.get("uid", "not known")),
        created=str(identity.get("created", "not known")),
        version=metadata.version("burnin"),
        made=time.time() if made is None else made,
        config=config.document,
        nodes=list(config.nodes),
        steps={s.name: tuple(config.ladder.workloads[s.name]) for s in config.ladder.steps()},
        summary=campaign.summary(),
        events=events,
        plans=plans,
        preflight=_preflight(folder),
        quote=files.quote,
        link=lambda place: _link(files, place),
    )
    _decisions(found, folder)
    _results(found, folder)
    return found


def _identity(folder: Path) -> dict[str, Any]:
    try:
        identity: dict[str, Any] = storage.read_json(folder / "campaign.json", "campaign")
        return identity
    except FileNotFoundError:
        return {}


def _preflight(folder: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = storage.read_json(folder / "preflight" / "preflight.json", "preflight")
        return document
    except FileNotFoundError:
        return None


def _link(files: Files, place: str) -> str | None:
    """Return the file of an evidence as a path below the campaign's folder, None if it is not there."""
    target = files.find(place)
    return None if target is None else str(target.relative_to(files.folder.resolve()))


def _heats(folder: Path, name: str, ladder: Any) -> Iterator[tuple[str, int, Path]]:
    """Yield (step, heat, path) of a file of every heat on disk, in ladder order."""
    for step in ("retest", *(s.name for s in ladder.steps())):
        known = [
            (int(p.parent.name[4:]), p) for p in (folder / step).glob(f"heat*/{name}") if p.parent.name[4:].isdigit()
        ]
        for heat, path in sorted(known):
            yield step, heat, path


# ----------------------------------------------------------------------------------------------------------- decisions


def _decisions(found: Facts, folder: Path) -> None:
    """Add what earlier versions of gates and config say, and what the operator had run again."""
    for step, heat in found.plans:
        kept = sorted((folder / step / f"heat{heat}" / "history").glob("gate.*.json"))
        for path in kept:
            try:
                document = json.loads(path.read_bytes())
                version = Version(document["criteria"], document["outcome"])
            except (ValueError, KeyError, TypeError) as error:
                found.unreadable.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}")
                continue
            found.versions.setdefault((step, heat), []).append(version)
    for path in [*sorted((folder / "history").glob("config.*.json")), folder / "config.json"]:
        stored = json.loads(path.read_text(encoding="utf-8"))["config"]
        found.criteria_texts.setdefault(storage.digest(stored["criteria"]), stored["criteria"])
        runs_on = {k: v for k, v in stored.items() if k != "criteria"}
        if runs_on not in found.config_versions[-1:]:
            found.config_versions.append(runs_on)
    found.reruns = _records(folder, "reruns.jsonl", found.unreadable)
    frozen = _records(folder, "preflight/frozen.jsonl", found.unreadable)
    found.stack_changes = [r for r in frozen if "anew" in r]
    names = [
        "campaign.json",
        "config.json",
        "repairs.jsonl",
        "reruns.jsonl",
        "preflight/preflight.json",
        "preflight/frozen.jsonl",
    ]
    names += [f"{step}/heat{heat}/{name}.json" for step, heat in found.plans for name in ("plan", "gate")]
    for name in names:
        if (folder / name).is_file():
            found.manifest.append((hashlib.sha256((folder / name).read_bytes()).hexdigest(), name))


def _records(folder: Path, name: str, unreadable: list[str]) -> list[Mapping[str, Any]]:
    """Return the records of an append-only file; a line that is cut was never written, and is said."""
    records, torn = storage.records(folder / name)
    unreadable += [f"{name}: a line that is cut"] * torn
    return list(records)


# ------------------------------------------------------------------------------------------------------------- results


def _results(found: Facts, folder: Path) -> None:
    """Add every planned run: its result, or how far it is."""
    wanted: list[str] = []
    size = 0
    for (step, heat), plan in found.plans.items():
        for group, entry in plan["groups"].items():
            for workload in entry["workloads"]:
                name = f"{step}/heat{heat}/{workload}/{group}/result.json"
                try:
                    size += (folder / name).stat().st_size
                    wanted.append(name)
                except FileNotFoundError:
                    found.open_runs.append(_open_run(folder, step, heat, workload, group, entry["nodes"]))
                first = name.removesuffix("result.json") + "first.json"
                if step == "resume" and (folder / first).is_file():
                    digest = hashlib.sha256((folder / first).read_bytes()).hexdigest()
                    found.manifest.append((digest, first))
    parts = [_read((str(folder), wanted))] if size < MANY_BYTES else _read_together(folder, wanted)
    for part in parts:
        found.runs += part.runs
        found.manifest += part.manifest
        found.unreadable += part.unreadable
    found.sensors = facts.merge(p.sensors for p in parts)
    found.runs.sort(key=lambda r: (r.started or 0.0, r.where))
    found.manifest.sort(key=lambda m: m[1])


def _read_together(folder: Path, names: Sequence[str]) -> list[Part]:
    """Read results in several processes; neighbours in the list go to different ones, so that each has as much to do."""
    count = min(MOST_PROCESSES, os.cpu_count() or 1)
    with ProcessPoolExecutor(count) as pool:
        return list(pool.map(_read, [(str(folder), names[i::count]) for i in range(count)]))


def _read(job: tuple[str, Sequence[str]]) -> Part:
    """Read results; called in a process of its own."""
    folder, names = job
    part = Part([], {}, [], [])
    # millions of objects are made and none of them is garbage: looking for it costs a fifth of the time
    looking = gc.isenabled()
    gc.disable()
    try:
        _read_each(Path(folder), names, part)
    finally:
        if looking:
            gc.enable()
    return part


def _read_each(folder: Path, names: Sequence[str], part: Part) -> None:
    """Add what stands in results to a part."""
    for name in names:
        try:
            text = (folder / name).read_bytes()
            part.manifest.append((hashlib.sha256(text).hexdigest(), name))
            result = json.loads(text)
            run = facts.run_facts(result)
            facts.add_sensors(part.sensors, result)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            part.unreadable.append(f"{name}: {type(error).__name__}: {error}")
            continue
        part.runs.append(run)


def _open_run(folder: Path, step: str, heat: int, workload: str, group: str, nodes: Sequence[str]) -> OpenRun:
    """Return how far a run without a result is, from the journal of its newest attempt."""
    run = folder / step / f"heat{heat}" / workload / group
    kept = sorted(run.glob("*attempt*/journal.jsonl"), key=lambda p: p.stat().st_mtime)
    try:
        records = journal.read(kept[-1]) if kept else []
    except journal.DamagedJournal:
        records = []
    times = [float(r["time"]) for r in records if "time" in r]
    return OpenRun(step, heat, workload, group, tuple(nodes), min(times, default=None), len(journal.completed(records)))
