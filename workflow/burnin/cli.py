# SPDX-License-Identifier: Apache-2.0
"""The `burnin` command: the operator's commands, and the few that the workflow's rules call.

Thin: arguments in, a library call, text out. Errors become exit statuses here and nowhere else.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from burnin.commands.baseline import baseline
from burnin.commands.explain import explain
from burnin.commands.freeze import freeze
from burnin.commands.init import init
from burnin.commands.judge import judge
from burnin.commands.plan import plan
from burnin.commands.report import report
from burnin.commands.simulate import simulate
from burnin.errors import CampaignError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Burn in a cluster: see README.md. Start a campaign with `snakemake --profile slurm`."""


cli.add_command(baseline)
cli.add_command(explain)
cli.add_command(init)
cli.add_command(freeze)
cli.add_command(judge)
cli.add_command(plan)
cli.add_command(report)
cli.add_command(simulate)


def main() -> NoReturn:
    """Run the command line; a campaign error is a sentence and an exit status, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CampaignError as error:
        click.echo(f"burnin: {error}", err=True)
        sys.exit(error.exit_status)
    except OSError as error:
        click.echo(f"burnin: {error}", err=True)
        sys.exit(1)
    sys.exit(0)


def _campaign(folder: Path) -> Any:
    """Return the campaign in a folder."""
    from burnin import config
    from burnin.campaign import Campaign

    try:
        return Campaign(config.from_file(folder))
    except FileNotFoundError:
        raise CampaignError(f"{folder} is no campaign", "name a folder below results/ that has a config.json") from None


def _publish(campaign: Any, more: Sequence[Any] = ()) -> None:
    """Tell people and monitoring what happened; what goes wrong with that is said and harms nothing."""
    from burnin.publishing import publish

    publish(campaign, lambda sentence: click.echo(sentence, err=True), more)


def _heat(path: Path) -> tuple[Path, str, int]:
    """Return (campaign folder, step, heat) of a plan.json or gate.json."""
    return path.parents[2], path.parents[1].name, int(path.parent.name.removeprefix("heat"))


# ----------------------------------------------------------------------------------------------- called by the rules


@cli.command(hidden=True)
@click.argument("result", type=click.Path(path_type=Path))
def run(result: Path) -> None:
    """Run what RESULT names until its window is over (the job of a run)."""
    from burnin.runs import runner

    runner.run(result)


@cli.command("retest-node", hidden=True)
@click.argument("result", type=click.Path(path_type=Path))
def retest_node(result: Path) -> None:
    """Run the diagnostic of the repaired node that RESULT names."""
    from burnin.runs import retest

    retest.run(result)


@cli.command("preflight", hidden=True)
@click.argument("target", type=click.Path(path_type=Path))
def preflight(target: Path) -> None:
    """Look at the cluster before the first run and write TARGET."""
    from burnin.runs import preflight as look

    document = look.run(target)
    for found in document["findings"][:20]:
        click.echo(f"burnin: preflight: {look.sentence(found)}", err=True)
    count = len(document["findings"])
    click.echo(
        f"burnin: preflight of {len(document['nodes'])} nodes: {f'{count} findings' if count else 'all alike'}, see {target}",
        err=True,
    )


@cli.command("plan-heat", hidden=True)
@click.argument("plan", type=click.Path(path_type=Path))
def plan_heat(plan: Path) -> None:
    """Write PLAN: who runs with whom in a heat; put repaired nodes of ours back into service first."""
    from burnin.cluster.drain import node_states, plan_resumes, resume

    folder, step, heat = _heat(plan)
    campaign = _campaign(folder)
    back = campaign.make_plan(step, heat, os.environ.get("BURNIN_INVOCATION", ""))
    if back and step != "retest" and campaign.config.document["drain"] == "drain":
        environment = campaign.config.environment(os.environ)
        for node in plan_resumes(campaign.config.campaign, back, node_states(back, environment)):
            answer = resume(node, environment)
            click.echo(
                f"burnin: {node} {'could not be resumed: ' + answer if answer else 'is resumed: repaired'}", err=True
            )


@cli.command("judge-heat", hidden=True)
@click.argument("gate", type=click.Path(path_type=Path))
def judge_heat(gate: Path) -> None:
    """Write GATE: the decision on every node of a heat; drain who failed."""
    from burnin.cluster.drain import drain, node_states, plan_drains
    from burnin.runs import evidence
    from burnin.runs.returning import take_back

    folder, step, heat = _heat(gate)
    campaign = _campaign(folder)
    decided = campaign.make_gate(step, heat, os.environ.get("BURNIN_INVOCATION", ""))
    failed = [n for n, outcome in decided["outcome"].items() if outcome == "failed"]
    environment = campaign.config.environment(os.environ)
    statuses = campaign.write_summary(decided)["nodes"]
    # a gate of the past may be decided again (new criteria): a node that was repaired since is not out any more
    failed = [n for n in failed if statuses[n]["status"] == "failed"]
    if failed and campaign.config.document["drain"] == "drain":
        now = {**decided, "outcome": {n: decided["outcome"][n] for n in failed}}
        wanted, left = plan_drains(campaign.config.campaign, now, node_states(failed, environment))
        answers = drain(wanted, environment)
        decided["drained"] = {n: answers[n] or f"drained: {wanted[n]}" for n in wanted} | {
            n: f"not drained: {why}" for n, why in left.items()
        }
    elif failed:
        decided["drained"] = dict.fromkeys(failed, "not drained: config key drain is 'print'")
    campaign.write_gate(decided)
    packed = evidence.gather(
        campaign.config, {**decided, "outcome": {n: decided["outcome"][n] for n in failed}}, environment
    )
    told = ", ".join(f"{n} {word}" for word, n in sorted(Counter(decided["outcome"].values()).items()))
    click.echo(f"burnin: gate {step}, heat {heat}: {told}", err=True)
    for node in failed:
        found = next(f for f in decided["findings"] if f["node"] == node and f["scope"] == "node")
        click.echo(f"burnin: {node} failed in {step} ({found['workload']}): {found['reason']}", err=True)
        click.echo(f"burnin:   evidence {', '.join(found['evidence'][:3])}; next: {found['next_action']}", err=True)
        click.echo(f"burnin:   {decided['drained'].get(node, '')}", err=True)
        click.echo(f"burnin:   {packed.get(node, 'no evidence is gathered')}", err=True)
    for text in (t for texts in decided["exchanged"].values() for t in texts):
        click.echo(f"burnin: {text}", err=True)
    for node, why in decided["withdrawn"].items():
        click.echo(f"burnin: {node} is out, and not to blame: {why}", err=True)
    for text in take_back(campaign, environment, int(campaign.config.document["rerun_limit"])):
        click.echo(f"burnin: {text}", err=True)
    if decided["stopped"]:
        click.echo(
            f"burnin: the campaign stops: {decided['stopped']['text']}\n  What to do: {decided['stopped']['cure']}",
            err=True,
        )
    _publish(campaign)


@cli.command(hidden=True)
@click.argument("summary", type=click.Path(path_type=Path))
def summarise(summary: Path) -> None:
    """Write SUMMARY from all gates."""
    campaign = _campaign(summary.parent)
    campaign.write_summary()  # the verdict is printed when all is over, by burnin show
    _publish(campaign)


@cli.command("why-stopped", hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
def why_stopped(folder: Path) -> None:
    """Say why the campaign did not go on."""
    path = folder / "summary.json"
    stopped = json.loads(path.read_text(encoding="utf-8")).get("stopped") if path.exists() else None
    if stopped:
        click.echo(
            f"burnin: the campaign stopped ({stopped['kind']}): {stopped['text']}\n  What to do: {stopped['cure']}",
            err=True,
        )
    try:
        campaign = _campaign(folder)
    except CampaignError:
        return  # it never began
    from burnin import announcements

    other = {
        "kind": "error",
        "text": "snakemake ended with an error",
        "cure": "read its last lines, then start the same command",
    }
    _publish(campaign, [] if stopped else [announcements.stop(other, os.environ.get("BURNIN_INVOCATION", ""))])


def _verdict_text(document: dict[str, Any]) -> str:
    """Return the verdict in a few lines."""
    from burnin.nodes import fold

    by_status: dict[str, list[str]] = {}
    for name, entry in document["nodes"].items():
        by_status.setdefault(entry["status"], []).append(name)
    lines = [f"burnin: campaign {document['campaign']} is {document['verdict'].upper()}"]
    lines += [f"  {status:9} {fold(names)}" for status, names in sorted(by_status.items())]
    for link in (e for e in document["links"] if e.get("waits")):
        between = " and ".join(fold(side) for side in link["between"] if side)
        lines.append(f"  link: {link['fault']} between {between} in {link['step']}")
    for name, entry in document["nodes"].items():
        if entry["status"] not in ("accepted", "running", "repaired"):
            lines.append(
                f"  {name}: {entry['fault'] or entry['status']} {entry['part'] or ''} in {entry['failed_step']} - {entry['reason']}"
            )
        lines += [f"  {text}" for text in entry.get("exchanged", [])]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ called by operators


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Show it again every few seconds until Ctrl-C.")
@click.option("--metrics", is_flag=True, help="Write the metrics file of the config, or print it if there is none.")
def status(folder: Path | None, watch: bool, metrics: bool) -> None:
    """Show where the campaign in FOLDER (default: the newest) stands: steps, runs in progress, what is owed."""
    import time

    from burnin.status import render

    campaign = _campaign(folder or _newest())
    if metrics:
        from burnin.publishing import metrics_now

        click.echo(metrics_now(campaign), nl=False)
        return
    while True:
        text = render(campaign)  # the files that did not change are not read again
        if watch:
            click.clear()
        click.echo(text)
        if not watch:
            return
        time.sleep(5)


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--test", "trying", is_flag=True, help="Send a message that says it is a test, and say how it went.")
def notify(folder: Path | None, trying: bool) -> None:
    """Tell what has not been told yet of the campaign in FOLDER (default: the newest), through the config's `notify` command.

    The head does this by itself, at each gate and every minute.
    """
    from burnin import publishing

    campaign = _campaign(folder or _newest())
    if not trying:
        _publish(campaign)
        return
    if not (campaign.config.document.get("notify") or {}).get("command"):
        raise CampaignError(
            "config key notify.command is empty: nobody is told", "fill it in; docs/operating.md has examples"
        )
    if trouble := publishing.test(campaign):
        raise CampaignError(f"the test was not told: {trouble}", "correct config key notify.command")
    click.echo("burnin: the test was told: the command ended with status 0")


@cli.command()
@click.argument("what")
@click.option(
    "--campaign", "folder", type=click.Path(path_type=Path), help="Folder of the campaign; default: the newest."
)
def rerun(what: str, folder: Path | None) -> None:
    """Have a step (x2), a heat (x2/heat0) or one run (x2/heat0/hpl/GROUP) run again; the old results are kept.

    The next snakemake runs it, judges its gate again, and decides anew what follows.
    """
    from burnin import lock

    campaign = _campaign(folder or _newest())
    lock.take(campaign.dir, Path(".snakemake", "locks"))
    found = campaign.rerun(what)
    click.echo(f"burnin: {len(found)} runs will be run again by the next snakemake; what they gave is kept beside them")


@cli.command()
@click.argument("node", required=False)
@click.option("--part", help="What was repaired on the node: gpu5, mlx5_3, FAN6, PSU2, node ...")
@click.option("--link", help="A link instead of a node: one end or both, dgx02/mlx5_3 or dgx02/mlx5_3,leaf1/17.")
@click.option("--fix", required=True, help="What was done, e.g. 'reseated GPU5'.")
@click.option("--serial", help="Serial number of the new part.")
@click.option(
    "--campaign", "folder", type=click.Path(path_type=Path), help="Folder of the campaign; default: the newest."
)
def repair(
    node: str | None, part: str | None, link: str | None, fix: str, serial: str | None, folder: Path | None
) -> None:
    """Record that NODE, or a link, was repaired. The next snakemake retests the nodes and lets them catch up."""
    import getpass
    import socket
    import time

    from burnin.nodes import fold

    if (node is None) == (link is None) or (node is None) != (part is None):
        raise click.UsageError(
            "name a node and its part (burnin repair dgx05 --part gpu5), or a link (--link dgx02/mlx5_3)"
        )
    campaign = _campaign(folder or _newest())
    record: dict[str, Any] = {
        "fix": fix, "serial": serial, "by": getpass.getuser(), "host": socket.gethostname(), "time": time.time(),
    }  # fmt: skip
    if link is not None:
        nodes, fault = campaign.touched(link)
        record |= {"kind": "link", "part": link, "nodes": nodes, "fault": fault}
        who = f"link {link} ({fix}), which lets {fold(nodes)} in again"
    else:
        entry = campaign.write_summary()["nodes"].get(node, {})
        record |= {"node": node, "part": part, "fault": entry.get("fault")}
        who = f"{node} ({part}: {fix})"
    for doubt in campaign.record_repair(record):
        click.echo(f"burnin: warning: {doubt}", err=True)
    campaign.write_summary()
    click.echo(f"burnin: recorded the repair of {who}; the same snakemake command goes on with it")


def _newest() -> Path:
    """Return the campaign that was last at work. Raises CampaignError if there is none."""
    found = sorted(Path("results").glob("*/config.json"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise CampaignError("no campaign was found below results/", "name its folder with --campaign")
    return found[-1].parent


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
def show(folder: Path | None) -> None:
    """Print the verdict of the campaign in FOLDER (default: the newest)."""
    from burnin import storage

    folder = folder or _newest()
    try:
        document = storage.read_json(folder / "summary.json", "summary")
    except FileNotFoundError:
        raise CampaignError(f"{folder} has no summary yet", "the first gate writes it; see burnin status") from None
    click.echo(_verdict_text(document))
    click.echo(f"  all of it: {folder / 'summary.json'}")


@cli.command("dag")
def fold_dag() -> None:
    """Fold what `snakemake --dag` prints into one box for all runs of a workload in a heat: snakemake --dag | burnin dag."""
    from burnin.dag import fold as folded

    try:
        click.echo(folded(sys.stdin.read()), nl=False)
    except ValueError as error:
        raise CampaignError(str(error), "snakemake --profile lab --dag | burnin dag | dot -Tsvg > dag.svg") from None


@cli.command()
@click.argument("tool", required=False)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List the tools.")
def read(tool: str | None, file: Path | None, listing: bool) -> None:
    """Read one tool's output and print what it says as JSON."""
    from burnin import parsers

    if listing:
        click.echo("\n".join(parsers.TOOLS))
        return
    if tool is None or file is None:
        raise click.UsageError("give TOOL and FILE, or --list")
    if tool not in parsers.TOOLS:
        raise click.UsageError(f"unknown tool {tool!r}; one of: {', '.join(parsers.TOOLS)}")
    reading = parsers.read_file(tool, file)
    if not reading.recognised:
        why = reading.problems[0] if reading.problems else "no line of it has that tool's form"
        click.echo(f"burnin: {file} is no output of {tool}: {why}", err=True)
        sys.exit(3)
    click.echo(json.dumps(reading.to_dict(), indent=1, allow_nan=False, default=str))
