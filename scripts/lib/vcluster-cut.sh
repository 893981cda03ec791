# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2154 # shared with scripts/vcluster, which sources this
# Cuts in the network of a virtual cluster: packets that the bridge drops without a word to either
# side. One nftables table on the host per cluster; nothing in the nodes. Sourced by scripts/vcluster.

vc_cut_table() { echo "bridge fx$VC_HASH"; }

# vc_cut NODE [PEER [PORT]]
vc_cut() {
  local table a b rule
  local -a rules
  table=$(vc_cut_table) a=$(vc_address "$1")
  command -v nft >/dev/null || die "cut needs nft: install nftables (scripts/packages.txt)"
  [[ ${3:-1} =~ ^[0-9]+$ ]] || die "not a port: $3"
  if [ $# -eq 1 ]; then
    rules=("ip saddr $a" "ip daddr $a")
  else
    b=$(vc_address "$2")
    rules=("ip saddr $a ip daddr $b" "ip saddr $b ip daddr $a")
    [ $# -eq 2 ] || rules=("${rules[0]} tcp dport $3" "${rules[0]} tcp sport $3" \
      "${rules[1]} tcp dport $3" "${rules[1]} tcp sport $3")
  fi
  {
    echo "add table $table"
    echo "add chain $table cut { type filter hook forward priority 0; }"
    for rule in "${rules[@]}"; do echo "add rule $table cut $rule drop comment \"$1-${2:-all}\""; done
  } | nft -f - || die "cannot cut $*"
}

# vc_mend [NODE [PEER]]: rules whose comment names them go.
vc_mend() {
  local table handle pattern
  table=$(vc_cut_table)
  [ $# -gt 0 ] || { vc_mend_all; return; }
  pattern="\"($1-[a-z0-9]+|[a-z0-9]+-$1)\""
  [ $# -eq 1 ] || pattern="\"($1-$2|$2-$1)\""
  # shellcheck disable=SC2086 # the table is two words
  while read -r handle; do
    nft delete rule $table cut handle "$handle" || die "cannot mend $*"
  done < <(nft -a list table $table 2>/dev/null | grep -E "$pattern" | sed 's/.*# handle //')
}

# shellcheck disable=SC2046 # the table is two words
vc_mend_all() { if command -v nft >/dev/null; then nft delete table $(vc_cut_table) 2>/dev/null || true; fi; }
