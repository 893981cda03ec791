# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# Processes killed and stopped.

# ---- the base's agent -------------------------------------------------------------------------
fault base-agent-kill failed "kill -9 of the base's agent, which is the batch script"
inject_base_agent_kill() { signal_on "$BASE_HOST" KILL "$PATTERN_BASE_AGENT"; }

# Stopped for longer than AgentTimeout: its companions are taken for lost meanwhile.
fault base-agent-stop exact "the base's agent stopped (-STOP) for 40 s"
inject_base_agent_stop() { signal_on "$BASE_HOST" STOP "$PATTERN_BASE_AGENT"; }
heal_base_agent_stop() {
  local begin=$SECONDS
  pause 40
  say_at "stopped for $((SECONDS - begin)) s; $(store_value state)"
  signal_on "$BASE_HOST" CONT "$PATTERN_BASE_AGENT"
}
skip_base_agent_stop() { [ "$1" != ending ] || echo "the agent has nothing left to do"; }

# ---- a companion's agent ----------------------------------------------------------------------
fault companion-agent-kill exact "kill -9 of a companion's agent, which is its batch script"
skip_companion_agent_kill() { needs_companion_agent "$1"; }
inject_companion_agent_kill() { companion_agent KILL; }

fault companion-agent-stop exact "a companion's agent stopped (-STOP) for 15 s"
skip_companion_agent_stop() { needs_companion_agent "$1"; }
inject_companion_agent_stop() { companion_agent STOP; }
heal_companion_agent_stop() {
  wait_until_quiet 15 no_companions
  [ -z "$(pids_on "$COMPANION_NODE" "$PATTERN_COMPANION_AGENT")" ] || signal_on "$COMPANION_NODE" CONT "$PATTERN_COMPANION_AGENT"
}

