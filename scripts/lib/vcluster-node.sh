# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with scripts/vcluster, which sources this
# Life of the nodes: namespaces, network, cgroups, daemons. Sourced by scripts/vcluster.

# ---- cgroups -----------------------------------------------------------------------------------

# Mount point of one cgroup v1 controller, or nothing.
vc_v1_mount() {
  local point type options
  while read -r _ point type options _; do
    [ "$type" = cgroup ] && [[ ,$options, == *",$1,"* ]] && echo "$point" && return
  done </proc/mounts
}

vc_v2_mount() { awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts; }

# Top folders of this cluster's cgroups, one a line, existing or not, of every kind.
vc_cgroup_tops() {
  local c m
  for c in freezer devices; do
    m=$(vc_v1_mount $c)
    [ -z "$m" ] || echo "$m/$VC_CGROUP"
  done
  m=$(vc_v2_mount)
  [ -z "$m" ] || echo "$m/$VC_CGROUP"
}

# Which kind of device constraint this machine offers: v1, v2 or none (prints why on stderr).
vc_detect_cgroup() {
  local f d probe=$VC_CGROUP.probe
  f=$(vc_v1_mount freezer) d=$(vc_v1_mount devices)
  if [ -n "$f" ] && [ -n "$d" ]; then
    if mkdir "$f/$probe" "$d/$probe" 2>/dev/null; then
      rmdir "$f/$probe" "$d/$probe"
      echo v1
      return
    fi
    rmdir "$f/$probe" "$d/$probe" 2>/dev/null
    note "vcluster: cgroup v1 is read-only here: GPUs are counted but not constrained"
  elif d=$(vc_v2_mount) && [ -n "$d" ] && ! grep -qv '^0::' /proc/self/cgroup; then # no hybrid
    if mkdir "$d/$probe" 2>/dev/null; then
      rmdir "$d/$probe"
      echo v2
      return
    fi
    note "vcluster: cgroup v2 is read-only here: GPUs are counted but not constrained"
  else
    note "vcluster: no usable cgroups here: GPUs are counted but not constrained"
  fi
  echo none
}

# The folders that make up NODE's cgroup.
vc_node_cgroups() {
  case $VC_CGROUP_KIND in
    v1) printf '%s\n' "$(vc_v1_mount freezer)/$VC_CGROUP/$1" "$(vc_v1_mount devices)/$VC_CGROUP/$1" ;;
    v2) printf '%s\n' "$(vc_v2_mount)/$VC_CGROUP/$1" ;;
  esac
}

# Moves the calling (sub)shell into NODE's cgroup.
vc_enter_cgroup() {
  local d
  while read -r d; do
    echo "$BASHPID" >"$d/cgroup.procs" || return 1
  done < <(vc_node_cgroups "$1")
}

# ---- namespaces --------------------------------------------------------------------------------

