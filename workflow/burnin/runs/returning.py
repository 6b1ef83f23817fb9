# SPDX-License-Identifier: Apache-2.0
"""Who comes back of the nodes that are out without blame.

Whoever somebody else had taken out of Slurm comes back when Slurm has it in service again. Whoever showed another stack than
the frozen one must show the frozen one first: it is looked at with what a run reads before it begins. What nothing is said
of is not the frozen stack.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from burnin.cluster.drain import node_states, plan_looks, plan_resumes, plan_returns, resume

if TYPE_CHECKING:
    from burnin.campaign import Campaign
    from burnin.config import Config


def take_back(campaign: Campaign, environment: Mapping[str, str], limit: int | None = None) -> list[str]:
    """Record who is back; return what is to be said of it, a sentence for each node that is back or was looked at in vain.

    Slurm is only asked if somebody is away, and nothing is changed in it but a drain of our own that was left on a
    repaired node (it could not be resumed when its turn came). `limit`: see `plan_returns`.
    """
    away = campaign.away()
    if not away:
        return []
    config = campaign.config
    states = node_states(list(away), environment)
    if config.document["drain"] == "drain":
        ours = [n for n in plan_resumes(config.campaign, list(away), states) if not resume(n, environment)]
        if ours:
            states |= node_states(ours, environment)
    reservation = bool(config.document["slurm"]["reservation"])
    back = plan_returns({n: a.times for n, a in away.items()}, states, reservation, limit)
    doubtful = [n for n in back if away[n].stack]
    idle = plan_looks(doubtful, states, reservation)
    stays = {n: f"{n} is busy ({back[n]}), its stack is looked at later" for n in doubtful if n not in idle}
    stays |= {n: f"{n} stays out: {why}" for n, why in still_other(config, idle, environment).items()}
    back = {n: state for n, state in back.items() if n not in stays}
    campaign.record_returns(back)
    return [
        *(
            f"{n} {'shows the frozen stack' if away[n].stack else 'is in service'} again ({state}): it runs what it owes"
            for n, state in back.items()
        ),
        *stays.values(),
    ]


def still_other(config: Config, nodes: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Look at nodes; return node -> why what it shows is not the frozen stack. After `burnin freeze` any stack is.

    The raw files are kept compressed below preflight/.
    """
    from burnin import storage
    from burnin.runs import preflight, stack

    if not nodes:
        return {}
    commands = stack.commands(config)
    folder = _folder(config.campaign_dir / "preflight" / time.strftime("back-%Y%m%d-%H%M%S"))
    timeout = float(config.document["probes"]["timeout_seconds"]) * (len(commands) + 1)
    seen, unseen = preflight.look_at(config, folder, nodes, commands, timeout, environment)
    frozen = stack.Frozen(config, nodes)
    found = {n: f"it could not be looked at ({why})" for n, why in unseen.items()}
    for node, record in seen.items():
        if changed := frozen.differs(node, record["stack"]):
            part, before, now = changed[0]
            place = f"{record['file']}:{record['lines'].get(part, 1)}"
            more = f" and {len(changed) - 1} more parts" if len(changed) > 1 else ""
            found[node] = f"{part} is {now!r}, was {before!r} when the stack was frozen ({place}){more}"
        elif unknown := frozen.unknown(node, record["stack"]):
            found[node] = f"nothing is said of {', '.join(unknown)} ({record['file']}:1)"
        elif not record["stack"]:
            found[node] = f"nothing was read of its stack ({record['file']}:1)"
        storage.compress(config.campaign_dir / record["file"])
    return found


def _folder(wanted: Path) -> Path:
    """Return a folder that no look has written to."""
    folder, again = wanted, 0
    while folder.exists():
        again += 1
        folder = wanted.with_name(f"{wanted.name}.{again}")
    return folder
