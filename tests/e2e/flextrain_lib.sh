# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What tests of a cluster with flextrain's plugins share. Sourced after lib.sh.

# flextrain_conf LINE…: the text of a flextrain.conf for tests, quick enough to wait for.
flextrain_conf() {
  printf '%s\n' TickSeconds=2 "DatabasePath=$VC_ROOT/state/flextrain.db" LogLevel=debug \
    DefaultOverheadSeconds=5 CompanionOutput=companion-%j.log "$@"
}

# flextrain_cluster CONF-TEXT [UP-OPTIONS…]: e2e_cluster with our plugins from $E2E_BUILD.
flextrain_cluster() {
  local conf
  conf=$(mktemp)
  printf '%s\n' "$1" >"$conf"
  e2e_cluster --bind "$E2E_BUILD" --sched "$E2E_BUILD" --flextrain-conf "$conf" "${@:2}"
  rm -f "$conf"
}

# As a user with flextrain's programs in the path: user USER CMD…
user() { vc as "$1" env PATH="$E2E_BUILD/bin:/usr/local/bin:/usr/bin:/bin" "${@:2}"; }
# Rows of an sflex command as JSON, one a line. sflex_rows USER COMMAND…
sflex_rows() { user "$1" sflex "${@:2}" --json | jq -c '(.rows? // [.])[]'; }

admin_comment() { vc exec ctl scontrol -o show job "$1" | grep -o 'AdminComment=.* S' | sed 's/^AdminComment=//; s/ S$//'; }
ctld_log() { cat "$VC_ROOT/log/slurmctld.log"; }
ctld_answers() { vc exec ctl timeout 5 scontrol ping | grep -q 'is UP'; }
# Restarts slurmctld in an orderly way; prints how long its stop took.
restart_ctld() {
  local start
  start=$(now)
  vc kill-ctld TERM
  since "$start"
  vc start-ctld
  wait_for 30 "slurmctld answers" ctld_answers
}

# ---- elastic training jobs ------------------------------------------------------------------------

# prepare_training USER: a text, a small model's configuration in USER's home, train/job.toml.
prepare_training() {
  local dir
  dir=$(home "$1")/train
  mkdir -p "$dir"
  echo 'Mat1:1-Mrk16:20' | bible -f >"$dir/text.txt"
  cat >"$dir/job.toml" <<'TOML'
[model]
layers = 6
hidden = 64
heads = 4
kv_heads = 2
ffn = 176
sequence = 64
tied_head = true

[optimizer]
learning_rate = 2e-3
warmup_samples = 60

[training]
steps = 100000
global_batch = 12

[data]
text = "../text.txt"
tokens = "../tokens"
tokenizer = "../tokenizer.model"
tokenizer_vocab = 600

[checkpoint]
dir = "checkpoints"
keep = 2
TOML
  vc exec ctl chown -R "$1:" "$dir"
}

# train USER NAME "SBATCH-OPTIONS" [--set KEY=VALUE…]: submits a training job that works in
# train/NAME; prints its id. Elastic where the options say so.
train() {
  local dir options="$3"
  dir=$(home "$1")/train/$2
  mkdir -p "$dir"
  cat >"$dir/job.sh" <<JOB
#!/bin/bash
#SBATCH --job-name=$2 --chdir=train/$2 --output=job.log --ntasks-per-node=1 --time=30 $options
flextrain-agent run -- flextrain-trainer train ../job.toml ${*:4}
JOB
  vc exec ctl chown -R "$1:" "$dir"
  user "$1" sbatch --parsable "train/$2/job.sh"
}

# job_field USER JOB FIELD: of sflex jobs.
job_field() { sflex_rows "$1" jobs -a -j "$2" | tail -n 1 | jq -r --arg k "$3" '.[$k]'; }
at_step() { # USER JOB STEP: has come so far
  local step
  step=$(job_field "$1" "$2" step) && [ "${step:-0}" -ge "$3" ]
}
# Holds more than its base, and no switch is under way. Which size it takes is the measured scale
# table's business and differs from run to run.
is_grown() { # USER JOB
  local row
  row=$(sflex_rows "$1" jobs -a -j "$2" | tail -n 1)
  jq -e '.held_gpus > .base_gpus and .state == "steady"' <<<"${row:-null}" >/dev/null
}
# wait_grown USER JOB [SECONDS]; shows the decisions when it does not come.
wait_grown() {
  wait_until_quiet "${3:-90}" is_grown "$1" "$2" && return
  vc exec ctl "$E2E_BUILD/bin/sflex" jobs -a
  vc exec ctl "$E2E_BUILD/bin/sflex" decisions
  tail -n 20 "$(home "$1")"/train/*/job.log
  fail "job $2 does not grow; it has $(job_field "$1" "$2" held_gpus) GPUs"
}
# common_job USER NAME: the cases' common elastic job, grown; prints its id. A failed case cancels all
# jobs: the next starts it again.
common_job() {
  local job
  job=$(cat "$VC_ROOT/$2.id" 2>/dev/null) || job=0
  if ! job_is "$job" RUNNING; then
    job=$(train "$1" "$2" "--elastic --elastic-max=3x -N2 --gres=gpu:1" --set injection.layer_seconds=0.001)
    echo "$job" >"$VC_ROOT/$2.id"
  fi
  wait_grown "$1" "$job" >&2
  echo "$job"
}
last_step() { tail -n 1 "$(home "$1")/train/$2/metrics.jsonl" | jq .step; } # USER NAME
step_beyond() { [ "$(last_step "$1" "$2")" -ge "$3" ]; }                    # USER NAME STEP
live_companions() { sflex_rows "$1" companions | jq -r 'select(.state != "ended") | .node'; } # USER
# losses USER NAME: step and loss as hex float, a line each.
losses() { jq -r '[.step, .loss_hex] | @tsv' "$(home "$1")/train/$2/metrics.jsonl" | sort -n; }
digest() { user "$1" flextrain-trainer digest "train/$2/checkpoints"; } # USER NAME
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
