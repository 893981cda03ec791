# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# The table fault x phase of a results file (columns: see scripts/faults --help). The last line of a
# cell counts; what is no cell's line is counted and left out.

# fault_table FILE MARKDOWN(yes|no). A passed cell: seconds to recover / steps redone.
fault_table() {
  awk -F'\t' -v markdown="$2" -v phases="${FAULT_PHASES[*]}" '
    function cell(f, p) {
      if (!((f, p) in verdict)) return "."
      if (verdict[f, p] == "n/a") return "-"
      if (verdict[f, p] == "FAIL") return "FAIL"
      return sprintf("%.0f/%d", recover[f, p], redone[f, p])
    }
    BEGIN {
      n = split(phases, phase, " ")
      for (i = 1; i <= n; i++) known[phase[i]] = 1
    }
    NF != 9 || !($2 in known) || $3 !~ /^(pass|FAIL|n\/a)$/ { garbage++; next }
    !($1 in seen) { seen[$1] = ++faults; name[faults] = $1 }
    { verdict[$1, $2] = $3; recover[$1, $2] = $4; redone[$1, $2] = $5 }
    $3 != "n/a" && $7 + 0 > blocked { blocked = $7 + 0 }
    $8 + 0 > waited { waited = $8 + 0 }
    END {
      for (i = 1; i <= n; i++) { # short heads: sw-saving
        head[i] = phase[i]
        sub(/^companions-/, "c-", head[i]); sub(/^switching-/, "sw-", head[i]); sub(/^shrinking-/, "sh-", head[i])
      }
      if (markdown == "yes") {
        printf "| fault |"; for (i = 1; i <= n; i++) printf " %s |", head[i]
        printf "\n|---|"; for (i = 1; i <= n; i++) printf "---|"
        printf "\n"
        for (f = 1; f <= faults; f++) {
          printf "| %s |", name[f]
          for (i = 1; i <= n; i++) printf " %s |", cell(name[f], phase[i])
          printf "\n"
        }
        printf "\n"
      } else {
        printf "%-26s", "fault"; for (i = 1; i <= n; i++) printf " %14s", head[i]; printf "\n"
        for (f = 1; f <= faults; f++) {
          printf "%-26s", name[f]
          for (i = 1; i <= n; i++) printf " %14s", cell(name[f], phase[i])
          printf "\n"
        }
      }
      for (key in verdict) total[verdict[key]]++
      printf "%d passed (seconds to recover / steps redone), %d failed, %d make no sense (-); longest answer of slurmctld %.2f s, longest wait of a rigid job %.1f s\n",
        total["pass"], total["FAIL"], total["n/a"], blocked, waited
      if (garbage) printf "%d lines of the file are no results and are left out\n", garbage
    }' "$1"
}
