// SPDX-License-Identifier: MIT
#include "trainer/run/measured_steps.h"

#include <algorithm>
#include <cmath>

#include "base/bounded_json.h"
#include "base/file.h"
#include "planner/limits.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

std::string path_of(const TrainConfig& config) {
  return config.output_dir + "/measured_steps.json";
}

}  // namespace

Json measured_job(const TrainConfig& config) {
  return {{"model", config_to_json(config)["model"]},
          {"global_batch", config.global_batch},
          {"micro_batch_size", config.micro_batch_size},
          {"numerics", planner::numerics_name(config.numerics)}};
}

Json read_job_file(const TrainConfig& config, const std::string& path, size_t max_bytes) {
  const Result<std::string> text = read_file(path, max_bytes);
  if (!text.ok()) return nullptr;
  Result<Json> json = parse_bounded_json(*text, path);
  if (!json.ok() || !json->is_object() || json->value("job", Json()) != measured_job(config))
    return nullptr;
  return *std::move(json);
}

std::vector<planner::MeasuredStep> read_measured_steps(const TrainConfig& config) {
  std::vector<planner::MeasuredStep> steps;
  const Json file = read_job_file(config, path_of(config), kMostBytes);
  if (file.is_null()) return steps;
  const Json list = file.value("steps", Json::array());
  if (!list.is_array()) return steps;
  for (const Json& element : list) {
    if (!element.is_array() || element.size() != 2 || !element[0].is_number_integer() ||
        !element[1].is_number()) {
      continue;
    }
    const auto gpus = element[0].get<int64_t>();
    const double seconds = element[1].get<double>();
    if (gpus < 1 || gpus > planner::kMaxRanks || !std::isfinite(seconds) || seconds <= 0) continue;
    steps.push_back({static_cast<int>(gpus), seconds});
  }
  return steps;
}

Status write_measured_step(const TrainConfig& config, std::vector<planner::MeasuredStep>& steps,
                           const planner::MeasuredStep& measured) {
  std::erase_if(steps, [&](const auto& step) { return step.gpus == measured.gpus; });
  steps.push_back(measured);
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.gpus < b.gpus; });
  Json list = Json::array();
  for (const planner::MeasuredStep& step : steps) {
    list.push_back(Json::array({step.gpus, step.step_seconds}));
  }
  return write_file_atomically(path_of(config),
                               Json{{"job", measured_job(config)}, {"steps", list}}.dump(1) + "\n");
}

}  // namespace flextrain::trainer
