# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# What Slurm and its administrators do: fail-over, limits, reservations, partitions, nodes, purging,
# a long queue. (Preempted while CONFIGURING: companion-preempted in companions-pending.)

# ---- fail-over ---------------------------------------------------------------------------------------
cluster_up_backup() { up_with --backup; }
with_backup() { echo backup; }
primary_serves() { on ctl scontrol ping | grep -q 'primary.* is UP' && on ctl timeout 5 sinfo >/dev/null && vc exec ctl ss -Hltn 'sport = :6822' | grep -q .; }
backup_serves() { vc exec ctl2 ss -Hltn 'sport = :6822' | grep -q . && vc exec ctl2 timeout 5 sinfo >/dev/null; }
mend_primary() {
  [ "$CLUSTER_KIND" = backup ] || return 0
  vc exec ctl pgrep -x slurmctld >/dev/null || vc start-ctld
  vc exec ctl2 pgrep -x slurmctld >/dev/null || vc start-ctld ctl2
  wait_until_quiet 40 primary_serves
}
HEALERS+=(mend_primary)

fault failover-takeover exact "scontrol takeover by the backup controller, the primary back after it"
kind_failover_takeover() { with_backup; }
excuse_failover_takeover() { echo slurmctld; }
inject_failover_takeover() { on ctl scontrol takeover && wait_until_quiet 40 backup_serves; }
heal_failover_takeover() {
  open_gates
  pause 8
  vc start-ctld && wait_until_quiet 40 primary_serves
}

fault failover-death exact "kill -9 of the primary, the backup takes over, the primary comes back"
kind_failover_death() { with_backup; }
excuse_failover_death() { echo slurmctld; }
inject_failover_death() { saved_by_slurm && vc kill-ctld; }
heal_failover_death() {
  open_gates
  wait_until_quiet 60 backup_serves || return 1
  pause 5
  vc start-ctld && wait_until_quiet 40 primary_serves
}

# The old primary wakes up as one that still holds port and database, and finds that it is none any more.
fault failover-stop exact "the primary stopped (-STOP) until the backup has taken over, and 10 s more"
kind_failover_stop() { with_backup; }
skip_failover_stop() { chosen_phases "$1" grown; }
excuse_failover_stop() { echo slurmctld; }
takeovers() { grep -c 'Running as primary controller' "$VC_ROOT/log/slurmctld.ctl2.log"; }
backup_rules() { [ "$(takeovers)" -gt "$TAKEOVERS" ]; }
inject_failover_stop() {
  TAKEOVERS=$(takeovers)
  on ctl pkill -STOP -x slurmctld
}
# (Slurm's commands ask the stopped one first, and wait for it.)
heal_failover_stop() {
  open_gates
  wait_until_quiet 90 backup_rules || return 1
  pause 10
  on ctl pkill -CONT -x slurmctld
  pause 5
  on ctl pgrep -x slurmctld >/dev/null || vc start-ctld
  wait_until_quiet 60 primary_serves
}
after_failover_stop() {
  grep -q 'is locked by another process (host ctl ' "$VC_ROOT/log/slurmctld.ctl2.log" ||
    note_failure "the backup did not name the one that holds the database"
}

# ---- flextrain.conf ------------------------------------------------------------------------------------
good_conf() {
  open_gates
  pause 12
  cp "$VC_ROOT/flextrain.conf.good" "$VC_ROOT/etc/nodes/slurm/flextrain.conf"
  on ctl scontrol reconfigure
}
fault conf-broken exact "scontrol reconfigure with a line in flextrain.conf that is none, mended after 12 s"
skip_conf_broken() { chosen_phases "$1" switching-stopped grown shrinking-saving; }
inject_conf_broken() {
  echo 'TickSeconds=soon' >>"$VC_ROOT/etc/nodes/slurm/flextrain.conf"
  on ctl scontrol reconfigure
}
heal_conf_broken() { good_conf; }

fault conf-removed exact "scontrol reconfigure without flextrain.conf, back after 12 s"
skip_conf_removed() { chosen_phases "$1" switching-stopped grown shrinking-saving; }
inject_conf_removed() {
  rm -f "$VC_ROOT/etc/nodes/slurm/flextrain.conf"
  on ctl scontrol reconfigure
}
heal_conf_removed() { good_conf; }

