# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# What users and operators do with scancel and scontrol, to the base and to a companion.

# refused CMD…: Slurm refuses it; the cell then shows that nothing has changed.
refused() {
  if "$@"; then
    echo "Slurm took: $*"
    return 1
  fi
}

# ---- the base ---------------------------------------------------------------------------------
fault base-scancel cancelled "scancel of the base by its owner"
inject_base_scancel() { as alice scancel "$JOB"; }

fault base-hold exact "scontrol hold of the running base: Slurm takes it, to no effect"
inject_base_hold() { as alice scontrol hold "$JOB"; }

fault base-requeue requeued "scontrol requeue of the base by its owner"
inject_base_requeue() { as alice scontrol requeue "$JOB"; }

fault base-suspend exact "scontrol suspend of the base, resumed after 10 s"
inject_base_suspend() { on ctl scontrol suspend "$JOB"; }
heal_base_suspend() {
  pause 10
  on ctl scontrol resume "$JOB"
}

fault base-update-time exact "the base's time limit lowered to 20 minutes by its owner"
inject_base_update_time() { as alice scontrol update "jobid=$JOB" timelimit=20; }

fault base-update-partition exact "another partition for the running base: Slurm refuses"
inject_base_update_partition() { refused as alice scontrol update "jobid=$JOB" partition=companion; }

fault base-update-size exact "a node of the base given up by its owner (scontrol update NumNodes=1)"
inject_base_update_size() { as alice scontrol update "jobid=$JOB" numnodes=1; }

# Slurm looks at time limits twice a minute.
fault base-time-limit timeout "the base reaches its time limit"
inject_base_time_limit() { on ctl scontrol update "jobid=$JOB" "endtime=$(date -d '+2 seconds' +%Y-%m-%dT%H:%M:%S)"; }
keep_gate_base_time_limit() { :; }
heal_base_time_limit() { wait_until_quiet 100 terminal_state || job_is "$JOB" COMPLETING; }

fault script-ends completed "the batch script ends while the trainer runs"
script_script_ends() {
  echo "$(agent_line) &"
  echo "until [ -e $CELL_DIR/leave ]; do sleep 0.2; done"
}
inject_script_ends() { : >"$CELL_DIR/leave"; }

# The inner job inherits the whole environment of an elastic job, SPANK's part too.
fault sbatch-inside exact "sbatch inside the elastic job: an ordinary job"
script_sbatch_inside() {
  echo "(until [ -e $CELL_DIR/go ]; do sleep 0.2; done; sbatch --parsable --job-name=inner --output=inner.log -N1 --gres=gpu:1 --time=2 --wrap hostname >inner.id) &"
  echo "exec $(agent_line)"
}
inject_sbatch_inside() {
  : >"$CELL_DIR/go"
  wait_until_quiet 20 test -s "$CELL_DIR/inner.id"
}
after_sbatch_inside() {
  local inner
  inner=$(cat "$CELL_DIR/inner.id")
  wait_until_quiet 60 job_is "$inner" COMPLETED || note_failure "the inner job is $(job_state "$inner")"
  [ -z "$(sflex_json jobs -a -j "$inner")" ] || note_failure "the inner job counts as elastic"
}

# ---- a companion: a job of the user's own, whom Slurm lets do this ----------------------------------
fault companion-scancel exact "scancel of a companion by its owner"
skip_companion_scancel() { needs_companion_job "$1"; }
inject_companion_scancel() { pick_companion && as alice scancel "$COMPANION"; }

fault companion-hold exact "scontrol hold of a companion"
skip_companion_hold() { needs_companion_job "$1"; }
inject_companion_hold() { pick_companion && { as alice scontrol hold "$COMPANION" || echo "refused"; }; }

fault companion-requeue exact "scontrol requeue of a companion"
skip_companion_requeue() { needs_companion_job "$1"; }
inject_companion_requeue() { pick_companion && { as alice scontrol requeue "$COMPANION" || echo "refused"; }; }

fault companion-suspend exact "scontrol suspend of a companion, resumed after 10 s"
skip_companion_suspend() { only_phases "$1" "no companion is RUNNING" companions-ready switching-saving \
  switching-stopped switching-relaunching grown shrinking-saving ending; }
inject_companion_suspend() { pick_companion RUNNING && on ctl scontrol suspend "$COMPANION"; }
heal_companion_suspend() {
  pause 10
  on ctl scontrol resume "$COMPANION" || echo "it is gone"
}

fault companion-update-time exact "a companion's time limit lowered to what it has had"
skip_companion_update_time() { needs_companion_job "$1"; }
inject_companion_update_time() { pick_companion && { as alice scontrol update "jobid=$COMPANION" timelimit=1 || echo "refused"; }; }

fault companion-update-partition exact "another partition for a companion: Slurm refuses"
skip_companion_update_partition() { needs_companion_job "$1"; }
inject_companion_update_partition() { pick_companion && refused as alice scontrol update "jobid=$COMPANION" partition=companion; }
