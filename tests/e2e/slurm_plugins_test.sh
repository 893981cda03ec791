#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What plugin_test.sh leaves open: the Cluster over Slurm's API, who may write an elastic job's
# token, reconfiguring, hard kills, and job scripts after the plugins are removed.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

extra=$(mktemp)
printf '%s\n' 'PartitionName=plain Nodes=n[1-2] MaxTime=60 State=UP' >"$extra"
# a tick so long that only a wake can make the controller look
flextrain_cluster "$(flextrain_conf RenewSeconds=7200 LeaseSeconds=14400 | sed 's/^TickSeconds=.*/TickSeconds=3600/')" \
  --nodes 4 --gpus 4 --conf "$extra"
rm -f "$extra"
eval "$(vc env)"
install -m 755 "$E2E_BUILD/bin/slurm_cluster_probe" "$VC_ROOT/probe" # visible in the nodes

probe() { vc as slurm "$VC_ROOT/probe" "$@"; }
job_field() { probe job "$1" | jq -r "$2"; }
config_value() { vc exec ctl scontrol show config | awk -F' = ' -v k="$1" '$1 ~ "^" k " *$" { print $2 }'; }
ctld_pid() { vc exec ctl pgrep -x slurmctld; }
lines_since() { tail -n "+$(($1 + 1))" "$VC_ROOT/log/slurmctld.log"; }
log_length() { wc -l <"$VC_ROOT/log/slurmctld.log"; }
comment_of() { job_field "$1" .admin_comment; }

