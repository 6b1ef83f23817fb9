#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rank 0 prints for all ranks. Another rank (real Slurm) has nothing to do, unless its own node has a fault to act out.
if [ "${SLURM_PROCID:-0}" != 0 ] && [ -e "${BURNIN_LAB:-}/scenario.json" ] &&
    ! [ -e "$BURNIN_LAB/nodes/${SLURMD_NODENAME:-}/acts" ]; then
    exit 0
fi
. "${0%/*}/../model/run.sh"
