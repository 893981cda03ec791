#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Usage: plugin_exports_test.sh SCHED JOB_SUBMIT SPANK CORE
# A const inside an extern "C" { } block vanishes, a helper left visible could be taken for another
# plugin's: so the exports of each library are compared with the full list.
set -u
failed=0
expect() { # FILE SYMBOL…
  local file=$1 have want
  shift
  want=$(printf '%s\n' "$@" | sort)
  have=$(nm -D --defined-only "$file" | awk '{ print $NF }' | sed 's/@.*//' | sort)
  if [ "$have" != "$want" ]; then
    echo "FAILED: exports of $file: $(diff <(echo "$want") <(echo "$have"))"
    failed=1
  fi
}
expect "$1" init fini plugin_name plugin_type plugin_version sched_p_reconfig
expect "$2" init fini plugin_name plugin_type plugin_version job_submit job_modify
expect "$3" plugin_name plugin_type plugin_version spank_plugin_version slurm_spank_init \
  slurm_spank_init_post_opt
expect "$4" flextrain_core_sched_init flextrain_core_sched_fini flextrain_core_sched_reconfig \
  flextrain_core_submit_init flextrain_core_job_submit flextrain_core_job_modify

for file in "$@"; do # slurmctld and the commands bring Slurm's symbols themselves
  if readelf -d "$file" | grep -q 'NEEDED.*libslurm'; then
    echo "FAILED: $file links libslurm"
    failed=1
  fi
  # what would be missing only when it is called
  if missing=$(nm -DC --undefined-only "$file" | grep 'flextrain::'); then
    echo "FAILED: $file lacks $missing"
    failed=1
  fi
done
for file in "$1" "$2" "$4"; do
  readelf -d "$file" | grep -q NODELETE || { echo "FAILED: $file is not -z nodelete"; failed=1; }
done
exit $failed
