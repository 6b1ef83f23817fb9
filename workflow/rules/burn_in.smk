# SPDX-License-Identifier: Apache-2.0
# One run: a workload on the nodes of a group until its window is over.
#   takes  <campaign>/<step>/heat<k>/plan.json and, so that two workloads never share a node, the result of the workload before
#   makes  <campaign>/<step>/heat<k>/<workload>/<group>/result.json; the raw files beside it are not Snakemake's
rule burn_in:
    input:
        # ancient: a plan that was made again, or a gate that was judged again, never throws a finished run away
        plan=ancient(f"{CAMPAIGN}/{{step}}/heat{{heat}}/plan.json"),
        before=ancient(flow.results_before),
    output:
        result=f"{CAMPAIGN}/{{step}}/heat{{heat}}/{{workload}}/{{group}}/result.json",
    log:
        f"{CAMPAIGN}/{{step}}/heat{{heat}}/{{workload}}/{{group}}/run.log",
    wildcard_constraints:
        step="single|x[0-9]+|halves|full",
    conda:
        "../envs/burnin.yaml"
    message:
        "run {wildcards.workload} on {wildcards.group} ({wildcards.step}, heat {wildcards.heat})"
    shell:
        "burnin run {output.result:q} > {log:q} 2>&1"
