#!/bin/bash
# SPDX-License-Identifier: MIT
# An elastic job's life: it grows into idle GPUs, a rigid job gets them back soon, nothing changes
# in its bits; the controller's death and a power loss do not end it.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

# The gate off: these tests are about the mechanism; tests/policy has the gates.
flextrain_cluster "$(flextrain_conf Gate=none RemainingTimeGuard=no)" --gpus 1
eval "$(vc env)"
prepare_training alice

rigid() { # submits bob's job for 4 of the 6 nodes and waits until it runs: prints id and seconds
  local start job
  start=$(now)
  job=$(submit bob -N4 --ntasks-per-node=1 --gres=gpu:1 -o rigid-%j.txt --wrap 'echo $EPOCHREALTIME; sleep 600')
  wait_until_quiet 60 test -s "$(home bob)/rigid-$job.txt" || fail "the rigid job $job did not start: $(job_state "$job")"
  awk -v j="$job" -v a="$start" -v b="$(head -n 1 "$(home bob)/rigid-$job.txt")" 'BEGIN { printf "%d %.2f\n", j, b - a }'
}

test_grow() {
  local job
  job=$(train alice long "--elastic --elastic-max=3x -N2 --gres=gpu:1" --set output.min_step_seconds=0.1)
  echo "$job" >"$VC_ROOT/long.id"
  wait_size alice "$job" 6
  assert_eq 4 "$(sflex_rows alice companions | jq -r 'select(.state != "ended") | .node' | sort -u | wc -l)" "nodes with companions"
  assert_eq "alice alice alice alice alice" "$(vc exec ctl squeue -h -o %u | xargs)" "owners of all jobs"
  assert_contains "$(user alice sflex decisions -j "$job")" grow
}

test_give_back() {
  local job waits=() i line
  job=$(cat "$VC_ROOT/long.id")
  for i in 1 2 3 4 5; do
    wait_size alice "$job" 6
    line=$(rigid)
    waits+=("${line#* }")
    assert_eq 2 "$(job_field alice "$job" held_gpus)" "GPUs of the elastic job while bob's runs"
    job_is "$job" RUNNING || fail "the elastic job is $(job_state "$job")"
    as bob scancel "${line% *}"
  done
  echo "# the rigid jobs waited ${waits[*]} s, median $(printf '%s\n' "${waits[@]}" | median)"
  assert_le "$(printf '%s\n' "${waits[@]}" | median)" 15 "median wait of a rigid job in seconds"
}

test_controller_dies() {
  local job step
  job=$(cat "$VC_ROOT/long.id")
  wait_size alice "$job" 6
  vc kill-ctld
  step=$(tail -n 1 "$(home alice)/train/long/metrics.jsonl" | jq .step)
  wait_for 30 "steps go on without slurmctld" metrics_beyond long $((step + 20))
  vc start-ctld
  wait_for 30 "slurmctld answers" ctld_answers
  wait_for 60 "the agent is known again" at_step alice "$job" $((step + 20))
  wait_size alice "$job" 6
  assert_eq 5 "$(vc exec ctl squeue -h -t R -o %i | wc -l)" "running jobs: the base and its companions"
}
metrics_beyond() { [ "$(tail -n 1 "$(home alice)/train/$1/metrics.jsonl" | jq .step)" -ge "$2" ]; }

test_power_loss() { # of a node with a companion
  local job step
  job=$(cat "$VC_ROOT/long.id")
  wait_size alice "$job" 6
  step=$(tail -n 1 "$(home alice)/train/long/metrics.jsonl" | jq .step)
  vc kill n6
  wait_for 120 "training goes on" metrics_beyond long $((step + 50))
  job_is "$job" RUNNING || fail "the job is $(job_state "$job")"
  vc start n6
  wait_for 60 "n6 back" node_is n6 'idle\|alloc\|mixed'
  wait_size alice "$job" 6 120
  as alice scancel "$job"
  wait_until_quiet 60 no_jobs || fail "jobs are left after the base was cancelled: $(vc exec ctl squeue)"
}

test_exact() {
  local elastic straight line
  elastic=$(train alice elastic "--elastic --elastic-max=3x -N2 --gres=gpu:1" \
    --set output.min_step_seconds=0.1 --set training.steps=400)
  wait_size alice "$elastic" 6
  line=$(rigid)
  as bob scancel "${line% *}"
  wait_size alice "$elastic" 6
  wait_job "$elastic" COMPLETED 180
  straight=$(train alice straight "-N2 --gres=gpu:1" --set training.steps=400)
  wait_job "$straight" COMPLETED 180
  assert_eq 400 "$(losses alice straight | wc -l)" "steps"
  assert_eq "$(losses alice straight)" "$(losses alice elastic)" "losses"
  assert_eq "$(digest alice straight)" "$(digest alice elastic)" "digest"
  assert_contains "$(digest alice elastic)" "$(digest alice straight)"
  [ "$(jq -s '[.[].gpus] | unique | length' "$(home alice)/train/elastic/metrics.jsonl")" -ge 2 ] || fail "the size never changed"
}

e2e_case "grows into idle GPUs, companions belong to the user" test_grow
e2e_case "rigid jobs get the GPUs back, 5 times" test_give_back
e2e_case "training goes on while slurmctld is dead, and is controlled again afterwards" test_controller_dies
e2e_case "power loss of a companion's node" test_power_loss
e2e_case "losses and digest equal the straight run's" test_exact
e2e_done
