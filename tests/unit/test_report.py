# SPDX-License-Identifier: Apache-2.0
"""The acceptance report: what stands in it, that nothing in it is markup that should be text, that its links hold."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import hashlib
import json
import re
import shutil
import urllib.parse
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib
import pytest
from burnin import simulate
from burnin.campaign import Campaign
from burnin.cli import cli
from burnin.config import from_file
from burnin.errors import CampaignError
from burnin.report import facts as of
from burnin.report import page, sections, svg, table, words
from burnin.report.collect import collect
from burnin.report.facts import Facts
from burnin.report.sections import nodes as matrix
from burnin.report.sections import records, scope, speed
from burnin.report.sections.view import View
from burnin.report.write import write
from click.testing import CliRunner

from benchmarks import bench_report

FEW = {"nccl": 8, "hpl": 4, "nemo": 2, "diag": 1}
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)> & {{ 7*7 }} '"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a campaign of 16 nodes: one fault of each kind, two of them repaired."""
    made = bench_report.build(tmp_path_factory.mktemp("report"), 16, iterations=FEW)
    write(made)
    return made


@pytest.fixture(scope="module")
def facts(folder: Path) -> Facts:
    return collect(folder, made=bench_report.BEGIN)


def parsed(text: str) -> ElementTree.Element:
    """Return the page as a tree; a parse error of any kind fails."""
    tree: ElementTree.Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return tree


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def section(tree: ElementTree.Element, anchor: str) -> ElementTree.Element:
    found = tree.find(f".//section[@id='{anchor}']")
    assert found is not None, anchor
    return found


# ---------------------------------------------------------------------------------------------------------- the page


