// SPDX-License-Identifier: MIT
// The Communicator of an emulated cluster: ranks of one thread meet in virtual time. A tensor's
// values do not travel, its size does; control data (host memory) travel as they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/emulation/network_model.h"
#include "trainer/emulation/rank_scheduler.h"

namespace flextrain::trainer {

// What the communicators of one cluster share. Outlives them.
class EmulatedFabric {
 public:
  EmulatedFabric(const ClusterProfile& cluster, RankScheduler& scheduler, int ranks)
      : cluster_(cluster), scheduler_(scheduler), network_(cluster, ranks), ranks_(ranks) {}

  // The communicator over all ranks, for the rank that runs.
  std::unique_ptr<Communicator> world();

  // A meeting of all members of a group: the last to come finishes it for the others.
  struct Group {
    std::vector<int> ranks;
    std::vector<void*> given;  // per member: where its data are
    int arrived = 0;
  };
  const ClusterProfile& cluster() const { return cluster_; }
  RankScheduler& scheduler() { return scheduler_; }
  NetworkModel& network() { return network_; }
  // The same object for all members that name the same ranks and token.
  std::shared_ptr<Group> group(const std::vector<int>& ranks, int token);
  // Sends and receives are the same to the clocks: both sides leave together.
  Status exchange(int from, int to, int tag, double bytes);

 private:
  const ClusterProfile& cluster_;
  RankScheduler& scheduler_;
  NetworkModel network_;
  int ranks_;
  std::map<std::pair<std::vector<int>, int>, std::weak_ptr<Group>> groups_;
  // (from, to, tag) → the rank that waits there and its bytes.
  struct Waiting {
    int rank = 0;
    double bytes = 0;
  };
  struct Key {
    int from, to, tag;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  std::unordered_map<Key, Waiting, KeyHash> waiting_;
};

}  // namespace flextrain::trainer
