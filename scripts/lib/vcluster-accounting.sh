# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # shared with scripts/vcluster, which sources this
# Accounting of a virtual cluster: MariaDB and slurmdbd on ctl, both as the user slurm, one account
# `lab` with alice, bob and carol. Sourced by scripts/vcluster.

# Refuses where a program is missing.
vc_accounting_needs() {
  local c
  for c in mariadbd mariadb-install-db mariadb slurmdbd sacctmgr; do
    command -v "$c" >/dev/null ||
      die "--accounting needs $c: install mariadb-server, slurmdbd and slurm-wlm-mysql-plugin (scripts/packages.txt)"
  done
  [ -e "$(vc_slurm_plugins)/accounting_storage_mysql.so" ] ||
    die "--accounting needs Slurm's accounting_storage_mysql.so: install slurm-wlm-mysql-plugin"
}

vc_accounting_conf() { # the lines of slurm.conf
  printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=ctl \
    "AccountingStoragePort=$((VC_PORT_BASE + 2))" AccountingStorageTRES=gres/gpu \
    AccountingStorageEnforce=associations,limits,qos
}

vc_accounting_files() {
  local conf=$VC_ROOT/etc/nodes/slurm/slurmdbd.conf
  # MariaDB knows who is on the other end of a Unix socket: no password
  printf '%s\n' AuthType=auth/munge DbdHost=ctl "DbdPort=$((VC_PORT_BASE + 2))" SlurmUser=slurm \
    StorageType=accounting_storage/mysql StorageHost=localhost StorageUser=slurm StorageLoc=slurm_acct \
    "LogFile=$VC_ROOT/log/slurmdbd.log" PidFile=/run/slurm/slurmdbd.pid DebugLevel=info >"$conf"
  : >"$VC_ROOT/log/slurmdbd.log"
  mkdir -p "$VC_ROOT/mysql"
  chown "$(vc_id_of slurm)" "$conf" "$VC_ROOT/log/slurmdbd.log" "$VC_ROOT/mysql"
  chmod 600 "$conf"
}

VC_SETPRIV_SLURM='setpriv --reuid slurm --regid slurm --init-groups --'
# shellcheck disable=SC2086 # words
vc_as_slurm() { vc_in ctl $VC_SETPRIV_SLURM "$@"; }
# vc_slurm_daemon LOG COMMAND
vc_slurm_daemon() { vc_in ctl /bin/bash -c "setsid $VC_SETPRIV_SLURM $2 </dev/null >>'$1' 2>&1 9>&- &"; }

# Both daemons, before slurmctld.
vc_accounting_start() {
  local out=$VC_ROOT/log/mariadb.out
  wait_until 10 test -e "$VC_STATE/ctl.ready" || die "ctl is not ready: $VC_ROOT/log/init.ctl.log"
  if [ ! -d "$VC_ROOT/mysql/mysql" ]; then
    vc_as_slurm mariadb-install-db --no-defaults --datadir="$VC_ROOT/mysql" --skip-test-db \
      --auth-root-authentication-method=socket --auth-root-socket-user=slurm >"$out" 2>&1 ||
      die "mariadb-install-db failed: $out"
  fi
  # durable enough for a cluster that lives for minutes: no fsync for each transaction
  vc_slurm_daemon "$out" "mariadbd --no-defaults --datadir='$VC_ROOT/mysql' --skip-networking \
    --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0"
  wait_until 30 vc_as_slurm mariadb --no-defaults -e 'create database if not exists slurm_acct' 2>/dev/null || die "MariaDB does not start: $out"
  vc_slurm_daemon "$VC_ROOT/log/daemon.slurmdbd.out" 'slurmdbd -D'
  wait_until 30 vc_slurmdbd_answers || die "slurmdbd does not start: $VC_ROOT/log/slurmdbd.log"
  # before slurmctld, which would have to learn of the users afterwards
  [ -n "$(vc_sacctmgr list cluster "fx$VC_HASH")" ] || {
    vc_sacctmgr add cluster "fx$VC_HASH" &&
      vc_sacctmgr add account lab Description=lab Organization=lab &&
      vc_sacctmgr add user alice,bob,carol Account=lab
  } >>"$out" || die "sacctmgr failed (above)"
}

vc_sacctmgr() { vc_in ctl sacctmgr -i -Q -n -P "$@"; }
vc_slurmdbd_answers() { vc_sacctmgr list cluster >/dev/null 2>&1; }
