# SPDX-License-Identifier: Apache-2.0
"""`burnin init`: asks Slurm what there is, writes a config, and says what it could not find."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[3]
#: What is asked for each part of a survey. One answer each, whatever the size of the cluster.
QUESTIONS = {
    "nodes": ["scontrol", "-o", "show", "node"],
    "partitions": ["scontrol", "-o", "show", "partition"],
    "config": ["scontrol", "show", "config"],
    "topology": ["scontrol", "show", "topology"],
    "mpi": ["srun", "--mpi=list"],
}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--partition", help="Partition of the nodes; default: the one with most GPUs.")
@click.option("--nodes", help="Nodes to burn in; default: all of the partition that are alike.")
def init(file: Path | None, partition: str | None, nodes: str | None) -> None:
    """Write FILE (default: config/site.yaml; - prints it): a config of the cluster that Slurm shows."""
    from burnin import config as configuration
    from burnin import survey as world
    from burnin.arithmetic import load_references
    from burnin.errors import CampaignError
    from burnin.nodes import fold
    from burnin.storage import write_text

    target = file or ROOT / "config" / "site.yaml"
    if str(target) != "-" and target.exists():
        raise CampaignError(
            f"{target} is there already", "name another file, or move this one away: nothing is overwritten"
        )
    survey = world.read(ask(os.environ))
    choice = world.choose(survey, partition, nodes)
    templates = {
        kind: (ROOT / "config" / name).read_text(encoding="utf-8")
        for kind, name in (("gpu", "dgx-h100.yaml"), ("cpu", "cpu.yaml"))
    }
    text, unknown = world.write(survey, choice, load_references(), templates)
    configuration.from_text(text, ROOT)  # what is written is valid, or nothing is
    if str(target) == "-":
        click.echo(text, nl=False)
    else:
        write_text(target, text)
    gpus = (
        f" with {choice.gpus} GPUs" + (f" ({choice.kind})" if choice.kind else "") if choice.gpus else " without GPUs"
    )
    click.echo(f"burnin: found {len(choice.nodes)} nodes{gpus}: {fold(choice.nodes)}", err=True)
    for note in (*choice.notes, *survey.trouble)[:20]:
        click.echo(f"  note: {note}", err=True)
    for point in unknown:
        click.echo(f"  not found: {point}", err=True)
    if str(target) != "-":
        click.echo(f"Wrote {target}. Fill in what is marked CHANGE, then: burnin plan --configfile {target}", err=True)


def ask(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the answers to QUESTIONS; None for a command that is missing, fails, or gives no answer in a minute."""
    from burnin.cluster.slurm_client import call, query_environment
    from burnin.errors import CampaignError

    path = environment.get("PATH", os.defpath)
    if shutil.which("scontrol", path=path) is None:
        raise CampaignError(
            "there is no scontrol here: burnin init asks Slurm",
            "start it on a Slurm head node, or copy config/dgx-h100.yaml and fill it in",
        )
    answers: dict[str, str | None] = {}
    plain = {k: v for k, v in query_environment(environment).items() if k != "SLURM_TIME_FORMAT"}
    plain["SLURM_TOPO_LEN"] = "1000000"  # long lines are cut by default
    for key, command in QUESTIONS.items():
        reply = call(command, "", plain, 60)
        if reply.status != 0 and key == "nodes":
            raise CampaignError(f"scontrol show node: {reply.trouble}", "start burnin init where slurmctld answers")
        # old versions of srun print the list to stderr
        text = reply.stdout + (reply.stderr if key == "mpi" else "")
        answers[key] = text if reply.status == 0 and text.strip() else None
    return answers
