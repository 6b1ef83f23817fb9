# SPDX-License-Identifier: Apache-2.0
# The resume test: two jobs with the same command. The first is cancelled behind a checkpoint, the second must go on from it.
#   takes  <campaign>/resume/heat<k>/plan.json
#   makes  <campaign>/resume/heat<k>/<workload>/<group>/first.json, then result.json beside it
rule resume_first:
    input:
        plan=ancient(f"{CAMPAIGN}/resume/heat{{heat}}/plan.json"),
    output:
        result=f"{CAMPAIGN}/resume/heat{{heat}}/{{workload}}/{{group}}/first.json",
    log:
        f"{CAMPAIGN}/resume/heat{{heat}}/{{workload}}/{{group}}/first.log",
    conda:
        "../envs/burnin.yaml"
    message:
        "run {wildcards.workload} on {wildcards.group} and cancel it behind a checkpoint (resume, heat {wildcards.heat})"
    shell:
        "burnin run {output.result:q} > {log:q} 2>&1"


rule resume_second:
    input:
        plan=ancient(f"{CAMPAIGN}/resume/heat{{heat}}/plan.json"),
        first=ancient(
            f"{CAMPAIGN}/resume/heat{{heat}}/{{workload}}/{{group}}/first.json"
        ),
    output:
        result=f"{CAMPAIGN}/resume/heat{{heat}}/{{workload}}/{{group}}/result.json",
    log:
        f"{CAMPAIGN}/resume/heat{{heat}}/{{workload}}/{{group}}/second.log",
    conda:
        "../envs/burnin.yaml"
    message:
        "resume {wildcards.workload} on {wildcards.group} (resume, heat {wildcards.heat})"
    shell:
        "burnin run {output.result:q} > {log:q} 2>&1"
