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

no_companions() { ! vc exec ctl squeue -h -o %j | grep -q -- -companion; }
rigid() { # submits bob's job for 4 of the 6 nodes and waits until it runs: prints id and seconds
  local start job
  start=$(now)
  job=$(submit bob -N4 --ntasks-per-node=1 --gres=gpu:1 -o rigid-%j.txt --wrap 'date +%s.%N; sleep 600')
  wait_until_quiet 60 test -s "$(home bob)/rigid-$job.txt" || fail "the rigid job $job did not start: $(job_state "$job")"
  awk -v j="$job" -v a="$start" -v b="$(head -n 1 "$(home bob)/rigid-$job.txt")" 'BEGIN { printf "%d %.2f\n", j, b - a }'
}

test_grow() {
  local job
  job=$(common_job alice long)
  assert_eq "$(job_field alice "$job" held_gpus)" "$((2 + $(live_companions alice | sort -u | wc -l)))" "GPUs: the base's and one a node"
  assert_eq alice "$(vc exec ctl squeue -h -o %u | sort -u)" "owners of all jobs"
  assert_contains "$(user alice sflex decisions -j "$job")" grow
}

test_table() { # what the planner kept and dropped is seen, and what the controller did follows it
  local job rows grow
  job=$(common_job alice long)
  rows=$(sflex_rows alice table "$job" | jq -cs .)
  jq -e 'length > 1 and all(.[]; .kept == (.drop_rule == ""))' <<<"$rows" >/dev/null ||
    fail "an entry is dropped without a rule, or kept with one: $rows"
  grow=$(sflex_rows slurm decisions -j "$job" -k grow | jq -s 'map(select(.outcome == "done"))[-1].id')
  # At most the GPUs that the job then had beside the idle ones; at equal speed the fewest.
  sflex_rows slurm explain "$grow" >"$VC_ROOT/grow.json"
  jq -e --argjson job "$job" '.to_gpus as $to | .snapshot as $s
    | ($s.elastic[] | select(.job_id == $job)) as $e
    | ([$s.offer_lists[$e.offers][][1]] | add) as $idle
    | [$e.table[] | select(.gpus > $e.held_gpus and .gpus <= $e.held_gpus + $idle and .gpus <= $e.max_gpus)]
    | max_by(.tokens_per_second).tokens_per_second as $best
    | any(.[]; .gpus == $to and .tokens_per_second == $best)' "$VC_ROOT/grow.json" >/dev/null ||
    fail "it grew to another size than the fastest kept one: $(jq -c '[.from_gpus, .to_gpus, .snapshot.idle_gpus, .snapshot.elastic]' "$VC_ROOT/grow.json")"
  echo "# $(jq -c 'map([.gpus, .kept])' <<<"$rows")"
}

test_give_back() {
  local job waits=() line
  job=$(common_job alice long)
  for _ in 1 2 3 4 5; do
    wait_grown alice "$job"
    line=$(rigid)
    waits+=("${line#* }")
    assert_eq 2 "$(job_field alice "$job" held_gpus)" "GPUs of the elastic job while bob's runs"
    job_is "$job" RUNNING || fail "the elastic job is $(job_state "$job")"
    as bob scancel "${line% *}"
  done
  echo "# the rigid jobs waited ${waits[*]} s, median $(printf '%s\n' "${waits[@]}" | median)"
  assert_le "$(printf '%s\n' "${waits[@]}" | median)" 15 "median wait of a rigid job in seconds"
}

test_switched_off() { # at a reconfigure; a pipe in the file's place holds nobody
  local job conf=$VC_SLURM_ETC/flextrain.conf keep start
  job=$(common_job alice long)
  keep=$(cat "$conf")
  printf '%s\nEnabled=no\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  start=$(now)
  wait_for 30 "no companion left" no_companions
  echo "# companions gone $(since "$start") s after Enabled=no"
  job_is "$job" RUNNING || fail "the elastic job is $(job_state "$job")"
  assert_contains "$(user alice sflex decisions -j "$job")" "elasticity was switched off"
  rm "$conf"
  mkfifo "$conf"
  start=$(now)
  vc exec ctl timeout 20 scontrol reconfigure
  assert_le "$(since "$start")" 8 "seconds of a reconfigure with a pipe for flextrain.conf"
  assert_contains "$(ctld_log)" "is a pipe, not a file"
  rm "$conf"
  printf '%s\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  wait_grown alice "$job"
}

test_controller_dies() {
  local job step
  job=$(common_job alice long)
  job_saved "$job"
  vc kill-ctld
  step=$(last_step alice long)
  wait_for 30 "steps go on without slurmctld" step_beyond alice long $((step + 20))
  vc start-ctld
  wait_for 30 "slurmctld answers" ctld_answers
  wait_for 60 "the agent reports again" at_step alice "$job" $((step + 20))
  wait_grown alice "$job"
  assert_eq "$(job_field alice "$job" held_gpus)" "$(($(vc exec ctl squeue -h -t R -o %i | wc -l) + 1))" "GPUs of running jobs"
}

