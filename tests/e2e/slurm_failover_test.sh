#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A stand-by slurmctld on ctl2: it holds no database, port or controller until it takes over, gives
# them up when it steps down, and can take over again in the same process. Agents and sflex find it.
# shellcheck disable=SC2016,SC2119,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

flextrain_cluster "$(flextrain_conf)" --nodes 3 --gpus 2 --backup
eval "$(vc env)"
prepare_training alice

standby_log=$VC_ROOT/log/slurmctld.ctl2.log

serves() { vc exec n2 scontrol ping | grep -q "at $1 is UP" && vc exec n2 timeout 5 sinfo >/dev/null; }
is_steady() { [ "$(job_field alice "$1" state)" = steady ]; }
# A scale table has come since ctl opened its endpoint again: the agent found it.
scale_table_again() { tac "$VC_ROOT/log/slurmctld.log" | grep -m1 -E 'flextrain: (listening|job [0-9]+: scale)' | grep -q scale; }
goes_on() { local step; step=$(last_step alice failover) && wait_for 60 "the trainer goes on" step_beyond alice failover "$step"; }
listens() { vc exec "$1" ss -Hltn 'sport = :6822' | grep -q .; }
is_not() { ! "$@"; }
epoch_of() { grep -o 'controller epoch [0-9]*' "$1" | tail -n 1; }

test_standby() {
  wait_for 20 "the stand-by is up" serves ctl2
  wait_for 20 "the controller on ctl" listens ctl
  assert_ok is_not listens ctl2
  assert_lacks "$(cat "$standby_log")" "controller epoch"
  train alice failover "--elastic=pp --elastic-max=1 -N1 -w n2 --gpus-per-node=1" \
    --set injection.layer_seconds=0.005 >"$VC_ROOT/job"
  wait_for 90 "the agent is registered" is_steady "$(cat "$VC_ROOT/job")"
}

test_takeover() {
  local job before
  job=$(cat "$VC_ROOT/job")
  before=$(epoch_of "$VC_ROOT/log/slurmctld.log")
  vc exec ctl scontrol takeover
  wait_for 30 "ctl2 took over" listens ctl2
  wait_for 60 "the agent found ctl2" grep -q "flextrain: job $job: scale table" "$standby_log"
  assert_ok is_steady "$job" # by sflex
  goes_on
  [ "$(epoch_of "$standby_log")" != "$before" ] || fail "the epoch did not grow: $before"
  assert_contains "$(as alice sbatch -N1 -w n2 -o /dev/null : -N1 -w n3 --wrap true)" "Submitted"
  assert_contains "$(as alice sbatch --elastic -N1 -o /dev/null --wrap true 2>&1)" "needs GPUs"
}

test_return() { # the primary comes back, and is taken over once more
  local start job
  start=$(now)
  vc start-ctld
  wait_for 30 "ctl serves again" listens ctl
  wait_for 20 "ctl2 let go" is_not listens ctl2
  echo "# back after $(since "$start")s"
  wait_for 20 "ctl2 is a stand-by" grep -q 'running in background mode' "$standby_log"
  wait_for 60 "the agent came back" scale_table_again
  assert_ok is_steady "$(cat "$VC_ROOT/job")"
  goes_on
  vc exec ctl scontrol takeover
  wait_for 30 "ctl2 took over again" listens ctl2
  # That it is taken is ours; when it starts is Slurm's, which took more than 30 s once in this place.
  job=$(submit alice -N1 -w n2 -o /dev/null : -N1 -w n3 --wrap true)
  [ -n "$job" ] || fail "ctl2 refuses a heterogeneous job"
  # Not a second return: plain Slurm 22.05 itself hangs for 30 s where roles change that quickly.
}

e2e_case "a stand-by holds nothing" test_standby
e2e_case "a take-over brings controller, flags and heterogeneous jobs" test_takeover
e2e_case "stepping down and taking over again" test_return
e2e_done
