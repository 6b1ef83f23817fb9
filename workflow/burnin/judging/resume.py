# SPDX-License-Identifier: Apache-2.0
"""The resume test: the second job must go on where the first one's last checkpoint was. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BASE = {"part": "config", "unit": None, "rank": 75, "quote": ""}


def judge(result: Mapping[str, Any], loss_band: float) -> list[dict[str, Any]]:
    """Return what is wrong with a finished resume test (fields of a finding), empty if it passed.

    `result` is that of the second job; its facts hold those of the first under `first`. Checked: the first job was
    cancelled behind a complete checkpoint; the second says that it resumed, starts behind that checkpoint, counts
    samples on, and its loss lies within `loss_band` (fraction) of the first job's curve.
    """
    where = f"{result['step']}/heat{result['heat']}/{result['workload']}/{result['group']}"
    first = result["facts"].get("first") or {}
    cut = first.get("cancelled_after_step")
    done = [c for c in first.get("checkpoints") or [] if c.get("finalized")]
    if cut is None or not done:
        return [
            _finding(
                "time_limit",
                "not tested: the first job ended before it could be cancelled behind a checkpoint",
                where,
                None,
                None,
                "raise training.max_steps, or lower training.checkpoint_every",
            )
        ]
    if not result["iterations"]:
        return []
    facts = result["iterations"][-1]["facts"]
    evidence = f"{where}/{result['iterations'][-1]['output']}"
    saved = int(done[-1]["iteration"])
    steps = facts.get("steps") or {}
    start = steps.get("first")
    action = "resume is not configured, or the second job looks for checkpoints in another folder"
    if facts.get("resumed_from") is None or start is None or start < saved:
        text = f"the second job began at step {start} although step {saved} was saved: nothing was resumed"
        return [_finding("resume_from_scratch", text, f"{evidence}:1", start, saved, action, "step")]
    curve = {int(s): float(v) for s, v in first.get("curve") or [] if s is not None and v is not None}
    near = min(curve, key=lambda s: abs(s - start), default=None)
    loss = facts.get("loss_first")
    if near is not None and loss is not None and abs(loss - curve[near]) > loss_band * abs(curve[near]):
        text = f"loss {loss:.4g} at step {start} after the resume, {curve[near]:.4g} at step {near} before it"
        return [
            _finding("resume_from_scratch", text, f"{evidence}:1", loss, curve[near] * (1 + loss_band), action, "loss")
        ]
    before, after, batch = (
        first.get("consumed_samples"),
        facts.get("consumed_samples_last"),
        facts.get("global_batch_size"),
    )
    if before is not None and after is not None and batch and after <= saved * batch:
        text = f"consumed_samples {after:.6g} after the resume, {before:.6g} before it: the count began anew"
        return [_finding("resume_from_scratch", text, f"{evidence}:1", after, saved * batch, action, "samples")]
    return []


def _finding(
    fault: str,
    reason: str,
    evidence: str,
    value: float | None,
    limit: float | None,
    action: str,
    unit: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a finding."""
    place = evidence if ":" in evidence.rsplit("/", 1)[-1] else f"{evidence}/result.json:1"
    return {
        **BASE,
        "unit": unit,
        "fault": fault,
        "signal": fault,
        "value": None if value is None else float(value),
        "limit": None if limit is None else float(limit),
        "limit_origin": "zero tolerance",
        "evidence": [place],
        "reason": reason,
        "next_action": action,
    }
