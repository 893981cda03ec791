# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # shared with scripts/vcluster, which sources this
# Small file systems of a virtual cluster under disk/ of the root, mounted before the nodes start so
# that all of them share each one: a tmpfs of a given size, or a FUSE one (bindfs), which statfs(2)
# shows as a network file system may look, with a rate at which it takes data. Sourced by
# scripts/vcluster.

readonly VC_FILLER=.vcluster-filler # what `full` adds and `empty` removes

vc_disk_needs() { # NAME=MB[,USER] or NAME=fuse[@KB][,USER] …
  local d
  for d; do
    [[ $d =~ ^[a-z0-9_-]+=([1-9][0-9]*|fuse(@[1-9][0-9]*)?)(,(alice|bob|carol|slurm|root))?$ ]] ||
      die "--disk wants NAME=MB[,USER] or NAME=fuse[@KB][,USER], USER alice, bob, carol, slurm or root, not '$d'"
    [[ $d != *=fuse* ]] || command -v bindfs >/dev/null || die "a FUSE disk needs bindfs: install it (scripts/packages.txt)"
  done
}

vc_disk_mount() {
  local d name size user dir rate
  rm -rf "$VC_ROOT/disk" # nothing is mounted there now
  for d in ${VC_DISKS[@]+"${VC_DISKS[@]}"}; do
    name=${d%%=*} size=${d#*=} user=root
    if [[ $size == *,* ]]; then user=${size#*,} size=${size%,*}; fi
    dir=$VC_ROOT/disk/$name
    mkdir -p "$dir"
    case $size in
      fuse*)
        mkdir -p "$dir.backing" # the daemon ends with its mount
        rate=()
        [[ $size != *@* ]] || rate=("--write-rate=${size#*@}k")
        bindfs ${rate[@]+"${rate[@]}"} "$dir.backing" "$dir" </dev/null >/dev/null 9>&-
        ;;
      *) mount -t tmpfs -o "size=${size}M,mode=755" "vcluster-$name" "$dir" ;;
    esac || die "cannot mount disk/$name"
    chown "$(vc_id_of "$user")" "$dir" || die "cannot give disk/$name to $user"
  done
}

# A read-only view over the disk, in one node: busy or not. A file that is open already stays writable.
# shellcheck disable=SC2016
readonly VC_DISK_SWITCH='
  is=$(awk -v d="$1" "\$2 == d { split(\$4, o, \",\"); is = o[1] } END { print is }" /proc/mounts)
  case $is,$2 in
    rw,ro) mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" ;;
    ro,rw) umount "$1" || umount -l "$1" ;;
  esac'

# vc_disk NAME full|empty|ro|rw
vc_disk() {
  local dir=$VC_ROOT/disk/$1 node
  mountpoint -q "$dir" || die "no disk '$1': see --disk of 'up'"
  case $2 in
    full)
      dd if=/dev/zero of="$dir/$VC_FILLER" bs=64K oflag=append conv=notrunc 2>/dev/null
      [ "$(stat -f -c %a "$dir")" -eq 0 ] || die "disk $1 has space left" ;;
    empty) rm -f "$dir/$VC_FILLER" ;;
    ro | rw)
      for node in $(vc_node_names); do
        ! vc_up_check "$node" || vc_in "$node" /bin/bash -c "$VC_DISK_SWITCH" switch "$dir" "$2" ||
          die "disk $1 cannot become $2 on $node"
      done
      ;;
    *) die "disk NAME full|empty|ro|rw" ;;
  esac
}
