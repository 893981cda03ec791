// SPDX-License-Identifier: MIT
// Snapshots of a cluster of 1,000 nodes x 8 GPUs with 200 elastic and 10,000 waiting jobs, for the
// bench and the test of what decide() costs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

struct LargeCluster {
  std::string name;
  Snapshot snapshot;
  Parameters parameters;
};

struct LargeShape {
  int waiting = 0;          // jobs
  int largest = 8;          // nodes a waiting job asks for
  bool fragmented = false;  // idle GPUs are pieces of nodes
  bool grown = false;       // the elastic jobs hold companions
  int lists = 4;            // kinds of needs (partitions, GPU types, memory per GPU …)
};

inline Snapshot large_snapshot(const LargeShape& shape) {
  std::mt19937 random(7);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  constexpr int kNodes = 1000, kElastic = 200;
  const auto node = [](int i) { return fmt::format("node{:04d}", i); };
  Snapshot snapshot;
  snapshot.now = 1'000'000;
  snapshot.total_gpus = 8 * kNodes;
  std::vector<int> idle(kNodes, 0);
  for (int& gpus : idle) gpus = shape.fragmented ? below(8) : below(2) == 0 ? 8 : 0;
  std::vector<SharedList<NodeOffer>> offers;
  std::vector<SharedList<std::string>> usable;
  for (int list = 0; list < shape.lists; ++list) {
    std::vector<NodeOffer> some;
    std::vector<std::string> names;
    for (int i = 0; i < kNodes; ++i) {
      if (list > 0 && i % shape.lists == list) continue;
      names.push_back(node(i));
      if (idle[static_cast<size_t>(i)] > 0) some.push_back({node(i), idle[static_cast<size_t>(i)]});
    }
    offers.emplace_back(std::move(some));
    usable.emplace_back(std::move(names));
  }
  uint32_t id = 1;
  int next_node = 0;
  for (int j = 0; j < kElastic; ++j) {
    ElasticJobView job;
    job.job_id = id++;
    job.user = fmt::format("user{}", j % 40);
    job.start_time = snapshot.now - 10'000;
    job.steady = j % 20 != 0;
    job.base_gpus = job.held_gpus = 8 << below(4);
    job.max_gpus = 4 * job.base_gpus;
    for (int factor = 1; factor <= 4; ++factor)
      job.table.push_back({factor * job.base_gpus, 1000.0 * factor * (1.05 - 0.05 * factor)});
    job.remaining_seconds = 50'000;
    job.grow_overhead_seconds = job.shrink_overhead_seconds = 20;
    job.offers = offers[static_cast<size_t>(j % shape.lists)];
    job.own_nodes = {node(j), node(j + 1)};
    if (shape.grown)
      for (int given = 0; given < job.base_gpus; given += 8) {
        job.companions.push_back({id++, node(next_node++ % kNodes), 8, false});
        job.held_gpus += 8;
      }
    snapshot.elastic.push_back(std::move(job));
  }
  for (int w = 0; w < shape.waiting; ++w) {
    WaitingJob job;
    job.job_id = id++;
    job.nodes = 1 + below(shape.largest);
    job.gpus_per_node = 8;
    job.gpus = 8 * job.nodes;
    job.offers = offers[static_cast<size_t>(w % shape.lists)];
    job.usable_nodes = usable[static_cast<size_t>(w % shape.lists)];
    snapshot.waiting.push_back(std::move(job));
  }
  for (const int gpus : idle) snapshot.idle_gpus += gpus;
  snapshot.forecast = {std::vector<double>(32, 1e-5), 50, 28'800};
  return snapshot;
}

inline std::vector<LargeCluster> large_clusters() {
  Parameters with_queue;
  with_queue.require_empty_queue = false;
  return {
      {"nothing waits, all grow into whole nodes", large_snapshot({}), {}},
      {"nothing waits, all grow into pieces of nodes", large_snapshot({0, 1, true, false, 4}), {}},
      {"10,000 wait, nothing to reclaim", large_snapshot({10'000, 8, true, false, 4}), {}},
      {"10,000 wait, too large for what is expanded",
       large_snapshot({10'000, 4000, true, true, 4}),
       {}},
      {"10,000 wait, what is expanded goes back", large_snapshot({10'000, 8, true, true, 4}), {}},
      {"the same without the queue rule, 50 kinds of needs",
       large_snapshot({10'000, 8, true, true, 50}), with_queue},
  };
}

// Processor seconds of the fastest of `rounds` calls: what a loaded machine does to the others does
// not count.
inline double fastest_decide(const LargeCluster& cluster, int rounds, int& decisions) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    timespec begin{}, end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    decisions = static_cast<int>(decide(cluster.snapshot, cluster.parameters).size());
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(best, static_cast<double>(end.tv_sec - begin.tv_sec) +
                              1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return best;
}

}  // namespace flextrain::policy
