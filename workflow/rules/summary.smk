# SPDX-License-Identifier: Apache-2.0
# The end of the campaign.
#   takes  every gate of the ladder
#   makes  <campaign>/summary.json (each gate keeps it current on the way)
rule summary:
    input:
        gates=lambda wildcards: flow.gates(),
    output:
        summary=f"{CAMPAIGN}/summary.json",
    message:
        "summary"
    shell:
        "{BURNIN} summarise {output.summary:q}"
