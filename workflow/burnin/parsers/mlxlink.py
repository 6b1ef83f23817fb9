# SPDX-License-Identifier: Apache-2.0
"""mlxlink: operational state, `-c` counters and BER, `-m` module, text and `--json` (mstflint mlxlink_*).

Keys are matched whole, since some are prefixes of others ("Raw Physical BER", "Raw Physical BER Per Lane").
A BER is a coefficient and an exponent, `3E-10`; `15E-255` and `15E-254` mean "no error seen" and compare like 0.
Raw BER is before error correction and never judged; effective and symbol BER are after it.

Verdict, for each port of the text:
- `fail`: State is not Active; physical state is not up; effective or symbol BER above `BER_FAIL`; mlxlink's own opcode
  is not 0; speed below the best that is both enabled and supported by the cable; module temperature, Rx or Tx power
  outside the range printed beside it, or a dark lane (-40 dBm).
- Counters (Link Down, Link Error Recovery, effective errors) do not decide: they count since they were last cleared,
  which may be before the burn-in; their difference does. Each above 0 is a signal. So is an effective BER above
  `BER_SIGNAL`, and a lane more than `LANE_SPREAD_DB` below the median of its module's other lanes (in range, and still
  a dirty connector).
- `unknown`: a value that should be there on an Active link is N/A or unreadable, counters that were asked for are
  missing, or nothing proves that the text is whole (text has no end mark: see `whole`; JSON proves itself). A BER over
  less than `SHORT_MINUTES` says nothing; that is a problem, no verdict, since a burn-in begins with cleared counters.
- `pass`: all of it present and good.

data of the (last) port: `device`, `state`, `physical_state`, `speed`, `width`, `fec`, `opcode`, `recommendation`,
`minutes_since_clear`, `effective_ber`, `effective_errors`, `symbol_ber`, `symbol_errors`, `raw_ber`,
`raw_errors_per_lane`, `link_down`, `link_recovery`, `enabled_speeds`, `cable_speeds`, `firmware`, `module`: {"type",
"technology", "vendor", "part_number", "serial", "temperature_c", "temperature_range", "rx_power_dbm": [...],
"rx_power_range", "tx_power_dbm", "tx_power_range", "bias_ma", "voltage_mv"}, `lines`: {key: line}. `ports`: all of
several.
"""

from __future__ import annotations

import json
import re
from statistics import median
from typing import Any, ClassVar

from burnin.parsers.common import NUMBER, Prefix, finite, number, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

#: Effective or symbol BER above this is a fault (ten thousand times the 1E-15 of a healthy link, with room for noise).
BER_FAIL = 1e-12
#: Effective or symbol BER above this is worth a signal: what specifications allow after error correction.
BER_SIGNAL = 1e-14
#: Below this time since the counters were cleared a BER of 0 errors says nothing.
SHORT_MINUTES = 1.0
#: A lane this far below its neighbours' median Rx power is odd though in range.
LANE_SPREAD_DB = 3.0
#: Rx power that modules print for a lane without light.
DARK_DBM = -39.9
#: Most ports in one text, longest JSON text read.
MOST_PORTS = 4096
JSON_LIMIT = 8 << 20

