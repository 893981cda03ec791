#!/bin/bash
# SPDX-License-Identifier: MIT
# scripts/demo, the whole path, as a newcomer runs it; its own summary is the verdict.
# shellcheck disable=SC2317 # cases are called by name
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export FLEXTRAIN_DEMO_ROOT=$VC_ROOT FLEXTRAIN_DEMO_BUILT=1
demo() { "$E2E_REPO/scripts/demo" "$@"; }
trap 'demo --clean >/dev/null 2>&1' EXIT

test_demo() {
  local out
  out=$(demo 2>&1) || fail "the demo failed: $out"
  assert_contains "$out" "losses of all 360 steps are equal"
  assert_contains "$out" "equal digest"
  assert_contains "$out" "which is NOT so" "the refused growth, explained"
  grep -E '^ +(ok|the rigid)|^  (grow|shrink) ' <<<"$out" | sed 's/^/# /'
}
test_clean() {
  demo --clean
  [ ! -e "$FLEXTRAIN_DEMO_ROOT" ] || fail "$FLEXTRAIN_DEMO_ROOT is still there"
}
e2e_case "the demo ends well: two grows, a shrink, a refusal, equal bits" test_demo
e2e_case "--clean removes all of it" test_clean
e2e_done
