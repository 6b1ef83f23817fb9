# SPDX-License-Identifier: Apache-2.0
"""The look at a cluster before anything runs: what stands on the nodes, compared between them. Pure.

A node that differs is a finding, told and recorded; it is no verdict: the runs decide whether the node works. What a
node has is frozen with it: a run that finds something else has nothing to compare its numbers with (`changes`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from burnin.parsers.probe import STACK
from burnin.parsers.reading import Reading

#: A clock that is off by more (s) makes kernel times and iteration times of different nodes contradict each other.
CLOCK_SECONDS = 5.0
#: What a finding quotes of a value.
QUOTE = 120
#: Output of a tool that no parser reads is part of the stack as it stands, up to so many characters.
KEEP = 2000


#: Commands whose output is understood, or only run; the text of any other is part of the stack as it stands.
UNDERSTOOD = frozenset({"nvidia-smi", "mlxlink", "arm"})


def frame(tool: str, hca: str = "") -> str:
    """Return the name that a command of the look has in a probe's frames."""
    return tool if tool in UNDERSTOOD else f"{STACK}{tool}:{hca}" if hca else STACK + tool


def wanted(commands: Mapping[str, str], hcas: Sequence[str]) -> dict[str, str]:
    """Return the key of a probe's section -> its tool, of the look's commands; {hca} makes one for each port."""
    return {
        f"{tool}:{hca}" if hca and tool in UNDERSTOOD else frame(tool, hca): frame(tool, hca)
        for tool, line in commands.items()
        for hca in (hcas if "{hca}" in line else [""])
    }


def finding(node: str | None, part: str, reason: str, evidence: Sequence[str] = ()) -> dict[str, Any]:
    """Return one finding in the form of preflight.schema.json."""
    return {"node": node, "part": part, "reason": reason, "evidence": list(evidence)}


def node_record(
    reading: Reading, lines: Sequence[str], file: str, wanted: Mapping[str, str], head: tuple[float, float]
) -> dict[str, Any]:
    """Return what one node's look says: stack, GPUs, HCAs, clock, problems.

    `lines`: the look's text; `wanted`: section key -> tool, of all that the config asks for; `head`: when the look began
    and ended by the head's clock (s since 1970). `clock_offset`: how far (s) the node's clock lies outside of that span.
    """
    sections = reading.data.get("sections", {})
    record: dict[str, Any] = {
        "file": file, "stack": {}, "lines": {}, "gpus": None, "serials": {}, "hcas": {}, "clock_offset": None,
        "problems": [],
    }  # fmt: skip
    for key, tool in wanted.items():
        section = sections.get(key)
        if section is None or section["status"] != 0:
            why = "no answer" if section is None else f"exit status {section['status']}"
            record["problems"].append(f"{key.removeprefix(STACK)}: {why}")
            record["lines"][key.removeprefix(STACK)] = section["first_line"] if section else 1
            continue
        data = section["data"]
        if tool == "nvidia-smi":
            _gpus(record, data, section["first_line"])
        elif tool == "mlxlink":
            device = key.partition(":")[2]
            record["hcas"][device] = f"{data.get('state')}/{data.get('physical_state')}"
            record["lines"][f"hca {device}"] = section["first_line"]
            _put(record, f"{device} firmware", data.get("firmware"), section["first_line"])
        elif tool.startswith(STACK):
            text = "\n".join(lines[section["first_line"] : section["last_line"] - 1]).strip()
            _put(record, tool.removeprefix(STACK), re.sub(r"[ \t]+", " ", text)[:KEEP], section["first_line"])
    time = reading.data.get("time")
    if time is not None:
        # the node prints whole seconds
        record["clock_offset"] = max(0.0, time - head[1]) or min(0.0, time + 1 - head[0])
    return record


def _put(record: dict[str, Any], key: str, value: Any, line: int) -> None:
    """Note a part of the stack and where it stands."""
    if value not in (None, ""):
        record["stack"][key] = str(value)
        record["lines"][key] = line


def _gpus(record: dict[str, Any], data: Mapping[str, Any], line: int) -> None:
    """Note what nvidia-smi -q says."""
    gpus = data.get("gpus") or []
    record["gpus"] = data["attached"] if data.get("attached") is not None else len(gpus)
    record["lines"]["gpus"] = line
    record["serials"] = {str(g.get("bdf")): str(g.get("serial")) for g in gpus}
    _put(record, "driver", data.get("driver"), line)
    _put(record, "cuda", data.get("cuda"), line)
    for field in ("product", "vbios"):
        # all values that occur on the node: one GPU with another VBIOS is a difference, too
        values = sorted({str(g[field]) for g in gpus if g.get(field)})
        _put(record, f"gpu {field}", ", ".join(values), line)


