# SPDX-License-Identifier: Apache-2.0
# The look at the cluster before the first run: storage, containers, fabric, and all nodes with one launch.
#   takes  nothing but the config
#   makes  <campaign>/preflight/preflight.json; what cannot work at all stops here
rule preflight:
    output:
        preflight=report(
            f"{CAMPAIGN}/preflight/preflight.json",
            caption="../report/preflight.rst",
            category="Preflight",
            labels={"campaign": flow.config.campaign},
        ),
    log:
        f"{CAMPAIGN}/preflight/preflight.log",
    localrule: True
    conda:
        "../envs/burnin.yaml"
    message:
        "preflight"
    shell:
        "burnin preflight {output.preflight:q} 2>&1 | tee {log:q} >&2"
