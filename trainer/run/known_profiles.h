// SPDX-License-Identifier: MIT
// known_profiles.json in output.dir: the newest profile of each plan that this job has run with.
// The next run of the same job, or its next size, has a scale table before its own first profile.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "planner/scale_table.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// The one taken under this plan with this model, batch and numerics; nothing when there is none,
// the file cannot be used, or it is another job's.
std::optional<planner::StepProfile> read_known_profile(const TrainConfig& config,
                                                       const std::string& plan_id);

Status write_known_profile(const TrainConfig& config, const std::string& plan_id,
                           const planner::StepProfile& profile);

}  // namespace flextrain::trainer