# Process ids (seen from here) that hold nodes of this cluster: `unshare` and process 1 of each.
vc_holders() { # [NODE]
  local file words
  while read -r file; do # one look at all of them: a machine with several clusters has many
    mapfile -d '' words <"$file" || continue
    [ -z "${1:-}" ] || [ "${words[-1]:-}" = "$1" ] || continue
    file=${file#/proc/}
    echo "${file%/cmdline}"
  done < <(grep -lzxF -f <(echo "$VC_TAG") /proc/[0-9]*/cmdline 2>/dev/null) # not in grep's own words
}

# Process 1 of NODE, verified; false where the node is off.
vc_pid() {
  local pid words
  { read -r pid <"$VC_STATE/$1.pid" && mapfile -d '' words <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
  [[ "${words[*]} " == *"vcluster-init $VC_TAG "*" $1 " ]] || return 1
  echo "$pid"
}

vc_up_check() { vc_pid "$1" >/dev/null; }

# vc_in NODE CMD…: runs CMD as root inside NODE, in its cgroup, in the caller's folder if it exists there.
vc_in() {
  local node=$1 pid
  shift
  pid=$(vc_pid "$node") || die "node $node is off"
  (
    vc_enter_cgroup "$node"
    # shellcheck disable=SC2016
    exec nsenter -t "$pid" -m -u -i -n -p -C -- /bin/bash -c \
      'cd -- "$1" 2>/dev/null || cd /; shift; unset TMPDIR SLURM_CONF; exec "$@"' vcluster "$PWD" "$@"
  )
}

# NODE: starts its namespaces in the background. Until the tag is in its command line the child
# keeps the lock (9), so that a `down` after a crash of `up` cannot miss it.
vc_launch() {
  local node=$1 d
  rm -f "$VC_STATE/$node".{pid,net,ready}
  while read -r d; do mkdir -p "$d"; done < <(vc_node_cgroups "$node")
  (
    vc_enter_cgroup "$node"
    exec setsid unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child \
      --propagation private "$VC_LIB/vcluster-init" "$VC_TAG" "$VC_ROOT" "$node" 9>&-
  ) </dev/null >"$VC_ROOT/log/init.$node.log" 2>&1 &
  disown # its end is no news for this shell
}

vc_wire() { # NODE: its veth pair
  local node=$1 pid
  wait_until 10 vc_up_check "$node" || die "node $node did not start: $VC_ROOT/log/init.$node.log"
  pid=$(vc_pid "$node")
  ip link add "$VC_LINK$node" type veth peer name eth0 netns "$pid" || die "cannot make $VC_LINK$node"
  ip link set "$VC_LINK$node" master "$VC_BRIDGE" up
  nsenter -t "$pid" -n ip -batch - <<BATCH || die "cannot set up the network of $node"
link set lo up
addr add $(vc_address "$node")/24 dev eth0
link set eth0 up
route add default via $VC_NET.254
BATCH
}

vc_start_daemon() { # NODE
  local node=$1 cmd
  wait_until 10 test -e "$VC_STATE/$node.ready" ||
    die "munged on $node did not start: $VC_ROOT/log/init.$node.log"
  case $node in
    ctl) cmd=$(vc_clock_env slurmctld ctl)' slurmctld -D' ;;
    ctl2) cmd=$(vc_clock_env slurmctld ctl2)" slurmctld -D -L '$VC_ROOT/log/slurmctld.ctl2.log'" ;;
    *)
      mkdir -p "$VC_ROOT/spool/$node"
      cmd=$(vc_clock_env slurmd "$node")" slurmd -D -N $node"
      ;;
  esac
  vc_in "$node" /bin/bash -c "setsid env $cmd </dev/null >>'$VC_ROOT/log/daemon.$node.out' 2>&1 9>&- &"
}

vc_power_off() { # NODE: as if its plug were pulled; returns when nothing of it is left
  local node=$1 pid d
  for pid in $(vc_holders "$node"); do kill -9 "$pid" 2>/dev/null; done
  ip link del "$VC_LINK$node" 2>/dev/null
  wait_until 10 vc_no_holder "$node" || die "processes of $node do not die"
  while read -r d; do vc_remove_cgroup "$d"; done < <(vc_node_cgroups "$node")
  rm -f "$VC_STATE/$node".{pid,net,ready}
}

vc_no_holder() { [ -z "$(vc_holders "${1:-}")" ]; }

# Kills what is left in a cgroup tree and removes it.
vc_remove_cgroup() {
  local top=$1
  [ -d "$top" ] || return 0
  wait_until 15 vc_try_remove_cgroup "$top" || note "vcluster: cannot remove cgroup $top"
}

vc_try_remove_cgroup() {
  local f pid
  while read -r f; do
    [ "$(cat "${f%/*}/freezer.state" 2>/dev/null)" != FROZEN ] || echo THAWED >"${f%/*}/freezer.state"
    while read -r pid; do
      [ "$pid" -eq 0 ] || [ "$pid" -eq $$ ] || kill -9 "$pid" 2>/dev/null
    done < <(cat "$f" 2>/dev/null)
  done < <(find "$1" -name cgroup.procs)
  find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
  [ ! -d "$1" ]
}
