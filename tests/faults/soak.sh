# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2153,SC2154 # shared with the other files of this folder
# The soak: random faults, one after the other, against a stream of elastic and rigid jobs of two
# users. Everything random comes from the seed; what happens when does also depend on the machine.

SOAK_STEPS=250
SOAK_FAULTS=(rank-kill rank-stop mpirun-kill mpirun-stop orted-kill base-agent-kill companion-agent-kill
  companion-agent-stop companion-node-power companion-node-drain companion-node-down
  companion-node-slurmd-stop companion-scancel companion-requeue companion-suspend base-host-power
  base-host-down base-host-slurmd-stop base-requeue base-suspend slurmctld-kill slurmctld-stop
  slurmctld-restart munged-ctl-kill munged-ctl-stop munged-base-kill munged-base-stop)
declare -A SOAK_JOB=() SOAK_DIR=() # by user: the elastic job that runs, and its folder's name
SOAK_SERIAL=0 SOAK_EXACT=0 SOAK_WRONG=0 SOAK_AGAIN=0 SOAK_DONE=0
SOAK_RIGID='' SOAK_RIGIDS=0 SOAK_WORST=0 SOAK_WORST_CALM=0 SOAK_FAULT_UNTIL=0
SOAK_INJECTED=0 SOAK_LEAKED=0

soak_say() { printf '%7.1f s  %s\n' "$(since "$SOAK_BEGIN")" "$*"; }

# Elastic jobs: one of each user at any time, base 1 GPU, at most 3.
soak_submit() { # USER NAME
  SOAK_DIR[$1]=$2
  SOAK_JOB[$1]=$(echo "exec flextrain-agent run -- flextrain-trainer train ../job.toml ${TRAIN_SETS[*]}" |
    JOB_OWNER=$1 submit_cell_job "$2" -N1 --elastic --elastic-max=3x)
}
# A requeued job is left to Slurm here, which lets it wait for two minutes: started sooner, on a node whose slurmd
# still knows its old run, it is a "duplicate jobid", and Slurm holds it (launch_failed_requeued_held).
soak_elastic() {
  local owner
  for owner in alice bob; do
    if [ -n "${SOAK_JOB[$owner]:-}" ]; then
      JOB=${SOAK_JOB[$owner]}
      soak_over "$JOB" || continue
      soak_judge "$owner"
    fi
    [ "$SOAK_DONE" = 0 ] || continue
    [ -n "${SOAK_JOB[$owner]:-}" ] || soak_submit "$owner" "soak-$((++SOAK_SERIAL))"
  done
}
# Over: ended, or forgotten by a slurmctld that answers.
soak_over() {
  local state
  state=$(job_state "$1")
  case $state in
    '') ctld_answers && ! on ctl scontrol show job "$1" >/dev/null 2>&1 ;;
    PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | REQUEUED | STOPPED | RESIZING) return 1 ;;
  esac
}
soak_judge() { # USER: her job has ended
  local owner=$1 name=${SOAK_DIR[$1]} job=${SOAK_JOB[$1]} state got
  state=$(job_state "$job")
  SOAK_JOB[$owner]=''
  if [ "$state" != COMPLETED ]; then # its agent was killed, or slurmctld forgot it: submitted again
    soak_say "job $job of $owner ended ${state:-forgotten}: the same training again"
    SOAK_AGAIN=$((SOAK_AGAIN + 1))
    soak_submit "$owner" "$name"
    return
  fi
  got=$(digest "$owner" "$name" 2>&1 | tail -n 1)
  if [ "$got" = "$STRAIGHT" ]; then
    SOAK_EXACT=$((SOAK_EXACT + 1))
  else
    SOAK_WRONG=$((SOAK_WRONG + 1))
    soak_say "WRONG: job $job of $owner ended with digest '$got', straight '$STRAIGHT'"
    tail -n 30 "$(home "$owner")/train/$name/job.log"
  fi
}

