// SPDX-License-Identifier: MIT
// A Backend that computes nothing: every operation advances its rank's virtual clock by what the
// device profile says it takes, and memory is counted, not held. Values read back are zero.
#pragma once

#include <memory>

#include "trainer/backend/backend.h"
#include "trainer/emulation/cluster_profile.h"
#include "trainer/emulation/rank_scheduler.h"

namespace flextrain::trainer {

// Of the rank that `scheduler` runs when an operation is called: `rank`'s alone. Both outlive it.
std::unique_ptr<Backend> make_emulated_backend(const ClusterProfile& cluster,
                                               RankScheduler& scheduler, int rank);

}  // namespace flextrain::trainer