# ---- limits that refuse a companion ------------------------------------------------------------------
cluster_up_accounting() {
  up_with --accounting && sacctmgr_do add qos tight && sacctmgr_do modify user alice set qos+=tight
}
with_accounting() { echo accounting; }
sacctmgr_do() { on ctl sacctmgr -i -Q "$@"; }
mend_limits() {
  [ "$CLUSTER_KIND" = accounting ] || return 0
  sacctmgr_do modify qos normal set GrpTRES=gres/gpu=-1 >/dev/null
  sacctmgr_do modify user alice set GrpTRES=gres/gpu=-1 MaxSubmitJobs=-1 >/dev/null
}
SLURM_HEALERS+=(mend_limits)
goes_on_for() { # SECONDS: the job trains on, as it is
  local step
  open_gates
  step=$(step_now)
  pause "$1"
  [ "$(step_now)" -gt "$step" ] || terminal_state || {
    echo "no step in $1 s"
    return 1
  }
}

fault qos-limit exact "a QOS limit of 2 GPUs that refuses every companion, for 30 s"
kind_qos_limit() { with_accounting; }
skip_qos_limit() { before_companions "$1"; }
inject_qos_limit() { sacctmgr_do modify qos normal set GrpTRES=gres/gpu=2 && unblock; }
heal_qos_limit() {
  goes_on_for 30 || return 1
  sacctmgr_do modify qos normal set GrpTRES=gres/gpu=-1
}

fault assoc-limit exact "an association limit of 2 GPUs that refuses every companion, for 30 s"
kind_assoc_limit() { with_accounting; }
skip_assoc_limit() { before_companions "$1"; }
inject_assoc_limit() { sacctmgr_do modify user alice set GrpTRES=gres/gpu=2 && unblock; }
heal_assoc_limit() {
  goes_on_for 30 || return 1
  sacctmgr_do modify user alice set GrpTRES=gres/gpu=-1
}

fault submit-limit exact "an association limit that refuses the submission of companions, for 30 s"
kind_submit_limit() { with_accounting; }
skip_submit_limit() { only_phases "$1" "the companions are submitted already" base-running; }
inject_submit_limit() { sacctmgr_do modify user alice set MaxSubmitJobs=1 && unblock; }
heal_submit_limit() {
  goes_on_for 30 || return 1
  sacctmgr_do modify user alice set MaxSubmitJobs=-1
}

# Lowered under a grown job: what runs goes on, what is to be renewed is. The QOS is bob's too: it
# leaves room for his waiting job, which it would refuse otherwise (GrpTRES counts everybody's).
fault limit-lowered exact "QOS and association limits lowered to what the base holds"
kind_limit_lowered() { with_accounting; }
excuse_limit_lowered() { echo grow; }
inject_limit_lowered() {
  local room=2
  [ -z "$RIGID" ] || room=3
  sacctmgr_do modify qos normal set GrpTRES=gres/gpu=$room && sacctmgr_do modify user alice set GrpTRES=gres/gpu=2
}
heal_limit_lowered() { goes_on_for 20; }

# ---- reservations and partitions -----------------------------------------------------------------------
mend_reservation() { ! on ctl scontrol show reservation fault 2>/dev/null | grep -q ReservationName || on ctl scontrol delete reservation=fault; }
SLURM_HEALERS+=(mend_reservation)
reserve() { # START NODES [FLAGS]
  on ctl scontrol create reservation ReservationName=fault Users=bob "StartTime=$1" Duration=30 "Nodes=$2" ${3:+Flags=$3}
}

fault reservation-now exact "the companions' nodes are reserved for bob from now on, for 25 s"
excuse_reservation_now() { echo rigid; }
inject_reservation_now() { reserve now "${OTHER_NODES// /,}" ignore_jobs && unblock; }
heal_reservation_now() {
  goes_on_for 25 || return 1
  mend_reservation
}

# A companion's lease (2 minutes) is not renewed into it: they are given back in time, in good order.
fault reservation-soon exact "the companions' nodes are reserved for bob from in 100 s on"
skip_reservation_soon() { only_phases "$1" "no companion's lease runs" grown; }
inject_reservation_soon() { reserve "$(date -d '+100 seconds' +%Y-%m-%dT%H:%M:%S)" "${OTHER_NODES// /,}" ignore_jobs; }
heal_reservation_soon() {
  if ! wait_until_quiet 110 no_companions; then
    echo "companions are there still: $(companion_lines | xargs)"
    return 1
  fi
}

