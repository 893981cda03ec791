# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # shared with scripts/vcluster and vcluster-init, which source this
# Clocks of a virtual cluster: each daemon of each node (and the jobs there) reads its own offset
# from a file below clock/, by libfaketime, at every look at the clock. Only the time of day moves:
# monotonic clocks and the times of files stay true.

# Only where it is needed: a look through /usr/lib at every `vcluster exec` is a tenth of a machine.
vc_faketime() { find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 -print -quit 2>/dev/null; }

vc_clock_needs() { [ -n "$(vc_faketime)" ] || die "--clocks needs libfaketimeMT.so.1: install libfaketime (scripts/packages.txt)"; }

# vc_clock_env DAEMON NODE: NAME=VALUE words for env(1); none without --clocks.
vc_clock_env() {
  [ "$VC_CLOCKS" = yes ] || return 0
  echo "LD_PRELOAD=$(vc_faketime) FAKETIME_TIMESTAMP_FILE=$VC_ROOT/clock/$1.$2 FAKETIME_NO_CACHE=1" \
    FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1 FAKETIME_DISABLE_SHM=1 NO_FAKE_STAT=1
}

vc_clock_files() {
  local node daemon word
  rm -rf "$VC_ROOT/clock" && mkdir -p "$VC_ROOT/clock"
  for node in $(vc_node_names); do
    for daemon in slurmctld slurmd munged jobs; do echo +0 >"$VC_ROOT/clock/$daemon.$node"; done
  done
  { # what it prints, Slurm puts into each task's environment, the batch script's too
    echo '#!/bin/bash'
    for word in $(vc_clock_env jobs "\$(hostname)"); do echo "echo \"export $word\""; done
  } >"$VC_ROOT/etc/nodes/slurm/task-prolog"
  chmod 755 "$VC_ROOT/etc/nodes/slurm/task-prolog"
}

# vc_clock DAEMON NODE OFFSET
vc_clock() {
  local file=$VC_ROOT/clock/$1.$2 offset=$3
  [ "$VC_CLOCKS" = yes ] || die "these clocks cannot be set: 'up' was without --clocks"
  [ -e "$file" ] || die "no daemon '$1': slurmctld, slurmd, munged, jobs"
  [[ $offset =~ ^[+-]?[0-9]+$ ]] || die "the offset is a number of seconds, not '$offset'"
  [[ $offset == [+-]* ]] || offset=+$offset
  echo "$offset" >"$file.new" && mv "$file.new" "$file"
}
