#!/bin/bash
# SPDX-License-Identifier: MIT
# A trainer that keeps docs/agent-contract.md and computes nothing. State: ./checkpoint holds the
# last saved step. Knobs are files in the working folder, so that tests can turn them at any time:
#   steps N            total steps (default 1000000)
#   fail_at_ranks N    exit 9 before the first step when launched with N ranks
#   leave_at_ranks N   every rank exits 0 at once when launched with N ranks
#   refuse_at_ranks N  the same with 78
#   crash              exit 9 at the next step (the file is removed first)
#   slow_at_ranks N    wait before the first step when launched with N ranks, until signalled
#   no_phases          write progress only
#   ignore_signals     never checkpoint on a signal
#   save_fails TEXT    saving on a signal fails for this reason
#   save_seconds N     a save takes so long
#   save_now           a save that nobody asked for, as long as the file is there
#   hang_at N          stop dead at this step
#   hang_on_signal     stop dead instead of saving
#   never_ends         stop dead after saving
#   clock_shift N      the trainer's clock is off by so many seconds
#   pace SECONDS       a step takes so long (0.02)
#   scale_table.json   the table that it offers instead of a made-up one
set -u
rank=${OMPI_COMM_WORLD_RANK:-0} size=${OMPI_COMM_WORLD_SIZE:-1}
dir=$FLEXTRAIN_CONTROL_DIR
stop=0
trap '[ -e ignore_signals ] || stop=1' USR1 TERM

shift=0
now() { if [ "$shift" = 0 ]; then date +%s.%N; else date -d "$shift seconds" +%s.%N; fi; }
put() { # FILE TEXT: atomically
  printf '%s\n' "$2" >"$dir/.$1.tmp" && mv "$dir/.$1.tmp" "$dir/$1"
}
phase() { # NAME [REASON]
  [ -e no_phases ] || printf '{"phase":"%s","time":%s,"reason":"%s"}\n' "$1" "$(now)" "${2:-}" >>"$dir/phases.jsonl"
}
progress() {
  put progress.json "{\"step\":$step,\"total_steps\":$total,\"consumed_samples\":$step,\"loss\":1.5,
\"tokens_per_second\":100,\"step_seconds\":$pace,\"gpus\":$size,\"plan_id\":\"$plan\",\"time\":$(now)}"
}
knob() { [ -e "$1" ] && cat "$1" || echo "$2"; }
pace=$(knob pace 0.02)

[ "$(knob leave_at_ranks 0)" != "$size" ] || exit 0
if [ "$rank" -ne 0 ]; then # the others only live and die
  echo "${CUDA_VISIBLE_DEVICES:-none} ${FAKE_SRUN_JOB:-base}" >"device.$rank"
  # The folder goes with its test; nobody is left to end a rank that outlives it.
  while [ -d "$dir" ] && [ ! -e complete ] && ! { [ $stop -eq 1 ] && [ -e "saved.$size" ]; }; do sleep "$pace"; done
  [ ! -e complete ] || exit 0
  exit 85
fi

echo "${CUDA_VISIBLE_DEVICES:-none} ${FAKE_SRUN_JOB:-base}" >device.0
echo "$$ $size $(env | grep -c '^SLURM_')" >>launches
total=$(knob steps 1000000)
rm -f "saved.$size"
phase init
step=$(knob checkpoint 0)
plan=none
[ ! -e "$dir/plan.json" ] || plan=$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' "$dir/plan.json")
put fingerprint "fake-fingerprint"
phase load
[ "$(knob fail_at_ranks 0)" != "$size" ] || exit 9
[ "$(knob refuse_at_ranks 0)" != "$size" ] || exit 78
while [ "$(knob slow_at_ranks 0)" = "$size" ] && [ $stop -eq 0 ]; do sleep 0.02; done
first=1
while [ "$step" -lt "$total" ] && [ -d "$dir" ]; do
  sleep "$pace"
  step=$((step + 1))
  if [ $first -eq 1 ]; then first=0; phase first_step; fi
  shift=$(knob clock_shift 0)
  progress
  if [ "$(knob hang_at -1)" -eq "$step" ]; then kill -STOP $$; fi
  if [ -e save_now ]; then
    phase saving
    while [ -e save_now ]; do sleep 0.02; done
    echo "$step" >checkpoint.tmp && mv checkpoint.tmp checkpoint
    phase save
  fi
  if [ -e crash ]; then rm -f crash; exit 9; fi
  if [ -e "$dir/request.json" ] && [ ! -e "$dir/scale_table.json" ]; then
    put profile.json '{"steps":3}'
    put scale_table.json "$(knob scale_table.json '{"version":1,"entries":[{"kept":true,"shape":{"gpus":2},"plan":{"id":"table2"}}]}')"
  fi
  if [ $stop -eq 1 ]; then
    [ ! -e hang_on_signal ] || kill -STOP $$
    phase saving
    if [ -e save_fails ]; then
      phase save_failed "$(cat save_fails)"
      stop=0
      continue
    fi
    sleep "$(knob save_seconds 0)"
    echo "$step" >checkpoint.tmp && mv checkpoint.tmp checkpoint
    phase save
    phase stop
    [ ! -e never_ends ] || kill -STOP $$
    : >"saved.$size"
    exit 85
  fi
done
echo "$step" >checkpoint
progress
: >complete
exit 0
