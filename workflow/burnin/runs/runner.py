# SPDX-License-Identifier: Apache-2.0
"""The loop that fills a run's window: start the workload again and again, watch it, write everything into the journal.

Re-entrant: started again, it goes on where the journal ends. It never decides about nodes: it stops when going on would
burn hours for nothing (a zero-tolerance signal, an iteration that did not pass, a hang) and leaves the verdict to the gate.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from burnin import hpl_dat, parsers, storage
from burnin.judging.diagnosis import must_stop
from burnin.judging.run import Context, ended_well
from burnin.judging.signatures import stops_run
from burnin.runs import attempts, journal, launching, preflight, results, settle, stack
from burnin.runs.barrier import Barrier
from burnin.runs.news import Known
from burnin.runs.probing import DURING, Probe, note, take_in
from burnin.runs.spec import RunSpec, load_spec

POLL_LEAST, POLL_MOST = 0.01, 1.0  # seconds between two looks at a running iteration
POLL_FIRST = 0.05  # the same for the resume test's first job, which must be cancelled soon after a checkpoint


class FirstJobDone(Exception):
    """The first job of the resume test has written its result and was cancelled: nothing more is to be recorded."""


class Runner:
    """One start of one run."""

    def __init__(self, spec: RunSpec, environment: Mapping[str, str]) -> None:
        self.spec = spec
        self.watch = spec.config.document["watch"]
        self.environment = spec.environment(environment)
        self.job_id = environment.get("SLURM_JOB_ID")
        self.any_job_id = self.job_id or environment.get("JOB_ID")  # Grid Engine and other DRMAA engines
        self.number, self.journal = self._open()
        self.folder = attempts.folder(spec, self.number)
        self.hpl_dat = self.folder / "HPL.dat"
        self.frozen = stack.Frozen(spec.config, spec.nodes)
        self.known = Known(self.journal.records)
        self.during: Probe | None = None  # a probe that is under way while iterations go on
        self._next_probe = 0.0
        self._silent_since: float | None = None  # since when Slurm launches nothing for us

    def _open(self) -> tuple[int, journal.Journal]:
        """Open the journal to go on with, or that of a new attempt."""
        number = attempts.current(self.spec)
        if number is None or self.spec.config.document["on_interruption"] == "restart":
            number = attempts.fresh(self.spec)
            attempts.folder(self.spec, number).mkdir(parents=True, exist_ok=True)
        book = journal.Journal(attempts.folder(self.spec, number) / "journal.jsonl")
        if not book.records:
            book.append({"type": "header", "what": self.spec.identity(), "time": time.time()})
            storage.sync_folder(book.path.parent)
        return number, book

    def run(self) -> None:
        """Fill the window, then write the result."""
        take_in(self.spec, self.folder, self.journal, self.known)  # before this job's own record: it took none of them
        self._note("job", job_id=self.any_job_id, host=socket.gethostname(), pid=os.getpid())
        self._prepare()
        if not self._recorded("probe"):
            broken = self._probe("before") or self._containers()
            if broken and self.watch["mode"] == "act":
                self._note("stop", reason=f"broken before the run: {broken}")
        elif self._goes_on() and (broken := self.broken_now()):
            self._note("stop", reason=broken)  # it was seen, and the run was killed before it stopped
        if not self._recorded("stop"):
            try:
                self._fill_window()
            except FirstJobDone:
                return
        self.take_probe(wait=True)
        if not any(r["type"] == "probe" and r["when"] == "after" for r in self.journal.records):
            self._probe("after")
        self._note("final", facts=self._facts())
        self.journal.close()
        self._tidy()
        results.publish(self.spec, results.collect(self.spec, self.number))

    def _fill_window(self) -> None:
        """Run iterations until the window is over or something says stop."""
        barrier = Barrier(self.spec, self.number)
        self._plan_probe()
        if not barrier.wait():
            self._note("stop", reason=barrier.reason)
            return
        while not self._window_over() or (not self._twice_full() and barrier.others_need_load()):
            reason = self._iterate(len(journal.completed(self.journal.records)))
            if reason and self.watch["mode"] == "act":
                self._note("stop", reason=reason)
                return

    def _note(self, kind: str, **fields: Any) -> None:
        """Add a record with the time."""
        self.journal.append({"type": kind, "time": time.time(), **fields})

    def _recorded(self, kind: str) -> bool:
        """Tell whether the journal has such a record."""
        return any(r["type"] == kind for r in self.journal.records)

    def _goes_on(self) -> bool:
        """Tell whether a run that was started again still has iterations to run, and stops for what is seen."""
        return self.watch["mode"] == "act" and not self._recorded("stop") and not self._window_over()

    def _window_over(self) -> bool:
        """Tell whether the window is full: iterations, or hours spent in complete iterations."""
        pairs = journal.completed(self.journal.records)
        if "iterations" in self.spec.window:
            return len(pairs) >= int(self.spec.window["iterations"])
        spent = float(sum(e["time"] - s["time"] for s, e in pairs))
        return spent >= self.spec.window["hours"] * 3600

    def _twice_full(self) -> bool:
        """Tell whether twice the window is full: a partner that never ends must not keep this run for ever."""
        pairs = journal.completed(self.journal.records)
        if "iterations" in self.spec.window:
            return len(pairs) >= 2 * int(self.spec.window["iterations"]) + 20
        spent = float(sum(e["time"] - s["time"] for s, e in pairs))
        return spent >= 2 * self.spec.window["hours"] * 3600

    def _prepare(self) -> None:
        """Write the files that the commands read."""
        hpl = self.spec.definition.get("hpl")
        if hpl:
            gpus = max(1, self.spec.gpus_per_node)
            problem = hpl_dat.plan_hpl(
                len(self.spec.nodes), gpus, hpl["gpu_memory_mib"], hpl["memory_fraction"], hpl["block"]
            )
            storage.write_text(self.hpl_dat, hpl_dat.render(problem))

    def _checkpoints(self, seq: int) -> Path:
        """Return the checkpoint folder of an iteration; the two jobs of the resume test share one."""
        base = self.spec.checkpoint_dir
        return base if self.spec.step == "resume" else base / f"{self.folder.name}-{seq}"

    def _iterate(self, iteration: int) -> str:
        """Run one iteration; return why no further one should run, or an empty text."""
        seq = sum(r["type"] == "start" for r in self.journal.records)
        output = f"out-{seq:05d}.log"
        checkpoints = self._checkpoints(seq)
        command = self.spec.command(iteration, checkpoints, self.hpl_dat.resolve())
        self._note(
            "start",
            seq=seq,
            iteration=iteration,
            command=self.spec.command_name(iteration),
            output=output,
            argv=command,
        )
        if "training" in self.spec.definition:
            checkpoints.mkdir(parents=True, exist_ok=True)
        path = self.folder / output
        watched = _Watched(self, path, iteration)
        status, ended = watched.run(command)
        if ended == "itself" and status and self._wait_for_slurm(launching.patience_of_file(path)):
            self._note("not_launched", seq=seq, exit=status)
            return ""  # no iteration: the next pass of the loop starts the same one again
        self._silent_since = None
        summary = results.read_output(self.spec, path)
        changed = self._nccl(path, self.spec.command_name(iteration))
        summary["signals"] += changed
        self._note("end", seq=seq, exit=status, ended=ended, bytes=path.stat().st_size, summary=summary)
        if "training" in self.spec.definition and self.spec.step != "resume":
            self._drop_checkpoints(checkpoints)
        return watched.reason or _why_not_passed(summary, status) or next((str(c["text"]) for c in changed), "")

    def _nccl(self, output: Path, command: str) -> list[dict[str, Any]]:
        """Return what the output says of NCCL's version, if it is not the one that the command began with."""
        found = stack.nccl_version(output)
        if found is None:
            return []
        name = f"nccl of {self.spec.workload} {command}"  # each may have a container of its own
        return stack.changed(self.frozen.compare(None, {name: found[0]}), {name: found[1]}, "the output")

    def _containers(self) -> str:
        """Write down a container that is not the frozen one; return what changed, or ""."""
        now = {}
        images = stack.images(
            [shlex.split(t) for t in (self.spec.definition["launch"], *self.spec.definition["commands"].values())]
        )
        if images:
            now[f"image of {self.spec.workload}"] = ", ".join(images)
        for file, value in self.frozen.containers().items():
            with contextlib.suppress(OSError):
                now[f"container {file}"] = preflight.container_now(Path(file), value)
        signals = stack.changed(self.frozen.compare(None, now), {}, "the campaign")
        if signals:
            self._note("stack", signals=signals)
        return next((str(s["text"]) for s in signals), "")

    def _drop_checkpoints(self, folder: Path) -> None:
        """Delete the checkpoints of an iteration that is over, unless they are to be kept."""
        if not self.spec.definition["training"]["keep_checkpoints"]:
            shutil.rmtree(folder, ignore_errors=True)

    def _probe(self, when: str) -> str:
        """Look at all nodes now and write down what was seen; return the first thing that forbids a run, or ""."""
        while True:
            probe = self._look(when, self.frozen if when == "before" else None)
            nodes = probe.collect()
            if not self._wait_for_slurm(probe.patience()):
                break
        self._silent_since = None
        self._note_probe(probe, nodes)
        return self.broken_now() if when == "before" else ""

    def _plan_probe(self) -> None:
        """Set when the next probe of a running workload is due."""
        self._next_probe = time.monotonic() + float(self.watch["probe_every_minutes"]) * 60

    def probe_if_due(self) -> None:
        """Start a probe of the running workload's nodes every so often, iterations come and go."""
        if self.during is None and time.monotonic() > self._next_probe:
            self._plan_probe()
            self.during = self._look(f"{DURING}{int(time.time())}")

    def take_probe(self, wait: bool = False) -> bool:
        """Write down the probe that is under way if it is over, or wait for it; return whether one was."""
        probe = self.during
        if probe is None or not (wait or probe.ready()):
            return False
        self.during = None
        nodes = probe.collect()
        if probe.patience():
            return False  # nothing was read, because nothing could be launched; the next one will tell
        self._note_probe(probe, nodes)
        return True

    def probe_hang(self) -> None:
        """Look at the nodes of an iteration that hangs, before it is ended."""
        probe = self._look("hang")
        nodes = probe.collect()
        if not probe.patience():
            self._note_probe(probe, nodes)

    def _look(self, name: str, frozen: stack.Frozen | None = None) -> Probe:
        """Start a probe."""
        return Probe(self.spec, self.folder, name, self.environment, self.known, frozen)

    def _note_probe(self, probe: Probe, nodes: Mapping[str, Any]) -> None:
        """Write down what a probe has said."""
        note(self.journal, probe, nodes, self.known, time.time())

    def _wait_for_slurm(self, patience: float) -> bool:
        """Pause because nothing could be launched; return False when that has lasted too long, or is no such case."""
        self._silent_since = self._silent_since or time.monotonic()
        if time.monotonic() - self._silent_since >= patience:
            return False
        time.sleep(launching.PAUSE_SECONDS)
        return True

    def _facts(self) -> dict[str, Any]:
        """Return what else the result should say."""
        facts: dict[str, Any] = {"host": socket.gethostname()}
        if self.spec.step == "resume" and self.spec.ref.phase == "result":
            facts["first"] = storage.read_json(self.spec.run_dir / "first.json", "result")["facts"]
        return facts

    def _tidy(self) -> None:
        """Remove what the resume test no longer needs after its second job."""
        if self.spec.step == "resume" and self.spec.ref.phase == "result":
            self._drop_checkpoints(self.spec.checkpoint_dir)

    def hang_limit(self) -> float:
        """Return after how many silent seconds an iteration hangs: k x the median iteration once three are known."""
        done = [e["time"] - s["time"] for s, e in journal.completed(self.journal.records)]
        if len(done) < 3:
            return float(self.watch["hang_first_seconds"])
        return float(max(self.watch["hang_least_seconds"], self.watch["hang_factor"] * median(done)))

    def broken_now(self) -> str:
        """Return what the probes so far show that forbids going on, or an empty text: what lasts, or is new in this run."""
        config = self.spec.config
        context = Context(self.spec.gpus_per_node, config.criteria, "", {}, 0)
        return must_stop(results.probed(self.spec, self.number, self.journal.records), context)

    def cancel_first_job(self, facts: dict[str, Any]) -> None:
        """End the first job of the resume test: result first, then scancel.

        No probe stands between the two, the training would go on meanwhile; the second job's first probe sees the
        same nodes a moment later.
        """
        self._note("cancelled", facts=facts)
        self._note("final", facts=facts)
        results.publish(self.spec, results.collect(self.spec, self.number))
        target = [self.job_id] if self.job_id else ["--me", f"--name={self.spec.job_name}"]
        with contextlib.suppress(OSError):
            subprocess.run(
                ["scancel", *target], env=self.environment, check=False, timeout=60, stdin=subprocess.DEVNULL
            )