test_view() {
  local job view
  job=$(submit alice --elastic=pp -N2 --gpus-per-node=3 -c2 --mem=1000 -t 7 -o /dev/null --wrap 'sleep 100')
  wait_job "$job" RUNNING
  vc exec ctl scontrol update nodename=n4 state=drain reason=test
  vc exec ctl scontrol create reservation reservationname=r1 starttime=now+60 duration=10 \
    nodes=n3 users=root >/dev/null
  view=$(probe observe)
  check() { jq -e "$1" >/dev/null <<<"$view" || fail "not so: $1 in $view"; }
  check '.nodes | length == 4'
  check '.nodes[] | select(.name == "n1") | .gpus == 4 and .gpus_allocated == 3 and .usable and
    .cpus == 8 and .cpus_allocated == 2 and .memory_mib == 64000 and .partitions == ["main", "plain"]'
  check '.nodes[] | select(.name == "n3") | .gpus_allocated == 0 and .usable and .partitions == ["main"]'
  check '.nodes[] | select(.name == "n4") | .usable | not'
  check '.partitions[] | select(.name == "plain") | .up and .nodes == ["n1", "n2"] and
    .max_time_seconds == 3600'
  check '.partitions[] | select(.name == "main") | .max_time_seconds == 0'
  check '.reservations[] | select(.name == "r1") | .nodes == ["n3"] and .end_time - .start_time == 600'
  check ".jobs[] | select(.job_id == $job) | .state == \"running\" and .user == \"alice\" and
    .nodes == [\"n1\", \"n2\"] and .gpus_on_node == {n1: 3, n2: 3} and .cpus_on_node == {n1: 2, n2: 2} and
    .gpus_requested == 6 and .gpus_allocated == 6 and .nodes_requested == 2 and
    .time_limit_seconds == 420 and .memory_per_node_mib == 1000 and .batch_host == \"n1\" and
    .admin_comment == \"flextrain(mode=pp,max=4x)\""
  check '[.now, .jobs[0].submit_time, .jobs[0].start_time] | all(. > 1700000000)'
  vc exec ctl scontrol delete reservationname=r1
  vc exec ctl scontrol update nodename=n4 state=resume
  as alice scancel "$job"
  # its end is seen as one, and no later look confuses it with a running job
  wait_for 20 "job $job is over" ended "$job"
}
ended() { [[ $(job_field "$1" .state) == ended ]]; }

test_pending() { # a waiting job's reason, request and backfill's plan
  local holder waiting
  holder=$(submit alice -N4 --gpus-per-node=4 -t 5 -o /dev/null --wrap 'sleep 100')
  wait_job "$holder" RUNNING
  waiting=$(submit bob -N2 --gpus-per-node=2 -t 5 -o /dev/null --wrap 'sleep 1')
  wait_for 20 "backfill's plan" planned "$waiting"
  assert_eq "pending Resources 4" "$(job_field "$waiting" '"\(.state) \(.reason) \(.gpus_requested)"')"
  assert_eq "[]" "$(job_field "$waiting" '.nodes')"
  assert_eq true "$(job_field "$waiting" '.planned_nodes | startswith("n[")')"
  vc exec ctl scontrol hold "$waiting"
  assert_eq true "$(job_field "$waiting" .held)"
  as alice scancel "$holder"
  as bob scancel "$waiting"
}
planned() { [ "$(job_field "$1" '.start_time > now')" = true ]; }

test_companion() { # submitted for another user, on one node, with everything a companion needs
  local job alice_uid alice_gid out start
  alice_uid=$(as alice id -u) alice_gid=$(as alice id -g)
  start=$(now)
  job=$(probe submit "$alice_uid" "$alice_gid" n3 2 90 main "$(home alice)" \
    'echo "$(id -un):$(id -gn) $(hostname) $SLURM_GPUS_ON_NODE $(umask) $(ulimit -n) $FLEXTRAIN_PROBE"; sleep 100')
  wait_job "$job" RUNNING
  echo "# submitted and running after $(since "$start")s"
  wait_for 10 "its output" test -s "$(home alice)/companion-$job.out"
  out=$(cat "$(home alice)/companion-$job.out")
  assert_eq "alice:$(as alice id -gn) n3 2 0027 777 1" "$out"
  assert_eq 'slurm_cluster_probe' "$(comment_of "$job")"
  probe comment "$job" 'another text'
  assert_eq 'another text' "$(comment_of "$job")"
  assert_eq "120" "$(job_field "$job" .time_limit_seconds)" "a lease in whole minutes"
  assert_eq '{"n3":2}' "$(probe job "$job" | jq -c .gpus_on_node)"
  assert_contains "$(vc exec ctl scontrol show job "$job")" "Requeue=0"
  probe limit "$job" 600
  assert_eq "600" "$(job_field "$job" .time_limit_seconds)"
  assert_contains "$(as bob "$VC_ROOT/probe" cancel "$job" 2>&1)" PERMISSION_DENIED
  assert_contains "$(as bob "$VC_ROOT/probe" submit "$alice_uid" "$alice_gid" n3 1 60 main /tmp true 2>&1)" \
    "Invalid user id"
  probe cancel "$job"
  wait_for 20 "the companion is gone" ended "$job"
  probe cancel "$job" # again: no error
  assert_contains "$(vc as slurm "$VC_ROOT/probe" job 4000000 2>&1)" NOT_FOUND
}

test_token() { # users cannot forge it, an administrator's text keeps it
  local job array
  job=$(submit alice -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 100')
  assert_fails as alice scontrol update job="$job" AdminComment='flextrain(mode=pp,max=64)'
  assert_lacks "$(comment_of "$job")" flextrain
  as alice scancel "$job"

  job=$(submit alice --elastic=pp --elastic-max=8 -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 100')
  let_controller_see "$job"
  vc exec ctl scontrol update job="$job" AdminComment='ticket 42'
  assert_eq 'ticket 42 flextrain(mode=pp,max=8)' "$(comment_of "$job")"
  vc exec ctl scontrol update job="$job" AdminComment='flextrain(mode=dp+pp,max=4)'
  assert_eq 'flextrain(mode=dp+pp,max=4)' "$(comment_of "$job")" "an administrator's own token"
  as alice scancel "$job"

  array=$(submit alice --elastic --array=0-1 -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 100')
  wait_job "${array}_1" RUNNING
  let_controller_see "$array"
  vc exec ctl scontrol update job="${array}_1" AdminComment='x'
  assert_eq '"flextrain(mode=dp+pp,max=4x)" "x flextrain(mode=dp+pp,max=4x)"' \
    "$(probe observe | jq ".jobs[] | select(.array_job_id == $array) | .admin_comment" | sort | xargs -d '\n')"
  as alice scancel "$array"
}
seen() { ctld_log | grep -q "flextrain: job $1 of"; }
# The tick is an hour: what the controller sees, it sees because a hook woke it.
let_controller_see() { # JOB
  wait_job "$1" RUNNING
  as bob scancel "$(submit bob -N1 --gpus-per-node=1 -o /dev/null --wrap true)"
  wait_for 10 "the controller sees job $1" seen "$1"
}

test_inherit() { # inside an elastic job only a flag of one's own counts
  local job inner
  job=$(submit alice --elastic=pp -N1 --gpus-per-node=1 -o inner.txt --wrap '
    sbatch --parsable --elastic -N1 --gpus-per-node=1 -o /dev/null --wrap true
    sbatch --parsable --export=ALL -N1 --gpus-per-node=1 -o /dev/null --wrap true
    salloc -Q -N1 --gpus-per-node=1 true && echo salloc fine
    srun -n1 echo step fine')
  wait_job "$job" COMPLETED 40
  mapfile -t inner <"$(home alice)/inner.txt"
  assert_eq 'flextrain(mode=dp+pp,max=4x)' "$(comment_of "${inner[0]}")"
  assert_eq '' "$(comment_of "${inner[1]}")"
  assert_eq "salloc fine" "${inner[2]}"
  assert_eq "step fine" "${inner[3]}"
}

test_wake() {
  local job start
  job=$(submit bob --elastic -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 100')
  wait_job "$job" RUNNING
  start=$(now)
  let_controller_see "$job"
  echo "# seen after $(since "$start")s, sbatch and scancel included"
  as bob scancel "$job"
}

test_reconfigure() {
  local i pid before job
  pid=$(ctld_pid) before=$(log_length)
  job=$(submit alice --elastic -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 100')
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    assert_ok vc exec ctl scontrol reconfigure
  done
  assert_eq "$pid" "$(ctld_pid)" "slurmctld's process"
  assert_ok ctld_answers
  assert_eq sched/flextrain "$(config_value SchedulerType)"
  assert_lacks "$(lines_since "$before")" "error: flextrain"
  wait_job "$job" RUNNING
  as alice scancel "$job"
  assert_eq n1 "$(as bob srun -w n1 --gpus-per-node=1 hostname)"
}

test_conf_at_reconfigure() { # broken: the settings stay; off and on; another partition list
  local conf=$VC_SLURM_ETC/flextrain.conf keep before said
  keep=$(cat "$conf")
  try() { as alice sbatch --elastic "$@" -N1 --gpus-per-node=1 -o /dev/null --wrap true 2>&1; }

  before=$(log_length)
  printf 'TickSeconds=3600\nnonsense\n' >"$conf"
  vc exec ctl scontrol reconfigure
  vc exec ctl scontrol reconfigure
  said=$(lines_since "$before" | grep -F 'flextrain.conf:2')
  assert_eq 1 "$(wc -l <<<"$said")" "log lines about the broken file: $said"
  assert_contains "$said" "the previous settings stay in force"
  assert_lacks "$(try)" "elasticity is off"

  printf '%s\nEnabled=no\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  assert_contains "$(try)" "elasticity is off (Enabled=no"

  printf '%s\nPartitions=plain\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  assert_contains "$(try -p main)" "elasticity is off in partition main; it is on in plain"
  assert_contains "$(try)" "elasticity is off in partition main" # the default one
  assert_contains "$(try -p main,plain)" "Submitted"
  printf '%s\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  assert_contains "$(try)" "Submitted"
}

test_names() { # the borrowed scheduler name is given back, also with a reconfigure in between
  local i
  for i in 1 2 3; do
    vc kill-ctld TERM
    vc start-ctld
    wait_for 20 "slurmctld answers" ctld_answers
    vc exec ctl scontrol reconfigure || echo "reconfigure $i came in between"
    wait_for 15 "the true scheduler name" name_is_ours
    wait_for 5 "a reconfigure" vc exec ctl scontrol reconfigure
    assert_eq sched/flextrain "$(config_value SchedulerType)"
    assert_contains "$(as alice sbatch -N1 --gpus-per-node=1 -o /dev/null : -N1 --wrap true)" Submitted
  done
}
name_is_ours() { [ "$(config_value SchedulerType)" = sched/flextrain ]; }

test_stops() { # orderly stops at awkward moments, and a hard kill
  local job seconds round
  job=$(submit alice --elastic -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 300')
  wait_job "$job" RUNNING
  for round in at-once busy idle; do
    case $round in
      at-once) vc kill-ctld TERM; vc start-ctld ;; # stop while it still starts
      busy) submit bob -N1 --gpus-per-node=1 -o /dev/null --wrap true ;; # the controller was just woken
      idle) sleep 1 ;;
    esac
    seconds=$(restart_ctld)
    echo "# $round: stopped in ${seconds}s"
    assert_le "$seconds" 5 "seconds that slurmctld took to stop ($round)"
  done
  vc kill-ctld KILL
  vc start-ctld
  wait_for 20 "slurmctld answers" ctld_answers
  job_is "$job" RUNNING || fail "the job is $(job_state "$job") after kill -9"
  assert_eq 'flextrain(mode=dp+pp,max=4x)' "$(comment_of "$job")"
  as alice scancel "$job"
}

test_inner_scheduler() { # another one, and one that does not exist
  local conf=$VC_SLURM_ETC/flextrain.conf keep before
  keep=$(cat "$conf")
  for inner in sched/builtin sched/nonesuch sched/flextrain; do
    printf '%s\nInnerScheduler=%s\n' "$keep" "$inner" >"$conf"
    before=$(log_length)
    restart_ctld >/dev/null
    if [ "$inner" = sched/builtin ]; then
      assert_lacks "$(lines_since "$before")" "Backfill scheduler plugin loaded"
    else
      assert_contains "$(lines_since "$before")" "InnerScheduler=$inner cannot be"
      assert_contains "$(lines_since "$before")" "Backfill scheduler plugin loaded"
    fi
    assert_eq n1 "$(as bob srun -Q -w n1 --gpus-per-node=1 hostname)"
  done
  printf '%s\n' "$keep" >"$conf"
  restart_ctld >/dev/null
}

test_removal() { # the flags stay valid with the SPANK plugin alone, switched off
  local conf=$VC_SLURM_ETC/slurm.conf keep_conf keep_stack job running said
  keep_conf=$(cat "$conf") keep_stack=$(cat "$VC_SLURM_ETC/plugstack.conf")
  vc as alice tee elastic.sh >/dev/null <<'JOB'
#!/bin/bash
#SBATCH --elastic=pp --elastic-max=2x
#SBATCH -N1 --gpus-per-node=1 -o removed-%j.txt
srun -n1 echo ran
JOB
  running=$(submit alice --elastic -N1 --gpus-per-node=1 -o /dev/null --wrap 'sleep 300')
  wait_job "$running" RUNNING
  vc kill-ctld TERM
  sed -i 's|^SchedulerType=.*|SchedulerType=sched/backfill|; s|^JobSubmitPlugins=.*||' "$conf"
  echo 'optional spank_flextrain.so off' >"$VC_SLURM_ETC/plugstack.conf"
  vc start-ctld
  wait_for 20 "slurmctld answers" ctld_answers
  rm -f "$VC_ROOT/plugins"/{sched_flextrain,job_submit_flextrain,libflextrain_core}.so
  job=$(submit alice elastic.sh)
  wait_job "$job" COMPLETED
  assert_eq ran "$(cat "$(home alice)/removed-$job.txt")"
  assert_eq '' "$(comment_of "$job")"
  job_is "$running" RUNNING || fail "the elastic job is $(job_state "$running") after the removal"
  as alice scancel "$running"

  # without any of it only scripts that use the flags are refused; the missing file of an
  # `optional` line costs the others two lines of complaint
  rm -f "$VC_ROOT/plugins/spank_flextrain.so"
  said=$(as alice sbatch elastic.sh 2>&1) && fail "accepted: $said"
  assert_contains "$said" "unrecognized option '--elastic=pp'"
  job=$(submit alice -N1 --gpus-per-node=1 -o plain.txt --wrap 'srun -n1 echo ran')
  wait_job "$job" COMPLETED
  assert_contains "$(cat "$(home alice)/plain.txt")" ran

  printf '%s\n' "$keep_conf" >"$conf"
  printf '%s\n' "$keep_stack" >"$VC_SLURM_ETC/plugstack.conf"
  vc kill-ctld TERM
  vc start-ctld
  wait_for 20 "slurmctld answers" ctld_answers
  job=$(submit alice elastic.sh) # installed again
  assert_eq 'flextrain(mode=pp,max=2x)' "$(comment_of "$job")"
}

e2e_case "the controller's view of nodes, jobs, partitions, reservations" test_view
e2e_case "a waiting job and backfill's plan for it" test_pending
e2e_case "a companion as another user" test_companion
e2e_case "the token: no forgery, no loss" test_token
e2e_case "inside an elastic job only one's own flag counts" test_inherit
e2e_case "a submission wakes the controller" test_wake
e2e_case "twenty reconfigures" test_reconfigure
e2e_case "flextrain.conf at a reconfigure" test_conf_at_reconfigure
e2e_case "the scheduler's name, also with a reconfigure at once" test_names
e2e_case "stops within 5 s at awkward moments; kill -9" test_stops
e2e_case "InnerScheduler: another one, a wrong one" test_inner_scheduler
e2e_case "job scripts stay valid after the removal" test_removal
e2e_done
