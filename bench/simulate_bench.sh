#!/bin/bash
# SPDX-License-Identifier: MIT
# What the policy is worth over job traces, and what a replay costs: three mixes of elastic jobs,
# short pauses, and nodes of 8 GPUs, with the mean and spread over the traces given.
# Usage: bench/simulate_bench.sh GPUS TRACE.csv…   (builds must exist; SFLEX names another sflex)
set -eu
[ $# -ge 2 ] || { echo "usage: $0 GPUS TRACE.csv…" >&2; exit 2; }
gpus=$1
shift
sflex=${SFLEX:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin/sflex}
csv=$(mktemp)
trap 'rm -f "$csv"' EXIT

simulate() { # TITLE POLICIES ARGUMENTS…
  local title=$1 policies=$2
  shift 2
  echo "== $title"
  "$sflex" simulate "${traces[@]}" "${layout[@]}" --warm-up 7 -q --policies "$policies" --csv "$csv" "$@" | tail -n +3
  awk -F, 'NR > 1 && $4 == "all" { s[$1 " (" $5 ")"] += $NF; n[$1 " (" $5 ")"]++ } END { for (p in s) printf "%s: %.2f s a replay\n", p, s[p] / n[p] }' "$csv" | sort
}
traces=("$@")
layout=(--gpus "$gpus")
all=flextrain-paper,none,elasticflow,recommended,recommended-no-queue-rule,oracle,frictionless
simulate "pp, 20 % elastic" "$all" --mode pp --share 0.2
simulate "dp+pp, 20 % elastic" "$all" --share 0.2
simulate "dp+pp, 60 % elastic" "$all" --share 0.6
for mix in "pp 0.2" "dp+pp 0.2" "dp+pp 0.6"; do
  read -r mode share <<<"$mix"
  simulate "$mode, share $share, pause 30 s, hand-over 10 s" recommended,recommended-no-queue-rule \
    --mode "$mode" --share "$share" --pause 30 --hand-over 10
done
layout=(--nodes "$((gpus / 8))x8")
simulate "dp+pp, 60 % elastic, nodes of 8 GPUs" "$all" --share 0.6
