#!/bin/bash
# SPDX-License-Identifier: MIT
# What the virtual cluster can do to its jobs: limits by accounting, clocks, full and read-only
# disks, cuts in the network. (The backup controller: slurm_failover_test.sh.)
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

e2e_cluster --nodes 2 --gpus 2 --accounting --clocks --disk small=8,alice --disk slow=fuse@512,alice
eval "$(vc env)"

test_accounting() {
  local first second
  assert_ok vc exec ctl sacctmgr -i add qos tight GrpTRES=gres/gpu=1
  assert_ok vc exec ctl sacctmgr -i modify user alice set qos+=tight
  assert_contains "$(as alice sbatch --account=none -o /dev/null --wrap true 2>&1)" "Invalid account"
  assert_contains "$(as bob sbatch --qos=tight -o /dev/null --wrap true 2>&1)" "Invalid qos"
  first=$(submit alice --qos=tight --gres=gpu:1 -o /dev/null --wrap 'sleep 300')
  wait_job "$first" RUNNING
  second=$(submit alice --qos=tight --gres=gpu:1 -o /dev/null --wrap 'sleep 300')
  wait_for 20 "the second one waits for the QOS" refused_by_qos "$second"
  as alice scancel "$first" "$second"
  wait_for 30 "sacct knows it" sacct_knows "$first"
}
refused_by_qos() { [ "$(vc exec ctl squeue -h -j "$1" -o %r)" = QOSGrpGRES ]; }
sacct_knows() { [[ $(vc exec ctl sacct -X -n -P -o State -j "$1") == CANCELLED* ]]; }

# The command that docs/scheduling.md names, as it is printed there, and what the simulator makes of
# a real sacct's lines.
test_simulate() {
  local command job csv=$VC_ROOT/replay.csv
  command=$(sed -n '/^sacct -a /,/month.txt$/p' "$E2E_REPO/docs/scheduling.md" | sed 's/ > month.txt$//')
  assert_contains "$command" AllocTRES
  job=$(submit bob -N 2 --gpus-per-node=2 -t 5 -o /dev/null --wrap 'sleep 3')
  wait_job "$job" COMPLETED 60
  wait_for 30 "sacct knows that it ended" sacct_shows "$job" COMPLETED
  vc exec ctl bash -c "$command" >"$VC_ROOT/month.txt" || fail "sacct refuses the documented command"
  assert_contains "$("$E2E_BUILD/bin/sflex" simulate "$VC_ROOT/month.txt" --nodes 2x2 --sizes any --users bob \
    --policies none -q --csv "$csv")" "1 elastic and "
  assert_contains "$(cat "$csv")" "none,1,0,4,2x2,1,"
}
sacct_shows() { [[ $(vc exec ctl sacct -X -n -P -o State,End -j "$1") == "$2|"2* ]]; }

offset_of() { # SECONDS WORD…: how far the clock that this prints is from the true one, in minutes
  local there
  there=$("$@" date +%s) && echo $(((there - EPOCHSECONDS + (there < EPOCHSECONDS ? -30 : 30)) / 60))
}
test_clocks() {
  local job
  assert_eq 0 "$(offset_of as alice srun -w n1)"
  vc clock jobs n1 +600
  assert_eq 10 "$(offset_of as alice srun -w n1)"
  assert_eq 0 "$(offset_of as alice srun -w n2)"
  as alice sbatch --wait -w n1 -o date.txt --wrap 'date +%s'
  assert_eq 10 "$(offset_of sh -c "cat $(home alice)/date.txt" -)"
  vc clock slurmctld ctl +600 # for good: set back, Slurm's scheduler rests until the old time is reached
  job=$(submit alice -o /dev/null --wrap 'sleep 1')
  wait_job "$job" COMPLETED
  [ "$(vc exec ctl scontrol -o show job "$job" | grep -o 'SubmitTime=[^ ]*' | cut -d= -f2 | date -f - +%s)" \
    -gt $((EPOCHSECONDS + 500)) ] || fail "slurmctld's clock did not move"
  vc clock jobs n1 0
  assert_eq 0 "$(offset_of as alice srun -w n1)"
  vc clock munged n2 +600 # its credentials are from the future
  assert_contains "$(as bob n2 munge -n | as alice n1 unmunge 2>&1)" "Rewound credential"
  vc clock munged n2 0
  assert_contains "$(vc clock slurmd n7 1 2>&1)" "unknown node"
  assert_contains "$(vc clock cron n1 1 2>&1)" "no daemon 'cron'"
}

test_disk() {
  local dir=$VC_ROOT/disk/small start
  assert_ok as alice n1 dd if=/dev/zero of="$dir/file" bs=1M count=2 status=none
  assert_ok as bob n2 test -s "$dir/file"
  vc disk small full
  assert_contains "$(as alice n2 bash -c "echo x >>$dir/more" 2>&1)" "No space left"
  vc disk small empty
  assert_ok as alice n2 bash -c "echo x >>$dir/more"
  vc disk small ro
  assert_contains "$(as alice n1 bash -c "echo x >>$dir/more" 2>&1)" "Read-only"
  vc disk small rw
  assert_ok as alice n1 bash -c "echo x >>$dir/more"
  assert_eq fuseblk "$(stat -f -c %T "$VC_ROOT/disk/slow")"
  start=$(now)
  assert_ok as alice n2 dd if=/dev/zero of="$VC_ROOT/disk/slow/file" bs=64K count=16 status=none
  assert_ok as bob n1 test -s "$VC_ROOT/disk/slow/file"
  assert_le 1 "$(since "$start")" "seconds for 1 MiB at 512 KiB/s"
  assert_contains "$(vc disk large full 2>&1)" "no disk 'large'"
}

reaches() { vc exec "$1" timeout 1 bash -c ": <>/dev/tcp/$2/$3"; }
silent() { # NODE PEER PORT: no answer at all, not a refusal
  local status=0
  reaches "$@" || status=$?
  [ "$status" -eq 124 ]
}
test_cut() {
  local slurmd=$((VC_SLURMCTLD_PORT + 1))
  vc cut n1 ctl "$VC_SLURMCTLD_PORT"
  assert_ok silent n1 ctl "$VC_SLURMCTLD_PORT"
  assert_ok reaches ctl n1 "$slurmd"
  assert_ok reaches n2 ctl "$VC_SLURMCTLD_PORT"
  vc mend n1 ctl
  assert_ok reaches n1 ctl "$VC_SLURMCTLD_PORT"
  vc cut n1
  vc cut n2 n1
  assert_ok silent n1 ctl "$VC_SLURMCTLD_PORT"
  assert_ok silent ctl n1 "$slurmd"
  vc mend n1
  assert_ok reaches n1 n2 "$slurmd"
  vc cut n2
  vc mend
  assert_ok reaches n2 n1 "$slurmd"
}

test_nothing_left() {
  vc cut n1
  vc down
  assert_eq "" "$(nft list ruleset | grep "$VC_HASH")" "left behind"
  assert_eq "" "$(grep -F " $VC_ROOT/" /proc/mounts)" "left behind"
}

e2e_case "accounting: accounts and a QOS limit are enforced" test_accounting
e2e_case "sflex simulate reads what sacct prints" test_simulate
e2e_case "clocks of daemons and jobs move" test_clocks
e2e_case "a disk is filled, emptied, read-only" test_disk
e2e_case "the network is cut without a word, and mended" test_cut
e2e_case "nothing of it is left behind" test_nothing_left
e2e_done
