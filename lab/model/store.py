# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: SIM105  (contextlib takes longer to import than most of this)
"""The state folder of the lab: the compiled scenario, and for each node the events that happened to it.

    <state>/scenario.json             compiled scenario, with the time the lab was powered on
    <state>/nodes/<node>/events       append-only; one JSON record a line, one write each
    <state>/nodes/<node>/view/        what the probe tools print, rendered whenever the node's events change
    <state>/nodes/<node>/acts         there when a process of this node's own has to act out a fault (real Slurm)
    <state>/cluster/events            the same for what has no node: fabric, storage, configuration
    <state>/slurm/                    the lab's Slurm: drains, jobs

A view is only ever valid for the events before it: under the node's lock it is taken away first, then the event is
written, then the new view is put in place. Killed in between, there is no view, and a tool renders from the events.
"""

from __future__ import annotations

import os
import sys
import time

from model.base import LabError, append_line, dumps, loads, noise, read_records, read_text, write_all, write_atomic
from model.kinds import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as a whole program of the lab may
    from typing import Any

LAB_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = "cluster"


def find_state() -> str:
    """The state folder: $BURNIN_LAB, or the newest results/*/lab under the current folder."""
    path = os.environ.get("BURNIN_LAB", "")
    if path:
        return os.path.abspath(path)
    newest, newest_time = None, -1.0
    try:
        campaigns = sorted(os.listdir("results"))
    except OSError:
        campaigns = []
    for campaign in campaigns:
        candidate = os.path.join("results", campaign, "lab")
        try:
            changed = os.stat(os.path.join(candidate, "scenario.json")).st_mtime
        except OSError:
            continue
        if changed > newest_time:
            newest, newest_time = candidate, changed
    if newest is None:
        raise LabError("lab: set BURNIN_LAB to the lab's state folder, or run this where results/<campaign>/lab is")
    return os.path.abspath(newest)


def scenario_path(text: str) -> str:
    """A scenario given by path or by the name of a file in lab/scenarios."""
    if "/" not in text and not text.endswith((".yaml", ".yml")):
        return os.path.join(LAB_FOLDER, "scenarios", text + ".yaml")
    return os.path.abspath(text)


