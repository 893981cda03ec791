#!/bin/bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2034,SC2153,SC2154 # the harness' variables
# Runs in the controller's namespaces, where a command costs no vcluster call: for CHURN_SECONDS the
# jobs, questions, commands and reconfigures of churn.sh, and a line for each minute's sample. False
# where an elastic job ended otherwise than completed or cancelled, or none completed.
set -u
root=$VC_ROOT
# shellcheck source=tests/faults/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
VC_ROOT=$root
cd / || exit 1

on() { "${@:2}"; } # we are there
vc() { # exec ctl CMD… and as USER CMD…
  case $1 in
    exec) "${@:3}" ;;
    as) (cd "$(home "$2")" 2>/dev/null || cd / && exec setpriv --reuid "$2" --regid "$2" --init-groups -- env -i HOME="$PWD" USER="$2" LOGNAME="$2" LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin "${@:3}") ;;
  esac
}

declare -A CHURN_JOB=() CHURN_DIR=()
CHURN_SERIAL=0 CHURN_ENDED=0 CHURN_CANCELLED=0 CHURN_WRONG=0 CHURN_RIGIDS=0 CHURN_QUERIES=0
CHURN_RECONFIGURES=0 CHURN_COMMANDS=0 CHURN_RIGID=''
RANDOM=$((SEED % 32768))

churn_say() { printf '%6.1f min  %s\n' "$(awk -v a="$CHURN_BEGIN" -v b="$EPOCHREALTIME" 'BEGIN { print (b - a) / 60 }')" "$*"; }

churn_submit() { # OWNER: her next job, 30 to 70 s long on any number of GPUs
  local owner=$1 name dir options=(-N1)
  name=churn-$((++CHURN_SERIAL))
  CHURN_DIR[$owner]=$name
  dir=$(home "$owner")/train/$name
  mkdir -p "$dir"
  echo 0.5 >"$dir/pace"
  echo $((60 + RANDOM % 80)) >"$dir/steps"
  ! churn_elastic || {
    cp "$VC_ROOT/scale_table.json" "$dir/"
    options+=(--elastic --elastic-max=3x)
  }
  CHURN_JOB[$owner]=$(echo "exec flextrain-agent run --control-dir $dir/control --fingerprint-cmd 'echo fake-fingerprint' $(churn_elastic || echo --no-controller) -- $E2E_BUILD/bin/fake_trainer" |
    JOB_OWNER=$owner submit_cell_job "$name" "${options[@]}")
}
churn_jobs() {
  local owner state
  for owner in alice bob; do
    if [ -n "${CHURN_JOB[$owner]:-}" ]; then
      state=$(job_state "${CHURN_JOB[$owner]}")
      case $state in
        PENDING | RUNNING | COMPLETING | CONFIGURING) continue ;;
        COMPLETED) CHURN_ENDED=$((CHURN_ENDED + 1)) ;;
        CANCELLED) CHURN_CANCELLED=$((CHURN_CANCELLED + 1)) ;;
        *)
          churn_say "WRONG: job ${CHURN_JOB[$owner]} of $owner ended ${state:-forgotten}"
          tail -n 20 "$(home "$owner")/train/${CHURN_DIR[$owner]}/job.log"
          CHURN_WRONG=$((CHURN_WRONG + 1))
          ;;
      esac
      CHURN_JOB[$owner]=''
    fi
    churn_submit "$owner"
  done
  # A stream of rigid jobs takes back what was grown; some hold most of the nodes.
  if [ -n "$CHURN_RIGID" ]; then
    case $(job_state "$CHURN_RIGID") in PENDING | RUNNING | COMPLETING | CONFIGURING) return ;; esac
    CHURN_RIGID='' CHURN_NEXT_RIGID=$((SECONDS + 4 + RANDOM % 12))
  elif [ "$SECONDS" -ge "$CHURN_NEXT_RIGID" ]; then
    CHURN_RIGID=$(submit bob "-N$((1 + RANDOM % 4))" --ntasks-per-node=1 --gres=gpu:1 -o /dev/null --wrap "sleep $((4 + RANDOM % 10))")
    CHURN_RIGIDS=$((CHURN_RIGIDS + 1))
  fi
}

