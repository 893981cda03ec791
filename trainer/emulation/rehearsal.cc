// SPDX-License-Identifier: MIT
#include "trainer/emulation/rehearsal.h"

#include <algorithm>

#include "planner/predict.h"
#include "trainer/emulation/emulated_backend.h"
#include "trainer/emulation/emulated_communicator.h"
#include "trainer/emulation/rank_scheduler.h"

namespace flextrain::trainer {
namespace {

class NoData final : public BatchSource {
 public:
  void training_sample(int64_t, std::span<int32_t>) const override {}
  void evaluation_sample(int64_t, std::span<int32_t>) const override {}
};

class Rehearsal {
 public:
  Rehearsal(const TrainConfig& config, const planner::Plan& plan, const ClusterProfile& cluster,
            const RehearsalOptions& options)
      : config_(config),
        plan_(plan),
        cluster_(cluster),
        options_(options),
        ranks_(planner::num_ranks(plan)),
        fabric_(cluster, scheduler_, ranks_) {
    result_.traces.resize(static_cast<size_t>(ranks_));
    step_ends_.resize(static_cast<size_t>(1 + options.profile_steps + options.steps));
  }

  Result<RehearsalResult> run() {
    RETURN_IF_ERROR(scheduler_.run(ranks_, [this](int rank) { return run_rank(rank); }));
    for (size_t step = static_cast<size_t>(options_.profile_steps) + 1; step < step_ends_.size();
         ++step) {
      result_.step_seconds.push_back(step_ends_[step] - step_ends_[step - 1]);
    }
    std::vector<double> sorted = result_.step_seconds;
    if (!sorted.empty()) {
      std::sort(sorted.begin(), sorted.end());
      result_.median_step_seconds =
          (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    }
    return std::move(result_);
  }

 private:
  Status run_rank(int rank) {
    const std::unique_ptr<Communicator> world = fabric_.world();
    ASSIGN_OR_RETURN(
        const std::unique_ptr<Engine> engine,
        make_engine(config_, plan_, *world, make_emulated_backend(cluster_, scheduler_, rank)));
    result_.peak_device_bytes = std::max(result_.peak_device_bytes, engine->device_bytes());
    result_.peak_static_bytes = std::max(result_.peak_static_bytes, engine->static_bytes());
    for (size_t step = 0; step < step_ends_.size(); ++step) {
      const auto number = static_cast<int64_t>(step);
      const bool profile = number >= 1 && number <= options_.profile_steps;
      RETURN_IF_ERROR(
          engine->train_step(number, number * config_.global_batch, NoData(), false, profile)
              .status());
      step_ends_[step] = std::max(step_ends_[step], scheduler_.now());
      if (options_.profile_steps == 0 || number != options_.profile_steps) continue;
      ASSIGN_OR_RETURN(planner::StepProfile profiled, engine->profile());
      if (rank == 0) result_.profile = std::move(profiled);
      result_.traces[static_cast<size_t>(rank)] = engine->trace();
      // Gathering it is no part of the next step.
      RETURN_IF_ERROR(world->barrier());
      step_ends_[step] = std::max(step_ends_[step], scheduler_.now());
    }
    return {};
  }

  const TrainConfig& config_;
  const planner::Plan& plan_;
  const ClusterProfile& cluster_;
  const RehearsalOptions& options_;
  const int ranks_;
  RankScheduler scheduler_;
  EmulatedFabric fabric_;
  std::vector<double> step_ends_;  // when the last rank had done it
  RehearsalResult result_;
};

}  // namespace

Result<RehearsalResult> rehearse(const TrainConfig& config, const planner::Plan& plan,
                                 const ClusterProfile& cluster, const RehearsalOptions& options) {
  return Rehearsal(config, plan, cluster, options).run();
}

Result<PredictionCheck> check_prediction(const TrainConfig& config, const ClusterProfile& cluster,
                                         const RehearsalResult& profiled,
                                         const planner::Plan& profiled_plan,
                                         const planner::Plan& plan) {
  const planner::StepProfile& profile = profiled.profile;
  const planner::MeasuredLayout measured = planner::measured_layout(profile, profiled_plan);
  ASSIGN_OR_RETURN(const planner::Prediction known,
                   planner::predict(profile, measured, profiled_plan));
  ASSIGN_OR_RETURN(const planner::Prediction prediction, planner::predict(profile, measured, plan));
  ASSIGN_OR_RETURN(const RehearsalResult run, rehearse(config, plan, cluster, {5, 0}));
  PredictionCheck check;
  check.predicted_seconds = prediction.step_seconds * profile.step_seconds / known.step_seconds;
  check.rehearsed_seconds = run.median_step_seconds;
  check.predicted_bytes = prediction.peak_memory_bytes;
  check.rehearsed_bytes = run.peak_device_bytes;
  return check;
}

}  // namespace flextrain::trainer