def test_the_page_is_valid_and_stands_alone(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    tree = parsed(text)
    assert tree.findall(".//script") == [] and tree.findall(".//link") == []
    outside = [a for e in tree.iter() for a in (e.get("src"), e.get("href")) if a and re.match(r"[a-z]+:|//", a)]
    assert outside == [] and "url(" not in text and "@import" not in text
    anchors = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(anchors) == len(set(anchors)), "an anchor twice"
    for link in (e.get("href") for e in tree.iter("a")):
        assert link and (link.startswith("./") or link[1:] in anchors), link
    assert len(text) < 1_000_000


def test_all_that_a_reader_asks_for_is_there(folder: Path) -> None:
    tree = parsed((folder / "report.html").read_text(encoding="utf-8"))
    verdict = text_of(section(tree, "verdict"))
    assert "13 of 16 nodes accepted; 3 failed" in verdict and "acceptance.failed_nodes_allowed" in verdict
    assert "Rejected, because 3 nodes are not accepted" in verdict
    assert "550.90.07 on dgx03" in text_of(section(tree, "scope")) and "12 h in single" in text_of(
        section(tree, "scope")
    )
    criteria = text_of(section(tree, "criteria"))
    assert (
        "They were not changed after results existed" in criteria
        and "spread.tolerance" in criteria
        and "5.0 %" in criteria
    )
    assert "site, 2026-11-30" in criteria and "fabric_ber" in criteria
    assert "outliers: dgx05" in text_of(section(tree, "hpl")).lower() and "Limit from peers" in text_of(
        section(tree, "nccl")
    )
    assert "Last loss" in text_of(section(tree, "nemo")) and "Checkpoints" in text_of(section(tree, "nemo"))
    heat = text_of(section(tree, "temperatures"))
    assert "hw thermal slowdown" in heat and "88 °C" in heat
    assert "mlx5_3" in text_of(section(tree, "links")) and "128 ports of 16 nodes" in text_of(section(tree, "links"))
    assert "100.0 %" in text_of(section(tree, "halves")) and "✓ yes" in text_of(section(tree, "resume"))
    assert "✕ no" not in text_of(section(tree, "resume"))
    course = text_of(section(tree, "course"))
    assert ("new cable on mlx5_3 (by technician)" in course and "NODE_FAIL" in course) or "xid" in course
    assert "For the customer" in text_of(section(tree, "signoff")) and "SHA-256" in text_of(section(tree, "records"))
    for anchor in ("nccl", "hpl", "nemo", "temperatures", "resume", "course"):
        drawn = section(tree, anchor).findall(".//{http://www.w3.org/2000/svg}svg") or section(tree, anchor).findall(
            ".//svg"
        )
        assert drawn, f"no plot in {anchor}"
        assert all(len(list(plot.iter())) > 12 for plot in drawn), f"an empty plot in {anchor}"


def test_a_failure_is_told_with_its_evidence_its_fix_and_how_sure_it_is(folder: Path) -> None:
    tree = parsed((folder / "report.html").read_text(encoding="utf-8"))
    cards = {text_of(c.find("h3")): text_of(c) for c in section(tree, "failures").findall("article")}
    (fan,) = (text for title, text in cards.items() if title.startswith("dgx02: FAN6 does not turn"))
    assert "repaired, and accepted since" in fan and "FAN6: replaced FAN6 (by technician" in fan
    assert "attempt0/probe-after/dgx02.txt:1668" in fan and "| 0 RPM" in fan and "certain" in fan
    (xid,) = (text for title, text in cards.items() if title.startswith("dgx10: gpu5 fell off the bus"))
    assert "not repaired" in xid and "reseat or replace the GPU" in xid and "NVRM: Xid (PCI:0000:c3:00): 79" in xid
    (slow,) = (text for title, text in cards.items() if title.startswith("dgx05"))
    assert "limit 408" in slow.replace(",", "") and "GFLOPS" in slow and "peers" in slow


def test_every_link_leads_to_a_file_and_every_quoted_line_is_there(folder: Path) -> None:
    tree = parsed((folder / "report.html").read_text(encoding="utf-8"))
    links = [(e.get("href") or "", text_of(e)) for e in tree.iter("a")]
    files = [(urllib.parse.unquote(href), text) for href, text in links if href.startswith("./")]
    assert len(files) > 10
    for href, text in files:
        target = folder / href
        assert target.exists(), href
        if m := re.search(r":(\d+)$", text):
            assert target.is_file() and len(target.read_text(encoding="utf-8").splitlines()) >= int(m[1]), text
    for quote in (e for e in tree.iter("div") if e.get("class") == "quote"):
        place, code = quote.find("a"), quote.find("code")
        if place is not None and code is not None:
            path, _, line = text_of(place).rpartition(":")
            assert (folder / path).read_text(encoding="utf-8").splitlines()[int(line) - 1].strip() == code.text


def test_evidence_that_was_compressed_is_linked_and_quoted_all_the_same(tmp_path: Path, folder: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    (plain,) = copied.glob("x4/heat0/nemo/*/attempt0/probe-after/dgx10.txt")
    with gzip.open(f"{plain}.gz", "wb") as stream:
        stream.write(plain.read_bytes())
    plain.unlink()
    text = page.render(collect(copied))
    assert f'href="./{plain.relative_to(copied)}.gz"' in text and "NVRM: Xid (PCI:0000:c3:00): 79" in text


def test_runs_that_look_for_a_fault_are_no_peers(facts: Facts) -> None:
    view = View(facts)
    isolating = [r for r in facts.runs if view.isolates(r)]
    assert {r.step for r in isolating} == {"x8"}
    peers = speed.complete(view, "x8", "nccl", "all_reduce")
    assert peers and not any(view.isolates(r) for r in peers) and {len(r.nodes) for r in peers} == {8}


def test_baselines_and_other_workloads_have_their_place(facts: Facts) -> None:
    config = json.loads(json.dumps(facts.config))
    config["criteria"]["baselines"] = [
        {"workload": "nccl", "command": "all_reduce", "nodes": 2, "value": 373.0, "unit": "GB/s", "band": 0.05, "origin": "validation",
         "date": "2026-11-10", "n": 12},
    ]  # fmt: skip
    config["workloads"].append("squad")
    item = simulate.iteration(0, "squad", 91.2, unit="%", facts={"exact_match": 84.1})
    command = next(iter(config["workload_definitions"]["squad"]["commands"]))
    result = simulate.result("single", 0, "squad", "dgx01", ["dgx01"], iterations=[item | {"command": command}])
    more = dataclasses.replace(facts, config=config, runs=[*facts.runs, of.run_facts(result)])
    tree = parsed(page.render(more))
    assert "91.2" in text_of(section(tree, "squad")) and "Median, %" in text_of(section(tree, "squad"))
    nccl = text_of(section(tree, "nccl"))
    assert "373, at most 5 % worse (validation, 2026-11-10)" in nccl and "baseline 373" in nccl
    assert "median of 12 values" in text_of(section(tree, "criteria"))


def test_what_comes_from_logs_configs_and_names_is_text(facts: Facts) -> None:
    hostile = copy.deepcopy(
        {f.name: getattr(facts, f.name) for f in dataclasses.fields(facts) if f.name not in ("quote", "link")}
    )
    config: Any = json.loads(json.dumps(hostile["config"]))
    hostile["config"] = config
    config["workload_definitions"]["nccl"]["commands"] = {"all_reduce": HOSTILE, HOSTILE: HOSTILE}
    config["scenario"] = config["hcas"] = config["criteria"]["source"] = HOSTILE
    summary = hostile["summary"] = json.loads(json.dumps(hostile["summary"]))
    summary["campaign"] = HOSTILE
    summary["nodes"]["dgx10"] |= {"reason": HOSTILE, "next_action": HOSTILE, "part": HOSTILE, "fault": HOSTILE}
    summary["links"] = [{"between": [["dgx01"], ["dgx02"]], "fault": HOSTILE, "reason": HOSTILE, "evidence": [HOSTILE]}]
    events = hostile["events"] = json.loads(json.dumps(hostile["events"]))
    for event in events:
        for found in event.get("findings", []):
            found |= {"reason": HOSTILE, "quote": HOSTILE, "evidence": [f"javascript:{HOSTILE}:1"], "part": HOSTILE}
        if "repair" in event:
            event["repair"] |= {"fix": HOSTILE, "by": HOSTILE, "part": HOSTILE}
        event.setdefault("notes", []).append(f"nccl: {HOSTILE}")
    hostile["preflight"]["stack"][HOSTILE] = HOSTILE
    hostile["unreadable"] = [HOSTILE]
    hostile["campaign"] = HOSTILE
    made = Facts(**hostile, quote=lambda place: HOSTILE, link=lambda place: f"javascript:{HOSTILE}")
    tree = parsed(page.render(made))
    assert not [e.tag for e in tree.iter() if e.tag in ("script", "img", "iframe")]
    assert not [a for e in tree.iter() for a in e.attrib if a.startswith("on")]
    assert all((e.get("href") or "").startswith(("./", "#")) for e in tree.iter("a"))
    assert "<script>alert(1)</script>" in "".join(tree.itertext()) and "{{ 7*7 }}" in "".join(tree.itertext())


def test_the_same_facts_make_the_same_page(facts: Facts) -> None:
    assert page.render(facts) == page.render(facts)


def test_urls_are_relative_whatever_a_file_is_called() -> None:
    assert page.urlpath("javascript:alert(1)") == "./javascript%3Aalert%281%29"
    assert page.urlpath("a b/ü?x#y") == "./a%20b/%C3%BC%3Fx%23y"
    assert page.urlpath("#failure-dgx01") == "#failure-dgx01"


# ------------------------------------------------------------------------------------------------------------ in parts


def test_nodes_that_are_alike_share_a_row(facts: Facts) -> None:
    names = [f"n{i:04d}" for i in range(1024)]
    entry = {"status": "accepted", "failed_step": None, "failed_workload": None, "part": None, "fault": None, "reason": None,
             "evidence": [], "next_action": None, "repairs": [], "hours": {"single": {"nccl": 12.0}}}  # fmt: skip
    of_nodes = {n: dict(entry) for n in names}
    of_nodes["n0007"] |= {"status": "failed", "failed_step": "single", "failed_workload": "nccl", "part": "gpu1", "fault": "gpu_slow",
                          "hours": {}}  # fmt: skip
    outcome = {n: of_nodes[n]["status"].replace("accepted", "passed") for n in names}
    gate = {"step": "single", "heat": 0, "outcome": outcome, "passed": {n: ["nccl"] for n in names if n != "n0007"}, "owes": {},
            "findings": [{"scope": "node", "node": "n0007", "workload": "nccl", "reason": "slow", "step": "single", "heat": 0,
                          "group": "n0007"}],
            "suspects": [], "groups": {n: [n] for n in names}, "withdrawn": {}, "links": [], "notes": [], "criteria": "c"}  # fmt: skip
    plan = {"groups": {n: {"nodes": [n], "workloads": ["nccl"]} for n in names}}
    many = dataclasses.replace(
        facts, nodes=names, steps={"single": ("nccl",)}, events=[gate], plans={("single", 0): plan},
        summary={**facts.summary, "nodes": of_nodes}, runs=[], sensors={},
    )  # fmt: skip
    made = matrix.matrix(View(many))
    assert [row[0].text for row in made.rows] == ["n0007", "n[0000-0006,0008-1023]"]
    assert [row[1].text for row in made.rows] == ["1", "1,023"] and [row[3].text for row in made.rows] == ["✕", "✓"]
    few = matrix.matrix(View(dataclasses.replace(many, nodes=names[:8])))
    assert len(few.rows) == 8 and "Count" not in few.head


def test_changed_criteria_are_told_with_what_became_different(tmp_path: Path) -> None:
    made = bench_report.build(tmp_path, 2, faults=[], iterations=FEW)
    campaign = Campaign(from_file(made))
    document = json.loads(json.dumps(campaign.config.document))
    document["criteria"]["spread"]["nccl"]["tolerance"] = 0.25
    (changed := Campaign(dataclasses.replace(campaign.config, document=document))).begin()
    gate = json.loads(json.dumps(campaign.load(campaign.gate_path("single", 0), "gate")))
    first = {**gate, "outcome": {**gate["outcome"], "dgx1": "owes"}, "criteria": "0123456789abcdef"}
    for version in (first, {**gate, "criteria": changed.config.criteria_digest}):
        changed.write_gate(version)
    found = collect(made)
    told = sections.build(found)
    criteria = next(s for s in told if s.anchor == "criteria")
    words_of = repr(criteria)
    assert "changed after results existed" in words_of and "spread.tolerance nccl" in words_of
    assert "'5.0 %'" in words_of and "'25 %'" in words_of
    assert "changed after results existed" in repr(told[0])
    # what an earlier version said is not what the last one says: the first kept version of all had dgx1 passed
    before = dataclasses.replace(found, versions={("single", 0): found.versions["single", 0][1:]})
    assert "owes" in repr(scope.criteria(View(before)))


def test_a_campaign_in_progress_has_a_report_too(tmp_path: Path) -> None:
    made = bench_report.build(tmp_path, 4, faults=[], iterations=FEW, heats=1)
    campaign = Campaign(from_file(made))
    campaign.make_plan("x2", 0, "")
    (made / "summary.json").unlink()
    done = CliRunner().invoke(cli, ["report", str(made)], catch_exceptions=False)
    assert done.exit_code == 0 and "report.html" in done.output
    assert not (made / "summary.json").exists(), "a report writes nothing but itself"
    tree = parsed((made / "report.html").read_text(encoding="utf-8"))
    assert "NOT OVER" in text_of(tree.find(".//header")) and "there is no verdict yet" in text_of(
        section(tree, "verdict")
    )
    assert "not started" in text_of(section(tree, "course")) and "It has not been run" in text_of(
        section(tree, "resume")
    )
    assert {r.state for r in collect(made).runs} == {"complete"} and len(collect(made).open_runs) == 6


def test_a_campaign_that_stopped_says_why_and_what_to_do(facts: Facts) -> None:
    stop = {"kind": "oom_all_nodes", "text": "out of memory on all nodes.", "cure": "make the batch smaller"}
    summary = {**facts.summary, "verdict": "running", "stopped": stop, "steps_not_possible": ["x8"]}
    told = text_of(section(parsed(page.render(dataclasses.replace(facts, summary=summary, preflight=None))), "verdict"))
    assert "stopped (oom_all_nodes): out of memory on all nodes. What to do: Make the batch smaller." in told
    assert "Step x8 could not be run" in told and "No preflight was made" in told


def test_nodes_without_gpus_and_fabric_and_a_campaign_before_its_first_run(tmp_path: Path) -> None:
    bare = {
        "workloads": ["hpl"],
        "gpus_per_node": 0,
        "hcas": "",
        "resume_test": {"workload": None, "steps_after_checkpoint": 5},
    }
    write(bench_report.build(tmp_path / "cpu", 2, faults=[], iterations=FEW, **bare))
    tree = parsed((tmp_path / "cpu" / "simulated" / "report.html").read_text(encoding="utf-8"))
    assert "ACCEPTED" in text_of(tree.find(".//header")) and "GPUs in accepted nodes" not in text_of(
        section(tree, "verdict")
    )
    assert "Not part of this campaign" in text_of(section(tree, "resume"))
    write(bench_report.build(tmp_path / "empty", 2, faults=[], heats=0))
    empty = parsed((tmp_path / "empty" / "simulated" / "report.html").read_text(encoding="utf-8"))
    assert "2 running" in text_of(section(empty, "verdict")) and "No node failed." in text_of(
        section(empty, "failures")
    )


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    made = bench_report.build(tmp_path, 2, faults=[], iterations=FEW)
    whole = made / "single" / "heat0" / "nccl" / "dgx1" / "result.json"
    whole.write_text(whole.read_text(encoding="utf-8")[:2000], encoding="utf-8")
    (made / "single" / "heat0" / "hpl" / "dgx1" / "result.json").write_text("{}", encoding="utf-8")
    (made / "single" / "heat0" / "history" / "gate.0000.json").write_text("{", encoding="utf-8")
    found = collect(made)
    assert len(found.unreadable) == 3 and any(
        u.startswith("single/heat0/nccl/dgx1/result.json: ") for u in found.unreadable
    )
    text = text_of(parsed(page.render(found)))
    assert "3 files could not be read for this report" in text


def test_no_campaign_no_report(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="is no campaign"):
        write(tmp_path)


def test_the_hashes_are_those_of_the_files(folder: Path, facts: Facts) -> None:
    lines = (folder / "report.sha256").read_text(encoding="utf-8").splitlines()
    listed = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        listed[name] = digest
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert {"config.json", "single/heat0/gate.json", "single/heat0/plan.json", "repairs.jsonl"} <= set(listed)
    assert sum(name.endswith("result.json") for name in listed) == len(facts.runs)
    assert records.manifest_digest(facts) in page.render(facts)


def test_results_read_by_several_processes_are_the_same(
    folder: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnin.report.collect.MANY_BYTES", 0)
    again = collect(folder, made=bench_report.BEGIN)
    assert again.runs == facts.runs and again.sensors == facts.sensors and again.manifest == facts.manifest


# -------------------------------------------------------------------------------------------------------------- pieces


def test_a_thinned_series_keeps_every_dip_and_peak() -> None:
    points = [(float(i), 100.0) for i in range(1000)]
    points[333] = (333.0, 20.0)
    points[700] = (700.0, 180.0)
    thinned = of.thin(points)
    assert len(thinned) <= of.MOST_POINTS and (333.0, 20.0) in thinned and (700.0, 180.0) in thinned
    assert thinned == sorted(thinned) and of.thin(points[:10]) == points[:10]


def test_a_counter_that_was_not_there_at_first_was_zero(folder: Path) -> None:
    probe = {"tools": {"mlxlink:mlx5_3": "pass"}, "problems": []}
    base = {"step": "x2", "heat": 0, "workload": "nccl", "group": "g"}
    seen = {
        "kind": "link_down_count",
        "device": "mlx5_3",
        "value": 2.0,
        "file": "p.txt",
        "line": 7,
        "node": "n1",
        "when": "after",
    }
    known: dict[str, of.Sensors] = {}
    probes = {w: {"n1": {**probe, "time": t}} for w, t in (("before", 10.0), ("after", 20.0))}
    of.add_sensors(known, {**base, "probes": probes, "signals": [seen]})
    counter = known["n1"].counters["mlx5_3", "link_down_count"]
    assert known["n1"].first_look == 10.0 and (counter.first_time, counter.last, counter.most) == (20.0, 2.0, 2.0)
    other: dict[str, of.Sensors] = {}
    later = {w: {"n1": {**probe, "time": t}} for w, t in (("before", 30.0), ("after", 40.0))}
    of.add_sensors(other, {**base, "probes": later, "signals": [{**seen, "value": 5.0, "when": "before"}]})
    merged = of.merge([known, other])["n1"]
    assert merged.counters["mlx5_3", "link_down_count"][:4] == (20.0, 2.0, 30.0, 5.0) and merged.looks == 4


def test_ticks_and_bounds_do_not_make_noise_look_like_a_fault() -> None:
    assert svg.ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] and svg.ticks(3.0, 3.0) == [3.0]
    low, high = svg.bounds([372.9, 373.1], 0.12)
    assert high - low > 0.12 * 373 and low < 372.9 < 373.1 < high
    assert svg.bounds([]) == (0.0, 1.0) and svg.bounds([5.0])[0] < 5.0 and svg.bounds([0.0, 1.0])[0] == 0.0


def test_names_in_plots_are_escaped() -> None:
    plot = svg.frame((0.0, 1.0), (0.0, 1.0), HOSTILE, HOSTILE)
    drawn = svg.draw(
        plot, svg.line(plot, [(0, 0), (1, 1)], "#000", HOSTILE), svg.names(plot, [(1, 1, HOSTILE)]), svg.level(plot, 0.5, HOSTILE),
        svg.dots(plot, [(0, 0, HOSTILE)], "#000"), title=HOSTILE,
    )  # fmt: skip
    tree = ElementTree.fromstring(drawn)
    assert not [e.tag for e in tree.iter() if e.tag in ("script", "img")] and "onerror" not in tree.attrib


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.65, "0.65 s"), (90, "90 s"), (600, "10 min"), (43200, "12 h"), (864000, "10 days"), (None, "–")],
)
def test_durations(seconds: float | None, told: str) -> None:
    assert words.duration(seconds) == told


