# SPDX-License-Identifier: Apache-2.0
"""What `snakemake --dag` prints, folded: one box for all runs of a workload in a heat, one frame for each heat. Pure.

Snakemake labels a job only with the wildcards that none of its inputs has, so most labels say little, and a campaign of
1,024 nodes has six thousand boxes. Here the others are taken over from the inputs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_NODE = re.compile(r'^\s*(\d+)\[label = "((?:[^"\\]|\\.)*)".*style="([^"]*)"')
_EDGE = re.compile(r"^\s*(\d+) -> (\d+)\s*$")
_SIZE = re.compile(r"x(\d+)-[0-9a-f]{8}$")


@dataclass(slots=True)
class Job:
    """A job as Snakemake prints it. `done`: nothing is to be run for it."""

    rule: str
    wildcards: dict[str, str]
    done: bool
    inputs: list[str] = field(default_factory=list)


def read(text: str) -> dict[str, Job]:
    """Return the jobs by their numbers, each with all wildcards that its label and its inputs tell."""
    jobs: dict[str, Job] = {}
    for line in text.splitlines():
        if found := _NODE.match(line):
            rule, *told = found[2].split("\\n")
            pairs = (part.partition(": ") for part in told)
            jobs[found[1]] = Job(rule, {name: value for name, _, value in pairs}, "dashed" in found[3])
        elif (found := _EDGE.match(line)) and found[2] in jobs:
            jobs[found[2]].inputs.append(found[1])
    for number in _inputs_first(jobs):
        job = jobs[number]
        if job.rule in ("all", "summary", "preflight", "report"):
            continue  # these are the campaign's, not a heat's
        for one in job.inputs:
            for name, value in jobs[one].wildcards.items():
                if name in ("step", "heat") or job.rule not in ("gate", "plan"):
                    job.wildcards.setdefault(name, value)
    return jobs


def _inputs_first(jobs: dict[str, Job]) -> list[str]:
    """Return the numbers in an order in which every job comes after its inputs."""
    order: list[str] = []
    seen: set[str] = set()
    for first in jobs:
        stack = [(first, False)]
        while stack:
            number, ready = stack.pop()
            if ready:
                order.append(number)
            elif number not in seen:
                seen.add(number)
                stack.append((number, True))
                stack += [(i, False) for i in jobs[number].inputs if i in jobs and i not in seen]
    return order


def fold(text: str) -> str:
    """Return the folded graph in the dot language, for `dot -Tsvg`. Raises ValueError if there is no graph in the text."""
    jobs = read(text)
    if not jobs:
        raise ValueError("this is not what snakemake --dag prints")
    boxes: dict[tuple[str, str, str, str], list[str]] = {}
    box_of: dict[str, tuple[str, str, str, str]] = {}
    for number, job in jobs.items():
        key = (
            job.wildcards.get("step", ""),
            job.wildcards.get("heat", ""),
            job.rule,
            job.wildcards.get("workload", ""),
        )
        boxes.setdefault(key, []).append(number)
        box_of[number] = key
    names = {key: f"b{i}" for i, key in enumerate(boxes)}
    lines = [
        "digraph burnin {",
        '    graph[bgcolor=white, margin=0.2, rankdir=TB, labeljust=l, fontname=sans, fontsize=11, color="#bbbbbb"];',
        "    node[shape=box, style=rounded, fontname=sans, fontsize=10];",
        "    edge[color=grey];",
    ]
    heats: dict[tuple[str, str], list[tuple[str, str, str, str]]] = {}
    for key in boxes:
        heats.setdefault(key[:2], []).append(key)
    for i, ((step, heat), members) in enumerate(heats.items()):
        if step:
            lines += [
                f"    subgraph cluster{i} {{",
                f'        label="{step}' + (f", heat {heat}" if heat != "0" else "") + '";',
            ]
        for key in members:
            style = "rounded,dashed" if all(jobs[n].done for n in boxes[key]) else "rounded"
            lines.append(
                f'        {names[key]}[label="{_label(key, [jobs[n] for n in boxes[key]])}", style="{style}"];'
            )
        lines += ["    }"] if step else []
    edges = {
        (names[box_of[one]], names[box_of[number]]) for number, job in jobs.items() for one in job.inputs if one in jobs
    }
    lines += [f"    {a} -> {b};" for a, b in sorted(_reduced({(a, b) for a, b in edges if a != b}))]
    return "\n".join([*lines, "}"]) + "\n"


def _reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges without those that a longer way says, too."""
    after: dict[str, set[str]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for b in after.get(stack.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    stack.append(b)
        return seen

    ways = {b: reached(b) for b in {b for _, b in edges}}
    return {(a, b) for a, b in edges if not any(b in ways[other] for other in after[a] if other != b)}


def _label(key: tuple[str, str, str, str], members: list[Job]) -> str:
    """Return a box's label: the workload and how many groups of which size, else the rule."""
    _, _, rule, workload = key
    words = {"resume_first": f"{workload}, cancelled", "resume_second": f"{workload}, resumed", "retest": "retest"}
    if rule not in ("burn_in", *words):
        return rule
    sizes = Counter(int(m[1]) if (m := _SIZE.search(job.wildcards.get("group", ""))) else 1 for job in members)
    told = [f"{n} x {size} node{'s' if size > 1 else ''}" for size, n in sorted(sizes.items(), reverse=True)]
    return "\\n".join([words.get(rule, workload), " + ".join(told)])
