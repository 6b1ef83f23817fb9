# SPDX-License-Identifier: Apache-2.0
"""`dcgmi health -c`: the text box and the JSON of `-j`, DCGM 1.7 to 4.

Texts in the box are wrapped every 54 characters onto rows with an empty left cell, in the middle of words: they are
joined without adding blanks (dcgmi CommandOutputController).

Verdict: `pass` for an overall `Healthy` whose box is closed; `fail` for `Warning` or `Failure`, overall or of any part;
`unknown` if the watches were never enabled, the host engine does not answer, no overall health is printed, or the box
is cut. Healthy covers what was watched since the watches were enabled and no more.

data: `overall`, `entities`: [{"entity" ("GPU", "NvSwitch", "CPU", …), "id", "health", "systems": [{"system", "health",
"text", "line"}], "line"}], `watches_enabled`: bool|null.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, quote, signal
from burnin.parsers.hosted import HostedParser
from burnin.parsers.reading import Reading, Signal, Verdict

#: Width at which dcgmi wraps texts in the right cell.
WRAP = 54
JSON_LIMIT = 8 << 20
MOST_ENTITIES = 4096

_OVERALL = re.compile(r"\|?\s*Overall Health\s*[:|]\s*([A-Za-z]+)\s*\|?\s*$")
_NOT_ENABLED = re.compile(r"(?i)health watches not enabled")
_SET = re.compile(r"Health monitor systems (?:re)?set successfully|Health systems set")
_ERROR = re.compile(
    r"(?i)^\s*(?:error:?\s|unable to (?:connect|establish)|host engine|the (?:GPU )?group is not found)"
)
_DCGM_WORDS = re.compile(r"(?i)host engine|health|dcgm|group")
_RULE = re.compile(r"[+|]\s*[-=]{10,}")
_ENTITY = re.compile(r"(?i)(GPU|GPU-I|GPU-CI|NvSwitch|Switch|CPU|CPU Core|Link|ConnectX)(?: ID)?$")
_SYSTEM = re.compile(r"(?i)(.+?) system$")
_GRADES = {"healthy": "Healthy", "warning": "Warning", "failure": "Failure"}


class Parser(HostedParser):
    """Reader of dcgmi health. Options: `whole`, `host`."""

    tool: ClassVar[str] = "dcgmi-health"
    program: ClassVar[str] = "dcgmi"
    line_limit = JSON_LIMIT

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.hosts: dict[str | None, _Report] = {}
        self.json: list[str] | None = None
        self.json_size = 0
        self.json_start = 0
        self.recognised = False
        self.verdicts: list[Verdict] = []

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line without host prefix."""
        stripped = body.strip()
        if self.json is not None:
            self.json_size += len(body)
            if self.json_size <= JSON_LIMIT:
                self.json.append(body)
            return []
        if not stripped:
            return []
        report = self.hosts.get(prefix.host)
        if stripped.startswith("{") and report is None:
            self.json, self.json_start, self.json_size = [body], number, len(body)
            return []
        if _NOT_ENABLED.search(stripped):
            self.recognised = True
            self._report(prefix).enabled = False
            self.note(f"line {number}: the health watches were not enabled: nothing was watched (dcgmi health -s a)")
            return []
        if _SET.search(stripped):
            self.recognised = True
            self._report(prefix).enabled = True
            return []
        if _ERROR.match(stripped) and _DCGM_WORDS.search(stripped):
            self.recognised = self.recognised or "host engine" in stripped.lower()
            self.note(f"line {number}: dcgmi says: {stripped[:160]}")
            self._report(prefix).failed = True
            return []
        if "Health Monitor Report" in stripped:
            self.recognised = True
            report = self._report(prefix)
            if report.overall is not None:
                self._close(prefix.host, report)
                report = self.hosts[prefix.host] = _Report(report.enabled)
            report.title = number
            report.open = True
            return []
        if report is None or not report.open:
            return []
        if _RULE.match(stripped):
            # DCGM 1 closes a healthy report with "=", DCGM 2 and later have that below the title.
            end = "+-" if report.overall is None or "|" in report.overall_text.strip("| ") else "+="
            report.closed = (
                stripped.startswith(("+-", end)) and len(stripped) >= report.width and stripped.endswith("+")
            )
            report.width = max(report.width, len(stripped))
            return []
        report.closed = False
        if stripped[0] == "|" and len(stripped) < report.width:
            self.note(f"line {number}: a row of the box is shorter than the box: there is a hole", damage=True)
        if m := _OVERALL.match(stripped):
            report.overall, report.overall_line, report.overall_text = m[1], number, body
            return []
        if stripped.startswith("|"):
            report.row(number, body)
        return []

    def _report(self, prefix: Prefix) -> _Report:
        return self.hosts.setdefault(prefix.host, _Report(None))

    # ------------------------------------------------------------------------------------------------------- JSON

    def _read_json(self) -> None:
        lines = self.json or []
        text = "\n".join(lines)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            self.recognised |= "Overall Health" in text or "Health Monitor Report" in text
            self.note("the JSON is cut or damaged", damage=True)
            m = re.search(r'"Overall Health"\s*:\s*\{[^{}]*"value"\s*:\s*"(\w+)"', text)
            if m and m[1] in ("Warning", "Failure"):
                report = self._report(Prefix(self.host))
                report.overall, report.overall_line = m[1], self._line_of('"Overall Health"')
                report.overall_text = f"Overall Health: {m[1]}"
            return
        body = document.get("body") if isinstance(document, dict) else None
        if not isinstance(body, dict) or "Overall Health" not in body:
            if isinstance(document, dict) and "Health Monitor Report" in str(document.get("header")):
                self.recognised = True
                self.note("the JSON has no overall health")
            return
        self.recognised = True
        report = self._report(Prefix(self.host))
        overall = body["Overall Health"]
        report.overall = str(overall.get("value")) if isinstance(overall, dict) else str(overall)
        report.overall_line = self._line_of('"Overall Health"')
        report.overall_text = f"Overall Health: {report.overall}"
        report.closed = True
        for entity, content in body.items():
            if entity == "Overall Health":
                continue
            for ident, value in _children(content).items():
                place = report.entity(
                    str(entity), str(ident), str(value.get("value", "")), self._line_of(f'"{entity}"')
                )
                for errors in _children(value).values():
                    for system, what in _children(errors).items():
                        at = self._line_of(f'"{system}"')
                        text_ = " ".join(_texts(what))[:2000]
                        m = _SYSTEM.match(str(system))
                        place["systems"].append(
                            {"system": m[1] if m else str(system), "health": str(what.get("value", "")), "text": text_,
                             "line": at}
                        )  # fmt: skip

    def _line_of(self, needle: str) -> int:
        for i, line in enumerate(self.json or []):
            if needle in line:
                return self.json_start + i
        return self.json_start

    # ----------------------------------------------------------------------------------------------------- result

    def _close(self, host: str | None, report: _Report) -> dict[str, Any]:
        report.end_system()
        pre = Prefix(host)
        overall = _GRADES.get((report.overall or "").lower())
        verdict: Verdict = "unknown"
        if overall == "Healthy" and report.closed and report.enabled is not False and not report.failed:
            verdict = "pass"
        elif overall in ("Warning", "Failure"):
            verdict = "fail"
        elif report.overall is not None and overall is None:
            self.note(f"line {report.overall_line}: the health '{report.overall[:40]}' is not known")
        bad = False
        for place in report.entities:
            gpu = int(place["id"]) if place["entity"].upper() == "GPU" and str(place["id"]).isdigit() else None
            device = None if gpu is not None else f"{place['entity']} {place['id']}"
            for system in place["systems"]:
                if _GRADES.get(system["health"].lower()) == "Healthy":
                    continue
                bad = True
                what = f"{system['system']} system {system['health']}: {system['text']}"
                detail = {"system": system["system"], "level": system["health"], "text": quote(system["text"])}
                self.found.add(signal("dcgm_health", system["line"], what, pre, gpu=gpu, device=device, detail=detail))
            if not place["systems"] and _GRADES.get(place["health"].lower()) not in ("Healthy", None):
                bad = True
                self.found.add(
                    signal("dcgm_health", place["line"], f"{place['entity']} {place['id']} {place['health']}", pre,
                           gpu=gpu, device=device, detail={"system": None, "level": place["health"]})
                )  # fmt: skip
        if bad:
            verdict = "fail"
        elif overall in ("Warning", "Failure"):
            self.found.add(
                signal("dcgm_health", report.overall_line, report.overall_text, pre,
                       detail={"system": None, "level": overall})
            )  # fmt: skip
        if report.overall is None and report.enabled is not False and not report.failed:
            self.note("there is no overall health in this text")
        if report.title and not report.closed and report.overall is not None:
            self.note("the report's box is not closed: the text is cut")
        self.verdicts.append(verdict)
        data: dict[str, Any] = {"overall": report.overall, "watches_enabled": report.enabled}
        if report.overall is not None and report.enabled is None:
            data["watches_enabled"] = True  # dcgmi refuses to report otherwise
        data["entities"] = report.entities
        if host:
            data["host"] = host
        return data

    def read(self) -> Reading:
        """Return the reading of the report."""
        if self.json is not None:
            self._read_json()
        reading = Reading(self.tool, recognised=self.recognised)
        closed = [r.closed and r.overall is not None for r in self.hosts.values()]
        datas = [self._close(h, r) for h, r in self.hosts.items()]
        reading.complete = bool(closed) and all(closed)
        if "fail" in self.verdicts:
            reading.verdict = "fail"
        elif self.verdicts and all(v == "pass" for v in self.verdicts):
            reading.verdict = "pass"
        if datas:
            reading.data = dict(datas[-1])
            if len(datas) > 1:
                reading.data = {"hosts": datas}
        return reading


