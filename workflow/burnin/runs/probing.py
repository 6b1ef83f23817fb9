# SPDX-License-Identifier: Apache-2.0
"""Reading all nodes of a run at once: one launch, one task a node, one file a node.

The files are read as soon as the launch has ended, by several processes where there are many nodes, while the run goes on
watching its workload. A file that was read is kept compressed (`burnin.storage.read_raw` opens it by its own name). One that
is not to be kept is removed when what it said is durable in the journal (`discard`), not before: a look that was cut in
between is taken in by the next start, or by the head if there is none (`take_in`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnin import config as configuration
from burnin import parsers, preflight, storage
from burnin.parsers.common import NUMBER, finite, number
from burnin.runs import launching
from burnin.runs.evaluate import missing_probe, probe_summary, probe_tools, short
from burnin.runs.journal import Journal
from burnin.runs.news import Known
from burnin.runs.spec import RunSpec
from burnin.runs.stack import Frozen, changed, commands

#: Up to so many nodes are read by the run itself: what it then does not watch its workload for is a second or two.
ALONE = 8
#: Begins the names of the files with what the site's own commands printed.
ONCE = "once-"
#: Begins the names of probes that nothing but the time asked for: many, of which few files are kept.
DURING = "during-"
#: What the launch itself printed.
LOG = "launch.log"
#: Most processes that read; they share the machine with the workload's own.
MOST_READERS = 32


@dataclass(frozen=True)
class _Order:
    """What one node's file is read for. `keep`: as it should be kept; `keep_trouble`: if something is wrong with the node."""

    folder: Path
    node: str
    tools: Sequence[str]
    trouble: str
    stack: Mapping[str, str] | None  # key of a section -> tool, if the stack is read
    keep: bool
    keep_trouble: bool


@dataclass(frozen=True)
class _Read:
    """What came out. `stack`, `lines`: parts of the stack and where they stand."""

    summary: dict[str, Any]
    stack: dict[str, str] | None
    lines: dict[str, int]


