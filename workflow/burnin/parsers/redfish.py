# SPDX-License-Identifier: Apache-2.0
"""Redfish JSON of a chassis: Thermal and Power (old), Fan, PowerSupply, Sensor and ThermalMetrics members (new).

A file may hold several replies one after the other, as a script with one GET each leaves them; other lines between them
are skipped. Members that are only links were not fetched: that is said, and they prove nothing.

Verdict:
- `fail`: a fan, power supply, temperature or voltage with Health Critical, a reading beyond a critical threshold, or a
  power supply whose LineInputStatus is a loss of input.
- `unknown`: Enabled without Health, null readings of all fans, 0 RPM called OK, only links or empty stubs, text between
  the braces cut, or nothing proves that all replies are there (one GET says nothing about the others: see `whole`).
- `pass`: whole, fans or power supplies or temperatures were read, all OK. Absent parts are empty sockets.
Thresholds of 0 mean "not set". Redundancy records can disagree with the parts: the parts count.

data: `parts`: [{"class" ("fan", "psu", "temperature", "voltage", "power"), "name", "value", "unit", "state", "health",
"limit", "resource", "line"}], `links`: members that were not fetched, `documents`.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

TEXT_LIMIT = 32 << 20
MOST_PARTS = 20_000

_INLET = re.compile(r"(?i)inlet|ambient|intake|front.?panel")
_LIMITING = re.compile(r"(?i)margin|limit|throttl|tjmax")
_LOST = frozenset({"LossOfInput", "OutOfRange"})


class Parser(HostedParser):
    """Reader of Redfish replies. Options: `whole`, `host`."""

    tool: ClassVar[str] = "redfish"
    program: ClassVar[str] = ""
    line_limit = TEXT_LIMIT

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lines: list[str] = []
        self.first = 0
        self.size = 0
        self.parts: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.links = 0
        self.fetched = 0
        self.documents: list[str] = []
        self.cursor: int = 0
        self.start: int = 0

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Keep one line; JSON is read at the end."""
        if not self.lines:
            if not body.lstrip().startswith(("{", "[")):
                return []
            self.first = number
        self.size += len(body) + 1
        if self.size > TEXT_LIMIT:
            self.note("the text is too long: the rest was not read", damage=True)
            return []
        # Lines that were skipped keep their place, so that line numbers stay those of the file.
        while len(self.lines) < number - self.first:
            self.lines.append("")
        self.lines.append(body)
        return []

    def _documents(self) -> list[tuple[Any, int]]:
        text = "\n".join(self.lines)
        decoder = json.JSONDecoder()
        out: list[tuple[Any, int]] = []
        at = 0
        for _ in range(10_000):
            starts = [p for p in (text.find("{", at), text.find("[", at)) if p >= 0]
            if not starts:
                break
            start = min(starts)
            try:
                document, at = decoder.raw_decode(text, start)
            except RecursionError:
                self.note("the JSON is nested too deeply", damage=True)
                break
            except ValueError:
                line_start = text.rfind("\n", 0, start) + 1
                if text[start] == "{" or not text[line_start:start].strip():
                    self.note(
                        f"line {self.first + text.count(chr(10), 0, start)}: the JSON is cut or damaged", damage=True
                    )
                    self.recognised_damage = bool(re.search(r'"@odata\.(?:id|type)"', text[start : start + 100_000]))
                    # A redundancy record's word is no part's, so this is said and not judged.
                    if m := re.search(r'"Health(?:Rollup)?"\s*:\s*"Critical"', text[start:]):
                        line = self.first + text.count("\n", 0, start + m.start())
                        self.note(f"line {line}: something in the damaged reply is Critical")
                    break
                at = start + 1
                continue
            out.append((document, self.first + text.count("\n", 0, start)))
        return out

    recognised_damage = False

    # ----------------------------------------------------------------------------------------------------- parts

    def _resource(self, document: Any, line: int, depth: int = 0) -> None:
        if isinstance(document, list) and depth < 4:
            for item in document[:1000]:
                self._resource(item, line, depth + 1)
            return
        if not isinstance(document, dict):
            return
        kind = str(document.get("@odata.type", ""))
        ident = str(document.get("@odata.id", ""))
        if not (kind.startswith("#") or ident.startswith("/redfish")):
            return
        self.documents.append((ident or kind)[:200])
        resource = ident or kind
        short = kind.lstrip("#").split(".")[0]
        self.start = self.cursor = line - self.first
        for key, cls in (
            ("Temperatures", "temperature"),
            ("Fans", "fan"),
            ("Voltages", "voltage"),
            ("PowerSupplies", "psu"),
        ):
            self._members(document.get(key), cls, resource)
        for control in _list(document.get("PowerControl")):
            if isinstance(control, dict) and isinstance(control.get("PowerConsumedWatts"), (int, float)):
                self._keep(
                    "power", str(control.get("Name", "power")), control["PowerConsumedWatts"], "W", control, resource
                )
        for reading in _list(document.get("TemperatureReadingsCelsius")):
            if isinstance(reading, dict):
                name = str(reading.get("DeviceName") or reading.get("DataSourceUri", "")).rpartition("/")[2]
                self._keep("temperature", name, _number(reading.get("Reading")), "C", reading, resource)
        if short == "Fan":
            self._part("fan", document, resource)
        elif short == "PowerSupply":
            self._part("psu", document, resource)
        elif short == "Sensor":
            unit = str(document.get("ReadingUnits", ""))
            kind_ = str(document.get("ReadingType", ""))
            sort = {"Temperature": "temperature", "Voltage": "voltage", "Power": "power"}.get(kind_)
            if sort is None and (kind_ == "Rotational" or (unit in ("RPM", "%") and "fan" in ident.lower())):
                sort = "fan"
            if sort:
                self._part(sort, document, resource)
        for member in _list(document.get("Members")):
            if isinstance(member, dict) and set(member) <= {"@odata.id"}:
                self.links += 1
            else:
                self._resource(member, line, depth + 1)

    def _members(self, value: Any, cls: str, resource: str) -> None:
        if isinstance(value, dict) and "@odata.id" in value:
            self.links += 1
            return
        for item in _list(value):
            if isinstance(item, dict):
                if set(item) <= {"@odata.id"}:
                    self.links += 1
                else:
                    self._part(cls, item, resource)

    def _part(self, cls: str, item: dict[str, Any], resource: str) -> None:
        name = str(item.get("Name") or item.get("FanName") or item.get("MemberId") or item.get("Id") or "")
        unit, value = "", None
        if cls == "temperature":
            value, unit = _number(item.get("ReadingCelsius", item.get("Reading"))), "C"
        elif cls == "voltage":
            value, unit = _number(item.get("ReadingVolts", item.get("Reading"))), "V"
        elif cls == "fan":
            value, unit = _number(item.get("Reading")), str(item.get("ReadingUnits") or "RPM")
            speed = item.get("SpeedPercent")
            if isinstance(speed, dict):
                rpm = _number(speed.get("SpeedRPM"))
                value, unit = (rpm, "RPM") if rpm is not None else (_number(speed.get("Reading")), "%")
            unit = "%" if unit.lower() == "percent" else unit
        elif cls == "psu":
            for key in ("PowerOutputWatts", "LastPowerOutputWatts", "PowerInputWatts"):
                value = _number(item.get(key))
                if value is not None:
                    break
            unit = "W"
        elif cls == "power":
            value, unit = _number(item.get("Reading")), "W"
        self._keep(cls, name, value, unit, item, resource)

    def _keep(self, cls: str, name: str, value: float | None, unit: str, item: dict[str, Any], resource: str) -> None:
        status = item.get("Status") if isinstance(item.get("Status"), dict) else {}
        status = status if isinstance(status, dict) else {}
        state, health = status.get("State"), status.get("Health")
        line = self._line_of(name)
        upper = _number(item.get("UpperThresholdCritical")) or _threshold(item, "UpperCritical")
        lower = _number(item.get("LowerThresholdCritical")) or _threshold(item, "LowerCritical")
        entry: dict[str, Any] = {
            "class": cls, "name": name[:200], "value": value, "unit": unit, "state": state, "health": health,
            "limit": upper if cls != "fan" else lower, "resource": resource[:200], "line": line,
        }  # fmt: skip
        if len(self.parts) < MOST_PARTS:
            self.parts.append(entry)
        text = self.lines[line - self.first].strip() if 0 <= line - self.first < len(self.lines) else name
        detail: dict[str, Any] = {"state": state, "health": health, "resource": resource[:200]}
        kind = {"fan": "fan_failed", "psu": "psu_failed"}.get(cls, "sensor_critical")
        if cls == "power":
            return

        def say(what: str, **more: Any) -> None:
            self.found.add(
                signal(what, line, text, Prefix(self.host), device=name or None, value=value, unit=unit or None,
                       detail=detail, **more)
            )  # fmt: skip

        lost = cls == "psu" and item.get("LineInputStatus") in _LOST
        # A beyond-threshold reading of an absent or disabled part is the register's resting value.
        live = state in ("Enabled", "StandbySpare", None)
        headroom = bool(_LIMITING.search(name))
        over = live and value is not None and not headroom and upper is not None and upper > 0 and value >= upper
        under = live and value is not None and cls == "fan" and lower is not None and lower > 0 and value <= lower
        if state == "Absent":
            return
        if health == "Critical" or lost or over or under:
            if lost:
                detail["input"] = item.get("LineInputStatus")
            say(kind, limit=upper if over else lower if under else None)
            self.verdicts.append("fail")
        elif health == "Warning":
            say("sensor_warning")
            self.verdicts.append("pass")
        elif state in ("Enabled", "StandbySpare") and health == "OK":
            if cls == "fan" and value is None:
                detail["what"] = "no reading"
                say("unreadable")
                self.verdicts.append("unknown")
            elif cls == "fan" and value == 0:
                detail["what"] = "0 without an alarm"
                say("unreadable")
                self.verdicts.append("unknown")
            else:
                self.verdicts.append("pass")
        elif cls in ("fan", "psu") or state == "Enabled":
            if not status and cls == "temperature" and value is not None:
                self.verdicts.append("pass")  # metrics carry no status of their own
            else:
                detail["what"] = "no health"
                say("unreadable")
                self.verdicts.append("unknown")
        elif not status and value is not None:
            self.verdicts.append("pass")
        if cls == "temperature" and value is not None and live and not headroom:
            context = str(item.get("PhysicalContext", ""))
            if context in ("Intake", "Room") or _INLET.search(name):
                self.found.add(
                    signal("inlet_temperature", line, text, Prefix(self.host), device=name or None, value=value,
                           unit="C", limit=upper, detail=detail)
                )  # fmt: skip

    def _line_of(self, name: str) -> int:
        if name:
            needle = json.dumps(name)
            at: int
            for at in [*range(self.cursor, len(self.lines)), *range(self.start, self.cursor)]:
                if needle in self.lines[at]:
                    self.cursor = at
                    return self.first + at
        return self.first + min(self.cursor, max(len(self.lines) - 1, 0))

    def read(self) -> Reading:
        """Return the reading of all replies."""
        for document, line in self._documents():
            self._resource(document, line)
        reading = Reading(self.tool, recognised=bool(self.documents) or self.recognised_damage)
        reading.complete = self.whole
        fans = [p for p in self.parts if p["class"] == "fan" and p["state"] != "Absent"]
        if fans and all(p["value"] is None for p in fans):
            reading.problems.append("no fan has a reading (is the host powered off?)")
            self.verdicts.append("unknown")
        if self.documents and not self.parts:
            reading.problems.append("there are no parts in these replies: links only, or an empty stub")
            self.verdicts.append("unknown")
        elif self.links:
            reading.problems.append(f"{self.links} members or collections are links; what they hold may not be here")
        reading.verdict = worst(self.verdicts)
        if self.documents and not self.whole and reading.verdict == "pass":
            reading.problems.append("one reply says nothing about the others: nothing proves that all are here")
        reading.data = {"parts": self.parts, "links": self.links, "documents": self.documents[:1000]}
        return reading


def _list(value: Any) -> list[Any]:
    return value[:MOST_PARTS] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e300 else None


def _threshold(item: dict[str, Any], name: str) -> float | None:
    thresholds = item.get("Thresholds")
    entry = thresholds.get(name) if isinstance(thresholds, dict) else None
    return _number(entry.get("Reading")) if isinstance(entry, dict) else None
