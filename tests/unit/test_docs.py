# SPDX-License-Identifier: Apache-2.0
"""The documents say what the product does: generated pages are current, nothing is left out, commands and links exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from burnin import config, parsers
from burnin.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "lab" / "README.md", ROOT / "CHANGELOG.md"]


def script(name: str) -> ModuleType:
    """Return a script of docs/ as a module."""
    import sys

    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["make_configuration", "make_judging", "make_reading"])
def test_a_generated_page_is_current(name: str) -> None:
    module = script(name)
    assert module.PAGE.read_text(encoding="utf-8") == module.render(), f"run: python docs/{name}.py"


def test_every_config_key_is_documented() -> None:
    module = script("make_configuration")
    said = module.texts()
    found = [key.place for key in module.keys(module.schema())]
    assert len(found) > 60
    silent = [place for place in found if not said.get(place)]
    assert not silent, "give the key a comment in config/*.yaml, or a text in OWN of docs/make_configuration.py"
    assert set(module.OWN) <= set(found), "texts of keys that are no more"


def test_every_sample_has_a_tool_a_version_and_a_test() -> None:
    found = script("make_reading").samples()
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    assert {s.tool for s in found} == set(parsers.TOOLS), "a tool without samples, or samples of an unknown tool"
    assert not [str(s.path) for s in found if not s.tests], "no test names this sample"
    for sample in found:
        assert sample.version and f"tests/data/{sample.tool}/{sample.path.name}" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_repository_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readme_names_only_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?<![\w])make ([a-z][a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    for name in re.findall(r"--profile ([a-z]+)", text.split("## What is not done yet")[0]):
        assert (ROOT / "profiles" / name / "config.yaml").is_file() and (ROOT / name / "config.yaml").is_file()
    for command in re.findall(r"^burnin ([a-z-]+)", text, re.MULTILINE):
        assert command in cli.commands or command == "campaign", f"burnin {command}"
    for file in re.findall(r"`((?:config|lab|docs|workflow|profiles|tests)/[\w./-]*)`", text):
        assert (ROOT / file).exists() or file == "config/mysite.yaml", file


@pytest.mark.parametrize("name", ["dgx-h100.yaml", "cpu.yaml"])
def test_the_campaigns_of_the_documents_are_valid(name: str) -> None:
    from snakemake.utils import update_config

    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    update_config(document, yaml.safe_load((ROOT / "config" / name).read_text(encoding="utf-8")))
    files = [ROOT / "config" / "config.yaml", ROOT / "config" / name]
    campaign = config.load(config.whole_windows(document, files, {}), ROOT)
    assert campaign.document["scenario"] is None
    if name == "dgx-h100.yaml":
        for step in campaign.ladder.steps():
            for workload in campaign.workloads if step.name != "resume" else []:
                assert "hours" in campaign.window(workload, step.name), (
                    f"{step.name} {workload}: iterations are no burn-in"
                )


def test_the_small_campaign_is_valid() -> None:
    files = [ROOT / "config" / "lab.yaml", ROOT / ".test" / "config.yaml"]
    campaign = config.from_files(files, ROOT)
    assert campaign.campaign == "small" and [s.name for s in campaign.ladder.steps()] == ["single", "halves", "full"]


def test_every_output_that_is_reported_has_its_caption() -> None:
    rules = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "workflow" / "rules").glob("*.smk"))
    named = set(re.findall(r'caption="\.\./report/([a-z_]+\.rst)"', rules))
    assert named and named | {"workflow.rst"} == {p.name for p in (ROOT / "workflow" / "report").glob("*.rst")}
    for name in named:
        for wildcard in re.findall(r"snakemake\.wildcards\.(\w+)", (ROOT / "workflow" / "report" / name).read_text()):
            assert wildcard in ("step", "heat")