def _children(value: Any) -> dict[str, dict[str, Any]]:
    """Return the children of a node of DCGM's JSON that are nodes themselves."""
    children = value.get("children") if isinstance(value, dict) else None
    if not isinstance(children, dict):
        return {}
    return {str(k): v for k, v in list(children.items())[:MOST_ENTITIES] if isinstance(v, dict)}


def _texts(value: Any, depth: int = 0) -> list[str]:
    """Collect the error texts below a system's node, from values, children and `overflow` lists."""
    out: list[str] = []
    if depth > 8:
        return out
    if isinstance(value, str):
        return [value] if depth else []
    if isinstance(value, list):
        for item in value[:100]:
            out += _texts(item, depth + 1)
    elif isinstance(value, dict):
        own = value.get("value")
        if isinstance(own, str) and own.lower() not in _GRADES and own:
            out.append(own)
        for key in ("overflow", "children"):
            part = value.get(key)
            if isinstance(part, dict):
                for name, item in list(part.items())[:100]:
                    if isinstance(item, dict) and not item.get("children") and name.lower() not in ("errors", "value"):
                        out.append(name if len(name) > 20 else "")
                    out += _texts(item, depth + 1)
            elif part is not None:
                out += _texts(part, depth + 1)
    return [t for t in out if t]


