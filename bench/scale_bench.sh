#!/bin/bash
# SPDX-License-Identifier: MIT
# What flextrain costs a slurmctld of a large cluster: Debian's slurmctld with 1,000 nodes of 8 GPUs,
# each with a slurmd of its own, 200 running elastic jobs and 10,000 queued ones, with and without our
# plugins in turn. See usage below and docs/benchmarks.md.
# shellcheck disable=SC2016,SC2317
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=tests/e2e/lib.sh
. "$repo/tests/e2e/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$repo/tests/e2e/flextrain_lib.sh"

usage() {
  cat <<'TEXT'
Usage: bench/scale_bench.sh [OPTIONS]      (as root, after scripts/build)

  --nodes N       nodes of 8 GPUs, each with a real slurmd (1000)
  --jobs N        queued jobs (10000)
  --elastic N     running elastic jobs of one node (200); rigid jobs fill the other nodes
  --rounds N      pairs of legs, without and with the plugins in turn (5)
  --seconds S     length of a leg, after the settling (120)
  --settle S      wait after a restart of slurmctld before a leg (30)
  --every S       one sbatch and one squeue so often (5)
  --progress S    the agents' progress messages, so often each (flextrain-agent's default)
  --set KEY=VALUE a line of flextrain.conf (repeatable)
  --raw DIR       keep every sample and the logs there
  --smoke         50 nodes, 200 jobs, 10 elastic, one round of 8 s: under a minute on a quiet machine

Prints the load of the machine, medians with intervals (95 %, by ranks) of every figure with and without
the plugins, and of the differences of the pairs. Exit status 1: decide() took over 20 ms in the
median, or an agent was not served.
TEXT
}

nodes=1000 jobs=10000 elastic=200 rounds=5 seconds=120 settle=30 every=5 progress='' raw='' conf=()
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --elastic) elastic=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --settle) settle=$2; shift ;;
    --every) every=$2; shift ;;
    --progress) progress=$2; shift ;;
    --set) conf+=("$2"); shift ;;
    --raw) raw=$2; shift ;;
    --smoke) nodes=50 jobs=200 elastic=10 rounds=1 seconds=8 settle=3 every=1 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
data=$(mktemp -d)
say() { printf '%(%H:%M:%S)T %s\n' -1 "$*"; }
in_ctl() { vc exec ctl "$@"; }

# ---- the cluster ------------------------------------------------------------------------------------

# Every slurmd has a host name and a loopback address of its own inside ctl.
address_list() { # of NodeAddr, in the order of the names
  local i list=
  for ((i = 0; i * 250 < nodes; i++)); do
    list+=,127.1.$i.[1-$((nodes - i * 250 < 250 ? nodes - i * 250 : 250))]
  done
  echo "${list#,}"
}
host_lines() {
  local i
  for ((i = 0; i < nodes; i++)); do echo "127.1.$((i / 250)).$((i % 250 + 1)) b$((i + 1))"; done
}
write_conf() {
  cat <<CONF
SlurmctldDebug=info
SlurmdDebug=error
SlurmdTimeout=3600
MessageTimeout=60
SlurmdPidFile=/run/slurm/slurmd.%n.pid
CommunicationParameters=NoInAddrAny
DebugFlags=NO_CONF_HASH
MaxJobCount=100000
SchedulerParameters=bf_continue
NodeName=b[1-$nodes] NodeAddr=$(address_list) CPUs=16 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:8
PartitionName=bench Nodes=b[1-$nodes] MaxTime=INFINITE DefaultTime=10-00:00:00 State=UP
CONF
}
start_slurmds() {
  host_lines >>"$VC_ROOT/etc/nodes/hosts"
  echo "NodeName=b[1-$nodes] Name=gpu File=/run/gpu/nvidia[0-7]" >>"$VC_ROOT/etc/nodes/slurm/gres.conf"
  cat >"$VC_ROOT/slurmds.sh" <<'SH'
mkdir -p /run/gpu
for ((i = 0; i < 8; i++)); do [ -e /run/gpu/nvidia$i ] || mknod -m 666 /run/gpu/nvidia$i c 195 $i; done
for ((i = $1; i <= $2; i++)); do
  mkdir -p "$3/spool/b$i"
  setsid unshare --uts bash -c 'hostname "$1"; exec slurmd -D -N "$1"' slurmd "b$i" </dev/null >>"$3/log/daemon.b.out" 2>&1 &
done
SH
  local first last
  for ((first = 1; first <= nodes; first += 50)); do
    last=$((first + 49 < nodes ? first + 49 : nodes))
    in_ctl bash "$VC_ROOT/slurmds.sh" "$first" "$last" "$VC_ROOT"
    wait_for 300 "nodes up to b$last idle" nodes_are idle "$last"
  done
}
nodes_are() { [ "$(in_ctl sinfo -h -N -p bench -t "$1" -o %n | wc -l)" -ge "$2" ]; } # STATE COUNT

