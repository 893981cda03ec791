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
    [[ $d =~ ^[a-z0-9_-]+=([1-9][0-9]*|fuse(@[1-9][0-9]*)?)(,(alice|bob|slurm|root))?$ ]] ||
      die "--disk wants NAME=MB[,USER] or NAME=fuse[@KB][,USER], USER alice, bob, slurm or root, not '$d'"
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
