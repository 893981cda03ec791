// SPDX-License-Identifier: MIT
// Preemptive scale-down: which companions go back so that waiting jobs can start. Pure. Private to
// policy/ and the simulator.
#pragma once

#include <vector>

#include "policy/node_index.h"
#include "policy/policy.h"
#include "policy/probes.h"

namespace flextrain::policy {

struct ReclaimOutcome {
  std::vector<Decision> decisions;  // kShrink per victim, kAbortReclaim per job let queue
  // Idle GPUs per node that waiting jobs will take by themselves: not free for growth.
  std::vector<int> taken;  // by node of the index
};
ReclaimOutcome reclaim(const Snapshot& snapshot, const Parameters& parameters,
                       const NodeIndex& nodes, const Probes& probes = {});

}  // namespace flextrain::policy
