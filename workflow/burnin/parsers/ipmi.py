# SPDX-License-Identifier: Apache-2.0
"""ipmitool: `sdr`, `sdr elist`, `sdr type …`, `sensor`, `sel list`, `sel elist`, with stderr mixed in.

Lines are split at `|` and stripped, never by column (ipmitool lib/ipmi_sdr.c, ipmi_sel.c); the number of cells and
their shape say which listing it is.

Verdict:
- `fail`: a fan, power supply or other sensor is critical or non-recoverable (cr, nr, lcr, lnr, ucr, unr), a power
  supply says that it failed or lost its input, or the event log has a hard fault that was not closed by "Deasserted".
- `unknown`: `0 RPM | ok` (the BMC sees no fault, often an empty slot or a limit never set), all fans unreadable, no
  sensor read at all, the session failed, or the text may be cut (these listings have no end mark: see `whole`).
- `pass`: whole, sensors or "SEL has no entries" were read, nothing of the above.
`ns` ("no reading", "disabled") is not known: a signal `unreadable` for fans and power supplies, since an empty slot
looks the same; it decides only if nothing of the kind can be read. Non-critical (nc, lnc, unc) is `sensor_warning`.

data: `sensors`: [{"name", "id", "entity", "reading" (text), "value" (number|null), "unit", "status", "line", "host"}]
(names repeat: a list, not a table), `events`: [{"id" (text, hexadecimal), "date", "time", "sensor", "event",
"asserted", "line"}] first and last 200, `events_total`, `sel_empty`, `listings`.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, ClassVar

from burnin.parsers.common import NUMBER, Prefix, number, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

#: Most sensors and events kept.
MOST_SENSORS = 20_000
KEEP_EVENTS = 200

_STATUS = {
    "ok": "ok", "ns": "ns", "nc": "warning", "cr": "critical", "nr": "critical", "us": "ns", "lnc": "warning",
    "unc": "warning", "lcr": "critical", "ucr": "critical", "lnr": "critical", "unr": "critical", "na": "ns",
}  # fmt: skip
_READING = re.compile(
    rf"({NUMBER}) ?(percent|degrees [CFK]|%|RPM|Volts|Watts|Amps|Joules|CFM|unspecified|[A-Za-z][\w /]*)$"
)
_HEX_STATE = re.compile(r"0x[0-9a-fA-F]{1,6}$")
_ID = re.compile(r"[0-9A-Fa-f]{1,3}h$")
_ENTITY = re.compile(r"\d{1,3}\.\d{1,3}$")
_DATE = re.compile(r"\d\d/\d\d/\d{2}(?:\d\d)?$|Pre-Init$")
_SEL_ID = re.compile(r"[0-9a-fA-F]{1,4}$")
_SEL_OEM = re.compile(r"OEM record [0-9a-fA-F]{2}")
_PRE_INIT = re.compile(r"Pre-Init\s*\|?\s*(\d{1,10})")
_FAN = re.compile(r"(?i)\bfan|fan\d|_fan|blower|tach")
_PSU = re.compile(r"(?i)psu|\bps\d|pwr ?supply|power ?supply|\bps_|PS\d_|PwrSupp")
_INLET = re.compile(r"(?i)inlet|ambient|\bfront.?(?:panel )?temp|intake|amb_")
_MARGIN = re.compile(r"(?i)margin|tjmax|dts\b|limit")
#: States of a discrete power supply sensor that mean it does not deliver (IPMI 2.0 table 42-3, sensor type 08h).
_PSU_BAD = re.compile(
    r"(?i)failure detected|predictive failure|AC lost|input lost|config(?:uration)? error|out-of-range"
)
_BAD_STATE = re.compile(r"(?i)redundancy lost|non-redundant: insufficient|device removed|\bIERR\b|thermal trip")
#: Event texts of the SEL that are faults whatever the sensor (ipmitool's own wording).
_HARD_EVENT = re.compile(
    r"(?i)\bIERR\b|thermal trip|FRB\d|uncorrectable|bus fatal|fatal error|PCI SERR|PCI PERR|failure detected|"
    r"predictive failure|AC lost|power supply failure|non-recoverable going|(?:lower|upper) critical going|"
    r"critical (?:low|high)|soft power control failure|power off/down failure|machine check|redundancy lost|"
    r"drive fault|CATERR|configuration error|non-redundant: insufficient|transition to (?:non-recoverable|critical)"
)
_NO_SESSION = re.compile(
    r"(?i)unable to establish (?:IPMI|LAN|RMCP)|could not open device at /dev/ipmi|"
    r"address lookup for .* failed|Get Device ID command failed|RAKP \d message"
)
_NOISE = re.compile(
    r"(?i)IANA PEN registry open failed|Get SDR \w+ command failed|Get SEL Entry \w+ command failed|"
    r"SDR reading from device|Error obtaining SDR|Get SDR Repository Info|Unable to obtain SDR reservation"
)
_SEL_EMPTY = re.compile(r"SEL has no entries")


class Parser(HostedParser):
    """Streaming reader of ipmitool. Options: `whole`, `host`."""

    tool: ClassVar[str] = "ipmi"
    program: ClassVar[str] = "ipmitool"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sensors: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.listings: set[str] = set()
        self.recognised = False
        self.no_session = False
        self.sel_empty = False
        self.first_events: list[dict[str, Any]] = []
        self.last_events: deque[dict[str, Any]] = deque(maxlen=KEEP_EVENTS)
        self.events = 0
        self.open: dict[tuple[Any, ...], int] = {}
        self.closed_faults = 0

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host prefix."""
        if "|" not in body:
            return self._message(number, body)
        cells = [c.strip() for c in body.split("|")]
        if len(cells) >= 5 and _ID.match(cells[1]):
            return self._elist(number, body, cells, prefix)
        if len(cells) >= 2 and (_SEL_ID.match(cells[0]) and (len(cells) > 2) and self._is_sel(cells)):
            return self._sel(number, body, cells, prefix)
        if len(cells) == 3 and cells[0] and cells[2] in _STATUS and cells[2] != "na":
            return self._sdr(number, body, cells, prefix)
        if len(cells) == 10 and cells[0] and (cells[3] in _STATUS or (cells[2] == "discrete")):
            return self._sensor(number, body, cells, prefix)
        if self.recognised:
            self.note(f"line {number} is not understood: {body.strip()[:80]}")
            self.verdicts.append("unknown")
        return []

    @staticmethod
    def _is_sel(cells: list[str]) -> bool:
        return bool(_DATE.match(cells[1]) or _SEL_OEM.match(cells[1]) or _PRE_INIT.match(cells[1]))

    def _message(self, number: int, body: str) -> list[Signal]:
        if _SEL_EMPTY.search(body):
            self.recognised = self.sel_empty = True
            self.listings.add("sel")
            self.verdicts.append("pass")
        elif _NO_SESSION.search(body):
            # "ipmitool has been called" proves the tool, not a reading: nothing can pass.
            self.recognised = self.no_session = True
            self.note(f"line {number}: no data from the BMC: {body.strip()[:160]}")
            self.verdicts.append("unknown")
        elif _NOISE.search(body):
            self.recognised = True
            if "command failed" in body:
                self.note(f"line {number}: part of the records could not be read: {body.strip()[:160]}")
                self.verdicts.append("unknown")
        return []

    # ---------------------------------------------------------------------------------------------------- sensors

    def _sdr(self, number: int, body: str, cells: list[str], prefix: Prefix) -> list[Signal]:
        self.listings.add("sdr")
        return self._judge(number, body, prefix, cells[0], None, None, cells[1], cells[2])

    def _elist(self, number: int, body: str, cells: list[str], prefix: Prefix) -> list[Signal]:
        self.listings.add("elist")
        reading = " | ".join(c for c in cells[4:] if c)
        return self._judge(number, body, prefix, cells[0], cells[1], cells[3], reading, cells[2])

    def _sensor(self, number: int, body: str, cells: list[str], prefix: Prefix) -> list[Signal]:
        self.listings.add("sensor")
        name, value, unit, status = cells[:4]
        if unit == "discrete":
            return self._judge(number, body, prefix, name, None, None, value, "ns" if value == "na" else "ok")
        reading = f"{value} {unit}" if value != "na" else "na"
        limit = cells[8] if len(cells) > 8 else None
        return self._judge(number, body, prefix, name, None, None, reading, status, limit)

    def _judge(
        self,
        line: int,
        body: str,
        prefix: Prefix,
        name: str,
        ident: str | None,
        entity: str | None,
        reading: str,
        status: str,
        limit: str | None = None,
    ) -> list[Signal]:
        self.recognised = True
        value: float | None = None
        unit: str | None = None
        if m := _READING.match(reading):
            value = number(m[1])
            unit = {"degrees C": "C", "percent": "%", "Watts": "W", "Volts": "V", "Amps": "A"}.get(m[2], m[2])
        grade = _STATUS.get(status)
        entry: dict[str, Any] = {
            "name": name, "id": ident, "entity": entity, "reading": reading, "value": value, "unit": unit,
            "status": status, "line": line,
        }  # fmt: skip
        if prefix.host:
            entry["host"] = prefix.host
        fan = unit == "RPM" or bool(_FAN.search(name))
        psu = bool(_PSU.search(name))
        entry["class"] = "fan" if fan else "psu" if psu else "other"
        if len(self.sensors) < MOST_SENSORS:
            self.sensors.append(entry)
        else:
            self.note(f"more than {MOST_SENSORS} sensors: the rest was judged but is not listed")
        detail: dict[str, Any] = {"status": status}
        if ident:
            detail["id"] = ident
        out: list[Signal] = []

        def say(kind: str, **more: Any) -> None:
            more.setdefault("detail", detail)
            out.extend(self.emit(signal(kind, line, body, prefix, device=name, value=value, unit=unit, **more)))

        kind = "fan_failed" if fan else "psu_failed" if psu else "sensor_critical"
        if grade is None:
            self.note(f"line {line}: the status '{status[:20]}' of {name[:40]} is not known")
            self.verdicts.append("unknown")
        elif grade == "critical":
            # A voltage or temperature of a power supply may be critical too: the supply is what must be looked at.
            say(kind, limit=number(limit))
            self.verdicts.append("fail")
        elif psu and _PSU_BAD.search(reading):
            say("psu_failed", detail={**detail, "state": reading[:200]})
            self.verdicts.append("fail")
        elif _BAD_STATE.search(reading):
            say("sensor_warning", detail={**detail, "state": reading[:200]})
        elif grade == "ns":
            if fan or psu:
                say("unreadable", detail={**detail, "what": reading[:80] or "no reading"})
        elif fan and unit == "RPM" and value == 0:
            say("unreadable", detail={**detail, "what": "0 RPM without an alarm: empty slot, or no limit is set"})
            self.note(f"line {line}: {name} reads 0 RPM and the BMC calls it {status}: not known whether it turns")
            self.verdicts.append("unknown")
        else:
            if grade == "warning":
                say("sensor_warning")
            self.verdicts.append("pass")
        if value is not None and unit == "C" and _INLET.search(name) and not _MARGIN.search(name) and grade != "ns":
            say("inlet_temperature", limit=number(limit))
        return out

    # ------------------------------------------------------------------------------------------------------- SEL

    def _sel(self, line: int, body: str, cells: list[str], prefix: Prefix) -> list[Signal]:
        self.recognised = True
        self.listings.add("sel")
        self.events += 1
        if m := _PRE_INIT.match(cells[1]):
            date, clock, rest = "Pre-Init", m[1], cells[2:]
        elif cells[1] == "Pre-Init":
            date, clock, rest = "Pre-Init", cells[2].strip("|"), cells[3:]
        elif _SEL_OEM.match(cells[1]):
            date, clock, rest = "", "", cells[1:]
        else:
            date, clock, rest = cells[1], cells[2], cells[3:]
            if rest and _SEL_OEM.match(rest[0]):
                rest = rest[0:]
        sensor = rest[0] if rest else ""
        event = rest[1] if len(rest) > 1 else ""
        asserted: bool | None = None
        if len(rest) > 2 and rest[2].lower() in ("asserted", "deasserted"):
            asserted = rest[2].lower() == "asserted"
        entry: dict[str, Any] = {
            "id": cells[0].lower(), "date": date, "time": clock, "sensor": sensor, "event": event,
            "asserted": asserted, "line": line,
        }  # fmt: skip
        if len(rest) > 3 and rest[3]:
            entry["reading"] = rest[3][:200]
        if prefix.host:
            entry["host"] = prefix.host
        if date in ("01/01/2000", "01/01/1970", "01/01/70", "01/01/00"):
            entry["clock_unset"] = True
        if len(self.first_events) < KEEP_EVENTS:
            self.first_events.append(entry)
        else:
            self.last_events.append(entry)
        hard = bool(_HARD_EVENT.search(event) or _HARD_EVENT.search(sensor))
        key = (prefix.host, sensor, event)
        if hard:
            if asserted is False:
                if self.open.get(key):
                    self.open[key] -= 1
                    self.closed_faults += 1
            elif len(self.open) < 10_000 or key in self.open:
                self.open[key] = self.open.get(key, 0) + 1
        detail = {k: v for k, v in entry.items() if k not in ("line", "host")}
        detail["hard"] = hard
        return self.emit(signal("sel_event", line, body, prefix, device=sensor or None, detail=detail))

    def read(self) -> Reading:
        """Return the reading of the whole listing."""
        reading = Reading(self.tool, recognised=self.recognised, complete=self.whole and not self.no_session)
        verdicts = list(self.verdicts)
        fans = [s for s in self.sensors if s["class"] == "fan"]
        if fans and all(_STATUS.get(s["status"]) == "ns" for s in fans):
            reading.problems.append("no fan can be read")
            verdicts.append("unknown")
        if any(self.open.values()):
            verdicts.append("fail")
        elif self.events:
            verdicts.append("pass")
        reading.verdict = worst(verdicts)
        if self.cut and not self.whole:
            reading.problems.append("the last line has no end: the text is cut")
        elif self.recognised and not self.whole and reading.verdict == "pass":
            reading.problems.append("this listing has no end mark: nothing proves that it is whole")
        reading.data = {"sensors": self.sensors, "listings": sorted(self.listings)}
        if self.events or self.sel_empty:
            reading.data["events"] = [*self.first_events, *self.last_events]
            reading.data["events_total"] = self.events
            reading.data["sel_empty"] = self.sel_empty
        return reading
