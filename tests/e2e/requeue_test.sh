#!/bin/bash
# SPDX-License-Identifier: MIT
# Training jobs that Slurm requeues: after the power loss of a base node, or by the user's will, they
# go on by themselves from the last checkpoint at the size they get, and end with the straight run's
# bits.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

flextrain_cluster "$(flextrain_conf Gate=none RemainingTimeGuard=no)" --nodes 5 --gpus 1
eval "$(vc env)"
prepare_training alice
STEPS=(--set training.steps=150 --set output.min_step_seconds=0.2)

restarts() { vc exec ctl scontrol -o show job "$1" | grep -o 'Restarts=[0-9]*' | cut -d= -f2; }
restarted() { [ "$(restarts "$1")" = 1 ]; }
batch_host() { vc exec ctl scontrol -o show job "$1" | grep -o 'BatchHost=[a-z0-9]*' | cut -d= -f2; }
nodes_of() { vc exec ctl scontrol show hostnames "$(vc exec ctl squeue -h -j "$1" -o %N)"; }
base_log() { cat "$(home alice)/train/$1/job.log"; }
runs_again() {
  job_is "$1" RUNNING && return
  hurry_requeued "$1"
  false
}
# finished NAME JOB: to its end, with the straight run's losses and digest.
finished() {
  wait_job "$2" COMPLETED 240
  assert_eq "$(losses alice straight)" "$(losses alice "$1")" "losses"
  assert_eq "$(digest alice straight)" "$(digest alice "$1")" "digest"
  [ -n "$(digest alice "$1")" ] || fail "no digest"
}
no_companions() { ! vc exec ctl squeue -h -o %j | grep -q -- -companion; }

test_straight() {
  local job
  job=$(train alice straight "-N1 --gres=gpu:1" --set training.steps=150)
  wait_job "$job" COMPLETED 240
  assert_eq 150 "$(losses alice straight | wc -l)" "steps"
}

test_batch_node_without_checkpoint() {
  local job node start
  job=$(train alice first "--requeue --open-mode=append -N1 --gres=gpu:1" "${STEPS[@]}")
  wait_for 90 "20 steps" step_beyond alice first 20
  assert_eq "" "$(ls "$(home alice)/train/first/checkpoints")" "checkpoints"
  node=$(batch_host "$job")
  start=$(now)
  vc kill "$node"
  wait_for 120 "the job is requeued" restarted "$job"
  echo "# requeued $(since "$start") s after the power loss of its only node"
  wait_for 120 "the job runs again" runs_again "$job"
  [ "$(batch_host "$job")" != "$node" ] || fail "it runs on the dead node"
  vc start "$node"
  finished first "$job"
  wait_for 60 "$node is back" node_is "$node" idle
}

test_other_base_node() {
  local job node start before
  job=$(train alice second "--elastic --elastic-max=2x --requeue --open-mode=append -N2 --gres=gpu:1" \
    "${STEPS[@]}" --set checkpoint.every_steps=20)
  wait_grown alice "$job" 120
  wait_for 90 "40 steps" step_beyond alice second 40
  node=$(nodes_of "$job" | grep -vx "$(batch_host "$job")" | head -n 1)
  before=$(vc exec ctl squeue -h -o '%i %j' | awk '/-companion/ { print $1 }')
  start=$(now)
  vc kill "$node"
  wait_for 120 "the job is requeued" restarted "$job"
  echo "# requeued $(since "$start") s after the power loss of its second node"
  wait_for 120 "the old run's companions are gone" no_companions
  wait_for 120 "the job runs again" runs_again "$job"
  vc start "$node"
  finished second "$job"
  echo "# the agent meanwhile: $(base_log second | grep -m 1 -o 'a node of the job does not answer' || echo nothing)"
  assert_contains "$(base_log second)" "resuming from 'checkpoints/step-"
  assert_eq "0 1" "$(sflex_rows slurm jobs -a -j "$job" | jq -r .restart_count | sort -u | xargs)" "runs that registered"
  local companion
  for companion in $before; do
    job_is "$companion" RUNNING && fail "companion $companion of the old run is left"
  done
  wait_for 60 "$node is back" node_is "$node" idle
}

test_users_requeue() {
  local job step
  job=$(train alice third "--elastic --elastic-max=2x --requeue --open-mode=append -N1-2 --gres=gpu:1" "${STEPS[@]}")
  wait_for 90 "20 steps" step_beyond alice third 20
  as alice scontrol requeue "$job"
  wait_for 60 "the job is requeued" restarted "$job"
  step=$(last_step alice third)
  wait_for 120 "the job runs again" runs_again "$job"
  finished third "$job"
  echo "# requeued by its user at step $step: $(base_log third | grep -o 'resuming from.*step [0-9]*' | tail -n 1)"
  assert_contains "$(base_log third)" "resuming from 'checkpoints/step-"
}

# The harness itself: set down and back at once, a node is idle while the job's old run is still on it.
test_hurried() {
  local job
  job=$(submit alice --requeue -N1 -w n1 -o /dev/null --wrap 'trap "sleep 2; exit" TERM; sleep 300 & wait')
  wait_job "$job" RUNNING 60
  vc exec ctl scontrol update nodename=n1 state=down reason=fault
  vc exec ctl scontrol update nodename=n1 state=resume || true # back by itself
  wait_for 100 "the job runs again" runs_again "$job"
  assert_ok restarted "$job"
  wait_for 30 "slurmd knows the new run" slurmd_knows n1 "$job"
  vc exec ctl scancel "$job"
  wait_for 60 "slurmd lets go of it" eval "! slurmd_knows n1 $job"
}

e2e_case "the straight run" test_straight
e2e_case "a requeued job is hurried when no slurmd knows its old run" test_hurried
e2e_case "power loss of the batch node before the first checkpoint" test_batch_node_without_checkpoint
e2e_case "power loss of another base node of a grown job" test_other_base_node
e2e_case "a requeue by the user" test_users_requeue
e2e_done
