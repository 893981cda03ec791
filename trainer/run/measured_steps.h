// SPDX-License-Identifier: MIT
// measured_steps.json in output.dir: how long a step took at each size that this job has had. A
// measured figure replaces a predicted one in the scale table of the next size.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "planner/table_refresh.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// What a step's time depends on besides the size: by this the files know their job.
Json measured_job(const TrainConfig& config);
// Such a file; null where there is none, it cannot be read, or it is another job's.
Json read_job_file(const TrainConfig& config, const std::string& path, size_t max_bytes);

// What the file holds for this model, batch and numerics; nothing when there is none, it cannot be
// used, or it is another job's.
std::vector<planner::MeasuredStep> read_measured_steps(const TrainConfig& config);

// Sets one size's figure among `steps` and writes the file.
Status write_measured_step(const TrainConfig& config, std::vector<planner::MeasuredStep>& steps,
                           const planner::MeasuredStep& measured);

}  // namespace flextrain::trainer