def test_what_was_changed_in_the_config_is_named() -> None:
    versions = [{"a": 1, "b": {"c": [1], "d": {}}}, {"a": 2, "b": {"c": [1], "e": "x" * 500}}]
    assert scope.config_changes(versions[:1]) == []
    assert scope.config_changes(versions) == [("a", "1", "2"), ("b.d", "{}", "–"), ("b.e", "–", "x" * 200 + "…")]


def test_ranges_of_time() -> None:
    assert words.span(3600 * 12, 3600 * 12) == "12 h" and words.span(86400 * 15, 86400 * 16) == "15–16 days"
    assert words.span(600, 86400 * 4) == "10 min – 4 days"


def test_limits_have_their_unit() -> None:
    told = [
        scope.limit(n, u)
        for n, u in ((1, "GB/s"), (1, "nodes"), (2, "nodes"), (0.05, "fraction"), (0.9, "fraction"), (1e-12, "x"))
    ]
    assert told == ["1 GB/s", "1 node", "2 nodes", "5.0 %", "90 %", "1e-12 x"]
    assert scope.limit(["a", "b"], "") == "a, b" and scope.load(26000.4) == "26,000 node-hours"


def test_a_list_of_nodes_that_fills_a_page_is_told_by_its_ends() -> None:
    assert words.listed([f"n{i:03d}" for i in range(0, 200, 2)], 4) == "n000 … n198 (100 nodes)"
    assert words.listed(["n1", "n2"]) == "n[1-2]"


