// SPDX-License-Identifier: MIT
// Random snapshots and parameters for the property tests.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/policy/builders.h"

namespace flextrain::policy {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::mt19937 engine_;
};

// Nodes of 8 GPUs handed out to bases, companions and idleness, so that offers never exceed what a
// node has.
inline Snapshot random_snapshot(Random& random) {
  Snapshot snapshot = empty_snapshot();
  snapshot.local_offset_seconds = 3600 * random.between(-12, 12);
  const int nodes = random.between(1, 12);
  std::vector<int> idle(static_cast<size_t>(nodes), 8);
  const auto name = [](int node) { return "n" + std::to_string(node); };
  uint32_t next_id = 100;
  for (int j = random.between(0, 5); j > 0; --j) {
    ElasticJobView job = elastic(static_cast<uint32_t>(j), random.between(1, 8));
    job.max_gpus = random.between(job.base_gpus, 5 * job.base_gpus);
    job.steady = random.chance(85);
    job.user = random.chance(50) ? "anna" : "bert";
    job.account = random.chance(50) ? "physics" : "chemistry";
    job.saving = random.chance(10);
    job.pending_gpus = random.chance(10) ? random.between(1, 8) : 0;
    job.scalings_last_hour = random.between(0, 5);
    job.start_time = kNow - random.between(0, 1000);
    job.failures = random.chance(20) ? random.between(1, 9) : 0;
    job.last_failure_time = kNow - random.between(0, 500);
    if (random.chance(60)) job.last_switch_time = kNow - random.between(0, 1000);
    if (random.chance(60)) job.remaining_seconds = random.between(1, 1000);
    if (random.chance(60)) job.grow_overhead_seconds = random.between(1, 100);
    job.table.clear();
    double speed = 1000;
    if (random.chance(90))
      for (int gpus = job.base_gpus; gpus <= 4 * job.base_gpus; gpus += random.between(1, 4)) {
        job.table.push_back({gpus, speed});
        speed *= 1 + random.between(-5, 60) / 100.0;
      }
    for (int c = random.between(0, 3); c > 0; --c) {
      const int node = random.between(0, nodes - 1);
      const int gpus = random.between(1, 8);
      const bool there = std::any_of(job.companions.begin(), job.companions.end(),
                                     [&](const CompanionView& v) { return v.node == name(node); });
      if (there || idle[static_cast<size_t>(node)] < gpus) continue;
      idle[static_cast<size_t>(node)] -= gpus;
      add_companion(job, next_id++, name(node), gpus);
      if (!job.steady && random.chance(30)) {
        job.companions.back().leaving = true;
        job.held_gpus -= gpus;
      }
    }
    snapshot.elastic.push_back(job);
  }
  std::shuffle(snapshot.elastic.begin(), snapshot.elastic.end(), std::mt19937(next_id));
  for (int node = 0; node < nodes; ++node) {
    const int free = idle[static_cast<size_t>(node)];
    snapshot.idle_gpus += free;
    if (free == 0) continue;
    for (ElasticJobView& job : snapshot.elastic)
      if (random.chance(80)) job.offers.push_back({name(node), random.between(1, free)});
  }
  for (int w = random.chance(50) ? random.between(1, 3) : 0; w > 0; --w) {
    WaitingJob job;
    job.job_id = next_id++;
    job.nodes = random.between(1, 3);
    job.gpus_per_node = random.chance(60) ? random.between(1, 8) : 0;
    job.gpus =
        job.gpus_per_node > 0 ? job.nodes * job.gpus_per_node : random.between(job.nodes, 20);
    for (int node = 0; node < nodes; ++node)
      if (random.chance(80)) {
        job.usable_nodes.push_back(name(node));
        if (idle[static_cast<size_t>(node)] > 0)
          job.offers.push_back({name(node), idle[static_cast<size_t>(node)]});
      }
    snapshot.waiting.push_back(job);
  }
  snapshot.forecast = {{}, random.between(0, 100), 3600};
  double rate = random.between(0, 100) / 3600.0;
  for (int bucket = random.between(1, 12); bucket > 0; --bucket) {
    snapshot.forecast.per_second.push_back(rate);
    rate *= random.between(0, 100) / 100.0;
  }
  return snapshot;
}

inline Parameters random_parameters(Random& random) {
  Parameters parameters;
  parameters.gate = static_cast<Gate>(random.between(0, 4));
  parameters.victims = static_cast<VictimRule>(random.between(0, 1));
  parameters.require_empty_queue = random.chance(50);
  parameters.remaining_time_guard = random.chance(80);
  parameters.max_growth = random.between(1, 5);
  if (random.chance(30)) parameters.user_max_expanded = random.between(1, 20);
  if (random.chance(30)) parameters.account_max_expanded = random.between(1, 20);
  if (random.chance(30)) parameters.idle_reserve = random.between(0, 100) / 100.0;
  if (random.chance(20)) parameters.max_scalings_per_hour = random.between(1, 4);
  if (random.chance(50)) parameters.spare_ending_seconds = random.between(0, 500);
  if (random.chance(20)) parameters.cooldown_seconds = random.between(1, 1000);
  if (random.chance(10)) parameters.quiet_hours = QuietHours::parse("00:00-12:00").value();
  return parameters;
}

inline bool equal(const std::vector<Decision>& a, const std::vector<Decision>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || a[i].job_id != b[i].job_id || a[i].for_job != b[i].for_job ||
        a[i].to_gpus != b[i].to_gpus || a[i].give_back != b[i].give_back ||
        a[i].rule != b[i].rule || a[i].reason != b[i].reason || a[i].inputs != b[i].inputs ||
        taken(a[i]) != taken(b[i]) || nodes_of(a[i].take) != nodes_of(b[i].take))
      return false;
  }
  return true;
}

}  // namespace flextrain::policy
