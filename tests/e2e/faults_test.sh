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
e2e_done