class Lock:
    """An exclusive lock on a file, released when its holder ends, however it ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1

    def __enter__(self) -> None:
        import fcntl

        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def __exit__(self, *_ignored: object) -> None:
        os.close(self.fd)


class Lab:
    """One simulated cluster."""

    def __init__(self, folder: str, data: dict[str, Any]) -> None:
        self.folder = folder
        self.nodes: list[str] = data["nodes"]
        self.gpus: int = data["gpus_per_node"]
        self.seed: int = data["seed"]
        self.faults: list[dict[str, Any]] = data["faults"]
        self.created: float = data["created"]
        self.source: str = data["source"]
        self._events: dict[str, list[dict[str, Any]]] = {}

    # --- opening ---

    @classmethod
    def open(cls) -> Lab:
        """Find or make the state folder; LabError with a sentence when there is no usable scenario."""
        folder = find_state()
        wanted = os.environ.get("BURNIN_SCENARIO", "")
        source = scenario_path(wanted) if wanted else None
        data = cls._load(folder, source)
        if data is None:
            data = cls._compile(folder, source)
        return cls(folder, data)

    @staticmethod
    def _load(folder: str, source: str | None) -> dict[str, Any] | None:
        """The compiled scenario, if it is there and still that of the file."""
        text = read_text(os.path.join(folder, "scenario.json"))
        if text is None:
            return None
        try:
            data: dict[str, Any] = loads(text)  # type: ignore[assignment]  # written by us
        except ValueError:
            return None
        if source is None:
            return data
        try:
            status = os.stat(source)
        except OSError:
            raise LabError(f"lab: the scenario {source} does not exist") from None
        if (data["source"], data["mtime_ns"], data["size"]) == (source, status.st_mtime_ns, status.st_size):
            return data
        return None

    @classmethod
    def _compile(cls, folder: str, source: str | None) -> dict[str, Any]:
        """Compile the scenario into the state folder (by one process; the others wait for it)."""
        try:
            os.makedirs(os.path.join(folder, "nodes"), exist_ok=True)
            os.makedirs(os.path.join(folder, CLUSTER), exist_ok=True)
            os.makedirs(os.path.join(folder, "slurm", "running"), exist_ok=True)
        except OSError as problem:
            raise LabError(f"lab: the state folder {folder} cannot be made: {problem}") from None
        with Lock(os.path.join(folder, ".lock")):
            data = cls._load(folder, source)
            if data is not None:
                return data
            if sys.flags.no_site:
                # The programs start without site-packages, for speed; this once they are needed.
                import site

                site.main()
            from model.compile import compile_scenario

            fresh = compile_scenario(source or scenario_path("tickets"))
            old: Any = None
            try:
                old = loads(read_text(os.path.join(folder, "scenario.json")) or "")
            except ValueError:
                old = None
            fresh["created"] = old["created"] if isinstance(old, dict) else round(time.time(), 3)
            for node in fresh["nodes"]:
                os.makedirs(os.path.join(folder, "nodes", node), exist_ok=True)
            lab = cls(folder, fresh)
            if isinstance(old, dict):
                for node in fresh["nodes"]:
                    with Lock(os.path.join(folder, "nodes", node, ".lock")):
                        lab.take_view_away(node)
            for node in fresh["nodes"]:
                lab._set_acts(node)
            write_atomic(os.path.join(folder, "scenario.json"), dumps(fresh) + "\n")
            return fresh

    # --- events ---

    def place(self, owner: str) -> str:
        """The folder of a node, or of the cluster."""
        return os.path.join(self.folder, CLUSTER) if owner == CLUSTER else os.path.join(self.folder, "nodes", owner)

    def events(self, owner: str, fresh: bool = False) -> list[dict[str, Any]]:
        """What happened to a node (or to the cluster), oldest first."""
        if fresh or owner not in self._events:
            self._events[owner] = read_records(os.path.join(self.place(owner), "events"))
        return self._events[owner]

    def record(self, owner: str, **event: object) -> None:
        """Write an event, and bring what the tools of that node print up to date."""
        if owner == CLUSTER:
            append_line(os.path.join(self.place(owner), "events"), event)
            self._events.pop(owner, None)
            return
        with Lock(os.path.join(self.place(owner), ".lock")):
            changed = self._changed_views(event)
            had = bool(changed) and self.take_view_away(owner)
            append_line(os.path.join(self.place(owner), "events"), event)
            self._events.pop(owner, None)
            if changed:
                self._publish(owner, changed if had else ("",))
            if event.get("e") == "repair":
                self._set_acts(owner)

    def _changed_views(self, event: dict[str, object]) -> tuple[str, ...]:
        """How the names of the views begin or end that an event changes; ("",) = all of them."""
        if event.get("e") != "fault":
            return ("",)
        for fault in self.faults:
            if fault["id"] == event.get("id"):
                if fault["kind"] in ("link_degrading", "link_flap", "transceiver_hot"):
                    return ("dmesg", "-" + fault["part"])
                return {
                    "hang": ("dmesg",),
                    "node_crash": (),
                    "nan_loss": (),
                    "straggler": (),
                    "silent_data_corruption": (),
                    "nccl_on_sockets": (),
                }.get(fault["kind"], ("",))
        return ()

    def owner(self, fault: dict[str, Any]) -> str:
        """Whose events tell about this fault."""
        return fault["node"] or CLUSTER

    def repaired(self, fault: dict[str, Any]) -> bool:
        """Whether the technician was there."""
        return any(
            e.get("e") == "repair" and fault["id"] in e.get("faults", ()) for e in self.events(self.owner(fault))
        )

    def has_shown(self, fault: dict[str, Any]) -> bool:
        """Whether it was seen at least once, or was there from power-on."""
        return fault["static"] or any(
            e.get("e") == "fault" and e.get("id") == fault["id"] for e in self.events(self.owner(fault))
        )

    def open_faults(self, node: str | None = None) -> list[dict[str, Any]]:
        """Faults not repaired yet (of one node)."""
        return [f for f in self.faults if (node is None or f["node"] == node) and not self.repaired(f)]

    def noise(self, *keys: object) -> float:
        """Seeded noise of this scenario."""
        return noise(self.seed, *keys)

    # --- views ---

    def _set_acts(self, node: str) -> None:
        from model.faults import OWN_PROCESS

        path = os.path.join(self.place(node), "acts")
        if any(f["kind"] in OWN_PROCESS for f in self.open_faults(node)):
            write_atomic(path, "")
        else:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def take_view_away(self, node: str) -> bool:
        """Under the node's lock: no tool may print the old view any more. Whether there was one (now in view.old)."""
        view = os.path.join(self.place(node), "view")
        _remove(f"{view}.old")
        try:
            os.rename(view, f"{view}.old")
        except FileNotFoundError:
            return False
        return True

    def _publish(self, node: str, changed: tuple[str, ...] = ("",)) -> None:
        """Under the node's lock: render what changed, take over the rest from the view just taken away."""
        from model.render import views

        view = os.path.join(self.place(node), "view")
        fresh = f"{view}.new"
        _remove(fresh)  # left by a process killed while it wrote
        os.mkdir(fresh)
        if changed != ("",):
            for name in os.listdir(f"{view}.old"):
                if not name.startswith(changed) and not name.endswith(changed):
                    os.rename(os.path.join(f"{view}.old", name), os.path.join(fresh, name))
        for name, text in views(self, node, changed).items():
            fd = os.open(os.path.join(fresh, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            write_all(fd, text.encode())
            os.close(fd)
        os.rename(fresh, view)
        _remove(f"{view}.old")

    def ensure_view(self, node: str) -> None:
        """Put the view in place if it is not."""
        if os.path.isdir(os.path.join(self.place(node), "view")):
            return
        with Lock(os.path.join(self.place(node), ".lock")):
            if not os.path.isdir(os.path.join(self.place(node), "view")):
                self._events.pop(node, None)
                self._publish(node)

    def this_node(self) -> str:
        """The node that this process stands for; LabError when it is none."""
        name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        if name not in self.nodes:
            short = name.split(".")[0]
            if short in self.nodes:
                return short
            raise LabError(
                f"lab: {name} is no node of the simulated cluster (set SLURMD_NODENAME, or use srun or pdsh)"
            )
        return name


def _remove(folder: str) -> None:
    """Delete a folder of files, if it is there."""
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except FileNotFoundError:
        pass


def sticks(fault: dict[str, Any]) -> bool:
    """Whether the fault, once shown, is there for everything that follows."""
    return KINDS[fault["kind"]].sticks
