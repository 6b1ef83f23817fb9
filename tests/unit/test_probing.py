# SPDX-License-Identifier: Apache-2.0
"""Probes of many nodes: read while the workload runs, kept compressed, and their lines found all the same."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from burnin import storage
from burnin.quotations import Files
from burnin.runs import journal
from burnin.runs.probing import ALONE, _folder
from burnin.runs.settle import Death, record_casualty

from tests.unit.test_runs import World

FAN = "FAN6_F           | 3Ah | {} | 29.6 | {} RPM\n"
#: Starts the script on every node, as srun would: one process a node, and one of them is not heard of again.
LAUNCH = "sh -c 'for n in $NODES; do SLURMD_NODENAME=$n \"$@\" & done; wait' launch"


#: A rack PDU that answers, one that does not, and a program that is not there.
ONCE = {"pdu": "echo PDU {nodelist} power: INTEGER: 3450", "dead": "sh -c 'echo 7; exit 4'", "none": "no-such-program"}


def names(count: int) -> list[str]:
    return [f"n{i:02d}" for i in range(1, count + 1)]


def world(
    folder: Path, count: int, per_day: int = 24, workload: str = "cat hpl.txt", mode: str = "act", launch: str = LAUNCH
) -> World:
    """Return a campaign of one group of several nodes whose probes read a file of each node."""
    for name in names(count):
        (folder / f"sdr-{name}").write_text(FAN.format("ok", 11760))
    watch = {
        "mode": mode,
        "probe_every_minutes": 0.02,
        "hang_factor": 5,
        "hang_first_seconds": 60,
        "hang_least_seconds": 60,
    }
    found = World(folder, workload, f"n[01-{count:02d}]", watch=watch)
    document = dict(found.campaign.config.document)
    document["probes"] = {
        "timeout_seconds": 20, "keep_per_day": per_day, "once": dict(ONCE), "launch": f"env NODES='{' '.join(names(count))}' {launch}",
        "commands": {"ipmi": f"sh -c 'cat {folder}/sdr-$SLURMD_NODENAME'"},
    }  # fmt: skip
    stored = found.campaign.dir / "config.json"
    whole = json.loads(stored.read_text())
    whole["config"]["probes"] = document["probes"]
    stored.write_text(json.dumps(whole))
    plan = json.loads((found.campaign.dir / "single/heat0/plan.json").read_text())
    (group,) = [g for n, g in plan["groups"].items() if n == "n01"]
    plan["groups"] = {"n01": {**group, "nodes": names(count), "owed": names(count)}}
    storage.write_json(found.campaign.dir / "single/heat0/plan.json", plan, "plan")
    found.result = found.campaign.result_path("single", 0, "hpl", "n01")
    return found


@pytest.mark.parametrize("count", [ALONE, ALONE + 12], ids=["alone", "with readers"])
def test_every_node_is_read_and_its_file_kept_compressed(tmp_path: Path, count: int) -> None:
    run = world(tmp_path, count)
    result = run.run()
    assert result["state"] == "complete"
    for when in ("before", "after"):
        probes = result["probes"][when]
        assert list(probes) == names(count) and all(p["tools"] == {"ipmi": "pass"} for p in probes.values())
        for name in names(count):
            path = run.result.parent / probes[name]["file"]
            assert not path.exists() and storage.stored(path) == path.with_name(f"{name}.txt.gz")
            assert FAN.format("ok", 11760).encode() in storage.read_raw(path)


def test_a_bad_node_among_many_stops_the_run_and_its_line_is_found(tmp_path: Path) -> None:
    run = world(tmp_path, 12, workload="sh -c 'sleep 20; cat hpl.txt'")
    (tmp_path / "sdr-n07").write_text("x\n" + FAN.format("cr", 0))
    result = run.run()
    assert result["state"] == "stopped" and "n07" in result["reason"]
    place = next(s for s in result["signals"] if s["kind"] == "fan_failed")
    evidence = f"{run.result.parent.relative_to(run.campaign.dir)}/{place['file']}:{place['line']}"
    files = Files(run.campaign.dir)
    assert "FAN6_F" in str(files.quote(evidence)), "through the compression"
    target = run.campaign.dir / evidence.rpartition(":")[0]
    assert not target.exists()
    storage.unpack(target)
    assert "FAN6_F" in target.read_text().splitlines()[place["line"] - 1]
    assert "FAN6_F" in str(files.quote(evidence))
    packed = target.with_name(target.name + ".gz")
    target.unlink()
    packed.write_bytes(packed.read_bytes()[:20])
    assert files.quote(evidence) is None, "a damaged file is not quoted"


def test_probes_during_a_run_go_on_over_iterations_and_say_only_what_is_new(tmp_path: Path) -> None:
    """Iterations shorter than the pause between two probes must not keep the probes away."""
    run = world(tmp_path, 3, per_day=2, workload="sh -c 'sleep 0.5; cat hpl.txt'")
    plan = run.campaign.dir / "single/heat0/plan.json"
    document = json.loads(plan.read_text())
    document["windows"]["hpl"] = {"iterations": 8}
    storage.write_json(plan, document, "plan")
    result = run.run()
    during = [w for w in result["probes"] if w.startswith("during-")]
    assert result["state"] == "complete" and len(during) >= 2
    kept = [p["file"] for w in during for p in result["probes"][w].values() if p["file"]]
    assert len(kept) == 3, "one file a node: with two a day, the next is due in 24 hours"
    assert all(storage.stored(run.result.parent / f) for f in kept)
    assert all(p["tools"] == {} for w in during for p in result["probes"][w].values()), "all passed"
    raw = [p for p in (run.result.parent / "attempt0").glob("probe-during-*/n*")]
    assert len(raw) == 3, "the others are gone after they were read"
    records = [r for r in run.records() if r["type"] == "probe" and r["when"].startswith("during-")]
    assert all(n["signals"] == [] for r in records for n in r["nodes"].values())


@pytest.mark.parametrize("dead", [False, True], ids=["the next start", "the head that declares it dead"])
def test_a_look_that_a_kill_kept_out_of_the_journal_is_taken_in(tmp_path: Path, dead: bool) -> None:
    """Its files may be compressed already, and one may be cut in the middle of the probe."""
    run = world(tmp_path, ALONE + 1, workload="sh -c 'sleep 2; cat hpl.txt'")
    plan = run.campaign.dir / "single/heat0/plan.json"
    document = json.loads(plan.read_text())
    document["windows"]["hpl"] = {"iterations": 1}
    storage.write_json(plan, document, "plan")
    first = next(w for w in run.run()["probes"] if w.startswith("during-"))
    attempt = run.result.parent / "attempt0"
    book = attempt / "journal.jsonl"
    lines = book.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if f'"when":"{first}"'.encode() in line)
    book.write_bytes(b"".join(lines[:at]))
    for path in (run.result, attempt / "result.json"):
        path.unlink()
    folder = attempt / f"probe-{first}"
    assert len([p for p in folder.iterdir() if p.name.startswith("n0")]) == ALONE + 1
    packed = folder / "n02.txt.gz"
    part = folder / ".n02.part"
    part.write_bytes(gzip.decompress(packed.read_bytes()).replace(b"ok", b"nc").partition(b"#@burnin end")[0])
    packed.unlink()
    (folder / ".n03.txt.gz.abcd").write_text("left by a kill in the middle of its writing")
    if dead:
        record_casualty(run.result, Death("NODE_FAIL", ["n01"], "node down", "17"))
    result = run.read() if dead else run.run()
    assert result["state"] == ("casualty" if dead else "complete") and len(result["iterations"]) <= 1
    probes = result["probes"][first]
    assert [n for n, p in probes.items() if p["tools"]] == ["n02"], "a look that is cut is no whole one"
    cut = next(s for s in result["signals"] if s["kind"] == "sensor_warning" and s["when"] == first)
    assert (cut["node"], cut["file"]) == ("n02", f"attempt0/probe-{first}/.n02.part")
    left = {p.name for p in folder.iterdir()}
    assert left == {"launch.log", ".n02.part.gz", *(f"{n}.txt.gz" for n in names(ALONE + 1) if n != "n02")} | {
        f"once-{n}.txt.gz" for n in ONCE
    }
    types = [r["type"] for r in run.records() if r["type"] in ("job", "probe")]
    assert types[:3] == ["job", "probe", "probe"] and types.count("job") == 1 + (not dead), "it is the old job's"
    site = next(r["site"] for r in run.records() if r.get("when") == first)
    assert all(entry["value"] is None and "before this probe was read" in entry["trouble"] for entry in site.values())


def test_what_a_file_said_that_is_not_kept_stands_in_the_journal(tmp_path: Path) -> None:
    run = world(tmp_path, 2, per_day=0, workload=f"sh -c 'cp {tmp_path}/bad {tmp_path}/sdr-n02; sleep 20; cat hpl.txt'")
    (tmp_path / "bad").write_text(FAN.format("cr", 0))
    result = run.run()
    assert result["state"] == "stopped"
    during = next(w for w in result["probes"] if w.startswith("during-"))
    found = next(s for s in result["signals"] if s["kind"] == "fan_failed" and s["when"] == during)
    assert result["probes"][during]["n02"] == {
        **result["probes"][during]["n02"],
        "file": None,
        "tools": {"ipmi": "fail"},
    }
    assert found["file"] == "attempt0/journal.jsonl"
    line = (run.result.parent / found["file"]).read_text().splitlines()[found["line"] - 1]
    assert "FAN6_F" in line and journal.parse(line.encode() + b"\n")[0][0]["when"] == during


def test_where_only_observed_a_finding_ends_no_run_and_the_gate_still_decides(tmp_path: Path) -> None:
    run = world(tmp_path, 2, mode="observe", workload="sh -c 'sleep 0.7; cat hpl.txt'")
    (tmp_path / "sdr-n02").write_text(FAN.format("cr", 0))
    result = run.run()
    assert result["state"] == "complete" and len(result["iterations"]) == 3
    gate = run.campaign.make_gate("single", 0, "test")
    assert gate["outcome"] == {"n01": "owes", "n02": "failed"} and gate["findings"][0]["fault"] == "fan_failed"


@pytest.mark.parametrize("trouble", ["exit 9", "sleep 100"], ids=["fails", "hangs"])
def test_a_watch_that_fails_while_a_run_goes_on_fails_nobody(tmp_path: Path, trouble: str) -> None:
    launch = f"sh -c 'case $3 in *during*) {trouble};; esac; for n in $NODES; do SLURMD_NODENAME=$n \"$@\" & done; wait' launch"
    run = world(tmp_path, 2, workload="sh -c 'sleep 0.7; cat hpl.txt'", launch=launch)
    stored = run.campaign.dir / "config.json"
    stored.write_text(stored.read_text().replace('"timeout_seconds": 20', '"timeout_seconds": 1'))
    result = run.run()
    assert result["state"] == "complete" and len(result["iterations"]) == 3
    during = [w for w in result["probes"] if w.startswith("during-")]
    assert during and all(p["tools"] == {"ipmi": "unknown"} for w in during for p in result["probes"][w].values())
    assert set(run.campaign.make_gate("single", 0, "test")["outcome"].values()) == {"passed"}


def test_a_probe_that_was_cut_leaves_nothing_that_the_next_takes_for_its_own(tmp_path: Path) -> None:
    first = _folder(tmp_path, "before")
    (first / "launch.log").write_text("srun: error\n")
    assert _folder(tmp_path, "before") == first, "nothing was launched: the same folder"
    (first / "n1.txt").write_text("old\n")
    assert _folder(tmp_path, "before") == tmp_path / "probe-before.1"


def test_compression_that_is_cut_at_any_step_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "n1.txt"
    path.write_text("one\ntwo\n")
    storage.compress(path)
    assert not path.exists() and gzip.decompress(storage.stored(path).read_bytes()) == b"one\ntwo\n"  # type: ignore[union-attr]
    path.write_text("one\ntwo\n")  # killed before the file was removed: both are there
    assert storage.stored(path) == path and storage.read_raw(path) == b"one\ntwo\n"
    with pytest.raises(OSError):
        storage.read_raw(tmp_path / "none.txt")
    assert subprocess.run(["gzip", "-t", f"{path}.gz"], check=False).returncode == 0


def test_what_the_site_asks_once_is_recorded_and_judged_by_nobody(tmp_path: Path) -> None:
    run = world(tmp_path, 2)
    result = run.run()
    assert result["state"] == "complete"
    assert [value for _, value in result["facts"]["site"]["pdu"]] == [3450.0, 3450.0] and set(
        result["facts"]["site"]
    ) == {"pdu"}
    site = next(r["site"] for r in run.records() if r["type"] == "probe")
    assert site["dead"]["trouble"] == "ended with status 4" and "could not be started" in site["none"]["trouble"]
    assert b"PDU n01,n02" in storage.read_raw(run.result.parent / site["pdu"]["file"])
    gate = run.campaign.make_gate("single", 0, "test")
    assert set(gate["outcome"].values()) == {"passed"}


def test_samples_of_dmon_are_whole_in_a_probe(tmp_path: Path) -> None:
    """Alone a record has no end mark; in a probe the tool's exit status is one."""
    from burnin import parsers

    from tests.unit.lab_bench import Bench

    text = Bench(tmp_path, "healthy").on("dgx03", "dcgmi", "dmon", "-e", "150,155,203,1002", "-d", "100", "-c", "2").out
    frames = ["#@burnin node dgx03 time 1 up 1.0", "#@burnin begin dcgmi-dmon dcgmi dmon -c 2", *text.splitlines()]
    reading = parsers.read_lines("probe", [*frames, "#@burnin end 0", "#@burnin finished"])
    assert reading.verdict == "pass" and {s.kind for s in reading.signals} == {"gpu_temperature", "gpu_power"}
    assert parsers.read_lines("probe", [*frames, "#@burnin finished"]).verdict == "unknown"
