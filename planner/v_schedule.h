// SPDX-License-Identifier: MIT
// V-shaped schedules with controllable memory. Internal to planner/; pure.
#pragma once

#include "planner/list_scheduler.h"
#include "planner/order_run.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

// What to make small among the schedules that keep the memory caps: the end of the last stage, or
// the longest time that one stage works (when the optimiser step is staggered with the stages).
enum class VObjective { kMakespan, kLongestSpan };

// Two chunks per stage in order kV. Without caps the memory of 1F1B is the cap: as many activations
// as stages × 2.
Result<Schedule> make_v_shape(const PipelineCosts& costs, VObjective objective);

// Without caps: how far every schedule lets its way down run ahead at least, in micro-batches on
// each stage. Less saves memory that may be used. What is held at least (planner/predict.cc) relies
// on it.
int least_credits_down(int stages);

// Its two steps. The steady state repeats: rules depend on costs, shape and so many micro-batches
// at most.
int deciding_micro_batches(const ScheduleShape& shape);
Result<ListRules> v_shape_rules(const PipelineCosts& costs, VObjective objective);
Result<Schedule> v_shape_by(const PipelineCosts& costs, const ListRules& rules);

}  // namespace flextrain::planner
