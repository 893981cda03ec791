#!/bin/bash
# SPDX-License-Identifier: MIT
# How long a rigid job waits for expanded GPUs, with CompanionPreemptable=no and =yes in the same
# run: real daemons, one elastic job of 2 GPUs grown over the six nodes, SUBMISSIONS rigid jobs of 4 nodes each,
# one after the other. Prints every wait, who took the companions back (the controller's orderly
# shrink, or Slurm's preemption), and the quantiles. Usage: bench/rigid_wait.sh [SUBMISSIONS]  (20)
# shellcheck disable=SC2016,SC2317
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=tests/e2e/lib.sh
. "$repo/tests/e2e/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$repo/tests/e2e/flextrain_lib.sh"
submissions=${1:-20}

# How often Slurm has told a companion to leave, as the base's agent was told.
called_back() { grep -c 'Slurm calls companion' "$(home alice)/train/long/job.log"; }
one_wait() { # ELASTIC-JOB: "seconds who" of one rigid job
  local start job preempted
  wait_grown alice "$1" 180
  preempted=$(called_back)
  start=$(now)
  job=$(submit bob -N4 --ntasks-per-node=1 --gres=gpu:1 -o rigid-%j.txt --wrap 'date +%s.%N; sleep 600')
  wait_for 180 "rigid job $job to start" test -s "$(home bob)/rigid-$job.txt"
  awk -v a="$start" -v b="$(head -n 1 "$(home bob)/rigid-$job.txt")" \
    -v slurm=$(($(called_back) - preempted)) \
    'BEGIN { printf "%.2f %s\n", b - a, (slurm > 0 ? "slurm" : "controller") }'
  as bob scancel "$job"
}
quantile() { sort -n | awk -v q="$1" '{ v[NR] = $1 } END { i = int(q * (NR - 1) + 1.5); if (i > NR) i = NR; print v[i] }'; }

measure() { # no|yes
  local job i line waits=() who=() options=()
  local conf=(Gate=none RemainingTimeGuard=no "CompanionPreemptable=$1")
  if [ "$1" = yes ]; then
    options=(--preempt)
    conf+=(CompanionPartition=companion)
  fi
  flextrain_cluster "$(flextrain_conf "${conf[@]}")" --gpus 1 "${options[@]}"
  eval "$(vc env)"
  prepare_training alice
  job=$(train alice long "--elastic --elastic-max=3x -N2 --gres=gpu:1" --set injection.layer_seconds=0.001)
  for ((i = 1; i <= submissions; i++)); do
    line=$(one_wait "$job") || { echo "$line"; exit 1; }
    waits+=("${line% *}") who+=("${line#* }")
    printf '  %2d  %6.2f s  %s\n' "$i" "${line% *}" "${line#* }"
  done
  job_is "$job" RUNNING || fail "the elastic job is $(job_state "$job")"
  printf 'CompanionPreemptable=%-3s  n %d  min %.2f  median %.2f  p90 %.2f  max %.2f s; companions taken by: %s\n' "$1" \
    "$submissions" "$(printf '%s\n' "${waits[@]}" | quantile 0)" "$(printf '%s\n' "${waits[@]}" | quantile .5)" \
    "$(printf '%s\n' "${waits[@]}" | quantile .9)" "$(printf '%s\n' "${waits[@]}" | quantile 1)" \
    "$(printf '%s\n' "${who[@]}" | sort | uniq -c | xargs)"
  echo "  switches of the elastic job: $(sflex_rows alice jobs -a -j "$job" | tail -n 1 | jq -c '{grows, shrinks, failures}')"
  vc down --purge >/dev/null 2>&1
}

measure no
measure yes
