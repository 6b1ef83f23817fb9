# SPDX-License-Identifier: Apache-2.0
"""The stack as it was frozen: on record when the preflight looked, compared with what every run finds.

`preflight/frozen.jsonl` is append-only. A record has the parts of a node, or of the campaign (`node` null: containers, the
NCCL that a workload says it runs on). A part is frozen when it is first seen: by the preflight, or, where that saw none, by
the first run. A look of the preflight, a repair of the node and the operator's word (`burnin freeze`) begin anew: after
them, other values are expected.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnin import storage
from burnin.config import Config
from burnin.preflight import UNDERSTOOD, changes

#: So much of an output is searched for the version of NCCL, which stands at its beginning.
HEAD_BYTES = 1 << 16

_NCCL = re.compile(rb"NCCL version ([\w.+-]{1,60})|nccl-library=(\d{1,9})")


def path_of(config: Config) -> Path:
    """Return the record of what was frozen."""
    return config.campaign_dir / "preflight" / "frozen.jsonl"


def freeze(config: Config, document: Mapping[str, Any], stamps: Mapping[str, str]) -> None:
    """Put the stack that a preflight saw on record: from here on, it is what runs are held against.

    `stamps`: file of a container -> its size and time of change.
    """
    containers = {f"container {c['file']}": f"{c['sha256']} {stamps[c['file']]}" for c in document["containers"]}
    lines = [_record(None, 0, containers, look=True)]
    repairs = _repairs(config)
    lines += [_record(n, repairs.get(n, 0), seen["stack"], look=True) for n, seen in document["nodes"].items()]
    _append(path_of(config), "\n".join(lines))


def freeze_anew(config: Config, why: str, by: str) -> None:
    """Record that a change of the stack is meant: every part is frozen again as the next run finds it."""
    _append(path_of(config), json.dumps({"anew": why, "by": by, "time": time.time()}))


def _append(path: Path, line: str) -> None:
    """Add a line to the record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.append_line(path, line)


def _record(node: str | None, repairs: int, parts: Mapping[str, str], look: bool) -> str:
    """Return one line of the record."""
    return json.dumps({"node": node, "repairs": repairs, "look": look, "time": time.time(), "stack": dict(parts)})


def as_it_stands(config: Config) -> dict[str, str]:
    """Return the commands whose output is part of the stack as it stands, as far as the preflight asks for them."""
    section = config.document["preflight"]
    return {t: c for t, c in section["commands"].items() if section["run"] and t not in UNDERSTOOD}


def commands(config: Config) -> dict[str, str]:
    """Return tool -> command of all that a node's stack is read from."""
    of_probes = config.document["probes"]["commands"]
    return {t: c for t, c in of_probes.items() if t in UNDERSTOOD} | as_it_stands(config)


def _repairs(config: Config) -> dict[str, int]:
    """Return node -> how often it was repaired. Who only was away and came back is held against what it had before."""
    records = storage.records(config.campaign_dir / "repairs.jsonl")[0]
    return Counter(str(r.get("node")) for r in records if r.get("kind", "repair") == "repair")


class Frozen:
    """What is frozen of the campaign and of the nodes of one run."""

    def __init__(self, config: Config, nodes: Sequence[str]) -> None:
        self._path = path_of(config)
        self._repairs = _repairs(config)
        self._parts: dict[str | None, dict[str, str]] = {n: {} for n in (None, *nodes)}
        for record in storage.records(self._path)[0]:
            if "anew" in record:
                self._parts = {n: {} for n in self._parts}
                continue
            node = record.get("node")
            if node not in self._parts or record["repairs"] != self._repairs.get(node or "", 0):
                continue
            known = {} if record["look"] else self._parts[node]
            self._parts[node] = {**record["stack"], **known}

    def compare(self, node: str | None, now: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Return (part, before, now) of what changed; what was not known before is frozen now."""
        frozen = self._parts[node]
        changed = self.differs(node, now)
        new = {k: v for k, v in now.items() if k not in frozen}
        if new:
            _append(self._path, _record(node, self._repairs.get(node or "", 0), new, look=False))
            frozen.update(new)
        return changed

    def differs(self, node: str | None, now: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Return (part, before, now) of what changed; nothing is frozen."""
        return changes(self._parts[node], now)

    def unknown(self, node: str | None, now: Mapping[str, str]) -> list[str]:
        """Return the parts that are frozen and that nothing is said of now."""
        return sorted(self._parts[node].keys() - now.keys())

    def containers(self) -> dict[str, str]:
        """Return file -> "SHA-256 size time" of the containers that are frozen."""
        return {k.removeprefix("container "): v for k, v in self._parts[None].items() if k.startswith("container ")}


def changed(found: Sequence[tuple[str, str, str]], line_of: Mapping[str, int], where: str) -> list[dict[str, Any]]:
    """Return a signal for each change. `line_of`: part -> line where it stands now; `where`: node or workload, in words. Pure."""
    return [
        {
            "kind": "stack_changed",
            "line": line_of.get(part, 1),
            "text": f"{where}: {part} is {now!r}, was {before!r} when the stack was frozen",
            "detail": {"what": part, "before": before, "now": now},
        }
        for part, before, now in found
    ]


def nccl_version(output: Path) -> tuple[str, int] | None:
    """Return the version of NCCL that an output names and its line, or None if it names none."""
    try:
        with output.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return None
    found = _NCCL.search(head)
    return ((found[1] or found[2]).decode(), head.count(b"\n", 0, found.start()) + 1) if found else None


def images(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the container images that command lines (argument lists) name, each once, in order. Pure."""
    found = []
    for words in lines:
        for word, following in zip(words, [*words[1:], ""], strict=True):
            name, _, value = word.partition("=")
            if name == "--container-image":
                found.append(value or following)
    return list(dict.fromkeys(found))
