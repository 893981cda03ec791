// SPDX-License-Identifier: MIT
#include "trainer/run/profile_report.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/file.h"
#include "base/log.h"
#include "planner/predict.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {
// Without an agent's bounds: how far the table looks beyond the present size.
constexpr int kDefaultReach = 4;
}  // namespace

planner::ScaleRequest scale_request(const TrainConfig& config, const planner::Plan& plan,
                                    const std::optional<ElasticBounds>& bounds) {
  planner::ScaleRequest request;
  request.num_transformer_layers = config.model.layers;
  request.num_mtp_heads = config.model.mtp_num_layers;
  request.global_batch = config.global_batch;
  request.micro_batch_size = config.micro_batch_size;
  request.tokens_per_step = int64_t{config.global_batch} * config.model.sequence;
  request.numerics = config.numerics;
  request.no_ops = config.no_ops;
  const int gpus = planner::num_ranks(plan),
            data_parallel = static_cast<int>(plan.pipelines.size());
  request.schedule = plan.schedule == "explicit" ? "1f1b" : plan.schedule;
  request.schedules = {config.schedule};
  if (config.schedule == "searched") request.schedules = {"1f1b", "zb-1p"};
  if (config.schedule == "v-shape") request.schedules.push_back("zb-1p");  // a stage alone
  if (config.schedule == "auto") {
    request.schedules = {"1f1b", "zb-1p", "v-shape", "gpipe", "memory-min"};
    request.memory_limit_bytes = config.memory_cap_bytes;
  }
  request.virtual_stages = {1, config.virtual_stages};
  if (config.virtual_stages == 0) request.virtual_stages = {1, 2, 4};
  request.recompute = {planner::Recompute::kNone, planner::Recompute::kSelective,
                       planner::Recompute::kFull};
  if (config.recompute != "auto") {
    request.recompute = {planner::parse_recompute(config.recompute).value_or({})};
  }
  request.max_gpus = std::max(gpus, bounds.has_value() ? bounds->max_gpus : kDefaultReach * gpus);
  request.min_data_parallel = 1;
  request.max_data_parallel = config.global_batch / config.micro_batch_size;
  if (bounds.has_value()) {
    // The tighter one where both are set.
    const int64_t device = bounds->memory_limit_bytes;
    int64_t& limit = request.memory_limit_bytes;
    limit = limit > 0 && device > 0 ? std::min(limit, device) : std::max(limit, device);
    request.device_type = bounds->device_type;
    if (bounds->elastic_mode == "pp") {
      request.min_data_parallel = request.max_data_parallel = data_parallel;
    }
  }
  return request;
}

Result<std::optional<planner::StepProfile>> find_profile(const TrainConfig& config,
                                                         const std::string& asked) {
  const std::string path = asked.empty() ? config.output_dir + "/profile.json" : asked;
  const Result<std::string> text = read_input_file(path, size_t{64} << 20);
  if (!text.ok()) {
    if (asked.empty() && text.status().code() == StatusCode::kNotFound) {
      return std::optional<planner::StepProfile>();
    }
    return text.status();
  }
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(*text, path));
  ASSIGN_OR_RETURN(planner::StepProfile profile, planner::profile_from_json(json));
  if (static_cast<int>(profile.layers.size()) != num_layers(config.model)) {
    return invalid_argument(
        "'{}' is of a model with {} layers, embedding, head and MTP included; this one has {}",
        path, profile.layers.size(), num_layers(config.model));
  }
  if (Status status =
          planner::check_profile(profile, config.model.layers, config.model.mtp_num_layers);
      !status.ok()) {
    return status.with_context(path);
  }
  return std::optional<planner::StepProfile>(std::move(profile));
}

std::string scale_table_text(const planner::ScaleTable& table) {
  std::string text = "GPUs  step s     tokens/s    memory MB  plan\n";
  for (const planner::ScaleEntry& entry : table.entries) {
    text += fmt::format("{:>4}  {:<9.4g}  {:<10.0f}  {:<9.1f}  {}{}\n", entry.shape.gpus,
                        entry.step_seconds, entry.tokens_per_second,
                        static_cast<double>(entry.peak_memory_bytes) / 1e6,
                        planner::plan_summary(entry.plan),
                        entry.source == planner::PredictionSource::kMeasured ? " (measured)"
                        : entry.kept                                         ? ""
                                     : fmt::format(" (dropped: {})", entry.drop_rule));
  }
  return text;
}

Status write_profile(const TrainConfig& config, const planner::StepProfile& profile,
                     const ControlDir& control) {
  control.write_profile(profile);
  return write_file_atomically(config.output_dir + "/profile.json",
                               planner::profile_to_json(profile).dump(1) + "\n");
}

Result<std::optional<planner::ScaleTable>> report_scale_table(
    const TrainConfig& config, const planner::Plan& plan, const planner::StepProfile& profile,
    const std::vector<planner::MeasuredStep>& measured, const ControlDir& control) {
  ASSIGN_OR_RETURN(const std::optional<ElasticBounds> bounds, control.request());
  if (control.present() && !bounds.has_value()) return std::optional<planner::ScaleTable>();
  planner::ScaleRequest request = scale_request(config, plan, bounds);
  request.measured_plan = plan;
  ASSIGN_OR_RETURN(planner::ScaleTable table, planner::build_scale_table(profile, request));
  // The profile is the newest there is of its own size.
  std::vector<planner::MeasuredStep> others = measured;
  std::erase_if(others, [&](const auto& step) { return step.gpus == table.measured_gpus; });
  ASSIGN_OR_RETURN(planner::RefreshedTable refreshed,
                   planner::refresh_scale_table(std::move(table), others, request));
  if (!refreshed.text.empty()) log_info("scale table: {}", refreshed.text);
  control.write_scale_table(refreshed.table);
  RETURN_IF_ERROR(
      write_file_atomically(config.output_dir + "/scale_table.json",
                            planner::scale_table_to_json(refreshed.table).dump(1) + "\n"));
  return std::optional<planner::ScaleTable>(std::move(refreshed.table));
}

}  // namespace flextrain::trainer
