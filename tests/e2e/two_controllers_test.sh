#!/bin/bash
# SPDX-License-Identifier: MIT
# Two real slurmctlds of two clusters with the same DatabasePath: while the first lives the second's
# controller names it and keeps off; when it has gone the second still does not take over a database
# that is not its own. Neither touches the other's jobs; what runs ends with the straight run's bits.
# shellcheck disable=SC2317 # cases are called by name
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

FIRST=$VC_ROOT SECOND=$VC_ROOT-second
SHARED=$VC_ROOT-shared
first() { VC_ROOT=$FIRST; }
second() { VC_ROOT=$SECOND; }
tear_down_both() {
  second
  vc down --purge >/dev/null 2>&1
  rm -rf "$SHARED"
  first
  e2e_tear_down
}
mkdir -p "$SHARED"
chmod 1777 "$SHARED"
conf=$(flextrain_conf Gate=none RemainingTimeGuard=no LeaseSeconds=120 RenewSeconds=90 |
  sed "s|^DatabasePath=.*|DatabasePath=$SHARED/flextrain.db|")
flextrain_cluster "$conf" --nodes 2 --gpus 1 --bind "$SHARED"
second
flextrain_cluster "$conf" --nodes 2 --gpus 1 --bind "$SHARED"
trap tear_down_both EXIT
prepare_training alice
first
prepare_training alice

STEPS=(--set training.steps=90)
says() { ctld_log | grep -q "$1"; }
serves() { vc exec ctl ss -Hltn 'sport = :6822' | grep -q .; }
no_companions() { ! vc exec ctl squeue -h -o %j | grep -q -- -companion; }

test_refused() {
  second
  wait_for 20 "the second names the first" says 'flextrain: .*is locked by another process (host ctl pid [0-9]*)'
  assert_fails serves
  local job
  job=$(train alice here "--elastic --elastic-max=2x -N1 --gres=gpu:1" "${STEPS[@]}" --set injection.layer_seconds=0.002)
  echo "$job" >"$SECOND/job"
  first
  job=$(train alice here "--elastic --elastic-max=2x -N1 --gres=gpu:1" "${STEPS[@]}" --set injection.layer_seconds=0.004)
  echo "$job" >"$FIRST/job"
  wait_grown alice "$job"
  second
  wait_for 60 "the second's job trains without a controller" step_beyond alice here 5
  assert_ok no_companions
}

test_not_taken_over() {
  local companions
  first
  companions=$(vc exec ctl squeue -h -o '%i %j' | awk '/-companion/ { print $1 }')
  vc kill-ctld TERM
  second
  wait_for 30 "the second says whose it is" says "flextrain: .*is of cluster '.*' and this is"
  assert_fails serves
  assert_ok no_companions
  first
  vc start-ctld
  wait_for 40 "the first serves again" serves
  assert_ok is_grown alice "$(cat "$FIRST/job")"
  assert_eq "$companions" "$(vc exec ctl squeue -h -o '%i %j' | awk '/-companion/ { print $1 }')" "companions"
}

test_ends() {
  second
  wait_job "$(cat "$SECOND/job")" COMPLETED 200
  local straight
  straight=$(digest alice here)
  first
  wait_job "$(cat "$FIRST/job")" COMPLETED 200
  assert_eq "$straight" "$(digest alice here)" "digest"
  wait_for 60 "no companion is left" no_companions
  assert_eq 1 "$(sflex_rows alice jobs -a | wc -l)" "runs in the first's database"
}

test_own() { # as the message says
  second
  sed -i "s|^DatabasePath=.*|DatabasePath=$SHARED/second.db|" "$SECOND/etc/nodes/slurm/flextrain.conf"
  vc exec ctl scontrol reconfigure
  wait_for 40 "the second serves, with a database of its own" serves
}

e2e_case "the second is refused, and does not disturb the first" test_refused
e2e_case "the second does not take over what is the first's" test_not_taken_over
e2e_case "both trainings end with the same bits" test_ends
e2e_case "a database of its own, and the second serves" test_own
e2e_done
