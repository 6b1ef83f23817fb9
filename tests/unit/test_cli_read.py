# SPDX-License-Identifier: Apache-2.0
"""`burnin read TOOL FILE` (C6): JSON and exit 0 for the tool's own output, exit 3 with a sentence for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from burnin import parsers
from burnin.cli import cli
from click.testing import CliRunner

DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLES = {
    tool: sorted(p for p in (DATA / tool).glob("*") if p.is_file()) for tool in parsers.TOOLS if (DATA / tool).is_dir()
}
#: One output may truly hold another's: a probe file is made of other tools' outputs, a training log of Slurm's messages.
CONTAINS = {"probe", "slurm-step"}


def read(tool: str, path: Path) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr."""
    done = CliRunner().invoke(cli, ["read", tool, str(path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_every_tool_has_samples() -> None:
    assert set(SAMPLES) == set(parsers.TOOLS)
    assert all(SAMPLES.values()), [t for t, s in SAMPLES.items() if not s]


@pytest.mark.parametrize("tool", sorted(SAMPLES))
def test_own_samples(tool: str) -> None:
    read_well = 0
    for path in SAMPLES[tool]:
        status, out, err = read(tool, path)
        if status == 3:
            assert err.startswith("burnin: ") and len(err) > 20, path
            continue
        document = json.loads(out)
        assert status == 0 and document["tool"] == tool and document["recognised"], path
        assert document["verdict"] in ("pass", "fail", "unknown")
        if not document["complete"] and document["verdict"] == "pass":
            raise AssertionError(f"{path} passes although it is cut")
        read_well += 1
    assert read_well


@pytest.mark.parametrize("tool", sorted(set(SAMPLES) - CONTAINS))
def test_other_tools_samples_are_refused(tool: str) -> None:
    for other in sorted(set(SAMPLES) - CONTAINS - {tool}):
        path = next(p for p in SAMPLES[other] if read(other, p)[0] == 0)
        status, out, err = read(tool, path)
        if status == 0:
            # both are there: logs of jobs carry other tools' lines
            document = json.loads(out)
            assert document["verdict"] != "pass", f"{path} passes as {tool}"
        else:
            assert status == 3 and out == "" and "is no output of" in err


def test_a_missing_file_and_an_unknown_tool(tmp_path: Path) -> None:
    status, _, err = read("nccl", tmp_path / "none")
    assert status == 3 and "could not be read" in err
    assert CliRunner().invoke(cli, ["read", "excel", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(cli, ["read", "--list"]).stdout.split() == list(parsers.TOOLS)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 5000, b"\xff\xfe" + "NVRM".encode("utf-16-le") * 50, b"a" * 11_000_000, bytes(range(256)) * 40],
)
@pytest.mark.parametrize("tool", sorted(parsers.TOOLS))
def test_bad_input_is_a_sentence(tmp_path: Path, tool: str, content: bytes) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    status, out, err = read(tool, path)
    if status == 0:
        assert json.loads(out)["verdict"] != "pass" and json.loads(out)["problems"]
    else:
        assert status == 3 and err.startswith("burnin: ")
