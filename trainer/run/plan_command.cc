// SPDX-License-Identifier: MIT
// flextrain-trainer plan: prints the plan that a launch would choose, and why.
#include <fmt/ranges.h>

#include "base/bounded_json.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "planner/schedule.h"
#include "planner/schedule_draw.h"
#include "trainer/config/config_reader.h"
#include "trainer/engine/engine.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/plan_choice.h"
#include "trainer/run/profile_report.h"

namespace flextrain::trainer {
namespace {

// The profile that was asked for, or the one the last run left; nothing when there is none.
Result<std::optional<planner::StepProfile>> find_profile(const TrainConfig& config,
                                                         const std::string& asked) {
  const std::string path = asked.empty() ? config.output_dir + "/profile.json" : asked;
  const Result<std::string> text = read_file(path, size_t{64} << 20);
  if (!text.ok()) {
    if (asked.empty() && text.status().code() == StatusCode::kNotFound) {
      return std::optional<planner::StepProfile>();
    }
    return text.status();
  }
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(*text, path));
  ASSIGN_OR_RETURN(planner::StepProfile profile, planner::profile_from_json(json));
  if (static_cast<int>(profile.layers.size()) != config.model.layers + 2) {
    return invalid_argument("'{}' is of a model with {} layers, model.layers is {}", path,
                            static_cast<int>(profile.layers.size()) - 2, config.model.layers);
  }
  return std::optional<planner::StepProfile>(std::move(profile));
}

void print_plan(const planner::Plan& plan) {
  fmt::print("{}\n", planner::plan_summary(plan));
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const planner::Pipeline& pipeline = plan.pipelines[p];
    fmt::print("pipeline {} ({} micro-batches)\n", p, pipeline.micro_batches);
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      std::string chunks;
      for (const std::vector<planner::LayerId>& chunk : pipeline.stages[s].chunks) {
        std::vector<std::string> names;
        for (const planner::LayerId layer : chunk) {
          names.push_back(layer == planner::kNoOp ? "-" : fmt::format("{}", layer));
        }
        chunks += fmt::format(" [{}]", fmt::join(names, " "));
      }
      fmt::print("  stage {} rank {}: layers{}\n", s, pipeline.stages[s].leader, chunks);
    }
  }
}

constexpr int kDrawingColumns = 160;

// Pipeline 0's schedule on the profile's costs; without a profile layers cost 1 forward, 2
// backward.
Status show_schedule(const planner::Plan& plan, const std::optional<planner::StepProfile>& measured,
                     const std::string& files) {
  planner::StepProfile profile;
  if (measured.has_value()) {
    profile = *measured;
  } else {
    profile.layers.assign(static_cast<size_t>(planner::num_layers(plan)), {});
    for (planner::LayerProfile& layer : profile.layers) layer.forward = 1, layer.backward = 2;
  }
  ASSIGN_OR_RETURN(const planner::ScheduleReport report,
                   planner::simulate_pipeline(profile, plan, 0));
  fmt::print("\n{}", planner::schedule_as_text(report, kDrawingColumns));
  fmt::print("{} until the last stage ends, stages work {:.1f} % of the time\n",
             measured.has_value() ? fmt::format("{:.4g} s", report.makespan)
                                  : fmt::format("{:.4g} units", report.makespan),
             100 * planner::busy_share(report));
  if (files.empty()) return {};
  const std::string title = planner::plan_summary(plan);
  RETURN_IF_ERROR(write_file_atomically(files + ".svg", planner::schedule_as_svg(report, title)));
  return write_file_atomically(files + ".trace.json",
                               planner::schedule_as_chrome_trace(report, title));
}

Status plan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const TrainConfig config,
                   read_train_config(options.job_file, options.overrides));
  ASSIGN_OR_RETURN(const std::optional<planner::StepProfile> profile,
                   find_profile(config, options.profile_file));
  ASSIGN_OR_RETURN(
      const planner::Plan plan,
      default_plan(config, options.gpus,
                   profile.has_value() ? layer_costs_of(*profile) : std::vector<double>()));
  print_plan(plan);
  if (options.show) RETURN_IF_ERROR(show_schedule(plan, profile, options.show_files));
  if (!options.output_file.empty()) {
    RETURN_IF_ERROR(
        write_file_atomically(options.output_file, planner::plan_to_json(plan).dump(1) + "\n"));
  }
  if (!profile.has_value()) {
    fmt::print("\nno profile yet, so no scale table: train a few steps, or give --profile\n");
    return {};
  }
  planner::ScaleRequest request = scale_request(config, plan, std::nullopt);
  request.max_gpus = options.gpus;
  ASSIGN_OR_RETURN(const planner::ScaleTable table, planner::build_scale_table(*profile, request));
  fmt::print("\n{}", scale_table_text(table));
  if (!table.note.empty()) fmt::print("{}\n", table.note);
  return {};
}

}  // namespace

int fingerprint_command(const std::string& job_file, const std::vector<std::string>& overrides) {
  const Result<TrainConfig> config = read_train_config(job_file, overrides);
  if (!config.ok()) {
    log_error("{}", config.status().message());
    return exit_code_for(config.status());
  }
  fmt::print("{}\n", numerics_fingerprint(*config));
  return kExitComplete;
}

int plan_command(const PlanOptions& options) {
  const Status status = plan(options);
  if (status.ok()) return kExitComplete;
  log_error("{}", status.message());
  return exit_code_for(status);
}

}  // namespace flextrain::trainer
