// SPDX-License-Identifier: MIT
// Short ways to write snapshots.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "policy/policy.h"

namespace flextrain::policy {

constexpr int64_t kNow = 1'000'000;

// Entries at 1x, 2x, 3x, 4x of `base` GPUs, 92.5 % efficient per doubling or so.
inline std::vector<TableEntry> usual_table(int base) {
  return {{base, 1000}, {2 * base, 1850}, {3 * base, 2650}, {4 * base, 3420}};
}

inline ElasticJobView elastic(uint32_t id, int base) {
  ElasticJobView job;
  job.job_id = id;
  job.user = "anna";
  job.start_time = kNow - 10'000;
  job.steady = true;
  job.base_gpus = job.held_gpus = base;
  job.max_gpus = 4 * base;
  job.table = usual_table(base);
  return job;
}

inline void add_companion(ElasticJobView& job, uint32_t id, const std::string& node, int gpus) {
  job.companions.push_back({id, node, gpus, false});
  job.held_gpus += gpus;
}

inline Snapshot empty_snapshot() {
  Snapshot snapshot;
  snapshot.now = kNow;
  snapshot.total_gpus = 48;
  return snapshot;
}

inline Parameters no_gate() {
  Parameters parameters;
  parameters.gate = Gate::kNone;
  return parameters;
}

// λ that holds at every margin: `arrivals` in 8 hours.
inline Forecast steady_arrivals(int arrivals) {
  return {{arrivals / (8 * 3600.0)}, arrivals, 8 * 3600.0};
}

inline int taken(const Decision& decision) {
  int sum = 0;
  for (const NodeOffer& offer : decision.take) sum += offer.gpus;
  return sum;
}

inline std::vector<std::string> nodes_of(const std::vector<NodeOffer>& offers) {
  std::vector<std::string> nodes;
  for (const NodeOffer& offer : offers) nodes.push_back(offer.node);
  return nodes;
}

}  // namespace flextrain::policy