def common_stack(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Return part of the stack -> the value that more than half of the nodes have that show it; None if none is."""
    found: dict[str, str | None] = {}
    for key in sorted({k for n in nodes.values() for k in n["stack"]}):
        values = Counter(n["stack"][key] for n in nodes.values() if key in n["stack"])
        value, count = values.most_common(1)[0]
        found[key] = value if 2 * count > values.total() else None
    return found


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (part, before, now) of every part of a stack that differs from what was frozen.

    A part that only one of the two shows is unknown, and unknown is no change. Values that a node has of several GPUs
    ("a, b") may become fewer: a GPU that is gone takes its own with it, and is a finding of another kind.
    """
    found = []
    for part in sorted(before.keys() & now.keys()):
        old, new = before[part], now[part]
        fewer = part.startswith("gpu ") and set(new.split(", ")) <= set(old.split(", "))
        if old != new and not fewer:
            found.append((part, *differing(old, new)))
    return found


def differing(before: str, now: str) -> tuple[str, str]:
    """Return the first line that differs of two texts, each on one line and short enough to be quoted."""
    old, new = before.splitlines(), now.splitlines()
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return _short("\n".join(old[at : at + 1]) or "(no such line)"), _short(
        "\n".join(new[at : at + 1]) or "(no such line)"
    )


def judge(
    nodes: Mapping[str, Mapping[str, Any]], common: Mapping[str, str | None], gpus_per_node: int
) -> list[dict[str, Any]]:
    """Return the findings on the nodes: other stack, missing GPUs, ports that are down, clocks, what was not read."""
    found = []
    for key, value in common.items():
        if value is None:
            seen = Counter(n["stack"][key] for n in nodes.values() if key in n["stack"])
            shown = "; ".join(f"{_short(v)} on {c}" for v, c in seen.most_common(4))
            found.append(finding(None, "stack", f"the nodes do not agree on {key}: {shown} nodes"))
    for name, node in nodes.items():
        at = {k: f"{node['file']}:{line}" for k, line in node["lines"].items()}
        for key, value in node["stack"].items():
            usual = common.get(key)
            if usual is not None and value != usual:
                text = f"{key} is {_short(value)}, on the other nodes {_short(usual)}"
                found.append(finding(name, "stack", text, [at[key]]))
        missing = sorted(k for k, v in common.items() if v is not None and k not in node["stack"])
        if missing and not node["problems"]:
            found.append(finding(name, "stack", f"nothing is said of {', '.join(missing)}"))
        if node["gpus"] is not None and gpus_per_node and node["gpus"] != gpus_per_node:
            text = f"{node['gpus']} GPUs, expected {gpus_per_node}"
            found.append(finding(name, "node", text, [at["gpus"]]))
        for hca, state in node["hcas"].items():
            if state.lower() != "active/linkup":
                found.append(finding(name, hca, f"the port is {state}", [at[f"hca {hca}"]]))
        offset = node["clock_offset"]
        if offset is not None and abs(offset) > CLOCK_SECONDS:
            found.append(finding(name, "node", f"the clock is off by {offset:+.0f} s", [f"{node['file']}:1"]))
        for problem in node["problems"]:
            key = problem.partition(": ")[0]
            found.append(finding(name, "node", f"not read: {problem}", [at[key]] if key in at else []))
    return found


def _short(value: str) -> str:
    """Return a value on one line."""
    line = " / ".join(part.strip() for part in value.splitlines())
    return line if len(line) <= QUOTE else line[: QUOTE - 3] + "..."


def judge_fabric(reading: Reading, expected: int, extra: int | None, file: str) -> list[dict[str, Any]]:
    """Return the findings on the fabric: how many CAs were discovered, whether the counters were cleared.

    `expected`: nodes x HCAs; `extra`: further CAs (storage, switches' own), None = any number of them.
    """
    cas = reading.data.get("cas")
    if cas is None:
        return [finding(None, "fabric", "the number of CAs was not printed", [f"{file}:1"])]
    found = []
    wanted = expected + (extra or 0)
    if cas < wanted or (extra is not None and cas != wanted):
        bound = "" if extra is not None else "at least "
        found.append(finding(None, "fabric", f"{cas} CAs discovered, expected {bound}{wanted}", [f"{file}:1"]))
    if not reading.data.get("counters_cleared"):
        found.append(finding(None, "fabric", "nothing says that the port counters were cleared", [f"{file}:1"]))
    return found
