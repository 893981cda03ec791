# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # shared with scripts/vcluster, which sources this
# Small file systems of a virtual cluster: tmpfs of a given size under disk/ of the root, mounted
# before the nodes start so that all of them share each one. Sourced by scripts/vcluster.

readonly VC_FILLER=.vcluster-filler # what `full` adds and `empty` removes

vc_disk_needs() { # NAME=MB[,USER]…
  local d
  for d; do
    [[ $d =~ ^[a-z0-9_-]+=[1-9][0-9]*(,(alice|bob|slurm|root))?$ ]] ||
      die "--disk wants NAME=MB[,USER] with USER alice, bob, slurm or root, not '$d'"
  done
}

vc_disk_mount() {
  local d name size user
  for d in ${VC_DISKS[@]+"${VC_DISKS[@]}"}; do
    name=${d%%=*} size=${d#*=} user=root
    if [[ $size == *,* ]]; then user=${size#*,} size=${size%,*}; fi
    mkdir -p "$VC_ROOT/disk/$name"
    mount -t tmpfs -o "size=${size}M,mode=755" "vcluster-$name" "$VC_ROOT/disk/$name" &&
      chown "$(vc_id_of "$user")" "$VC_ROOT/disk/$name" || die "cannot mount disk/$name"
  done
}

# vc_disk NAME full|empty|ro|rw. The state belongs to the file system, so every node sees it.
vc_disk() {
  local dir=$VC_ROOT/disk/$1
  mountpoint -q "$dir" || die "no disk '$1': see --disk of 'up'"
  case $2 in
    full)
      dd if=/dev/zero of="$dir/$VC_FILLER" bs=64K oflag=append conv=notrunc 2>/dev/null
      [ "$(stat -f -c %a "$dir")" -eq 0 ] || die "disk $1 has space left" ;;
    empty) rm -f "$dir/$VC_FILLER" ;;
    ro | rw) mount -o "remount,$2" "$dir" || die "disk $1 cannot become $2: a file is open for writing" ;;
    *) die "disk NAME full|empty|ro|rw" ;;
  esac
}