companion_agent() { # SIGNAL, to the agent of one companion that has an agent
  local node nodes=()
  for node in $OTHER_NODES; do [ -z "$(pids_on "$node" "$PATTERN_COMPANION_AGENT")" ] || nodes+=("$node"); done
  [ ${#nodes[@]} -gt 0 ] || {
    echo "no companion's agent runs"
    TARGET_GONE=1
    return 1
  }
  pick "${nodes[@]}"
  COMPANION_NODE=$PICKED
  say_at "the agent on $COMPANION_NODE"
  signal_on "$COMPANION_NODE" "$1" "$PATTERN_COMPANION_AGENT"
}

# ---- both at once -----------------------------------------------------------------------------
fault agents-stop exact "the base's agent and a companion's stopped (-STOP) for 15 to 30 s"
skip_agents_stop() { chosen_phases "$1" switching-saving switching-stopped grown shrinking-saving; }
inject_agents_stop() { companion_agent STOP && signal_on "$BASE_HOST" STOP "$PATTERN_BASE_AGENT"; }
heal_agents_stop() {
  open_gates
  pause 15
  heal_companion_agent_stop
  [ -z "$(pids_on "$BASE_HOST" "$PATTERN_BASE_AGENT")" ] || signal_on "$BASE_HOST" CONT "$PATTERN_BASE_AGENT"
}

# ---- the trainer ------------------------------------------------------------------------------
# One rank, anywhere.
pick_rank() {
  local node pid found=()
  for node in $BASE_NODES $OTHER_NODES; do
    while read -r pid; do found+=("$node:$pid"); done < <(pids_on "$node" "$PATTERN_RANK")
  done
  [ ${#found[@]} -gt 0 ] || {
    echo "no rank runs"
    TARGET_GONE=1
    return 1
  }
  pick "${found[@]}"
  RANK_NODE=${PICKED%%:*} RANK_PID=${PICKED#*:}
  say_at "rank $RANK_PID on $RANK_NODE"
}
fault rank-kill exact "kill -9 of one trainer rank"
skip_rank_kill() { needs_trainer "$1"; }
inject_rank_kill() { pick_rank && on "$RANK_NODE" kill -9 "$RANK_PID"; }

fault rank-stop exact "one trainer rank stopped (-STOP) for 10 s"
skip_rank_stop() { needs_trainer "$1"; }
inject_rank_stop() { pick_rank && on "$RANK_NODE" kill -STOP "$RANK_PID"; }
heal_rank_stop() {
  pause 10
  on "$RANK_NODE" kill -CONT "$RANK_PID" 2>/dev/null || echo "the rank is gone"
}

fault mpirun-kill exact "kill -9 of mpirun"
inject_mpirun_kill() { signal_on "$BASE_HOST" KILL "$PATTERN_MPIRUN"; }
fault mpirun-stop exact "mpirun stopped (-STOP) for 10 s"
inject_mpirun_stop() { signal_on "$BASE_HOST" STOP "$PATTERN_MPIRUN"; }
heal_mpirun_stop() {
  pause 10
  signal_on "$BASE_HOST" CONT "$PATTERN_MPIRUN" || echo "mpirun is gone"
}

pick_orted() {
  local node nodes=()
  for node in $BASE_NODES $OTHER_NODES; do [ -z "$(pids_on "$node" "$PATTERN_ORTED")" ] || nodes+=("$node"); done
  [ ${#nodes[@]} -gt 0 ] || {
    echo "no orted runs"
    return 1
  }
  pick "${nodes[@]}"
  ORTED_NODE=$PICKED
  say_at "orted on $ORTED_NODE"
}
fault orted-kill exact "kill -9 of an orted"
skip_orted_kill() { needs_trainer "$1"; }
inject_orted_kill() { pick_orted && signal_on "$ORTED_NODE" KILL "$PATTERN_ORTED"; }
fault orted-stop exact "an orted stopped (-STOP) for 10 s"
skip_orted_stop() { needs_trainer "$1"; }
inject_orted_stop() { pick_orted && signal_on "$ORTED_NODE" STOP "$PATTERN_ORTED"; }
heal_orted_stop() {
  pause 10
  signal_on "$ORTED_NODE" CONT "$PATTERN_ORTED" || echo "the orted is gone"
}

# ---- Slurm's daemons --------------------------------------------------------------------------
saved_by_slurm() { (job_saved "${RIGID:-$JOB}"); } # says so, and is false, where it is not
fault slurmctld-kill exact "kill -9 of slurmctld, back after 5 s"
excuse_slurmctld_kill() { echo slurmctld; }
inject_slurmctld_kill() { saved_by_slurm && vc kill-ctld; }
heal_slurmctld_kill() {
  pause 5
  vc start-ctld
  wait_until_quiet 30 ctld_answers
}
fault slurmctld-stop exact "slurmctld stopped (-STOP) for 15 s"
excuse_slurmctld_stop() { echo slurmctld; }
inject_slurmctld_stop() { on ctl pkill -STOP -x slurmctld; }
heal_slurmctld_stop() {
  pause 15
  on ctl pkill -CONT -x slurmctld
  wait_until_quiet 30 ctld_answers
}
fault slurmctld-restart exact "slurmctld ended in good order (-TERM), back at once"
excuse_slurmctld_restart() { echo slurmctld; }
inject_slurmctld_restart() {
  vc kill-ctld TERM
  vc start-ctld
  wait_until_quiet 30 ctld_answers
}
fault slurmctld-reconfigure exact "scontrol reconfigure 50 times, jobs coming and going"
excuse_slurmctld_reconfigure() { [ "$PHASE" != shrinking-saving ] || echo rigid; }
inject_slurmctld_reconfigure() {
  local i
  for ((i = 0; i < 50; i++)); do
    [ $((i % 5)) -ne 0 ] || submit bob -H -J passing -N1 --gres=gpu:1 -o /dev/null --wrap true >/dev/null
    on ctl timeout 20 scontrol reconfigure || return 1
  done
  on ctl scancel --user bob --state=pending --name=passing # not the cell's rigid job
}

fault munged-ctl-kill exact "kill -9 of the controller's munged, back after 10 s"
excuse_munged_ctl_kill() { echo slurmctld; } # squeue cannot ask
late_munged_ctl_kill() { echo "$LATE_WORD"; }
setup_munged_ctl_kill() { patient_slurm; }
inject_munged_ctl_kill() { on ctl pkill -KILL -x munged; }
heal_munged_ctl_kill() {
  pause 10
  start_munged ctl
}
fault munged-ctl-stop exact "the controller's munged stopped (-STOP) for 10 s"
excuse_munged_ctl_stop() { echo slurmctld; }
late_munged_ctl_stop() { echo "$LATE_WORD"; }
setup_munged_ctl_stop() { patient_slurm; }
inject_munged_ctl_stop() { on ctl pkill -STOP -x munged; }
heal_munged_ctl_stop() {
  pause 10
  on ctl pkill -CONT -x munged
}
fault munged-base-kill exact "kill -9 of munged on the base's node, back after 10 s"
setup_munged_base_kill() { patient_slurm; }
inject_munged_base_kill() { on "$BASE_HOST" pkill -KILL -x munged; }
heal_munged_base_kill() {
  pause 10
  start_munged "$BASE_HOST"
}
fault munged-base-stop exact "munged on the base's node stopped (-STOP) for 10 s"
setup_munged_base_stop() { patient_slurm; }
inject_munged_base_stop() { on "$BASE_HOST" pkill -STOP -x munged; }
heal_munged_base_stop() {
  pause 10
  on "$BASE_HOST" pkill -CONT -x munged
}
