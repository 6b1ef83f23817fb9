# SPDX-License-Identifier: Apache-2.0
"""The configuration is refused before anything runs, naming key, value, expectation and cure."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from burnin import config
from burnin.errors import ConfigError
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]


def raw(**changes: Any) -> dict[str, Any]:
    """Return config/config.yaml with changes; dotted names reach inside."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    for key, value in changes.items():
        *path, last = key.split("__")
        target = document
        for name in path:
            target = target[name]
        target[last] = value
    return document


def test_the_shipped_config_is_valid_and_every_key_has_a_comment() -> None:
    loaded = config.load(raw(), ROOT)
    assert loaded.nodes == [f"dgx{i:02d}" for i in range(1, 9)]
    for name in ("config.yaml", "workloads.yaml", "criteria.yaml", "cpu.yaml", "lab.yaml"):
        lines = (ROOT / "config" / name).read_text(encoding="utf-8").splitlines()
        document = yaml.safe_load("\n".join(lines))
        for key in document:
            at = next(i for i, line in enumerate(lines) if line.startswith(f"{key}:"))
            near = "\n".join(lines[max(0, at - 3) : at + 8])
            assert "#" in near, f"{name}: {key} has no comment near it"


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"nodez": 1}, "nodez", "did you mean 'nodes'"),
        ({"nodes": ""}, "nodes", "Slurm node set"),
        ({"nodes": "dgx[01-04],dgx03"}, "nodes", "every node once"),
        ({"nodes": "dgx01;reboot"}, "nodes", "host names"),
        ({"nodes": "dgx[04-01]"}, "nodes", "correct the node set"),
        ({"nodes": "@gpu"}, "nodes", "without groups"),
        ({"nodes": 7}, "nodes", "node set"),
        ({"campaign": "../x"}, "campaign", "letters, digits"),
        ({"campaign": "a b"}, "campaign", "letters, digits"),
        ({"gpus_per_node": -1}, "gpus_per_node", "at least 0"),
        ({"gpus_per_node": "8"}, "gpus_per_node", "integer"),
        ({"workloads": []}, "workloads", "workload names"),
        ({"workloads": ["nccl", "nccl"]}, "workloads", "each once"),
        ({"workloads": ["linpack"]}, "workloads.0", "workload_definitions"),
        ({"isolation__missed": 0}, "isolation.missed", "more than 0"),
        ({"isolation__windows": {"squad": {"iterations": 1}}}, "isolation.windows.squad", "one of `workloads`"),
        ({"windows__nccl": {"default": {"hours": 0}}}, "windows.nccl.default.hours", "more than 0"),
        ({"windows__nccl": {"default": {"hours": 1, "iterations": 1}}}, "windows.nccl.default", "either"),
        ({"windows__nccl": {"default": {"hours": 1}, "x64": {"hours": 1}}}, "windows.nccl.x64", "step of this ladder"),
        ({"windows__hpl": {}}, "windows.hpl.default", "add the key"),
        ({"drain": "yes"}, "drain", "one of drain, print"),
        ({"rerun_limit": -1}, "rerun_limit", "at least 0"),
        ({"scenario": "nonsense"}, "scenario", "tickets"),
        ({"criteria": "config/none.yaml"}, "criteria", "correct the path"),
        ({"resume_test": {"workload": "hpl", "steps_after_checkpoint": 5}}, "resume_test.workload", "training"),
        ({"probes__commands": {"rm": "rm"}}, "probes.commands", "one of dmesg"),
        ({"probes__commands": {"dmesg": "dmesg {nodes}"}}, "probes.commands.dmesg", "placeholders"),
        ({"probes__launch": 'srun "-N'}, "probes.launch", "balanced quotes"),
        ({"probes__launch": "srun {nodes.__class__}"}, "probes.launch", "placeholders"),
        ({"environment": {"A B": "1"}}, "environment", "A B"),
        ({"slurm__time_limit_minutes": 1.5}, "slurm.time_limit_minutes", "whole minutes"),
    ],
)
def test_refused(changes: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(raw(**changes), ROOT)
    message = str(caught.value)
    assert caught.value.key.startswith(key), message
    assert words in message and "What to do:" in message


def test_a_yaml_tag_in_a_named_file_is_not_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "criteria.yaml"
    path.write_text("!!python/object/apply:os.system ['touch /tmp/burnin-owned']\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="YAML"):
        config.load(raw(criteria=str(path)), ROOT)


def test_missing_criteria_numbers_are_refused() -> None:
    criteria = yaml.safe_load((ROOT / "config" / "criteria.yaml").read_text(encoding="utf-8"))
    del criteria["halves_overlap"]
    with pytest.raises(ConfigError, match="halves_overlap"):
        config.load(raw(criteria=criteria), ROOT)


def test_null_takes_a_probe_out() -> None:
    assert "ipmi" not in config.load(raw(probes__commands__ipmi=None), ROOT).document["probes"]["commands"]


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_value_stays_one_argument_whatever_it_holds(value: str) -> None:
    assert config.render("srun -w {nodelist} --x={nodelist}", {"nodelist": value}) == [
        "srun",
        "-w",
        value,
        f"--x={value}",
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda s: st.lists(s) | st.dictionaries(st.text(max_size=6), s),
        max_leaves=6,
    ),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_any_value_anywhere_is_accepted_or_refused_with_a_sentence(value: Any, data: st.DataObject) -> None:
    document = copy.deepcopy(raw())
    key = data.draw(st.sampled_from(sorted(document)))
    document[key] = value
    try:
        config.load(document, ROOT)
    except ConfigError as error:
        assert error.cure


def test_a_window_is_one_value_whatever_files_say_below_it(tmp_path: Path) -> None:
    layers = [
        {"windows": {"nccl": {"default": {"iterations": 4}}, "hpl": {"default": {"iterations": 2}}}},
        {"windows": {"nccl": {"default": {"hours": 12}, "single": {"hours": 6}}}},
        {"nodes": "dgx[01-04]"},
        {"windows": {"nccl": {"full": {"iterations": 1}}}},
    ]
    files = []
    for number, layer in enumerate(layers):
        files.append(tmp_path / f"{number}.yaml")
        files[-1].write_text(yaml.safe_dump(layer), encoding="utf-8")
    found = config.whole_windows({"campaign": "t", "windows": {}}, files, {})
    assert found["campaign"] == "t" and found["windows"]["hpl"] == {"default": {"iterations": 2}}
    assert found["windows"]["nccl"] == {"default": {"hours": 12}, "single": {"hours": 6}, "full": {"iterations": 1}}
    found = config.whole_windows({}, files, {"windows": {"nccl": {"default": {"iterations": 1}}}})
    assert found["windows"]["nccl"] == {"default": {"iterations": 1}}, "a validation keeps no hours of the burn-in"
    assert config.whole_windows({"windows": 3}, [], {"windows": 3}) == {"windows": 3}


def test_how_a_fault_is_looked_for() -> None:
    usual = config.load(raw(), ROOT)
    assert usual.ladder.repeats == 3 and not usual.ladder.short
    assert usual.window("nccl", "x2", isolating=True) == usual.window("nccl", "x2")
    short = {"shows": 0.2, "missed": 0.1, "windows": {"nccl": {"iterations": 1}}}
    loaded = config.load(raw(isolation=short), ROOT)
    assert loaded.ladder.repeats == 11 and loaded.ladder.short == {"nccl"}
    assert loaded.window("nccl", "x2", isolating=True) == {"iterations": 1} != loaded.window("nccl", "x2")
    assert loaded.window("hpl", "x2", isolating=True) == loaded.window("hpl", "x2")
