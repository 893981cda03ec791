// SPDX-License-Identifier: GPL-2.0-or-later
// The little the controller reads of a planner ScaleTable: GPU counts, throughputs, and the Plan of
// each count as opaque JSON. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "policy/policy.h"

namespace flextrain::slurm_plugin {

struct TableView {
  std::vector<policy::TableEntry> entries;  // kept ones, ascending GPUs, one per count
  std::map<int, Json> plans;  // by GPUs, dropped entries too unless they do not fit into memory

  // Throughput of that count's kept entry, 0 when there is none.
  double tokens_per_second(int gpus) const;
  // The kept entry with the highest throughput among those of at most `gpus`.
  std::optional<policy::TableEntry> best_within(int gpus) const;
  // The Plan for exactly so many GPUs; null JSON when the table has none.
  Json plan_for(int gpus) const;
};

// kInvalidArgument names the field. Several entries of one count: the fastest counts.
Result<TableView> read_scale_table(const Json& table);

}  // namespace flextrain::slurm_plugin
