#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Grid Engine of its own on one machine, for its DRMAA library: a qmaster and one execd per node.
# Root, Debian, no systemd needed. Every node has its own name and address (network, UTS, mount and PID namespace), so a
# job that asks for `hostname=dgx02` runs where `hostname` says dgx02.
#
#   cluster.sh up       packages if missing, configuration, start
#   cluster.sh down     stop what up started; what it spooled stays
#   cluster.sh start | stop      the same without packages
#   cluster.sh purge    stop, then remove $GELAB
#   cluster.sh status   which daemons live, qhost, queues, jobs
#   cluster.sh env      what clients need, to be eval'ed: eval "$(cluster.sh env)"; snakemake --profile drmaa single
#   cluster.sh crash-node NODE   kill -9 of everything on the node at once
#   cluster.sh start-node NODE   power on (if off) and start execd
#
# The cell, its spool and its logs are below $GELAB; a Grid Engine that the machine has already is not touched. Written
# outside: one bridge and one veth per node. Times suit tests: a job starts within about a second.
set -u
GELAB=${GELAB:-/tmp/burnin-gridengine}
GELABNO=${GELABNO:-0}                   # 0..9: ports, bridge and addresses of clusters side by side
NDGX=${NDGX:-3}                         # dgx01 .. dgxNN
MAX_UNHEARD=${MAX_UNHEARD:-00:00:30}    # a silent node is unknown after this (00:05:00 by default)
[ "$GELABNO" -ge 0 ] && [ "$GELABNO" -le 9 ] || { echo "cluster.sh: GELABNO must be 0..9" >&2; exit 2; }

BRIDGE=burnge$GELABNO; VETH=g$GELABNO; NET=10.$((97 + GELABNO)); HEADIP=$NET.255.254
export SGE_ROOT=$GELAB/root SGE_CELL=default SGE_QMASTER_PORT=$((17444 + 10 * GELABNO)) SGE_EXECD_PORT=$((17445 + 10 * GELABNO))
COMMON=$SGE_ROOT/$SGE_CELL/common
mapfile -t NODES < <(seq -f "dgx%02g" 1 "$NDGX")
PACKAGES="gridengine-master gridengine-exec gridengine-client gridengine-drmaa1.0 iproute2 procps"
DRMAA=/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0
# daemons start with a clean environment: nothing of the caller's shell reaches the jobs by this way
CLEAN=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 SGE_ROOT="$SGE_ROOT" \
  SGE_CELL="$SGE_CELL" SGE_QMASTER_PORT="$SGE_QMASTER_PORT" SGE_EXECD_PORT="$SGE_EXECD_PORT")

die() { echo "cluster.sh: $*" >&2; exit 1; }
nodeip() { echo "$NET.0.$((10#${1#dgx}))"; }

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

# The head is the machine itself. Grid Engine takes the name that its address resolves to, which for the loopback
# address is localhost whatever the machine calls itself: all its names are aliases of that one.
headnames() { { hostname; hostname -s; awk '$1 == "127.0.0.1" {$1 = ""; print}' /etc/hosts; } | tr -s ' ' '\n' | grep -v '^localhost$' | sort -u | paste -sd' '; }