# ----------------------------------------------------------------------------------------------------- the other files


def test_the_table_has_a_row_for_every_node_step_and_workload(folder: Path, facts: Facts) -> None:
    import pandas

    frame = pandas.read_csv(folder / "summary.csv")
    assert list(frame.columns) == list(table.COLUMNS)
    expected = {(n, s, w) for n in facts.nodes for s, of_step in facts.steps.items() for w in of_step}
    assert {(r.node, r.step, r.workload) for r in frame.itertuples()} == expected
    single = frame[(frame.node == "dgx01") & (frame.step == "single")]
    assert set(single[single.workload == "nccl"].command) == set(bench_report.SPEED)
    assert single[single.workload == "hpl"].value.iloc[0] == pytest.approx(430000, rel=0.02)
    assert set(single[single.workload == "hpl"].unit) == {"GFLOPS"} and (single.outcome == "passed").all()
    slow = frame[(frame.node == "dgx05") & (frame.workload == "hpl") & (frame.step == "single")].iloc[0]
    assert (slow.outcome, slow.fault, slow.status) == (
        "failed",
        "gpu_slow",
        "failed",
    ) and "below the median" in slow.reason
    assert (frame[(frame.node == "dgx05") & (frame.step == "full")].outcome == "not run").all()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_no_cell_is_a_formula(facts: Facts, text: str) -> None:
    assert table.harmless(text).startswith("'") and table.harmless(f"dgx{text}") == f"dgx{text}".replace("\r", " ")
    assert table.harmless(-1.5) == -1.5 and table.harmless(None) is None
    summary = json.loads(json.dumps(facts.summary))
    summary["nodes"]["dgx05"] |= {"reason": text, "next_action": text}
    made = table.write(dataclasses.replace(facts, summary=summary))
    assert f",{text}," not in made and f',"{text}",' not in made


