# SPDX-License-Identifier: Apache-2.0
"""Where nodes stand: leaf switch, tiers above it, rails, rack, PDU, cooling zone. Pure: text or a document in, records out.

Everything is optional and unknown by default: a topology is used where it is known and never guessed from node names.
Sources: `scontrol show topology` (plugins topology/tree and topology/block) and a site file (config/topology.example.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from burnin.errors import ConfigError
from burnin.nodes import NODE_NAME, expand, fold

Source = Literal["slurm tree", "slurm block", "file", "unknown"]

#: What is written for a node whose place in the fabric is not known, when others' places are.
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one node stands. None and empty mean: not known.

    leaf: the first switch (or NVLink block) above the node; several of them, as in a rail-optimised fabric, folded into
    one name. above: the tiers over the leaf, nearest first. rails: (port, switch) pairs. pdus: all feeds of the node.
    """

    leaf: str | None = None
    above: tuple[str, ...] = ()
    rails: tuple[tuple[str, str], ...] = ()
    rack: str | None = None
    pdus: tuple[str, ...] = ()
    zone: str | None = None

    def loads(self) -> tuple[tuple[str, str], ...]:
        """Return everything that the node puts load on, as (kind, name) pairs, in a fixed order."""
        pairs = [("leaf", self.leaf or "")]
        pairs += [(f"tier{i}", name) for i, name in enumerate(self.above, start=1)]
        pairs += [("rail", switch) for _, switch in self.rails if switch != self.leaf]
        pairs += [("rack", self.rack or ""), *(("pdu", p) for p in self.pdus), ("zone", self.zone or "")]
        return tuple(dict.fromkeys(p for p in pairs if p[1]))


@dataclass(frozen=True, eq=False)
class Topology:
    """The places of a campaign's nodes. `nodes` are all of them in config order, also those of unknown place.

    Their order and their full number give every node a home in each step, which is what keeps plans stable.
    """

    nodes: tuple[str, ...]
    places: Mapping[str, Place] = field(default_factory=dict)
    source: Source = "unknown"

    def place(self, node: str) -> Place:
        """Return the place of a node; all unknown for a node that the source does not name."""
        return self.places.get(node, Place())

    @cached_property
    def known(self) -> bool:
        """Return whether the leaf of any node is known: without that, grouping falls back to the nodes' order."""
        return any(p.leaf for p in self.places.values())

    @cached_property
    def unplaced(self) -> tuple[str, ...]:
        """Return the nodes whose leaf is not known, in config order."""
        return tuple(n for n in self.nodes if not self.place(n).leaf)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Return each node's position in config order."""
        return {n: i for i, n in enumerate(self.nodes)}

    @cached_property
    def tiers(self) -> int:
        """Return the number of switch tiers that distinguish nodes: 0 unknown, 1 leaves only, 2 leaves and pods ...

        A single switch above everything tells nothing and is not counted.
        """
        if not self.known:
            return 0
        depth = max((len(self.place(n).above) for n in self.nodes), default=0)
        while depth and len({_tier(self.place(n), depth) for n in self.nodes}) == 1:
            depth -= 1
        return depth + 1

    @cached_property
    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each node the switches from the top tier down to its leaf, `tiers` of them.

        Whole paths, so that units of a tier never share one of the tier above by accident of equal names.
        """
        places = {n: self.place(n) for n in self.nodes}
        return {n: tuple(_tier(p, t) for t in range(self.tiers - 1, -1, -1)) for n, p in places.items()}

    @cached_property
    def loads(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Return for each node what it puts load on (see `Place.loads`)."""
        return {n: self.place(n).loads() for n in self.nodes}

    def unit(self, node: str, tier: int) -> tuple[str, ...]:
        """Return the unit that the node belongs to at `tier` (0 = leaf), as its path from the top."""
        return self.paths[node][: self.tiers - tier]

    def document(self) -> dict[str, Any]:
        """Return the content of a site file that gives this topology again, node sets folded (for `burnin init`)."""
        result: dict[str, Any] = {}
        leaf_of: dict[str, list[str]] = {}
        rails: dict[str, dict[str, list[str]]] = {}
        sets: dict[str, dict[str, list[str]]] = {"racks": {}, "pdus": {}, "zones": {}}
        above: dict[str, set[str]] = {}
        for node in self.nodes:
            place = self.place(node)
            if place.leaf:
                for leaf in expand(place.leaf, "topology.leaves"):
                    leaf_of.setdefault(leaf, []).append(node)
                    lower = [leaf]
                    for folded in place.above:
                        upper = expand(folded, "topology.above")
                        for name in upper:
                            above.setdefault(name, set()).update(lower)
                        lower = upper
            for port, switch in place.rails:
                rails.setdefault(port, {}).setdefault(switch, []).append(node)
            for key, values in (("racks", (place.rack,)), ("pdus", place.pdus), ("zones", (place.zone,))):
                for value in values:
                    if value:
                        sets[key].setdefault(value, []).append(node)
        if leaf_of:
            result["leaves"] = {k: fold(v) for k, v in leaf_of.items()}
        if above:
            result["above"] = {k: fold(sorted(v)) for k, v in above.items()}
        if rails:
            result["rails"] = {p: {s: fold(v) for s, v in by_switch.items()} for p, by_switch in rails.items()}
        result.update({key: {k: fold(v) for k, v in value.items()} for key, value in sets.items() if value})
        return result


