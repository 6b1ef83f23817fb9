# SPDX-License-Identifier: Apache-2.0
"""Reading all nodes of a run at once: one launch, one task a node, one file a node."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnin import parsers, preflight, storage
from burnin.parsers.reading import Reading
from burnin.runs import launching
from burnin.runs.evaluate import missing_probe, probe_summary, probe_tools
from burnin.runs.spec import RunSpec
from burnin.runs.stack import Frozen, changed


class Probe:
    """One look at the nodes, started at once and collected when it has ended."""

    def __init__(
        self, spec: RunSpec, attempt: Path, name: str, environment: Mapping[str, str], frozen: Frozen | None = None
    ) -> None:
        """Start it. With `frozen`, the stack is read, too, and held against it."""
        self.spec, self.name, self._frozen = spec, name, frozen
        self.folder = attempt / f"probe-{name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        script = attempt / "probe.sh"
        storage.write_text(script, spec.probe_script(with_stack=frozen is not None))
        self._tools = probe_tools(spec.config.document["probes"]["commands"], spec.config.hcas)
        self._limit = float(spec.config.document["probes"]["timeout_seconds"]) * (len(self._tools) + 1)
        self.trouble = ""
        self._log = self.folder / "launch.log"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        try:
            with self._log.open("ab") as log:
                self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                    spec.probe_command(script.resolve(), self.folder.resolve()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            self._process, self.trouble = None, f"the probe could not be started: {error}"

    def ended(self) -> bool:
        """Tell whether the launch is over."""
        return self._process is None or self._process.poll() is not None

    def patience(self) -> float:
        """Return for how long (s) to repeat a probe that was not launched because Slurm did not answer; else 0."""
        left = any(self.folder.glob("*.txt")) or any(self.folder.glob(".*.part"))
        return launching.patience_of_file(self._log, self._log_start) if self.ended() and not left else 0.0

    def collect(self, wait: bool = True) -> dict[str, Any]:
        """Return node -> summary; a node without a whole file is unknown in everything."""
        if self._process is not None and wait:
            try:
                self._process.wait(timeout=self._limit)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                self.trouble = f"the probe did not end within {self._limit:.0f} s"
        return {node: self._read(node) for node in self.spec.nodes}

    def _read(self, node: str) -> dict[str, Any]:
        """Return one node's summary."""
        path = self.folder / f"{node}.txt"
        if not path.exists():
            part = self.folder / f".{node}.part"
            if part.exists():
                path = part  # the probe was cut: what it has is still evidence, and is never a pass
            else:
                return missing_probe(self._tools, self.trouble or "the node left no probe file")
        reading = parsers.read_file("probe", path)
        summary = probe_summary(reading)
        if self._frozen is not None:
            self._hold_against(self._frozen, node, reading, path, summary)
        for tool in self._tools:
            summary["tools"].setdefault(tool, "unknown")
        summary["file"] = str(path.relative_to(self.spec.run_dir))
        return summary

    def _hold_against(self, frozen: Frozen, node: str, reading: Reading, path: Path, summary: dict[str, Any]) -> None:
        """Add what changed in the node's stack as signals, and what it was read as."""
        both = {
            **{t: c for t, c in self.spec.config.document["probes"]["commands"].items() if t in preflight.UNDERSTOOD},
            **self.spec.stack_commands(),
        }
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        record = preflight.node_record(
            reading, lines, str(path), preflight.wanted(both, self.spec.config.hcas), (0.0, 0.0)
        )
        found = frozen.compare(node, record["stack"])
        summary["signals"] += changed(found, record["lines"], node)
        summary["stack"] = {"digest": storage.digest(record["stack"]), "unknown": frozen.unknown(node, record["stack"])}