# Rigid jobs: one at a time, 1 or 2 nodes; without flextrain each would start at once.
soak_rigid() {
  local file wait
  if [ -z "$SOAK_RIGID" ]; then
    [ "$SECONDS" -ge "$SOAK_NEXT_RIGID" ] && [ "$SOAK_DONE" = 0 ] || return 0
    SOAK_RIGID=$(submit bob -N$((1 + RANDOM % 2)) --ntasks-per-node=1 --gres=gpu:1 -o "rigid-%j.txt" \
      --wrap "date +%s.%N; sleep $((3 + RANDOM % 10))")
    SOAK_RIGID_FROM=$EPOCHREALTIME SOAK_RIGID_FAULTY=no
    return 0
  fi
  [ "$SECONDS" -ge "$SOAK_FAULT_UNTIL" ] || SOAK_RIGID_FAULTY=yes
  file=$(home bob)/rigid-$SOAK_RIGID.txt
  if [ -s "$file" ]; then
    wait=$(awk -v a="$SOAK_RIGID_FROM" -v b="$(head -n 1 "$file")" 'BEGIN { printf "%.1f", (b > a ? b - a : 0) }')
    SOAK_RIGIDS=$((SOAK_RIGIDS + 1))
    SOAK_WORST=$(soak_max "$wait" "$SOAK_WORST")
    [ "$SOAK_RIGID_FAULTY" = yes ] || SOAK_WORST_CALM=$(soak_max "$wait" "$SOAK_WORST_CALM")
  elif ! soak_over "$SOAK_RIGID"; then
    ! job_is "$SOAK_RIGID" PENDING || on ctl scontrol update "jobid=$SOAK_RIGID" starttime=now >/dev/null 2>&1
    return 0
  fi
  SOAK_RIGID='' SOAK_NEXT_RIGID=$((SECONDS + 10 + RANDOM % 25))
}
soak_max() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > b ? a : b) }'; }

