# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # shared with the other files of this folder
# The elastic job of a cell and how it is brought into a phase. reach_PHASE returns when the job is
# there and held there; it fails, saying why, when it does not come.

CELL_STEPS=120
CELL_CHECKPOINT=12 # a checkpoint every so many steps: what may be redone at most
# 4 layers on 3 ranks are no faster than on 2: the job grows from 2 to 4 at once, by 2 companions.
TRAIN_SETS=(--set model.layers=4 --set training.global_batch=4 --set "training.steps=$CELL_STEPS"
  --set "checkpoint.every_steps=$CELL_CHECKPOINT" --set injection.layer_seconds=0.004
  --set output.profile_steps=2 --set output.trace=false)

agent_line() { # the usual line of an elastic job's script
  echo "flextrain-agent run --mpirun $GATES/mpirun -- flextrain-trainer train ../job.toml ${TRAIN_SETS[*]} --set injection.hold_dir=$CELL_DIR/hold"
}

# submit_cell_job CELL [SBATCH-OPTION…]; script on stdin. Prints the job's id. alice's, or JOB_OWNER's.
submit_cell_job() {
  local name=$1 owner=${JOB_OWNER:-alice} dir
  dir=$(home "$owner")/train/$name
  mkdir -p "$dir"
  {
    echo '#!/bin/bash'
    echo "#SBATCH --job-name=cell --chdir=train/$name --output=job.log --open-mode=append --ntasks-per-node=1 --time=30 --requeue -N2 --gres=gpu:1 ${*:2}"
    cat
  } >"$dir/job.sh"
  mkdir -p "$dir/hold"
  on ctl chown -R "$owner:" "$dir"
  user "$owner" sbatch --parsable "train/$name/job.sh"
}

# The straight run's digest, once per cluster.
make_straight() {
  local job
  CELL_DIR=
  prepare_training alice
  job=$(echo "flextrain-agent run -- flextrain-trainer train ../job.toml ${TRAIN_SETS[*]}" |
    submit_cell_job straight) || return 1
  wait_until_quiet 200 job_is "$job" COMPLETED || {
    echo "the straight run does not complete: $(job_state "$job")"
    tail -n 5 "$(home alice)/train/straight/job.log"
    return 1
  }
  STRAIGHT=$(digest alice straight)
  [ -n "$STRAIGHT" ] || return 1
  wait_until_quiet 20 all_nodes_idle
}

