#!/bin/bash
# SPDX-License-Identifier: MIT
# The representative part of the fault matrix (docs/reliability.md), a case each cell.
# shellcheck disable=SC2317 # cases are called by name
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

results=$(mktemp)
rm -f "$results"
trap 'rm -rf "$results" "$results.logs"' EXIT
# faults makes the cluster, once for all cells, and tells of each in a line of its results.
"$E2E_REPO/scripts/faults" --smoke --results "$results" | sed -u 's/^/# /'

test_cell() {
  local line
  line=$(awk -F'\t' -v f="$fault" -v p="$phase" '$1 == f && $2 == p' "$results" | tail -n 1)
  [ -n "$line" ] || fail "the cell was not run"
  [ "$(cut -f3 <<<"$line")" = pass ] || {
    tail -n 200 "$results.logs/$fault@$phase.log"
    fail "$(cut -f9 <<<"$line")"
  }
  echo "# recovered after $(cut -f4 <<<"$line") s, $(cut -f5 <<<"$line") steps redone, cell $(cut -f6 <<<"$line") s"
}
while read -r fault phase; do
  e2e_case "$fault in $phase" test_cell
done < <(grep -v '^#' "$E2E_REPO/tests/faults/smoke.txt")

FAULTS=$E2E_REPO/scripts/faults
refused() { # WORDS ARG…
  local out status=0
  out=$("$FAULTS" "${@:2}" 2>&1) || status=$?
  assert_eq 2 "$status" "status of faults ${*:2}"
  assert_contains "$out" "$1" "faults ${*:2}"
}
test_refused() {
  refused 'takes a number' --soak 5 --seed garbage
  refused '--shard takes' --all --shard 3/2
  refused 'exclude each other' --all --soak 5
  refused 'does not belong' --soak 5 --resume
  refused 'does not belong' --smoke --fault rank-kill
  refused 'no cell matches' --fault nobody
  refused 'no file' --all --results "$(dirname "$results")"
}
# It would take down the first one's cluster.
test_second() {
  local claim=$E2E_REPO/build/faults/claim-9-9
  echo "$$ $(awk '{ sub(/.*\) /, ""); print $20 }' "/proc/$$/stat")" >"$claim"
  refused "process $$" --soak 1 --shard 9/9 --results "$results"
  rm -f "$claim"
}
test_garbage() {
  printf 'garbage\nrank-kill\tgro\nrank-kill\tgrown\tpass\t2.4\t1\t30\t0.0\t-\t-\n' >"$results.odd"
  local out
  out=$("$FAULTS" --table --results "$results.odd")
  rm -f "$results.odd"
  assert_contains "$out" "1 passed"
  assert_contains "$out" "2 lines of the file are no results"
}
e2e_case "wrong command lines" test_refused
e2e_case "a second harness of the same shard" test_second
e2e_case "a results file that holds garbage" test_garbage
e2e_done
