#!/bin/bash
# SPDX-License-Identifier: MIT
# The virtual cluster itself: jobs, GPUs, users, power loss, controller loss, two side by side,
# and nothing left behind.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/mpi_ring.sh
. "$(dirname "${BASH_SOURCE[0]}")/mpi_ring.sh"

e2e_cluster --preempt
eval "$(vc env)"

# Everything of cluster HASH/ROOT that lives outside its root folder, one a line.
traces() { # HASH ROOT
  local p
  for p in /proc/[0-9]*; do
    { tr '\0' ' ' <"$p/cmdline" | grep -q "flextrain-vcluster:$1" && echo "process ${p#/proc/}"; } 2>/dev/null
  done
  ip -o link show | grep -o "fx[bv]$1[a-z0-9]*" | sort -u
  find /sys/fs/cgroup -maxdepth 3 -name "flextrain-$1" 2>/dev/null
  awk -v r="$2/" 'index($2, r) == 1 { print "mount " $2 }' /proc/mounts
  true
}

alive() { # PID: exists and is no zombie
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null && [[ ${stat##*) } != Z* ]]
}

# Host process ids inside any PID namespace of the cluster in ROOT.
members() { # ROOT
  local f p ns=' '
  for f in "$1"/run/*.pid; do ns+="$(readlink "/proc/$(cat "$f")/ns/pid") "; done
  for p in /proc/[0-9]*; do
    [[ $ns != *" $(readlink "$p/ns/pid" 2>/dev/null || echo none) "* ]] || echo "${p#/proc/}"
  done
}

test_gpus() {
  local out
  as alice sbatch --wait -o out-%j.txt --gres=gpu:2 --wrap='
    echo "visible $CUDA_VISIBLE_DEVICES on $(hostname) as $(id -un) in $PWD"
    for i in 0 1 2 3 4 5 6 7; do cat /run/gpu/nvidia$i 2>&1; done; true'
  out=$(cat "$(home alice)"/out-*.txt)
  assert_contains "$out" "visible 0,1 on n1 as alice in $(home alice)"
  if [ "$VC_CGROUP_KIND" = none ]; then
    echo "# devices are not constrained on this machine"
    assert_lacks "$out" "not permitted"
  else
    assert_eq 2 "$(grep -c 'No such device' <<<"$out")" "GPUs that may be opened"
    assert_eq 6 "$(grep -c 'Operation not permitted' <<<"$out")" "GPUs that must not be opened"
  fi
}

test_users() {
  local job
  assert_eq alice "$(as alice id -un)"
  assert_eq "n2 $(home bob)" "$(as bob n2 bash -c 'echo $(hostname) $PWD')"
  assert_contains "$(as bob n3 bash -c 'munge -n | unmunge | tr -s " "' 2>&1)" "UID: bob"
  assert_contains "$(as bob n3 bash -c 'munge -n' | as alice n4 unmunge | tr -s " ")" "UID: bob"
  job=$(submit alice -o /dev/null --wrap='sleep 300')
  assert_fails as bob scancel "$job"
  assert_ok as alice scancel "$job"
  assert_eq slurm "$(vc exec ctl ps -o user= -C slurmctld | tr -d ' ')" "slurmctld's user"
  assert_fails as bob ls "$VC_ROOT/state/hash.0"
}

test_private() {
  vc exec n1 touch /tmp/only-n1 /dev/shm/only-n1
  assert_fails vc exec n2 test -e /tmp/only-n1
  assert_fails vc exec n2 test -e /dev/shm/only-n1
  assert_fails test -e /tmp/only-n1
  assert_ok as alice n2 test -r "$E2E_REPO/scripts/vcluster"
  assert_eq 127.0.0.1 "$(vc exec n1 getent ahostsv4 localhost | head -n 1 | cut -d' ' -f1)"
  assert_ok vc exec n1 bash -c 'exec 3<>/dev/tcp/ctl/'"$VC_SLURMCTLD_PORT"
}

test_mpi_ring() {
  local dir
  dir=$(home alice)/ring
  build_ring alice
  as alice sbatch --wait -o ring/srun.out -N2 --ntasks-per-node=2 --gres=gpu:2 --wrap='
    export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
    srun --mpi=pmix ring/ring'
  assert_contains "$(cat "$dir/srun.out")" "token 10 of 4 ranks"
  assert_contains "$(cat "$dir/srun.out")" "rank 3 on n2"
}

test_kill_node() {
  local job
  job=$(submit alice -o /dev/null -w n3 --no-requeue --wrap='sleep 300')
  wait_job "$job" RUNNING
  vc kill n3
  assert_fails vc exec n3 true
  wait_for 60 "n3 down" node_is n3 down
  wait_job "$job" NODE_FAIL 60
  vc start n3
  wait_for 30 "n3 idle" node_is n3 idle
  assert_eq n3 "$(as alice srun -w n3 hostname)"
}

test_kill_ctld() {
  local job
  job=$(submit alice -o "kill-%j.txt" -w n2 --wrap='sleep 8; hostname')
  wait_job "$job" RUNNING
  job_saved "$job"
  vc kill-ctld
  assert_fails as alice timeout 5 squeue
  vc start-ctld
  wait_for 30 "squeue answers" as alice squeue
  wait_job "$job" COMPLETED
  assert_eq n2 "$(cat "$(home alice)/kill-$job.txt")"
  vc kill-ctld TERM
  vc start-ctld
  wait_for 30 "squeue answers" as alice squeue
}

test_preempt() {
  local low high start
  low=$(submit alice -p companion -N6 --gres=gpu:8 --signal=B:USR1@30 -o low.txt \
    --wrap='trap "echo told; exit 0" USR1; while :; do sleep 0.1; done')
  wait_job "$low" RUNNING
  start=$(now)
  high=$(submit bob -N1 --gres=gpu:1 -o /dev/null --wrap='sleep 1')
  wait_job "$high" RUNNING 30
  echo "# a waiting job took GPUs back from a preemptable one after $(since "$start")s"
  assert_eq told "$(grep -o told "$(home alice)/low.txt" || cat "$(home alice)/low.txt")"
}

test_side_by_side() {
  local root=$VC_ROOT-2 hash
  # shellcheck disable=SC2034
  (
    trap 'VC_ROOT=$root vc down --purge' EXIT
    VC_ROOT=$root vc up --nodes 2 --gpus 4 --cgroup none # also the fall-back
    assert_eq 2 "$(VC_ROOT=$root vc exec ctl sinfo -h -o %D)"
    assert_eq 6 "$(vc exec ctl sinfo -h -p main -o %D)"
    assert_eq "n2" "$(VC_ROOT=$root as alice srun -w n2 --gres=gpu:4 hostname)"
    assert_eq "n2" "$(as alice srun -w n2 --gres=gpu:8 hostname)"
    hash=$(VC_ROOT=$root vc env | grep -o 'VC_HASH=[0-9a-f]*' | cut -d= -f2)
    [ "$hash" != "$VC_HASH" ] || fail "both clusters have the hash $hash"
    members "$root" >"$VC_ROOT/members-2"
    [ "$(wc -l <"$VC_ROOT/members-2")" -gt 6 ] || fail "too few processes: $(cat "$VC_ROOT/members-2")"
    VC_ROOT=$root vc down --purge
    assert_eq "" "$(traces "$hash" "$root")" "left behind"
    while read -r pid; do assert_fails alive "$pid"; done <"$VC_ROOT/members-2"
  )
  assert_eq "n4" "$(as alice srun -w n4 hostname)"
  assert_fails test -e "$root"
}

# `up` is killed at growing delays; `down` must find everything, each time, and twice.
test_crash() {
  local root=$VC_ROOT-3 hash delay pid
  hash=$(printf %s "$root" | sha256sum | cut -c1-8)
  for delay in 0.05 0.15 0.25 0.35 0.5 0.7 1.0; do
    "$E2E_REPO/scripts/vcluster" --root "$root" up >/dev/null 2>&1 &
    pid=$!
    sleep "$delay"
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    "$E2E_REPO/scripts/vcluster" --root "$root" down
    assert_eq "" "$(traces "$hash" "$root")" "left behind after a crash at ${delay}s"
    assert_ok "$E2E_REPO/scripts/vcluster" --root "$root" down
  done
  "$E2E_REPO/scripts/vcluster" --root "$root" down --purge
  assert_fails test -e "$root"
}

test_refusals() {
  local conf=$VC_ROOT/bad.conf
  assert_contains "$(vc up 2>&1)" "already up"
  assert_contains "$(vc exec n9 true 2>&1)" "unknown node 'n9'"
  assert_contains "$(as mallory true 2>&1)" "no user mallory"
  echo 'NoSuchKey=1' >"$conf"
  assert_contains "$(VC_ROOT=$VC_ROOT-4 vc up --conf "$conf" 2>&1)" "slurmctld ended at once"
  assert_eq "" "$(traces "$(printf %s "$VC_ROOT-4" | sha256sum | cut -c1-8)" "$VC_ROOT-4")" "left behind by a failed up"
  VC_ROOT=$VC_ROOT-4 vc down --purge
  assert_contains "$("$E2E_REPO/scripts/vcluster" --root "$E2E_REPO/scripts" up 2>&1)" "is not a virtual cluster's"
}

e2e_case "a job of alice's sees its GPUs and only those" test_gpus
e2e_case "users, munge identities, slurmctld as slurm" test_users
e2e_case "private /tmp and /dev/shm, names, the repository" test_private
e2e_case "MPI ring over two nodes" test_mpi_ring
e2e_case "preemptable partition gives way" test_preempt
e2e_case "slurmctld killed and started again" test_kill_ctld
e2e_case "power loss of a node and its return" test_kill_node
e2e_case "two clusters side by side" test_side_by_side
e2e_case "nothing is left after a crash half-way up" test_crash
e2e_case "clear refusals" test_refusals
e2e_done
