// SPDX-License-Identifier: MIT
// V-shaped schedules with controllable memory. Internal to planner/; pure.
#pragma once

#include "planner/order_run.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

// What to make small among the schedules that keep the memory caps: the end of the last stage, or
// the longest time that one stage works (when the optimiser step is staggered with the stages).
enum class VObjective { kMakespan, kLongestSpan };

// Two chunks per stage in order kV. Without caps the memory of 1F1B is the cap: as many activations
// as stages × 2.
Result<Schedule> make_v_shape(const PipelineCosts& costs, VObjective objective);

}  // namespace flextrain::planner
