// SPDX-License-Identifier: MIT
// decide() with somebody looking on, who sees the numbers that a rule is asked with
// (policy/alternatives.cc). Private to policy/.
#pragma once

#include <functional>
#include <vector>

#include "policy/growth_rules.h"
#include "policy/policy.h"
#include "policy/victims.h"

namespace flextrain::policy {

struct Probes {
  // Before a job is judged.
  std::function<void(const ElasticJobView&, const PoolFacts&, const JobFacts&)> growth;
  // For a waiting job that does not fit into what is free: who could give, and in which order.
  std::function<void(const WaitingJob&, const std::vector<VictimFacts>&,
                     const std::vector<size_t>&)>
      reclaim;
};

std::vector<Decision> decide_probed(const Snapshot& snapshot, const Parameters& parameters,
                                    const Probes& probes);

}  // namespace flextrain::policy
