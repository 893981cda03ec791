# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153 # what is set here is read by the other files of this folder
# The fault harness: one cell = one fault × one phase of an elastic job's life. Driven by
# scripts/faults; docs/reliability.md says what it promises.
#
# ---- how a fault is written -------------------------------------------------------------------
# A family is a file of this folder that is listed in FAULT_FAMILIES. In it, per fault:
#
#   fault NAME OUTCOME "one line: what happens"
#   inject_NAME()         does it; a non-zero status fails the cell ("-" in NAME becomes "_")
#
# and, where it needs them:
#
#   setup_NAME()          before the job is submitted (configuration, a job script)
#   heal_NAME()           afterwards, once the gates are open: what an operator or time would mend.
#                         May wait first for what must happen while the fault lasts
#   keep_gate_NAME()      exists: the gate stays closed until heal_NAME is through
#   skip_NAME PHASE       prints why the cell makes no sense; nothing = it does
#   outcome_NAME PHASE    prints the outcome in that phase, where it is not the same in all
#   after_NAME()          more that must hold at the cell's end; `note_failure "what"` when it does not
#   excuse_NAME()         prints the checks that do not apply: slurmctld (it is dead or stopped by the
#                         fault), store (the database is the fault's victim), redone (checkpoints are),
#                         rigid (no waiting job can start), grow (the phase's scaling may stay open)
#   late_NAME()           prints the seconds by which Slurm itself, flextrain or not, lets a waiting job
#                         start later after this fault; the reason stands beside it
#   kind_NAME()           prints the kind of cluster (default: plain); see cluster_up_KIND in cluster.sh
#   script_NAME()         prints the job's script instead of the usual line (agent_line prints that)
#
# OUTCOME: exact      ends COMPLETED with the straight run's digest
#          requeued   Slurm starts it again, then exact
#          cancelled, failed, timeout, node_fail, completed: ends so, as Slurm says such a job ends;
#                     the same training, submitted again, then ends with the straight run's digest
#          gone       slurmctld forgets it; submitted again as above
#
# A hook may use: $JOB (the elastic job), $RIGID (bob's waiting job, shrinking phases; else empty),
# $PHASE, $BASE_HOST (its batch host), $BASE_NODES, $OTHER_NODES, $CELL_DIR (its working folder on the
# host), $GATES; pick_companion (sets COMPANION, COMPANION_NODE), live_companion_jobs; the functions
# of tests/e2e/lib.sh and flextrain_lib.sh (vc, as, user, wait_for, …) and of nodes.sh (on, pids_on,
# signal_on …). Random choices: pick WORD… (seeded).
#
# ---- how a phase is held ----------------------------------------------------------------------
# By gates, files that something waits for while they exist: injection.hold_dir of the trainer
# (trainer/run/hold_point.h), a wrapper around mpirun, Slurm's Prolog, Epilog and TaskProlog. What
# waits says so in GATE.here; that is how a phase is known to be reached, without a clock.

FAULTS_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tests/e2e/lib.sh
. "$FAULTS_DIR/../e2e/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$FAULTS_DIR/../e2e/flextrain_lib.sh"

FAULT_FAMILIES=(node process user storage network slurm)
FAULT_PHASES=(base-running companions-pending companions-ready switching-saving switching-stopped
  switching-relaunching grown shrinking-saving shrinking-stopped shrinking-releasing ending)

FAULTS=() # names, in order
declare -A FAULT_FAMILY=() FAULT_OUTCOME=() FAULT_TEXT=()
CURRENT_FAMILY=

fault() { # NAME OUTCOME TEXT
  FAULTS+=("$1")
  FAULT_FAMILY[$1]=$CURRENT_FAMILY FAULT_OUTCOME[$1]=$2 FAULT_TEXT[$1]=$3
}

# hook KIND FAULT [ARGS…]: calls KIND_FAULT where it exists; false where it does not.
hook() {
  local name=$1_${2//-/_}
  declare -F "$name" >/dev/null || return 1
  "$name" "${@:3}"
}
has_hook() { declare -F "$1_${2//-/_}" >/dev/null; }
cell_skip() { hook skip "$1" "$2" || true; }              # FAULT PHASE: why it makes no sense, or nothing
cell_outcome() { hook outcome "$1" "$2" || echo "${FAULT_OUTCOME[$1]}"; }
cell_kind() { hook kind "$1" || echo plain; }
excused() { [[ " $(hook excuse "$FAULT") " == *" $1 "* ]]; } # CHECK: does not apply in this cell

# Reasons shared by many skip_… hooks. Each prints why PHASE does not fit, or nothing.
needs_companion_job() { [ "$1" != base-running ] || echo "no companion exists yet"; }
needs_companion_agent() {
  case $1 in
    base-running | companions-pending) echo "no companion agent runs yet" ;;
    shrinking-releasing) echo "the companion's agent has ended" ;;
  esac
}
needs_trainer() {
  case $1 in
    switching-stopped | shrinking-stopped) echo "no trainer runs" ;;
  esac
}
# Faults that came after the whole matrix: in the phases that are most in danger.
chosen_phases() { only_phases "$1" "not among the phases chosen for this fault" "${@:2}"; }
only_phases() { # PHASE WHY ALLOWED…
  local phase=$1 why=$2
  [[ " ${*:3} " == *" $phase "* ]] || echo "$why"
}

# Seeded random choice; the same cell and seed choose the same.
seed_cell() { RANDOM=$(printf '%s' "$1" | cksum | awk -v s="${2:-1}" '{ print ($1 + s * 7919) % 32768 }'); }
pick() { # WORD…: sets PICKED (no subshell: RANDOM must advance)
  local words=("$@")
  PICKED=${words[RANDOM % ${#words[@]}]:-}
}

# What failed in this cell, as "; "-joined text.
WHAT=
note_failure() {
  WHAT=${WHAT:+$WHAT; }$1
  echo "FAILED: $1"
}
say_at() { printf '[%7.2f] %s\n' "$(since "$CELL_BEGIN")" "$*"; } # into the cell's log

for part in nodes cluster phases checks cell soak churn; do
  # shellcheck disable=SC1090
  . "$FAULTS_DIR/$part.sh"
done
for CURRENT_FAMILY in "${FAULT_FAMILIES[@]}"; do
  # shellcheck disable=SC1090
  [ ! -f "$FAULTS_DIR/$CURRENT_FAMILY.sh" ] || . "$FAULTS_DIR/$CURRENT_FAMILY.sh"
done
