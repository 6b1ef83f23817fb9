# SPDX-License-Identifier: Apache-2.0
"""What a probe during a run adds to what is known, and whether its raw file is kept whole. Pure.

1,024 nodes that are probed every quarter of an hour say the same thing 98,304 times a day. Kept of it: what is new, the
highest of each reading, and so many whole files a day and node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnin.judging.attribution import COUNTERS, STAMP_DRIFT_S, counter_of, moment_of, words_of
from burnin.judging.signatures import signature_of

DAY = 86400.0
#: Readings that say something at every look and are no events: the highest of a run is kept.
READINGS = frozenset({"gpu_temperature", "gpu_power", "inlet_temperature", "module_temperature"})

Seen = Mapping[str, Any]


class Known:
    """The signals of a run's probes so far."""

    def __init__(self, records: Sequence[Mapping[str, Any]] = ()) -> None:
        self._highest: dict[tuple[Any, ...], float] = {}
        self._counters: dict[tuple[Any, ...], float] = {}
        self._events: dict[tuple[Any, ...], list[float | None]] = {}
        self._kept: dict[str, list[float]] = {}
        for record in records:
            if record["type"] == "probe":
                self.add(record["nodes"], record["when"], record["time"])

    def add(self, nodes: Mapping[str, Mapping[str, Any]], when: str, time: float) -> None:
        """Take in a probe as it is recorded."""
        for node, summary in nodes.items():
            for seen in summary["signals"]:
                self._learn({**seen, "node": node})
            if when.startswith("during-") and summary.get("file"):
                self._kept.setdefault(node, []).append(time)

    def news(self, node: str, signals: Sequence[Seen]) -> list[Seen]:
        """Return the signals that say what no probe of the run has said before, in order."""
        return [seen for seen in signals if self._learn({**seen, "node": node})]

    def _learn(self, seen: Seen) -> bool:
        """Note a signal; tell whether it was new."""
        row = signature_of(seen)
        value = seen.get("value")
        if seen["kind"] in READINGS and value is not None and (row is None or row.scope == "note"):
            key = (seen["node"], seen["kind"], seen.get("device"), seen.get("gpu"), seen.get("bdf"))
            new = float(value) > self._highest.get(key, float("-inf"))
            if new:
                self._highest[key] = float(value)
            return new
        if seen["kind"] in COUNTERS and value is not None:
            counter = counter_of(seen)
            new = self._counters.get(counter) != float(value)
            self._counters[counter] = float(value)
            return new
        now = moment_of(seen)
        moments = self._events.setdefault((*words_of(seen), seen.get("device"), seen.get("gpu"), seen.get("bdf")), [])
        if any(t is None or now is None or abs(t - now) <= STAMP_DRIFT_S for t in moments):
            return False
        moments.append(now)
        return True

    def keeps(self, node: str, time: float, per_day: int) -> tuple[bool, bool]:
        """Return whether a node's file of a probe at `time` is kept whole, and whether it is if the node is in trouble.

        At most `per_day` in any 24 hours: half of them spread over the day, the others for what is not as it should be.
        """
        recent = [t for t in self._kept.get(node, []) if t > time - DAY]
        room = len(recent) < per_day
        due = not recent or time - recent[-1] >= 2 * DAY / per_day if per_day else False
        return room and due, room
