#!/bin/bash
# SPDX-License-Identifier: MIT
# slurmctld with flextrain's plugins: flags, heterogeneous jobs, backfill, orderly stops, a broken
# configuration; and a user's own signals, requeue, arrays and steps, which stay as they were.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

extra=$(mktemp)
echo 'PartitionName=plain Nodes=ALL MaxTime=INFINITE State=UP' >"$extra"
flextrain_cluster "$(flextrain_conf Partitions=main)" --gpus 2 --conf "$extra"
rm -f "$extra"
eval "$(vc env)"

refused() { # WORDS SBATCH-ARGS…: sbatch fails and says so in one line of ours
  local out
  if out=$(as alice sbatch "${@:2}" --wrap 'sleep 1' 2>&1); then fail "accepted: ${*:2}: $out"; fi
  assert_contains "$out" "$1"
  assert_eq 1 "$(grep -c 'flextrain:' <<<"$out")" "lines of ours in: $out"
}

test_flags() {
  local job
  assert_contains "$(as alice sbatch --help)" "--elastic-max"
  refused "unknown mode" --elastic=sideways -N2 --gres=gpu:1
  refused "not a number" --elastic --elastic-max=many -N2 --gres=gpu:1
  refused "below" --elastic --elastic-max=3 -N2 --gres=gpu:2
  refused "below" --elastic --elastic-max=0.5x -N2 --gres=gpu:2
  refused "needs --elastic" --elastic-max=8 -N2 --gres=gpu:2
  refused "needs GPUs" --elastic -N2
  refused "elasticity is off in partition plain" --elastic -p plain -N2 --gres=gpu:1
  refused "heterogeneous" --elastic -N1 --gres=gpu:1 : -N1 --gres=gpu:1
  assert_contains "$(as alice srun --elastic -N1 --gres=gpu:1 hostname 2>&1)" "must be a batch job"
  job=$(submit alice --elastic=pp --elastic-max=6 -N2 --gres=gpu:2 -o /dev/null --wrap 'sleep 60')
  assert_contains "$(admin_comment "$job")" "flextrain(mode=pp,max=6)"
  as alice scancel "$job"
  job=$(submit alice -N2 --gres=gpu:2 -o /dev/null --wrap 'sleep 1')
  assert_lacks "$(admin_comment "$job")" flextrain
}

test_script_flags() { # in #SBATCH lines, and the last word is the command line's
  local job
  vc as alice tee lines.sh >/dev/null <<'JOB'
#!/bin/bash
#SBATCH --elastic=pp --elastic-max=2x -N1 --gres=gpu:1 -o /dev/null
sleep 60
JOB
  job=$(submit alice lines.sh)
  assert_contains "$(admin_comment "$job")" "flextrain(mode=pp,max=2x)"
  as alice scancel "$job"
  job=$(submit alice --elastic=dp+pp --elastic-max=3x lines.sh)
  assert_contains "$(admin_comment "$job")" "flextrain(mode=dp+pp,max=3x)"
  as alice scancel "$job"
}

test_array() {
  local job task
  job=$(submit alice --elastic --array=0-1 -N1 --gres=gpu:1 -o /dev/null --wrap 'sleep 60')
  wait_job "${job}_1" RUNNING
  for task in 0 1; do assert_contains "$(admin_comment "${job}_$task")" "flextrain(mode=dp+pp,max=4x)"; done
  as alice scancel "$job"
}

test_leak() { # a submission from inside an elastic job is not elastic
  local job
  job=$(submit alice --elastic -N1 --gres=gpu:1 -o outer.txt \
    --wrap 'sbatch --parsable -N1 --gres=gpu:1 -o /dev/null --wrap "sleep 60"; srun hostname')
  wait_job "$job" COMPLETED
  assert_eq 1 "$(grep -cx "n[1-9]" "$(home alice)/outer.txt")" "the step's lines"
  job=$(head -n 1 "$(home alice)/outer.txt")
  assert_lacks "$(admin_comment "$job")" flextrain
  as alice scancel "$job"
}

test_het() {
  local job
  job=$(submit alice -o het-%j.txt -N1 --gres=gpu:1 : -N1 --gres=gpu:2 --wrap 'srun --het-group=0,1 -l printenv SLURM_GPUS_ON_NODE | sort')
  wait_job "$job" COMPLETED
  assert_eq "0: 1
1: 2" "$(cat "$(home alice)/het-$job.txt")"
}

