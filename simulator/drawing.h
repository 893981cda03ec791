// SPDX-License-Identifier: MIT
// Runs as an SVG drawing. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "simulator/scenario.h"

namespace flextrain::simulator {

// Idle GPUs over the days of the trace and, where it is a week or longer, over the hours of the
// week, until the last arrival; below it the GPUs of `jobs` (trace ids) over their time. A line
// per run. Without `jobs` those three that switched most often in the last run.
// kInvalidArgument when the trace has no such job.
Result<std::string> draw_runs(const Trace& trace, const std::vector<ScenarioRun>& runs, int gpus,
                              const std::vector<int64_t>& jobs);

}  // namespace flextrain::simulator