class _Watched:
    """A running iteration: its output is read as it comes."""

    def __init__(self, runner: Runner, path: Path, iteration: int) -> None:
        self.runner, self.path, self.iteration = runner, path, iteration
        self.reason = ""
        definition = runner.spec.definition
        self._parser = parsers.parser_for(definition["parser"])
        self._position, self._number, self._rest = 0, 0, b""
        self._first = runner.spec.step == "resume" and runner.spec.ref.phase == "first"

    def run(self, command: list[str]) -> tuple[int | None, str]:
        """Run the command to its end; return its exit status and how it ended (itself, stopped, hang, interrupted)."""
        environment = {**self.runner.environment, "BURNIN_ITERATION": str(self.iteration)}
        try:
            with self.path.open("wb") as out:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self.runner.folder,
                    start_new_session=True,
                )
        except OSError as error:
            self.path.write_text(f"burnin: {command[0]} could not be started: {error.strerror}\n", encoding="utf-8")
            self.reason = f"{command[0]} could not be started: {error.strerror}"
            return 127, "itself"
        try:
            return self._follow(process)
        except BaseException:
            _end(process)
            raise

    def _follow(self, process: subprocess.Popen[bytes]) -> tuple[int | None, str]:
        """Look at the output until the process ends or must be ended."""
        quiet_since = time.monotonic()
        pause = POLL_LEAST
        while True:
            try:
                return process.wait(timeout=pause), "itself"
            except subprocess.TimeoutExpired:
                pause = min(pause * 1.5, POLL_FIRST if self._first else POLL_MOST)
            now = time.monotonic()
            if self._read():
                quiet_since = now
            if self._first and self._past_checkpoint():
                self._cancel(process)
                raise FirstJobDone
            if self.reason and self.runner.watch["mode"] == "act":
                _end(process)
                return process.returncode, "stopped"
            limit = self.runner.hang_limit()
            if now - quiet_since > limit:
                self.reason = f"hang: no output for {limit:.0f} s"
                self.runner.probe_hang()
                _end(process)
                return process.returncode, "hang"
            self.runner.probe_if_due()
            if self.runner.take_probe():
                self.reason = self.reason or self.runner.broken_now()

    def _read(self) -> bool:
        """Read what is new; return whether anything was."""
        with self.path.open("rb") as stream:
            stream.seek(self._position)
            new = stream.read(1 << 20)
        if not new:
            return False
        self._position += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._number += 1
            for found in self._parser.feed(self._number, line.decode("utf-8", "replace").rstrip("\r")):
                if not self.reason and stops_run(found.to_dict()):
                    self.reason = f"{found.kind}: {found.text}"[:300]
        return True

    def _past_checkpoint(self) -> bool:
        """Tell whether the training is far enough behind a complete checkpoint to be cancelled."""
        data = self._parser.finish().data
        done = [c for c in data.get("checkpoints") or [] if c.get("finalized") and c.get("iteration") is not None]
        last = data.get("global_step_last")
        if not done or last is None:
            return False
        wanted = self.runner.spec.config.document["resume_test"]["steps_after_checkpoint"]
        return bool(last >= done[-1]["iteration"] + wanted)

    def _cancel(self, process: subprocess.Popen[bytes]) -> None:
        """Write the first job's result, then cancel it."""
        data = self._parser.finish().data
        facts = {
            "cancelled_after_step": data.get("global_step_last"),
            "checkpoints": data.get("checkpoints"),
            "consumed_samples": data.get("consumed_samples_last"),
            "loss_first": data.get("loss_first"),
            "loss_last": data.get("loss_last"),
            "curve": [(p.get("step"), p.get("loss")) for p in data.get("step_series") or []][-200:],
        }
        self.runner.cancel_first_job(facts)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started: politely first, then for good."""
    for sign, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        try:
            process.wait(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue


def _why_not_passed(summary: Mapping[str, Any], status: int | None) -> str:
    """Return why an iteration is not one to go on after, or an empty text."""
    if summary["verdict"] == "pass" and ended_well({**summary, "exit": status}):
        return ""
    if summary["verdict"] == "pass":
        return f"the command ended with status {status}"
    problem = summary["problems"][0] if summary["problems"] else next((s["text"] for s in summary["signals"]), "")
    return f"an iteration did not pass ({summary['verdict']}): {problem}"[:400]


def run(result: Path) -> None:
    """Run what `result` names, unless it needs no job."""
    if settle.settle_without_job(result):
        return
    spec = load_spec(result)
    Runner(spec, os.environ).run()
