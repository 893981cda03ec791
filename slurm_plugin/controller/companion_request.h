// SPDX-License-Identifier: GPL-2.0-or-later
// A companion's batch job, derived from its base (docs/controller.md). Pure.
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

// To which moment a running companion's lease is to be extended, 0 = it stays as it is. `cap`: the
// moment the node is wanted by a pending job or a reservation, 0 = none. Unix seconds; the length
// is whole minutes, Slurm's unit: rounded up without a cap, down below one.
int64_t extended_lease(int64_t now, int64_t start, int64_t lease_end, int64_t cap,
                       const ControllerConfig& config);

// After the clock was set back: the new end of a lease that would now last longer than
// LeaseSeconds, 0 when it does not. Slurm counts from a start that may still lie ahead, and at
// least a minute.
int64_t shortened_lease(int64_t now, int64_t start, int64_t lease_end,
                        const ControllerConfig& config);

}  // namespace flextrain::slurm_plugin
