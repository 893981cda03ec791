// SPDX-License-Identifier: MIT
// A scale table against what a job measures while it runs. Pure: no clock, steps are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/scale_table.h"

namespace flextrain::planner {

struct MeasuredStep {
  int gpus = 0;
  double step_seconds = 0;  // median over some steps at that size
};

struct StaleEntry {
  int gpus = 0;
  double predicted_seconds = 0, measured_seconds = 0;
};

struct RefreshedTable {
  ScaleTable table;
  std::vector<StaleEntry> stale;  // ascending GPUs
  std::string text;  // "" or one line that names them: "4 GPUs: predicted 1.2 s, measured 1.5 s"
};

// Measured step times replace predicted ones (source becomes kMeasured, the prediction stays in
// predicted_step_seconds), the filter runs again. An entry is stale when what was known of it and
// the measurement differ by more than `tolerance` (relative). Sizes the table lacks are ignored.
// kInvalidArgument for a time that is not positive and finite.
Result<RefreshedTable> refresh_scale_table(ScaleTable table, const std::vector<MeasuredStep>& steps,
                                           const ScaleRequest& request, double tolerance = 0.1);

struct RemeasureState {
  int64_t steps_since_profile = 0;  // trained since the profile was taken
  int profiles_taken = 1;           // in a row that gave the same verdict
  double step_seconds_now = 0;      // median of the last steps, 0 = unknown
};
struct RemeasureDecision {
  bool now = false;
  int64_t in_steps = -1;  // else: ask again in so many steps, -1 = only when something changes
  bool drifted = false;   // because steps take another time than the table's entry
  std::string reason;
};
// When to take the profile again: when steps take another time than the profile's, and when the
// table keeps no larger size because model and measurement contradict each other (a busy machine);
// then with growing pauses, so that a table that stays like this costs little.
RemeasureDecision when_to_remeasure(const ScaleTable& table, const RemeasureState& state,
                                    double tolerance = 0.1);

}  // namespace flextrain::planner
