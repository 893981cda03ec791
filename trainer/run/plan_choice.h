// SPDX-License-Identifier: MIT
// Which Plan a run executes. Pure apart from reading --plan's file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/plan_search.h"
#include "planner/scale_table.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// The [parallel] section for `ranks` ranks. Degrees of 0 are chosen: the deepest pipeline that
// divides the ranks and whose data parallelism divides the batch. `layer_costs` as in
// planner::RegularLayout. Where wants_made_schedule(), its schedule is only the first one: what
// follows from the Plan alone, and under a memory cap the one that needs least. kInvalidArgument
// says what does not fit and what would.
Result<planner::Plan> default_plan(const TrainConfig& config, int ranks,
                                   const std::vector<double>& layer_costs = {});

// Whether the configuration wants the Plan's schedule made from a profile (parallel.schedule =
// "searched" or "auto", or a memory cap) and that can be done or has not been done.
bool wants_made_schedule(const TrainConfig& config, const planner::Plan& plan);
// Makes it; "auto": the named one that suits the Plan's placement best, the Plan's own where little
// is gained, makespans with reduction and optimiser. kInvalidArgument too where the cap is too
// small for every schedule.
Result<planner::PlannedSchedule> make_schedule_for(const TrainConfig& config,
                                                   const planner::StepProfile& profile,
                                                   const planner::Plan& plan);

// A Plan of exactly these degrees for `config`.
Result<planner::Plan> regular_plan(const TrainConfig& config, int pipeline_parallel,
                                   int data_parallel, const std::vector<double>& layer_costs = {});

// A Plan file (as `flextrain-trainer plan -o` or an agent writes it).
Result<planner::Plan> read_plan(const std::string& path);

// Does the Plan fit model, batch, numerics and the number of ranks? kInvalidArgument names the two
// figures that differ.
Status check_plan(const planner::Plan& plan, const TrainConfig& config, int ranks);

// Relative time of each global layer, for placement.
std::vector<double> layer_costs_of(const planner::StepProfile& profile);

}  // namespace flextrain::trainer
