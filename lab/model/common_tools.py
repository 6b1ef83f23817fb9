# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM105  (contextlib takes longer to import than most of this)
"""What all tools of a node share."""

from __future__ import annotations

from model.base import write_all
from model.render import (
    Node,
)
from model.store import Lab


def emit(text: str) -> None:
    """Print a text that ends with its own newline."""
    write_all(1, text.encode())


def silenced(node: Node, tool: str) -> bool:
    """Whether this tool is unreadable on this node."""
    return any(f["part"] == tool for f, _e in node.of("probe_unreadable"))


def own(lab: Lab) -> Node:
    """This node, with its view put back in place for the next call."""
    name = lab.this_node()
    try:
        lab.ensure_view(name)
    except OSError:
        pass  # only speed is lost
    return Node(lab, name)
