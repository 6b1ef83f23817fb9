# SPDX-License-Identifier: Apache-2.0
"""Write docs/configuration.md from the schema of the config and the comments in config/*.yaml.

    python docs/make_configuration.py

A key's text is the comment that follows it in the YAML file, or stands in OWN below. tests/unit/test_docs.py fails when the
page is not what this writes, and when a key has no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.json"
KEY = re.compile(r"^( *)([A-Za-z_][A-Za-z0-9_-]*):(?: |$)")
COMMENT = re.compile(r"^ *# ?(.*)$")

#: Sections that the config names as a file of their own.
FILES = {"workload_definitions": "config/workloads.yaml", "criteria": "config/criteria.yaml"}
#: What stands for the free names that a mapping has as keys, by the place of the mapping; WORKLOAD where nothing is said.
FREE = {
    "windows.WORKLOAD": "STEP",
    "workload_definitions.WORKLOAD.commands": "NAME",
    "workload_definitions.WORKLOAD.environment": "VARIABLE",
    "probes.commands": "TOOL",
    "probes.once": "NAME",
    "preflight.commands": "TOOL",
    "preflight.dry_runs": "WORKLOAD",
    "evidence.commands": "TOOL",
    "evidence.head_commands": "NAME",
    "environment": "VARIABLE",
}

#: Keys that stand inside one line of YAML, where no comment can follow them, and those whose comment in the file is about one
#: workload only. These texts win.
OWN = {
    "windows.WORKLOAD": "Windows of a workload. Every name in `workloads` needs one.",
    "windows.WORKLOAD.STEP": "The window of a step, or of all steps that are not named (`default`, which must be there).",
    "windows.WORKLOAD.STEP.hours": "Hours spent in complete iterations.",
    "windows.WORKLOAD.STEP.iterations": "Complete iterations.",
    "workload_definitions.WORKLOAD": "One workload.",
    "workload_definitions.WORKLOAD.commands": "One iteration runs one of these, in turn.",
    "workload_definitions.WORKLOAD.commands.NAME": "A command line: what follows `launch`.",
    "workload_definitions.WORKLOAD.environment": "Environment variables of this workload.",
    "workload_definitions.WORKLOAD.environment.VARIABLE": "Its value.",
    "workload_definitions.WORKLOAD.training": "For workloads that train: steps and checkpoints.",
    "workload_definitions.WORKLOAD.hpl.block": "NB, the block size.",
    "criteria.plausible.WORKLOAD.least_nodes": "Smallest group that is judged by it.",
    "criteria.plausible.WORKLOAD.value": "The value, in the unit of the workload's metric.",
    "criteria.baselines": "Pinned values, e.g. from a validation campaign. A group is judged against the baseline of its own size.",
    "criteria.baselines.workload": "Which workload.",
    "criteria.baselines.command": "Which of its commands.",
    "criteria.baselines.message_bytes": "Message size in bytes: the value is that of this size alone.",
    "criteria.baselines.nodes": "Size of the group.",
    "criteria.baselines.value": "The value.",
    "criteria.baselines.unit": "Its unit.",
    "criteria.baselines.band": "Allowed distance on the bad side, as a fraction of the value.",
    "criteria.baselines.origin": "Where the value comes from.",
    "criteria.baselines.date": "When it was measured or agreed.",
    "criteria.scaling.WORKLOAD.tolerance": "Allowed distance, as a fraction.",
    "criteria.trend.WORKLOAD.span_minutes": "What `first_last` takes for the first and the last hour.",
    "watch": "What happens while a run runs.",
    "probes.launch": "How one task is started on each node of the run.",
    "probes.commands": "The commands. A second config file leaves one out with `null`.",
    "probes.commands.TOOL": "Command line of a tool; `{hca}` makes one command for each entry of `hcas`.",
    "evidence.commands.TOOL": "A command line; `{hca}` makes one command for each entry of `hcas`.",
    "evidence.head_commands.NAME": "A command line.",
    "probes.once.NAME": "A command line; `{nodelist}` and `{nodes}` are those of the run.",
    "preflight.commands.TOOL": "A command line; `{hca}` makes one command for each entry of `hcas`.",
    "preflight.dry_runs.WORKLOAD": "A command line.",
    "preflight.files.path": "The file.",
    "preflight.files.contains": "A text that must be in it, or null.",
    "workload_definitions.WORKLOAD.files.path": "The file.",
    "workload_definitions.WORKLOAD.files.contains": "A text that must be in it, or null.",
    "preflight.containers.image": "What `enroot import` takes.",
    "preflight.containers.file": "The image file on shared storage.",
    "environment.VARIABLE": "Its value.",
}

HEAD = """\
# Configuration

