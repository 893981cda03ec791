// SPDX-License-Identifier: MIT
// From what every rank has measured to the one StepProfile that the planner takes.
#pragma once

#include "base/status.h"
#include "planner/scale_table.h"
#include "trainer/comm/communicator.h"
#include "trainer/engine/step_profiler.h"

namespace flextrain::trainer {

// Collective; the same on all ranks. `mine` has the measured layout, hop_bytes, and the bytes of
// the layers that this rank saves; the times are filled in:
//   layers     mean over micro-batches and ranks, on an average device
//   transfers  a message's time is the shorter of what its two ends saw: the other one waited. The
//              first quartile, apart within and between nodes
//   control    of the rank that came last, which waited for nobody, in the quickest step
//   reduce, optimizer, step: the slowest rank's; all ranks begin them together
Result<planner::StepProfile> gather_profile(const StepProfiler::Measured& measured,
                                            planner::StepProfile mine, Communicator& world);

}  // namespace flextrain::trainer
