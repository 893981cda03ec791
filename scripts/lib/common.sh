# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Small helpers shared by every script: messages, root, waiting. Sourced, never run.

say() { printf '%s\n' "$*"; }
note() { printf '%s\n' "$*" >&2; }
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# wait_until SECONDS CMD…: poll CMD every 50 ms until it succeeds; false at the deadline.
wait_until() {
  local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# The repository root, from this file's own place.
repo_root() { (cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P); }
