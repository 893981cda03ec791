#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A stand-by slurmctld on n1: it holds no database, port or controller until it takes over, gives
# them up when it steps down, and can take over again in the same process.
# shellcheck disable=SC2016,SC2119,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

extra=$(mktemp)
printf '%s\n' 'SlurmctldHost=n1' 'SlurmctldTimeout=5' >"$extra"
flextrain_cluster "$(flextrain_conf)" --nodes 3 --gpus 2 --conf "$extra"
rm -f "$extra"
eval "$(vc env)"

standby_log=$VC_ROOT/log/standby.out
# shellcheck disable=SC2016
vc exec n1 /bin/bash -c 'setsid slurmctld -D </dev/null >>"$1" 2>&1 &' start "$standby_log"

serves() { vc exec n2 scontrol ping | grep -q "at $1 is UP" && vc exec n2 timeout 5 sinfo >/dev/null; }
listens() { vc exec "$1" ss -Hltn 'sport = :6822' | grep -q .; }
is_not() { ! "$@"; }
epoch_of() { grep -o 'controller epoch [0-9]*' "$1" | tail -n 1; }

test_standby() {
  wait_for 20 "the stand-by is up" serves n1
  wait_for 20 "the controller on ctl" listens ctl
  assert_ok is_not listens n1
  assert_lacks "$(cat "$standby_log")" "controller epoch"
  submit alice --elastic=pp -N1 -w n2 --gpus-per-node=1 -o /dev/null --wrap 'sleep 300' >"$VC_ROOT/job"
  wait_job "$(cat "$VC_ROOT/job")" RUNNING
}

test_takeover() {
  local job before
  job=$(cat "$VC_ROOT/job")
  before=$(epoch_of "$VC_ROOT/log/slurmctld.log")
  vc exec ctl scontrol takeover
  wait_for 30 "n1 took over" listens n1
  wait_for 20 "it knows the elastic job" grep -q "flextrain: job $job of alice: elastic (pp)" "$standby_log"
  [ "$(epoch_of "$standby_log")" != "$before" ] || fail "the epoch did not grow: $before"
  assert_contains "$(as alice sbatch -N1 -w n2 -o /dev/null : -N1 -w n3 --wrap true)" "Submitted"
  assert_contains "$(as alice sbatch --elastic -N1 -o /dev/null --wrap true 2>&1)" "needs GPUs"
}

test_return() { # the primary comes back, and is taken over once more
  local start job
  start=$(now)
  vc start-ctld
  wait_for 30 "ctl serves again" listens ctl
  wait_for 20 "n1 let go" is_not listens n1
  echo "# back after $(since "$start")s"
  wait_for 20 "n1 is a stand-by" grep -q 'running in background mode' "$standby_log"
  job_is "$(cat "$VC_ROOT/job")" RUNNING || fail "the job is $(job_state "$(cat "$VC_ROOT/job")")"
  vc exec ctl scontrol takeover
  wait_for 30 "n1 took over again" listens n1
  job=$(submit alice -N1 -w n2 -o /dev/null : -N1 -w n3 --wrap true)
  wait_job "$job" COMPLETED
  # Not a second return: plain Slurm 22.05 itself hangs for 30 s where roles change that quickly.
}

e2e_case "a stand-by holds nothing" test_standby
e2e_case "a take-over brings controller, flags and heterogeneous jobs" test_takeover
e2e_case "stepping down and taking over again" test_return
e2e_done
