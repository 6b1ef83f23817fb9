# SPDX-License-Identifier: Apache-2.0
"""People are told once, and nothing about telling them can harm a campaign."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from burnin import cli, publishing, storage
from burnin.campaign import Campaign
from click.testing import CliRunner

from tests import live

HOOK = """import json, sys
document = json.load(sys.stdin)
open({path!r}, "a").write(json.dumps(document) + "\\n")
"""


def world(tmp_path: Path, command: list[str] | None = None, **changes: Any) -> tuple[Campaign, Path]:
    """Return a campaign of which one node failed, and the file into which its notify command writes."""
    heard = tmp_path / "heard.jsonl"
    script = tmp_path / "hook.py"
    script.write_text(HOOK.format(path=str(heard)))
    notify = {
        "command": command or [sys.executable, str(script)], "timeout_seconds": 10, "stall_minutes": 60,
        "look_every_seconds": 60, "events": ["drop_out", "step_done", "campaign_done", "stopped", "hang", "stall"],
    } | changes  # fmt: skip
    found = live.campaign(
        tmp_path / "results", "dgx[01-02]", 0, notify=notify, metrics=str(tmp_path / "m" / "burnin.prom")
    )
    (tmp_path / "m").mkdir()
    gate = live.gate_of(found, found.projection()[0][0], findings=[live.finding("dgx02", "single", "hpl")])
    gate["outcome"]["dgx02"] = "failed"
    gate["passed"].pop("dgx02")
    found.write_gate(gate)
    return found, heard


def publish(found: Campaign) -> list[str]:
    """Publish; return what was said in the log."""
    said: list[str] = []
    publishing.publish(found, said.append)
    return said


def test_each_fact_is_told_once_with_a_valid_document(tmp_path: Path) -> None:
    found, heard = world(tmp_path)
    assert publish(found) == []
    documents = [json.loads(line) for line in heard.read_text().splitlines()]
    for document in documents:
        storage.check(document, "event", "told")
    assert [d["event"] for d in documents] == ["drop_out", "step_done"]
    assert documents[0]["items"][0]["part"] == "gpu5" and documents[0]["text"].startswith("burnin t: dgx02 dropped out")
    # a head that starts again, or looks again, tells nothing a second time
    assert publish(Campaign(found.config)) == [] and len(heard.read_text().splitlines()) == 2
    assert [r["state"] for r in publishing.records(found)] == ["intent", "told"] * 2
    assert "burnin_nodes" in (tmp_path / "m" / "burnin.prom").read_text()
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["burnin.prom"]


def test_a_command_that_fails_is_said_recorded_and_tried_again_later(tmp_path: Path) -> None:
    found, _ = world(tmp_path, [sys.executable, "-c", "import sys; sys.exit('no\\x1b[31m route')"])
    said = publish(found)
    assert len(said) == 2 and "ended with status 1: no?[31m route" in said[0]
    states = [r["state"] for r in publishing.records(found)]
    assert states == ["intent", "failed"] * 2
    assert publish(found) == []  # not before a minute is over
    assert 'burnin_notifications_failed{campaign="t"} 2' in (tmp_path / "m" / "burnin.prom").read_text()


def test_a_command_that_hangs_is_killed_with_its_children_and_asked_once(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    script = f"import subprocess, time; subprocess.Popen(['sh', '-c', 'sleep 2; touch {alive}']); time.sleep(60)"
    found, _ = world(tmp_path, [sys.executable, "-c", script], timeout_seconds=1)
    begin = time.monotonic()
    said = publish(found)
    assert time.monotonic() - begin < 8
    assert len(said) == 1 and "took longer than 1 s" in said[0]
    time.sleep(2.2)
    assert not alive.exists()


@pytest.mark.parametrize("command", [["/no/such/hook"], ["/etc/passwd"], ["x\0y"]])
def test_a_command_that_cannot_be_started_harms_nothing(tmp_path: Path, command: list[str]) -> None:
    found, _ = world(tmp_path, command)
    said = publish(found)
    assert said and "could not be started" in said[0]


def test_a_command_that_reads_nothing_or_leaves_something_behind_blocks_nobody(tmp_path: Path) -> None:
    found, _ = world(tmp_path, ["sh", "-c", "sleep 30 & exit 0"])
    begin = time.monotonic()
    assert publish(found) == [] and time.monotonic() - begin < 8


def test_nothing_is_sent_if_it_cannot_be_recorded_and_nothing_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, heard = world(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "append_line", full)
    said = publish(found)
    assert len(said) == 1 and "No space left" in said[0] and not heard.exists()


def test_a_head_killed_while_it_tells_does_not_tell_again(tmp_path: Path) -> None:
    found, heard = world(tmp_path)
    storage.append_line(
        found.dir / publishing.RECORD,
        json.dumps({"key": "drop_out:single/heat0:dgx02", "state": "intent", "time": 1.0}),
    )
    publish(found)
    assert [json.loads(line)["event"] for line in heard.read_text().splitlines()] == ["step_done"]


def test_nobody_is_told_by_default_and_nothing_is_written(tmp_path: Path) -> None:
    found, heard = world(tmp_path)
    document = {k: v for k, v in found.config.document.items() if k not in ("notify", "metrics")}
    publish(Campaign(type(found.config)(document, found.config.root)))
    assert not heard.exists() and not (found.dir / publishing.RECORD).exists()


def test_the_commands(tmp_path: Path) -> None:
    found, heard = world(tmp_path)
    done = CliRunner().invoke(cli.cli, ["notify", str(found.dir), "--test"])
    assert "the test was told" in done.output
    assert json.loads(heard.read_text())["event"] == "test" and not (found.dir / publishing.RECORD).exists()
    assert CliRunner().invoke(cli.cli, ["status", str(found.dir), "--metrics"]).output.startswith("burnin: wrote ")
    CliRunner().invoke(cli.cli, ["why-stopped", str(found.dir)])
    assert [json.loads(line)["event"] for line in heard.read_text().splitlines()] == [
        "test",
        "drop_out",
        "step_done",
        "stopped",
    ]


def test_two_at_once_tell_once(tmp_path: Path) -> None:
    found, heard = world(tmp_path)
    both = [
        subprocess.Popen([sys.executable, "-m", "burnin", "notify", str(found.dir)], stderr=subprocess.PIPE)
        for _ in (1, 2)
    ]
    assert [p.communicate(timeout=60)[1] for p in both] == [b"", b""]
    assert len(heard.read_text().splitlines()) == 2
