# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # shared with the other files of this folder
# One cell from an idle cluster to an idle cluster.

terminal_state() { case $(job_state "$JOB") in '' | PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | REQUEUED | STOPPED) return 1 ;; esac }
new_step() { at_least_step $((STEP_BEFORE + 1)) || terminal_state; }
settled() { case $(store_value state) in steady | ended) ;; *) return 1 ;; esac }
restarted() { [ "$(job_value "$JOB" Restarts)" -ge 1 ] 2>/dev/null; }
job_gone() { ! on ctl scontrol show job "$JOB" >/dev/null 2>&1; }

# A job with nothing left to do may end well before the fault is noticed.
ended_first() { [ "$PHASE" = ending ] && job_is "$JOB" COMPLETED; }
left_its_nodes() { restarted || job_is "$JOB" PENDING || ended_first; }
started_again() {
  ended_first && return
  hurry_requeued "$JOB"
  restarted && job_is "$JOB" RUNNING
}

# From here the training may run at full speed to its end.
let_it_run() {
  rm -f "$CELL_DIR/hold/slow"
  [ -z "$BLOCKER" ] || on ctl scancel "$BLOCKER"
  [ -z "$RIGID" ] || on ctl scancel "$RIGID"
}

expect_exact() {
  if ! wait_until_quiet 150 new_step; then
    note_failure "no step after the fault within 150 s (job $(job_state "$JOB"), step $(step_now))"
    return
  fi
  RECOVERED=$(since "$INJECTED")
  say_at "a new step after $RECOVERED s: $(step_now) on $(gpus_now) GPUs"
  check_rigid "$HEALED"
  check_gpus
  excused store || wait_until_quiet 75 settled || note_failure "the job does not settle: state '$(store_value state)'"
  let_it_run
  say_at "at full speed from here"
  if ! wait_until_quiet 120 job_is "$JOB" COMPLETED; then
    note_failure "the job is $(job_state "$JOB") at step $(step_now), not COMPLETED"
    return
  fi
  say_at "completed"
  RECOVERED=$(seconds_to_recover)
  RECOVERED=${RECOVERED:-$(since "$INJECTED")} # it had nothing left to do but to end
  check_redone
  check_digest "$CELL"
}

# Ends as Slurm says; then the same training again, straight on from what is there.
expect_end() { # STATE
  local again state
  if ! wait_until_quiet 120 terminal_or_gone; then
    note_failure "the job is still $(job_state "$JOB") after 120 s, not $1"
    return
  fi
  RECOVERED=$(since "$INJECTED")
  state=$(job_state "$JOB")
  [ "$1" = GONE ] || [ "$state" = "$1" ] || note_failure "the job is $state, not $1"
  say_at "ended: $state, step $(step_now)"
  STEP_BEFORE=$(step_now)
  check_rigid "$HEALED"
  let_it_run
  check_companions_gone
  again=$(echo "exec $(agent_line)" | submit_cell_job "$CELL")
  wait_until_quiet 90 job_is "$again" COMPLETED || note_failure "submitted again, the training is $(job_state "$again")"
  check_redone
  check_digest "$CELL"
}
terminal_or_gone() { terminal_state || job_gone; }

check_rest() {
  check_companions_gone
  check_store
  check_strays
  say_at "companions, store and processes checked"
}

# run_cell FAULT PHASE: sets VERDICT, RECOVERED, REDONE, WHAT. Everything printed goes to the cell's log.
run_cell() {
  local outcome
  FAULT=$1 PHASE=$2 CELL=${1}_$2
  JOB='' RIGID='' BLOCKER='' WHAT='' RECOVERED='' REDONE=0 PROBE='' HEALED=0 BLOCKED=0 BUSY=0 RIGID_WAIT='' TARGET_GONE=''
  CELL_DIR=$(home alice)/train/$CELL
  rm -rf "$CELL_DIR" "$GATES/launches"
  CELL_BEGIN=$EPOCHREALTIME
  seed_cell "$CELL" "$SEED"
  outcome=$(cell_outcome "$FAULT" "$PHASE")
  say_at "== $FAULT in $PHASE: ${FAULT_TEXT[$FAULT]}; to end: $outcome"
  start_probe
  if has_hook setup "$FAULT" && ! hook setup "$FAULT"; then
    note_failure "the set-up failed"
  elif reach_phase; then
    STEP_BEFORE=$(step_now)
    say_at "phase reached, step $STEP_BEFORE on $(gpus_now) GPUs, state $(store_value state)"
    INJECTED=$EPOCHREALTIME HEALED=$EPOCHREALTIME
    if hook inject "$FAULT"; then
      say_at "injected"
      has_hook keep_gate "$FAULT" || open_gates
      if has_hook heal "$FAULT"; then
        hook heal "$FAULT" || note_failure "the fault could not be healed"
        HEALED=$EPOCHREALTIME
        say_at "healed"
      fi
      open_gates
      case $outcome in
        exact) expect_exact ;;
        requeued)
          wait_until_quiet 90 left_its_nodes
          STEP_BEFORE=$(step_now)
          if wait_until_quiet 60 started_again; then expect_exact; else note_failure "the job was not started again: $(job_value "$JOB" Reason)"; fi
          ;;
        *) expect_end "${outcome^^}" ;;
      esac
      check_rest
      ! has_hook after "$FAULT" || hook after "$FAULT"
    elif [ -n "$TARGET_GONE" ] && [[ $PHASE == shrinking-* ]]; then
      # Given back or between two launches at this moment: nothing to hit, but the job goes on.
      say_at "its target has left already"
      open_gates
      expect_exact
      check_rest
    else
      note_failure "the fault could not be injected"
    fi
  fi
  stop_probe
  check_slurmctld
  VERDICT=pass
  [ -z "$WHAT" ] || VERDICT=FAIL
  [ "$VERDICT" = FAIL ] || [ -z "$TARGET_GONE" ] || VERDICT=n/a WHAT="what it hits has left already"
  if [ "$VERDICT" != FAIL ]; then tail -n 60 "$CELL_DIR/job.log"; else show_evidence; fi
  open_gates
}

show_evidence() {
  echo "--- the job's log"
  tail -n 60 "$CELL_DIR/job.log" 2>/dev/null
  echo "--- companions' logs"
  tail -n 8 "$CELL_DIR"/companion-*.log 2>/dev/null
  echo "--- decisions"
  vc exec ctl "$E2E_BUILD/bin/sflex" decisions -j "$JOB" -o ID,Kind,Rule,Outcome,From,To,Reason%90 2>&1 | tail -n 12
  vc exec ctl "$E2E_BUILD/bin/sflex" jobs -a -j "$JOB" 2>&1
  on ctl squeue
  on ctl sinfo -N
  echo "--- slurmctld.log"
  tail -n 120 "$VC_ROOT/log/slurmctld.log" | grep -v 'debug:  *\(sched\|backfill\)'
}
