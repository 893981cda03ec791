// SPDX-License-Identifier: GPL-2.0-or-later
// A companion's batch job, derived from its base (DESIGN.md §2). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.h"
#include "protocol/messages.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/controller_config.h"

namespace flextrain::slurm_plugin {

// From the base: account, QOS, partition, GRES type, CPUs and memory per GPU, features,
// reservation; from its agent's registration: environment, limits, umask, folder. Never mail,
// dependency or slurmctld's own limits. The lease ends with the base's own time limit at the
// latest (`now`: unix s).
CompanionRequest make_companion_request(const JobRecord& base,
                                        const protocol::RegisterRequest& registration,
                                        const policy::NodeOffer& offer, std::string_view intent_id,
                                        const ControllerConfig& config, int64_t now);

// The batch script: the base's own agent in its companion role.
std::string companion_script(const JobRecord& base, const protocol::RegisterRequest& registration,
                             std::string_view intent_id);

// `text` as one word of a POSIX shell.
std::string shell_quote(std::string_view text);

// What a companion on a lease may still get. Unix seconds; 0 = the lease stays as it is.
struct LeasePlan {
  int64_t new_end = 0;   // extend to this moment
  bool expires = false;  // cannot be extended enough: leave before lease_end
};
// `cap`: the moment the node is wanted by a pending job, or the base's own end; 0 = none.
LeasePlan plan_lease(int64_t now, int64_t start, int64_t lease_end, int64_t cap,
                     const ControllerConfig& config);

}  // namespace flextrain::slurm_plugin
