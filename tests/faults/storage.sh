# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154,SC2317 # hooks are called by name (lib.sh)
# Disks that are full, read-only or slow under the checkpoint, the database and the log; the database
# gone, garbage, locked, on a network file system, claimed by two controllers.

# `disks`: every place of these faults on a small file system of its own.
DB=
cluster_up_disks() {
  local conf
  conf=$(mktemp)
  echo "SlurmctldLogFile=$VC_ROOT/disk/log/slurmctld.log" >"$conf"
  up_with --disk ck=24,alice --disk db=8,slurm --disk log=64,slurm --disk slow=fuse@1200,alice --conf "$conf"
  local status=$?
  rm -f "$conf"
  [ $status -eq 0 ] || return $status
  ln -sf "$VC_ROOT/disk/log/slurmctld.log" "$VC_ROOT/log/slurmctld.log"
  chmod 1777 "$VC_ROOT/disk/log" # the job's own log lies there too
  move_database "$VC_ROOT/disk/db/flextrain.db"
}
# `netdb`: the database on a file system that statfs(2) calls FUSE.
cluster_up_netdb() { up_with --disk net=fuse,slurm && move_database "$VC_ROOT/disk/net/flextrain.db"; }
move_database() {
  DB=$1
  sed -i "s|^DatabasePath=.*|DatabasePath=$DB|" "$VC_ROOT/etc/nodes/slurm/flextrain.conf"
  vc kill-ctld TERM && vc start-ctld && wait_until_quiet 30 ctld_answers && wait_until_quiet 15 test -s "$DB"
}