gen() { # what the package's own set-up does, in a place of our own
  [ -f "$GELAB/made" ] && return
  mkdir -p "$GELAB"/{run,log,spool/qmaster/job_scripts,spool/db,spool/execd} "$COMMON"
  chmod 755 "$GELAB"
  local d n share=/usr/share/gridengine
  for d in bin lib utilbin; do cp -a "/var/lib/gridengine/$d" "$SGE_ROOT/"; done
  ln -sfn $share/util "$SGE_ROOT/util"
  echo "localhost $(headnames)" > "$COMMON/host_aliases"
  echo localhost > "$COMMON/act_qmaster"
  sed -e "s|^admin_user .*|admin_user none|; s|/var/spool/gridengine/spooldb|$GELAB/spool/db|" \
    -e "s|/var/spool/gridengine/qmaster|$GELAB/spool/qmaster|" $share/default-bootstrap > "$COMMON/bootstrap"
  # root submits here; a silent node is noticed soon
  sed -e "s|/var/spool/gridengine/execd|$GELAB/spool/execd|; s|^min_uid .*|min_uid 0|; s|^min_gid .*|min_gid 0|" \
    -e "s|^max_unheard .*|max_unheard $MAX_UNHEARD|; s|^load_report_time .*|load_report_time 00:00:05|" \
    -e "s|^administrator_mail .*|administrator_mail none|" $share/default-configuration > "$GELAB/configuration"
  local lib=/usr/lib/gridengine
  export LD_LIBRARY_PATH=$lib
  { $lib/spoolinit berkeleydb libspoolb "$GELAB/spool/db" init
    $lib/spooldefaults configuration "$GELAB/configuration"
    $lib/spooldefaults complexes $share/util/resources/centry
    $lib/spooldefaults usersets $share/util/resources/usersets
    $lib/spooldefaults managers root; } >"$GELAB/log/init" 2>&1 || die "the cell could not be made: $GELAB/log/init"
  unset LD_LIBRARY_PATH
  { echo "127.0.0.1 localhost $(headnames)"; for n in "${NODES[@]}"; do echo "$(nodeip "$n") $n"; done; } > "$GELAB/hosts.head"
  { echo "$HEADIP localhost $(headnames)"; for n in "${NODES[@]}"; do echo "$(nodeip "$n") $n"; done; } > "$GELAB/hosts.node"
}

