// SPDX-License-Identifier: MIT
#include "trainer/emulation/network_model.h"

#include <algorithm>
#include <bit>

#include "trainer/emulation/noise.h"

namespace flextrain::trainer {
namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9;

}  // namespace

NetworkModel::NetworkModel(const ClusterProfile& cluster, int ranks) : cluster_(cluster) {
  const auto devices = static_cast<size_t>(ranks);
  const auto nodes = static_cast<size_t>(cluster.node_of(ranks - 1)) + 1;
  const size_t adapters = nodes * static_cast<size_t>(cluster.adapters_per_node);
  const size_t switches = cluster.nodes_per_switch > 0
                              ? (nodes - 1) / static_cast<size_t>(cluster.nodes_per_switch) + 1
                              : 0;
  const auto add = [this](size_t count, double gb_per_s) {
    const size_t begin = links_.size();
    links_.insert(links_.end(), count, Link{gb_per_s, 0});
    return begin;
  };
  add(devices, cluster.near_gb_per_s);
  port_in_ = add(devices, cluster.near_gb_per_s);
  adapter_out_ = add(adapters, cluster.adapter_gb_per_s);
  adapter_in_ = add(adapters, cluster.adapter_gb_per_s);
  up_ = add(switches, cluster.uplink_gb_per_s);
  down_ = add(switches, cluster.uplink_gb_per_s);
}

size_t NetworkModel::adapter(int rank) const {
  const int local = rank % cluster_.gpus_per_node;
  const int index = local * cluster_.adapters_per_node / cluster_.gpus_per_node;
  return static_cast<size_t>(cluster_.node_of(rank) * cluster_.adapters_per_node + index);
}

void NetworkModel::far_links(int from, int to, std::vector<size_t>& links) const {
  links.push_back(adapter_out_ + adapter(from));
  links.push_back(adapter_in_ + adapter(to));
  if (cluster_.nodes_per_switch == 0) return;
  const auto below = static_cast<size_t>(cluster_.node_of(from) / cluster_.nodes_per_switch);
  const auto above = static_cast<size_t>(cluster_.node_of(to) / cluster_.nodes_per_switch);
  if (below == above) return;
  links.push_back(up_ + below);
  links.push_back(down_ + above);
}

double NetworkModel::carry(const std::vector<size_t>& links, double bytes, double latency,
                           double time) {
  const double factor = noisy_factor(cluster_.link, mix_bits(cluster_.seed) ^ ++messages_);
  // Every link works through what it was given; the one that is done last decides.
  double end = time;
  for (const size_t at : links) {
    Link& link = links_[at];
    link.free_at = std::max(link.free_at, time) + factor * bytes / (link.gb_per_s * kGiga);
    end = std::max(end, link.free_at);
  }
  return end + latency * kMicro;
}

double NetworkModel::transfer(int from, int to, double bytes, double time) {
  path_.assign({static_cast<size_t>(from), port_in_ + static_cast<size_t>(to)});
  if (cluster_.node_of(from) == cluster_.node_of(to)) {
    return carry(path_, bytes, cluster_.near_latency_us, time);
  }
  far_links(from, to, path_);
  return carry(path_, bytes, cluster_.far_latency_us, time);
}

bool NetworkModel::spans_nodes(const std::vector<int>& ranks) const {
  return cluster_.node_of(ranks.front()) != cluster_.node_of(ranks.back());
}

double NetworkModel::all_reduce(const std::vector<int>& ranks, double bytes, double time) {
  if (ranks.size() < 2) return time;
  const auto members = static_cast<double>(ranks.size());
  path_.clear();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int from = ranks[i], to = ranks[(i + 1) % ranks.size()];
    path_.push_back(static_cast<size_t>(from));
    path_.push_back(port_in_ + static_cast<size_t>(to));
    if (cluster_.node_of(from) != cluster_.node_of(to)) far_links(from, to, path_);
  }
  // Each link of the ring carries 2(d-1)/d of the data in 2(d-1) rounds.
  const double latency =
      2 * (members - 1) * (spans_nodes(ranks) ? cluster_.far_latency_us : cluster_.near_latency_us);
  return carry(path_, bytes * 2 * (members - 1) / members, latency, time);
}

double NetworkModel::control(const std::vector<int>& ranks) const {
  const double latency = spans_nodes(ranks) ? cluster_.far_latency_us : cluster_.near_latency_us;
  return 2 * std::bit_width(ranks.size() - 1) * latency * kMicro;
}

}  // namespace flextrain::trainer