_LINE = re.compile(r"\s*(\S.*?)\s*:(?:\s+(.*?))?\s*$")
_UP = frozenset({"LinkUp", "ETH_AN_FSM_ENABLE", "LINK_UP", "Link Up", "Active"})
#: Words of both states; another word is not known, so it convicts nobody.
_STATES = frozenset(
    {"Active", "Down", "Polling", "Disable", "Disabled", "Init", "Initialize", "Initializing", "Armed", "Close port",
     "Close Port", "Port PLL Down", "Physical Up", "PortConfigurationTraining", "LinkErrorRecovery", "Phy Test", "Sleep",
     "Rx Disable", "Training", "Phy Up", "PhyTest", "Port_PLL_Down"}
)  # fmt: skip
_FIELDS: dict[str, str] = {
    "State": "state",
    "Physical state": "physical_state",
    "Physical State": "physical_state",
    "Speed": "speed",
    "Width": "width",
    "FEC": "fec",
    "Auto Negotiation": "auto_negotiation",
    "Enabled Link Speed (Ext.)": "enabled_speeds",
    "Enabled Link Speed": "enabled_speeds",
    "Supported Cable Speed (Ext.)": "cable_speeds",
    "Supported Cable Speed": "cable_speeds",
    "Status Opcode": "opcode",
    "Group Opcode": "group_opcode",
    "Recommendation": "recommendation",
    "Firmware Version": "firmware",
    "MFT Version": "mft",
    "Time Since Last Clear [Min]": "minutes_since_clear",
    "Symbol Errors": "symbol_errors",
    "Symbol BER": "symbol_ber",
    "Effective Physical Errors": "effective_errors",
    "Effective Physical BER": "effective_ber",
    "Raw Physical Errors Per Lane": "raw_errors_per_lane",
    "Raw Physical BER": "raw_ber",
    "Raw Physical BER Per Lane": "raw_ber_per_lane",
    "Link Down Counter": "link_down",
    "Link Error Recovery Counter": "link_recovery",
}
_MODULE: dict[str, str] = {
    "Identifier": "type",
    "Cable Technology": "technology",
    "Cable Type": "cable_type",
    "Vendor Name": "vendor",
    "Vendor Part Number": "part_number",
    "Vendor Serial Number": "serial",
    "Rev": "revision",
    "FW Version": "firmware",
    "Temperature [C]": "temperature_c",
    "Voltage [mV]": "voltage_mv",
    "Bias Current [mA]": "bias_ma",
    "Rx Power Current [dBm]": "rx_power_dbm",
    "Tx Power Current [dBm]": "tx_power_dbm",
}
_NUMBERS = frozenset(
    {"minutes_since_clear", "symbol_errors", "symbol_ber", "effective_errors", "effective_ber", "raw_ber", "link_down",
     "link_recovery", "opcode"}
)  # fmt: skip
_SECTIONS = (
    "Operational Info", "Supported Info", "Troubleshooting Info", "Tool Information", "Physical Counters and BER Info",
    "Module Info", "Physical Counters and BER Info (IB)", "Cable/Module Info",
)  # fmt: skip
_RANGE = re.compile(rf"\[\s*({NUMBER})\s*\.\.\s*({NUMBER})\s*\]\s*$")
_DEVICE = re.compile(r"\bmlxlink\b.*?\s-d\s+(\S+)")
_TITLE_DEVICE = re.compile(r"^\W*((?:mlx5_\d+|\w+:\w\w:\w\w\.\d))\W*$")
_ERROR = re.compile(
    r"(?i)^\s*-E-\s*(.*)|^\s*(failed to (?:open|access|get).*|.*device is not present.*|.*FW command.*failed.*)"
)
_SPEED_IB = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
_BLANK = frozenset({"", "N/A", "n/a", "-", "Unknown"})


def _rank(speed: str) -> float | None:
    """Return a speed's order: InfiniBand generations by place, Ethernet by Gb/s; None if it is neither."""
    word = speed.strip().removeprefix("IB-")
    if word in _SPEED_IB:
        return float(_SPEED_IB.index(word))
    m = re.match(r"(?:BaseTx)?(\d+(?:\.\d+)?)(G|M)", word)
    if m:
        return float(m[1]) * (1.0 if m[2] == "G" else 0.001) + 1000.0
    return None


def _speeds(text: str) -> list[str]:
    m = re.search(r"\(([^()]*)\)", text)
    inside = m[1] if m else ("" if text.strip().startswith("0x") else text)
    return [s.strip() for s in inside.split(",") if s.strip() and s.strip() not in _BLANK]


class _Port:
    def __init__(self, line: int, device: str | None, host: str | None) -> None:
        self.line = line
        self.device = device
        self.host = host
        self.fields: dict[str, str] = {}
        self.module: dict[str, str] = {}
        self.lines: dict[str, int] = {}
        self.raw: dict[str, str] = {}
        self.sections: list[str] = []
        self.error: tuple[str, int] | None = None

    def put(self, key: str, value: str, line: int, raw: str) -> None:
        short = _FIELDS.get(key)
        place = self.fields
        if short is None or (short == "firmware" and "Module Info" in self.sections[-1:]):
            if key not in _MODULE:
                return
            short, place = _MODULE[key], self.module
        if short in place:
            return
        place[short] = value[:500]
        full = short if place is self.fields else "module." + short
        self.lines[full] = line
        self.raw[full] = raw


