# SPDX-License-Identifier: Apache-2.0
# Burn-in of a cluster along the ladder 1 -> 2 -> 4 ... -> N/2 -> two halves at once -> N -> resume test.
#   snakemake --profile lab      the simulated cluster        snakemake --profile slurm     the real one
#   snakemake --profile slurm x4 up to the end of step x4     snakemake --profile slurm -n  the whole ladder, nothing run
from snakemake.exceptions import WorkflowError

from burnin import snakefile
from burnin.errors import CampaignError


configfile: f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/workflow.rst"


try:
    flow = snakefile.Workflow(config, workflow, workflow.basedir)
except CampaignError as error:
    raise WorkflowError(str(error))
flow.checkpoints = checkpoints

CAMPAIGN = flow.dir


wildcard_constraints:
    step="retest|single|x[0-9]+|halves|full|resume",
    heat="[0-9]+",
    workload="[a-z][a-z0-9_]*",
    group="[A-Za-z0-9][A-Za-z0-9_.-]*",


localrules:
    all,
    plan,
    gate,
    summary,
    report,


rule all:
    default_target: True
    input:
        # the gates by name, too: a summary that exists (every gate writes it) must not hide a gate that is missing
        gates=lambda wildcards: flow.gates(),
        summary=f"{CAMPAIGN}/summary.json",
        report=f"{CAMPAIGN}/report.html",


include: "workflow/rules/preflight.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/retest.smk"
include: "workflow/rules/burn_in.smk"
include: "workflow/rules/resume.smk"
include: "workflow/rules/gate.smk"
include: "workflow/rules/summary.smk"
include: "workflow/rules/report.smk"


for step in flow.steps:

    rule:
        name:
            step
        input:
            lambda wildcards, step=step: flow.gates(step),
        localrule: True


onstart:
    flow.prepare()


onsuccess:
    shell("burnin show {CAMPAIGN:q} >&2 || true")


onerror:
    shell("burnin why-stopped {CAMPAIGN:q}")
