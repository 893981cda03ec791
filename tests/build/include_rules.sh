#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# include_rules.sh TREE: holds the include rules of docs/architecture.md over the tree's sources:
# which module may include which, where foreign headers are allowed, and the SPDX line per folder.
# Prints every violation as file:line and exits 1 if there is one.
set -euo pipefail
tree=${1:?usage: include_rules.sh TREE}
cd "$tree"

# module → flextrain modules it may include (besides itself)
declare -A may=(
  [base]=""
  [planner]="base"
  [policy]="base"
  [store]="base"
  [protocol]="base"
  [simulator]="policy planner base"
  [trainer]="planner base"
  [agent]="protocol planner base"
  [cli]="simulator policy protocol base"
  [slurm_plugin]="policy store protocol base"
)
violations=0
report() { echo "$1"; violations=$((violations + 1)); }

while IFS= read -r file; do
  module=${file%%/*}
  [[ -v "may[$module]" ]] || continue
  licence=MIT
  [ "$module" = slurm_plugin ] && licence=GPL-2.0-or-later
  head -n 1 "$file" | grep -q "SPDX-License-Identifier: $licence" ||
    report "$file:1: first line must be the SPDX line '$licence'"
  while IFS=: read -r number line; do
    header=$(sed -E 's/^ *# *include *[<"]([^>"]*)[>"].*/\1/' <<<"$line")
    case $header in
      slurm/*)
        [[ $file =~ ^slurm_plugin/(sched|submit|spank|cluster)/ ]] ||
          report "$file:$number: <$header> is allowed only in slurm_plugin/{sched,submit,spank,cluster}" ;;
      mpi.h | nccl.h)
        [[ $file == trainer/comm/* ]] || report "$file:$number: <$header> is allowed only in trainer/comm" ;;
      cuda* | cublas* | cudnn*)
        [[ $file =~ ^trainer/(backend/cuda|comm)/ ]] ||
          report "$file:$number: <$header> is allowed only in trainer/backend/cuda and trainer/comm" ;;
      sqlite3.h)
        [[ $file == store/* ]] || report "$file:$number: <$header> is allowed only in store" ;;
    esac
    if [[ $module == planner || $module == policy ]]; then
      case $header in
        chrono | ctime | time.h | sys/time.h | fstream | filesystem | cstdio | stdio.h | iostream | \
          random | thread | mutex | unistd.h | fcntl.h | sys/* | base/file.h | base/log.h)
          report "$file:$number: <$header> in $module, which does no I/O and reads no clock" ;;
      esac
    fi
    other=${header%%/*}
    if [[ $header == */* && -v "may[$other]" && $other != "$module" ]]; then
      [[ " ${may[$module]} " == *" $other "* ]] ||
        report "$file:$number: $module may not include $other ($header)"
    fi
  done < <(grep -nE '^ *# *include' "$file" || true)
done < <(find . -path ./build -prune -o -path ./.git -prune -o -type f \
           \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -print | sed 's|^\./||' | sort)

if [ "$violations" -gt 0 ]; then
  echo "$violations violation(s) of the include rules (docs/architecture.md)"
  exit 1
fi
echo "include rules hold"
