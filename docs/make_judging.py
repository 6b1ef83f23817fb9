# SPDX-License-Identifier: Apache-2.0
"""Writes docs/judging.md: how a gate reasons, and the table of signatures, from workflow/burnin/judging/signatures.py.

    python docs/make_judging.py

tests/unit/test_docs.py fails when the page is not what this writes.
"""

from __future__ import annotations

from pathlib import Path

from burnin.judging.signatures import TABLE
from burnin.parsers.kinds import KINDS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "judging.md"

HEAD = """\
# How a gate decides

<!-- Written by docs/make_judging.py; the table is that of workflow/burnin/judging/signatures.py. -->

A gate gives every node of a heat one outcome: `passed`, `failed`, `owes` (innocent, runs again), `suspect` (is isolated) or `withdrawn`
(out without blame: somebody else took it out of Slurm, or it shows another stack than the frozen one). For each run it asks, in this
order:

1. **Is somebody known to be guilty?** A tool names node and part, or the first error by time names a rank: rank / GPUs per node is the
   node's place in the run's node list, the rest is the GPU. That node fails; its partners owe.
2. **Is it the configuration?** Then nobody fails: the campaign stops with a cure. What one node shows while the others are free of it
   is that node's after all; what most groups show alike (out of memory, NaN, sockets, a hang before step 1, all slow alike) is not.
   A changed stack is nobody's fault: a node of which the probe shows another one is withdrawn, its partners owe, the run counts for
   nobody; what more than half of the roster shows, or what no node shows (container, NCCL), stops the campaign.
3. **Did the job die, was it cancelled, did it not start?** The nodes owe; a node that was lost fails.
4. **Did the group fail with nobody known?** A node alone fails; a group is suspect, and the next heats split it.
5. **Is it slow?** Likewise. See below.
6. **Is evidence missing?** The node owes. Unknown is never a pass; nor is a run that was stopped early.

An event or a counter counts only if the probe before the run could read that tool and did not have it already. Where that probe was
blind, a kernel line counts only if the node's own clock proves that it is of this run; otherwise it is a note.

Contradictions are said, in the finding (`contradicted_by`) or in the gate's `notes`: a rank's CUDA error while the hardware evidence is on
another node convicts nobody; with an Xid that applications cause it makes suspects; with no Xid at all it is `likely` only.

## Speed

All limits are in `config/criteria.yaml`, each with a comment; every finding carries the value, the unit, the limit, where the limit comes
from and its date.

| check | against | too few values | everybody alike |
|---|---|---|---|
| `spread` | the other runs of this step, workload, command and size: median and MAD, with a floor | said in `notes` | none is one |
| `baseline` | the pinned value of the same size (`burnin baseline`) | - | the stack's: stops, drops nobody |
| `plausible` | what nothing healthy is worse than | - | sockets instead of InfiniBand: stops, drops nobody |
| `scaling` | the groups of the step before | not judged | the fabric's: suspects, isolated |
| `drop`, `first_last`, `trend`, `spikes` | the run's own start | said in `notes` | - |
| `checkpoint_growth`, `checkpoint_time` | the run's first saves; the step before | not judged | the storage's: stops, drops nobody |

One slow iteration among others drops nobody and is said; spikes at checkpoints are no fault.

## Baselines

```sh
snakemake --profile slurm --configfile config/site.yaml config/validation.yaml
burnin baseline results/validation
```

The first runs the same ladder with one pass of every command; the second writes `config/baselines.yaml`: per workload, command and number
of nodes the median of what passed, outliers taken out one by one. Name the file under `baselines` in the criteria, and the validation's
folder under `validation` in the burn-in's config: a burn-in whose validation did not pass says so before it starts.

## Logs that came by mail

`burnin judge DIR` finds out which tool wrote each file and which host it is of (prefixes, node lists, names), and judges with the same
tables. `--nodes dgx[01-08]` gives ranks a node. A file with `before` or `pre` in its name tells what is not new. It lists what is missing.

## Signatures

Read from the top, the first row that fits counts. `node`: the node that showed it fails. `group`: somebody in the group; a node alone
fails. `config`: nobody fails, the campaign stops. Xids have a table of their own, `config/xid.yaml`. What is not listed is only kept.

| what is seen | convicts | fault | certain? | next action |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    rows = []
    for row in TABLE:
        if row.scope == "note":
            continue
        action = row.action.replace("{part}", "the part")
        if row.alone:
            action += f". On a minority of the nodes: {row.alone.action}"
        if row.everywhere:
            action += f". On most groups: {row.everywhere}"
        seen = KINDS[row.kind].replace("|", "/")
        rows.append(f"| `{row.kind}`: {seen} | {row.scope} | `{row.fault}` | {row.confidence} | {action} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
