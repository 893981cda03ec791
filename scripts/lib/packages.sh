# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Debian packages: installs what is missing. Sourced after common.sh.

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root and there is no sudo: run it as root ($*)"
  fi
}

# Names in FILE (one a line, # comments) that dpkg does not have installed.
missing_packages() {
  local name
  while read -r name; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null | grep -q '^.i' || echo "$name"
  done < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$1")
}

# install_packages FILE: quiet where nothing is missing; the log of a failed run is shown.
install_packages() {
  local missing log
  command -v dpkg-query >/dev/null || die "this is no Debian system: install the counterparts of $1 yourself"
  mapfile -t missing < <(missing_packages "$1")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  log=$(mktemp)
  # shellcheck disable=SC2024 # the log is the caller's own file
  if ! { as_root apt-get -q update &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
      -o Dpkg::Use-Pty=0 install "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    die "apt-get failed (above; whole log: $log). Needs Debian 12 with a reachable mirror"
  fi
  rm -f "$log"
}
