// SPDX-License-Identifier: MIT
// Scale-up: who grows to which table entry, or why not. Pure. Private to policy/.
#pragma once

#include <set>
#include <vector>

#include "policy/node_index.h"
#include "policy/policy.h"
#include "policy/probes.h"

namespace flextrain::policy {

// One decision, kGrow or kRefuseGrow, per elastic job that is not in `busy`, the one with the
// fewest GPUs first. `taken`: GPUs per node of `nodes` that are spoken for; what a growth takes is
// added.
std::vector<Decision> grow(const Snapshot& snapshot, const Parameters& parameters,
                           const NodeIndex& nodes, const std::set<uint32_t>& busy,
                           std::vector<int>& taken, const Probes& probes);

}  // namespace flextrain::policy
