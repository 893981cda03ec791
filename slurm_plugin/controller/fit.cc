// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "slurm_plugin/cluster/gres_text.h"
#include "slurm_plugin/controller/node_list.h"

namespace flextrain::slurm_plugin {
namespace {

std::set<std::string> host_set(const std::string& text) {
  const auto hosts = expand_host_list(text);
  // An unreadable list matches nothing: the caller treats an exclusion as met by nobody and a
  // requirement as met by nobody, both on the careful side through node_matches below.
  if (!hosts.ok()) return {"\n"};
  return {hosts->begin(), hosts->end()};
}

int64_t ceil_divide(int64_t value, int64_t by) { return by <= 0 ? value : (value + by - 1) / by; }

int total(const std::map<std::string, int>& amounts) {
  int sum = 0;
  for (const auto& [node, amount] : amounts) sum += amount;
  return sum;
}

int most_gpus_on_a_node(const JobRecord& job) {
  int most = 0;
  for (const auto& [node, gpus] : job.gpus_on_node) most = std::max(most, gpus);
  if (most > 0) return most;
  const int asked = gpus_in(job.tres_per_node).count;
  if (asked > 0) return asked;
  return static_cast<int>(ceil_divide(job.gpus_requested, std::max(1, job.nodes_requested)));
}

int64_t memory_per_gpu(const JobRecord& job, double cpus_per_gpu) {
  if (job.memory_per_cpu_mib > 0) {
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(job.memory_per_cpu_mib) * cpus_per_gpu));
  }
  return ceil_divide(job.memory_per_node_mib, std::max(1, most_gpus_on_a_node(job)));
}

}  // namespace

NodeNeeds needs_of_base(const JobRecord& base, const ControllerConfig& config) {
  NodeNeeds needs;
  needs.partitions = {config.companion_partition.empty() ? base.partition
                                                         : config.companion_partition};
  needs.features = base.features;
  needs.gres_type = base.gres_type;
  needs.reservation = base.reservation;
  needs.excluded = host_set(base.excluded_nodes);
  // required nodes are where the base runs; a companion may sit anywhere else.
  const int cpus =
      base.exclusive || base.cpus_on_node.empty() ? base.cpus_requested : total(base.cpus_on_node);
  const int gpus = base.gpus_allocated > 0 ? base.gpus_allocated : base.gpus_requested;
  needs.cpus_per_gpu = std::max(1.0, static_cast<double>(cpus) / std::max(1, gpus));
  needs.memory_per_gpu_mib = memory_per_gpu(base, needs.cpus_per_gpu);
  return needs;
}

NodeNeeds needs_of_waiting(const JobRecord& job) {
  NodeNeeds needs;
  needs.partitions = split(job.partition, ',');
  needs.features = job.features;
  needs.gres_type = job.gres_type;
  needs.reservation = job.reservation;
  needs.excluded = host_set(job.excluded_nodes);
  if (!job.required_nodes.empty()) needs.required = host_set(job.required_nodes);
  const int gpus = std::max(1, job.gpus_requested);
  needs.cpus_per_gpu = static_cast<double>(std::max(0, job.cpus_requested)) / gpus;
  needs.memory_per_gpu_mib = memory_per_gpu(job, needs.cpus_per_gpu);
  return needs;
}

bool node_matches(const NodeRecord& node, const NodeNeeds& needs) {
  if (node.gpus <= 0) return false;
  const bool in_partition = std::any_of(
      needs.partitions.begin(), needs.partitions.end(), [&](const std::string& partition) {
        return std::find(node.partitions.begin(), node.partitions.end(), partition) !=
               node.partitions.end();
      });
  if (!in_partition) return false;
  if (needs.excluded.contains(node.name) || needs.excluded.contains("\n")) return false;
  if (!needs.required.empty() && !needs.required.contains(node.name)) return false;
  if (!needs.gres_type.empty() && node.gres_type != needs.gres_type) return false;
  return features_match(needs.features, node.features);
}

