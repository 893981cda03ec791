# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2119,SC2120,SC2153 # shared with the other files of this folder
# The fault cluster: 4 nodes of 1 GPU, kept up from cell to cell. cluster_ready KIND gives a cluster
# of that kind that is whole and idle: the one that is up, mended, or a new one.

FAULT_NODES=4
FAULT_SHRINK_TIMEOUT=20
RIGID_BOUND=$((FAULT_SHRINK_TIMEOUT + 10 + 5)) # ShrinkTimeout + KillWait + a round of the scheduler
CLUSTER_KIND=
FAULT_PLUGINS=(--sched "$E2E_BUILD")

GATE_SCRIPT='#!/bin/bash
# Jobs younger than the one that the gate names wait while it is closed, a minute at most (a test that
# died must not hold a node).
gate=%s/%s.$(hostname -s)
if [ -e "$gate" ] && [ "${SLURM_JOB_ID:-0}" -gt "$(cat "$gate")" ]; then
  echo "${SLURM_JOB_ID:-}" >"$gate.here"
  end=$((SECONDS + 60))
  while [ -e "$gate" ] && [ "$SECONDS" -lt "$end" ]; do sleep 0.1; done
  rm -f "$gate.here"
fi
'

# The scripts that wait at gates, and the folders of gates and marks.
write_gates() {
  GATES=$VC_ROOT/gates
  MARKS=$VC_ROOT/marks # prolog-fails.NODE, task-dies.NODE: laid and taken away by faults
  mkdir -p "$GATES" "$MARKS"
  chmod 1777 "$GATES" "$MARKS"
  # shellcheck disable=SC2059
  {
    printf "$GATE_SCRIPT" "$GATES" prolog
    printf '%s\n' "[ ! -e \"$MARKS/prolog-fails.\$(hostname -s)\" ]"
  } >"$GATES/prolog"
  # shellcheck disable=SC2059
  printf "$GATE_SCRIPT" "$GATES" epilog >"$GATES/epilog"
  cat >"$GATES/task-prolog" <<SH
#!/bin/bash
# task-dies.NODE: the task that is about to start dies (companions are the only jobs that start then).
[ ! -e "$MARKS/task-dies.\$(hostname -s)" ] || kill -9 \$PPID
SH
  cat >"$GATES/mpirun" <<SH
#!/bin/bash
# Between two trainers: launches after the one that the gate names wait while it is closed.
count=\$((\$(cat "$GATES/launches" 2>/dev/null || echo 0) + 1))
echo \$count >"$GATES/launches"
if [ -e "$GATES/launch" ] && [ \$count -gt "\$(cat "$GATES/launch")" ]; then
  : >"$GATES/launch.here"
  end=\$((SECONDS + 120))
  while [ -e "$GATES/launch" ] && [ "\$SECONDS" -lt "\$end" ]; do sleep 0.05; done
  rm -f "$GATES/launch.here"
fi
exec mpirun "\$@"
SH
  chmod 755 "$GATES"/{prolog,epilog,task-prolog,mpirun}
}

fault_slurm_conf() {
  cat <<CONF
Prolog=$VC_ROOT/gates/prolog
Epilog=$VC_ROOT/gates/epilog
TaskProlog=$VC_ROOT/gates/task-prolog
PrologFlags=Alloc
BatchStartTimeout=60
MaxJobCount=100000
SlurmdTimeout=${FAULT_SLURMD_TIMEOUT:-15}
CONF
}
fault_flextrain_conf() {
  flextrain_conf Gate=none RemainingTimeGuard=no LeaseSeconds=120 RenewSeconds=90 \
    CompanionStartTimeout=20 GrowTimeout=30 "ShrinkTimeout=$FAULT_SHRINK_TIMEOUT" AgentTimeout=30 \
    RetryAfterFailureSeconds=5 CompanionSignalSeconds=5 "$@"
}

# up_with UP-OPTIONS…: the cluster of this harness; families add options of their own.
up_with() {
  local dir
  dir=$(mktemp -d)
  vc down --purge >/dev/null 2>&1
  fault_slurm_conf >"$dir/slurm"
  fault_flextrain_conf >"$dir/flextrain"
  mkdir -p "$VC_ROOT/gates"
  : >"$VC_ROOT/.flextrain-vcluster" # the gates are part of it
  write_gates
  vc up --nodes $FAULT_NODES --gpus 1 --preempt --bind "$E2E_BUILD" "${FAULT_PLUGINS[@]}" \
    --flextrain-conf "$dir/flextrain" --conf "$dir/slurm" "$@"
  local status=$?
  rm -rf "$dir"
  return $status
}
cluster_up_plain() { up_with; }
# set_slurm KEY VALUE: for this cell; cluster_mend takes it back.
set_slurm() {
  sed -i "s/^$1=.*/$1=$2/" "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  on ctl scontrol reconfigure
}
# Slurm pings a node once in two thirds of SlurmdTimeout, so that this cluster's short one (node faults
# wait for it) gives a node up that could not be asked for 5 s. For faults that are not to be about that.
PATIENT=60
patient_slurm() { set_slurm SlurmdTimeout $PATIENT; }
# While munge on ctl refuses everything, slurmctld misses the word that a job's last process is gone.
# It asks again after KillWait + 2 MessageTimeout, looking once a minute; the node is free only then.
LATE_WORD=$((10 + 2 * 20 + 60))

