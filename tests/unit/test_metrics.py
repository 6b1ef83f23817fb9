# SPDX-License-Identifier: Apache-2.0
"""Metrics follow the exposition format, whatever stands in names, and say what the campaign's files say."""

from __future__ import annotations

import re
from pathlib import Path

from burnin import metrics, status
from hypothesis import given
from hypothesis import strategies as st

from tests import live

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
LINE = re.compile(rf"[a-z_]+\{{{LABEL}(?:,{LABEL})*\}} -?[0-9.e+-]+")


def check(text: str) -> dict[str, list[str]]:
    """Return metric -> its lines; every line has the form, every metric is announced before its samples, once."""
    families: dict[str, list[str]] = {}
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families
            families[name] = []
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2:] == [name, "gauge"]
        else:
            assert LINE.fullmatch(line), line
            assert line.startswith(name + "{")
            families[name].append(line)
    assert all(families.values())
    return families


def test_a_campaign_in_the_middle(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    heat = found.projection()[0][0]
    gate = live.gate_of(found, heat, findings=[live.finding("dgx02", "single", "hpl")])
    gate["outcome"]["dgx02"] = "failed"
    gate["passed"]["dgx02"] = ["nccl"]
    gate["hours"] = {"dgx01": {"nccl": 12.0}, "dgx03": {"nccl": 12.5}}
    gate["measured"] = {
        "nccl": {"all_reduce": {"unit": "GB/s", "groups": 4, "least": 340.0, "median": 372.5, "most": 374.0}}
    }
    found.write_gate(gate)
    text = metrics.render(
        found.summary(), status.collect(found), found.config.document["workload_definitions"], 1.8e9, 2
    )
    families = check(text)
    for line in (
        'burnin_nodes{campaign="t",status="failed"} 1',
        'burnin_node_info{campaign="t",node="dgx02",status="failed",part="gpu5",fault="gpu_off_bus",step="single"} 1',
        'burnin_step_nodes{campaign="t",step="single",workload="hpl",state="passed"} 3',
        'burnin_step_done{campaign="t",step="single"} 1',
        'burnin_step_done{campaign="t",step="x2"} 0',
        'burnin_node_hours{campaign="t",step="single",workload="nccl"} 24.5',
        'burnin_busbw_gigabytes_per_second{campaign="t",step="single",workload="nccl",command="all_reduce",of_groups="least"} 340',
        'burnin_verdict{campaign="t",verdict="running"} 1',
        'burnin_notifications_failed{campaign="t"} 2',
    ):
        assert any(line in lines for lines in families.values()), line


@given(st.text(max_size=40))
def test_any_text_is_a_label(text: str) -> None:
    lines = metrics.family("burnin_x", "Help.", [({"node": text}, 1.0)])
    assert len(lines) == 3 and LINE.fullmatch(lines[2])
    value = re.fullmatch(r'burnin_x\{node="(.*)"\} 1', lines[2], re.DOTALL)
    assert value
    back = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value[1])
    assert back == text.encode("utf-8", "replace").decode()


def test_the_heat_with_most_groups_stands_for_its_step(tmp_path: Path) -> None:
    found = live.campaign(tmp_path, "dgx[01-04]", 0)
    looked = status.collect(found)
    entry = {"unit": "GB/s", "least": 300.0, "median": 300.0, "most": 300.0}
    looked.gates = [
        {"step": "x2", "measured": {"nccl": {"all_reduce": {**entry, "groups": 2, "median": 370.0}}}},
        {"step": "x2", "measured": {"nccl": {"all_reduce": {**entry, "groups": 1}}}},
        {"step": "x4"},
    ]
    text = metrics.render(found.summary(), looked, found.config.document["workload_definitions"], 0)
    assert 'of_groups="median"} 370' in text and 'step="x4",workload="nccl",command' not in text
