# SPDX-License-Identifier: Apache-2.0
# The end of the campaign.
#   takes  every gate of the ladder
#   makes  <campaign>/summary.json (each gate keeps it current on the way)
rule summary:
    input:
        gates=lambda wildcards: flow.gates(),
    output:
        summary=report(
            f"{CAMPAIGN}/summary.json",
            caption="../report/summary.rst",
            category="Verdict",
            labels={"campaign": flow.config.campaign},
        ),
    log:
        f"{CAMPAIGN}/summary.log",
    conda:
        "../envs/burnin.yaml"
    message:
        "summary"
    shell:
        "burnin summarise {output.summary:q} 2>&1 | tee {log:q} >&2"
