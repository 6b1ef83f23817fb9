# SPDX-License-Identifier: Apache-2.0
# The diagnostic of a repaired node, from the head node, while it is still drained.
#   takes  <campaign>/retest/heat<k>/plan.json (only repaired nodes are in it)
#   makes  <campaign>/retest/heat<k>/diag/<node>/result.json
rule retest:
    input:
        plan=ancient(f"{CAMPAIGN}/retest/heat{{heat}}/plan.json"),
    output:
        result=f"{CAMPAIGN}/retest/heat{{heat}}/diag/{{group}}/result.json",
    log:
        f"{CAMPAIGN}/retest/heat{{heat}}/diag/{{group}}/run.log",
    localrule: True
    conda:
        "../envs/burnin.yaml"
    message:
        "retest {wildcards.group} alone (heat {wildcards.heat})"
    shell:
        "burnin retest-node {output.result:q} > {log:q} 2>&1"
