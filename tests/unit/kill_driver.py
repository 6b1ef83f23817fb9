# SPDX-License-Identifier: Apache-2.0
"""Kills a run at every system call that changes a file, one after the other, and starts it again until it is done.

Called by test_kills.py as a process of its own: `kill_driver.py TEMPLATE SCRATCH [WORD FIRST END]`. For every k, a copy of
TEMPLATE is run in a child process that ends itself (SIGKILL: no handler, no buffer, no finally) at its k-th call of open,
mkdir, write, fsync, rename or unlink; for a write also after half of its bytes. What was left is noted, then the run is
started again without a kill. One JSON line for each k. With WORD, calls count from the first
on that names it, and k goes from FIRST up to END.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin import storage
from burnin.campaign import Campaign
from burnin.runs import journal, runner
from burnin.runs.settle import result_is_valid

DIR = Path("results/t")
RESULT = DIR / "single/heat0/hpl/n1/result.json"
GATE = DIR / "single/heat0/gate.json"
CALLS = ("open", "mkdir", "write", "fsync", "replace", "rename", "unlink", "truncate")


class Killer:
    """Ends this process at its k-th call that changes a file; `torn`: in the middle of it. `tell`: pipe for the call's name."""

    def __init__(self, at: int, torn: bool, tell: int, word: str = "") -> None:
        self.at, self.torn, self.tell, self.count = at, torn, tell, -1
        self.word = word  # until it was seen, calls are not counted
        self.write = os.write
        self.owner = os.getpid()
        for name in CALLS:
            setattr(os, name, self._wrapped(name, getattr(os, name)))
        plain = io.open

        def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if any(c in mode for c in "wax+"):
                self._step("open", None, str(file))
            return plain(file, mode, *rest, **more)

        io.open = builtins.open = opened

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            read_only = name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if os.getpid() == self.owner and not read_only:
                self._step(name, (call, arguments), str(arguments[0]))
            return call(*arguments, **keywords)

        return wrapped

    def _step(self, name: str, write: tuple[Callable[..., Any], tuple[Any, ...]] | None, where: str) -> None:
        if self.word not in where:
            return
        self.word = ""
        self.count += 1
        if self.count == self.at:
            self.write(self.tell, name.encode())
            if self.torn and write is not None:
                call, (handle, data) = write
                call(handle, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)


def work() -> None:
    """Do what is to survive kills: the run, then its gate and the summary."""
    if not result_is_valid(RESULT):
        runner.run(RESULT)
    campaign = Campaign(configuration.from_file(DIR))
    if not GATE.exists():
        gate = campaign.make_gate("single", 0, "test")
        campaign.write_summary(gate)
        campaign.write_gate(gate)


def child(action: Callable[[], None]) -> int:
    """Do something in a process of its own; return its wait status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def left() -> dict[str, Any]:
    """Return what stands on disk: iterations that are complete, and which decisions are there."""
    books = [journal.read(p) for p in sorted(RESULT.parent.glob("attempt*/journal.jsonl"))]
    pairs = [(s["iteration"], s["output"], e["summary"]["value"]) for b in books for s, e in journal.completed(b)]
    for path, schema in ((RESULT, "result"), (GATE, "gate"), (DIR / "summary.json", "summary")):
        if path.exists():
            storage.read_json(path, schema)  # what is there is whole
    looks = sorted(p.name for p in RESULT.parent.glob("attempt*/probe-during-*/*") if p.name != "launch.log")
    recorded = sum(r["type"] == "probe" and r["when"].startswith("during-") for b in books for r in b)
    done = {"result": RESULT.exists(), "gate": GATE.exists()}
    return {"pairs": pairs, "attempts": len(books), "looks": looks, "recorded": recorded, **done}


def one(at: int, torn: bool, word: str) -> dict[str, Any]:
    """Kill at one call and go on; return what was seen."""
    hear, tell = os.pipe()

    def killed() -> None:
        Killer(at, torn, tell, word)
        work()

    status = child(killed)
    os.close(tell)
    call = os.read(hear, 100).decode()
    os.close(hear)
    if not os.WIFSIGNALED(status):
        return {"end": os.WEXITSTATUS(status), **left()}
    before = left()
    again = child(work)
    result, gate = storage.read_json(RESULT, "result"), storage.read_json(GATE, "gate")
    return {
        "at": at, "call": call, "torn": torn, "before": before, "again": again, "after": left(), "state": result["state"],
        "outcome": gate["outcome"], "values": [[i["iteration"], i["value"], i["verdict"]] for i in result["iterations"]],
        "probes": {w: p["n1"]["tools"] for w, p in result["probes"].items()},
        "signals": [s["kind"] for s in result["signals"]],
    }  # fmt: skip


def main() -> None:
    """Kill at every call, print a line for each."""
    template, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    word, first, end = (sys.argv[3], int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 3 else ("", 0, 10_000)
    shutil.copytree(template, scratch / "warm")
    os.chdir(scratch / "warm")
    work()  # imports and schemas are loaded once, not in every child
    at, torn = first, False
    while at < end:
        place = scratch / f"{at}{'t' if torn else ''}"
        shutil.copytree(template, place)
        os.chdir(place)
        found = one(at, torn, word)
        print(json.dumps(found), flush=True)
        os.chdir(scratch)
        shutil.rmtree(place)
        if "end" in found:
            return  # it came to its end before the k-th call
        at, torn = (at, True) if found["call"] == "write" and not torn else (at + 1, False)


if __name__ == "__main__":
    main()
