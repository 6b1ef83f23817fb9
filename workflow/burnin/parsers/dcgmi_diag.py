# SPDX-License-Identifier: Apache-2.0
"""`dcgmi diag -r N`: the text table and the JSON of `-j`, DCGM 2, 3 and 4.

"Successfully ran diagnostic for group." is printed whatever the result, and after a failure later tests become Skip, so
only the results themselves count (dcgmi Diag.cpp, nvvs, tags v2.1.4 to v4.6.0).

Verdict:
- `fail`: any test Fail. A failure that is a setting and not a part (persistence mode, error id 29, environment
  variables, a busy GPU) is a fail too, and its signal has `detail["config"]`.
- `unknown`: a test other than the EUD's is Skip (the EUD plug-in is often not installed), a test only warned, a Pass
  with a warning (it could not allocate memory, say), no test at all, an unknown word, no closing rule, no valid JSON.
- `pass`: every listed test Pass, EUD Pass or Skip.

data: `version` (DCGM), `driver`, `tests`: [{"category", "name", "result" (worst), "gpus": {index: result}, "warnings":
[...], "info": [...], "line"}], `gpu_count` (devices listed, or else GPUs with results in a whole JSON), `device_ids`, `error`
(the diagnostic could not run).
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, damaged_key, integer, quote, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

JSON_LIMIT = 16 << 20
MOST_TESTS = 2000
#: Width at which DCGM 2 and 3 wrap warnings in the right cell.
WRAP = 45
#: Longest row of a table that is looked at; DCGM's have 78 characters.
WIDEST = 1000

_TITLE = re.compile(r"\|\s*(?:Diagnostic|name)\s*\|\s*(?:Result|result)\s*\|")
_SECTION = re.compile(r"[|+]-----\s+(.+?)\s+-+[+|]")
_RULE = re.compile(r"\+-{10,}\+-{10,}\+\s*$")
_ROW = re.compile(r"\|(.*?)\|(.*)\|\s*$")
_RESULT = re.compile(r"(?i)(pass|fail|skip|warn(?:ing)?|not run)\b(?:\s*-\s*(all|GPUs?:?\s*[\d, ]+))?\s*$")
_GPU_RESULT = re.compile(r"(?i)((?:GPU|CPU|NvSwitch|Switch)\s?\d+):\s*(pass|fail|skip|warn(?:ing)?|not run)\s*$")
_NOT_TESTS = re.compile(r"(?i)metadata")
_EUD = re.compile(r"(?i)\beud\b")
_CANNOT = re.compile(
    r"(?i)(?:could not|cannot|unable to|failed to|not enough memory to) allocat|was skipped|skipping|could not be run|"
    r"unable to run|not supported"
)
_CONFIG = re.compile(
    r"(?i)persistence mode|environment variable|CUDA_VISIBLE_DEVICES|graphics process|permission|in use by|being used|"
    r"blacklist|denylist|MIG (?:is|mode)|fabric ?manager.*not running"
)
_CONFIG_ERRORS = frozenset({29})
_KEYS = frozenset(
    {
        "DCGM Diagnostic", "DCGM GPU Diagnostic", "test_categories", "category", "tests", "name", "results", "status",
        "warnings", "warning", "error_id", "info", "gpu_id", "gpu_ids", "entity_id", "entity_group", "test_summary",
        "runtime_error", "iterations", "Overall Result", "result", "metadata", "version", "error",
    }
)  # fmt: skip
#: What a banner after the object does not have.
_LEFT_OVER = re.compile(r'[{}\[\]]|"\w+":')
_RUNTIME = re.compile(
    r"(?i)^\s*(?:error:|unable to (?:connect|complete)|could not run|the (?:NVIDIA Validation Suite|nvvs)|"
    r"runtime error|diagnostic could not)"
)
_BLANKS = {
    "2147483632": "blank", "2147483633": "not found", "2147483634": "not supported", "2147483635": "no permission",
    "<<<NULL>>>": "blank", "<<<NOT_FOUND>>>": "not found", "<<<NOT_SUPPORTED>>>": "not supported",
    "<<<NOT_PERM>>>": "no permission", "9223372036854775792": "blank", "9223372036854775793": "not found",
    "9223372036854775794": "not supported", "9223372036854775795": "no permission", "140737488355328": "blank",
    "140737488355329": "not found", "140737488355330": "not supported", "140737488355331": "no permission",
}  # fmt: skip
_BLANK = re.compile("|".join(re.escape(b) for b in sorted(_BLANKS, key=len, reverse=True)))
_WORSE = {"fail": 0, "warn": 1, "unknown": 2, "not run": 2, "skip": 3, "pass": 4}


def unblank(text: str) -> str:
    """Replace DCGM's sentinels for values it did not have by words; read as numbers they would be huge."""
    return _BLANK.sub(lambda m: f"({_BLANKS[m[0]]})", text)