def _tier(place: Place, tier: int) -> str:
    """Return the name of a place's switch at a tier (0 = leaf)."""
    if tier == 0:
        return place.leaf or UNKNOWN
    return place.above[tier - 1] if tier <= len(place.above) else UNKNOWN


def unknown(nodes: Sequence[str]) -> Topology:
    """Return the topology of a cluster of which nothing is known."""
    return Topology(tuple(nodes))


# --- site file ----------------------------------------------------------------------------------------------------


def from_document(document: Any, nodes: Sequence[str], key: str = "topology") -> Topology:
    """Return the topology of `nodes` as a site file (topology.schema.json; content, not path) gives it.

    The file may describe more than these nodes. Raises ConfigError (naming the key under `key`) for what breaks the
    schema, unreadable node sets, a node in two leaves, racks or zones, switches in a circle, and a file that names none
    of the nodes.
    """
    from jsonschema.exceptions import best_match

    from burnin import storage

    if document is None:
        return unknown(nodes)
    error = best_match(storage.validator("topology").iter_errors(document))
    if error is not None:
        where = ".".join([key, *(str(p) for p in error.absolute_path)])
        expected = error.schema.get("description") or error.message[:200]
        raise ConfigError(where, error.instance, expected, "correct it as config/topology.example.yaml shows")
    leaf_of = _one_of(document.get("leaves", {}), f"{key}.leaves")
    rail_of: dict[str, dict[str, str]] = {
        port: _one_of(sets, f"{key}.rails.{port}") for port, sets in document.get("rails", {}).items()
    }
    if not leaf_of and rail_of:
        # a rail-optimised fabric: nodes with the same switches on all rails are as good as on one leaf
        everyone = sorted({n for members in rail_of.values() for n in members})
        leaf_of = {n: fold(sorted({m[n] for m in rail_of.values() if n in m})) for n in everyone}
    rack_of = _one_of(document.get("racks", {}), f"{key}.racks")
    zone_of = _one_of(document.get("zones", {}), f"{key}.zones")
    feeds: dict[str, list[str]] = {}
    for pdu, text in document.get("pdus", {}).items():
        for node in expand(text, f"{key}.pdus.{pdu}"):
            feeds.setdefault(node, []).append(pdu)
    below = {upper: expand(text, f"{key}.above.{upper}") for upper, text in document.get("above", {}).items()}
    named = {switch for leaf in set(leaf_of.values()) for switch in expand(leaf, f"{key}.leaves")} | set(below)
    for upper, lower in below.items():
        for switch in lower:
            if switch not in named:
                raise ConfigError(
                    f"{key}.above.{upper}",
                    switch,
                    "switches that `leaves` or `above` define",
                    f"correct the name, or define {switch}",
                )
    parents = _parents(below)
    places: dict[str, Place] = {}
    for node in nodes:
        leaf = leaf_of.get(node)
        above = _climb(expand(leaf, f"{key}.leaves"), parents, f"{key}.above") if leaf else ()
        rails = tuple((port, members[node]) for port, members in rail_of.items() if node in members)
        stands = Place(leaf, above, rails, rack_of.get(node), tuple(feeds.get(node, ())), zone_of.get(node))
        if stands != Place():
            places[node] = stands
    if document and nodes and not places:
        raise ConfigError(
            key,
            fold(sorted({*leaf_of, *rack_of, *zone_of, *feeds})),
            f"places of the nodes {fold(nodes)}",
            "give the topology of this cluster, or null if it is not known",
        )
    return Topology(tuple(nodes), places, "file")


