# SPDX-License-Identifier: Apache-2.0
"""`burnin freeze`: a change of the stack is meant; from here on the campaign stands on the new one."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", metavar="CAMPAIGN_DIR", type=click.Path(path_type=Path))
@click.option("--why", required=True, help="What was changed and why, e.g. 'driver 560 as planned'.")
def freeze(folder: Path, why: str) -> None:
    """Record that a change of the stack is meant: the next runs freeze what they find.

    What ran before ran on the old stack; `burnin rerun` repeats it.
    """
    import getpass

    from burnin import config
    from burnin.errors import CampaignError
    from burnin.runs import stack

    if len(why.strip()) < 3:
        raise CampaignError("a change without a reason proves nothing", "say with --why what was changed")
    try:
        campaign = config.from_file(folder)
    except FileNotFoundError:
        raise CampaignError(f"{folder} is no campaign", "name a folder below results/ that has a config.json") from None
    stack.freeze_anew(campaign, why.strip(), getpass.getuser())
    click.echo("burnin: recorded; the next run of each node freezes its stack anew")
