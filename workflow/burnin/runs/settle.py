# SPDX-License-Identifier: Apache-2.0
"""Results that need no job: a run that is over already, one that must not start, one whose job died."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from burnin import storage
from burnin.errors import EvidenceError
from burnin.runs import attempts, results
from burnin.runs.spec import RunSpec, load_spec


@dataclass(frozen=True)
class Death:
    """How a job died: Slurm's state, the nodes that were lost with it, and what was seen."""

    state: str
    lost: list[str]
    text: str
    job_id: str | None = None


def result_is_valid(result: Path) -> bool:
    """Tell whether the result file is there, follows its schema, and belongs to the run as it is planned now."""
    try:
        document = storage.read_json(result, "result")
        return bool(document["spec"] == storage.digest(load_spec(result).identity()))
    except (OSError, EvidenceError):
        return False


def settle_without_job(result: Path) -> bool:
    """Write the result if no job is needed. Return True if the result file is there afterwards.

    No job is needed if the newest attempt is over (only its result was lost), or if an earlier workload of the same
    group in this heat already failed: a group with a known fault would only burn hours.
    """
    spec = load_spec(result)
    if result_is_valid(result):
        return True
    number = attempts.current(spec)
    if number is not None:
        kept = attempts.folder(spec, number) / "result.json"
        if kept.exists():
            # a result was decided once, casualty or not: it is copied, never decided anew
            results.publish(spec, storage.read_json(kept, "result"))
            return True
        if attempts.is_over(attempts.records(spec, number) or []):
            results.publish(spec, results.collect(spec, number))
            return True
    if spec.step == "resume" and spec.ref.phase == "result":
        first = storage.read_json(spec.run_dir / "first.json", "result")
        if first["state"] != "complete":
            # the test ended with its first job: what that one showed is the result, evidence and all
            results.publish(
                spec, {**first, "phase": "result", "attempt": None, "spec": storage.digest(spec.identity())}
            )
            return True
    blocker = _blocker(spec)
    if blocker:
        results.publish(spec, results.empty(spec, "skipped", blocker))
        return True
    return False


def _blocker(spec: RunSpec) -> str:
    """Return why the run must not start, or an empty text."""
    if spec.step == "resume":
        return ""
    plan = storage.read_json(spec.ref.heat_dir / "plan.json", "plan")
    for workload in plan["groups"][spec.group]["workloads"]:
        if workload == spec.workload:
            return ""
        earlier = spec.ref.heat_dir / workload / spec.group / "result.json"
        if earlier.exists():
            document = storage.read_json(earlier, "result")
            if document["state"] != "complete":
                return f"{workload} of this group did not pass before: {document['reason']}"[:500]
    return ""


def record_casualty(result: Path, death: Death) -> None:
    """Write the result of a run whose job died, with everything that it left behind.

    If the run had finished before its job died, its own result stands: the death came after the evidence.
    """
    spec = load_spec(result)
    if settle_without_job(result):
        return
    number = attempts.current(spec)
    casualty: dict[str, Any] = asdict(death)
    if number is None:
        document = results.empty(spec, "casualty", death.text or death.state, casualty)
    else:
        _take_in(spec, number)
        document = results.collect(spec, number, casualty)
    results.publish(spec, document)


def _take_in(spec: RunSpec, number: int) -> None:
    """Write down the look at the nodes that the death of the job cut off: it may say why."""
    from burnin.runs import journal, probing
    from burnin.runs.news import Known

    folder = attempts.folder(spec, number)
    book = journal.Journal(folder / "journal.jsonl")
    try:
        probing.take_in(spec, folder, book, Known(book.records), alone=len(spec.nodes))
    finally:
        book.close()
