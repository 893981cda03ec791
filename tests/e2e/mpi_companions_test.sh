#!/bin/bash
# SPDX-License-Identifier: MIT
# What growth rests on: one MPI job over the allocations of several Slurm jobs, as an ordinary user,
# each rank inside its own job's GPUs; and a lost companion ends mpirun but not the base job.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/mpi_ring.sh
. "$(dirname "${BASH_SOURCE[0]}")/mpi_ring.sh"

e2e_cluster --nodes 3
eval "$(vc env)"
build_ring alice || exit 1

# Starts orted on a host, inside the Slurm job that owns it there (JOBS="n1=12 n2=13").
cat >"$(home alice)/ring/rsh" <<'SH'
#!/bin/bash
host=$1
shift
for pair in $JOBS; do [ "${pair%%=*}" != "$host" ] || job=${pair#*=}; done
unset "${!SLURM_@}"
exec srun --jobid="$job" -N1 -n1 -w "$host" --overlap --mpi=none -Q bash -c "$*"
SH
# Runs a local rank inside another job than its orted's (LOCAL="RANK=JOB …").
cat >"$(home alice)/ring/place" <<'SH'
#!/bin/bash
for pair in $LOCAL; do [ "${pair%%=*}" != "$OMPI_COMM_WORLD_RANK" ] || job=${pair#*=}; done
[ -n "${job:-}" ] || exec "$@"
unset "${!SLURM_@}" CUDA_VISIBLE_DEVICES
exec srun --jobid="$job" -N1 -n1 --overlap --mpi=none -Q "$@"
SH
# The base job's script: waits for `go`, then runs mpirun as told there, and stays.
cat >"$(home alice)/ring/base.sh" <<'SH'
#!/bin/bash
until [ -s ring/go ]; do sleep 0.1; done
. ring/go
export JOBS LOCAL
saved=$SLURM_JOB_ID
unset "${!SLURM_@}"
mpirun --mca ras ^slurm,gridengine --mca plm rsh --mca plm_rsh_agent "$PWD/ring/rsh" \
  --mca plm_rsh_no_tree_spawn 1 --mca orte_leave_session_attached 1 --mca routed direct \
  --mca oob_tcp_if_include "$NET" --mca btl_tcp_if_include "$NET" --mca btl self,vader,tcp \
  --mca pml ob1 --bind-to none -x JOBS -x LOCAL --host "$HOSTS" $COMMAND
echo "mpirun ended with $? in job $saved"
sleep "${STAY:-0}"
echo "base job ends"
SH
chmod +x "$(home alice)"/ring/{rsh,place}

go() { # OUTPUT-LINES-OF-VARIABLES on stdin
  cat >"$(home alice)/ring/go.new" && mv "$(home alice)/ring/go.new" "$(home alice)/ring/go"
}
hold() { submit alice -N1 --gres=gpu:"$2" -w "$1" -o /dev/null --wrap='sleep 600'; }
base() { rm -f "$(home alice)/ring/go"; submit alice -N1 --gres=gpu:2 -w n1 -o ring/base-%j.txt ring/base.sh; }
allowed() { if [ "$VC_CGROUP_KIND" = none ]; then echo 8; else echo "$1"; fi; }

test_two_nodes() {
  local b c out
  b=$(base) c=$(hold n2 4)
  wait_job "$b" RUNNING
  wait_job "$c" RUNNING
  go <<GO
JOBS="n1=$b n2=$c" LOCAL= NET=$VC_NET HOSTS=n1:2,n2:4 COMMAND=ring/ring
GO
  wait_job "$b" COMPLETED 60
  out=$(cat "$(home alice)/ring/base-$b.txt")
  assert_contains "$out" "token 21 of 6 ranks"
  assert_contains "$out" "rank 5 on n2 job $c visible 0,1,2,3 allowed $(allowed 4)"
  assert_contains "$out" "rank 1 on n1"
  assert_contains "$out" "mpirun ended with 0 in job $b"
  as alice scancel "$c"
}

test_same_node() {
  local b c out visible
  b=$(base)
  wait_job "$b" RUNNING
  c=$(hold n1 3)
  wait_job "$c" RUNNING
  go <<GO
JOBS="n1=$b" LOCAL="2=$c 3=$c" NET=$VC_NET HOSTS=n1:4 COMMAND="ring/place ring/ring"
GO
  wait_job "$b" COMPLETED 60
  out=$(cat "$(home alice)/ring/base-$b.txt")
  assert_contains "$out" "token 10 of 4 ranks"
  assert_contains "$out" "visible 0,1 allowed $(allowed 2)"
  # Slurm numbers the visible GPUs from 0 where a job cannot open the others.
  [ "$VC_CGROUP_KIND" = none ] && visible=2,3,4 || visible=0,1,2
  assert_contains "$out" "rank 3 on n1 job $c visible $visible allowed $(allowed 3)"
  as alice scancel "$c"
}

test_lost_companion() {
  local b c out
  b=$(base) c=$(hold n2 2)
  wait_job "$b" RUNNING
  wait_job "$c" RUNNING
  go <<GO
JOBS="n1=$b n2=$c" LOCAL= NET=$VC_NET HOSTS=n1:2,n2:2 COMMAND="sleep 300" STAY=1
GO
  wait_for 30 "ranks on n2" vc exec n2 pgrep -u alice -f '^sleep 300$'
  as alice scancel "$c"
  wait_for 60 "mpirun noticed" grep -q "mpirun ended with" "$(home alice)/ring/base-$b.txt"
  wait_job "$b" COMPLETED 30
  out=$(cat "$(home alice)/ring/base-$b.txt")
  assert_lacks "$out" "mpirun ended with 0"
  assert_contains "$out" "base job ends"
  assert_fails vc exec n2 pgrep -u alice
}

e2e_case "one MPI job over a base and a companion on another node" test_two_nodes
e2e_case "one MPI job over a base and a companion on the same node" test_same_node
e2e_case "the base job outlives a cancelled companion" test_lost_companion
e2e_done
