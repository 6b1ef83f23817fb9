# SPDX-License-Identifier: Apache-2.0
"""Telling people and monitoring what happens in a campaign: calls the config's `notify` command, writes its `metrics` file.

Nothing of this may harm a campaign: a command that fails, hangs or is missing, a full disk, a bug in here end as one
sentence in the log. What was told is on record (`told.jsonl`) before the command is called: once, whoever restarts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from burnin import announcements, metrics, storage
from burnin.campaign import Campaign
from burnin.status import Status, collect

RECORD = "told.jsonl"


def wanted(document: Mapping[str, Any]) -> bool:
    """Tell whether a config wants anything told."""
    return bool((document.get("notify") or {}).get("command") or document.get("metrics"))


def publish(campaign: Campaign, say: Callable[[str], None], more: Sequence[announcements.Fact] = ()) -> None:
    """Write the metrics and tell what has not been told yet (and the facts in `more`). Never raises."""
    if not wanted(campaign.config.document):
        return
    try:
        status = collect(campaign)
        summary = campaign.summary()
        with _alone(campaign.dir / ".told.lock", _patience(campaign)) as alone:
            if alone:
                # whoever else is at it tells it all, too: what it misses is found at the next look
                _notify(campaign, status, summary, more, say)
        write_metrics(campaign, campaign.config.document.get("metrics"), status, summary)
    except Exception as error:  # whatever it is: people not being told must not end a campaign
        say(f"burnin: nobody could be told: {type(error).__name__}: {error}")


def write_metrics(campaign: Campaign, path: str | None, status: Status, summary: Mapping[str, Any]) -> None:
    """Write the metrics file, if one is wanted: beside its name and renamed, as the collector wants it."""
    if not path:
        return
    failed = sum(last == "failed" for last in {r["key"]: r["state"] for r in records(campaign)}.values())
    definitions = campaign.config.document["workload_definitions"]
    storage.write_text(Path(path), metrics.render(summary, status, definitions, time.time(), failed))


def metrics_now(campaign: Campaign) -> str:
    """Write the metrics file of the config and say where, or return the metrics if there is none."""
    status, summary = collect(campaign), campaign.summary()
    path = campaign.config.document.get("metrics")
    if path:
        write_metrics(campaign, path, status, summary)
        return f"burnin: wrote {path}\n"
    return metrics.render(summary, status, campaign.config.document["workload_definitions"], time.time())


def records(campaign: Campaign) -> list[dict[str, Any]]:
    """Return what was told, and what was tried, in order; a torn line was never recorded."""
    return [r for r in storage.records(campaign.dir / RECORD)[0] if {"key", "state", "time"} <= set(r)]


def test(campaign: Campaign) -> str:
    """Send a message that says it is a test; return what went wrong, empty if nothing did. Nothing is recorded."""
    text = f"this is a test of campaign {campaign.config.campaign}'s notify command: nothing happened"
    said = {"event": "test", "place": "", "text": text, "items": []}
    notify = campaign.config.document.get("notify") or {}
    return call(notify["command"], _document(campaign, said), float(notify["timeout_seconds"]))


def _notify(
    campaign: Campaign,
    status: Status,
    summary: Mapping[str, Any],
    more: Sequence[announcements.Fact],
    say: Callable[[str], None],
) -> None:
    """Tell what is due, one message after the other; after one that timed out the rest waits for the next look."""
    notify = campaign.config.document.get("notify") or {}
    if not notify.get("command"):
        return
    found = announcements.facts(status, summary, time.time(), float(notify["stall_minutes"]) / 60)
    for said, keys in announcements.messages(
        announcements.due([*found, *more], records(campaign), time.time()), notify["events"]
    ):
        _record(campaign, keys, "intent")
        started = time.monotonic()
        trouble = call(notify["command"], _document(campaign, said), float(notify["timeout_seconds"]))
        _record(campaign, keys, "failed" if trouble else "told", trouble)
        if trouble:
            say(f"burnin: notify: {said['event']} was not told: {trouble}")
        if trouble and time.monotonic() - started >= float(notify["timeout_seconds"]):
            return


def _document(campaign: Campaign, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON document of a message."""
    document = {
        **said,
        "text": f"burnin {campaign.config.campaign}: {said['text']}",
        "campaign": campaign.config.campaign,
        "folder": str(campaign.dir.resolve()),
        "host": socket.gethostname(),
        "time": time.time(),
    }
    storage.check(document, "event", "the message")
    return document


def _record(campaign: Campaign, keys: Sequence[str], state: str, why: str = "") -> None:
    """Write down what is done for each key; durable when this returns."""
    more = {"why": why} if why else {}
    lines = [json.dumps({"key": key, "state": state, "time": time.time(), **more}) for key in keys]
    storage.append_line(campaign.dir / RECORD, "\n".join(lines))


def _patience(campaign: Campaign) -> float:
    """Return how long to wait for another process that is telling (s)."""
    return float((campaign.config.document.get("notify") or {}).get("timeout_seconds", 0)) + 5


@contextlib.contextmanager
def _alone(path: Path, patience: float) -> Iterator[bool]:
    """Hold a lock, so that a gate and the head's look do not tell the same at once; False if somebody else keeps it."""
    with path.open("w") as file:
        end = time.monotonic() + patience
        held = False
        while not held:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except OSError:
                if time.monotonic() > end:
                    break
                time.sleep(0.1)
        yield held


def call(command: Sequence[str], document: Mapping[str, Any], timeout: float) -> str:
    """Give a command a JSON document on stdin; return what went wrong, empty if nothing did.

    No shell. Standard input and output are files: a command that reads nothing, or leaves something behind that never
    ends, blocks nobody. When the time is over it is killed with all that it started.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told:
        given.write(json.dumps(document).encode() + b"\n")
        given.seek(0)
        try:
            process = subprocess.Popen(list(command), stdin=given, stdout=told, stderr=told, start_new_session=True)
        except (OSError, ValueError) as error:
            return f"{command[0]} could not be started: {error}"
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"{command[0]} took longer than {timeout:g} s"
        if status == 0:
            return ""
        told.seek(0)
        output = told.read(2000).decode("utf-8", "replace").strip()
        last = "".join(c if c.isprintable() else "?" for c in (output.splitlines() or [""])[-1])[:300]
        return f"{command[0]} ended with status {status}" + (f": {last}" if last else "")
