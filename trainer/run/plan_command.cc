// SPDX-License-Identifier: MIT
// flextrain-trainer plan: prints the plan that a launch would choose, and why.
#include <fmt/ranges.h>

#include <algorithm>

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
#include "trainer/run/trace_file.h"

namespace flextrain::trainer {
namespace {

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

void print_drawing(const planner::ScheduleReport& report, double end, const std::string& unit) {
  fmt::print("{}{:.4g} {} until the last stage ends, stages work {:.1f} % of the time\n",
             planner::schedule_as_text(report, kDrawingColumns, end), report.makespan, unit,
             100 * planner::busy_share(report));
}

Status write_drawings(const std::vector<planner::Drawing>& drawings, const std::string& files) {
  if (files.empty()) return {};
  RETURN_IF_ERROR(write_file_atomically(files + ".svg", planner::schedules_as_svg(drawings)));
  return write_file_atomically(files + ".trace.json", planner::schedules_as_chrome_trace(drawings));
}

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
  fmt::print("\n");
  print_drawing(report, 0, measured.has_value() ? "s" : "units");
  return write_drawings({{report, planner::plan_summary(plan)}}, files);
}

// The Plan of a trace: what its profile predicts, and below it, on the same scale, what happened.
Status show_measured(const TrainConfig& config, const PlanOptions& options,
                     const planner::StepProfile& profile) {
  ASSIGN_OR_RETURN(const MeasuredTimeline measured,
                   read_trace(options.trace_file.empty() ? config.output_dir + "/trace.json"
                                                         : options.trace_file));
  print_plan(measured.plan);
  ASSIGN_OR_RETURN(const planner::ScheduleReport predicted,
                   planner::simulate_pipeline(profile, measured.plan, 0));
  const double end = std::max(predicted.makespan, measured.report.makespan);
  fmt::print("\npredicted\n");
  print_drawing(predicted, end, "s");
  fmt::print("\nmeasured, the last profiled step; waiting counts as transfer\n");
  print_drawing(measured.report, end, "s");
  const std::string title = planner::plan_summary(measured.plan);
  return write_drawings(
      {{predicted, title + ": predicted"}, {measured.report, title + ": measured"}},
      options.show_files);
}

Status plan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const TrainConfig config,
                   read_train_config(options.job_file, options.overrides));
  ASSIGN_OR_RETURN(const std::optional<planner::StepProfile> profile,
                   find_profile(config, options.profile_file));
  if (options.measured) {
    if (!profile.has_value()) {
      return not_found(
          "--measured: there is no profile to predict with; train a few steps, or give "
          "--profile");
    }
    return show_measured(config, options, *profile);
  }
  ASSIGN_OR_RETURN(planner::Plan plan, default_plan(config, options.gpus,
                                                    profile.has_value() ? layer_costs_of(*profile)
                                                                        : std::vector<double>()));
  std::string search;
  if (profile.has_value() && wants_made_schedule(config, plan)) {
    ASSIGN_OR_RETURN(planner::PlannedSchedule made, make_schedule_for(config, *profile, plan));
    plan = std::move(made.plan);
    search = fmt::format("{} schedule: {}\n", config.schedule, made.text);
  }
  print_plan(plan);
  fmt::print("{}", search);
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
