# SPDX-License-Identifier: Apache-2.0
# Who runs with whom in the next heat.
#   takes  <campaign>/<step before>/heat<k>/gate.json (none for the first heat, which waits for the preflight)
#   makes  <campaign>/<step>/heat<k>/plan.json
checkpoint plan:
    input:
        gate=flow.gate_before,
        preflight=ancient(flow.preflight),
    output:
        plan=f"{CAMPAIGN}/{{step}}/heat{{heat}}/plan.json",
    log:
        f"{CAMPAIGN}/{{step}}/heat{{heat}}/plan.log",
    conda:
        "../envs/burnin.yaml"
    message:
        "plan {wildcards.step}, heat {wildcards.heat}"
    shell:
        "burnin plan-heat {output.plan:q} 2>&1 | tee {log:q} >&2"
