# SPDX-License-Identifier: Apache-2.0
# The acceptance report, once the campaign is over; for one that is not, an operator calls `burnin report`.
#   takes  <campaign>/summary.json and, by themselves, all plans, results and gates
#   makes  <campaign>/report.html, summary.csv, junit.xml, and report.sha256: the hashes of what they were made from
rule report:
    input:
        summary=f"{CAMPAIGN}/summary.json",
    output:
        # it also stands in Snakemake's own report (--report)
        page=report(
            f"{CAMPAIGN}/report.html",
            caption="../report/acceptance.rst",
            category="Verdict",
            labels={"campaign": f"{flow.config.campaign}: acceptance report"},
        ),
        table=f"{CAMPAIGN}/summary.csv",
        junit=f"{CAMPAIGN}/junit.xml",
        hashes=f"{CAMPAIGN}/report.sha256",
    log:
        f"{CAMPAIGN}/report.log",
    conda:
        "../envs/burnin.yaml"
    params:
        folder=lambda wildcards, input: input.summary.rpartition("/")[0],
    message:
        "report"
    shell:
        "burnin report {params.folder:q} 2>&1 | tee {log:q} >&2"
