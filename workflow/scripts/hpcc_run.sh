#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hpcc_run.sh HPL_DAT COMMAND...
# One pass of HPC Challenge, for CPU nodes: COMMAND (the launcher and hpcc) runs in a fresh folder of the run directory,
# with an hpccinf.txt made from HPL_DAT; the HPL section of hpccoutf.txt goes to stdout. The folder keeps the files.
# hpcc runs all its tests; their sizes follow from HPL's N.
set -u
dat=$1
shift
folder=hpcc-${BURNIN_ITERATION:-0}
again=0
while ! mkdir "$folder" 2>/dev/null; do
    again=$((again + 1))
    [ "$again" -le 1000 ] || { echo "hpcc_run.sh: no folder $folder can be made here" >&2; exit 1; }
    folder=hpcc-${BURNIN_ITERATION:-0}.$again
done
cd "$folder" || exit 1
# hpccinf.txt is HPL.dat (its first 31 lines) and four lines about PTRANS; "device out" 8 sends HPL's part to hpccoutf.txt
{
    awk 'NR == 4 { print "8            device out (6=stdout,7=stderr,file)"; next } NR <= 31 { print }' "$dat"
    echo '##### This line (no. 32) is ignored (it serves as a separator). ######'
    echo '0                            Number of additional problem sizes for PTRANS'
    echo '1200                         values of N'
    echo '0                            number of additional blocking sizes for PTRANS'
    echo '40                           values of NB'
} >hpccinf.txt
"$@"
status=$?
if ! awk '/^Begin of HPL section/ { on = 1 } on { print; n++ } /^End of HPL section/ { on = 0 } END { exit !n }' hpccoutf.txt
then
    echo "hpcc_run.sh: hpcc left no HPL section in hpccoutf.txt (exit status $status)" >&2
    [ "$status" != 0 ] || status=1
fi
exit "$status"