# with|without: how slurm.conf and plugstack.conf say it at the next start.
choose() {
  local etc=$VC_ROOT/etc/nodes/slurm
  if [ "$1" = with ]; then
    sed -i 's|^SchedulerType=.*|SchedulerType=sched/flextrain|; s|^#*JobSubmitPlugins=|JobSubmitPlugins=|' "$etc/slurm.conf"
    echo 'optional spank_flextrain.so' >"$etc/plugstack.conf"
  else
    sed -i 's|^SchedulerType=.*|SchedulerType=sched/backfill|; s|^#*JobSubmitPlugins=|#JobSubmitPlugins=|' "$etc/slurm.conf"
    : >"$etc/plugstack.conf"
  fi
}

diag() { user slurm sflex diag --json 2>/dev/null | jq -r ".rows[0].$1 // empty"; }
fill() {
  local rigid=$((nodes - elastic)) width=1 n uid gid
  ((rigid < 20)) || width=$((rigid / 20))
  say "submitting $elastic elastic and $((rigid / width + (rigid % width > 0))) rigid jobs"
  printf '#!/bin/sh\nexec sleep 864000\n' >"$(home alice)/wait.sh"
  cat >"$VC_ROOT/submit.sh" <<'SH'
for ((i = 0; i < $1; i++)); do
  sbatch --elastic --elastic-max=4x -p bench -N1 --gres=gpu:8 -J elastic -o /dev/null wait.sh >/dev/null || exit 1
done
for ((left = $2; left > 0; left -= $3)); do
  sbatch -p bench "-N$((left < $3 ? left : $3))" --ntasks-per-node=1 --gres=gpu:8 -J rigid -o /dev/null wait.sh >/dev/null || exit 1
done
SH
  as alice bash "$VC_ROOT/submit.sh" "$elastic" "$rigid" "$width" || fail "sbatch failed"
  wait_for 600 "all nodes allocated" nodes_are alloc "$nodes"
  in_ctl squeue -h -o '%i' -n elastic -t R >/dev/null
  say "submitting $jobs jobs to the queue"
  IFS=: read -r uid gid < <(awk -F: '$1 == "alice" { print $3 ":" $4 }' "$VC_ROOT/etc/nodes/passwd")
  n=$((nodes < 64 ? nodes : 64))
  in_ctl "$E2E_BUILD/bin/scale_queue" "$jobs" "$uid" "$gid" bench "$(home alice)" "$n" || fail "the queue is not full"
  in_ctl env SLURM_TIME_FORMAT=%s squeue -h -n elastic -t R -o '%i %V %N 8' >"$data/elastic"
  assert_eq "$elastic" "$(wc -l <"$data/elastic")" "running elastic jobs"
}

# ---- one leg ----------------------------------------------------------------------------------------

