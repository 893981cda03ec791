// SPDX-License-Identifier: MIT
// The classic schedules, whose orders do not depend on the costs. Internal to planner/; pure.
#pragma once

#include "planner/order_run.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

// The costs decide where the transfers stand; they must be checked.
Schedule run_gpipe(const PipelineCosts& costs);
Schedule run_1f1b(const PipelineCosts& costs);
// Each micro-batch goes through forward and backward before the next begins.
Schedule run_memory_min(const PipelineCosts& costs);

}  // namespace flextrain::planner
