# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # shared with the other files of this folder
# What must hold after every fault. Each check notes what it finds; none stops the cell.

# ---- slurmctld: watched during the cell -----------------------------------------------------------
start_probe() {
  watch_steps >"$CELL_DIR.steps" 2>/dev/null &
  WATCHER=$!
  PROBE_LOG=$CELL_DIR.probe
  : >"$PROBE_LOG"
  vc exec ctl bash "$FAULTS_DIR/probe.sh" >"$PROBE_LOG" 2>/dev/null &
  PROBE=$!
  CTLD_BEFORE=$(on ctl pgrep -x slurmctld)
}
stop_probe() {
  [ -n "${PROBE:-}" ] || return 0
  kill "$WATCHER" 2>/dev/null
  wait "$WATCHER" 2>/dev/null
  on ctl pkill -f "^bash $FAULTS_DIR/probe.sh" 2>/dev/null
  wait "$PROBE" 2>/dev/null
  PROBE=
}
# TIME STEP, a line each time that the newest step is another; as long as the harness lives.
watch_steps() {
  local last=-1 step
  while kill -0 $$ 2>/dev/null; do
    step=$(step_now)
    if [ "$step" != "$last" ]; then
      echo "$EPOCHREALTIME $step"
      last=$step
    fi
    sleep 0.2
  done
}
# Seconds from the fault to the first step that was new and stayed: where steps were undone, a step
# beyond all that had been made before.
seconds_to_recover() {
  awk -v from="$INJECTED" -v before="$STEP_BEFORE" '
    $1 < from { next }
    $2 < last { peak = last > before ? last : before; found = 0; undone = 1 }
    !found && $2 > (undone ? peak : before) { at = $1; found = 1 }
    { last = $2 }
    END { if (found) printf "%.1f\n", at - from }' "$CELL_DIR.steps"
}
# Longest answer beyond what the machine itself took; the control of the same moment tells how busy
# it was. An answer counts as slurmctld's fault only when it exceeds four times that besides.
check_slurmctld() {
  local worst
  read -r worst BUSY < <(awk '$4 == 0 { over = $3 - 4 * $2; if (over > worst) worst = over }
    $2 > busy { busy = $2 } END { printf "%.2f %.2f\n", worst, busy }' "$PROBE_LOG")
  BLOCKED=${worst:-0}
  say_at "slurmctld: longest answer ${BLOCKED} s beyond the machine's own (${BUSY:-0} s)"
  if excused slurmctld; then
    BLOCKED=- # the fault's own doing
    return
  fi
  awk -v w="$BLOCKED" 'BEGIN { exit !(w > 1) }' && note_failure "slurmctld did not answer for $BLOCKED s"
  [ "$CTLD_BEFORE" = "$(on ctl pgrep -x slurmctld)" ] || note_failure "slurmctld died"
}

# ---- companions and GPUs --------------------------------------------------------------------------
# Once the base is gone: no companion after its lease, and where the controller lives long before.
check_companions_gone() {
  local from=$EPOCHREALTIME
  wait_until_quiet 130 no_companions || note_failure "companions outlive their base by more than the lease: $(companion_lines | xargs)"
  COMPANIONS_GONE=$(since "$from")
}
allocated_gpus() { on ctl scontrol -d -o show node | grep -o 'GresUsed=gpu[^ (]*' | awk -F: '{ s += $NF } END { print s + 0 }'; }
gpus_of_jobs() { on ctl squeue -h -t "$1" -o '%D %b' | awk '{ n = $2; sub(/.*:/, "", n); s += $1 * (n == "N/A" ? 0 : n) } END { print s + 0 }'; }
# A completing job's GPUs are free in Slurm's books or not yet; its node takes nobody until it is over.
gpus_agree() {
  local allocated
  allocated=$(allocated_gpus)
  [ "$allocated" -ge "$(gpus_of_jobs R,CF,S)" ] && [ "$allocated" -le "$(gpus_of_jobs R,CF,CG,S)" ]
}
check_gpus() {
  wait_until_quiet 15 gpus_agree || note_failure "GPUs held by nobody: $(allocated_gpus) allocated, $(gpus_of_jobs R,CF,CG,S) of running jobs"
}
stray_processes() {
  local i
  for ((i = 1; i <= FAULT_NODES; i++)); do
    vc exec n$i pgrep -fa -- '^[^ ]*(flextrain-agent|flextrain-trainer|mpirun|orted) ' 2>/dev/null | sed "s/^/n$i: /"
  done
}
no_strays() { [ -z "$(stray_processes)" ]; }
check_strays() { wait_until_quiet 20 no_strays || note_failure "stray processes: $(stray_processes | cut -c1-90 | head -n 3 | xargs)"; }

# ---- the store --------------------------------------------------------------------------------------
# The run is closed, and every scaling of it has an outcome and, where it failed, a reason.
store_closed() { [ "$(store_value state)" = ended ]; }
check_store() {
  local decisions line id bad=
  excused store && return
  wait_until_quiet 30 store_closed || note_failure "the store: job $JOB is '$(store_value state)', not ended"
  decisions=$(sflex_json decisions -j "$JOB" | jq -c 'select(.kind == "grow" or .kind == "shrink")')
  if [ -z "$decisions" ]; then
    [ "$PHASE" = base-running ] || note_failure "the store has no decision of job $JOB"
    return
  fi
  while read -r line; do
    id=$(jq -r .id <<<"$line")
    case $(jq -r .outcome <<<"$line") in
      done) ;;
      failed | rolled-back)
        sflex_json explain "$id" | jq -e '.scaling.reason | length > 0' >/dev/null ||
          bad="$bad decision $id failed without a reason;"
        ;;
      *) excused grow || bad="$bad decision $id is '$(jq -r .outcome <<<"$line")';" ;;
    esac
  done <<<"$decisions"
  [ -z "$bad" ] || note_failure "the store:$bad"
}

