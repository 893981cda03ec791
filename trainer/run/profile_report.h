// SPDX-License-Identifier: MIT
// From a profile to the scale table, for agent and user.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"
#include "planner/table_refresh.h"
#include "trainer/config/train_config.h"
#include "trainer/run/control_dir.h"

namespace flextrain::trainer {

// The planner's request for this job: bounds from the agent, or, without one, up to 4 times
// its GPUs in both directions. `plan` is the running one: mode "pp" keeps its data parallelism.
planner::ScaleRequest scale_request(const TrainConfig& config, const planner::Plan& plan,
                                    const std::optional<ElasticBounds>& bounds);

// The profile that was asked for, or the one the last run left in output.dir; nothing when there is
// none. kInvalidArgument for another model's.
Result<std::optional<planner::StepProfile>> find_profile(const TrainConfig& config,
                                                         const std::string& asked);

// A table for people, one line per GPU count.
std::string scale_table_text(const planner::ScaleTable& table);

// Rank 0: profile.json to output.dir and to the agent.
Status write_profile(const TrainConfig& config, const planner::StepProfile& profile,
                     const ControlDir& control);
// Rank 0: the scale table of that profile, taken under `plan`, to output.dir and to the agent. What
// other sizes of this job have measured stands in the place of predictions, and is said where it
// differs from them. Nothing when there is an agent but no bounds of its yet: ask again later.
Result<std::optional<planner::ScaleTable>> report_scale_table(
    const TrainConfig& config, const planner::Plan& plan, const planner::StepProfile& profile,
    const std::vector<planner::MeasuredStep>& measured, const ControlDir& control);

}  // namespace flextrain::trainer
