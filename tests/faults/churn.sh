# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2153,SC2154 # shared with the other files of this folder
# The churn: no faults, but jobs of every kind that come, grow, shrink and end, queries, commands and
# reconfigures without pause, while slurmctld's memory, threads and open files are looked at. The
# trainer is a stand-in that sleeps (tests/agent/fake_trainer.cc) and offers a real trainer's table.
# What happens is in churn_loop.sh; here is what comes before and after.

CHURN_NODES=6
# What the memory may rise over the time after the warm-up, by a straight line: slurmctld's own heaps,
# one for each of its threads, and SQLite's page caches fill (docs/reliability.md).
CHURN_RISE_KB=6144

churn_elastic() { [ "$CHURN_PLUGIN" = yes ]; } # is flextrain there at all?

# The table of a real trainer that may have 3 times its GPU.
churn_table() {
  local job control
  prepare_training alice
  churn_elastic || return 0
  control=$(home alice)/train/table/control
  job=$(echo "exec flextrain-agent run --control-dir $control -- flextrain-trainer train ../job.toml ${TRAIN_SETS[*]} --set training.steps=100000" |
    submit_cell_job table -N1 --elastic --elastic-max=3x) || return 1
  wait_until_quiet 120 test -s "$control/scale_table.json" || {
    tail -n 20 "$(home alice)/train/table/job.log"
    return 1
  }
  cp "$control/scale_table.json" "$VC_ROOT/scale_table.json"
  on ctl scancel "$job"
  wait_until_quiet 60 no_jobs
}

# The straight line through the samples after the warm-up (a quarter of the time, 15 min at most).
# Prints "hours kB-per-hour rise first last files-rise".
churn_slope() { # SAMPLES SECONDS
  awk -v total="$2" '
    BEGIN { warm = total / 4; if (warm > 900) warm = 900 }
    $1 >= warm { n++; x = $1 / 3600; sx += x; sy += $2; sxx += x * x; sxy += x * $2; if (n == 1) { from = x; first = $2; files = $4 } to = x; last = $2; last_files = $4 }
    END {
      if (n < 3 || n * sxx == sx * sx) exit 1
      slope = (n * sxy - sx * sy) / (n * sxx - sx * sx)
      printf "%.2f %.0f %.0f %d %d %d\n", to - from, slope, slope * (to - from), first, last, last_files - files
    }' "$1"
}

# churn MINUTES PLUGIN(yes|no): false where slurmctld's memory or open files grow, or jobs fail.
churn() {
  local ctld hours slope rise first last files seconds=$(($1 * 60))
  CHURN_PLUGIN=$2 CHURN_LOG=$results.churn.log CHURN_SAMPLES=$VC_ROOT/churn.samples # nodes see no other file of ours
  FAULT_NODES=$CHURN_NODES CELL_BEGIN=$EPOCHREALTIME WHAT=''
  { cluster_up_churn && churn_table && prepare_training bob; } >"$CHURN_LOG" 2>&1 || {
    echo "no cluster: see $CHURN_LOG"
    return 1
  }
  ctld=$(on ctl pgrep -x slurmctld)
  on ctl env VC_ROOT="$VC_ROOT" E2E_BUILD="$E2E_BUILD" SEED="$SEED" CHURN_PLUGIN="$CHURN_PLUGIN" \
    CHURN_SECONDS=$seconds CHURN_SAMPLES="$CHURN_SAMPLES" bash "$FAULTS_DIR/churn_loop.sh" 2>>"$CHURN_LOG" ||
    note_failure "elastic jobs failed, or none ended"
  on ctl scancel --user alice
  on ctl scancel --user bob
  wait_until_quiet 90 no_jobs || note_failure "jobs do not end: $(on ctl squeue -h | xargs)"
  check_gpus
  check_strays
  [ "$ctld" = "$(on ctl pgrep -x slurmctld)" ] || note_failure "slurmctld died"
  ! churn_elastic || churn_scalings
  cp "$CHURN_SAMPLES" "$results.churn.samples" || return 1
  if read -r hours slope rise first last files < <(churn_slope "$CHURN_SAMPLES" "$seconds"); then
    echo "slurmctld's resident memory after the warm-up: $first kB, at the end $last kB; a straight line through the samples of $hours h rises by $rise kB ($slope kB an hour; bound $CHURN_RISE_KB kB over that time)"
    [ "$rise" -le $CHURN_RISE_KB ] || note_failure "slurmctld's memory rises by $rise kB"
    [ "$files" -le 16 ] || note_failure "slurmctld has $files more open files than after the warm-up"
  else
    note_failure "too few samples to tell: --churn needs 5 minutes at least"
  fi
  [ -z "$WHAT" ]
}
churn_scalings() {
  local rows
  rows=$(sflex_rows slurm decisions -S now-1day | jq -r '[.kind, .outcome] | join(" ")' | sort | uniq -c | awk '{ printf "%s%s %s: %d", (NR > 1 ? ", " : ""), $2, $3, $1 }')
  echo "decisions: $rows"
  [[ $rows == *"grow done"* ]] || note_failure "nothing has grown"
  [[ $rows == *"shrink done"* ]] || note_failure "nothing has shrunk"
}
# Finished jobs are forgotten after 30 s, so that slurmctld's own table is soon as long as it gets.
cluster_up_churn() {
  local conf status
  conf=$(mktemp)
  echo MinJobAge=30 >"$conf"
  churn_elastic || FAULT_PLUGINS=()
  up_with --conf "$conf"
  status=$?
  rm -f "$conf"
  return $status
}
