#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm of its own on one machine: slurmctld, slurmdbd with MariaDB, munge, and one slurmd per node.
# Root, no systemd needed. Every node lives in its own PID, UTS, mount, network and time namespace, so that it has
# its own name, address, uptime and boot id, and one kill -9 of its first process is a power cut.
#
#   cluster.sh up                packages if missing, configuration, start, clients usable without any variable
#   cluster.sh down              stop everything that up started, take the link in /etc/slurm back
#   cluster.sh start | stop      the same without packages and without /etc/slurm (tests use it with SLURM_CONF)
#   cluster.sh status            which daemons live, sinfo
#   cluster.sh purge             stop, then remove $LAB
#   cluster.sh start-node NODE   power on (if off) and start slurmd
#   cluster.sh power-cut NODE    cable out, then kill -9 of everything at once: its peers see silence
#   cluster.sh reboot-node NODE  power cut and power on at once, before Slurm has noticed
#   cluster.sh crash-node NODE   kill -9 of slurmd, its stepds and tasks; the machine stays up
#   cluster.sh cut|mend NODE     network partition; the processes live on
#   cluster.sh in NODE CMD...    run CMD on the node
#   cluster.sh kill-ctld | start-ctld | kill-dbd | start-dbd
#   cluster.sh env               the line to eval for clients of this cluster (needed only where up made no link)
#
# Written outside $LAB: one bridge, one veth per node, and by `up` the link /etc/slurm/slurm.conf, only where no such
# file exists. Several clusters can run side by side, each with its own LAB and LABNO (ports, bridge, addresses).
set -u
LAB=${LAB:-/tmp/burnin-slurm}           # short: unix sockets live below it and end at 108 bytes
LABNO=${LABNO:-0}                       # 0..9
NDGX=${NDGX:-8}                         # dgx01 .. dgxNN
CPUS=${CPUS:-64}; MEM=${MEM:-512000}; GPUS=${GPUS:-8}    # what a node claims to have
SLURMD_TIMEOUT=${SLURMD_TIMEOUT:-10}    # a silent node is DOWN after 12 to 15 s (Slurm's default of 300 s is for production)
MSGTIMEOUT=${MSGTIMEOUT:-3}
MINJOBAGE=${MINJOBAGE:-300}
RTS=${RTS:-1}                           # ReturnToService=1: a node that rebooted behind Slurm's back stays DOWN
[ "$LABNO" -ge 0 ] && [ "$LABNO" -le 9 ] || { echo "cluster.sh: LABNO must be 0..9" >&2; exit 2; }
# what gen was told, is remembered: every later command sees the same cluster
# shellcheck disable=SC1091
[ -f "$LAB/etc/lab.env" ] && . "$LAB/etc/lab.env"

