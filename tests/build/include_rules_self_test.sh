#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Shows that include_rules.sh can fail: one violation of each rule in a tree made for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
put() { mkdir -p "$tree/$(dirname "$1")"; printf '%s\n' "// SPDX-License-Identifier: ${3:-MIT}" "$2" >"$tree/$1"; }

put base/good.cc '#include "base/status.h"'
"$here/include_rules.sh" "$tree" >/dev/null || { echo "a clean tree was refused"; exit 1; }

expect_refused() {  # FILE LINE [LICENCE]
  put "$@"
  if "$here/include_rules.sh" "$tree" >/dev/null; then echo "not refused: $1: $2"; exit 1; fi
  rm "$tree/$1"
}
expect_refused agent/a.cc '#include <slurm/slurm.h>'
expect_refused trainer/engine/a.cc '#include <mpi.h>'
expect_refused trainer/model/a.cc '#include <cuda_runtime.h>'
expect_refused cli/a.cc '#include <sqlite3.h>'
expect_refused planner/a.cc '#include <chrono>'
expect_refused policy/a.cc '#include "base/file.h"'
expect_refused agent/a.cc '#include "store/store.h"'
expect_refused base/a.cc '#include "planner/plan.h"'
expect_refused slurm_plugin/sched/a.cc '#include <cstdio>' MIT
echo "every rule refuses what it should"