def _result(word: str) -> str:
    word = word.strip().lower()
    word = "warn" if word.startswith("warn") else word
    return word if word in _WORSE else "unknown"


class _Test:
    def __init__(self, category: str, name: str, line: int, text: str) -> None:
        self.category = category
        self.name = name
        self.line = line
        self.text = text
        self.results: list[str] = []
        self.gpus: dict[str, str] = {}
        self.gpu_lines: dict[str, int] = {}
        self.warnings: list[str] = []
        self.info: list[str] = []
        self.error_ids: list[int] = []
        self.lumped = False

    def add(self, result: str, gpus: list[str], line: int) -> None:
        self.results.append(result)
        for gpu in gpus[:256]:
            self.gpus[gpu] = result
            self.gpu_lines[gpu] = line

    def worst(self) -> str:
        return min([*self.results, *self.gpus.values()] or ["unknown"], key=lambda r: _WORSE.get(r, 2))


class Parser(HostedParser):
    """Reader of dcgmi diag. Options: `whole`, `host`."""

    tool: ClassVar[str] = "dcgmi-diag"
    program: ClassVar[str] = "dcgmi"
    line_limit = JSON_LIMIT

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.json: list[str] | None = None
        self.json_size = 0
        self.json_start = 0
        self.tests: list[_Test] = []
        self.category = ""
        self.recognised = False
        self.table = False
        self.width = 0
        self.closed = False
        self.wrapping: list[str] | None = None
        self.prefix = ""
        self.facts: dict[str, Any] = {}
        self.error: str | None = None
        self.device_ids: list[str] | None = None
        self.ids_open = False
        self.ids_line = 0
        self.overall: str | None = None
        self.where: Prefix | None = None

    # ------------------------------------------------------------------------------------------------------- text

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
        if self.table and len(stripped) > WIDEST:
            self.note(f"line {number} is longer than any row of the table: it was not read", damage=True)
            return []
        if stripped.startswith("{") and not self.table:
            self.json, self.json_start, self.json_size = [body], number, len(body)
            self.where = prefix
            return []
        if "Successfully ran diagnostic for group" in stripped:
            self.recognised = True
            return []
        if _TITLE.match(stripped):
            self.recognised = self.table = True
            self.closed = False
            self.width = len(stripped)
            self.where = prefix
            return []
        if not self.table:
            if _RUNTIME.match(stripped) and ("diag" in stripped.lower() or "host engine" in stripped.lower()):
                # The host engine's absence is said in the same words to every dcgmi command.
                self.recognised |= "diag" in stripped.lower()
                self.error = self.error or stripped[:300]
                self.note(f"line {number}: the diagnostic could not run: {stripped[:160]}")
            return []
        if len(stripped) < self.width and stripped[0] in "|+":
            self.note(f"line {number}: a row of the table is shorter than the table: there is a hole", damage=True)
        if _RULE.match(stripped):
            self.closed = True
            self._end_cell()
            return []
        if m := _SECTION.match(stripped):
            self.closed = False
            self._end_cell()
            self.category = m[1]
            return []
        if m := _ROW.match(stripped):
            self.closed = False
            self._row(number, body, m[1].strip(), m[2])
        return []

    def _row(self, number: int, body: str, left: str, right: str) -> None:
        cell = right[1:].rstrip() if right.startswith(" ") else right.rstrip()
        value = cell.strip()
        if (
            _NOT_TESTS.search(self.category)
            or left in ("DCGM Version", "Driver Version Detected")
            or (left.startswith("GPU Device IDs"))
        ):
            self._metadata(number, left, value)
            return
        if left.lower() in ("warning", "info", "error"):
            self._end_cell()
            if self.tests and len(self.tests[-1].warnings) < 100:
                self.wrapping = [cell]
                (self.tests[-1].info if left.lower() == "info" else self.tests[-1].warnings).append("")
                self._wrap_into = self.tests[-1].info if left.lower() == "info" else self.tests[-1].warnings
            return
        if left:
            self._end_cell()
            if len(self.tests) >= MOST_TESTS:
                self.note(f"more than {MOST_TESTS} tests: the rest was not read", damage=True)
                return
            test = _Test(self.category, left, number, body)
            self.tests.append(test)
            self._cell(test, number, value)
            return
        if not self.tests:
            return
        test = self.tests[-1]
        if _GPU_RESULT.match(value) or _RESULT.match(value):
            self._end_cell()
            self._cell(test, number, value)
        elif m := re.match(r"(?i)(warning|info|error):\s*", value):
            self._end_cell()
            self.wrapping, self.prefix = [value], m[0]
            self._wrap_into = test.info if m[1].lower() == "info" else test.warnings
            self._wrap_into.append("")
        elif self.wrapping is not None and len(self.wrapping) < 200:
            self.wrapping.append(cell)
        elif value:
            self.wrapping = [cell]
            self._wrap_into = test.warnings
            self._wrap_into.append("")

    _wrap_into: list[str]

    def _end_cell(self) -> None:
        if self.wrapping is not None:
            # A full row was cut in the middle of a word or blank; a shorter one lost the blank at its end.
            pieces = [p if len(p) >= WRAP else p + " " for p in self.wrapping]
            if self.prefix:
                pieces[0] = pieces[0][len(self.prefix) :]
            self._wrap_into[-1] = unblank(re.sub(r"\s+", " ", "".join(pieces)).strip())[:2000]
            self.wrapping, self.prefix = None, ""

    def _cell(self, test: _Test, number: int, value: str) -> None:
        if m := _GPU_RESULT.match(value):
            digits = re.sub(r"\D", "", m[1])
            test.add(_result(m[2]), [digits if m[1].upper().startswith("GPU") else m[1].replace(" ", "")], number)
        elif m := _RESULT.match(value):
            listed = re.findall(r"\d+", m[2]) if m[2] and m[2].lower() != "all" else []
            test.add(_result(m[1]), listed, number)
        else:
            test.add("unknown", [], number)
            self.note(f"line {number}: the result '{value[:60]}' of {test.name[:40]} is not known")

    def _metadata(self, number: int, left: str, value: str) -> None:
        if left == "DCGM Version":
            self.facts["version"] = value
        elif left.startswith("Driver Version"):
            self.facts["driver"] = value
        if left.startswith("GPU Device IDs"):
            self.device_ids, self.ids_open, self.ids_line = [], True, number
        elif left:
            self.ids_open = False
        if self.ids_open and self.device_ids is not None and len(self.device_ids) < 1024:
            # A long list is wrapped, even within a number: the pieces are joined before they are split.
            self.facts["ids"] = self.facts.get("ids", "") + value

    # ------------------------------------------------------------------------------------------------------- JSON

    def _read_json(self) -> None:
        lines = self.json or []
        text = "\n".join(lines)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            # A banner may follow the object, or its end is missing.
            try:
                document, end = json.JSONDecoder().raw_decode(text)
                if not isinstance(document, dict) or _LEFT_OVER.search(text, end):
                    raise ValueError("not an object, or not all of it")
            except (ValueError, RecursionError):
                self.recognised = bool(re.search(r'"DCGM (?:GPU )?Diagnostic"|"test_categories"', text))
                self.note("the JSON is cut or damaged", damage=True)
                for m in re.finditer(r'"(?:status|result)"\s*:\s*"Fail', text):
                    line = self.json_start + text.count("\n", 0, m.start())
                    test = _Test("", "(damaged JSON)", line, m[0])
                    test.add("fail", [], line)
                    self.tests.append(test)
                    break
                return
        if not isinstance(document, dict):
            return
        if (key := damaged_key(document, _KEYS)) is not None:
            self.note(f"the key '{key}' is no key of dcgmi diag: the JSON is damaged", damage=True)
        if isinstance(document.get("iterations"), list):
            self.overall = str(document.get("Overall Result", ""))
            for part in document["iterations"][:1000]:
                if isinstance(part, dict):
                    self._document(part.get("result", part) if isinstance(part.get("result"), dict) else part, lines)
            self.closed = self.recognised
            return
        self._document(document, lines)
        self.closed = self.recognised

    def _document(self, document: dict[str, Any], lines: list[str]) -> None:
        root = next((document[k] for k in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if k in document), None)
        if not isinstance(root, dict):
            if "test_categories" not in document:
                return
            root = document
        self.recognised = True
        meta = document.get("metadata") or root.get("metadata") or {}
        if isinstance(meta, dict):
            for key, short in (
                ("version", "version"),
                ("DCGM Version", "version"),
                ("Driver Version Detected", "driver"),
            ):
                if meta.get(key):
                    self.facts[short] = str(meta[key])
            names = ("GPU Device IDs Detected", "GPU Device IDs")
            ids = next((of[name] for of in (meta, root) for name in names if of.get(name)), None)
            if isinstance(ids, list):
                self.device_ids = [str(i) for i in ids[:1024]]
            elif isinstance(ids, str):
                self.device_ids = [i.strip() for i in ids.split(",") if i.strip()][:1024]
        for key, short in (("version", "version"), ("Driver Version Detected", "driver")):
            if not self.facts.get(short) and root.get(key):
                self.facts[short] = str(root[key])
        for group in document.get("entity_groups") or []:
            if (
                isinstance(group, dict)
                and group.get("entity_group") == "GPU"
                and isinstance(group.get("entities"), list)
            ):
                self.device_ids = [str(e.get("device_id", "")) for e in group["entities"][:1024] if isinstance(e, dict)]
        for key in ("runtime_error", "error"):
            if isinstance(root.get(key), str) and root[key]:
                self.error = root[key][:300]
                self.note(f"the diagnostic could not run: {root[key][:160]}")
        cursor = 0
        categories = root.get("test_categories")
        for category in categories if isinstance(categories, list) else []:
            if not isinstance(category, dict):
                continue
            tests = category.get("tests")
            for entry in tests if isinstance(tests, list) else []:
                if isinstance(entry, dict) and len(self.tests) < MOST_TESTS:
                    cursor = self._json_test(str(category.get("category", "")), entry, lines, cursor)

    def _json_test(self, category: str, entry: dict[str, Any], lines: list[str], cursor: int) -> int:
        name = str(entry.get("name", ""))
        needle = json.dumps(name)
        at = next((i for i in range(cursor, len(lines)) if needle in lines[i]), cursor)
        test = _Test(category, name, self.json_start + at, lines[at].strip() if at < len(lines) else name)
        self.tests.append(test)
        results = entry.get("results")
        for result in results if isinstance(results, list) else []:
            if not isinstance(result, dict):
                continue
            gpus: list[str] = []
            if "entity_id" in result:
                gpus = [str(result["entity_id"])] if result.get("entity_group", "GPU") == "GPU" else []
            elif "gpu_id" in result:
                gpus = [str(result["gpu_id"])]
            elif "gpu_ids" in result:
                gpus = [g.strip() for g in str(result["gpu_ids"]).split(",") if g.strip()]
                test.lumped = len(gpus) > 1
            word = _result(str(result.get("status", result.get("result", ""))))
            test.add(word, gpus if category.lower() != "deployment" or "entity_id" in result else [], test.line)
            self._json_notes(test, result)
        summary = entry.get("test_summary")
        if isinstance(summary, dict):
            test.add(_result(str(summary.get("status", ""))), [], test.line)
            self._json_notes(test, summary)
        return at + 1 if at + 1 < len(lines) else cursor

    @staticmethod
    def _json_notes(test: _Test, result: dict[str, Any]) -> None:
        warnings = result.get("warnings")
        for item in warnings if isinstance(warnings, list) else [warnings] if warnings else []:
            text = item
            if isinstance(item, dict):
                text = item.get("warning", item.get("warnings"))
                ident = integer(str(item.get("error_id", "")))
                if ident is not None:
                    test.error_ids.append(ident)
            if text and len(test.warnings) < 100:
                said = unblank(str(text))[:2000]
                if said not in test.warnings:
                    test.warnings.append(said)
        info = result.get("info")
        for item in info if isinstance(info, list) else [info] if info else []:
            if len(test.info) < 100:
                test.info.append(unblank(str(item))[:2000])

    # ----------------------------------------------------------------------------------------------------- result

    def _judge(self, test: _Test, pre: Prefix) -> Verdict:
        result = test.worst()
        text = " ".join(test.warnings)
        config = bool(_CONFIG_ERRORS.intersection(test.error_ids)) or bool(_CONFIG.search(test.name + " " + text))
        detail: dict[str, Any] = {"test": test.name, "category": test.category, "result": result}
        if config and result in ("fail", "warn"):
            detail["config"] = True
        if test.warnings:
            detail["warnings"] = [quote(w) for w in test.warnings[:10]]
        bad = {g: r for g, r in test.gpus.items() if r in ("fail", "warn")}
        if result in ("fail", "warn"):
            said = set(re.findall(r"\bGPU (\d{1,3})\b", text))
            if test.lumped and said and said < set(bad):
                # DCGM 2 gives one result for all GPUs; its warning says which one failed.
                bad = {g: r for g, r in bad.items() if g in said}
            named = re.findall(r"\bGPU (\d{1,3})\b", text) if not bad else []
            for gpu in list(bad) or sorted(set(named)) or [""]:
                index = int(gpu) if gpu.isdigit() else None
                line = test.gpu_lines.get(gpu, test.line)
                self.found.add(signal("dcgm_diag", line, test.text, pre, gpu=index, detail=detail))
            return "fail" if result == "fail" else "unknown"
        if result == "pass":
            if not test.warnings:
                return "pass"
            # Pass beside a warning: the test did not do its work (memory it could not allocate, a part it skipped), or
            # the warning belongs to a row that is missing here. Neither is a pass.
            cannot = any(_CANNOT.search(w) for w in test.warnings)
            self.note(f"line {test.line}: {test.name} says Pass and warns: {quote(test.warnings[0])[:160]}")
            detail["result"] = "not done" if cannot else "pass with warning"
            self.found.add(signal("dcgm_diag", test.line, test.text, pre, detail=detail))
            return "unknown"
        if result == "skip" and _EUD.search(test.name):
            return "pass"
        self.note(f"line {test.line}: {test.name} was not done ({result})")
        return "unknown"

    def read(self) -> Reading:
        """Return the reading of the diagnostic."""
        if self.json is not None:
            self._read_json()
        self._end_cell()
        reading = Reading(self.tool, recognised=self.recognised, complete=self.closed and bool(self.tests))
        pre = self.where or Prefix(self.host)
        verdicts = [self._judge(t, pre) for t in self.tests]
        most = max((len(t.gpus) for t in self.tests), default=0)
        if most > 1 and self.device_ids is not None:
            most = max(most, len(self.device_ids))
        for test in self.tests:
            if 0 < len(test.gpus) < most and test.worst() != "skip":
                reading.problems.append(f"line {test.line}: {test.name} has {len(test.gpus)} GPUs' results, not {most}")
                verdicts.append("unknown")
        if self.overall is not None and self.overall.lower() == "fail":
            verdicts.append("fail")
        only_skipped = bool(self.tests) and all(t.worst() == "skip" for t in self.tests)
        if self.recognised and (not self.tests or only_skipped):
            reading.problems.append("no test was done: that is not a pass")
            verdicts.append("unknown")
        if self.error:
            verdicts.append("unknown")
        reading.verdict = worst(verdicts)
        if self.recognised and self.tests and not self.closed:
            reading.problems.append("the table is not closed: the text is cut")
        if "ids" in self.facts:
            self.device_ids = [i.strip() for i in str(self.facts.pop("ids")).split(",") if i.strip()][:1024]
        data: dict[str, Any] = {"version": None, "driver": None, **self.facts}
        data["tests"] = [
            {
                "category": t.category,
                "name": t.name,
                "result": t.worst(),
                "gpus": t.gpus,
                "warnings": t.warnings,
                "info": t.info,
                "line": t.line,
            }
            for t in self.tests
        ]
        if self.device_ids is not None:
            count = len(self.device_ids)
            data["gpu_count"], data["device_ids"] = count, self.device_ids
            line = self.ids_line or self.json_start or 1
            self.found.add(signal("gpu_count", line, f"{count} GPU device ids detected", pre, value=float(count)))
        elif (
            self.json is not None
            and self.closed
            and (counted := {g for t in self.tests for g in t.gpus if g.isdigit()})
        ):
            # DCGM 2 lists no devices; the results of a whole JSON name every GPU that was tested
            data["gpu_count"] = len(counted)
        if self.error:
            data["error"] = self.error
        reading.data = data if self.recognised else {}
        return reading
