# SPDX-License-Identifier: Apache-2.0
# The decision on every node of a heat; drains who failed; brings summary.json up to date.
#   takes  the result.json of every run of the heat, the plan, the criteria
#   makes  <campaign>/<step>/heat<k>/gate.json
checkpoint gate:
    input:
        plan=ancient(f"{CAMPAIGN}/{{step}}/heat{{heat}}/plan.json"),
        results=flow.results_of_heat,
        criteria=flow.criteria_files,
    output:
        gate=report(
            f"{CAMPAIGN}/{{step}}/heat{{heat}}/gate.json",
            caption="../report/gate.rst",
            category="Gates",
            labels={"step": "{step}", "heat": "{heat}"},
        ),
    log:
        f"{CAMPAIGN}/{{step}}/heat{{heat}}/gate.log",
    conda:
        "../envs/burnin.yaml"
    message:
        "gate {wildcards.step}, heat {wildcards.heat}"
    shell:
        "burnin judge-heat {output.gate:q} 2>&1 | tee {log:q} >&2"