test_power_loss() { # of a node with a companion
  local job step node
  job=$(common_job alice long)
  node=$(live_companions alice | head -n 1)
  step=$(last_step alice long)
  vc kill "$node"
  wait_for 120 "training goes on" step_beyond alice long $((step + 50))
  job_is "$job" RUNNING || fail "the job is $(job_state "$job")"
  # A node that returns before Slurm has missed it may be kept completing for two minutes.
  wait_for 60 "Slurm misses $node" node_is "$node" down
  vc start "$node"
  wait_for 60 "$node back" node_is "$node" 'idle\|alloc\|mixed'
  wait_grown alice "$job" 120
  as alice scancel "$job"
  wait_until_quiet 60 no_jobs || fail "jobs are left after the base was cancelled: $(vc exec ctl squeue)"
}

test_exact() {
  local elastic straight line
  elastic=$(train alice elastic "--elastic --elastic-max=3x -N2 --gres=gpu:1" \
    --set injection.layer_seconds=0.001 --set training.steps=400)
  wait_grown alice "$elastic"
  line=$(rigid)
  as bob scancel "${line% *}"
  wait_grown alice "$elastic"
  wait_job "$elastic" COMPLETED 180
  straight=$(train alice straight "-N2 --gres=gpu:1" --set training.steps=400)
  wait_job "$straight" COMPLETED 180
  assert_eq 400 "$(losses alice straight | wc -l)" "steps"
  assert_eq "$(losses alice straight)" "$(losses alice elastic)" "losses"
  assert_eq "$(digest alice straight)" "$(digest alice elastic)" "digest"
  [ -n "$(digest alice elastic)" ] || fail "no digest"
  [ "$(jq -s '[.[].gpus] | unique | length' "$(home alice)/train/elastic/metrics.jsonl")" -ge 2 ] || fail "the size never changed"
  echo "# 400 losses and digest $(digest alice elastic) equal; GPUs over time: $(jq -r .gpus "$(home alice)/train/elastic/metrics.jsonl" | uniq -c | awk '{ printf "%s x %s  ", $2, $1 }')"
}

# A rigid job that needs one GPU of an elastic job with two companions: the other one stays.
companion_jobs() { vc exec ctl squeue -h -t R -o '%i %j' | awk '$2 ~ /-companion$/ { print $1 }' | sort; }
has_gpus() { # JOB GPUS
  local row
  row=$(sflex_rows alice jobs -a -j "$1" | tail -n 1)
  jq -e --argjson gpus "$2" '.held_gpus == $gpus and .state == "steady"' <<<"${row:-null}" >/dev/null
}
test_keeps_one() {
  local job others small before after start step
  others=$(submit bob -N3 --ntasks-per-node=1 --gres=gpu:1 -o /dev/null --wrap 'sleep 600')
  wait_job "$others" RUNNING
  job=$(train alice three "--elastic --elastic-max=3x -N1 --gres=gpu:1" \
    --set injection.layer_seconds=0.002 --set training.steps=400)
  wait_for 120 "3 GPUs" has_gpus "$job" 3
  before=$(companion_jobs)
  start=$(now)
  small=$(submit bob -N1 --gres=gpu:1 -o /dev/null --wrap 'sleep 600')
  wait_job "$small" RUNNING 60
  echo "# the rigid job of one GPU waited $(since "$start") s at most"
  wait_for 30 "2 GPUs" has_gpus "$job" 2
  after=$(companion_jobs)
  assert_eq 2 "$(wc -l <<<"$before")" "companions before: $before"
  assert_eq 1 "$(wc -l <<<"$after")" "companions after: $after"
  assert_contains "$before" "$after" "the one that stays is one of them"
  assert_eq "3 2 done" "$(sflex_rows slurm decisions -j "$job" -k shrink | jq -r '[.from_gpus, .to_gpus, .outcome] | map(tostring) | join(" ")')" "the shrink"
  step=$(last_step alice three)
  wait_for 60 "it trains on, on 2 GPUs" step_beyond alice three $((step + 3))
  assert_eq 2 "$(tail -n 1 "$(home alice)/train/three/metrics.jsonl" | jq .gpus)" "GPUs of the newest step"
  step=$(last_step alice three)
  assert_eq "$(losses alice straight | head -n "$step")" "$(losses alice three | head -n "$step")" "losses"
  as alice scancel "$job"
  as bob scancel "$small" "$others"
  wait_for 60 "no companion left" no_companions
}

e2e_case "grows into idle GPUs, companions belong to the user" test_grow
e2e_case "the scale table says what it kept and dropped, and the growth follows it" test_table
e2e_case "rigid jobs get the GPUs back, 5 times" test_give_back
e2e_case "Enabled=no at a reconfigure gives the companions back" test_switched_off
e2e_case "training goes on while slurmctld is dead, and is controlled again afterwards" test_controller_dies
e2e_case "power loss of a companion's node" test_power_loss
e2e_case "losses and digest equal the straight run's" test_exact
e2e_case "a rigid job that needs one of two companions' GPUs leaves the other" test_keeps_one
e2e_done
