# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# The end-to-end tests' harness. A test file sources this, starts its cluster with e2e_cluster,
# names its cases with e2e_case, and ends with e2e_done. Output is TAP-like: "ok N - name",
# "not ok N - name" with the case's own output and the cluster's last log lines indented below.
#
# Each file has one cluster of its own under $E2E_BASE (default: a folder in /tmp derived from this
# checkout), so files may run side by side and a crashed run is cleaned up by the next.
# `bash tests/e2e/lib.sh clean FILE` removes what a killed run of FILE left.
set -u -o pipefail

E2E_REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
E2E_BASE=${E2E_BASE:-/tmp/flextrain-e2e-$(printf %s "$E2E_REPO" | sha256sum | cut -c1-6)}
E2E_BUILD=${E2E_BUILD:-$E2E_REPO/build/release}
if [ "${BASH_SOURCE[0]}" = "$0" ]; then E2E_FILE=${2:?clean FILE}; else E2E_FILE=$0; fi
E2E_NAME=$(basename "$E2E_FILE" _test.sh)
VC_ROOT=$E2E_BASE/$E2E_NAME
E2E_COUNT=0
E2E_FAILED=0

# The test's cluster; any vcluster command.
vc() { "$E2E_REPO/scripts/vcluster" --root "$VC_ROOT" "$@"; }
as() { vc as "$@"; } # as USER [NODE] CMD…
home() { echo "$VC_ROOT/home/$1"; }

# ---- waiting and asserting; each says what it saw and fails the case ------------------------------

fail() {
  local i=1
  while [[ ${BASH_SOURCE[i]} == */lib.sh && -n ${BASH_SOURCE[i + 1]:-} ]]; do i=$((i + 1)); done
  echo "FAILED at ${BASH_SOURCE[i]##*/}:${BASH_LINENO[i - 1]}: $*"
  exit 1
}

# wait_for SECONDS WHAT CMD…: polls CMD until it succeeds.
wait_for() {
  local limit=$1 what=$2 end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "${EPOCHREALTIME/./}" -ge "$end" ]; then
      echo "last try of: $*"
      "$@"
      fail "waited ${limit}s in vain for: $what"
    fi
    sleep 0.2
  done
}

# wait_until_quiet SECONDS CMD…: the same without a verdict.
wait_until_quiet() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.2
  done
}

assert_eq() { [ "$1" = "$2" ] || fail "${3:-values differ}: expected '$1', got '$2'"; }
assert_contains() { [[ $1 == *"$2"* ]] || fail "${3:-text missing}: '$2' is not in: $1"; }
assert_lacks() { [[ $1 != *"$2"* ]] || fail "${3:-unexpected text}: '$2' is in: $1"; }
assert_ok() { "$@" || fail "status $? from: $*"; }
assert_fails() { if "$@"; then fail "succeeded, but must not: $*"; fi; }
assert_le() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= 0 && a <= b) }' || fail "${3:-value}: $1 is not from 0 to $2"; }

now() { echo "$EPOCHREALTIME"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }

