# SPDX-License-Identifier: Apache-2.0
# Sourced by the programs in lab/bin and lab/slurm: runs the Python program of the same name.
# -I -S: half the start-up time; compiled modules are kept in the state folder, since the lab writes nowhere else
# (unless BURNIN_LAB_PYCACHE names a folder that several labs share).
if [ -n "${BURNIN_LAB:-}" ]; then
    exec "${BURNIN_LAB_PYTHON:-python3}" -I -S -X "pycache_prefix=${BURNIN_LAB_PYCACHE:-$BURNIN_LAB/.pycache}" \
        "${0%/*}/../model/main.py" "${0##*/}" "$@"
fi
exec "${BURNIN_LAB_PYTHON:-python3}" -I -S -B "${0%/*}/../model/main.py" "${0##*/}" "$@"