# What people ask, one question a round: of the last minutes, so that answers do not grow with the
# history.
churn_query() {
  local owner id
  pick alice bob slurm
  owner=$PICKED
  CHURN_QUERIES=$((CHURN_QUERIES + 1))
  if ! churn_elastic; then
    on ctl squeue -l >/dev/null
    return
  fi
  case $((CHURN_QUERIES % 6)) in
    0) user "$owner" sflex jobs -S now-3minutes ;;
    1) user "$owner" sflex decisions -S now-3minutes ;;
    2)
      id=$(sflex_rows slurm decisions -S now-1minutes 2>/dev/null | tail -n 1 | jq -r '.id // empty')
      [ -z "$id" ] || user slurm sflex explain "$id" --snapshot
      ;;
    3) user "$owner" sflex companions ;;
    4) user "$owner" sflex diag ;;
    5) user "$owner" sflex idle ;;
  esac >/dev/null 2>&1
}

# Now and then: an owner's or operator's command, a cancelled job or companion.
churn_command() {
  local jobs
  [ "$SECONDS" -ge "$CHURN_NEXT_COMMAND" ] || return 0
  CHURN_NEXT_COMMAND=$((SECONDS + 10 + RANDOM % 20)) CHURN_COMMANDS=$((CHURN_COMMANDS + 1))
  case $((CHURN_COMMANDS % 4)) in
    0) on ctl scancel "${CHURN_JOB[alice]:-0}" ;;
    1)
      mapfile -t jobs < <(live_companion_jobs)
      [ ${#jobs[@]} -eq 0 ] || { pick "${jobs[@]}" && on ctl scancel "$PICKED"; }
      ;;
    2) ! churn_elastic || user bob sflex pause "${CHURN_JOB[bob]:-0}" ;;
    3) ! churn_elastic || user slurm sflex resume all ;;
  esac >/dev/null 2>&1
}

# Every minute; every fourth time elasticity is switched off for a while.
churn_reconfigure() {
  local conf=$VC_ROOT/etc/nodes/slurm/flextrain.conf enabled
  [ "$SECONDS" -ge "$CHURN_NEXT_RECONFIGURE" ] || return 0
  CHURN_RECONFIGURES=$((CHURN_RECONFIGURES + 1)) CHURN_NEXT_RECONFIGURE=$((SECONDS + 60))
  if churn_elastic; then
    enabled=yes
    if [ $((CHURN_RECONFIGURES % 4)) -eq 3 ]; then enabled=no CHURN_NEXT_RECONFIGURE=$((SECONDS + 12)); fi
    sed -i "/^Enabled=/d" "$conf"
    echo "Enabled=$enabled" >>"$conf"
  fi
  on ctl scontrol reconfigure
}

churn_sample() {
  local ctld rss threads files
  [ "$SECONDS" -ge "$CHURN_NEXT_SAMPLE" ] || return 0
  CHURN_NEXT_SAMPLE=$((CHURN_NEXT_SAMPLE + 60))
  ctld=$(pgrep -x slurmctld) || ctld=none
  read -r rss threads < <(awk '/^VmRSS/ { r = $2 } /^Threads/ { t = $2 } END { print r + 0, t + 0 }' "/proc/$ctld/status")
  files=("/proc/$ctld/fd"/*)
  echo "$(since "$CHURN_BEGIN") $rss $threads ${#files[@]}" >>"$CHURN_SAMPLES"
  churn_say "$rss kB, $threads threads, ${#files[@]} files; elastic jobs ended $CHURN_ENDED, cancelled $CHURN_CANCELLED; rigid $CHURN_RIGIDS, queries $CHURN_QUERIES, reconfigures $CHURN_RECONFIGURES"
}


CHURN_BEGIN=$EPOCHREALTIME CHURN_NEXT_RIGID=$((SECONDS + 15)) CHURN_NEXT_COMMAND=$((SECONDS + 30))
CHURN_NEXT_RECONFIGURE=$((SECONDS + 60)) CHURN_NEXT_SAMPLE=$SECONDS
while [ "$SECONDS" -lt "$CHURN_SECONDS" ]; do
  churn_jobs
  churn_query
  churn_command
  churn_reconfigure
  churn_sample
  sleep 1
done
[ $CHURN_WRONG -eq 0 ] && [ $CHURN_ENDED -gt 0 ]