def _one_of(sets: Mapping[str, str], key: str) -> dict[str, str]:
    """Return node -> name of the one set that holds it. Raises ConfigError for a node in two of them."""
    found: dict[str, str] = {}
    for name, text in sets.items():
        for node in expand(text, f"{key}.{name}"):
            if node in found:
                raise ConfigError(
                    f"{key}.{name}", node, f"a node in one of them only ({found[node]} has it)", "remove it from one"
                )
            found[node] = name
    return found


def _parents(below: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return switch -> the switches directly above it."""
    parents: dict[str, list[str]] = {}
    for upper, lower in below.items():
        for switch in lower:
            parents.setdefault(switch, []).append(upper)
    return parents


def _climb(start: Iterable[str], parents: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    """Return the tiers above `start`, nearest first; parallel switches (all spines of a pod) are one tier, folded.

    A leaf of a fat tree has all spines of its pod above it, so it is the set of spines that tells pods apart. A switch
    that is above another one of the tier (a link that skips a tier) counts where it is highest. Raises ConfigError for
    a circle.
    """
    tiers: list[str] = []
    current = set(start)
    while current := {p for switch in current for p in parents.get(switch, ())}:
        higher = {a for switch in current for a in _ancestors(switch, parents, key)}
        current -= higher
        tiers.append(fold(sorted(current)))
    return tuple(tiers)


def _ancestors(switch: str, parents: Mapping[str, Sequence[str]], key: str) -> set[str]:
    """Return all switches above `switch`. Raises ConfigError if it is one of them."""
    found: set[str] = set()
    waiting = list(parents.get(switch, ()))
    while waiting:
        upper = waiting.pop()
        if upper == switch:
            raise ConfigError(
                key, switch, "switches that are not above themselves", "remove the circle between the switches"
            )
        if upper not in found:
            found.add(upper)
            waiting += parents.get(upper, ())
    return found


# --- scontrol show topology ---------------------------------------------------------------------------------------

_FIELD = re.compile(r"([A-Za-z]+)=(\S*)")
_KNOWN_FIELDS = frozenset(
    ["switchname", "level", "linkspeed", "nodes", "switches", "blockname", "blockindex", "blocksize", "aggregatedblock"]
)
_NOTHING = ("no topology information available", "topology/default", "topology/none", "topology/flat")


def from_slurm(text: str, nodes: Sequence[str], key: str = "topology") -> Topology:
    """Return the topology of `nodes` out of the output of `scontrol show topology`, or of a topology.conf.

    Lines as written by Slurm's topology_tree.c and topology_block.c:
    `SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=dgx[01-04]`, higher switches with `Switches=` and, in scontrol's output,
    also all `Nodes=` below them; `BlockName=b1 BlockIndex=0 Nodes=dgx[01-18] BlockSize=18` and
    `AggregatedBlock=b[1-2] BlockIndex=2 Nodes=... BlockSize=36`. Empty output, or "No topology information available",
    gives an unknown topology. Raises ConfigError for anything else, for cut lines (SLURM_TOPO_LEN), and for an output
    that names none of the nodes.
    """
    switches: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    blocks: dict[str, list[str]] = {}
    aggregated: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line or any(n in line.lower() for n in _NOTHING):
            continue
        fields = {k.lower(): v for k, v in _FIELD.findall(line)}
        if line.lower().startswith("blocksizes="):
            continue  # the first line of a topology.conf for blocks
        if not fields.keys() & {"switchname", "blockname", "aggregatedblock"} or fields.keys() - _KNOWN_FIELDS:
            raise ConfigError(
                key,
                line[:120],
                "lines `SwitchName=... Nodes=...`, `BlockName=... Nodes=...` as `scontrol show topology` prints them",
                "write the topology into a file (config/topology.example.yaml) and name that",
            )
        name = fields.get("switchname") or fields.get("blockname") or fields.get("aggregatedblock") or ""
        if "aggregatedblock" not in fields and not NODE_NAME.fullmatch(name):
            raise ConfigError(
                key, name[:120], "switches and blocks named as hosts are", "give it another name in Slurm"
            )
        members = _members(fields.get("nodes", ""), f"{key}.{name}.Nodes")
        if "switchname" in fields:
            switches[name] = members
            if lower := _members(fields.get("switches", ""), f"{key}.{name}.Switches"):
                below[name] = lower
        elif "blockname" in fields:
            blocks[name] = members
        else:
            inner = expand(name, f"{key}.{name}")  # named after its blocks; its own name must not be theirs
            aggregated.append((f"{inner[0]}..{inner[-1]}", members))
    if switches and blocks:
        raise ConfigError(key, "both switches and blocks", "one topology", "keep the lines of one of them")
    if not switches and not blocks:
        return unknown(nodes)
    places = _block_places(blocks, aggregated) if blocks else _tree_places(switches, below, key)
    ours = {n: places[n] for n in nodes if n in places}
    if nodes and not ours:
        raise ConfigError(
            key,
            fold(sorted(places)[:50]),
            f"places of the nodes {fold(nodes)}",
            "give the topology of this cluster, or null if it is not known",
        )
    return Topology(tuple(nodes), ours, "slurm block" if blocks else "slurm tree")


def _members(value: str, key: str) -> list[str]:
    """Return the members of a hostlist of scontrol; empty and `(null)` have none."""
    if value in ("", "(null)"):
        return []
    if value.count("[") != value.count("]") or value.endswith(","):
        raise ConfigError(
            key, value[-60:], "a whole node set", "the line was cut: unset SLURM_TOPO_LEN and print the topology again"
        )
    return expand(value, key)


def _tree_places(
    switches: Mapping[str, Sequence[str]], below: Mapping[str, Sequence[str]], key: str
) -> dict[str, Place]:
    """Return the places that a switch tree gives. A node's leaf is the lowest switch that lists it."""
    parents = _parents(below)
    listed: dict[str, set[str]] = {}
    for name, members in switches.items():
        for node in members:
            listed.setdefault(node, set()).add(name)
    climbed: dict[tuple[str, ...], tuple[str, ...]] = {}
    places: dict[str, Place] = {}
    for node, names in listed.items():
        lowest = tuple(sorted(n for n in names if not names.intersection(below.get(n, ()))))
        # two switches that list each other as lower have no lowest one: _climb names the circle
        start = lowest or tuple(sorted(names))
        if start not in climbed:
            climbed[start] = _climb(start, parents, key)
        places[node] = Place(fold(start), climbed[start])
    return places


def _block_places(
    blocks: Mapping[str, Sequence[str]], aggregated: Sequence[tuple[str, Sequence[str]]]
) -> dict[str, Place]:
    """Return the places that blocks and aggregated blocks (small ones first) give."""
    places: dict[str, Place] = {}
    over = sorted(aggregated, key=lambda a: (len(a[1]), a[0]))
    for name, members in blocks.items():
        above = tuple(upper for upper, all_nodes in over if set(members) <= set(all_nodes)) if members else ()
        places.update({n: Place(name, above) for n in members})
    return places