# ---- the training -----------------------------------------------------------------------------------
# Steps that a restart undid, each counted as often as it was done again.
redone_steps() { grep -sc '"step"' "$CELL_DIR/metrics.jsonl.undone" || [ $? -le 1 ] || echo 0; }
check_redone() {
  REDONE=$(redone_steps)
  excused redone && return
  [ "$REDONE" -le "$CELL_CHECKPOINT" ] || note_failure "$REDONE steps redone, a checkpoint is made every $CELL_CHECKPOINT"
}
check_digest() { # NAME
  local got
  got=$(digest alice "$1" 2>&1 | tail -n 1)
  [ "$got" = "$STRAIGHT" ] || note_failure "digest differs: '$got', straight '$STRAIGHT'"
}

# ---- the waiting job ---------------------------------------------------------------------------------
rigid_started() { [ -s "$(home bob)/rigid-$RIGID.txt" ]; }
check_rigid() { # FROM: the moment from which its bound counts
  local bound
  [ -n "$RIGID" ] || return 0
  bound=$((RIGID_BOUND + $(hook late "$FAULT" || echo 0)))
  if ! wait_until_quiet $((bound + 25)) rigid_started; then
    excused rigid || note_failure "the rigid job did not start: $(job_value "$RIGID" Reason)"
    return
  fi
  # By the file's time, which is the kernel's: the clock of jobs on that node may be another one.
  RIGID_WAIT=$(awk -v a="$1" -v b="$(stat -c %.3Y "$(home bob)/rigid-$RIGID.txt")" 'BEGIN { d = b - a; printf "%.1f", (d > 0 ? d : 0) }')
  excused rigid && return
  awk -v w="$RIGID_WAIT" -v b="$bound" 'BEGIN { exit !(w > b) }' &&
    note_failure "the rigid job waited $RIGID_WAIT s, bound $bound s"
}