<!-- Written by docs/make_configuration.py from workflow/schemas/config.schema.json and config/*.yaml: change those. -->

`config/config.yaml` holds every key. A file given with `--configfile` is laid over it key by key: mappings are merged, all other
values replaced. Single values may be given as `--config key=value`. Unknown keys, wrong types and values that cannot be meant are
refused before anything runs. `null` as the command of a probe takes that probe out. How Snakemake itself runs is in
`profiles/*/config.yaml`.

A window is one value: `{hours: 12}` laid over `{iterations: 4}` takes its place. A later `default` also takes the place of the windows
of steps that earlier files name.

Names in capitals stand for names of your own: `WORKLOAD` for a workload, `STEP` for a step or `default`, `TOOL` for a tool of
`burnin read --list`.
"""


@dataclass(frozen=True)
class Key:
    """One key of the schema: its dotted place, its schema, and whether it has to be there."""

    place: str
    schema: dict[str, Any]
    required: bool


def schema() -> dict[str, Any]:
    """Return the schema of the config, with the schemas it refers to in their place."""

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if file := node.get("$ref"):
                return resolved(json.loads((SCHEMA.parent / file).read_text(encoding="utf-8")))
            return {key: resolved(value) for key, value in node.items()}
        return [resolved(item) for item in node] if isinstance(node, list) else node

    whole: dict[str, Any] = resolved(json.loads(SCHEMA.read_text(encoding="utf-8")))
    return whole


def keys(node: dict[str, Any], place: str = "") -> Iterator[Key]:
    """Yield all keys below a schema node, each before those inside it."""
    for name, entry in _properties(node, place):
        inside = f"{place}.{name}" if place else name
        required = node.get("required", []) + node.get("items", {}).get("required", [])
        yield Key(inside, entry, name in required)
        yield from keys(entry, inside)


def _properties(node: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and schemas directly inside a node; a free name is the word that FREE has for it."""
    for option in [node, *node.get("oneOf", [])]:
        yield from option.get("properties", {}).items()
    free = node.get("additionalProperties")
    if isinstance(free, dict):
        yield FREE.get(place, "WORKLOAD"), free
    if isinstance(node.get("items"), dict):
        yield from _properties(node["items"], place)


def comments(path: Path) -> dict[str, str]:
    """Return dotted key -> the comment that follows the key in a YAML file."""
    found: dict[str, list[str]] = {}
    above: list[tuple[int, str]] = []
    place = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if key := KEY.match(line):
            indent = len(key[1])
            above = [(i, n) for i, n in above if i < indent] + [(indent, key[2])]
            place = ".".join(n for _, n in above)
        elif (text := COMMENT.match(line)) and place:
            found.setdefault(place, []).append(text[1].strip())
    return {k: " ".join(v) for k, v in found.items()}


def texts() -> dict[str, str]:
    """Return place in the schema -> what there is to say about it."""
    found = comments(ROOT / "config" / "config.yaml")
    every = list(keys(schema()))
    free = {
        key.place.rpartition(".")[0]: key.place.rpartition(".")[2]
        for key in every
        if key.place.rpartition(".")[2].isupper()
    }
    for section, file in FILES.items():
        for place, text in comments(ROOT / file).items():
            here = section
            for part in place.split("."):
                here = f"{here}.{free.get(here, part)}"
            found.setdefault(here, text)
    for key in every:
        names = [name for name, _ in _properties(key.schema, key.place)]
        if names and key.place in found:
            own, inside = _split(found[key.place], names)
            found[key.place] = own
            for name, text in inside.items():
                found.setdefault(f"{key.place}.{name}", text)
    for key in every:
        name = key.place.rpartition(".")[2]
        if not found.get(key.place):
            found[key.place] = "Of one workload." if name == "WORKLOAD" else key.schema.get("description", "")
    return found | OWN


def _split(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return what a comment says of its key, and what in "name: text" it says of the keys inside."""
    starts = list(re.finditer(rf"(?:^|(?<=[.;] ))({'|'.join(map(re.escape, names))})(?: \([a-z]+\))?: ", text))
    ends = [*(m.start() for m in starts[1:]), len(text)] if starts else []
    inside = {m[1]: text[m.end() : end].strip() for m, end in zip(starts, ends, strict=True)}
    return (text[: starts[0].start()].strip() if starts else text), inside


def kind(node: dict[str, Any]) -> str:
    """Return in words what a value must be."""
    if "enum" in node:
        return " or ".join(f"`{v}`" for v in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "oneOf" in node:
        return node.get("description") or " or ".join(kind(s) for s in node["oneOf"])
    types = node.get("type", [])
    types = [types] if isinstance(types, str) else types
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
        "null": "`null`",
    }
    if "number" in types:
        types = [t for t in types if t != "integer"]
    said = " or ".join({"object": "mapping", "array": "list"}.get(t) or words[t] for t in types)
    for limit, phrase in (
        ("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most"), ("exclusiveMaximum", "less than"),
    ):  # fmt: skip
        if limit in node:
            said += f", {phrase} {node[limit]}"
    return said


def value_at(document: Any, place: str) -> str | None:
    """Return the value of config/config.yaml at a place as YAML in one line, None where there is none, or a long one."""
    for part in place.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    if isinstance(document, dict) and document:
        return None
    text = yaml.safe_dump(document, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    return text if len(text) < 130 else None


def render() -> str:
    """Return the page."""
    whole = schema()
    default = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    default["criteria"] = yaml.safe_load((ROOT / FILES["criteria"]).read_text(encoding="utf-8"))
    default["workload_definitions"] = None  # every workload has its own
    said = texts()
    order = list(yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8")))
    tops = sorted(whole["properties"], key=lambda name: order.index(name) if name in order else len(order))
    parts = [HEAD]
    for top in tops:
        inside = [k for k in keys(whole) if k.place.split(".")[0] == top]
        parts.append(f"## `{top}`\n")
        lines = [line for key in inside for line in _lines(key, said, default, top)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _lines(key: Key, said: dict[str, str], default: Any, top: str) -> list[str]:
    """Return the lines of one key."""
    text = said.get(key.place, "")
    facts = [kind(key.schema)]
    value = value_at(default, key.place)
    if top in FILES and key.place == top:
        facts = ["mapping, or the name of a file that holds it"]
        value = FILES[top]
    if value is not None:
        facts.append(f"here `{value}`")
    name = key.place.rsplit(".", 1)[-1]
    if not key.required and not name.isupper() and name not in ("hours", "iterations"):
        facts.append("may be left out")
    fact = "; ".join(f for f in facts if f)
    if key.place == top:
        return [
            f"{fact[:1].upper()}{fact[1:]}." + (f"\n\n{_escape(text)}" if text else ""),
            *([""] if _inside(key) else []),
        ]
    return [f"- **`{key.place}`** ({fact})" + (f": {_escape(text)}" if text else "")]


def _inside(key: Key) -> bool:
    """Tell whether there are keys inside a key."""
    return any(True for _ in _properties(key.schema, key.place))


def _escape(text: str) -> str:
    """Return text that Markdown leaves as it is: angle brackets are no tags, braces and stars no markup."""
    text = re.sub(r"  +", " ", text)
    return re.sub(r"(?<!`)(<[^<>`]*>)(?!`)", r"`\1`", text).replace("*", r"\*")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
