# SPDX-License-Identifier: Apache-2.0
"""sacct: `-P`, `-p` (any delimiter), the default columns, and `--json` of Slurm 21.08 to 25.

A job has many rows: `5102` (the allocation), `5102.batch`, `5102.extern` (nearly always COMPLETED: never judged),
`5102.0` (steps). Free text may hold the delimiter and newlines: records are put together by counting delimiters.

Verdict, over allocations and named steps: `fail` for FAILED, NODE_FAIL, OUT_OF_MEMORY, BOOT_FAIL, or COMPLETED with an
exit status other than 0:0; `unknown` for what did not run to its own end (RUNNING, PENDING, CANCELLED, TIMEOUT,
DEADLINE, PREEMPTED, REQUEUED …: a time limit is the planned end of some burn-in runs), an unknown word, no allocation
row, or a text whose end nothing proves (only JSON has one: see `whole`); `pass` if all COMPLETED.

data: `jobs`: [{"job_id", "step" (null for the allocation), "name", "state" (word), "state_text", "exit_code",
"signal", "nodes", "start", "end", "elapsed", "submit", "line"}]; unset values are null.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from burnin.parsers.common import Prefix, signal
from burnin.parsers.hosted import HostedParser, worst
from burnin.parsers.reading import Reading, Signal, Verdict

JSON_LIMIT = 64 << 20
MOST_ROWS = 50_000

STATES = frozenset(
    re.findall(
        r"\w+",
        """BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING
        PREEMPTED RUNNING RESIZING REQUEUED REVOKED SUSPENDED TIMEOUT REQUEUE_HOLD SPECIAL_EXIT STAGE_OUT SIGNALING
        STOPPED LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE EXPEDITING UPDATE_DB""",
    )
)
BAD = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})

_JOB_ID = re.compile(r"(\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?)(?:\.(\w+))?\+?$")
_EXIT = re.compile(r"(\d{1,4}):(\d{1,4})$")
_NAMES = {
    "jobid": "id", "jobidraw": "raw_id", "jobname": "name", "state": "state", "exitcode": "exit", "nodelist": "nodes",
    "start": "start", "end": "end", "elapsed": "elapsed", "submit": "submit", "partition": "partition",
    "nnodes": "node_count", "comment": "comment", "reason": "reason", "derivedexitcode": "derived_exit",
}  # fmt: skip
_UNSET = frozenset({"", "Unknown", "None", "None assigned", "(null)", "N/A"})


def state_word(text: str) -> str:
    """Return the state of `CANCELLED by 1000`, `CANCELLED+` or `COMPLETED` as one word."""
    word = text.split()[0] if text.split() else ""
    word = word.rstrip("+")
    if word in STATES or not word:
        return word
    # Columns cut long words: OUT_OF_ME+ is not in the list but begins exactly one that is.
    fits = [s for s in STATES if s.startswith(word)]
    return fits[0] if text.split()[0].endswith("+") and len(fits) == 1 else word


class Parser(HostedParser):
    """Reader of sacct. Options: `whole`, `host`, `delimiter` (found by itself if it is one character)."""

    tool: ClassVar[str] = "sacct"
    program: ClassVar[str] = "sacct"
    line_limit = JSON_LIMIT

    def __init__(self, *, delimiter: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.delimiter = delimiter
        self.header: list[str] | None = None
        self.trailing = False
        self.columns: list[tuple[int, int]] | None = None
        self.pending_header: str | None = None
        self.part: str | None = None
        self.part_line = 0
        self.json: list[str] | None = None
        self.json_size = 0
        self.json_start = 0
        self.jobs: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.allocations = 0
        self.recognised = False

    def feed(self, number: int, line: str) -> list[Signal]:
        """Take one line; sacct's own first column looks like a task prefix, so nothing is peeled."""
        if line.startswith("#@burnin "):
            self.framed = True
            return []
        if "\ufffd" in line:
            self.note(f"line {number} has bytes that are not UTF-8 (a comment or a name may)")
        return self.line(number, line, Prefix(self.host))

    def line(self, number: int, body: str, prefix: Prefix) -> list[Signal]:
        """Take one line."""
        if self.json is not None:
            self.json_size += len(body)
            if self.json_size <= JSON_LIMIT:
                self.json.append(body)
            return []
        if self.header is None:
            return self._before_header(number, body)
        if self.columns is not None:
            return self._column_row(number, body)
        return self._delimited(number, body)

    def _before_header(self, number: int, body: str) -> list[Signal]:
        stripped = body.strip()
        if stripped.startswith("{"):
            self.json, self.json_start, self.json_size = [body], number, len(body)
            return []
        if self.pending_header is not None and re.match(r"\s*-{3,}( +-{3,})+\s*$", body):
            spans = [(m.start(), m.end()) for m in re.finditer(r"-+", body)]
            names = [self.pending_header[a:b].strip() for a, b in spans]
            self.pending_header = None
            if self._known(names):
                self.header, self.columns, self.recognised = [n.lower() for n in names], spans, True
            return []
        self.pending_header = body if "JobID" in body and "State" in body else None
        if not (stripped.startswith("JobID") or "|JobID" in stripped or (self.delimiter and "JobID" in stripped)):
            return []
        delimiter = self.delimiter
        if delimiter is None:
            m = re.match(r"\w+([^\w\s]+)\w", stripped)
            delimiter = m[1] if m else None
        if delimiter is None:
            return []
        names = stripped.split(delimiter)
        if len(names) > 1 and self._known(names):
            self.trailing = names[-1] == ""
            self.header = [n.strip().lower() for n in (names[:-1] if self.trailing else names)]
            self.delimiter, self.recognised = delimiter, True
        return []

    @staticmethod
    def _known(names: list[str]) -> bool:
        lower = {n.strip().lower() for n in names}
        return bool({"jobid", "jobidraw"} & lower) and "state" in lower

    def _column_row(self, number: int, body: str) -> list[Signal]:
        if not body.strip():
            return []
        cells = [body[a:b].strip() for a, b in self.columns or []]
        return self._row(number, body, cells)

    def _delimited(self, number: int, body: str) -> list[Signal]:
        want = len(self.header or []) - 1 + self.trailing
        delimiter = self.delimiter or "|"
        if self.part is None:
            if not body.strip():
                return []
            self.part, self.part_line = body, number
        elif len(self.part) < 200_000:
            self.part += "\n" + body
        else:
            self.note(f"line {self.part_line}: a record does not end", damage=True)
            self.part = None
            return []
        have = self.part.count(delimiter)
        if have < want:
            return []
        text, self.part = self.part, None
        cells = text.split(delimiter)
        if self.trailing and cells[-1].strip() == "":
            cells = cells[:-1]
        if len(cells) > len(self.header or []):
            # A delimiter inside free text: which cell is whose is not known beyond it, the first ones are.
            self.note(f"line {self.part_line}: a value contains the delimiter; request fewer fields")
            free = next(
                (i for i, n in enumerate(self.header or []) if n in ("comment", "admincomment", "jobname")), None
            )
            if free is not None:
                extra = len(cells) - len(self.header or [])
                cells[free : free + extra + 1] = [delimiter.join(cells[free : free + extra + 1])]
        return self._row(self.part_line, text.split("\n")[0], cells)

    def _row(self, number: int, body: str, cells: list[str]) -> list[Signal]:
        row = {_NAMES.get(n, n): c.strip() for n, c in zip(self.header or [], cells, strict=False)}
        ident = row.get("id") or row.get("raw_id") or ""
        m = _JOB_ID.match(ident)
        if not m:
            self.note(f"line {number}: '{ident[:40]}' is no job id: the row was not read")
            self.verdicts.append("unknown")
            return []
        code = _EXIT.match(row.get("exit", ""))
        return self._job(
            number, body, m[1], m[2], row.get("state", ""), int(code[1]) if code else None,
            int(code[2]) if code else None, row,
        )  # fmt: skip

    def _job(
        self,
        line: int,
        body: str,
        job: str,
        step: str | None,
        state_text: str,
        code: int | None,
        killed: int | None,
        row: dict[str, Any],
    ) -> list[Signal]:
        word = state_word(state_text)
        entry: dict[str, Any] = {
            "job_id": job, "step": step, "name": row.get("name"), "state": word or None, "state_text": state_text,
            "exit_code": code, "signal": killed,
        }  # fmt: skip
        for key in ("nodes", "start", "end", "elapsed", "submit", "partition", "reason"):
            if key in row:
                entry[key] = None if row[key] in _UNSET else row[key]
        entry["line"] = line
        if len(self.jobs) < MOST_ROWS:
            self.jobs.append(entry)
        else:
            self.note(f"more than {MOST_ROWS} rows: the rest was judged but is not listed")
        if step == "extern":
            return []
        self.allocations += step is None
        if word in BAD or (word == "COMPLETED" and (code or killed)):
            verdict: Verdict = "fail"
        elif word == "COMPLETED":
            verdict = "pass"
        elif word not in STATES:
            self.note(f"line {line}: the state '{state_text[:40]}' is not known")
            verdict = "unknown"
        else:
            verdict = "unknown"
        if step is None or verdict == "fail":
            self.verdicts.append(verdict)
        if step is None or word != "COMPLETED" or verdict == "fail":
            detail = {
                "job": job,
                "step": step,
                "state": word,
                "exit": code,
                "signal": killed,
                "nodes": entry.get("nodes"),
            }
            return self.emit(signal("job_state", line, body, detail={k: v for k, v in detail.items() if v is not None}))
        return []

    # ------------------------------------------------------------------------------------------------------- JSON

    def _read_json(self) -> None:
        text = "\n".join(self.json or [])
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            self.recognised = '"jobs"' in text and ('"slurm"' in text.lower() or '"job_id"' in text)
            self.note("the JSON is cut or damaged", damage=True)
            return
        jobs = document.get("jobs") if isinstance(document, dict) else None
        if not isinstance(jobs, list) or (
            "meta" not in document and not any(isinstance(j, dict) and "job_id" in j for j in jobs)
        ):
            return
        self.recognised = self.whole = True
        for error in document.get("errors") or []:
            said = error.get("description") or error.get("error") if isinstance(error, dict) else error
            self.note(f"sacct reports an error: {str(said)[:160]}")
            self.verdicts.append("unknown")
        for job in jobs[:MOST_ROWS]:
            if not isinstance(job, dict) or "job_id" not in job:
                continue
            ident = str(job["job_id"])
            line = self._line_of(f'"job_id": {ident}', f'"job_id":{ident}')
            times = job.get("time") if isinstance(job.get("time"), dict) else {}
            row: dict[str, Any] = {
                "name": job.get("name"),
                "nodes": job.get("nodes"),
                "partition": job.get("partition"),
            }
            for key in ("start", "end", "elapsed", "submission"):
                value = _set(times.get(key)) if isinstance(times, dict) else None
                row["submit" if key == "submission" else key] = value or None
            code, killed = _exit(job.get("exit_code"))
            self._job(line, f"job {ident}", ident, None, _state(job.get("state")), code, killed, row)
            steps = job.get("steps")
            for step in steps[:MOST_ROWS] if isinstance(steps, list) else []:
                if isinstance(step, dict):
                    info = step.get("step") if isinstance(step.get("step"), dict) else {}
                    name = str(info.get("id", "")) if isinstance(info, dict) else ""
                    m = _JOB_ID.match(name)
                    code, killed = _exit(step.get("exit_code"))
                    number = (m[2] or m[1]) if m else name.rpartition(".")[2] or "?"
                    self._job(line, f"job {ident} step {name}", ident, number, _state(step.get("state")), code, killed,
                              {"name": info.get("name") if isinstance(info, dict) else None})  # fmt: skip

    def _line_of(self, *needles: str) -> int:
        for i, line in enumerate(self.json or []):
            if any(n in line for n in needles):
                return self.json_start + i
        return self.json_start

    def read(self) -> Reading:
        """Return the reading of all rows."""
        if self.json is not None:
            self._read_json()
        if self.part is not None:
            self.note(f"line {self.part_line}: the last record is not whole: the text is cut", damage=True)
            self.verdicts.append("unknown")
        reading = Reading(self.tool, recognised=self.recognised, complete=self.whole)
        if self.recognised and not self.allocations:
            reading.problems.append("there is no allocation row: nothing to judge")
            self.verdicts.append("unknown")
        reading.verdict = worst(self.verdicts)
        if self.recognised and not self.whole and reading.verdict == "pass":
            reading.problems.append("this listing has no end mark: nothing proves that it is whole")
        reading.data = {"jobs": self.jobs}
        return reading


def _set(value: Any) -> Any:
    """Return Slurm's number object as a number; `set: false` means unset whatever its number says."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") and not value.get("infinite") else None
    return value


def _state(value: Any) -> str:
    current = value.get("current") if isinstance(value, dict) else value
    if isinstance(current, list):
        current = current[0] if current else ""
    return str(current or "")


def _exit(value: Any) -> tuple[int | None, int | None]:
    if not isinstance(value, dict):
        return None, None
    code = _set(value.get("return_code"))
    raw = value.get("signal")
    killed = _set(raw.get("id", raw.get("signal_id"))) if isinstance(raw, dict) else None
    return (code if isinstance(code, int) else None), (killed if isinstance(killed, int) else None)
