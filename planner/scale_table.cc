// SPDX-License-Identifier: MIT
#include "planner/scale_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "planner/limits.h"
#include "planner/predict.h"

namespace flextrain::planner {
namespace {

Status check_request(const ScaleRequest& request) {
  if (request.num_transformer_layers < 1 || request.num_transformer_layers > kMaxLayers) {
    return invalid_argument("scale table: {} transformer layers, must be 1 ... {}",
                            request.num_transformer_layers, kMaxLayers);
  }
  if (request.global_batch < 1 || request.micro_batch_size < 1 || request.tokens_per_step < 1) {
    return invalid_argument(
        "scale table: global batch {}, micro-batch size {} and tokens per step {} must be at least "
        "1",
        request.global_batch, request.micro_batch_size, request.tokens_per_step);
  }
  if (request.max_gpus < 1 || request.max_gpus > kMaxRanks) {
    return invalid_argument("scale table: at most {} GPUs asked for, must be 1 ... {}",
                            request.max_gpus, kMaxRanks);
  }
  if (request.min_data_parallel < 1 || request.max_data_parallel < request.min_data_parallel) {
    return invalid_argument("scale table: data parallel {} ... {} is no range from 1",
                            request.min_data_parallel, request.max_data_parallel);
  }
  if (request.memory_limit_bytes < 0 || !(request.significant_gain >= 0) ||
      !(request.speedup_tolerance >= 0)) {
    return invalid_argument(
        "scale table: memory limit, significant gain and speed-up tolerance must be 0 or more");
  }
  if (request.schedule != "1f1b" && request.schedule != "gpipe") {
    return invalid_argument("scale table: schedule '{}' is unknown; use 1f1b or gpipe",
                            request.schedule);
  }
  return {};
}

// Builds one entry after the other from what does not change between them.
class TableBuilder {
 public:
  TableBuilder(const StepProfile& profile, const ScaleRequest& request)
      : profile_(profile), request_(request) {
    for (const LayerProfile& layer : profile.layers) {
      costs_.push_back(layer.forward + layer.backward);
      forward_ += layer.forward;
      backward_ += layer.backward;
    }
  }

  Result<ScaleTable> build() {
    RETURN_IF_ERROR(calibrate());
    std::map<int, ScaleEntry> best;  // by GPU count
    for (int dp = request_.min_data_parallel;
         dp <= std::min(request_.max_data_parallel, request_.max_gpus); ++dp) {
      if (request_.global_batch % (int64_t{dp} * request_.micro_batch_size) != 0) continue;
      const int pp_limit = std::min(request_.num_transformer_layers, request_.max_gpus / dp);
      for (int pp = 1; pp <= pp_limit; ++pp) {
        // The measured layout's count is taken by the measurement.
        if (pp * dp == measured_gpus()) continue;
        for (const int virtual_stages : std::set<int>{1, pp > 1 ? profile_.virtual_stages : 1}) {
          RETURN_IF_ERROR(consider(dp, pp, virtual_stages, best));
        }
      }
    }
    RETURN_IF_ERROR(add_measured(best));
    ScaleTable table;
    table.measured_gpus = measured_gpus();
    for (auto& [gpus, entry] : best) table.entries.push_back(std::move(entry));
    filter_entries(table.entries, table.measured_gpus, request_);
    return table;
  }

 private:
  int measured_gpus() const { return profile_.pipeline_parallel * profile_.data_parallel; }

  RegularLayout layout(int dp, int pp, int virtual_stages) const {
    RegularLayout layout;
    layout.num_transformer_layers = request_.num_transformer_layers;
    layout.data_parallel = dp;
    layout.pipeline_parallel = pp;
    layout.virtual_stages = virtual_stages;
    layout.global_batch = request_.global_batch;
    layout.micro_batch_size = request_.micro_batch_size;
    layout.numerics = request_.numerics;
    layout.schedule = request_.schedule;
    return layout;
  }

  Result<Plan> costed_plan(int dp, int pp, int virtual_stages) const {
    RegularLayout costed = layout(dp, pp, virtual_stages);
    costed.layer_costs = costs_;
    ASSIGN_OR_RETURN(Plan plan, make_regular_plan(costed));
    if (request_.device_type.empty()) return plan;
    for (Pipeline& pipeline : plan.pipelines) {
      for (Stage& stage : pipeline.stages) stage.device_type = request_.device_type;
    }
    RETURN_IF_ERROR(validate_plan(plan));
    plan.id = plan_id(plan);
    return plan;
  }