class _Report:
    """One health report of one host while its rows come in."""

    def __init__(self, enabled: bool | None) -> None:
        self.enabled = enabled
        self.failed = False
        self.title = 0
        self.open = False
        self.closed = False
        self.width = 0
        self.overall: str | None = None
        self.overall_line = 0
        self.overall_text = ""
        self.entities: list[dict[str, Any]] = []
        self.kind = "GPU"
        self.system: dict[str, Any] | None = None
        self.pieces: list[str] = []

    def entity(self, kind: str, ident: str, health: str, line: int) -> dict[str, Any]:
        """Begin the part of one entity."""
        self.end_system()
        place: dict[str, Any] = {"entity": kind, "id": ident, "health": health, "systems": [], "line": line}
        if len(self.entities) < MOST_ENTITIES:
            self.entities.append(place)
        return place

    def end_system(self) -> None:
        """Finish the wrapped text of the current system."""
        if self.system is not None:
            joined = "".join(p.ljust(WRAP) for p in self.pieces[:-1]) + (self.pieces[-1] if self.pieces else "")
            self.system["text"] = re.sub(r"\s+", " ", joined).strip()[:4000]
        self.system, self.pieces = None, []

    def row(self, line: int, body: str) -> None:
        """Take one row `| left | right |` of the box."""
        cells = body.strip().strip("|").split("|", 1)
        left = cells[0].strip()
        right = cells[1] if len(cells) > 1 else ""
        text = right[1:].rstrip() if right.startswith(" ") else right.rstrip()
        name = left.removeprefix("->").strip()
        if not left:
            if self.system is not None and text and len(self.pieces) < 200:
                self.pieces.append(text)
            return
        value = text.strip()
        if name.isdigit() or re.match(r"(?:GPU|Switch|NvSwitch|CPU)\s*(?:ID\s*)?:?\s*\d+$", name):
            self.entity(self.kind, re.sub(r"\D", "", name), value.split(" ")[0], line)
        elif _ENTITY.match(name):
            self.end_system()
            self.kind = name
        elif name == "Errors":
            self.end_system()
        elif m := _SYSTEM.match(name):
            self.end_system()
            if not self.entities:
                self.entity(self.kind, "", "", line)
            self.system = {"system": m[1], "health": value.split(" ")[0], "text": "", "line": line}
            if len(self.entities[-1]["systems"]) < 100:
                self.entities[-1]["systems"].append(self.system)
