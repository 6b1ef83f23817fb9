# SPDX-License-Identifier: Apache-2.0
# Sourced: prints the view named $view of this node, or runs the Python program. The file is opened before it is
# trusted, since another process may take the view away between a test and its use.
if [ -n "$view" ] && [ -n "${BURNIN_LAB:-}" ] &&
    { command exec 3<"$BURNIN_LAB/nodes/${SLURMD_NODENAME:-$(hostname)}/view/$view"; } 2>/dev/null; then
    exec cat <&3
fi
. "${0%/*}/../model/run.sh"
