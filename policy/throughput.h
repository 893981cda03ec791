// SPDX-License-Identifier: MIT
// What a scale table says about a GPU count, also one it has no entry for. Pure. Private to
// policy/ and the simulator.
#pragma once

#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

// Tokens per second with `gpus`: the entry's; without one, that of the largest smaller entry (a
// count that was filtered out is no faster than that, within the filter's margin); below the
// smallest entry, that entry's in proportion. 0 for an empty table.
double tokens_per_second(const std::vector<TableEntry>& table, int gpus);

// The fastest entry of at most `gpus` GPUs, at equal speed the smallest; nullptr when none fits.
const TableEntry* best_within(const std::vector<TableEntry>& table, int gpus);

// Throughput now over throughput at the guaranteed minimum; GPUs over GPUs without a table.
double gain_over_base(const ElasticJobView& job);

}  // namespace flextrain::policy