# cluster_ready KIND: up, whole, idle. Says on stdout what it had to do.
cluster_ready() {
  if [ "$CLUSTER_KIND" = "$1" ] && cluster_mend; then return; fi
  [ -z "$CLUSTER_KIND" ] || echo "the cluster is brought up anew"
  CLUSTER_KIND=
  "cluster_up_$1" || return 1
  cp "$VC_ROOT/etc/nodes/slurm/flextrain.conf" "$VC_ROOT/flextrain.conf.good"
  cp "$VC_ROOT/etc/nodes/slurm/slurm.conf" "$VC_ROOT/slurm.conf.good"
  CLUSTER_KIND=$1
  make_straight
}

open_gates() {
  local file
  for file in "$GATES"/*; do
    case ${file##*/} in
      prolog | epilog | task-prolog | mpirun | launches) ;;
      *.here) ;;
      *) rm -f "$file" ;;
    esac
  done
  [ -z "${CELL_DIR:-}" ] || rm -f "$CELL_DIR/hold/"{save,last-save,init-4}
}

# Healers: functions that families add, called at each mending (must be quick where nothing is wrong).
HEALERS=()
SLURM_HEALERS=() # those that need a slurmctld that answers

all_nodes_idle() { [ "$(on ctl sinfo -h -N -p main -o %T 2>/dev/null | grep -cx idle)" -eq $FAULT_NODES ]; }

# Every daemon of Slurm runs and answers.
mend_daemons() {
  local i
  on ctl pkill -CONT -x 'slurmctld|munged'
  on ctl pgrep -x munged >/dev/null || start_munged ctl || return 1
  on ctl pgrep -x slurmctld >/dev/null || vc start-ctld
  for ((i = 1; i <= FAULT_NODES; i++)); do
    if ! vc exec n$i pgrep -x munged >/dev/null 2>&1 || ! vc exec n$i pgrep -x slurmd >/dev/null 2>&1; then
      vc kill n$i
      vc start n$i || return 1
    fi
    on n$i pkill -CONT .
  done
  wait_until_quiet 30 ctld_answers
}
mend_nodes() { for node in n1 n2 n3 n4; do resume_node $node; done; }
# A node that answers comes back by itself (ReturnToService=2); then there is nothing to resume.
resume_node() { case $(node_state "$1") in *down* | *drain* | *drng*) on ctl scontrol update "nodename=$1" state=resume ;; esac }

cluster_mend() {
  local file changed=no healer
  open_gates
  rm -f "$MARKS"/*
  vc exec ctl true 2>/dev/null || return 1
  for healer in ${HEALERS[@]+"${HEALERS[@]}"}; do "$healer" || return 1; done
  for file in slurm flextrain; do
    if ! cmp -s "$VC_ROOT/$file.conf.good" "$VC_ROOT/etc/nodes/slurm/$file.conf"; then
      cp "$VC_ROOT/$file.conf.good" "$VC_ROOT/etc/nodes/slurm/$file.conf"
      changed=yes
    fi
  done
  mend_daemons || return 1
  [ $changed = no ] || on ctl scontrol reconfigure
  for healer in ${SLURM_HEALERS[@]+"${SLURM_HEALERS[@]}"}; do "$healer" || return 1; done
  on ctl scancel --user alice
  on ctl scancel --user bob
  wait_until_quiet 20 no_jobs || {
    on ctl squeue
    return 1
  }
  mend_nodes
  wait_until_quiet 40 all_nodes_idle || {
    on ctl sinfo -N
    return 1
  }
}

# munged again on NODE, after it was killed.
start_munged() {
  on "$1" rm -f /run/munge/munge.socket.2 /run/munge/munge.socket.2.lock
  on "$1" munged --key-file=/etc/munge/munge.key --socket=/run/munge/munge.socket.2 \
    --pid-file=/run/munge/munged.pid --log-file="$VC_ROOT/log/munged.$1.log" \
    --seed-file=/run/munge/munged.seed
}