HOST=$(hostname -s); BRIDGE=burnin$LABNO; VETH=b$LABNO; NET=10.$((77 + LABNO)); CTLIP=$NET.255.254
CTLPORT=$((16817 + 10 * LABNO)); DBDPORT=$((CTLPORT + 2)); SQLPORT=$((13306 + LABNO))
WIDTH=2; [ "$NDGX" -gt 99 ] && WIDTH=3
RANGE=$(printf "dgx[%0${WIDTH}d-%0${WIDTH}d]" 1 "$NDGX")
mapfile -t NODES < <(seq -f "dgx%0${WIDTH}g" 1 "$NDGX")
export SLURM_CONF=$LAB/etc/slurm.conf
LINK=/etc/slurm/slurm.conf
# Slurm's plugin for --mpi=pmix wants the unversioned library, which Debian ships in a development package only:
# the nodes get a copy of the library's folder with that one link, mounted over the original
PMIX=$(readlink -f /usr/lib/*/libpmix.so.2 2>/dev/null | head -n 1); PMIX=${PMIX%/*}
PACKAGES="slurm-wlm slurmctld slurmd slurm-client munge slurmdbd mariadb-server mariadb-client libpmix2 iproute2 procps"

die() { echo "cluster.sh: $*" >&2; exit 1; }
nodeip() { echo "$NET.0.$((10#${1#dgx}))"; }
# daemons start with a clean environment: nothing of the caller's shell reaches the jobs by this way
# (an array, not a function: in the background a function is one process more, and $! would be the wrong one)
CLEAN=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 SLURM_CONF="$SLURM_CONF")

# --- packages ---------------------------------------------------------------------------------------------------

packages() {
  local missing=() p
  for p in $PACKAGES; do dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} = 0 ] && return 0
  command -v apt-get >/dev/null || die "needs the Debian packages ${missing[*]}; this machine has no apt-get"
  echo "installing ${missing[*]}"
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" \
    || die "the packages could not be installed"
}

# --- configuration ----------------------------------------------------------------------------------------------

gen() {
  mkdir -p "$LAB"/{etc,run,log,spool,state,munge,mysql,dev}
  chmod 755 "$LAB" "$LAB"/{etc,run,log,spool,state}; chmod 700 "$LAB/munge"
  printf '%s\n' LABNO="$LABNO" NDGX="$NDGX" CPUS="$CPUS" MEM="$MEM" GPUS="$GPUS" > "$LAB/etc/lab.env"
  ( umask 077; [ -s "$LAB/munge/munge.key" ] || dd if=/dev/urandom of="$LAB/munge/munge.key" bs=128 count=1 status=none )
  local i n
  # GPUs that are not there: slurmd wants one character device each, so these are copies of /dev/null
  for ((i = 0; i < GPUS; i++)); do [ -c "$LAB/dev/gpu$i" ] || mknod -m 666 "$LAB/dev/gpu$i" c 1 3; done
  # a copy, never renewed: it is mounted on running nodes
  [ -z "$PMIX" ] || [ -e "$LAB/pmix/libpmix.so" ] || { cp -a "$PMIX" "$LAB/pmix" && ln -s libpmix.so.2 "$LAB/pmix/libpmix.so"; }
  { cat /etc/hosts; for n in "${NODES[@]}"; do echo "$(nodeip "$n") $n"; done; } > "$LAB/etc/hosts"
  cat > "$LAB/etc/slurm.conf" <<E
ClusterName=lab
SlurmctldHost=$HOST($CTLIP)
SlurmctldPort=$CTLPORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$LAB/run/munge.socket
CredType=cred/munge
MpiDefault=none
ReturnToService=$RTS
StateSaveLocation=$LAB/state
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmdPidFile=$LAB/run/slurmd.%n.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdLogFile=$LAB/log/slurmd.%n.log
SlurmdSpoolDir=$LAB/spool/%n
# the nodes share /tmp, but two PMIx servers cannot share a folder
TmpFS=$LAB/spool/%n
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2,bf_resolution=60
PriorityType=priority/basic
# the nodes claim more CPUs and memory than this machine has
SlurmdParameters=config_overrides
GresTypes=gpu
SlurmctldTimeout=30
SlurmdTimeout=$SLURMD_TIMEOUT
InactiveLimit=0
KillWait=5
MinJobAge=$MINJOBAGE
MessageTimeout=$MSGTIMEOUT
BatchStartTimeout=10
UnkillableStepTimeout=180
TCPTimeout=2
AccountingStoreFlags=job_comment
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$CTLIP
AccountingStoragePort=$DBDPORT
AccountingStoragePass=$LAB/run/munge.socket
AccountingStorageTRES=gres/gpu
JobCompType=jobcomp/none
NodeName=DEFAULT CPUs=$CPUS RealMemory=$MEM Gres=gpu:$GPUS State=UNKNOWN
NodeName=$RANGE NodeHostname=$RANGE NodeAddr=$NET.0.[1-$NDGX] Port=16818
PartitionName=DEFAULT State=UP MaxTime=INFINITE DefaultTime=60
PartitionName=batch Nodes=$RANGE Default=YES
E
  echo "NodeName=$RANGE Name=gpu File=$LAB/dev/gpu[0-$((GPUS - 1))]" > "$LAB/etc/gres.conf"
  cat > "$LAB/etc/slurmdbd.conf" <<E
DbdHost=localhost
DbdAddr=$CTLIP
DbdPort=$DBDPORT
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$LAB/run/munge.socket
DebugLevel=info
LogFile=$LAB/log/slurmdbd.log
PidFile=$LAB/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$SQLPORT
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
E
  chmod 600 "$LAB/etc/slurmdbd.conf"
}

# --- which processes are ours -------------------------------------------------------------------------------------

# every daemon of this cluster keeps a file below $LAB open; a recycled pid does not, and is never touched
ours() { ls -l "/proc/$1/fd" 2>/dev/null | grep -qF -- "-> $LAB/"; }
pid_in() { local p; p=$(cat "$1" 2>/dev/null) && [ -n "$p" ] && ours "$p" && echo "$p"; }
alive() { pid_in "$1" >/dev/null; }
wait_for() {
  local n=$1; shift
  for _ in $(seq $((n * 10))); do "$@" >/dev/null 2>&1 && return 0; sleep .1; done
  echo "cluster.sh: gave up after $n s waiting for: $*" >&2; return 1
}
gone() { ! kill -0 "$1" 2>/dev/null; }
stop_pid() {
  local p; p=$(pid_in "$1") || return 0
  kill "$p" 2>/dev/null; wait_for 30 gone "$p" || kill -9 "$p"
  rm -f "$1"
}

# --- the daemons of the head --------------------------------------------------------------------------------------

ports_free() {
  alive "$LAB/run/slurmctld.pid" && return
  local b; b=$(ss -Hltn 2>/dev/null | grep -oE ":($CTLPORT|$DBDPORT|$SQLPORT) " | tr -d '\n')
  [ -z "$b" ] || alive "$LAB/run/mariadb.pid" || alive "$LAB/run/slurmdbd.pid" \
    || die "ports$b are taken by somebody else: choose another LABNO (0..9) and LAB"
}
start_net() {
  ip link show "$BRIDGE" >/dev/null 2>&1 && return
  ip link add "$BRIDGE" type bridge && ip addr add "$CTLIP/16" dev "$BRIDGE" && ip link set "$BRIDGE" up
}
start_munge() {
  alive "$LAB/run/munged.pid" && return
  "${CLEAN[@]}" munged --key-file="$LAB/munge/munge.key" --socket="$LAB/run/munge.socket" --pid-file="$LAB/run/munged.pid" \
    --log-file="$LAB/munge/munged.log" --seed-file="$LAB/munge/munged.seed" --num-threads=4
  wait_for 5 munge -n -S "$LAB/run/munge.socket"
}
sql() { mariadb --no-defaults -uroot -S "$LAB/mysql/mysql.sock" "$@"; }
start_db() {
  alive "$LAB/run/mariadb.pid" && return
  chown mysql: "$LAB/mysql"
  [ -d "$LAB/mysql/data/mysql" ] || mariadb-install-db --no-defaults --user=mysql --datadir="$LAB/mysql/data" \
    --auth-root-authentication-method=normal --skip-test-db >"$LAB/log/mariadb-install.log" 2>&1
  setsid mariadbd --no-defaults --user=mysql --datadir="$LAB/mysql/data" --socket="$LAB/mysql/mysql.sock" \
    --pid-file="$LAB/mysql/mariadb.pid" --bind-address=127.0.0.1 --port="$SQLPORT" --innodb-buffer-pool-size=128M \
    --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=2 --log-error="$LAB/mysql/mariadb.log" \
    >/dev/null 2>&1 </dev/null &
  echo $! > "$LAB/run/mariadb.pid"
  wait_for 30 sql -e 'select 1'
  local h
  for h in localhost 127.0.0.1; do
    sql -e "create database if not exists slurm_acct_db; create user if not exists slurm@'$h' identified by 'slurm'; grant all on slurm_acct_db.* to slurm@'$h';"
  done
}
start_dbd() {
  alive "$LAB/run/slurmdbd.pid" && return
  "${CLEAN[@]}" slurmdbd; wait_for 30 sacctmgr -n show cluster
  sacctmgr -n show cluster format=cluster%20 | grep -qw lab && return
  sacctmgr -i -Q add cluster lab
  sacctmgr -i -Q add account lab Cluster=lab Description=lab Organization=lab
  sacctmgr -i -Q add user root Account=lab DefaultAccount=lab Cluster=lab
}
start_ctld() {
  alive "$LAB/run/slurmctld.pid" && return
  "${CLEAN[@]}" slurmctld; wait_for 20 bash -c 'scontrol ping | grep -q UP'
}

# --- nodes --------------------------------------------------------------------------------------------------------

init_pid() { local p; p=$(pid_in "$LAB/run/node.$1.pid") && cat "/proc/$p/task/$p/children" 2>/dev/null | awk '{print $1}'; }
on_node() { local i; i=$(init_pid "$1"); [ -n "$i" ] || die "$1 is powered off"; shift; nsenter -t "$i" --pid --uts --mount --time --net -- "$@"; }
slurmd_pid() { local i; i=$(init_pid "$1") && [ -n "$i" ] && pgrep --ns "$i" --nslist pid -x -f "slurmd -N $1"; }
stepds() {
  local p
  for p in $(pgrep -f '^slurmstepd: '); do ls -l "/proc/$p/fd" 2>/dev/null | grep -qF "$LAB/log/slurmd.$1.log" && echo "$p"; done
}
below() { local c; for c in $(pgrep -P "$1"); do echo "$c"; below "$c"; done; }

boot_node() { # power on: a set of namespaces whose first process only reaps
  alive "$LAB/run/node.$1.pid" && return
  rm -f "$LAB/run/node.$1.up" "$LAB/run/slurmd.$1.pid"
  cat /proc/sys/kernel/random/uuid > "$LAB/run/node.$1.bootid"
  local uptime; uptime=$(cut -d. -f1 /proc/uptime)
  # shellcheck disable=SC2016
  "${CLEAN[@]}" setsid unshare --pid --uts --mount --net --time --boottime -$((uptime - 1)) --fork --kill-child=KILL --mount-proc \
    bash -c 'hostname "$1"; mount --bind "$3/hosts" /etc/hosts; mkdir -p /etc/slurm; mount --bind "$3" /etc/slurm
      mount --bind "$4" /proc/sys/kernel/random/boot_id; [ -z "$5" ] || mount --bind "$6" "$5"; echo ready > "$2"; while :; do sleep 100000 & wait $!; done' \
    "node:$1" "$1" "$LAB/run/node.$1.up" "$LAB/etc" "$LAB/run/node.$1.bootid" "$PMIX" "$LAB/pmix" \
    </dev/null >>"$LAB/log/node.$1.log" 2>&1 &
  echo $! > "$LAB/run/node.$1.pid"; wait_for 5 test -s "$LAB/run/node.$1.up" || return 1
  ip link del "$VETH$1" 2>/dev/null
  ip link add "$VETH$1" type veth peer name eth0 netns "$(init_pid "$1")" && ip link set "$VETH$1" master "$BRIDGE" up
  on_node "$1" sh -c "ip link set lo up; ip addr add $(nodeip "$1")/16 dev eth0; ip link set eth0 up"
}
start_node() {
  mkdir -p "$LAB/spool/$1"; boot_node "$1" || return 1
  [ -n "$(slurmd_pid "$1")" ] || on_node "$1" "${CLEAN[@]}" slurmd -N "$1"
}
power_cut() {
  ip link set "$VETH$1" down; local p; p=$(pid_in "$LAB/run/node.$1.pid") && kill -9 "$p"
  rm -f "$LAB/run/slurmd.$1.pid" "$LAB/run/node.$1.pid"
}
crash_node() {
  local s t= p; s=$(stepds "$1"); for p in $s; do t="$t $(below "$p")"; done
  # shellcheck disable=SC2046,SC2086
  kill -9 $(slurmd_pid "$1") $s $t 2>/dev/null; rm -f "$LAB/run/slurmd.$1.pid"
}
stop_node() {
  local p; p=$(slurmd_pid "$1"); [ -n "$p" ] && kill "$p" && wait_for 10 gone "$p"
  p=$(pid_in "$LAB/run/node.$1.pid") && kill -9 "$p"; rm -f "$LAB/run/node.$1.pid"
}
heard() { [ -z "$(sinfo -h -N -o '%T' | grep -E '[*]|unknown')" ] && scontrol ping | grep -q UP; }
ready() { [ -z "$(sinfo -h -N -o '%N %T' | awk '$2!~/^(idle|mixed|allocated|drained|draining|completing)$/')" ] && scontrol ping | grep -q UP; }

# --- all of it ----------------------------------------------------------------------------------------------------

start() {
  [ "$(id -u)" = 0 ] || die "needs root (namespaces, network)"
  local n pids=()
  ports_free; gen; start_net; start_munge || return 1; start_db || return 1; start_dbd || return 1; start_ctld || return 1
  for n in "${NODES[@]}"; do start_node "$n" & pids+=($!); done
  wait "${pids[@]}"
  wait_for 60 heard || { sinfo; return 1; }
  # a node that was switched off while a job ran is down for "unexpectedly rebooted": not now, this was us
  n=$(sinfo -h -N -t down -o '%N' | sort -u | paste -sd,); [ -z "$n" ] || scontrol update nodename="$n" state=resume
  wait_for 30 ready || { sinfo -R; return 1; }
}
stop() {
  local n d pids=()
  for n in "${NODES[@]}"; do stop_node "$n" & pids+=($!); done
  wait "${pids[@]}"
  for d in slurmctld slurmdbd mariadb munged; do stop_pid "$LAB/run/$d.pid"; done
  ip link del "$BRIDGE" 2>/dev/null; return 0
}
link_on() { # clients and jobs then need no variable; somebody else's configuration is never replaced
  mkdir -p "${LINK%/*}"
  if [ -e "$LINK" ] || [ -L "$LINK" ]; then
    [ "$(readlink "$LINK")" = "$SLURM_CONF" ] || { echo "note: $LINK exists and is not ours; type: eval \"\$(LAB=$LAB $0 env)\"" >&2; }
  else ln -s "$SLURM_CONF" "$LINK"; fi
}
link_off() { [ "$(readlink "$LINK" 2>/dev/null)" = "$SLURM_CONF" ] && rm -f "$LINK"; return 0; }

case ${1:-} in
  up) packages; start || die "the cluster did not come up; logs are in $LAB/log"; link_on; sinfo;;
  down) link_off; stop;;
  gen) gen;;
  start) start || die "the cluster did not come up; logs are in $LAB/log";;
  stop) stop;;
  purge) link_off; stop; case $LAB in /tmp/?*|/var/tmp/?*) rm -rf -- "$LAB";; *) die "remove $LAB yourself";; esac;;
  status) for d in munged mariadb slurmdbd slurmctld; do alive "$LAB/run/$d.pid" && echo "$d up" || echo "$d down"; done; sinfo -N -l;;
  start-node) start_node "$2";;
  stop-node) stop_node "$2";;
  power-cut) power_cut "$2";;
  reboot-node) power_cut "$2"; start_node "$2";;
  crash-node) crash_node "$2";;
  cut) ip link set "$VETH$2" down;;
  mend) ip link set "$VETH$2" up;;
  in) shift; on_node "$@";;
  kill-ctld) kill -9 "$(pid_in "$LAB/run/slurmctld.pid")"; rm -f "$LAB/run/slurmctld.pid";;
  start-ctld) start_ctld;;
  kill-dbd) kill -9 "$(pid_in "$LAB/run/slurmdbd.pid")"; rm -f "$LAB/run/slurmdbd.pid";;
  start-dbd) start_db; start_dbd;;
  env) echo "export SLURM_CONF=$SLURM_CONF";;
  *) sed -n '3,25p' "$0"; exit 2;;
esac