class Probe:
    """One look at the nodes, started at once (or left by an earlier start) and collected when it has ended."""

    def __init__(
        self,
        spec: RunSpec,
        attempt: Path,
        name: str,
        environment: Mapping[str, str],
        known: Known,
        frozen: Frozen | None = None,
        launched: bool = True,
        alone: int = ALONE,
    ) -> None:
        """Start it. `known`: what the run's probes have said so far. With `frozen`, the stack is read, too, and held against it.

        With `launched` False nothing is started: an earlier start did, and what it left is read. Up to `alone` nodes are
        read by this process itself.
        """
        self._alone = alone
        self.spec, self._known, self._frozen = spec, known, frozen
        self.folder = _folder(attempt, name) if launched else attempt / f"probe-{name}"
        # of the many, each goes by the name of its folder: what is removed of one is never another's
        self.name = self.folder.name.removeprefix("probe-") if name.startswith(DURING) else name
        self._tools = probe_tools(spec.config.document["probes"]["commands"], spec.config.hcas)
        self._limit = float(spec.config.document["probes"]["timeout_seconds"]) * (len(self._tools) + 1)
        self.trouble = "" if launched else "the run was ended before this probe was read"
        self._began = time.time()
        self._readers: ProcessPoolExecutor | None = None
        self._reading: list[Future[list[_Read]]] = []
        self._once = _Once(spec, self.folder, environment, "" if launched else self.trouble)
        self._log = self.folder / LOG
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._process: subprocess.Popen[bytes] | None = None
        if launched:
            script = attempt / "probe.sh"
            storage.write_text(script, spec.probe_script(with_stack=frozen is not None))
            self._launch(script, environment)

    def _launch(self, script: Path, environment: Mapping[str, str]) -> None:
        """Start one task on every node."""
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.spec.probe_command(script.resolve(), self.folder.resolve()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            self.trouble = f"the probe could not be started: {error}"

    def ready(self) -> bool:
        """Tell whether all nodes are read, and see to it that they will be."""
        if not self._ended():
            return False
        if not self._reading and len(self.spec.nodes) > self._alone:
            self._begin_reading()
        return all(f.done() for f in self._reading)

    def _ended(self) -> bool:
        """Tell whether the launch is over; one that takes too long is ended."""
        if self._process is None or self._process.poll() is not None:
            return True
        if time.time() - self._began <= self._limit:
            return False
        self._process.kill()
        self._process.wait()
        self.trouble = f"the probe did not end within {self._limit:.0f} s"
        return True

    def patience(self) -> float:
        """Return for how long (s) to repeat a probe that was not launched because Slurm did not answer; else 0."""
        left = any(p != self._log and not p.name.startswith(ONCE) for p in self.folder.iterdir())
        return launching.patience_of_file(self._log, self._log_start) if self._ended() and not left else 0.0

    def collect(self) -> dict[str, Any]:
        """Wait for the end; return node -> summary. A node without a whole file is unknown in everything."""
        if self._process is not None:
            try:
                self._process.wait(timeout=max(0.0, self._limit - (time.time() - self._began)))
            except subprocess.TimeoutExpired:
                self._ended()
        if not self._reading and len(self.spec.nodes) > self._alone:
            self._begin_reading()
        found = [r for f in self._reading for r in f.result()] or [read(order) for order in self._orders()]
        if self._readers is not None:
            self._readers.shutdown()
        return {n: self._summary(n, r) for n, r in zip(self.spec.nodes, found, strict=True)}

    def site(self) -> dict[str, dict[str, Any]]:
        """Return what the site's own commands said: name -> value, file and trouble. Nothing of it is judged."""
        keep = not self._during() or self._known.keeps(self.spec.nodes[0], self._began, self._per_day())[0]
        found = self._once.collect(keep)
        for entry in found.values():
            entry["file"] = entry["file"] and str((self.folder / entry["file"]).relative_to(self.spec.run_dir))
        return found

    def _per_day(self) -> int:
        return int(self.spec.config.document["probes"]["keep_per_day"])

    def _begin_reading(self) -> None:
        """Have the nodes' files read by processes of their own."""
        orders = self._orders()
        count = readers()
        self._readers = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork"))
        size = -(-len(orders) // (4 * count))
        self._reading = [self._readers.submit(read_all, orders[i : i + size]) for i in range(0, len(orders), size)]

    def _orders(self) -> list[_Order]:
        """Return what is to be read."""
        wanted = None
        if self._frozen is not None:
            wanted = preflight.wanted(commands(self.spec.config), self.spec.config.hcas)
        keeps = (True, True)
        orders = []
        for node in self.spec.nodes:
            if self._during():
                keeps = self._known.keeps(node, self._began, self._per_day())
            orders.append(_Order(self.folder, node, self._tools, self.trouble, wanted, *keeps))
        return orders

    def _during(self) -> bool:
        """Tell whether it is one of many: a probe that nothing but the time asked for."""
        return self.name.startswith(DURING)

    def _summary(self, node: str, found: _Read) -> dict[str, Any]:
        """Return a node's summary as the journal keeps it."""
        summary = found.summary
        if summary.get("file"):
            summary["file"] = str((self.folder / summary["file"]).relative_to(self.spec.run_dir))
        if self._frozen is not None and found.stack is not None:
            summary["signals"] += changed(self._frozen.compare(node, found.stack), found.lines, node)
            unknown = self._frozen.unknown(node, found.stack)
            summary["stack"] = {"digest": storage.digest(found.stack), "unknown": unknown}
        if self._during():
            summary = short({**summary, "signals": self._known.news(node, summary["signals"])})
        return summary


class _Once:
    """The site's own commands, run once with a probe on the run's first node: rack PDUs, switches, chillers."""

    def __init__(self, spec: RunSpec, folder: Path, environment: Mapping[str, str], trouble: str) -> None:
        """Start them; with `trouble` they were started before, and what they printed may be cut."""
        self._limit = float(spec.config.document["probes"]["timeout_seconds"])
        self._began = time.monotonic()
        self._running: dict[str, tuple[Path, subprocess.Popen[bytes] | str]] = {}
        values = {"nodes": len(spec.nodes), "nodelist": ",".join(spec.nodes)}
        for name, template in spec.config.document["probes"]["once"].items():
            path = folder / f"{ONCE}{name}.txt"
            if trouble:
                if path.exists():
                    self._running[name] = path, trouble
                continue
            command = configuration.render(template, values)
            try:
                with path.open("wb") as out:
                    process: subprocess.Popen[bytes] | str = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=dict(environment),
                        start_new_session=True,
                    )  # fmt: skip
            except OSError as error:
                process = f"{command[0]} could not be started: {error.strerror}"
            self._running[name] = path, process

    def collect(self, keep: bool) -> dict[str, dict[str, Any]]:
        """Return name -> {"value": the last number of the output or None, "file": name or None, "trouble": text}."""
        found = {}
        for name, (path, process) in self._running.items():
            trouble = process if isinstance(process, str) else self._end(process)
            numbers = re.findall(NUMBER, path.read_text(encoding="utf-8", errors="replace")) if not trouble else []
            value = finite(number(numbers[-1])) if numbers else None
            found[name] = {"value": value, "file": path.name if keep else None, "trouble": trouble}
            if keep:
                storage.compress(path)
        return found

    def _end(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for a command within the probe's time; return what went wrong, or ""."""
        try:
            status = process.wait(max(0.0, self._limit - (time.monotonic() - self._began)))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"not done within {self._limit:.0f} s"
        return f"ended with status {status}" if status else ""


def readers() -> int:
    """Return how many processes read: as many as this one may use processors."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_READERS, ours)


def _folder(attempt: Path, name: str) -> Path:
    """Return a folder that no probe has written to: one that was cut leaves files that no other may take for its own."""
    folder, again = attempt / f"probe-{name}", 0
    while folder.exists() and any(p.name != "launch.log" for p in folder.iterdir()):
        again += 1
        folder = attempt / f"probe-{name}.{again}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def note(book: Journal, probe: Probe, nodes: Mapping[str, Any], known: Known, taken: float) -> None:
    """Write down what a probe has said at a time (s since 1970); only then may go what is not to be kept of it."""
    site = probe.site()
    book.append(
        {"type": "probe", "time": taken, "when": probe.name, "nodes": dict(nodes), **({"site": site} if site else {})}
    )
    known.add(nodes, probe.name, taken)
    discard(probe.spec.run_dir, book.path.parent, book.records[-1])


def take_in(spec: RunSpec, attempt: Path, book: Journal, known: Known, alone: int = ALONE) -> None:
    """Write down the looks that a start was killed over, and finish removing what is not to be kept.

    Whoever writes the journal now must be the only one: the run started again, or the head that declared its job dead.
    `alone`: up to so many nodes are read by this process itself; one that has threads must not fork.
    """
    for record in [r for r in book.records if r["type"] == "probe"]:
        discard(spec.run_dir, attempt, record)
    for name, taken in unrecorded(attempt, book.records):
        probe = Probe(spec, attempt, name, {}, known, launched=False, alone=alone)
        note(book, probe, probe.collect(), known, taken)


def unrecorded(attempt: Path, records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield (name, time in s since 1970) of the probes during a run that left files and are not in the journal, in order.

    Files that were compressed already lie under their own names again.
    """
    known = {r["when"] for r in records if r["type"] == "probe"}
    for folder in sorted(attempt.glob(f"probe-{DURING}*")):
        name = folder.name.removeprefix("probe-")
        left = [p for p in folder.iterdir() if p.name != LOG]
        if name in known or all(p.name.startswith(ONCE) for p in left):
            continue
        for path in left:
            if path.name.endswith(storage.COMPRESSED):
                storage.unpack(path.with_name(path.name.removesuffix(storage.COMPRESSED)))
        yield name, max(p.stat().st_mtime for p in left)


def discard(run_dir: Path, attempt: Path, record: Mapping[str, Any]) -> None:
    """Remove the raw files of a probe during a run that its record in the journal does not name."""
    folder = attempt / f"probe-{record['when']}"
    if not record["when"].startswith(DURING) or not folder.exists():
        return
    said = [*record["nodes"].values(), *record.get("site", {}).values()]
    kept = {str(run_dir / entry["file"]) for entry in said if entry.get("file")}
    for path in folder.iterdir():
        if path.name != LOG and str(path).removesuffix(storage.COMPRESSED) not in kept:
            path.unlink(missing_ok=True)


def read_all(orders: Sequence[_Order]) -> list[_Read]:
    """Read the files of several nodes."""
    return [read(order) for order in orders]


def read(order: _Order) -> _Read:
    """Read one node's file; one that is to be kept is compressed."""
    path = order.folder / f"{order.node}.txt"
    if not path.exists():
        part = order.folder / f".{order.node}.part"
        if not part.exists():
            return _Read(missing_probe(list(order.tools), order.trouble or "the node left no probe file"), None, {})
        path = part  # the probe was cut: what it has is still evidence, and is never a pass
    reading = parsers.read_file("probe", path)
    summary = probe_summary(reading)
    for tool in order.tools:
        summary["tools"].setdefault(tool, "unknown")
    stack, lines = None, {}
    if order.stack is not None:
        text = path.read_text(encoding="utf-8", errors="replace").split("\n")
        record = preflight.node_record(reading, text, str(path), order.stack, (0.0, 0.0))
        stack, lines = record["stack"], record["lines"]
    trouble = any(verdict != "pass" for verdict in summary["tools"].values())
    summary["file"] = path.name if order.keep or (trouble and order.keep_trouble) else None
    if summary["file"]:
        storage.compress(path)
    return _Read(summary, stack, lines)
