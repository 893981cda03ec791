# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# Packets that vanish between nodes and controller or between nodes; clocks that jump.

FLEXTRAIN_PORT=6822 # EndpointPort's default
mend_network() { vc mend; }
HEALERS+=(mend_network)

# ---- the controller unreachable for the agents -------------------------------------------------------
# Slurm's own traffic goes on: beyond SlurmdTimeout Slurm itself would give the nodes up.
cut_endpoint() {
  local node
  for node in $BASE_NODES $OTHER_NODES; do vc cut "$node" ctl $FLEXTRAIN_PORT || return 1; done
}
mend_after() { # SECONDS
  open_gates
  pause "$1"
  vc mend
}
fault endpoint-cut-1 exact "the controller's port unreachable for all agents, 1 s"
inject_endpoint_cut_1() { cut_endpoint; }
heal_endpoint_cut_1() { mend_after 1; }

fault endpoint-cut-30 exact "the controller's port unreachable for all agents, 30 s (AgentTimeout here: 30 s)"
inject_endpoint_cut_30() { cut_endpoint; }
heal_endpoint_cut_30() { mend_after 30; }

# 300 s at this cluster's timeouts, a third of the defaults.
fault endpoint-cut-300 exact "the controller's port unreachable for all agents, 300 s scaled by a third as the timeouts are: 100 s"
inject_endpoint_cut_300() { cut_endpoint; }
heal_endpoint_cut_300() { mend_after 100; }

fault ctl-cut-5 exact "all packets between the base's nodes and ctl vanish, Slurm's too, 5 s"
setup_ctl_cut_5() { patient_slurm; }
inject_ctl_cut_5() {
  local node
  for node in $BASE_NODES; do vc cut "$node" ctl || return 1; done
}
heal_ctl_cut_5() { mend_after 5; }

# ---- a companion cut off -----------------------------------------------------------------------------
cut_companion_from_base() {
  local node
  pick_companion || return 1
  for node in $BASE_NODES; do vc cut "$COMPANION_NODE" "$node" || return 1; done
}
fault companion-cut-10 exact "a companion's node and the base's cannot reach each other, 10 s"
skip_companion_cut_10() { needs_companion_job "$1"; }
inject_companion_cut_10() { cut_companion_from_base; }
heal_companion_cut_10() { mend_after 10; }

# Nobody mends it: the job has to go on without that node.
fault companion-cut exact "a companion's node and the base's cannot reach each other, until the job goes on"
skip_companion_cut() { needs_companion_job "$1"; }
inject_companion_cut() { cut_companion_from_base; }
heal_companion_cut() {
  local status=0 step
  open_gates
  wait_until_quiet 3 false # what was on its way
  step=$(step_now)
  # shellcheck disable=SC2317 # called by wait_until_quiet
  further() { at_least_step $((step + 3)) || ended_first; }
  wait_until_quiet 120 further || status=1
  say_at "from step $step to $(step_now) on $(gpus_now) GPUs"
  vc mend
  return $status
}

fault companion-ctl-cut exact "all packets between a companion's node and ctl vanish until Slurm gives the node up"
skip_companion_ctl_cut() { needs_companion_job "$1"; }
inject_companion_ctl_cut() { pick_companion && vc cut "$COMPANION_NODE" ctl; }
heal_companion_ctl_cut() {
  local status=0
  open_gates
  wait_until_quiet 60 node_looks_down || status=1
  vc mend
  return $status
}

# ---- clocks ------------------------------------------------------------------------------------------
cluster_up_clocks() {
  FAULT_SLURMD_TIMEOUT=$PATIENT up_with --clocks && sed 1d "$VC_ROOT/etc/nodes/slurm/task-prolog" >>"$GATES/task-prolog"
}
with_clocks() { echo clocks; }
CTLD_CLOCK_MOVED=no
mend_clocks() {
  local file name
  [ "$CLUSTER_KIND" = clocks ] || return 0
  for file in "$VC_ROOT"/clock/*; do
    name=${file##*/}
    [ "$(cat "$file")" = +0 ] || vc clock "${name%.*}" "${name#*.}" 0
  done
  if [ $CTLD_CLOCK_MOVED = yes ]; then # its scheduler would rest until the old time is reached again
    CTLD_CLOCK_MOVED=no
    vc kill-ctld TERM && vc start-ctld && wait_until_quiet 30 ctld_answers
  fi
}
HEALERS+=(mend_clocks)

set_back_after() { # SECONDS DAEMON NODE
  open_gates
  pause "$1"
  vc clock "$2" "$3" 0
}

# Forward for good; set back it would be the next fault at once.
fault clock-slurmctld-forward exact "slurmctld's clock jumps 10 minutes forward"
kind_clock_slurmctld_forward() { with_clocks; }
inject_clock_slurmctld_forward() {
  CTLD_CLOCK_MOVED=yes
  vc clock slurmctld ctl +600
}

# Slurm 22.05 starts no job until its clock is where it was (measured): no scheduler, no growth.
fault clock-slurmctld-back exact "slurmctld's clock jumps 10 minutes back, true again after 15 s"
kind_clock_slurmctld_back() { with_clocks; }
excuse_clock_slurmctld_back() { echo rigid; }
setup_clock_slurmctld_back() { set_slurm MinJobAge 1200; } # or it forgets what ended before it is true again
inject_clock_slurmctld_back() {
  CTLD_CLOCK_MOVED=yes
  vc clock slurmctld ctl -600
}
heal_clock_slurmctld_back() { set_back_after 15 slurmctld ctl; }

