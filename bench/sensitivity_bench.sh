#!/bin/bash
# SPDX-License-Identifier: MIT
# What each default of the policy is worth: one replay of dp+pp, 60 % elastic, per value, means over
# the traces given; utilisation is changed by the size of the pool.
# Usage: bench/sensitivity_bench.sh GPUS TRACE.csv…   (builds must exist; SFLEX names another sflex)
set -eu
[ $# -ge 2 ] || { echo "usage: $0 GPUS TRACE.csv…" >&2; exit 2; }
gpus=$1
shift
sflex=${SFLEX:-$(dirname "${BASH_SOURCE[0]}")/../build/release/bin/sflex}
traces=("$@")
csv=$(mktemp)
trap 'rm -f "$csv"' EXIT

row() { # TITLE POLICY GPUS ARGUMENTS…
  local title=$1 policy=$2 pool=$3
  shift 3
  "$sflex" simulate "${traces[@]}" --gpus "$pool" --share 0.6 --warm-up 7 -q --policies "$policy" --csv "$csv" "$@" >/dev/null
  awk -F, -v title="$title" -v policy="$policy" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
    $1 == policy && $at["gpus"] == "all" { n++; for (i = 5; i <= NF; i++) sum[i] += $i }
    END { printf "| %s | %.3f | %.3f | %.1f %% | %.1f %% | %.3f | %.0f %% | %.2f | %.0f |\n", title, sum[at["njct"]] / n,
          sum[at["nrun"]] / n, 100 * sum[at["slower"]] / n, 100 * sum[at["longer"]] / n, sum[at["w60"]] / n,
          100 * sum[at["utilisation"]] / n, sum[at["switches_per_job"]] / n, sum[at["pause_gpu_hours"]] / n }' "$csv"
}
echo "| | njct | nrun | slower | ran longer | w60 | util | switches/job | pause GPUh |"
echo "|---|---|---|---|---|---|---|---|---|"
row "defaults" recommended "$gpus"
for p in 0.3 0.5 0.7 0.9; do row "GateProbability=$p" recommended "$gpus" --set GateProbability=$p; done
for w in 3600 14400 86400; do row "ArrivalWindowSeconds=$w" recommended "$gpus" --set ArrivalWindowSeconds=$w; done
for f in trailing seasonal idle; do row "Forecast=$f" recommended "$gpus" --set Forecast=$f; done
row "Gate=none" recommended "$gpus" --set Gate=none
for g in break-even-take-back net-benefit; do row "Gate=$g" recommended "$gpus" --set Gate=$g; done
for m in 1 8 32 128; do
  row "flextrain-paper, ArrivalMinGPUs=$m" flextrain-paper "$gpus" --set ArrivalMinGPUs=$m
done
row "RemainingTimeGuard=no" recommended "$gpus" --set RemainingTimeGuard=no
row "guard by the time limit" recommended "$gpus" --remaining limit
row "guard by the age" recommended "$gpus" --remaining nothing
for setting in RequireEmptyQueue=no Victims=most-expanded SpareEndingSeconds=0 SpareEndingSeconds=600 MaxGrowth=2 \
  CooldownSeconds=600 CooldownSeconds=3600 MaxScalingsPerHour=2 IdleReserve=0.1; do
  row "$setting" recommended "$gpus" --set "$setting"
done
for t in 10 300 600; do row "a look every $t s" recommended "$gpus" --tick $t; done
for p in 5 30 60 120 300 600 1200; do
  row "pause $p s" recommended "$gpus" --pause $p
  row "pause $p s, flextrain-paper" flextrain-paper "$gpus" --pause $p
done
for pool in 65 75 85; do row "load $pool %" recommended $((gpus * 55 / pool)); done
