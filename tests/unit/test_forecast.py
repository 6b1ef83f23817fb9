# SPDX-License-Identifier: Apache-2.0
"""What a campaign will take: the numbers can be done by hand, and drop-outs cost what the ladder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from burnin import cli, config
from burnin.arithmetic import load_references
from burnin.commands.plan import parse_start, parse_windows
from burnin.errors import ConfigError
from burnin.forecast import Forecast, forecast, heats_without, model_parameters
from click import UsageError
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
HOURS = {"nccl": {"default": {"hours": 12}}, "hpl": {"default": {"hours": 4}}, "nemo": {"default": {"hours": 8}}}
MODELS = {name: shape.parameters for name, shape in load_references().models.items()}


def loaded(nodes: str, **changes: Any) -> config.Config:
    return config.from_files([], ROOT, {"nodes": nodes, "windows": HOURS, **changes})


def told(conf: config.Config, out: dict[str, str] | None = None) -> Forecast:
    return forecast(conf, heats_without(conf.ladder, out or {}), MODELS, out or {})


def test_64_nodes_take_eight_days() -> None:
    found = told(loaded("dgx[001-064]"))
    assert [h.step for h in found.heats] == [
        "single", "x2", "x4", "x8", "x16", "x32", "halves", "full", "resume",
    ]  # fmt: skip
    assert [h.groups for h in found.heats[:3]] == [((1, 64),), ((2, 32),), ((4, 16),)]
    assert found.heats[-2].groups == ((64, 1),)
    # eight steps of 12 + 4 + 8 hours on all nodes, and half an hour of resume test
    assert found.hours == pytest.approx(8 * 24 + 0.5)
    assert found.node_hours == pytest.approx(64 * (8 * 24 + 0.5))
    # 14 bytes a parameter: step single writes 64 checkpoints of 112 GB, three of them in an iteration (60 steps, every 20)
    assert found.checkpoint_gb == pytest.approx(112.4, abs=0.1)
    assert found.checkpoints_gb == pytest.approx((64 * 112.42, 3 * 64 * 112.42), rel=1e-3)
    # a probe every 15 minutes, one before and one after each run
    assert found.probes_gb == pytest.approx(64 * (8 * (24 * 4 + 6) + 4) * 0.125 / 1000)


def test_a_node_that_fails_costs_its_partners_a_heat_and_leaves_others_over() -> None:
    conf = loaded("dgx[01-08]")
    found = told(conf, {"dgx05": "x4"})
    heats = {(h.step, h.heat): h for h in found.heats}
    assert heats["x4", 0].groups == ((4, 2),)
    # dgx06-08 owe x4 and are filled up with one that passed
    assert heats["x4", 1].groups == ((4, 1),)
    assert heats["halves", 0].groups == ((4, 1), (3, 1))
    assert heats["full", 0].groups == ((7, 1),)
    assert found.hours == pytest.approx(told(conf).hours + 24)
    assert found.out == ("dgx05",)


def test_everybody_may_be_out() -> None:
    found = told(loaded("dgx[01-02]"), {"dgx01": "single", "dgx02": "single"})
    assert [h.step for h in found.heats] == ["single"]


@pytest.mark.parametrize("out", [{"dgx9": "x2"}, {"dgx01": "x64"}])
def test_who_is_not_there_cannot_be_out(out: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        heats_without(loaded("dgx[01-08]").ladder, out)


def test_an_unknown_model_is_said_and_not_guessed() -> None:
    conf = loaded("dgx[01-02]")
    assert model_parameters(conf, "nemo", MODELS) == 8030261248  # --factory llama3_8b
    assert model_parameters(conf, "nemo", {"llama3_70b": 1}) is None
    found = forecast(conf, heats_without(conf.ladder, {}), {})
    assert found.checkpoint_gb is None and found.checkpoints_gb is None
    assert any("--checkpoint-gb" in point for point in found.open)


def test_iterations_take_what_their_steps_take_or_what_slurm_allows() -> None:
    windows = {**HOURS, "nccl": {"default": {"iterations": 4}}}
    found = told(loaded("dgx01", windows=windows))
    assert found.heats[0].hours["nccl"] == pytest.approx(4 * 0.5)  # slurm.iteration_minutes: 30
    assert any("nccl" in point and "30 minutes" in point for point in found.open)


def test_the_command_answers_without_slurm_or_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["plan", "--nodes", "dgx[001-064]", "--window", "nccl=12h", "--window", "hpl=4h", "--window", "nemo=8h"]
    given += ["--start", "2026-12-01 08:00"]
    text = CliRunner().invoke(cli.cli, given).output
    assert "1 -> 2 -> 4 -> 8 -> 16 -> 32 -> two of 32 at once -> 64 -> resume test" in text
    assert "ends Wed 2026-12-09 08:30: 8 days 0.5 hours" in text and "64 runs of single" in text
    document = json.loads(CliRunner().invoke(cli.cli, [*given, "--without", "dgx005", "--json"]).output)
    assert document["out"] == ["dgx005"] and document["extra_hours"] > 0
    assert document["end"].startswith("2026-12-") and document["refused"] == []
    assert not list(tmp_path.iterdir())


def test_a_plan_that_cannot_work_is_told(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("slurm: {partition_limit_minutes: 60}\n")
    text = CliRunner().invoke(cli.cli, ["plan", "--window", "nccl=12h", "--configfile", str(site)]).output
    assert "cannot work: config key 'windows.nccl.default'" in text


def test_windows_and_starts_are_read_or_refused() -> None:
    assert parse_windows(["nccl=12h", "hpl.full=30m", "nemo=4"]) == {
        "nccl": {"default": {"hours": 12.0}},
        "hpl": {"full": {"hours": 0.5}},
        "nemo": {"default": {"iterations": 4}},
    }
    for text in ("nccl", "nccl=12d", "nccl=1.5", "=1h", "nccl=-1h", "NCCL=1h"):
        with pytest.raises(UsageError):
            parse_windows([text])
    assert parse_start("2026-12-01 08:00").hour == 8 and parse_start(None).tzinfo
    with pytest.raises(UsageError):
        parse_start("tomorrow")