# What the trainer says: metrics.jsonl lies on the host.
step_now() {
  local line
  line=$(tail -n 1 "$CELL_DIR/metrics.jsonl" 2>/dev/null) || line=
  [[ $line =~ \"step\":([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}
gpus_now() {
  local line
  line=$(tail -n 1 "$CELL_DIR/metrics.jsonl" 2>/dev/null) || line=
  [[ $line =~ \"gpus\":([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}
at_least_step() { [ "$(step_now)" -ge "$1" ]; }
sflex_json() { on ctl "$E2E_BUILD/bin/sflex" "$@" --json 2>/dev/null | jq -c '(.rows? // [.])[]'; } # as root
store_row() { sflex_json jobs -a -j "$JOB" | tail -n 1; }
store_value() { store_row | jq -r --arg k "$1" '.[$k] // ""'; }
store_state_is() { [ "$(store_value state)" = "$1" ]; }
registered_companion() { sflex_json companions -j "$JOB" | jq -es 'any(.state == "registered")' >/dev/null; }
trains_grown() { [ "$(gpus_now)" -gt 2 ] && store_state_is steady; }
gate_reached() { [ -e "$1.here" ]; }
# close_gate GATE [BEYOND]: what is beyond that job or launch waits. Whoever was killed at this gate in an
# earlier cell has left its mark.
close_gate() {
  rm -f "$1.here"
  echo "${2:-0}" >"$1"
}
close_node_gates() { for node in n1 n2 n3 n4; do close_gate "$GATES/$1.$node" "$2"; done; }
nodes_waiting() { # GATE COUNT: in so many nodes' prologs or epilogs somebody waits
  local node count=0
  for node in n1 n2 n3 n4; do ! gate_reached "$GATES/$1.$node" || count=$((count + 1)); done
  [ $count -ge "$2" ]
}

# arrive SECONDS WHAT CMD…: waits; says what is missing.
arrive() {
  wait_until_quiet "$1" "${@:3}" && return
  note_failure "phase $PHASE not reached: waited $1 s for $2"
  return 1
}

start_cell_job() {
  if has_hook script "$FAULT"; then
    JOB=$(hook script "$FAULT" | submit_cell_job "$CELL" --elastic --elastic-max=2x --hold)
  else
    JOB=$(echo "exec $(agent_line)" | submit_cell_job "$CELL" --elastic --elastic-max=2x --hold)
  fi
  [ -n "$JOB" ] || {
    note_failure "the elastic job cannot be submitted"
    return 1
  }
  case $PHASE in # the companions are the next jobs
    companions-pending) close_node_gates prolog "$JOB" ;;
    companions-ready) close_node_gates prolog $((JOB + 1)) ;;
  esac
  on ctl scontrol release "$JOB"
  arrive 60 "the first step" at_least_step 1 || return 1
  BASE_NODES=$(on ctl scontrol show hostnames "$(job_value "$JOB" NodeList)" | xargs)
  BASE_HOST=$(job_value "$JOB" BatchHost)
  OTHER_NODES=$(for n in n1 n2 n3 n4; do [[ " $BASE_NODES " == *" $n "* ]] || echo $n; done | xargs)
  say_at "job $JOB on $BASE_NODES"
}

reach_phase() {
  mkdir -p "$CELL_DIR/hold"
  close_gate "$CELL_DIR/hold/slow"
  case $PHASE in
    base-running)
      BLOCKER=$(submit bob -N2 --gres=gpu:1 --ntasks-per-node=1 -o /dev/null --wrap 'sleep 900')
      arrive 20 "the blocker" job_is "$BLOCKER" RUNNING || return 1
      ;;
    switching-saving) close_gate "$CELL_DIR/hold/save" ;;
    switching-stopped) close_gate "$GATES/launch" 1 ;;
    switching-relaunching) close_gate "$CELL_DIR/hold/init-4" ;;
  esac
  start_cell_job || return 1
  case $PHASE in
    base-running)
      arrive 40 "the agent's registration" store_state_is steady && arrive 30 "step 5" at_least_step 5
      return
      ;;
    companions-pending)
      arrive 60 "companions in their prolog" nodes_waiting prolog 2
      return
      ;;
    companions-ready)
      arrive 60 "a companion in its prolog" nodes_waiting prolog 1 &&
        arrive 30 "a companion's registration" registered_companion
      return
      ;;
    switching-saving)
      arrive 60 "the save" gate_reached "$CELL_DIR/hold/save"
      return
      ;;
    switching-stopped)
      arrive 60 "the launch" gate_reached "$GATES/launch"
      return
      ;;
    switching-relaunching)
      arrive 60 "the new trainer" gate_reached "$CELL_DIR/hold/init-4"
      return
      ;;
  esac
  arrive 90 "the growth" trains_grown || return 1
  case $PHASE in
    grown) return ;;
    ending)
      close_gate "$CELL_DIR/hold/last-save"
      rm -f "$CELL_DIR/hold/slow"
      arrive 90 "the last save" gate_reached "$CELL_DIR/hold/last-save"
      return
      ;;
    shrinking-saving) close_gate "$CELL_DIR/hold/save" ;;
    shrinking-stopped) close_gate "$GATES/launch" "$(cat "$GATES/launches")" ;;
    shrinking-releasing) close_node_gates epilog "$JOB" ;;
  esac
  RIGID=$(submit bob -N1 --ntasks-per-node=1 --gres=gpu:1 -o "rigid-%j.txt" --wrap 'date +%s.%N; sleep 900')
  RIGID_FROM=$EPOCHREALTIME
  case $PHASE in
    shrinking-saving) arrive 30 "the save" gate_reached "$CELL_DIR/hold/save" ;;
    shrinking-stopped) arrive 30 "the launch" gate_reached "$GATES/launch" ;;
    shrinking-releasing) arrive 40 "a companion in its epilog" nodes_waiting epilog 1 ;;
  esac
}
