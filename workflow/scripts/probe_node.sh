#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reads one node: sourced by the script that a run writes, called there as
#   sh probe.sh FOLDER TIMEOUT_SECONDS
# probe TOOL COMMAND...  frames the output of one command, so that what was cut or missing is seen.
folder=$1
limit=$2
node=${SLURMD_NODENAME:-$(hostname -s)}
part=$folder/.$node.part
read -r up _ </proc/uptime
read -r boot </proc/sys/kernel/random/boot_id
exec >"$part" 2>&1
printf '#@burnin node %s time %s up %s zone %s boot %s\n' "$node" "$(date +%s)" "$up" "$(date +%z)" "${boot:-unknown}"

probe() {
    tool=$1
    shift
    printf '#@burnin begin %s %s\n' "$tool" "$*"
    timeout -k 5 "$limit" "$@" </dev/null
    printf '\n#@burnin end %s\n' "$?"
}

finish() {
    printf '#@burnin finished\n'
    mv "$part" "$folder/$node.txt"
}
