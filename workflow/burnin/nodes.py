# SPDX-License-Identifier: Apache-2.0
"""Node names and node sets: the only place where host lists are folded and unfolded (with ClusterShell)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from burnin.errors import ConfigError

#: What may be a node name: it becomes a file name, a Slurm argument and a table cell. RFC 1123 plus underscore.
NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def expand(text: str, key: str = "nodes") -> list[str]:
    """Return the nodes of a Slurm node set such as `dgx[01-08,11],login1`, in the order of ClusterShell.

    Raises ConfigError (naming `key`) for an empty or unreadable set, a node named twice, and a name that is not a host name.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    if not isinstance(text, str) or not text.strip():
        raise ConfigError(key, text, "a Slurm node set such as dgx[01-08]", "name at least one node")
    if "@" in text or "!" in text or "&" in text or "^" in text:
        # ClusterShell would read groups and set operators; a config must mean the same on every machine
        raise ConfigError(key, text, "plain node names and ranges", "write the names out, without groups or operators")
    try:
        names = [str(n) for n in NodeSet(text.strip(), resolver=None)]
        listed = sum(_count(part) for part in _split(text))
    except (NodeSetException, ValueError) as error:
        raise ConfigError(key, text, "a Slurm node set such as dgx[01-08]", f"correct the node set ({error})") from None
    for name in names:
        if not NODE_NAME.fullmatch(name):
            raise ConfigError(key, name, "host names of letters, digits, '-', '_' and '.'", "correct this node name")
    if listed != len(names):
        raise ConfigError(
            key, text, "every node once", f"{listed - len(names)} node(s) are named twice: remove the repetition"
        )
    return names


def _split(text: str) -> list[str]:
    """Split a node set at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _count(part: str) -> int:
    """Return how many names one part lists, repetitions inside its brackets counted."""
    total = 1
    for inner in re.findall(r"\[([^\]]*)\]", part):
        count = 0
        for piece in inner.split(","):
            low, _, high = piece.partition("-")
            high, _, step = high.partition("/")
            count += (int(high) - int(low)) // int(step or 1) + 1 if high else 1
        total *= count
    return total


def fold(names: Iterable[str]) -> str:
    """Return the folded form for people and for Slurm, e.g. `dgx[01-07,09]`; `-` for no node."""
    from ClusterShell.NodeSet import NodeSet

    names = list(names)
    return str(NodeSet.fromlist(names, resolver=None)) if names else "-"
