# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with scripts/vcluster, which sources this
# Names, addresses and configuration files of one virtual cluster. Everything that could clash
# with a second cluster on this machine is derived from a hash of the root folder. Sourced by
# scripts/vcluster; writes only below $VC_ROOT.

readonly VC_MARKER=.flextrain-vcluster

# Slurm's own plugin folder; looked for where it usually is, then everywhere.
vc_slurm_plugins() {
  local d
  for d in "/usr/lib/$(uname -m)-linux-gnu/slurm-wlm" /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm; do
    [ ! -e "$d/sched_backfill.so" ] || { echo "$d"; return; }
  done
  d=$(find /usr/lib /usr/lib64 /usr/local /opt -name sched_backfill.so -print -quit 2>/dev/null)
  [ -n "$d" ] || die "Slurm's plugin folder (with sched_backfill.so) was not found"
  dirname "$d"
}

# vc_identity ROOT: sets VC_ROOT, VC_HASH and all names that follow from them.
vc_identity() {
  VC_ROOT=$(realpath -m -- "$1")
  VC_HASH=$(printf %s "$VC_ROOT" | sha256sum | cut -c1-8)
  VC_TAG=flextrain-vcluster:$VC_HASH   # in the command line of every process that holds a node
  VC_BRIDGE=fxb$VC_HASH
  VC_LINK=fxv$VC_HASH                  # host ends of the veth pairs: $VC_LINK + node (≤ 15 chars)
  VC_CGROUP=flextrain-$VC_HASH
  VC_STATE=$VC_ROOT/run
  VC_PORT_BASE=$((20000 + 16#${VC_HASH:0:4} % 2500 * 4))
}

vc_load() { # the options of the last `up`; false where there was none
  VC_NODES=6 VC_GPUS=8 VC_NET='' VC_CGROUP_KIND=none VC_BINDS=() VC_PLUGINS=''
  VC_BACKUP=no VC_ACCOUNTING=no VC_CLOCKS=no VC_DISKS=()
  [ -f "$VC_ROOT/etc/vcluster.env" ] || return 1
  # shellcheck disable=SC1091
  . "$VC_ROOT/etc/vcluster.env"
}

vc_save() {
  {
    printf 'VC_NODES=%q VC_GPUS=%q VC_NET=%q VC_CGROUP_KIND=%q VC_PLUGINS=%q\n' \
      "$VC_NODES" "$VC_GPUS" "$VC_NET" "$VC_CGROUP_KIND" "$VC_PLUGINS"
    printf 'VC_BACKUP=%q VC_ACCOUNTING=%q VC_CLOCKS=%q\n' "$VC_BACKUP" "$VC_ACCOUNTING" "$VC_CLOCKS"
    printf 'VC_BINDS=(%s)\n' "${VC_BINDS[*]@Q}"
    printf 'VC_DISKS=(%s)\n' "${VC_DISKS[*]@Q}"
  } >"$VC_ROOT/etc/vcluster.env"
}

vc_node_names() {
  local i
  echo ctl
  [ "$VC_BACKUP" = no ] || echo ctl2
  for ((i = 1; i <= VC_NODES; i++)); do echo "n$i"; done
}

vc_is_controller() { [ "$1" = ctl ] || { [ "$1" = ctl2 ] && [ "$VC_BACKUP" = yes ]; }; }
vc_is_node() { vc_is_controller "$1" || { [[ $1 =~ ^n[1-9][0-9]*$ ]] && [ "${1#n}" -le "$VC_NODES" ]; }; }

vc_address() {
  case $1 in
    ctl) echo "$VC_NET.1" ;;
    ctl2) echo "$VC_NET.2" ;;
    n*) echo "$VC_NET.$((10 + ${1#n}))" ;;
  esac
}