# One fault, against a job that trains; healed before the next.
soak_fault() {
  local running=() owner
  for owner in alice bob; do
    [ -z "${SOAK_JOB[$owner]:-}" ] || ! job_is "${SOAK_JOB[$owner]}" RUNNING || running+=("$owner")
  done
  [ ${#running[@]} -gt 0 ] || return 0
  pick "${running[@]}"
  owner=$PICKED JOB=${SOAK_JOB[$PICKED]} RIGID='' BLOCKER=''
  CELL_DIR=$(home "$owner")/train/${SOAK_DIR[$owner]}
  BASE_NODES=$(on ctl scontrol show hostnames "$(job_value "$JOB" NodeList)" | xargs)
  BASE_HOST=$(job_value "$JOB" BatchHost)
  [ -n "$BASE_HOST" ] || return 0
  OTHER_NODES=$(for n in n1 n2 n3 n4; do [[ " $BASE_NODES " == *" $n "* ]] || echo $n; done | xargs)
  pick "${SOAK_FAULTS[@]}"
  FAULT=$PICKED
  SOAK_RIGID_FAULTY=yes
  if hook inject "$FAULT" >>"$SOAK_LOG" 2>&1; then
    SOAK_INJECTED=$((SOAK_INJECTED + 1))
    soak_say "$FAULT on job $JOB of $owner (step $(step_now), $(gpus_now) GPUs)"
    ! has_hook heal "$FAULT" || hook heal "$FAULT" >>"$SOAK_LOG" 2>&1 || soak_say "  (its healing had nothing to wait for)"
    mend_daemons >>"$SOAK_LOG" 2>&1
    mend_nodes >>"$SOAK_LOG" 2>&1
  fi
  SOAK_FAULT_UNTIL=$((SECONDS + 20))
  SOAK_NEXT_FAULT=$((SECONDS + 8 + RANDOM % 15))
}

ctld_rss() { on ctl sh -c 'awk "/^VmRSS/ { print \$2 }" /proc/$(pgrep -x slurmctld)/status'; }

# keep_evidence USER: what there is to know of a user's job that has not ended, beside the log.
keep_evidence() {
  local job=${SOAK_JOB[$1]}
  {
    on ctl scontrol show job "$job"
    on ctl sinfo -R
    on ctl sinfo -N
    on ctl sdiag | head -n 20
    on ctl "$E2E_BUILD/bin/sflex" jobs -a -j "$job"
  } >"$results.job-$job.txt" 2>&1
  cp "$VC_ROOT/log/slurmctld.log" "$results.slurmctld.log"
  cp "$(home "$1")/train/${SOAK_DIR[$1]}/job.log" "$results.job-$job.log"
  soak_say "  see $results.job-$job.* and $results.slurmctld.log"
}

# soak MINUTES: false where a job did not end exactly or a GPU leaked.
soak() {
  local end rss_begin rss_end ctld owner
  SOAK_LOG=$results.soak.log
  TRAIN_SETS+=(--set "training.steps=$SOAK_STEPS")
  CELL_BEGIN=$EPOCHREALTIME
  cluster_ready plain >"$SOAK_LOG" 2>&1 || {
    echo "no cluster: see $SOAK_LOG"
    return 1
  }
  prepare_training bob
  RANDOM=$((SEED % 32768))
  SOAK_BEGIN=$EPOCHREALTIME SOAK_NEXT_RIGID=$((SECONDS + 20)) SOAK_NEXT_FAULT=$((SECONDS + 20))
  end=$((SECONDS + $1 * 60))
  ctld=$(on ctl pgrep -x slurmctld) rss_begin=$(ctld_rss)
  while [ "$SECONDS" -lt $end ]; do
    soak_elastic
    soak_rigid
    [ "$SECONDS" -lt "$SOAK_NEXT_FAULT" ] || soak_fault
    sleep 0.5
  done
  SOAK_DONE=1
  soak_say "no more faults and jobs; waiting for those that run"
  end=$((SECONDS + 240))
  while [ "$SECONDS" -lt $end ] && { [ -n "${SOAK_JOB[alice]}${SOAK_JOB[bob]}$SOAK_RIGID" ] || ! no_companions; }; do
    soak_elastic
    soak_rigid
    sleep 0.5
  done
  for owner in alice bob; do
    [ -z "${SOAK_JOB[$owner]}" ] || {
      SOAK_WRONG=$((SOAK_WRONG + 1))
      soak_say "WRONG: job ${SOAK_JOB[$owner]} of $owner has not ended: $(job_state "${SOAK_JOB[$owner]}")"
      keep_evidence "$owner"
    }
  done
  wait_until_quiet 60 gpus_agree
  SOAK_LEAKED=0
  gpus_agree || SOAK_LEAKED=$(($(allocated_gpus) - $(gpus_of_jobs R,CF,CG,S)))
  check_strays
  rss_end=$(ctld_rss)
  [ "$ctld" = "$(on ctl pgrep -x slurmctld)" ] || rss_end="$rss_end (of a later slurmctld: faults restarted it)"
  echo "faults injected: $SOAK_INJECTED"
  echo "elastic jobs finished exactly: $SOAK_EXACT, otherwise: $SOAK_WRONG, submitted again after an end by Slurm's rules: $SOAK_AGAIN"
  echo "GPUs leaked: $SOAK_LEAKED${WHAT:+; $WHAT}"
  echo "rigid jobs: $SOAK_RIGIDS, worst delay $SOAK_WORST s, with no fault meanwhile $SOAK_WORST_CALM s (bound $RIGID_BOUND s)"
  echo "slurmctld's resident memory: $rss_begin kB at the start, $rss_end kB at the end"
  [ $SOAK_WRONG -eq 0 ] && [ "$SOAK_LEAKED" -eq 0 ] && [ $SOAK_EXACT -gt 0 ] && [ -z "$WHAT" ]
}