mend_disks() {
  local name
  [ "$CLUSTER_KIND" = disks ] || return 0
  for name in ck db log; do
    vc disk $name rw
    vc disk $name empty
  done
  rm -rf "${VC_ROOT:?}/disk/ck"/* "$VC_ROOT/disk/slow"/*
  find "$VC_ROOT/disk/log" -name '*.job.log' -delete
  if [ "$(stat -c %U "$DB" 2>/dev/null)" != slurm ]; then # gone, or made by somebody else
    vc kill-ctld TERM
    rm -f "$DB" "$DB-wal" "$DB-shm"
    vc start-ctld && wait_until_quiet 30 ctld_answers && wait_until_quiet 15 test -s "$DB"
  fi
}
HEALERS+=(mend_disks)

checkpoints_on() { # NAME: this cell's checkpoints go to that disk
  mkdir -p "$VC_ROOT/disk/$1/$CELL" "$CELL_DIR"
  on ctl chown alice: "$VC_ROOT/disk/$1/$CELL"
  ln -sfn "$VC_ROOT/disk/$1/$CELL" "$CELL_DIR/checkpoints"
}
on_disks() { echo disks; }
database_value() { sflex_json diag | jq -r --arg k "$1" '.[$k] // ""' | head -n 1; } # what diag says

# ---- the checkpoint ---------------------------------------------------------------------------------
fault checkpoint-full exact "no space under the checkpoint for 15 s"
kind_checkpoint_full() { on_disks; }
setup_checkpoint_full() { checkpoints_on ck; }
inject_checkpoint_full() { vc disk ck full; }
heal_checkpoint_full() {
  open_gates
  pause 15
  vc disk ck empty
}

fault checkpoint-read-only exact "the checkpoint's file system read-only for 15 s"
kind_checkpoint_read_only() { on_disks; }
setup_checkpoint_read_only() { checkpoints_on ck; }
inject_checkpoint_read_only() { wait_until_quiet 20 quietly vc disk ck ro; }
heal_checkpoint_read_only() {
  open_gates
  pause 15
  vc disk ck rw
}
quietly() { "$@" 2>/dev/null; }

fault checkpoint-quota exact "no file of the ranks may grow beyond 4 KiB (RLIMIT_FSIZE), for 15 s"
skip_checkpoint_quota() { needs_trainer "$1"; }
limit_rank_files() { # BYTES
  local node pid
  for node in n1 n2 n3 n4; do
    for pid in $(pids_on "$node" "$PATTERN_RANK"); do
      as alice "$node" prlimit --pid "$pid" "--fsize=$1:" || return 1
    done
  done
}
inject_checkpoint_quota() { limit_rank_files 4096; }
heal_checkpoint_quota() {
  open_gates
  pause 15
  limit_rank_files unlimited
}

fault checkpoint-forbidden exact "mode 000 of the folder of checkpoints for 15 s"
skip_checkpoint_forbidden() { chosen_phases "$1" switching-stopped grown shrinking-stopped ending; }
inject_checkpoint_forbidden() { chmod 000 "$CELL_DIR/checkpoints"; }
heal_checkpoint_forbidden() {
  open_gates
  pause 15
  chmod 755 "$CELL_DIR/checkpoints"
}

# As a mount that is away: to begin again at the first step would be wrong, and is a lot of work lost.
fault checkpoint-away exact "the folder of checkpoints is not there for 15 s"
skip_checkpoint_away() { chosen_phases "$1" switching-stopped shrinking-stopped; }
inject_checkpoint_away() { mv "$CELL_DIR/checkpoints" "$CELL_DIR/checkpoints.away"; }
heal_checkpoint_away() {
  open_gates
  pause 15
  [ ! -e "$CELL_DIR/checkpoints" ] || {
    echo "the training has begun afresh"
    return 1
  }
  mv -T "$CELL_DIR/checkpoints.away" "$CELL_DIR/checkpoints"
}
after_checkpoint_away() { [ "$REDONE" -eq 0 ] || note_failure "$REDONE steps done again although all were saved"; }

# What is started meanwhile finds no working directory; what runs keeps its own.
fault work-dir-moved exact "the job's working directory is renamed, and back after 10 s"
skip_work_dir_moved() { chosen_phases "$1" switching-stopped switching-relaunching grown shrinking-stopped; }
inject_work_dir_moved() { mv "$CELL_DIR" "$CELL_DIR.moved"; }
heal_work_dir_moved() {
  pause 10
  mv -T "$CELL_DIR.moved" "$CELL_DIR"
  open_gates
}

# Under it lie the agent's control folder and Open MPI's session.
fault tmp-full exact "no space in /tmp of the base's batch host for 15 s"
skip_tmp_full() { chosen_phases "$1" switching-saving switching-stopped grown shrinking-stopped; }
tmp_size() { on "$BASE_HOST" mount -o "remount,size=$1" /tmp; }
inject_tmp_full() { tmp_size "$(on "$BASE_HOST" df -k --output=used /tmp | tail -n 1 | tr -d ' ')k"; }
heal_tmp_full() {
  open_gates
  pause 15
  tmp_size 50%
}

# What a save writes at that rate takes seconds instead of milliseconds, in every phase.
fault checkpoint-slow exact "a checkpoint's disk that takes 1200 KiB/s, all along"
kind_checkpoint_slow() { on_disks; }
setup_checkpoint_slow() { checkpoints_on slow; }
inject_checkpoint_slow() { :; }

# ---- the database -----------------------------------------------------------------------------------
fault database-full exact "no space under the database for 10 s"
kind_database_full() { on_disks; }
inject_database_full() { vc disk db full; }
heal_database_full() {
  open_gates
  pause 10
  vc disk db empty
}

fault database-read-only exact "slurmctld starts while the database's file system is read-only, for 15 s"
kind_database_read_only() { on_disks; }
excuse_database_read_only() { echo slurmctld; }
inject_database_read_only() {
  vc kill-ctld TERM
  vc disk db ro && vc start-ctld
}
heal_database_read_only() {
  pause 15
  vc disk db rw
  wait_until_quiet 30 ctld_answers
}

fault database-deleted exact "the database's files deleted while in use"
kind_database_deleted() { on_disks; }
excuse_database_deleted() { echo store grow; }
inject_database_deleted() { rm -f "$DB" "$DB-wal" "$DB-shm"; }
after_database_deleted() { wait_until_quiet 30 test -s "$DB" || note_failure "no new database"; }

fault database-lost-kill exact "the database's files deleted and slurmctld killed -9 at once, back after 3 s"
kind_database_lost_kill() { on_disks; }
skip_database_lost_kill() { chosen_phases "$1" switching-stopped grown shrinking-stopped; }
excuse_database_lost_kill() { echo slurmctld store grow; }
inject_database_lost_kill() {
  saved_by_slurm || return 1
  rm -f "$DB" "$DB-wal" "$DB-shm" "$DB.lock"
  vc kill-ctld
}
heal_database_lost_kill() {
  pause 3
  vc start-ctld
  wait_until_quiet 30 ctld_answers
}
after_database_lost_kill() { wait_until_quiet 30 test -s "$DB" || note_failure "no new database"; }

fault database-garbage exact "slurmctld starts on a database that is overwritten with noise"
kind_database_garbage() { on_disks; }
excuse_database_garbage() { echo slurmctld store grow; }
inject_database_garbage() {
  vc kill-ctld TERM
  dd if=/dev/urandom of="$DB" bs=4096 count=16 conv=notrunc status=none
  vc start-ctld
}
heal_database_garbage() { wait_until_quiet 30 ctld_answers; }
after_database_garbage() {
  compgen -G "$DB.corrupt-*" >/dev/null || note_failure "the damaged database was not put aside"
  rm -f "$DB".corrupt-*
}

fault database-locked exact "another process locks the database for 15 s"
kind_database_locked() { on_disks; }
inject_database_locked() {
  # shellcheck disable=SC2016
  on ctl setpriv --reuid slurm --regid slurm --init-groups /bin/bash -c \
    '(echo "begin exclusive; select 1;"; sleep 15; echo "rollback;") | sqlite3 "$1" >"$1.locked" 2>&1 &' lock "$DB"
  wait_until_quiet 5 test -s "$DB.locked"
}
heal_database_locked() {
  open_gates
  pause 15
  [ "$(cat "$DB.locked")" = 1 ] || {
    cat "$DB.locked"
    return 1
  }
  rm -f "$DB.locked"
}

fault database-network exact "kill -9 of slurmctld with the database on a network file system (FUSE)"
kind_database_network() { echo netdb; }
excuse_database_network() { echo slurmctld; }
inject_database_network() { saved_by_slurm && vc kill-ctld; }
heal_database_network() {
  pause 3
  vc start-ctld
  wait_until_quiet 30 ctld_answers
}
after_database_network() {
  [ ! -e "$DB-wal" ] || note_failure "WAL on a network file system"
}

# Another controller lives (here: its lock) on the database that slurmctld starts with.
fault database-two-controllers exact "slurmctld starts while another controller holds the database, for 15 s"
kind_database_two_controllers() { on_disks; }
excuse_database_two_controllers() { echo slurmctld; }
inject_database_two_controllers() {
  saved_by_slurm
  vc kill-ctld TERM
  # the lock of store/writer_lock.h, from another process
  # shellcheck disable=SC2016 # perl
  on ctl setsid perl -e '
    open(my $f, "+<", $ARGV[0]) or die "$ARGV[0]: $!";
    my $lock = pack("s s x4 q q i x4", 1, 0, 0, 0, 0); # struct flock: F_WRLCK, SEEK_SET, all of it
    fcntl($f, 37, $lock) or die "lock: $!";             # F_OFD_SETLK
    seek($f, 0, 0); truncate($f, 0); syswrite($f, "elsewhere 4711");
    open(my $mark, ">", "$ARGV[0].held"); sleep 15;' "$DB.lock" </dev/null &
  wait_until_quiet 5 test -e "$DB.lock.held" || return 1
  rm -f "$DB.lock.held"
  vc start-ctld
  wait_until_quiet 30 ctld_answers
}
heal_database_two_controllers() {
  pause 15
  grep -q 'elsewhere' "$VC_ROOT/log/slurmctld.log" || {
    echo "slurmctld's log does not name the holder"
    return 1
  }
}

# ---- the log ----------------------------------------------------------------------------------------
fault log-full exact "no space for 10 s under slurmctld's log and the job's"
kind_log_full() { on_disks; }
setup_log_full() {
  mkdir -p "$CELL_DIR"
  ln -sfn "$VC_ROOT/disk/log/$CELL.job.log" "$CELL_DIR/job.log"
}
inject_log_full() { vc disk log full; }
heal_log_full() {
  open_gates
  pause 10
  vc disk log empty
}

fault log-read-only exact "slurmctld starts while its log's file system is read-only, for 10 s"
kind_log_read_only() { on_disks; }
excuse_log_read_only() { echo slurmctld; }
inject_log_read_only() {
  vc kill-ctld TERM
  vc disk log ro && vc start-ctld
}
heal_log_read_only() {
  pause 10
  vc disk log rw
  on ctl pkill -USR2 -x slurmctld # as after a rotation: it opens its log again
  wait_until_quiet 30 ctld_answers
}