# Credentials from the future or too old: nobody talks to the controller meanwhile.
fault clock-munged-ctl-forward exact "the controller's munged 10 minutes ahead for 8 s"
kind_clock_munged_ctl_forward() { with_clocks; }
excuse_clock_munged_ctl_forward() { echo slurmctld; }
late_clock_munged_ctl_forward() { echo "$LATE_WORD"; }
inject_clock_munged_ctl_forward() { vc clock munged ctl +600; }
heal_clock_munged_ctl_forward() { set_back_after 8 munged ctl; }

fault clock-munged-ctl-back exact "the controller's munged 10 minutes behind for 8 s"
kind_clock_munged_ctl_back() { with_clocks; }
excuse_clock_munged_ctl_back() { echo slurmctld; }
late_clock_munged_ctl_back() { echo "$LATE_WORD"; }
inject_clock_munged_ctl_back() { vc clock munged ctl -600; }
heal_clock_munged_ctl_back() { set_back_after 8 munged ctl; }

fault clock-munged-base-forward exact "munged of the base's node 10 minutes ahead for 8 s"
kind_clock_munged_base_forward() { with_clocks; }
inject_clock_munged_base_forward() { vc clock munged "$BASE_HOST" +600; }
heal_clock_munged_base_forward() { set_back_after 8 munged "$BASE_HOST"; }

fault clock-munged-base-back exact "munged of the base's node 10 minutes behind for 8 s"
kind_clock_munged_base_back() { with_clocks; }
inject_clock_munged_base_back() { vc clock munged "$BASE_HOST" -600; }
heal_clock_munged_base_back() { set_back_after 8 munged "$BASE_HOST"; }

fault clock-slurmd-base-forward exact "slurmd of the base's node 10 minutes ahead"
kind_clock_slurmd_base_forward() { with_clocks; }
inject_clock_slurmd_base_forward() { vc clock slurmd "$BASE_HOST" +600; }

fault clock-slurmd-base-back exact "slurmd of the base's node 10 minutes behind"
kind_clock_slurmd_base_back() { with_clocks; }
inject_clock_slurmd_base_back() { vc clock slurmd "$BASE_HOST" -600; }

fault clock-agent-base-forward exact "agent and trainer on the base's node 10 minutes ahead"
kind_clock_agent_base_forward() { with_clocks; }
inject_clock_agent_base_forward() { vc clock jobs "$BASE_HOST" +600; }

fault clock-agent-base-back exact "agent and trainer on the base's node 10 minutes behind"
kind_clock_agent_base_back() { with_clocks; }
inject_clock_agent_base_back() { vc clock jobs "$BASE_HOST" -600; }

companion_clock() { pick_companion && vc clock jobs "$COMPANION_NODE" "$1"; }
fault clock-agent-companion-forward exact "agent and trainer on a companion's node 10 minutes ahead"
kind_clock_agent_companion_forward() { with_clocks; }
skip_clock_agent_companion_forward() { needs_companion_job "$1"; }
inject_clock_agent_companion_forward() { companion_clock +600; }

fault clock-agent-companion-back exact "agent and trainer on a companion's node 10 minutes behind"
kind_clock_agent_companion_back() { with_clocks; }
skip_clock_agent_companion_back() { needs_companion_job "$1"; }
inject_clock_agent_companion_back() { companion_clock -600; }

# ---- the protocol ------------------------------------------------------------------------------------
# A proxy (tests/agent/protocol_proxy.cc) between agents and controller, all along.
PROXY_PORT=6899
mend_proxy() { ! on ctl pgrep -f "^[^ ]*protocol_proxy $PROXY_PORT" >/dev/null || on ctl pkill -f "^[^ ]*protocol_proxy $PROXY_PORT"; }
HEALERS+=(mend_proxy)
proxy_rules() { # RULE…
  local dir=$VC_ROOT/marks
  mkdir -p "$CELL_DIR"
  printf '%s\n' "$@" >"$dir/proxy.rules"
  # shellcheck disable=SC2016
  on ctl /bin/bash -c 'setsid "$@" </dev/null >/dev/null 2>&1 &' proxy "$E2E_BUILD/bin/protocol_proxy" \
    $PROXY_PORT 127.0.0.1:$FLEXTRAIN_PORT "$dir/proxy.rules" "$dir/proxy.log" "$SEED"
  wait_until_quiet 10 on ctl grep -qi ":$(printf %04X $PROXY_PORT) 00000000:0000 0A" /proc/net/tcp
}
by_proxy() {
  echo "export FLEXTRAIN_CONTROLLER=ctl:$PROXY_PORT"
  echo "exec $(agent_line)"
}
proxy_did() { # WORD: or the cell shows nothing
  grep -q " $1" "$VC_ROOT/marks/proxy.log" || note_failure "the proxy never did '$1'"
}

fault orders-duplicated exact "half of all messages and answers between agents and controller come twice"
setup_orders_duplicated() { proxy_rules '* request duplicate p=0.5' '* response duplicate p=0.5'; }
script_orders_duplicated() { by_proxy; }
inject_orders_duplicated() { :; }
after_orders_duplicated() { proxy_did duplicate; }

fault orders-reordered exact "messages between agents and controller come late, out of order and again"
setup_orders_reordered() { proxy_rules '* request late 2 p=0.3' '* request delay 1 p=0.2' '* response delay 1 p=0.3'; }
script_orders_reordered() { by_proxy; }
inject_orders_reordered() { :; }
after_orders_reordered() { proxy_did late; }

fault orders-lost exact "a quarter of all messages and answers between agents and controller are lost"
setup_orders_lost() { proxy_rules '* request drop p=0.25' '* response drop p=0.25'; }
script_orders_lost() { by_proxy; }
inject_orders_lost() { :; }
after_orders_lost() { proxy_did drop; }