test_backfill() {
  local long blocked fits late
  long=$(submit alice -N5 --exclusive -t 10 -o /dev/null --wrap 'sleep 300')
  wait_job "$long" RUNNING
  blocked=$(submit bob -N6 --exclusive -t 10 -o /dev/null --wrap 'sleep 1')
  late=$(submit bob -N1 --exclusive -t 60 -o /dev/null --wrap 'sleep 300')
  fits=$(submit bob -N1 --exclusive -t 1 -o /dev/null --wrap 'sleep 1')
  wait_job "$fits" COMPLETED 40
  job_is "$blocked" PENDING || fail "the job that needs all nodes is $(job_state "$blocked")"
  job_is "$late" PENDING || fail "backfill let a long job delay the first of the queue: $(job_state "$late")"
  as bob scancel "$blocked" "$late"
  as alice scancel "$long"
}

test_signals() { # --signal, the time limit and srun steps of an elastic job
  local job out
  job=$(submit alice --elastic -N2 --ntasks-per-node=1 --gres=gpu:1 -t 2 --signal=B:USR1@100 -o sig.txt --wrap '
    trap "echo told \$SECONDS; exit 3" USR1; srun -l hostname; while :; do sleep 0.2; done')
  wait_job "$job" FAILED 120
  out=$(sort "$(home alice)/sig.txt")
  assert_contains "$out" "0: n"
  assert_contains "$out" "1: n"
  assert_contains "$out" told
}

run_again() {
  job_is "$1" COMPLETED && return
  hurry_requeued "$1"
  false
}
test_requeue() {
  local job
  job=$(submit alice --elastic --requeue -N1 --gres=gpu:1 -o requeue-%j.txt --open-mode=append \
    --wrap 'echo "start ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 300')
  wait_job "$job" RUNNING
  as alice scontrol requeue "$job"
  wait_job "$job" PENDING
  wait_for 40 "the job has run again" run_again "$job"
  assert_eq "start 0
start 1" "$(grep '^start' "$(home alice)/requeue-$job.txt")"
  assert_contains "$(admin_comment "$job")" "flextrain("
}

test_stop() {
  local job seconds
  job=$(submit alice --elastic -N2 --gres=gpu:1 -o /dev/null --wrap 'sleep 120')
  wait_job "$job" RUNNING
  seconds=$(restart_ctld)
  echo "# slurmctld stopped in ${seconds}s"
  assert_le "$seconds" 5 "seconds that slurmctld took to stop"
  job_is "$job" RUNNING || fail "the job is $(job_state "$job") after the restart"
  assert_contains "$(admin_comment "$job")" "flextrain("
  as alice scancel "$job"
  vc exec ctl scontrol reconfigure
  assert_ok ctld_answers
}

test_broken_conf() {
  local conf=$VC_SLURM_ETC/flextrain.conf keep before lines
  keep=$(cat "$conf")
  printf 'TickSeconds=2\nNoSuchKey=1\n' >"$conf"
  before=$(wc -l <"$VC_ROOT/log/slurmctld.log")
  restart_ctld
  assert_eq n2 "$(as alice srun -w n2 --gres=gpu:1 hostname)"
  lines=$(tail -n "+$((before + 1))" "$VC_ROOT/log/slurmctld.log" | grep -F 'flextrain.conf:2')
  assert_eq 1 "$(wc -l <<<"$lines")" "log lines about the broken file: $lines"
  assert_contains "$lines" NoSuchKey
  assert_contains "$(as alice sbatch --elastic -N1 --gres=gpu:1 -o /dev/null --wrap true 2>&1)" "elasticity is off"
  printf '%s\n' "$keep" >"$conf"
  restart_ctld
  assert_lacks "$(as alice sbatch --elastic -N1 --gres=gpu:1 -o /dev/null --wrap true 2>&1)" "elasticity is off"
}

e2e_case "flags: accepted and refused, one clear line each" test_flags
e2e_case "flags in #SBATCH lines" test_script_flags
e2e_case "each task of an array is elastic" test_array
e2e_case "elasticity is not inherited by jobs submitted inside" test_leak
e2e_case "heterogeneous jobs run" test_het
e2e_case "backfill still backfills, and delays nobody" test_backfill
e2e_case "an elastic job's own signal and steps" test_signals
e2e_case "an elastic job's requeue" test_requeue
e2e_case "slurmctld stops within 5 s, jobs and flags outlive the restart" test_stop
e2e_case "a broken flextrain.conf turns elasticity off and nothing else" test_broken_conf
e2e_done