def test_junit_counts_what_failed_was_skipped_and_could_not_be_decided(folder: Path, facts: Facts) -> None:
    root = ElementTree.parse(folder / "junit.xml").getroot()
    suites = {s.get("name"): s for s in root.findall("testsuite")}
    assert list(suites) == list(facts.steps)
    single = suites["single"]
    assert (single.get("tests"), single.get("failures"), single.get("errors")) == ("48", "1", "0")
    (failed,) = [c for c in single if c.find("failure") is not None]
    assert (failed.get("classname"), failed.get("name")) == ("single.hpl", "dgx05")
    assert "next:" in (failed.find("failure").text or "")  # type: ignore[union-attr]
    for suite in suites.values():
        kinds = [child.tag for case in suite for child in case]
        assert suite.get("skipped") == str(kinds.count("skipped")) and suite.get("failures") == str(
            kinds.count("failure")
        )
    events = [{**facts.gates[0], "outcome": {**facts.gates[0]["outcome"], "dgx01": "owes"}, "passed": {},
               "owes": {"dgx01": {"cause": "inconclusive", "text": "bad \x00\x1b[31m\ufffe text <&>"}}}]  # fmt: skip
    from burnin.report import junit

    made = ElementTree.fromstring(junit.write(dataclasses.replace(facts, events=events)))
    error = made.find(".//testcase[@name='dgx01'][@classname='single.nccl']/error")
    assert error is not None and (error.get("message") or "").startswith("bad ��[31m� text <&>")