  // The re-sharded profile of the measured layout itself tells how far prediction and wall clock
  // are apart (launch gaps, shared cores); the same factor is applied to every prediction, so that
  // entries compare with the measured one.
  Status calibrate() {
    Plan plan;
    if (request_.measured_plan.has_value()) {
      RETURN_IF_ERROR(validate_plan(*request_.measured_plan));
      plan = *request_.measured_plan;
      if (plan.num_transformer_layers != request_.num_transformer_layers) {
        return invalid_argument("scale table: the measured Plan has {} transformer layers, not {}",
                                plan.num_transformer_layers, request_.num_transformer_layers);
      }
    } else {
      ASSIGN_OR_RETURN(plan,
                       make_regular_plan(layout(profile_.data_parallel, profile_.pipeline_parallel,
                                                profile_.virtual_stages)));
    }
    measured_ = measured_layout(profile_, plan);
    ASSIGN_OR_RETURN(const Prediction prediction, predict(profile_, measured_, plan));
    if (profile_.step_seconds > 0) correction_ = profile_.step_seconds / prediction.step_seconds;
    return {};
  }

  Result<ScaleEntry> entry(int dp, int pp, int virtual_stages) const {
    ScaleEntry entry;
    ASSIGN_OR_RETURN(entry.plan, costed_plan(dp, pp, virtual_stages));
    ASSIGN_OR_RETURN(const Prediction prediction, predict(profile_, measured_, entry.plan));
    entry.shape.device_type = request_.device_type;
    entry.shape.gpus = dp * pp;
    entry.source = PredictionSource::kProfile;
    entry.peak_memory_bytes = prediction.peak_memory_bytes;
    entry.step_seconds = prediction.step_seconds * correction_;
    entry.tokens_per_second = static_cast<double>(request_.tokens_per_step) / entry.step_seconds;
    const int layers = request_.num_transformer_layers;
    entry.model_step_seconds =
        model_step_seconds(layers, pp, entry.plan.pipelines.front().micro_batches,
                           forward_ / layers, backward_ / layers);
    return entry;
  }

  Status consider(int dp, int pp, int virtual_stages, std::map<int, ScaleEntry>& best) const {
    if (int64_t{pp} * virtual_stages > kMaxChunks) return {};
    ASSIGN_OR_RETURN(ScaleEntry candidate, entry(dp, pp, virtual_stages));
    if (request_.memory_limit_bytes > 0 &&
        candidate.peak_memory_bytes > request_.memory_limit_bytes) {
      return {};
    }
    const auto [at, inserted] = best.try_emplace(dp * pp);
    if (inserted || candidate.tokens_per_second > at->second.tokens_per_second) {
      at->second = std::move(candidate);
    }
    return {};
  }

  // The job runs on this count now, so it stays whatever limits say.
  Status add_measured(std::map<int, ScaleEntry>& best) const {
    ASSIGN_OR_RETURN(ScaleEntry measured, entry(profile_.data_parallel, profile_.pipeline_parallel,
                                                profile_.virtual_stages));
    if (profile_.step_seconds > 0) {
      measured.step_seconds = profile_.step_seconds;
      measured.tokens_per_second =
          static_cast<double>(request_.tokens_per_step) / profile_.step_seconds;
    }
    measured.source = PredictionSource::kMeasured;
    best[measured_gpus()] = std::move(measured);
    return {};
  }

  const StepProfile& profile_;
  const ScaleRequest& request_;
  std::vector<double> costs_;  // forward + backward per layer
  double forward_ = 0, backward_ = 0;
  MeasuredLayout measured_;
  double correction_ = 1.0;
};

}  // namespace

Result<ScaleTable> build_scale_table(const StepProfile& profile, const ScaleRequest& request) {
  RETURN_IF_ERROR(check_request(request));
  RETURN_IF_ERROR(check_profile(profile, request.num_transformer_layers));
  return TableBuilder(profile, request).build();
}

}  // namespace flextrain::planner