# A /24 of 10.64.0.0/10 that no link or route of this machine uses yet, from the hash onwards.
vc_choose_net() {
  local start=$((16#${VC_HASH:0:6})) i n net used
  used=$(ip -4 -o addr show; ip -4 route show)
  for ((i = 0; i < 64; i++)); do
    n=$(((start + i * 257) % 16384))
    net=10.$((64 + n / 256)).$((n % 256))
    [[ $used == *"$net."* ]] || { VC_NET=$net; return; }
  done
  die "no free 10.64.0.0/10 subnet found; see 'ip -4 route show'"
}

# The private /etc of the nodes: a copy of the host's without its secrets, so that a package
# installed on the host meanwhile (it replaces passwd by rename, which would drop a bind mount)
# does not reach into a running cluster.
vc_write_etc() {
  local etc=$VC_ROOT/etc/nodes name uid
  rm -rf "$etc" && mkdir -p "$etc"
  tar -C /etc --exclude=./shadow\* --exclude=./gshadow\* --exclude=./ssh --exclude=./munge \
    --exclude=./ssl/private --exclude=./slurm --exclude=./slurm-llnl --exclude=./sudoers\* \
    --exclude=./hostname -cf - . | tar -C "$etc" -xf -
  rm -f "$etc"/{hosts,resolv.conf,nsswitch.conf}
  { # no name service beyond files: a name server that cannot be reached hangs mpirun
    echo 'passwd: files'
    echo 'group: files'
    echo 'hosts: files'
    echo 'services: files'
    echo 'protocols: files'
  } >"$etc/nsswitch.conf"
  : >"$etc/resolv.conf"
  {
    echo '127.0.0.1 localhost'
    while read -r name; do echo "$(vc_address "$name") $name"; done < <(vc_node_names)
  } >"$etc/hosts"

  getent passwd slurm >/dev/null || vc_add_user slurm 64030 /nonexistent /usr/sbin/nologin
  uid=61001
  for name in alice bob carol; do
    sed -i "/^$name:/d" "$etc/passwd" "$etc/group"
    while cut -d: -f3 "$etc/passwd" "$etc/group" | grep -qx "$uid"; do uid=$((uid + 1)); done
    vc_add_user "$name" "$uid" "$VC_ROOT/home/$name" /bin/bash
    mkdir -p "$VC_ROOT/home/$name"
    chown "$uid:$uid" "$VC_ROOT/home/$name"
  done

  mkdir -p "$etc/munge" "$etc/slurm"
  head -c 128 /dev/urandom >"$etc/munge/munge.key"
  chmod 400 "$etc/munge/munge.key"
  chmod 700 "$etc/munge"
}

vc_add_user() { # NAME ID HOME SHELL
  echo "$1:x:$2:$2::$3:$4" >>"$VC_ROOT/etc/nodes/passwd"
  echo "$1:x:$2:" >>"$VC_ROOT/etc/nodes/group"
}

vc_id_of() { awk -F: -v u="$1" '$1 == u { print $3 ":" $4 }' "$VC_ROOT/etc/nodes/passwd"; }

vc_write_slurm_conf() {
  local dir=$VC_ROOT/etc/nodes/slurm cpus=$((2 * VC_GPUS)) sched=sched/backfill f
  [ -z "$VC_PLUGINS" ] || sched=sched/flextrain
  {
    cat <<CONF
ClusterName=fx$VC_HASH
SlurmctldHost=ctl($(vc_address ctl))
$([ "$VC_BACKUP" = no ] || printf 'SlurmctldHost=ctl2(%s)\nSlurmctldTimeout=10' "$(vc_address ctl2)")
SlurmctldPort=$VC_PORT_BASE
SlurmdPort=$((VC_PORT_BASE + 1))
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$VC_ROOT/state
SlurmdSpoolDir=$VC_ROOT/spool/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=$VC_ROOT/log/slurmctld.log
SlurmdLogFile=$VC_ROOT/log/slurmd.%n.log
SlurmctldDebug=debug
SlurmdDebug=debug
LogTimeFormat=iso8601_ms
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=20
MessageTimeout=20
KillWait=10
MinJobAge=300
InactiveLimit=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SchedulerType=$sched
SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=10,bf_continue
PriorityType=priority/basic
MailProg=/bin/true
CONF
    case $VC_CGROUP_KIND in
      none) printf 'ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n' ;;
      *) printf 'ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n' ;;
    esac
    if [ "$VC_ACCOUNTING" = yes ]; then
      vc_accounting_conf
    else
      echo 'AccountingStorageType=accounting_storage/none'
    fi
    [ "$VC_CLOCKS" = no ] || echo 'TaskProlog=/etc/slurm/task-prolog'
    [ -z "$VC_PLUGINS" ] || printf 'PluginDir=%s\nJobSubmitPlugins=flextrain\n' "$VC_ROOT/plugins"
    printf 'NodeName=n[1-%d] CPUs=%d Boards=1 SocketsPerBoard=2 CoresPerSocket=%d' \
      "$VC_NODES" "$cpus" "$VC_GPUS"
    printf ' ThreadsPerCore=1 RealMemory=64000 Gres=gpu:%d\n' "$VC_GPUS"
    echo "PartitionName=main Nodes=n[1-$VC_NODES] Default=YES MaxTime=INFINITE" \
      "DefaultTime=01:00:00 State=UP PriorityTier=10"
    if [ "$opt_preempt" = yes ]; then
      echo 'PreemptType=preempt/partition_prio'
      echo 'PreemptMode=CANCEL'
      echo 'SlurmctldParameters=preempt_send_user_signal'
      echo "PartitionName=companion Nodes=n[1-$VC_NODES] Default=NO MaxTime=INFINITE" \
        "DefaultTime=01:00:00 State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=20"
    fi
    for f in ${opt_conf[@]+"${opt_conf[@]}"}; do
      printf '# from %s\n' "$f"
      cat -- "$f"
    done
  } >"$dir/slurm.conf"

  echo "NodeName=n[1-$VC_NODES] Name=gpu File=/run/gpu/nvidia[0-$((VC_GPUS - 1))]" >"$dir/gres.conf"
  {
    echo 'CgroupMountpoint=/sys/fs/cgroup'
    echo 'ConstrainCores=no'
    echo 'ConstrainRAMSpace=no'
    case $VC_CGROUP_KIND in
      v1) printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainDevices=yes\n' ;;
      v2) printf 'CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainDevices=yes\n' ;;
    esac
  } >"$dir/cgroup.conf"
  [ "$VC_CGROUP_KIND" != none ] || : >"$dir/cgroup.conf"
  : >"$dir/plugstack.conf"
  [ -z "$VC_PLUGINS" ] || echo 'optional spank_flextrain.so' >"$dir/plugstack.conf"
  # slurmctld reads it as SlurmUser, whatever the mode of the original
  [ -z "$opt_flextrain_conf" ] || install -m 644 -- "$opt_flextrain_conf" "$dir/flextrain.conf"
}

# The cluster's own plugin folder: links to Slurm's own, and COPIES of ours, so that a rebuild
# does not change a file which a running slurmctld has mapped. Repeated at every start-ctld.
vc_install_plugins() {
  local f found stock dir=$VC_ROOT/plugins
  [ -n "$VC_PLUGINS" ] || return 0
  stock=$(vc_slurm_plugins) || exit 1
  rm -rf "$dir" && mkdir -p "$dir"
  ln -s "$stock"/*.so "$dir/"
  for f in sched_flextrain.so job_submit_flextrain.so spank_flextrain.so; do
    found=$(find "$VC_PLUGINS" -name "$f" -print -quit)
    [ -n "$found" ] || die "$f not found under $VC_PLUGINS: build the slurm_plugin module first"
    cp -- "$found" "$dir/"
  done
  # what they link to by rpath $ORIGIN
  find "$VC_PLUGINS" -name 'libflextrain*.so*' -exec cp -P -n -t "$dir/" {} +
}
