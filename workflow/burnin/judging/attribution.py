# SPDX-License-Identifier: Apache-2.0
"""Which signals of a run count, and whose they are: node from probe, host or rank; events only if new in the run. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: Signals whose value is a counter: what counts is the growth between the probe before and the last one.
COUNTERS = frozenset(
    {
        "link_down_count",
        "link_recovery_count",
        "link_effective_errors",
        "ecc_uncorrectable",
        "ecc_correctable",
        "row_remap_count",
    }
)
#: Errors of a rank's own: only the first of a run names a suspect, the others followed from it. (A memory error that a
#: GPU reports is its own, whoever came first.)
FIRST_ONLY = frozenset({"cuda_error", "cuda_nvlink"})

Seen = Mapping[str, Any]


def node_of(seen: Seen, nodes: Sequence[str], gpus_per_node: int) -> str | None:
    """Return the node of the run's group that a signal names, else None.

    Order: the node whose probe it stands in, the host in the line, the rank (node index = rank // GPUs per node, in
    the order of the run's node list). A host that is not of the group is nobody's evidence.
    """
    if seen.get("node"):
        return str(seen["node"]) if seen["node"] in nodes else None
    host = seen.get("host")
    if host:
        short = str(host).split(".")[0]
        return next((n for n in nodes if n in (host, short) or n.split(".")[0] == short), None)
    rank = seen.get("rank")
    if rank is not None and gpus_per_node and 0 <= int(rank) < len(nodes) * gpus_per_node:
        return nodes[int(rank) // gpus_per_node]
    return nodes[0] if len(nodes) == 1 else None


Places = Mapping[str, Mapping[str, int]]


def gpu_places(results: Sequence[Mapping[str, Any]], gpus_per_node: int) -> dict[str, dict[str, int]]:
    """Return node -> PCI address -> GPU index, from the probes that saw all GPUs of a node.

    A GPU that is gone is missing in the listing, and the ones behind it move up: such a listing numbers nothing. The
    entry "" holds the addresses that have the same index on every node: nodes of one model are wired alike.
    """
    places: dict[str, dict[str, int]] = {}
    for result in results:
        for probe in result["probes"].values():
            for node, seen in probe.items():
                gpus = seen.get("gpus") or {}
                if len(gpus) == gpus_per_node:
                    places[node] = {bdf: g["index"] for bdf, g in gpus.items() if g.get("index") is not None}
    shared: dict[str, set[int]] = {}
    for of_node in places.values():
        for bdf, index in of_node.items():
            shared.setdefault(bdf, set()).add(index)
    places[""] = {bdf: next(iter(found)) for bdf, found in shared.items() if len(found) == 1}
    return places


def gpu_of(seen: Seen, node: str | None, places: Places) -> int | None:
    """Return the index of the GPU that a signal names by index or by PCI address, else None."""
    if seen.get("gpu") is not None:
        return int(seen["gpu"])
    bdf = seen.get("bdf")
    if not bdf:
        return None
    return places.get(node or "", {}).get(bdf, places.get("", {}).get(bdf))


def was_read(result: Mapping[str, Any], node: str | None, tool: str) -> bool:
    """Tell whether the probe before a run could read a node with a tool; only then is "not there before" a fact.

    A result without any probe before (a casualty in its first minute) has read nothing. `tool` is a key of the probe's
    `tools`; one that the probe does not name is taken as read if the probe is there.
    """
    seen = (result["probes"].get("before") or {}).get(node or "")
    if seen is None:
        return False
    return bool(seen["tools"]) and seen["tools"].get(tool, "pass") != "unknown"


def boot_time(result: Mapping[str, Any], node: str) -> tuple[float | None, float | None]:
    """Return (time of boot, zone in seconds east of UTC) of a node by its own clock, None where no probe said it."""
    for seen in reversed([p[node] for p in result["probes"].values() if node in p]):
        clock = seen.get("clock") or {}
        if clock.get("time") is not None and clock.get("up") is not None:
            return float(clock["time"]) - float(clock["up"]), clock.get("utc_offset")
    return None, None


#: How far the stamps of one kernel line may lie apart in two probes (s): `dmesg -T` computes them anew each time.
STAMP_DRIFT_S = 2.0
_STAMP = re.compile(r"^(?:[\w.-]+:\s+)?(?:\w+\s*:\w+\s*:\s*)?\[[^\]]{1,40}\]\s*")


class _Before:
    """What the probe before a run listed: events, and where the counters stood."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.result = result
        self.events: dict[tuple[Any, ...], list[float | None]] = {}
        self.counters: dict[tuple[Any, ...], float] = {}
        for seen in result["signals"]:
            if seen.get("when") != "before":
                continue
            self.events.setdefault(words_of(seen), []).append(moment_of(seen))
            if seen["kind"] in COUNTERS and seen.get("value") is not None:
                self.counters[counter_of(seen)] = float(seen["value"])

    def read(self, seen: Seen) -> bool:
        """Tell whether the tool that shows a signal now could be read before the run."""
        return was_read(self.result, seen.get("node"), str((seen.get("detail") or {}).get("tool", "")))

    def listed(self, seen: Seen) -> bool:
        """Tell whether an event is the same as one before: same words, and the same moment where both say one."""
        now = moment_of(seen)
        times = self.events.get(words_of(seen), [])
        return any(t is None or now is None or abs(t - now) <= STAMP_DRIFT_S for t in times)

    def growth(self, seen: Seen) -> float:
        """Return how much a counter grew; one that was not shown before stood at zero."""
        return float(seen["value"]) - self.counters.get(counter_of(seen), 0.0)


def counting(
    result: Mapping[str, Any], gpus_per_node: int, state_kinds: frozenset[str], places: Places
) -> Iterator[dict[str, Any]]:
    """Yield the signals of a result that count, each with `node` set where it is known; Xids are left to their own table.

    What lasts (`state_kinds`) counts wherever a probe saw it, once for each part. An event of a probe counts if the
    probe before the run could read the tool and did not have it; a counter counts with its growth. What may be older
    than the run never counts. Signals of the workload's output all count, but of the ranks' own errors only the first.
    """
    nodes: list[str] = result["nodes"]
    before = _Before(result)
    reported: set[tuple[Any, ...]] = set()
    first_taken = False
    for seen in result["signals"]:
        kind = seen["kind"]
        if kind == "xid":
            continue
        found = dict(seen)
        found["node"] = node_of(seen, nodes, gpus_per_node)
        if seen.get("gpu") is None and seen.get("bdf"):
            found["gpu"] = gpu_of(seen, found["node"], places)
        if found.get("gpu") is None and seen.get("rank") is not None and gpus_per_node:
            found["gpu"] = int(seen["rank"]) % gpus_per_node
        if kind == "gpu_count" and gpus_per_node and "attached" in (seen.get("detail") or {}):
            # The head of a listing says how many there are; a list that was only counted may be cut.
            found["detail"] = {**seen["detail"], "expected": gpus_per_node}
        if kind in FIRST_ONLY and not seen.get("when"):
            if first_taken:
                continue
            first_taken = True
        if seen.get("when"):
            part = (kind, found["node"], seen.get("device"), seen.get("gpu"), seen.get("bdf"))
            if kind in COUNTERS and seen.get("value") is not None:
                if seen["when"] == "before" or not before.read(seen) or before.growth(seen) <= 0:
                    continue
                found["growth"] = before.growth(seen)
            elif kind not in state_kinds and (seen["when"] == "before" or not before.read(seen) or before.listed(seen)):
                continue
            if part in reported:
                continue
            reported.add(part)
        yield found


def words_of(seen: Seen) -> tuple[Any, ...]:
    """Return what makes two probe lines the same event, but for their stamps."""
    return (seen.get("node"), seen["kind"], _STAMP.sub("", seen["text"]))


def moment_of(seen: Seen) -> float | None:
    """Return the time that a line's stamp gives, by whatever clock: it is only compared with the same log's."""
    value = (seen.get("detail") or {}).get("time")
    return float(value) if value is not None else _stamp(seen["text"])


def _stamp(text: str) -> float | None:
    """Return a number that differs where two stamps differ, for lines whose reader gave no time."""
    match = _STAMP.match(text)
    return float(zlib.crc32(match[0].encode())) if match else None


def counter_of(seen: Seen) -> tuple[Any, ...]:
    """Return which counter a signal is a reading of."""
    detail = seen.get("detail") or {}
    which = (detail.get("scope"), detail.get("counter"))
    return (seen.get("node"), seen["kind"], seen.get("device"), seen.get("bdf"), seen.get("gpu"), *which)
