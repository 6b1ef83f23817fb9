# SPDX-License-Identifier: Apache-2.0
"""Reads a scenario file, checks every word of it, and gives the form that the programs of the lab load."""

from __future__ import annotations

import os

from model.base import LabError, expand_hosts
from model.kinds import KINDS, STEPS_TEXT, WORKLOADS, part_class, parts_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

TOP_KEYS = ("nodes", "gpus_per_node", "faults", "seed", "description")
FAULT_KEYS = (
    "kind",
    "node",
    "between",
    "part",
    "step",
    "workload",
    "from_iteration",
    "min_nodes",
    "intermittent",
)


def load_yaml(path: str) -> Any:
    """Parse a YAML file; LabError naming the file when it cannot be."""
    try:
        import yaml
    except ImportError:
        import sys

        raise LabError(
            f"lab: PyYAML cannot be imported by {sys.executable}: activate the virtual environment (.venv) first"
        ) from None
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except FileNotFoundError:
        raise LabError(f"lab: the scenario {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise LabError(f"lab: the scenario {path} cannot be read: {problem}") from None
    except yaml.YAMLError as problem:
        raise LabError(f"lab: the scenario {path} is not YAML: {' '.join(str(problem).split())}") from None


def _names(value: Any, what: str) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    names: list[str] = []
    for text in texts:
        if not isinstance(text, str) or not text:
            raise LabError(f"{what}: give node names such as dgx[01-08], not {text!r}")
        names += expand_hosts(text)
    for name in names:
        # A name becomes a folder and part of command lines' output: keep it to what Slurm allows in practice.
        if not all(c.isalnum() or c in "-_." for c in name) or not name[0].isalnum() or len(name) > 200:
            raise LabError(f"{what}: {name!r} is not a node name")
    return names


def _words(value: Any, what: str, good: Any, choices: str) -> list[str] | None:
    if value is None:
        return None
    words = value if isinstance(value, list) else [value]
    for word in words:
        if not isinstance(word, str) or not good(word):
            raise LabError(f"{what} {word!r}: choose {choices}")
    if not words:
        raise LabError(f"{what} is an empty list: leave it out to mean everywhere")
    return [str(w) for w in words]


def _whole(value: Any, what: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise LabError(f"{what} {value!r}: give a whole number from {low} to {high}")
    return value


def is_step(word: str) -> bool:
    """Whether this is a rung of the ladder."""
    if word in ("single", "halves", "full", "resume"):
        return True
    digits = word[1:]
    return word.startswith("x") and digits.isdigit() and int(digits) >= 2 and int(digits) & (int(digits) - 1) == 0


def _fault(raw: Any, number: int, nodes: set[str], nodes_text: str, gpus: int) -> dict[str, Any]:
    what = f"fault {number}"
    if not isinstance(raw, dict):
        raise LabError(f"{what}: give a mapping such as {{kind: fan_failed, node: dgx03, part: FAN6}}, not {raw!r}")
    kind_name = raw.get("kind")
    kind = KINDS.get(kind_name) if isinstance(kind_name, str) else None
    if kind is None:
        raise LabError(f"{what}: unknown kind {kind_name!r}; the lab knows {', '.join(sorted(KINDS))}")
    what = f"fault {number} ({kind_name})"
    for key in raw:
        if key not in FAULT_KEYS:
            raise LabError(f"{what}: unknown field {key!r}; the fields are {', '.join(FAULT_KEYS)}")
    node = raw.get("node")
    if kind.node == "yes" and node is None:
        raise LabError(f"{what}: needs node")
    if kind.node in ("no", "between") and node is not None:
        raise LabError(f"{what}: takes no node" + (", it needs between" if kind.node == "between" else ""))
    if node is not None and (not isinstance(node, str) or node not in nodes):
        raise LabError(f"{what}: node {node!r} is not among {nodes_text}")
    sides: list[list[str]] | None = None
    if kind.node == "between":
        pair = raw.get("between")
        if not isinstance(pair, list) or len(pair) != 2:
            raise LabError(f"{what}: needs between: [nodes, nodes]")
        sides = [_names(side, f"{what}: between") for side in pair]
        for name in sides[0] + sides[1]:
            if name not in nodes:
                raise LabError(f"{what}: between: {name!r} is not among {nodes_text}")
        if set(sides[0]) & set(sides[1]):
            raise LabError(f"{what}: between: both sides have {sorted(set(sides[0]) & set(sides[1]))[0]}")
    elif raw.get("between") is not None:
        raise LabError(f"{what}: takes no between")
    part = raw.get("part", kind.part)
    if part is None:
        raise LabError(f"{what}: needs part, one of {parts_text(gpus, kind.parts)}")
    if kind_name == "nan_loss" and node is None and "part" not in raw:
        part = "config"
    if not isinstance(part, str) or part_class(part, gpus) not in kind.parts:
        raise LabError(f"{what}: part {part!r} cannot have this fault; choose from {parts_text(gpus, kind.parts)}")
    chance = raw.get("intermittent")
    if chance is not None and (isinstance(chance, bool) or not isinstance(chance, (int, float)) or not 0 < chance <= 1):
        raise LabError(f"{what}: intermittent {chance!r}: give a chance above 0 and up to 1")
    restricted = any(
        raw.get(k) is not None for k in ("step", "workload", "from_iteration", "min_nodes", "intermittent")
    )
    return {
        "id": f"{kind_name}:{node or ''}:{part}:{number}",
        "kind": kind_name,
        "node": node,
        "part": part,
        "between": sides,
        "step": _words(raw.get("step"), f"{what}: step", is_step, STEPS_TEXT),
        "workload": _words(raw.get("workload"), f"{what}: workload", lambda w: w in WORKLOADS, ", ".join(WORKLOADS)),
        "from_iteration": _whole(raw.get("from_iteration", 0), f"{what}: from_iteration", 0, 10**9),
        "min_nodes": _whole(raw.get("min_nodes", 1), f"{what}: min_nodes", 1, 10**6),
        "intermittent": chance,
        "static": kind.static and not restricted,
    }


def compile_scenario(path: str) -> dict[str, Any]:
    """Check the scenario file and return its compiled form; LabError with one sentence when it is wrong."""
    raw = load_yaml(path)
    try:
        if not isinstance(raw, dict):
            raise LabError("give a mapping with nodes and faults")
        for key in raw:
            if key not in TOP_KEYS:
                raise LabError(f"unknown field {key!r}; the fields are {', '.join(TOP_KEYS)}")
        if raw.get("nodes") is None:
            raise LabError("needs nodes, such as dgx[01-08]")
        nodes = _names(raw["nodes"], "nodes")
        if not nodes:
            raise LabError("nodes is empty")
        if len(set(nodes)) != len(nodes):
            twice = next(n for n in nodes if nodes.count(n) > 1)
            raise LabError(f"nodes names {twice} twice")
        gpus = _whole(raw.get("gpus_per_node", 8), "gpus_per_node", 1, 16)
        seed = _whole(raw.get("seed", 0), "seed", 0, 2**31)
        faults = raw.get("faults") or []
        if not isinstance(faults, list):
            raise LabError("faults: give a list")
        nodes_text = str(raw["nodes"])
        compiled = [_fault(f, i, set(nodes), nodes_text, gpus) for i, f in enumerate(faults, 1)]
    except LabError as problem:
        raise LabError(f"lab: scenario {path}: {problem}") from None
    status = os.stat(path)
    return {
        "source": os.path.abspath(path),
        "mtime_ns": status.st_mtime_ns,
        "size": status.st_size,
        "nodes": nodes,
        "gpus_per_node": gpus,
        "seed": seed,
        "faults": compiled,
    }
