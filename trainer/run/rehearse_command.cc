// SPDX-License-Identifier: MIT
// flextrain-trainer rehearse: the job on a cluster that is not there (trainer/emulation).
#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "planner/predict.h"
#include "planner/table_refresh.h"
#include "trainer/config/config_reader.h"
#include "trainer/emulation/rehearsal.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/plan_choice.h"
#include "trainer/run/profile_report.h"
#include "trainer/run/trace_file.h"

namespace flextrain::trainer {
namespace {

double percent(double value, double of) { return 100 * (value / of - 1); }

Result<planner::Plan> plan_for(const TrainConfig& config, const RehearseOptions& options) {
  if (options.plan_file.empty()) return default_plan(config, options.gpus);
  ASSIGN_OR_RETURN(planner::Plan plan, read_plan(options.plan_file));
  const int ranks = options.gpus > 0 ? options.gpus : planner::num_ranks(plan);
  RETURN_IF_ERROR(check_plan(plan, config, ranks));
  return plan;
}

void print_rehearsal(const planner::Plan& plan, const RehearsalResult& run, double tokens) {
  fmt::print("{}\n", planner::plan_summary(plan));
  fmt::print(
      "step {:.4g} s (median of {} steps), {:.0f} tokens/s, {:.2f} GB on the fullest device\n",
      run.median_step_seconds, run.step_seconds.size(), tokens / run.median_step_seconds,
      static_cast<double>(run.peak_device_bytes) / 1e9);
}

// The table's entries of the sizes to try, in their order.
Result<std::vector<const planner::ScaleEntry*>> entries_to_try(
    const planner::ScaleTable& table, const std::vector<int>& sizes,
    const planner::ScaleRequest& request) {
  std::vector<const planner::ScaleEntry*> entries;
  for (const int gpus : sizes) {
    const auto entry =
        std::find_if(table.entries.begin(), table.entries.end(),
                     [&](const planner::ScaleEntry& e) { return e.shape.gpus == gpus; });
    if (entry == table.entries.end()) {
      return invalid_argument("--try {}: {}", gpus, planner::why_no_layout(request, gpus));
    }
    if (!entry->fits) {
      return invalid_argument("--try {}: {} ({})", gpus, entry->drop_rule,
                              planner::plan_summary(entry->plan));
    }
    entries.push_back(&*entry);
  }
  return entries;
}

// How far the table's promise for a size is from what that size then does.
Status try_size(const TrainConfig& config, const ClusterProfile& cluster, int steps,
                const planner::ScaleEntry& entry, std::vector<planner::MeasuredStep>& measured) {
  Result<RehearsalResult> rehearsed = rehearse(config, entry.plan, cluster, {steps, 0});
  if (!rehearsed.ok()) {
    return rehearsed.status().with_context(fmt::format("--try {}", entry.shape.gpus));
  }
  const RehearsalResult& run = *rehearsed;
  fmt::print("{:>4}  {:<9.4g}  {:<9.4g}  {:>+6.2f}     {:<9.2f}  {:<9.2f}  {:>+6.2f}     {}\n",
             entry.shape.gpus, entry.step_seconds, run.median_step_seconds,
             percent(entry.step_seconds, run.median_step_seconds),
             static_cast<double>(entry.peak_memory_bytes) / 1e9,
             static_cast<double>(run.peak_device_bytes) / 1e9,
             percent(static_cast<double>(entry.peak_memory_bytes),
                     static_cast<double>(run.peak_device_bytes)),
             planner::plan_summary(entry.plan));
  measured.push_back({entry.shape.gpus, run.median_step_seconds});
  return {};
}

Status write_files(const std::string& folder, const planner::Plan& plan, const RehearsalResult& run,
                   const planner::ScaleTable& table) {
  RETURN_IF_ERROR(make_directories(folder));
  // The files of two rehearsals that end together are not mixed.
  ASSIGN_OR_RETURN(const FileLock lock,
                   FileLock::acquire(folder + "/rehearsal.lock", std::chrono::minutes(5)));
  RETURN_IF_ERROR(write_file_atomically(folder + "/profile.json",
                                        planner::profile_to_json(run.profile).dump(1) + "\n"));
  RETURN_IF_ERROR(write_file_atomically(folder + "/scale_table.json",
                                        planner::scale_table_to_json(table).dump(1) + "\n"));
  std::vector<std::string> rows;
  for (size_t rank = 0; rank < run.traces.size(); ++rank) {
    rows.push_back(trace_rows(plan, static_cast<int>(rank), run.traces[rank]));
  }
  return write_file_atomically(folder + "/trace.json", trace_text(plan, rows));
}

Status rehearse_job(const RehearseOptions& options) {
  ASSIGN_OR_RETURN(TrainConfig config, read_train_config(options.job_file, options.overrides));
  if (config.model.vocab == 0) config.model.vocab = config.tokenizer_vocab;
  ASSIGN_OR_RETURN(const ClusterProfile cluster, read_cluster_profile(options.cluster_file));
  ASSIGN_OR_RETURN(const planner::Plan plan, plan_for(config, options));
  const auto profile_steps =
      std::max(1, static_cast<int>(std::min<int64_t>(config.profile_steps, 1000)));
  ASSIGN_OR_RETURN(const RehearsalResult run,
                   rehearse(config, plan, cluster, {options.steps, profile_steps}));
  planner::ScaleRequest request = scale_request(config, plan, std::nullopt);
  for (const int gpus : options.sizes) request.max_gpus = std::max(request.max_gpus, gpus);
  request.measured_plan = plan;
  request.device_type = cluster.device_type;
  request.memory_limit_bytes = static_cast<int64_t>(cluster.memory_gib * 1024 * 1024 * 1024);
  ASSIGN_OR_RETURN(planner::ScaleTable table, planner::build_scale_table(run.profile, request));
  ASSIGN_OR_RETURN(const std::vector<const planner::ScaleEntry*> tries,
                   entries_to_try(table, options.sizes, request));
  print_rehearsal(plan, run, static_cast<double>(request.tokens_per_step));
  std::vector<planner::MeasuredStep> measured;
  if (!tries.empty()) {
    fmt::print(
        "\nGPUs  predicted  rehearsed  error %     memory GB  rehearsed  error %     plan\n");
  }
  for (const planner::ScaleEntry* entry : tries) {
    RETURN_IF_ERROR(try_size(config, cluster, options.steps, *entry, measured));
  }
  ASSIGN_OR_RETURN(planner::RefreshedTable refreshed,
                   planner::refresh_scale_table(std::move(table), measured, request));
  fmt::print("\n{}", scale_table_text(refreshed.table));
  if (!refreshed.table.note.empty()) fmt::print("{}\n", refreshed.table.note);
  if (!refreshed.text.empty()) fmt::print("{}\n", refreshed.text);
  if (options.output_dir.empty()) return {};
  return write_files(options.output_dir, plan, run, refreshed.table);
}

}  // namespace

int rehearse_command(const RehearseOptions& options) {
  const Status status = rehearse_job(options);
  if (status.ok()) return kExitComplete;
  log_error("{}", status.message());
  return exit_code_for(status);
}

}  // namespace flextrain::trainer
