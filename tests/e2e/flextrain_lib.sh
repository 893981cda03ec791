# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What tests of a cluster with flextrain's plugins share. Sourced after lib.sh.

# flextrain_conf LINE…: the text of a flextrain.conf for tests, quick enough to wait for.
flextrain_conf() {
  printf '%s\n' TickSeconds=2 "DatabasePath=$VC_ROOT/state/flextrain.db" LogLevel=debug \
    DefaultOverheadSeconds=5 "$@"
}

# flextrain_cluster CONF-TEXT [UP-OPTIONS…]: e2e_cluster with our plugins from $E2E_BUILD.
flextrain_cluster() {
  local conf
  conf=$(mktemp)
  printf '%s\n' "$1" >"$conf"
  e2e_cluster --sched "$E2E_BUILD" --flextrain-conf "$conf" "${@:2}"
  rm -f "$conf"
}

# As a user with flextrain's programs in the path: user USER CMD…
user() { vc as "$1" env PATH="$E2E_BUILD/bin:/usr/local/bin:/usr/bin:/bin" "${@:2}"; }
# Rows of an sflex command as JSON, one a line. sflex_rows USER COMMAND…
sflex_rows() { user "$1" sflex "${@:2}" --json | jq -c '(.rows? // .)[]'; }

admin_comment() { vc exec ctl scontrol -o show job "$1" | grep -o 'AdminComment=.* S' | sed 's/^AdminComment=//; s/ S$//'; }
ctld_log() { cat "$VC_ROOT/log/slurmctld.log"; }
ctld_answers() { vc exec ctl timeout 5 scontrol ping | grep -q 'is UP'; }
# Restarts slurmctld in an orderly way; prints how long its stop took.
restart_ctld() {
  local start
  start=$(now)
  vc kill-ctld TERM
  since "$start"
  vc start-ctld
  wait_for 30 "slurmctld answers" ctld_answers
}
