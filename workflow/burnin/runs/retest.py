# SPDX-License-Identifier: Apache-2.0
"""The retest of a repaired node: its diagnostic, run from the head node while the node is still drained."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from burnin import config as configuration
from burnin import parsers
from burnin.runs import attempts, results, settle
from burnin.runs.journal import Journal
from burnin.runs.spec import load_spec


def run(result: Path) -> None:
    """Run the diagnostic once and write the result, unless it is there already.

    A diagnostic that was interrupted has proven nothing and is run again as a new attempt; what it said is kept.
    """
    if settle.settle_without_job(result):
        return
    spec = load_spec(result)
    section = spec.config.document["retest"]
    number = (attempts.numbers(spec) or [-1])[-1] + 1
    folder = attempts.folder(spec, number)
    folder.mkdir(parents=True)
    book = Journal(folder / "journal.jsonl")
    book.append({"type": "header", "what": spec.identity(), "time": time.time()})
    (node,) = spec.nodes
    command = configuration.render(section["command"], {"node": node})
    book.append(
        {
            "type": "start",
            "seq": 0,
            "iteration": 0,
            "command": "diag",
            "output": "out-00000.log",
            "argv": command,
            "time": time.time(),
        }
    )
    status, ended = _diagnose(
        command, folder / "out-00000.log", float(section["timeout_seconds"]), spec.environment(os.environ)
    )
    reading = parsers.read_file("dcgmi-diag", folder / "out-00000.log")
    gpus = reading.data.get("gpu_count")
    problems = list(reading.problems)
    verdict = reading.verdict
    if verdict == "pass" and spec.gpus_per_node and gpus != spec.gpus_per_node:
        verdict = "unknown"
        problems.insert(0, f"the diagnostic saw {gpus} GPUs, expected {spec.gpus_per_node}")
    if verdict == "pass" and ended != "itself":
        verdict = "unknown"
    if verdict == "pass" and status not in (0, None):
        verdict = "unknown"
        problems.insert(0, f"the diagnostic says pass, but ended with status {status}")
    summary = {
        "verdict": verdict,
        "complete": reading.complete,
        "value": None,
        "value_line": None,
        "unit": None,
        "problems": problems[:20],
        "signals": [{**s.to_dict(), "host": node} for s in reading.signals[:200]],
        "facts": {
            "gpus": gpus,
            **({} if reading.complete else {"lines": results.count_lines(folder / "out-00000.log")}),
        },
    }
    book.append({"type": "end", "seq": 0, "time": time.time(), "exit": status, "ended": ended, "summary": summary})
    book.append({"type": "final", "time": time.time(), "facts": {"host": os.uname().nodename}})
    book.close()
    results.publish(spec, results.collect(spec, number))


def _diagnose(command: list[str], output: Path, timeout: float, environment: dict[str, str]) -> tuple[int | None, str]:
    """Run the diagnostic; return its exit status and whether it ended by itself."""
    with output.open("wb") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, "hang"
        except OSError as error:
            out.write(f"burnin: {command[0]} could not be started: {error.strerror}\n".encode())
            return 127, "itself"
    return done.returncode, "itself"