fault partition-down exact "the partition is set DOWN for 25 s"
inject_partition_down() { on ctl scontrol update partitionname=main state=down && unblock; }
heal_partition_down() {
  goes_on_for 25 || return 1
  on ctl scontrol update partitionname=main state=up
}
mend_partition() { on ctl scontrol update partitionname=main state=up; }
SLURM_HEALERS+=(mend_partition)

# ---- nodes -------------------------------------------------------------------------------------------
# (slurmctld 22.05 ends itself when it is reconfigured to more or fewer nodes: "MaxNodeCount has
# changed during reconfig, slurmctld must be restarted".)
restart_slurmctld() { vc kill-ctld TERM && vc start-ctld && wait_until_quiet 40 ctld_answers; }
fault node-added exact "a node, whose slurmd never comes, is added to slurm.conf and slurmctld restarted; 10 s later out again"
excuse_node_added() { echo slurmctld; }
inject_node_added() {
  local etc=$VC_ROOT/etc/nodes
  cp "$etc/slurm/gres.conf" "$VC_ROOT/gres.conf.good"
  cp "$etc/hosts" "$VC_ROOT/hosts.good"
  sed -i -e 's/^NodeName=n\[1-4\]/NodeName=n[1-5]/' -e 's/ Nodes=n\[1-4\]/ Nodes=n[1-5]/' "$etc/slurm/slurm.conf"
  sed -i 's/^NodeName=n\[1-4\]/NodeName=n[1-5]/' "$etc/slurm/gres.conf"
  echo "$(vc exec ctl ip -4 -o addr show eth0 | grep -oE '10\.[0-9]+\.[0-9]+').15 n5" >>"$etc/hosts"
  restart_slurmctld && on ctl scontrol show node n5 >/dev/null
}
heal_node_added() {
  open_gates
  pause 10
  cp "$VC_ROOT/slurm.conf.good" "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  cat "$VC_ROOT/gres.conf.good" >"$VC_ROOT/etc/nodes/slurm/gres.conf"
  cat "$VC_ROOT/hosts.good" >"$VC_ROOT/etc/nodes/hosts"
  restart_slurmctld
}

fault node-removed exact "a companion's node is taken out of slurm.conf and slurmctld restarted; 15 s later back"
excuse_node_removed() { echo slurmctld; }
skip_node_removed() { needs_companion_job "$1"; }
inject_node_removed() {
  local rest
  pick_companion || return 1
  rest=$(printf 'n%s\n' 1 2 3 4 | grep -vx "$COMPANION_NODE" | paste -sd, -)
  sed -i -e "s/^NodeName=n\[1-4\]/NodeName=$rest/" -e "s/ Nodes=n\[1-4\]/ Nodes=$rest/" \
    "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  restart_slurmctld
}
heal_node_removed() {
  open_gates
  pause 15
  cp "$VC_ROOT/slurm.conf.good" "$VC_ROOT/etc/nodes/slurm/slurm.conf"
  restart_slurmctld
  vc kill "$COMPANION_NODE" # its slurmd has ended, or knows a cluster without itself
  vc start "$COMPANION_NODE"
}

# ---- a short memory ------------------------------------------------------------------------------------
fault purge-companion exact "a companion cancelled, and purged by MinJobAge=2"
skip_purge_companion() { needs_companion_job "$1"; }
setup_purge_companion() { set_slurm MinJobAge 2; }
inject_purge_companion() { pick_companion && as alice scancel "$COMPANION"; }

fault purge-base gone "the base cancelled while the controller stands still, and purged before it looks (MinJobAge=2)"
setup_purge_base() { set_slurm MinJobAge 2; }
inject_purge_base() { as alice scancel "$JOB"; }
heal_purge_base() {
  open_gates
  wait_until_quiet 150 job_gone || echo "job $JOB is remembered still"
}

# ---- a long queue --------------------------------------------------------------------------------------
# Job records of their own: each task of a held array that is touched alone becomes one.
fault queue-5000 exact "5,000 other jobs in the queue"
excuse_queue_5000() { echo slurmctld; } # squeue itself takes longer for them than the bound
setup_queue_5000() {
  local i id
  [ "$(on ctl squeue -h -r -u bob -t PD -o %i | wc -l)" -lt 5000 ] || return 0
  for ((i = 0; i < 5; i++)); do
    id=$(submit bob --begin=now+4hours --array=1-1000 -N1 --gres=gpu:1 -o /dev/null --wrap true) || return 1
    on ctl scontrol update "jobid=${id}_[1-999]" comment=own || return 1
  done
}
inject_queue_5000() { on ctl squeue -h -u bob -t PD -o %i | wc -l; }
