// SPDX-License-Identifier: MIT
// How long messages take on an emulated cluster's links. A link carries one message after the
// other, in the order in which they were asked for: whoever shares it waits. Times must be asked
// for in ascending order (RankScheduler).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/emulation/cluster_profile.h"

namespace flextrain::trainer {

class NetworkModel {
 public:
  NetworkModel(const ClusterProfile& cluster, int ranks);

  // Books the links; the time at which a message that can start at `time` has arrived.
  double transfer(int from, int to, double bytes, double time);
  // A ring all-reduce of `bytes` each (Patarasuk and Yuan 2009) over `ranks`, ascending.
  double all_reduce(const std::vector<int>& ranks, double bytes, double time);
  // Seconds of an exchange of a few bytes among `ranks`: a tree. Books nothing.
  double control(const std::vector<int>& ranks) const;

 private:
  struct Link {
    double gb_per_s = 1;
    double free_at = 0;
  };
  // A message over these links; the one that is done last sets its end.
  double carry(const std::vector<size_t>& links, double bytes, double latency, double time);
  void far_links(int from, int to, std::vector<size_t>& links) const;
  size_t adapter(int rank) const;
  bool spans_nodes(const std::vector<int>& ranks) const;

  const ClusterProfile& cluster_;
  // [ports out | ports in | adapters out | adapters in | uplinks | downlinks]
  std::vector<Link> links_;
  size_t port_in_ = 0, adapter_out_ = 0, adapter_in_ = 0, up_ = 0, down_ = 0;
  std::vector<size_t> path_;
  uint64_t messages_ = 0;
};

}  // namespace flextrain::trainer
