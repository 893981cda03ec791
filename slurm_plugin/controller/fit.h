// SPDX-License-Identifier: GPL-2.0-or-later
// Which nodes could take a companion, or a waiting job, now. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/policy.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/controller_config.h"

namespace flextrain::slurm_plugin {

// Resources of a node that the node's own record does not show (yet).
struct NodeAmount {
  int gpus = 0, cpus = 0;
  int64_t memory_mib = 0;
};
using NodeAmounts = std::map<std::string, NodeAmount>;  // by node name

// What a job needs of one node per GPU, and which nodes it accepts.
struct NodeNeeds {
  std::vector<std::string> partitions;  // any of these
  std::string features, gres_type, reservation;
  std::set<std::string> excluded, required;  // required: empty = no wish
  double cpus_per_gpu = 1;
  int64_t memory_per_gpu_mib = 0;  // 0 = not asked for
  auto operator<=>(const NodeNeeds&) const = default;
};

// CPUs and memory per GPU of a running base: its allocation where it is shared, its request where
// it holds whole nodes.
NodeNeeds needs_of_base(const JobRecord& base, const ControllerConfig& config);
NodeNeeds needs_of_waiting(const JobRecord& job);

// Whether the node may ever serve these needs: partition, features, GPU type, excluded, required.
bool node_matches(const NodeRecord& node, const NodeNeeds& needs);

// The partition's record: up, and its longest job covers the lease.
bool partition_accepts(const ClusterView& view, std::string_view partition, int64_t lease_seconds);

// True when `node` lies in a reservation that begins before `until` and ends after `now`, other
// than `own`; or when `own` is set and does not hold the node now.
bool blocked_by_reservation(const ClusterView& view, std::string_view node, std::string_view own,
                            int64_t until);

// Whole GPUs of `node` that are free now, bounded by CPUs and memory; `taken` is what companions
// submitted but not yet started will use.
int free_gpus(const NodeRecord& node, const NodeNeeds& needs, const NodeAmount& taken);

// Nodes where a companion with these needs could start now, in the view's order. `planned`: when a
// pending job is to start on a node (waiting.h); a lease must be over by then. The same for every
// base with these needs, whose own nodes are own_nodes().
std::vector<policy::NodeOffer> companion_offers(const ClusterView& view, const NodeNeeds& needs,
                                                const ControllerConfig& config,
                                                const NodeAmounts& taken,
                                                const std::map<std::string, int64_t>& planned);

// Where no companion of this base may go, `companions` being the nodes that have one.
std::vector<std::string> own_nodes(const JobRecord& base, const ControllerConfig& config,
                                   std::set<std::string> companions);

// Why idle GPUs of this node are of no use for a growth; "" when they are.
std::string why_not_usable(const ClusterView& view, const NodeRecord& node,
                           const ControllerConfig& config);

}  // namespace flextrain::slurm_plugin