# Slurm's view. job_state JOB: PENDING, RUNNING, …
job_state() { vc exec ctl scontrol -o show job "$1" 2>/dev/null | grep -o 'JobState=[A-Z_]*' | head -n 1 | cut -d= -f2; }
job_is() { [ "$(job_state "$1")" = "$2" ]; }
# job_saved JOB: before a kill of slurmctld, which saves its jobs within 5 s of a change (an update is
# one) and knows nothing of what is younger when it comes back.
job_saved() {
  touch "$VC_ROOT/saved.mark"
  vc exec ctl scontrol update "jobid=$1" comment=saved
  wait_for 20 "job state saved" test "$VC_ROOT/state/job_state" -nt "$VC_ROOT/saved.mark"
}
# slurmd_knows NODE JOB: slurmd there has started JOB and not let go of it. A run of it that came now would be
# a "duplicate jobid", for which Slurm drains the node and holds the job (launch_failed_requeued_held).
# slurmctld cannot tell: a node that was set down is not COMPLETING. slurmd's log (debug) does: it lets go of
# a job when the epilog is through, just before it says so to slurmctld, or with its own end.
slurmd_knows() {
  awk -v job="$2" '
    / Launching batch job / && $5 == job { knows = 1 }
    / launch task StepId=/ { split($4, step, /[=.]/); if (step[2] == job) knows = 1 }
    index($0, "JobId=" job ": sent epilog complete msg") || / slurmd version .* started/ { knows = 0 }
    END { exit !knows }' "$VC_ROOT/log/slurmd.$1.log" 2>/dev/null && vc exec "$1" pgrep -x slurmd >/dev/null 2>&1
}
# hurry_requeued JOB: a requeued job waits for two minutes, until all that ended its old run has arrived.
# Sooner, a kill that is still on its way to a node that comes back ends the new run, so nothing may be on
# its way; and no slurmd may know the old run.
hurry_requeued() {
  local log node
  job_is "$1" PENDING || return 0
  grep -Pzq 'Agent queue size: +0\nAgent count: +0\n' <(vc exec ctl sdiag 2>/dev/null) || return 0
  for log in "$VC_ROOT"/log/slurmd.*.log; do
    node=${log##*/slurmd.}
    ! slurmd_knows "${node%.log}" "$1" || return 0
  done
  vc exec ctl scontrol update "jobid=$1" starttime=now >/dev/null 2>&1 || true
}
wait_job() { wait_for "${3:-30}" "job $1 $2" job_is "$1" "$2"; }
node_is() { vc exec ctl sinfo -h -N -n "$1" -o %T | grep -q "$2"; }
submit() { as "$1" sbatch --parsable "${@:2}"; } # submit USER SBATCH-ARGS…: prints the job id

no_jobs() { [ -z "$(vc exec ctl squeue -h -o %i)" ]; }
clear_queue() {
  local name
  for name in alice bob carol; do vc exec ctl scancel --user "$name"; done
  wait_until_quiet 40 no_jobs
}

# ---- cases ----------------------------------------------------------------------------------------

# e2e_cluster [UP-OPTIONS…]: a fresh cluster, taken down at exit.
e2e_cluster() {
  trap e2e_tear_down EXIT
  vc down --purge >/dev/null 2>&1
  vc up "$@" || {
    echo "not ok 0 - the cluster of $E2E_NAME comes up"
    exit 1
  }
}

e2e_tear_down() {
  if [ "$E2E_FAILED" -gt 0 ] && [ -d "$VC_ROOT/log" ]; then
    local keep=$E2E_REPO/build/test-logs/$E2E_NAME
    rm -rf "$keep"
    mkdir -p "$keep" && cp -r "$VC_ROOT/log" "$keep/" && echo "# logs kept in $keep"
  fi
  vc down --purge >/dev/null 2>&1
  rmdir "$E2E_BASE" 2>/dev/null
}

# e2e_case NAME FUNCTION: runs FUNCTION in a subshell with errexit.
e2e_case() {
  local start=$EPOCHREALTIME log status
  log=$(mktemp)
  E2E_COUNT=$((E2E_COUNT + 1))
  (
    trap - EXIT
    set -e
    "$2"
  ) >"$log" 2>&1 </dev/null
  status=$?
  if [ $status -eq 0 ]; then
    echo "ok $E2E_COUNT - $E2E_NAME: $1 ($(since "$start")s)"
    sed -n 's/^# /  # /p' "$log" # what a case wants to be seen although it passed
  else
    E2E_FAILED=$((E2E_FAILED + 1))
    echo "not ok $E2E_COUNT - $E2E_NAME: $1 ($(since "$start")s, status $status)"
    sed 's/^/    /' "$log"
    if [ -f "$VC_ROOT/log/slurmctld.log" ]; then
      echo "    --- last lines of slurmctld.log"
      tail -n 15 "$VC_ROOT/log/slurmctld.log" | sed 's/^/    /'
    fi
    clear_queue >/dev/null 2>&1 # the next case starts on an idle cluster
  fi
  rm -f "$log"
}

e2e_done() {
  echo "1..$E2E_COUNT"
  [ "$E2E_FAILED" -eq 0 ]
  exit
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  [ "${1:-}" = clean ] || exit 2
  vc down --purge
fi