bool partition_accepts(const ClusterView& view, std::string_view partition, int64_t lease_seconds) {
  for (const PartitionRecord& record : view.partitions) {
    if (record.name != partition) continue;
    return record.up && (record.max_time_seconds == 0 || record.max_time_seconds >= lease_seconds);
  }
  return false;
}

bool blocked_by_reservation(const ClusterView& view, std::string_view node, std::string_view own,
                            int64_t until) {
  bool inside_own = own.empty();
  for (const ReservationRecord& reservation : view.reservations) {
    const bool holds = std::find(reservation.nodes.begin(), reservation.nodes.end(), node) !=
                       reservation.nodes.end();
    if (!holds || reservation.end_time <= view.now) continue;
    if (reservation.name == own) {
      if (reservation.start_time <= view.now) inside_own = true;
    } else if (reservation.start_time < until) {
      return true;
    }
  }
  return !inside_own;
}

int free_gpus(const NodeRecord& node, const NodeNeeds& needs, const NodeAmount& taken) {
  int64_t gpus = node.gpus - node.gpus_allocated - taken.gpus;
  if (needs.cpus_per_gpu > 0) {
    const int cpus = node.cpus - node.cpus_allocated - taken.cpus;
    gpus = std::min<int64_t>(gpus, static_cast<int64_t>(std::floor(cpus / needs.cpus_per_gpu)));
  }
  if (needs.memory_per_gpu_mib > 0) {
    const int64_t memory = node.memory_mib - node.memory_allocated_mib - taken.memory_mib;
    gpus = std::min(gpus, memory / needs.memory_per_gpu_mib);
  }
  return static_cast<int>(std::max<int64_t>(gpus, 0));
}

std::vector<policy::NodeOffer> companion_offers(const ClusterView& view, const NodeNeeds& needs,
                                                const ControllerConfig& config,
                                                const NodeAmounts& taken,
                                                const std::map<std::string, int64_t>& planned) {
  std::vector<policy::NodeOffer> offers;
  if (!partition_accepts(view, needs.partitions.front(), config.lease_seconds)) return offers;
  for (const NodeRecord& node : view.nodes) {
    if (!node.usable || !node_matches(node, needs)) continue;
    if (config.opt_out_nodes.contains(node.name)) continue;
    if (blocked_by_reservation(view, node.name, needs.reservation,
                               view.now + config.lease_seconds)) {
      continue;
    }
    const auto plan = planned.find(node.name);
    if (plan != planned.end() && plan->second < view.now + config.lease_seconds) continue;
    const auto claim = taken.find(node.name);
    const int gpus = free_gpus(node, needs, claim == taken.end() ? NodeAmount{} : claim->second);
    if (gpus > 0) offers.push_back({node.name, gpus});
  }
  return offers;
}

std::vector<std::string> own_nodes(const JobRecord& base, const ControllerConfig& config,
                                   std::set<std::string> companions) {
  if (!config.share_base_nodes) companions.insert(base.nodes.begin(), base.nodes.end());
  return {companions.begin(), companions.end()};
}

std::string why_not_usable(const ClusterView& view, const NodeRecord& node,
                           const ControllerConfig& config) {
  if (node.gpus <= node.gpus_allocated) return "";
  if (!node.usable) return fmt::format("node is {}", to_lower(node.state));
  const bool elastic =
      std::any_of(node.partitions.begin(), node.partitions.end(),
                  [&](const auto& name) { return elastic_partition(config, name); });
  if (!elastic) return "in no partition where elasticity is on";
  if (blocked_by_reservation(view, node.name, "", view.now + config.lease_seconds)) {
    return "reserved";
  }
  if (config.opt_out_nodes.contains(node.name)) return "opted out (OptOutNodes)";
  if (node.cpus <= node.cpus_allocated) return "no free CPU";
  return "";
}

}  // namespace flextrain::slurm_plugin
