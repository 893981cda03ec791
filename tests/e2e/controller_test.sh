#!/bin/bash
# SPDX-License-Identifier: MIT
# The controller inside a real slurmctld: people pause and resume, its database is deleted under it,
# slurmctld starts with elasticity switched off.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

flextrain_cluster "$(flextrain_conf Gate=none RemainingTimeGuard=no MetricsPort=6823)" --gpus 1
eval "$(vc env)"
prepare_training alice

diag() { sflex_rows alice diag | jq -r --arg k "$1" '.[$k]'; }
diag_is() { [ "$(diag "$1")" = "$2" ]; }
companions() { sflex_rows alice companions | jq -r .job_id | sort; }
shrunk() { [ "$(job_field alice "$1" held_gpus)" = 2 ]; }
outcome_is() { # JOB KIND OUTCOME: of its newest decision of that kind
  [ "$(sflex_rows alice decisions -j "$1" -k "$2" | tail -n 1 | jq -r .outcome)" = "$3" ]
}
held_by() { [ "$(job_field alice "$1" hold)" = "$2" ]; }

test_diag() {
  local key
  common_job alice grown >/dev/null
  assert_eq ok "$(diag watchdog)" "watchdog"
  for key in tick_last_seconds tick_p50_seconds tick_p99_seconds tick_max_seconds rpc_slowest_seconds memory_bytes; do
    assert_le "$(diag "$key")" 1e10 "$key"
  done
  echo "# ticks: p50 $(diag tick_p50_seconds) s, p99 $(diag tick_p99_seconds) s, longest $(diag tick_max_seconds) s; slowest RPC: $(diag rpc_slowest) $(diag rpc_slowest_seconds) s; slurmctld: $(diag memory_bytes) bytes"
}

# get_metrics NODE [METHOD PATH]: the whole answer.
get_metrics() {
  vc exec "$1" bash -c 'exec 3<>/dev/tcp/127.0.0.1/6823; printf "%s %s HTTP/1.1\r\nHost: ctl\r\n\r\n" "$0" "$1" >&3; timeout 30 cat <&3' "${2:-GET}" "${3:-/metrics}"
}
metric() { get_metrics ctl | awk -v n="$1" '$1 == n { print $2 }'; }
metric_is() { [ "$(metric "$1")" = "$2" ]; }
counted() { [ "$(metric "$1")" -ge 1 ]; }

test_metrics() {
  local text
  common_job alice grown >/dev/null
  wait_for 30 "the growth is counted" counted 'flextrain_scalings_total{kind="grow",outcome="done"}'
  wait_for 30 "no GPU is idle" metric_is flextrain_idle_gpus "$(sflex_rows alice idle | jq -s 'map(.idle) | add')"
  text=$(get_metrics ctl)
  assert_contains "$text" "HTTP/1.1 200 OK"
  assert_contains "$text" "application/openmetrics-text; version=1.0.0; charset=utf-8"
  assert_eq "# EOF" "$(tail -n 1 <<<"$text")" "the last line"
  assert_eq 1 "$(metric flextrain_elastic_jobs)" "elastic jobs"
  assert_eq "$(companions | wc -l)" "$(metric flextrain_companions)" "companions"
  assert_eq 0 "$(metric flextrain_watchdog_tripped)" "watchdog"
  assert_contains "$(user alice sflex metrics)" "flextrain_elastic_jobs 1"
  assert_contains "$(get_metrics ctl GET /v1/query)" "HTTP/1.1 404"
  assert_contains "$(get_metrics ctl POST)" "HTTP/1.1 405"
}

test_explain() {
  local job id text
  job=$(common_job alice grown)
  id=$(sflex_rows alice decisions -j "$job" -k grow | tail -n 1 | jq -r .id)
  text=$(user alice sflex explain "$id")
  assert_contains "$text" "Alternatives"
  assert_contains "$text" "  taken"
  assert_contains "$text" "[the job's scale table]"
  assert_contains "$text" "[Slurm's queue]"
  assert_contains "$(user alice sflex explain --replay "$id" 2>&1)" "only root and SlurmUser"
  assert_contains "$(user root sflex explain --replay "$id")" "number by number"
  printf '%s\n' "$text" | sed 's/^/  # /'
}

test_pause() {
  local job rigid
  job=$(common_job alice grown)
  assert_contains "$(user bob sflex pause "$job" 2>&1)" "no running elastic job $job of yours"
  assert_contains "$(user bob sflex pause all 2>&1)" "only root and SlurmUser"
  assert_contains "$(user alice sflex pause "$job")" "no growth until resumed"
  wait_for 20 "the job is shown as paused" held_by "$job" paused
  rigid=$(submit bob -N4 --gres=gpu:1 -o /dev/null --wrap 'sleep 600')
  wait_for 60 "the paused job gives back" shrunk "$job"
  wait_job "$rigid" RUNNING 60
  as bob scancel "$rigid"
  wait_job "$rigid" CANCELLED
  sleep 10 # five rounds with idle GPUs
  shrunk "$job" || fail "the paused job grew"
  assert_contains "$(user alice sflex decisions -j "$job" -k pause)" "alice (uid"
  assert_contains "$(user alice sflex resume "$job")" "may grow again"
  wait_grown alice "$job"
}

test_database() {
  local job before step
  job=$(common_job alice grown)
  before=$(companions)
  step=$(last_step alice grown)
  rm -f "$VC_ROOT"/state/flextrain.db*
  wait_for 20 "the database is made anew" test -s "$VC_ROOT/state/flextrain.db"
  wait_for 20 "sflex sees the job" is_grown alice "$job"
  assert_eq "$before" "$(companions)" "companions"
  step_beyond alice grown "$step" || wait_for 30 "training goes on" step_beyond alice grown "$step"
  assert_contains "$(ctld_log)" "was deleted while in use"
  assert_eq "" "$(diag database_fault)" "fault"
  job_is "$job" RUNNING || fail "the job is $(job_state "$job")"
}

test_starts_switched_off() {
  local job conf=$VC_SLURM_ETC/flextrain.conf keep before
  job=$(common_job alice grown)
  keep=$(cat "$conf")
  printf '%s\nEnabled=no\n' "$keep" >"$conf"
  before=$(wc -l <"$VC_ROOT/log/slurmctld.log")
  restart_ctld >/dev/null
  # The first step on the base may fail while Slurm tidies up; the agent tries again and then reports.
  wait_for 150 "the shrink is reported to its end" outcome_is "$job" shrink "done"
  shrunk "$job" || fail "the job holds $(job_field alice "$job" held_gpus) GPUs"
  job_is "$job" RUNNING || fail "the job is $(job_state "$job")"
  assert_contains "$(user alice sflex decisions -j "$job" -k shrink)" disabled
  assert_contains "$(tail -n "+$((before + 1))" "$VC_ROOT/log/slurmctld.log")" "shrinking --trainer-left-->" "the trainer left before its companions went"
  printf '%s\n' "$keep" >"$conf"
  vc exec ctl scontrol reconfigure
  as alice scancel "$job"
}

e2e_case "sflex diag shows how the controller is" test_diag
e2e_case "/metrics serves Prometheus" test_metrics
e2e_case "sflex explain shows the alternatives" test_explain
e2e_case "sflex pause and resume" test_pause
e2e_case "the database is deleted under a grown job" test_database
e2e_case "slurmctld starts with Enabled=no" test_starts_switched_off
e2e_done
