# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # root, work, cluster, elastic, straight, waits, refused: scripts/demo's
# Watching the demo's elastic job and summing it up. Everything comes from sflex, from the trainer's
# metrics.jsonl and from the digest command. Sourced by scripts/demo.

heading() { printf '\n== %s (%ds)\n' "$*" "$SECONDS"; }

# Rows of one sflex command as JSON, one a line; root asks, so everything is seen.
rows() { vc exec ctl "$build/bin/sflex" "$@" --json | jq -c '(.rows? // [.])[]'; }

# ---- watching -------------------------------------------------------------------------------------
row='' size=0

look() { # the job's present row; prints its size when that changed
  local new
  new=$(rows jobs -j "$elastic" -a 2>/dev/null | tail -n 1)
  [ -z "$new" ] || row=$new
  new=$(field held_gpus 0)
  if [ "$new" != "$size" ]; then
    size=$new
    printf '  %s  %s GPUs  step %s of %s\n' "$(date +%T)" "$size" "$(field step 0)" "$(field total_steps '?')"
  fi
}
field() { jq -r --arg k "$1" --arg d "$2" '.[$k] // $d' <<<"${row:-null}"; }

# reach WHAT SECONDS CONDITION…: waits for the condition, with an eye on the job; gives up aloud.
reach() {
  local what=$1 end=$((SECONDS + $2))
  shift 2
  until look && "$@"; do
    [ "$SECONDS" -lt "$end" ] || give_up "waited in vain for: $what"
    if [ -n "$watching" ] && job_over "$elastic" && ! "$@"; then
      give_up "the elastic job ended before: $what"
    fi
    sleep 0.3
  done
}

size_is() { [ "$size" -eq "$1" ]; }
size_above() { [ "$size" -gt "$1" ]; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" -v s="$2" 'BEGIN { exit !(b - a >= s) }'; }
progress_at_least() { jq -e --argjson p "$1" '.total_steps > 0 and .step >= $p * .total_steps' <<<"${row:-null}" >/dev/null; }
# Growing saves at most the remaining time, so a little more than one switch's cost does not pay.
end_is_near() {
  jq -e '.remaining_seconds != null and .remaining_seconds <= 1.3 * .grow_overhead_seconds' <<<"${row:-null}" >/dev/null
}
job_over() { # JOB
  local state
  state=$(vc exec ctl scontrol -o show job "$1" 2>/dev/null | grep -o 'JobState=[A-Z_]*') || return 0
  [[ $state != *PENDING && $state != *RUNNING && $state != *COMPLETING ]]
}
# The last growth that was refused because it would not pay; nothing when there is none.
refusal_of() { # JOB
  rows decisions -j "$1" | jq -r 'select(.kind == "refuse" and (.rule == "gate" or .rule == "guard")) | .id' | tail -n 1
}
job_completed() { vc exec ctl scontrol -o show job "$1" 2>/dev/null | grep -q JobState=COMPLETED; }

give_up() {
  note "demo: $*"
  note "--- the elastic job's log ($work/elastic/job.log)"
  tail -n 15 "$work/elastic/job.log" >&2
  note "--- decisions"
  vc exec ctl "$build/bin/sflex" decisions >&2
  note "--- slurmctld's log ($cluster/log/slurmctld.log)"
  grep -i flextrain "$cluster/log/slurmctld.log" | tail -n 20 >&2
  exit 1
}

# ---- the summary ----------------------------------------------------------------------------------
check() { # TEXT STATUS
  if [ "$2" -eq 0 ]; then say "  ok    $1"; else say "  FAIL  $1"; bad=1; fi
}

# step, loss as hex float: one line a step, in order.
losses() { jq -r '[.step, .loss_hex] | @tsv' "$work/$1/metrics.jsonl" | sort -n; }

report() {
  local list id d bad=0 grows shrinks steps a b
  job_completed "$elastic"
  check "the elastic job completed" $?
  job_completed "$straight"
  check "the straight job completed" $?

  list=$(rows decisions -j "$elastic")
  heading "what the controller decided (sflex decisions -j $elastic)"
  vc exec ctl "$build/bin/sflex" decisions -j "$elastic"

  heading "what each change of size cost, in seconds"
  printf '  %-9s %5s %5s %11s %6s %6s %7s %6s %11s %6s\n' change from to companions save stop launch load first_step total
  while read -r d; do
    id=$(jq -r .id <<<"$d")
    rows explain "$id" | jq -r 'select(.scaling != null) | .scaling.phases as $p |
      [.kind, .from_gpus, .to_gpus, $p.companions, $p.save, $p.stop, $p.launch, $p.load, $p.first_step, $p.total] | @tsv' |
      awk -F'\t' '{ printf "  %-9s %5d %5d %11.2f %6.2f %6.2f %7.2f %6.2f %11.2f %6.2f\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 }'
  done < <(jq -c 'select(.outcome == "done")' <<<"$list")

  heading "the growth that was refused, explained"
  if [ -n "$refused" ]; then vc exec ctl "$build/bin/sflex" explain "$refused"; fi

  heading "summary"
  grows=$(jq -s 'map(select(.kind == "grow" and .outcome == "done")) | length' <<<"$list")
  shrinks=$(jq -s 'map(select(.kind == "shrink" and .outcome == "done")) | length' <<<"$list")
  [ "$grows" -ge 2 ]
  check "$grows growths by the controller's own decision (at least 2)" $?
  [ "$shrinks" -ge 1 ]
  check "$shrinks shrinks for a rigid job (at least 1)" $?
  [ -n "$refused" ]
  check "a growth refused because it would not pay" $?
  say "        the rigid jobs waited ${waits[*]} s"

  a=$(losses elastic) b=$(losses straight)
  steps=$(wc -l <<<"$b")
  [ -n "$a" ] && [ "$a" = "$b" ]
  check "the losses of all $steps steps are equal as hex floats; the last: $(tail -n 1 <<<"$a" | cut -f2)" $?
  a=$(as alice flextrain-trainer digest demo/elastic/checkpoints)
  b=$(as alice flextrain-trainer digest demo/straight/checkpoints)
  [ -n "$a" ] && [ "$a" = "$b" ]
  check "equal digest: $a" $?
  [ "$a" = "$b" ] || say "        the straight run's: $b"
  say "logs and files: $work; remove everything with scripts/demo --clean"
  return $bad
}
