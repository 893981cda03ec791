// SPDX-License-Identifier: MIT
// Profile-based prediction: a profile re-sharded onto another Plan. Internal to planner/; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"

namespace flextrain::planner {

struct Prediction {
  double step_seconds = 0;
  int64_t peak_memory_bytes = 0;  // of the fullest rank
};

// The profile has layers 0 … num_transformer_layers+1 with finite times >= 0, some work, and
// degrees
// >= 1.
Status check_profile(const StepProfile& profile, int num_transformer_layers);

// What a rank of the measured layout holds, to scale the measured reduction and optimiser times by.
struct MeasuredLayout {
  int data_parallel = 1;
  int64_t fullest_static_bytes = 0;
};
MeasuredLayout measured_layout(const StepProfile& profile, const Plan& plan);

// Runs each pipeline's schedule with the chunk times that the placed layers add up to:
//   step = max over stages (latest end + reduction) + max over stages (optimiser),
//   memory of a rank = static bytes of its layers + largest running sum of activation bytes over
//   its list (Forward +, Backward −; a recomputed layer keeps nothing). No-Ops cost nothing.
Result<Prediction> predict(const StepProfile& profile, const MeasuredLayout& measured,
                           const Plan& plan);

// FlexTrain's filter over entries in ascending GPU count: sets kept and drop_rule.
void filter_entries(std::vector<ScaleEntry>& entries, int measured_gpus,
                    const ScaleRequest& request);

}  // namespace flextrain::planner