class Parser(HostedParser):
    """Streaming reader of mlxlink. Options: `whole`, `host`, `device`, `counters`, `module` (were they asked for)."""

    tool: ClassVar[str] = "mlxlink"
    program: ClassVar[str] = "mlxlink"
    line_limit = JSON_LIMIT

    def __init__(
        self,
        *,
        whole: bool = False,
        host: str | None = None,
        device: str | None = None,
        counters: bool | None = None,
        module: bool | None = None,
        **others: Any,
    ) -> None:
        super().__init__(whole=whole, host=host, **others)
        self.device = device
        self.counters = counters
        self.module = module
        self.ports: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.port: _Port | None = None
        self.named: str | None = None
        self.json: list[str] | None = None
        self.json_size = 0
        self.json_start = 0
        self.json_done = False
        self.recognised = False
        self.texts = 0

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host prefix."""
        if self.json is not None:
            self._json_line(body)
            return []
        stripped = body.strip()
        if not stripped:
            return []
        if stripped.startswith("{") and self.port is None:
            self.json, self.json_start = [], number
            self._json_line(body)
            return []
        if m := _DEVICE.search(stripped):
            out = self._close()
            self.named = m[1]
            return out
        if m := _TITLE_DEVICE.match(stripped):
            out = self._close()
            self.named = m[1]
            return out
        if stripped in _SECTIONS:
            out = []
            if stripped == "Operational Info" or self.port is None:
                out = self._close()
                self.port = _Port(number, self.named or self.device, prefix.host)
                self.recognised = True
                self.texts += 1
            self.port.sections.append(stripped)
            return out
        if m := _ERROR.match(stripped):
            if self.port is None and not stripped.startswith("-E-"):
                return []
            self.recognised |= self.port is not None
            if self.port is not None:
                self.port.error = self.port.error or (stripped[:200], number)
            self.note(f"line {number}: mlxlink says: {stripped[:160]}")
            self.verdicts.append("unknown")
            return []
        if self.port is not None and (m := _LINE.match(body)):
            self.port.put(m[1], (m[2] or "").strip(), number, body)
        return []

    # ------------------------------------------------------------------------------------------------------ JSON

    def _json_line(self, body: str) -> None:
        if self.json is None or self.json_done:
            return
        self.json_size += len(body)
        if self.json_size > JSON_LIMIT:
            self.note("the JSON text is too long", damage=True)
            self.json_done = True
            return
        self.json.append(body)

    def _read_json(self) -> list[Signal]:
        text = "\n".join(self.json or [])
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            if '"Operational Info"' in text or '"result"' in text:
                self.recognised = True
            self.note("the JSON is cut or damaged", damage=True)
            self.verdicts.append("unknown")
            return []
        result = document.get("result") if isinstance(document, dict) else None
        status = document.get("status") if isinstance(document, dict) else None
        if not isinstance(result, dict) or "output" not in result:
            return []
        output = result["output"]
        self.recognised = True
        self.whole = True
        if isinstance(status, dict) and status.get("code") not in (0, "0", None):
            self.note(f"mlxlink failed: {str(status.get('message'))[:160]}")
            self.verdicts.append("unknown")
        if not isinstance(output, dict):
            self.note(f"mlxlink gave no output: {str(output)[:80]}")
            self.verdicts.append("unknown")
            return []
        lines = self.json or []
        port = self.port = _Port(self.json_start, self.device, self.host)
        for section, content in output.items():
            port.sections.append(str(section))
            if not isinstance(content, dict):
                continue
            for key, value in content.items():
                at = self._line_of(lines, f'"{key}"')
                port.put(str(key), _json_value(value), at, lines[at - self.json_start].strip())
        return self._close()

    def _line_of(self, lines: list[str], needle: str) -> int:
        for i, line in enumerate(lines):
            if needle in line:
                return self.json_start + i
        return self.json_start

    # ---------------------------------------------------------------------------------------------------- judging

    def _close(self) -> list[Signal]:
        port, self.port = self.port, None
        if port is None:
            return []
        out: list[Signal] = []
        verdicts: list[Verdict] = []
        pre = Prefix(port.host)

        def say(kind: str, key: str, **more: Any) -> None:
            line = port.lines.get(key, port.line)
            more.setdefault("device", port.device)
            text = port.raw.get(key, port.sections[0] if port.sections else "no section of mlxlink's output is here")
            out.extend(self.emit(signal(kind, line, text, pre, **more)))

        def unreadable(key: str, what: str) -> None:
            value = port.fields.get(key, "missing")
            say("unreadable", key, detail={"what": what, "value": value[:80]})
            self.note(f"{port.device or 'the port'}: {what} could not be read ({value[:40]})")
            verdicts.append("unknown")

        numbers = {k: number(port.fields.get(k)) for k in _NUMBERS}
        state, physical = port.fields.get("state", ""), port.fields.get("physical_state", "")
        active = state == "Active" and physical in _UP
        known = state in _STATES, physical in _UP or physical in _STATES or physical.startswith("ETH_")
        if not all(known):
            unreadable("physical_state" if known[0] else "state", "link state")
        elif not active:
            advice = port.fields.get("recommendation", "")[:200]
            say("link_state", "state", detail={"state": state, "physical_state": physical, "recommendation": advice})
            verdicts.append("fail")
        else:
            verdicts.append("pass")
        opcode = numbers["opcode"]
        if opcode is not None and opcode != 0 and active:
            say("link_opcode", "opcode", value=opcode,
                detail={"recommendation": port.fields.get("recommendation", "")[:200]})  # fmt: skip
            verdicts.append("fail")
        if active:
            verdicts += self._counters(port, numbers, say, unreadable)
            verdicts += self._speed(port, say)
        entry = self._entry(port, numbers)
        verdicts += self._module(port, entry, say, unreadable)
        if len(self.ports) < MOST_PORTS:
            self.ports.append(entry)
        if port.error:
            verdicts.append("unknown")
        self.verdicts.append(worst(verdicts))
        return out

    def _counters(self, port: _Port, numbers: dict[str, float | None], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        asked = self.counters or any("BER" in s for s in port.sections)
        if not asked and self.counters is None and "Module Info" not in port.sections:
            # Without counters, mlxlink says little more than ibstat does.
            self.note(f"{port.device or 'the port'}: there are no counters in this text (mlxlink -c)")
            verdicts.append("unknown")
        if not asked:
            return verdicts
        minutes = numbers["minutes_since_clear"]
        short = minutes is not None and minutes < SHORT_MINUTES
        for key, what in (("effective_ber", "effective BER"), ("symbol_ber", "symbol BER")):
            value = numbers[key]
            if value is None:
                # Ethernet has no symbol BER; every -c text has an effective one.
                if key == "effective_ber" or port.fields.get(key, "N/A") not in _BLANK:
                    unreadable(key, what)
                continue
            if value != value or value < 0:
                unreadable(key, what)
                continue
            if value > BER_SIGNAL:
                say("link_effective_ber", key, value=value, limit=BER_FAIL, detail={"what": what, "minutes": minutes})
            if value > BER_FAIL:
                verdicts.append("fail")
            else:
                verdicts.append("pass")
        if short:
            self.note(f"{port.device or 'the port'}: counters were cleared {minutes:g} minutes before: BER says little")
        for key, kind, what in (
            ("effective_errors", "link_effective_errors", "effective physical errors"),
            ("symbol_errors", "link_effective_errors", "symbol errors"),
            ("link_down", "link_down_count", "Link Down Counter"),
            ("link_recovery", "link_recovery_count", "Link Error Recovery Counter"),
        ):
            value = numbers[key]
            if value is None:
                if key in ("effective_errors", "link_down") or port.fields.get(key, "N/A") not in _BLANK:
                    unreadable(key, what)
            elif value > 0:
                say(kind, key, value=value, detail={"what": what, "minutes": minutes})
        return verdicts

    @staticmethod
    def _speed(port: _Port, say: Any) -> list[Verdict]:
        speed = port.fields.get("speed", "")
        now = _rank(speed)
        enabled = _speeds(port.fields.get("enabled_speeds", ""))
        cable = _speeds(port.fields.get("cable_speeds", ""))
        both = [s for s in enabled if not cable or s in cable]
        ranks = [r for r in map(_rank, both) if r is not None]
        if now is None or not ranks:
            return []
        if now < max(ranks):
            best = next(s for s in both if _rank(s) == max(ranks))
            say("link_speed", "speed", detail={"speed": speed, "possible": best})
            return ["fail"]
        return ["pass"]

    def _module(self, port: _Port, entry: dict[str, Any], say: Any, unreadable: Any) -> list[Verdict]:
        verdicts: list[Verdict] = []
        module = port.module
        if not module:
            if self.module:
                unreadable("module.temperature_c", "module information")
            return verdicts
        out: dict[str, Any] = {
            k: (None if v in _BLANK else v)
            for k, v in module.items()
            if k in ("type", "technology", "cable_type", "vendor", "part_number", "serial", "revision", "firmware")
        }
        copper = "copper" in (module.get("cable_type", "") + module.get("technology", "")).lower()
        for key in ("temperature_c", "voltage_mv", "bias_ma", "rx_power_dbm", "tx_power_dbm"):
            if key not in module:
                continue
            text = module[key]
            limits = _RANGE.search(text)
            low, high = (number(limits[1]), number(limits[2])) if limits else (None, None)
            body = text[: limits.start()] if limits else text
            lanes = [number(p) for p in body.strip().split(",")]
            many = key.endswith("dbm") or key == "bias_ma"
            out[key] = [finite(v) for v in lanes] if many else finite(lanes[0])
            if limits:
                out[key.rpartition("_")[0] + "_range"] = [low, high]
            if body.strip() in _BLANK:
                out[key] = None
                if not copper and key != "bias_ma" and key != "voltage_mv":
                    say("unreadable", "module." + key, detail={"what": key, "value": text[:60]})
                continue
            if key not in ("temperature_c", "rx_power_dbm", "tx_power_dbm"):
                continue
            if any(v is None for v in lanes) or (not limits and "[" in text):
                say("unreadable", "module." + key, detail={"what": key, "value": text[:60]})
                self.note(f"{port.device or 'the port'}: {key} could not be read ({text[:60]})")
                verdicts.append("unknown")
                continue
            values = [v for v in lanes if v is not None]
            verdicts += self._lanes(key, values, low, high, say)
        for key in ("temperature_c", "rx_power_dbm", "tx_power_dbm"):
            # Copper cables print these too, as N/A.
            if key not in module:
                self.note(f"{port.device or 'the port'}: the module information lacks {key}")
                verdicts.append("unknown")
        entry["module"] = out
        return verdicts

    @staticmethod
    def _lanes(key: str, values: list[float], low: float | None, high: float | None, say: Any) -> list[Verdict]:
        if key == "temperature_c":
            say("module_temperature", "module." + key, value=values[0], unit="C", limit=high)
            outside = high is not None and values[0] >= high
            return ["fail" if outside else "pass"]
        kind = "module_rx_power" if key.startswith("rx") else "module_tx_power"
        verdicts: list[Verdict] = ["pass"]
        for i, value in enumerate(values):
            others = values[:i] + values[i + 1 :]
            dark = value <= DARK_DBM
            outside = dark or (low is not None and value < low) or (high is not None and value > high)
            middle = median(others) if others else value
            far = middle - value > LANE_SPREAD_DB
            if outside or far:
                detail: dict[str, Any] = {"lane": i + 1, "others": middle, "outside": outside}
                if dark:
                    detail["dark"] = True
                say(
                    kind,
                    "module." + key,
                    value=value,
                    unit="dBm",
                    limit=low if value <= middle else high,
                    detail=detail,
                )
            if outside:
                verdicts.append("fail")
        return verdicts

    @staticmethod
    def _entry(port: _Port, numbers: dict[str, float | None]) -> dict[str, Any]:
        entry: dict[str, Any] = {"device": port.device, "line": port.line}
        if port.host:
            entry["host"] = port.host
        for key, value in port.fields.items():
            if key in _NUMBERS:
                entry[key] = _plain(numbers[key])
            elif key in ("enabled_speeds", "cable_speeds"):
                entry[key] = _speeds(value)
            elif key == "raw_errors_per_lane":
                entry[key] = [_plain(number(p)) for p in value.split(",")]
            else:
                entry[key] = None if value in _BLANK else value
        entry["lines"] = dict(port.lines)
        return entry

    def read(self) -> Reading:
        """Return the reading of all ports in the text."""
        if self.json is not None:
            self._read_json()
        self._close()
        reading = Reading(self.tool, recognised=self.recognised)
        reading.complete = self.whole and self.json_size <= JSON_LIMIT
        reading.verdict = worst(self.verdicts)
        if self.cut and not self.whole:
            reading.problems.append("the last line has no end: the text is cut")
        elif self.recognised and not self.whole and reading.verdict == "pass":
            reading.problems.append("this text has no end mark: nothing proves that it is whole")
        if self.ports:
            reading.data = dict(self.ports[-1])
            if len(self.ports) > 1:
                reading.data["ports"] = self.ports
        return reading


def _plain(value: float | None) -> float | int | None:
    """Return a counter as the whole number it is; None for what JSON cannot carry."""
    value = finite(value)
    return int(value) if value is not None and abs(value) < 2**53 and value == int(value) else value


def _json_value(value: Any) -> str:
    """Return a JSON value of mlxlink the way the text prints it: lanes joined by commas, mask and names together."""
    if isinstance(value, dict):
        values = value.get("values")
        mask = value.get("mask")
        if isinstance(values, list):
            joined = ",".join(str(v) for v in values[:64])
            return f"{mask} ({joined})" if isinstance(mask, str) else joined
        return str(value.get("value", "N/A"))
    if isinstance(value, list):
        return ",".join(str(v) for v in value[:64])
    return str(value)
