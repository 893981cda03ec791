# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153 # shared with the other files of this folder
# Processes and jobs on the nodes of the fault cluster: finding and signalling them.

# As in lib.sh, but kinder to the machine: it rests as long as the question took, 0.2 s at least.
wait_until_quiet() {
  local end=$((SECONDS + $1)) asked
  while asked=${EPOCHREALTIME/./} && ! "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    asked=$((${EPOCHREALTIME/./} - asked))
    sleep "$(printf '%d.%06d' $((asked / 1000000)) $((asked < 200000 ? 200000 : asked % 1000000)))"
  done
}
pause() { sleep "$1"; } # a fault's own duration

# `vcluster exec` starts a dozen processes, and a cell asks a hundred times: straight into the node.
unset TMPDIR SLURM_CONF
vc() { if [ "$1" = exec ]; then on "${@:2}"; else "$E2E_REPO/scripts/vcluster" --root "$VC_ROOT" "$@"; fi; }
on() { # on NODE CMD…, as root
  local pid words
  { read -r pid <"$VC_ROOT/run/$1.pid" && mapfile -d '' words <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
  [[ "${words[*]} " == *"vcluster-init "*" $1 " ]] || return 1
  nsenter -t "$pid" -m -u -i -n -p -C -- "${@:2}"
}

# pids_on NODE PATTERN: processes whose command line matches, seen from inside that node.
pids_on() { on "$1" pgrep -f -- "$2" 2>/dev/null; }
# signal_on NODE SIGNAL PATTERN: false where nothing matches.
signal_on() {
  local pids
  pids=$(pids_on "$1" "$3") || {
    echo "no process '$3' on $1"
    return 1
  }
  # shellcheck disable=SC2086
  on "$1" kill -s "$2" $pids
}

# Command lines; ^ keeps srun and nsenter, which carry them as arguments, out.
PATTERN_BASE_AGENT='^[^ ]*flextrain-agent run'
PATTERN_COMPANION_AGENT='^[^ ]*flextrain-agent companion'
PATTERN_RANK='^[^ ]*flextrain-trainer train'
PATTERN_MPIRUN='^[^ ]*mpirun |^/bin/bash [^ ]*/gates/mpirun'
PATTERN_ORTED='^[^ ]*orted '

companion_lines() { on ctl squeue -h -o '%i %N %T %j' 2>/dev/null | awk '$NF ~ /-companion$/ { print $1, $2, $3 }'; }
live_companion_jobs() { companion_lines | awk '{ print $1 }'; }
no_companions() { [ -z "$(companion_lines)" ]; }

# pick_companion [STATE]: one companion job of the queue (in STATE), by the cell's seed.
pick_companion() {
  local lines
  mapfile -t lines < <(companion_lines | awk -v s="${1:-}" 's == "" || $3 == s' | sort -n)
  [ ${#lines[@]} -gt 0 ] || {
    echo "no companion ${1:-} in the queue"
    TARGET_GONE=1
    return 1
  }
  pick "${lines[@]}"
  read -r COMPANION COMPANION_NODE _ <<<"$PICKED"
  say_at "companion $COMPANION on $COMPANION_NODE"
}

job_detail() { on ctl scontrol -o show job "$1" 2>/dev/null | head -n 1; }
job_value() { job_detail "$1" | grep -o "\b$2=[^ ]*" | head -n 1 | cut -d= -f2-; } # JOB FIELD
node_state() { on ctl sinfo -h -N -p main -n "$1" -o %T 2>/dev/null | head -n 1; }
power_on() { vc start "$1"; }
slurmd_pid() { on "$1" pgrep -x slurmd; }