ctld_pid() { # seen from here
  local holder
  holder=$(cat "$VC_ROOT/run/ctl.pid")
  pgrep -x slurmctld --ns "$holder" --nslist pid
}
# CPU ticks of all threads, "total ours": ours are named fx-… .
cpu_of() {
  local stat comm total=0 ours=0 rest
  read -ra rest < <(sed 's/.*) //' "/proc/$1/stat")
  total=$((rest[11] + rest[12]))
  for stat in /proc/"$1"/task/*; do
    comm=$(cat "$stat/comm" 2>/dev/null) || continue
    [[ $comm == fx-* ]] || continue
    read -ra rest < <(sed 's/.*) //' "$stat/stat")
    ours=$((ours + rest[11] + rest[12]))
  done
  echo "$total $ours"
}
# Between the legs, when all of its write-ahead log is in it.
database_bytes() { stat -c %s "$VC_ROOT/state/flextrain.db" 2>/dev/null || echo 0; }
agents_served() { [ "$(diag agents)" = "$elastic" ]; }

leg() { # ROUND with|without
  local pid before after from up bytes load key value agents=
  choose "$2"
  bytes=$(database_bytes)
  up=$(now)
  vc start-ctld
  wait_for 120 "slurmctld answers" ctld_answers
  wait_for 300 "all nodes are there" nodes_are alloc "$nodes"
  if [ "$2" = with ]; then
    in_ctl "$E2E_BUILD/bin/scale_agents" "${progress:-2}" <"$data/elastic" >>"$data/agents.log" 2>&1 &
    agents=$!
    wait_for 120 "$elastic agents served" agents_served
  fi
  sleep "$settle"
  pid=$(ctld_pid)
  before=$(cpu_of "$pid")
  from=$(now)
  as alice bash "$VC_ROOT/probe.sh" "$seconds" "$every" >"$data/probe.$1.$2" || fail "the probes failed: $(cat "$data/probe.$1.$2")"
  after=$(cpu_of "$pid")
  load=$(cut -d' ' -f1 /proc/loadavg)
  awk -v b="$before" -v a="$after" -v t="$(since "$from")" -v hz="$(getconf CLK_TCK)" -v machine="$load" \
    -v rss="$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$pid/status")" 'BEGIN {
      split(b, x, " "); split(a, y, " ")
      printf "seconds %.1f\nload %s\ncpu_percent %.3f\nours_percent %.3f\nours_share %.2f\nrss_mib %.1f\n",
        t, machine, (y[1] - x[1]) / hz / t * 100, (y[2] - x[2]) / hz / t * 100,
        (y[2] - x[2]) / (y[1] > x[1] ? y[1] - x[1] : 1) * 100, rss / 1024 }' >"$data/leg.$1.$2"
  awk '{ v[$1] = v[$1] " " $2 } END { for (k in v) print k v[k] }' "$data/probe.$1.$2" |
    while read -r key value; do
      # shellcheck disable=SC2086
      echo "${key}_ms $(printf '%s\n' $value | median)"
    done >>"$data/leg.$1.$2"
  if [ "$2" = with ]; then
    user slurm sflex diag --json >"$data/diag.$1"
    jq -r '.rows[0] | "decide_p50_ms \(.decide_p50_seconds * 1000)", "decide_p99_ms \(.decide_p99_seconds * 1000)",
      "decide_max_ms \(.decide_max_seconds * 1000)", "tick_p50_ms \(.tick_p50_seconds * 1000)",
      "tick_p99_ms \(.tick_p99_seconds * 1000)", "ticks \(.ticks)", "rpcs \(.rpcs)", "requests \(.requests)"' \
      "$data/diag.$1" >>"$data/leg.$1.$2"
    assert_eq "$elastic" "$(diag agents)" "agents served at the end"
    in_ctl pkill -TERM -x scale_agents
    wait "$agents" || fail "agents were not served: $(tail -n 3 "$data/agents.log")"
  fi
  in_ctl scancel -n probe
  vc kill-ctld TERM
  if [ "$2" = with ] && [ "$1" -gt 1 ]; then # the first leg fills it
    awk -v a="$bytes" -v b="$(database_bytes)" -v t="$(since "$up")" \
      'BEGIN { printf "db_mib %.2f\ndb_mib_day %.2f\n", b / 1048576, (b - a) / t * 86400 / 1048576 }' >>"$data/leg.$1.$2"
  fi
  say "round $1 $2: $(paste -sd' ' "$data/leg.$1.$2")"
}

# ---- the figures ------------------------------------------------------------------------------------

# Of the numbers on stdin: "median low high", an interval of 95 % by ranks (all there is below six).
interval() {
  sort -n | awk '{ v[NR] = $1 } END {
    if (NR == 0) exit
    m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
    r = int((NR - 1.96 * sqrt(NR)) / 2); if (r < 1) r = 1
    printf "%.4g [%.4g, %.4g]\n", m, v[r], v[NR + 1 - r] }'
}
figure() { awk -v k="$2" '$1 == k { print $2 }' "$data"/leg.*."$1" | interval; } # with|without KEY
samples() { awk -v k="$2" '$1 == k { print $2 }' "$data"/probe.*."$1" | interval; }
difference() { # KEY: with less without, pair by pair
  local i
  for ((i = 1; i <= rounds; i++)); do
    awk -v k="$1" '$1 == k { v[FILENAME] = $2; n = FILENAME } END { print v[ARGV[1]] - v[ARGV[2]] }' \
      "$data/leg.$i.with" "$data/leg.$i.without"
  done | interval
}
report() {
  local key
  echo
  echo "$nodes nodes x 8 GPUs, $jobs queued jobs, $elastic elastic ones running, $rounds pairs of legs of $seconds s,"
  echo "one sbatch and one squeue every $every s, agents' progress every ${progress:-2} s, ${conf[*]:-default flextrain.conf}"
  echo "load of the machine ($(nproc) cores) at the ends of the legs: without $(figure without load), with $(figure with load)"
  echo
  printf '| %-28s | %-26s | %-26s | %-26s |\n' "median [95 %]" without with "difference of a pair"
  echo '|---|---|---|---|'
  for key in sbatch squeue; do
    printf '| %-28s | %-26s | %-26s | %-26s |\n' "$key, ms" "$(samples without $key)" "$(samples with $key)" "$(difference ${key}_ms)"
  done
  printf '| %-28s | %-26s | %-26s | %-26s |\n' \
    "slurmctld's CPU, % of a core" "$(figure without cpu_percent)" "$(figure with cpu_percent)" "$(difference cpu_percent)" \
    "resident memory, MiB" "$(figure without rss_mib)" "$(figure with rss_mib)" "$(difference rss_mib)"
  for key in "ours_share:our threads' share of slurmctld's CPU, %" "ours_percent:our threads, % of a core" \
    "decide_p50_ms:decide(), ms, median" "decide_p99_ms:decide(), ms, p99" "decide_max_ms:decide(), ms, longest" \
    "tick_p50_ms:round, ms, median" "tick_p99_ms:round, ms, p99" "ticks:rounds since the start" \
    "requests:agents' requests since the start" "db_mib:database, MiB" "db_mib_day:database's growth, MiB a day"; do
    printf '| %-28s | | %-26s | |\n' "${key#*:}" "$(figure with "${key%%:*}")"
  done
}

main() {
  local i began=$SECONDS
  trap 'e2e_tear_down; rm -rf "$data"' EXIT
  write_conf >"$data/slurm.conf"
  say "starting slurmctld and $nodes slurmds"
  flextrain_cluster "$(printf '%s\n' "DatabasePath=$VC_ROOT/state/flextrain.db" ${conf[@]+"${conf[@]}"})" --nodes 1 \
    --cgroup none --conf "$data/slurm.conf"
  trap 'e2e_tear_down; rm -rf "$data"' EXIT
  eval "$(vc env)"
  start_slurmds
  fill
  cat >"$VC_ROOT/probe.sh" <<'SH'
end=$((${EPOCHREALTIME/./} + $1 * 1000000)) next=${EPOCHREALTIME/./}
timed() { # NAME CMD…
  local from=${EPOCHREALTIME/./} name=$1 to
  shift
  "$@" >/dev/null || exit 1
  to=${EPOCHREALTIME/./}
  echo "$name $(((to - from) / 1000)).$(((to - from) % 1000 / 100))"
}
while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do
  timed sbatch sbatch -p bench -N1 --gres=gpu:1 -t 60 -J probe -o /dev/null wait.sh
  timed squeue squeue -h
  next=$((next + $2 * 1000000))
  left=$((next - ${EPOCHREALTIME/./}))
  [ "$left" -le 0 ] || sleep "$((left / 1000000)).$(printf %06d $((left % 1000000)))"
done
SH
  vc kill-ctld TERM
  say "ready after $((SECONDS - began)) s; $rounds pairs of legs follow"
  for ((i = 1; i <= rounds; i++)); do
    if ((i % 2)); then
      leg "$i" without && leg "$i" with
    else
      leg "$i" with && leg "$i" without
    fi
  done
  [ -z "$raw" ] || { mkdir -p "$raw" && cp -r "$data"/. "$VC_ROOT/log" "$raw/"; }
  report
  awk -v p="$(figure with decide_p50_ms | cut -d' ' -f1)" 'BEGIN { exit !(p != "" && p <= 20) }' ||
    fail "decide() takes more than 20 ms in the median"
}
main
