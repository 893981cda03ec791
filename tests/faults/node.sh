# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# Nodes lost, silent, drained, set down; companions that do not come to life.

not_running_there() { [ "$(job_state "$JOB")" != RUNNING ] || restarted; }

# ---- a node of the base: Slurm starts the job again, by itself, from its last checkpoint -----------
fault base-host-power requeued "power loss of the base's batch host"
inject_base_host_power() { vc kill "$BASE_HOST"; }
heal_base_host_power() {
  wait_until_quiet 60 not_running_there || return 1
  vc start "$BASE_HOST"
}

second_base_node() { for SECOND in $BASE_NODES; do [ "$SECOND" = "$BASE_HOST" ] || return 0; done; }
fault base-second-power requeued "power loss of the base's other node"
inject_base_second_power() {
  second_base_node
  vc kill "$SECOND"
}
heal_base_second_power() {
  wait_until_quiet 60 not_running_there || return 1
  vc start "$SECOND"
}

# The old trainer lives on there, unknown to Slurm, while the new one starts.
fault base-host-slurmd-stop requeued "slurmd of the batch host stopped (-STOP) until Slurm gives the node up"
inject_base_host_slurmd_stop() { on "$BASE_HOST" pkill -STOP -x slurmd; }
heal_base_host_slurmd_stop() {
  wait_until_quiet 60 not_running_there || return 1
  wait_until_quiet 10 restarted
  on "$BASE_HOST" pkill -CONT -x slurmd
}

fault base-host-drain exact "the batch host drained"
inject_base_host_drain() { on ctl scontrol update "nodename=$BASE_HOST" state=drain reason=fault; }

fault base-host-down requeued "the batch host set down by an operator, back when the job has left it"
inject_base_host_down() { on ctl scontrol update "nodename=$BASE_HOST" state=down reason=fault; }
heal_base_host_down() {
  wait_until_quiet 60 not_running_there || return 1
  resume_node "$BASE_HOST"
}

# ---- a node of a companion ---------------------------------------------------------------------
fault companion-node-power exact "power loss of a companion's node"
skip_companion_node_power() { needs_companion_job "$1"; }
inject_companion_node_power() { pick_companion && vc kill "$COMPANION_NODE"; }
heal_companion_node_power() {
  wait_until_quiet 40 node_looks_down || return 1
  vc start "$COMPANION_NODE"
}
node_looks_down() { [[ $(node_state "$COMPANION_NODE") == *down* ]]; }

fault companion-node-twice exact "a companion's node loses power, comes back, and loses it again"
skip_companion_node_twice() { chosen_phases "$1" switching-stopped grown; }
inject_companion_node_twice() { pick_companion && vc kill "$COMPANION_NODE"; }
heal_companion_node_twice() {
  vc start "$COMPANION_NODE"
  wait_until_quiet 20 slurmd_pid "$COMPANION_NODE"
  pause 2
  vc kill "$COMPANION_NODE"
  heal_companion_node_power
}

fault companion-node-slurmd-stop exact "slurmd of a companion's node stopped (-STOP) until Slurm gives the node up"
skip_companion_node_slurmd_stop() { needs_companion_job "$1"; }
inject_companion_node_slurmd_stop() { pick_companion && on "$COMPANION_NODE" pkill -STOP -x slurmd; }
heal_companion_node_slurmd_stop() {
  wait_until_quiet 90 node_looks_down || return 1
  on "$COMPANION_NODE" pkill -CONT -x slurmd
}

fault companion-node-drain exact "a companion's node drained"
skip_companion_node_drain() { needs_companion_job "$1"; }
inject_companion_node_drain() { pick_companion && on ctl scontrol update "nodename=$COMPANION_NODE" state=drain reason=fault; }
excuse_companion_node_drain() { echo rigid; } # the node it waits for may be the drained one

fault companion-node-down exact "a companion's node set down by an operator, back after 5 s"
skip_companion_node_down() { needs_companion_job "$1"; }
inject_companion_node_down() { pick_companion && on ctl scontrol update "nodename=$COMPANION_NODE" state=down reason=fault; }
heal_companion_node_down() {
  pause 5
  resume_node "$COMPANION_NODE"
}

# ---- companions that do not come to life ----------------------------------------------------------
growth_failed() { sflex_json decisions -j "$JOB" -k grow | jq -es 'any(.outcome == "rolled-back" or .outcome == "failed")' >/dev/null; }
mark_others() { for node in $OTHER_NODES; do : >"$MARKS/$1.$node"; done; }
# From base-running: the blocker goes, so that the job tries to grow.
unblock() {
  [ -z "$BLOCKER" ] || on ctl scancel "$BLOCKER"
  BLOCKER=
}
before_companions() { only_phases "$1" "the companions live already" base-running companions-pending; }

fault companion-prolog-fails exact "the prolog fails on the companions' nodes, which Slurm drains; resumed by an operator"
skip_companion_prolog_fails() { before_companions "$1"; }
inject_companion_prolog_fails() {
  mark_others prolog-fails
  unblock
}
heal_companion_prolog_fails() {
  local node status=0
  wait_until_quiet 60 growth_failed || status=1
  rm -f "$MARKS"/prolog-fails.*
  for node in $OTHER_NODES; do
    resume_node "$node"
  done
  return $status
}

fault companion-dies-early exact "companions start and die before they register"
skip_companion_dies_early() { before_companions "$1"; }
inject_companion_dies_early() {
  mark_others task-dies
  unblock
}
heal_companion_dies_early() {
  local status=0
  wait_until_quiet 60 growth_failed || status=1
  rm -f "$MARKS"/task-dies.*
  return $status
}

fault companion-never-granted exact "Slurm starts no job for longer than CompanionStartTimeout"
skip_companion_never_granted() { only_phases "$1" "the companions are granted already" base-running; }
inject_companion_never_granted() {
  sed -i 's/^SchedulerParameters=.*/SchedulerParameters=defer,batch_sched_delay=600,sched_interval=600,sched_min_interval=600000000,bf_interval=600/' \
    "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  on ctl scontrol reconfigure && unblock
}
heal_companion_never_granted() {
  local status=0
  wait_until_quiet 60 growth_failed || status=1
  cp "$VC_ROOT/slurm.conf.good" "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  on ctl scontrol reconfigure
  return $status
}

fault companion-preempted exact "Slurm preempts a companion by partition"
skip_companion_preempted() {
  only_phases "$1" "$([ "$1" = base-running ] && echo "no companion exists yet" || echo "a companion is on its way out")" \
    companions-pending companions-ready switching-saving switching-stopped switching-relaunching grown
}
setup_companion_preempted() {
  fault_flextrain_conf CompanionPreemptable=yes CompanionPartition=companion >"$VC_ROOT/etc/nodes/slurm/flextrain.conf"
  on ctl scontrol reconfigure
}
inject_companion_preempted() {
  RIGID=$(submit bob -N1 --ntasks-per-node=1 --gres=gpu:1 -o "rigid-%j.txt" --wrap 'date +%s.%N; sleep 900')
  [ -n "$RIGID" ]
}
keep_gate_companion_preempted() { :; }
one_companion_leaves() { [ "$(on ctl squeue -h -t R,CF -o %j | grep -c -- -companion$)" -lt 2 ]; }
heal_companion_preempted() { wait_until_quiet 15 one_companion_leaves || echo "both companions are there still"; }
