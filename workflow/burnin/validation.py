# SPDX-License-Identifier: Apache-2.0
"""Did the validation that a burn-in relies on pass? Said before the burn-in starts, and kept in its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnin import storage
from burnin.config import Config
from burnin.errors import EvidenceError


def state(config: Config) -> dict[str, Any]:
    """Return {"campaign", "verdict", "text"} of the validation that config key `validation` names.

    `verdict` is that of its summary, or `none`, `missing`, `unreadable`. `text` is a sentence for the operator.
    """
    named = config.document.get("validation")
    if not named:
        text = "no validation named: the burn-in starts without proof that the numbers were right to begin with"
        return {"campaign": None, "verdict": "none", "text": text}
    folder = Path(named)
    found: dict[str, Any] = {"campaign": str(named)}
    try:
        summary = storage.read_json(folder / "summary.json", "summary")
    except FileNotFoundError:
        return {**found, "verdict": "missing", "text": f"the validation {named} has no summary: it has not been run"}
    except EvidenceError as error:
        return {**found, "verdict": "unreadable", "text": f"the validation cannot be read: {error}"}
    verdict = str(summary["verdict"])
    not_in = [n for n in config.nodes if summary["nodes"].get(n, {}).get("status") != "accepted"]
    if verdict == "accepted" and not not_in:
        text = f"the validation {named} was accepted with all nodes of this burn-in"
    elif verdict == "accepted":
        verdict = "incomplete"
        text = f"the validation {named} was accepted, but without {', '.join(not_in[:8])}{' ...' if not_in[8:] else ''}"
    else:
        text = (
            f"the validation {named} is {verdict}: a burn-in will only say the same slowly; repair and validate first "
            f"(not accepted: {', '.join(not_in[:8]) or 'none'}{' ...' if not_in[8:] else ''})"
        )
    return {**found, "verdict": verdict, "text": text}


def warning(found: dict[str, Any]) -> str:
    """Return the sentence to say at the start, empty if the validation passed."""
    return "" if found["verdict"] == "accepted" else str(found["text"])
