// SPDX-License-Identifier: MIT
// Which nodes to grow into, which companions to keep. Pure. Private to policy/
// and the simulator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/node_index.h"
#include "policy/policy.h"

namespace flextrain::policy {

// Exactly `gpus` GPUs from `offers` (at most one take per node, at most the offer): the fewest
// nodes; among those whole offers where a set adds up; else the last node is the smallest that
// covers the rest. Ties by order in `offers`. nullopt when the offers do not cover it.
std::optional<std::vector<IndexedOffer>> choose_nodes(const std::vector<IndexedOffer>& offers,
                                                      int gpus);

// Indices of `sizes` that add up to exactly `sum`, as few as possible and at most `most`, of equal
// sizes the first ones; nullopt when none do.
std::optional<std::vector<size_t>> exact_subset(const std::vector<int>& sizes, int sum,
                                                size_t most = SIZE_MAX);

// Of `companions` (what a victim could keep) those it keeps when it drops to its best entry within
// base + companions: the kept ones and the base make exactly that entry's GPUs. Empty = back to the
// base, which is always possible.
std::vector<CompanionView> keep_best(const ElasticJobView& job,
                                     const std::vector<CompanionView>& companions);

}  // namespace flextrain::policy