template() { # FILE KEY VALUE...: a configuration with some values replaced
  local file=$1; shift
  while [ $# -gt 1 ]; do sed -i -E "s|^($1)[[:space:]].*|\\1 $2|" "$file"; shift 2; done
}
configure() { # needs the qmaster
  local f=$GELAB/conf
  [ -f "$GELAB/made" ] && return
  qconf -as localhost
  qconf -ssconf > "$f"
  # start what is submitted at once, not at the next interval of 15 s
  template "$f" schedule_interval 0:0:1 flush_submit_sec 1 flush_finish_sec 1
  qconf -Msconf "$f"
  # one slot a node: a run has its node to itself, and a second one for the same node waits; makes the hosts, too
  qconf -sq > "$f"
  template "$f" qname burnin.q hostlist "${NODES[*]}" slots 1 shell /bin/sh shell_start_mode unix_behavior \
    load_thresholds NONE pe_list NONE
  qconf -Aq "$f"
  touch "$GELAB/made"
}

# --- which processes are ours -------------------------------------------------------------------------------------

# every daemon of this cluster keeps a file below $GELAB open; a recycled pid does not, and is never touched
ours() { ls -l "/proc/$1/fd" "/proc/$1/cwd" 2>/dev/null | grep -qF -- "-> $GELAB/"; }
pid_in() { local p; p=$(cat "$1" 2>/dev/null) && [ -n "$p" ] && ours "$p" && echo "$p"; }
alive() { pid_in "$1" >/dev/null; }
wait_for() {
  local n=$1; shift
  for _ in $(seq $((n * 10))); do "$@" >/dev/null 2>&1 && return 0; sleep .1; done
  echo "cluster.sh: gave up after $n s waiting for: $*" >&2; return 1
}
gone() { ! kill -0 "$1" 2>/dev/null; }

# --- daemons --------------------------------------------------------------------------------------------------------

QMASTER=$GELAB/spool/qmaster/qmaster.pid
start_qmaster() {
  alive "$QMASTER" && return
  rm -f "$QMASTER"
  # a mount namespace of its own, in which the nodes have names
  # shellcheck disable=SC2016
  "${CLEAN[@]}" SGE_MASTER_PIDFILE="$QMASTER" unshare --mount sh -c 'mount --bind "$1" /etc/hosts; exec sge_qmaster' - "$GELAB/hosts.head" \
    </dev/null >>"$GELAB/log/qmaster" 2>&1
  wait_for 30 qconf -sss
}
init_pid() { local p; p=$(pid_in "$GELAB/run/$1.pid") && awk '{print $1}' "/proc/$p/task/$p/children"; }
boot_node() { # power on: namespaces whose first process only reaps
  alive "$GELAB/run/$1.pid" && return
  rm -f "$GELAB/run/$1.up"
  # shellcheck disable=SC2016
  "${CLEAN[@]}" setsid unshare --pid --uts --mount --net --fork --kill-child=KILL --mount-proc \
    bash -c 'hostname "$1"; mount --bind "$3" /etc/hosts; echo ready > "$2"; while :; do sleep 100000 & wait $!; done' \
    "node:$1" "$1" "$GELAB/run/$1.up" "$GELAB/hosts.node" </dev/null >>"$GELAB/log/$1" 2>&1 &
  echo $! > "$GELAB/run/$1.pid"; wait_for 10 test -s "$GELAB/run/$1.up" || return 1
  local inside; inside=$(init_pid "$1")
  ip link del "$VETH$1" 2>/dev/null
  ip link add "$VETH$1" type veth peer name eth0 netns "$inside" && ip link set "$VETH$1" master "$BRIDGE" up
  nsenter -t "$inside" --net sh -c "ip link set lo up; ip addr add $(nodeip "$1")/16 dev eth0; ip link set eth0 up"
}
start_node() {
  boot_node "$1" || return 1
  local inside; inside=$(init_pid "$1") || return 1
  pgrep --ns "$inside" --nslist pid -x sge_execd >/dev/null && return
  nsenter -t "$inside" --pid --uts --mount --net -- "${CLEAN[@]}" SGE_EXECD_PIDFILE="$GELAB/run/$1.execd" sge_execd \
    </dev/null >>"$GELAB/log/$1" 2>&1
}
stop_node() { # all processes of the node die with its first one
  local p; p=$(pid_in "$GELAB/run/$1.pid") && kill -9 "$p" && wait_for 10 gone "$p"
  rm -f "$GELAB/run/$1.pid"
}

# a node has reported if its queue instance is neither unknown nor in alarm
ready() { [ "$(qstat -f -q burnin.q 2>/dev/null | grep -c '^burnin.q@[^ ]* .*lx-amd64 *$')" = "$NDGX" ]; }

start() {
  [ "$(id -u)" = 0 ] || die "needs root (namespaces, network)"
  local n
  gen
  ip link show "$BRIDGE" >/dev/null 2>&1 || { ip link add "$BRIDGE" type bridge && ip addr add "$HEADIP/16" dev "$BRIDGE" && ip link set "$BRIDGE" up; }
  start_qmaster || return 1
  configure >>"$GELAB/log/init" 2>&1
  for n in "${NODES[@]}"; do start_node "$n" || return 1; done
  wait_for 60 ready || { qstat -f; return 1; }
}
stop() {
  local n p
  for n in "${NODES[@]}"; do stop_node "$n"; done
  p=$(pid_in "$QMASTER") && { kill "$p"; wait_for 20 gone "$p" || kill -9 "$p"; }
  rm -f "$QMASTER"
  ip link del "$BRIDGE" 2>/dev/null; return 0
}
# libdrmaa's allocator wants more static thread-local storage than the loader keeps for libraries that come late. This
# asks the loader for it; LD_PRELOAD of libjemalloc.so.2 would do as well, but changes the allocator of every process.
environment() {
  printf 'export %s\n' "SGE_ROOT=$SGE_ROOT" "SGE_CELL=$SGE_CELL" "SGE_QMASTER_PORT=$SGE_QMASTER_PORT" \
    "SGE_EXECD_PORT=$SGE_EXECD_PORT" "DRMAA_LIBRARY_PATH=$DRMAA" "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096"
}

case ${1:-} in
  up) packages; start || die "the cluster did not come up; logs are in $GELAB/log and $GELAB/spool"; qhost; echo "# type: eval \"\$($0 env)\"";;
  down|stop) stop;;
  start) start || die "the cluster did not come up; logs are in $GELAB/log and $GELAB/spool";;
  purge) p=$(pid_in "$QMASTER") && kill -9 "$p" # it takes its time to end well, and nothing of it is kept
    stop; case $GELAB in /tmp/?*|/var/tmp/?*) rm -rf -- "$GELAB";; *) die "remove $GELAB yourself";; esac;;
  status) alive "$QMASTER" && echo "qmaster up" || echo "qmaster down"; qhost; qstat -f;;
  crash-node) stop_node "$2";;
  start-node) start_node "$2";;
  env) environment;;
  *) sed -n '3,19p' "$0"; exit 2;;
esac
