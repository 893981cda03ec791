// SPDX-License-Identifier: MIT
#include "policy/throughput.h"

namespace flextrain::policy {

double tokens_per_second(const std::vector<TableEntry>& table, int gpus) {
  const TableEntry* below = nullptr;
  const TableEntry* smallest = nullptr;
  for (const TableEntry& entry : table) {
    if (entry.gpus <= 0) continue;
    if (entry.gpus <= gpus && (below == nullptr || entry.gpus > below->gpus)) below = &entry;
    if (smallest == nullptr || entry.gpus < smallest->gpus) smallest = &entry;
  }
  if (below != nullptr) return below->tokens_per_second;
  if (smallest == nullptr) return 0;
  return smallest->tokens_per_second * gpus / smallest->gpus;
}

const TableEntry* best_within(const std::vector<TableEntry>& table, int gpus) {
  const TableEntry* best = nullptr;
  for (const TableEntry& entry : table)
    if (entry.gpus <= gpus &&
        (best == nullptr || entry.tokens_per_second > best->tokens_per_second))
      best = &entry;
  return best;
}

double gain_over_base(const ElasticJobView& job) {
  const double base = tokens_per_second(job.table, job.base_gpus);
  const double now = tokens_per_second(job.table, job.held_gpus);
  if (base > 0 && now > 0) return now / base;
  return job.base_gpus > 0 ? static_cast<double>(job.held_gpus) / job.base_gpus : 1.0;
}

}  // namespace flextrain::policy
