// SPDX-License-Identifier: MIT
// trainer/emulation: a run of the real engine under a Plan on a cluster that is not there. All
// ranks live in this process; the Plan, the executor, the profiler and the planner are those of
// `train`, only Backend and Communicator are emulated. Virtual time, so the same on any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"
#include "trainer/config/train_config.h"
#include "trainer/emulation/cluster_profile.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

struct RehearsalOptions {
  int steps = 4;          // timed ones, after `profile_steps`
  int profile_steps = 3;  // after a first one that counts for nothing, as in life
};

struct RehearsalResult {
  std::vector<double> step_seconds;             // of the timed steps
  double median_step_seconds = 0;               // of them
  planner::StepProfile profile;                 // of the profiled steps
  int64_t peak_device_bytes = 0;                // of the fullest rank
  int64_t peak_static_bytes = 0;                // the same of weights, gradients, moments alone
  std::vector<std::vector<TraceEvent>> traces;  // per rank, of the last profiled step
};

// Errors as make_engine's and train_step's; kInvalidArgument or kResourceExhausted when a device's
// memory does not suffice.
Result<RehearsalResult> rehearse(const TrainConfig& config, const planner::Plan& plan,
                                 const ClusterProfile& cluster,
                                 const RehearsalOptions& options = {});

// What the planner makes of a profile for another Plan, and what that Plan then does.
struct PredictionCheck {
  double predicted_seconds = 0, rehearsed_seconds = 0;
  int64_t predicted_bytes = 0, rehearsed_bytes = 0;
  double time_error() const { return predicted_seconds / rehearsed_seconds - 1; }
  double memory_error() const {
    return static_cast<double>(predicted_bytes) / static_cast<double>(rehearsed_bytes) - 1;
  }
};
// `profiled` is a rehearsal's result under `profiled_plan`; predictions are calibrated by its step,
// as in a scale table.
Result<PredictionCheck> check_prediction(const TrainConfig& config, const ClusterProfile& cluster,
                                         const RehearsalResult& profiled,
                                         const planner::Plan& profiled_plan,
                                         const planner::Plan& plan);

}  // namespace flextrain::trainer
