// SPDX-License-Identifier: MIT
#include "planner/scale_table.h"

#include <algorithm>
#include <map>

#include "planner/candidates.h"
#include "planner/limits.h"
#include "planner/named_schedules.h"
#include "planner/predict.h"
#include "planner/schedule_family.h"

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
  if (request.min_gpus < 1 || request.min_gpus > request.max_gpus) {
    return invalid_argument("scale table: {} ... {} GPUs is no range from 1", request.min_gpus,
                            request.max_gpus);
  }
  if (request.num_mtp_heads < 0 || request.num_mtp_heads > kMaxMtpHeads || request.zero_stage < 0 ||
      request.zero_stage > 3) {
    return invalid_argument("scale table: {} MTP heads and ZeRO stage {}, must be 0 ... {} and 3",
                            request.num_mtp_heads, request.zero_stage, kMaxMtpHeads);
  }
  for (const int stages : request.virtual_stages) {
    if (stages >= 1 && stages <= kMaxChunks) continue;
    return invalid_argument("scale table: {} virtual stages, must be 1 ... {}", stages, kMaxChunks);
  }
  RETURN_IF_ERROR(parse_plan_schedule(request.schedule).status().with_context("scale table"));
  for (const std::string& schedule : request.schedules) {
    RETURN_IF_ERROR(parse_plan_schedule(schedule).status().with_context("scale table"));
  }
  return {};
}

// Builds one entry after the other from what does not change between them.
class TableBuilder {
 public:
  TableBuilder(const StepProfile& profile, const ScaleRequest& request)
      : profile_(profile), request_(request), maker_(profile, request) {
    for (const LayerProfile& layer : profile.layers) {
      forward_ += layer.forward;
      backward_ += layer.backward;
    }
  }

  Result<ScaleTable> build() {
    RETURN_IF_ERROR(calibrate());
    std::map<int, std::vector<Candidate>> by_gpus;
    for (int dp = request_.min_data_parallel;
         dp <= std::min(request_.max_data_parallel, request_.max_gpus); ++dp) {
      if (request_.global_batch % (int64_t{dp} * request_.micro_batch_size) != 0) continue;
      const int pp_limit = std::min(request_.num_transformer_layers + request_.num_mtp_heads,
                                    request_.max_gpus / dp);
      for (int pp = 1; pp <= pp_limit; ++pp) {
        // The measured layout's count is taken by the measurement.
        if (pp * dp == measured_gpus() || pp * dp < request_.min_gpus) continue;
        maker_.add(dp, pp, by_gpus[pp * dp]);
      }
    }
    ScaleTable table;
    table.measured_gpus = measured_gpus();
    by_gpus[measured_gpus()];  // its place in the order
    for (auto& [gpus, candidates] : by_gpus) {
      if (gpus == measured_gpus()) {
        ASSIGN_OR_RETURN(ScaleEntry measured, measured_entry());
        table.entries.push_back(std::move(measured));
        continue;
      }
      ASSIGN_OR_RETURN(std::optional<ScaleEntry> best, best_entry(candidates));
      if (best.has_value()) table.entries.push_back(std::move(*best));
    }
    filter_entries(table.entries, table.measured_gpus, request_);
    table.note = table_note(table.entries, table.measured_gpus);
    return table;
  }

 private:
  int measured_gpus() const { return profile_.pipeline_parallel * profile_.data_parallel; }

  Result<Plan> costed_plan(const Candidate& candidate) const {
    ASSIGN_OR_RETURN(Plan plan, make_regular_plan(maker_.layout(candidate)));
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
      RegularLayout unit_costs = maker_.layout(measured_candidate());
      unit_costs.layer_costs.clear();
      ASSIGN_OR_RETURN(plan, make_regular_plan(unit_costs));
    }
    measured_ = measured_layout(profile_, plan);
    maker_.set_measured(measured_);
    ASSIGN_OR_RETURN(const Prediction prediction, predict(profile_, measured_, plan));
    if (profile_.step_seconds > 0) correction_ = profile_.step_seconds / prediction.step_seconds;
    return {};
  }

  // How the job runs now, as far as a regular Plan has words for it.
  Candidate measured_candidate() const {
    Candidate candidate{profile_.data_parallel, profile_.pipeline_parallel, profile_.virtual_stages,
                        request_.schedule,      Recompute::kNone,           0};
    if (!request_.measured_plan.has_value()) {
      if (request_.recompute.size() == 1) candidate.recompute = request_.recompute.front();
      if (candidate.schedule == "v-shape" && candidate.virtual_stages != 2) {
        candidate.schedule = "zb-1p";
      }
      return candidate;
    }
    const Plan& plan = *request_.measured_plan;
    if (plan.schedule != "explicit") candidate.schedule = plan.schedule;
    const bool v_shape = plan.chunk_order == ChunkOrder::kV && profile_.virtual_stages == 2;
    if (v_shape != (candidate.schedule == "v-shape")) {
      candidate.schedule = v_shape ? "v-shape" : "1f1b";
    }
    candidate.recompute = *std::max_element(plan.recompute.begin(), plan.recompute.end());
    return candidate;
  }

  Result<Prediction> prediction_of(const Candidate& candidate) {
    ASSIGN_OR_RETURN(const Plan plan, maker_.pipeline(candidate));
    return predict(profile_, measured_, plan, options(candidate));
  }

  PredictOptions options(const Candidate& candidate) {
    return {candidate.data_parallel, request_.zero_stage, &schedules_};
  }

  Result<ScaleEntry> entry(const Candidate& candidate, const Prediction& prediction) const {
    ScaleEntry entry;
    ASSIGN_OR_RETURN(entry.plan, costed_plan(candidate));
    entry.shape.device_type = request_.device_type;
    entry.shape.gpus = candidate.data_parallel * candidate.pipeline_parallel;
    entry.source = PredictionSource::kProfile;
    entry.peak_memory_bytes = prediction.peak_memory_bytes;
    entry.step_seconds = entry.predicted_step_seconds = prediction.step_seconds * correction_;
    entry.tokens_per_second = static_cast<double>(request_.tokens_per_step) / entry.step_seconds;
    entry.overhead_seconds =
        overhead_seconds(profile_, measured_, entry.shape.gpus, prediction.fullest_static_bytes);
    const int layers = request_.num_transformer_layers;
    entry.model_step_seconds = model_step_seconds(layers, candidate.pipeline_parallel,
                                                  entry.plan.pipelines.front().micro_batches,
                                                  forward_ / layers, backward_ / layers);
    return entry;
  }

  // A candidate that does not fit, and what it needs, at least.
  struct Unfit {
    const Candidate* candidate = nullptr;
    int64_t bytes = 0;
    bool exact = false;
  };

  // What it needs, where that is more than the limit; else nothing.
  Result<std::optional<Unfit>> beyond_limit(const Candidate& candidate) {
    const int64_t limit = request_.memory_limit_bytes;
    if (limit == 0) return std::optional<Unfit>();
    ASSIGN_OR_RETURN(const Plan plan, maker_.pipeline(candidate));
    const int64_t least = least_memory_bytes(profile_, plan, options(candidate));
    if (least > limit) return std::optional(Unfit{&candidate, least, false});
    ASSIGN_OR_RETURN(const int64_t bytes, peak_memory_bytes(profile_, plan, options(candidate)));
    if (bytes > limit) return std::optional(Unfit{&candidate, bytes, true});
    return std::optional<Unfit>();
  }

  // The one that needs least. Lower bounds tell which to look at.
  Result<const Candidate*> tightest(std::vector<Unfit>& unfit) {
    std::stable_sort(unfit.begin(), unfit.end(),
                     [](const Unfit& a, const Unfit& b) { return a.bytes < b.bytes; });
    const Candidate* best = nullptr;
    int64_t least = 0;
    for (const Unfit& one : unfit) {
      if (best != nullptr && one.bytes >= least) break;
      int64_t bytes = one.bytes;
      if (!one.exact) {
        ASSIGN_OR_RETURN(const Plan plan, maker_.pipeline(*one.candidate));
        ASSIGN_OR_RETURN(bytes, peak_memory_bytes(profile_, plan, options(*one.candidate)));
      }
      if (best != nullptr && bytes >= least) continue;
      best = one.candidate;
      least = bytes;
    }
    return best;
  }

  // The fastest that fits. Candidates are simulated in the order of their estimates until some
  // that fit have been seen: the estimates differ from the simulation by the unevenness of the
  // stages, seldom by more than a few places in the order. Where nothing fits: the one that needs
  // least.
  Result<std::optional<ScaleEntry>> best_entry(std::vector<Candidate>& candidates) {
    std::stable_sort(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.estimate < b.estimate; });
    constexpr int kEnough = 2;
    schedules_.forget_lists();  // those of another count have other shapes
    const Candidate* best = nullptr;
    Prediction best_prediction;
    std::vector<Unfit> unfit;
    int fitting = 0;
    for (const Candidate& candidate : candidates) {
      // The estimates leave out how the stages' unevenness adds to the bubble: the rest is slower.
      if (best != nullptr && candidate.estimate >= best_prediction.step_seconds) break;
      ASSIGN_OR_RETURN(const std::optional<Unfit> too_large, beyond_limit(candidate));
      if (too_large.has_value()) {
        unfit.push_back(*too_large);
        continue;
      }
      ASSIGN_OR_RETURN(const Prediction prediction, prediction_of(candidate));
      if (best == nullptr || prediction.step_seconds < best_prediction.step_seconds) {
        best = &candidate;
        best_prediction = prediction;
      }
      if (++fitting == kEnough) break;
    }
    if (best == nullptr && !unfit.empty()) {
      ASSIGN_OR_RETURN(best, tightest(unfit));
      ASSIGN_OR_RETURN(best_prediction, prediction_of(*best));
    }
    if (best == nullptr) return std::optional<ScaleEntry>();
    ASSIGN_OR_RETURN(ScaleEntry result, entry(*best, best_prediction));
    return std::optional<ScaleEntry>(std::move(result));
  }

  // The job runs on this count now, so it stays whatever limits say.
  Result<ScaleEntry> measured_entry() {
    const Candidate candidate = measured_candidate();
    ASSIGN_OR_RETURN(const Prediction prediction, prediction_of(candidate));
    ASSIGN_OR_RETURN(ScaleEntry measured, entry(candidate, prediction));
    if (profile_.step_seconds > 0) {
      measured.step_seconds = profile_.step_seconds;
      measured.tokens_per_second =
          static_cast<double>(request_.tokens_per_step) / profile_.step_seconds;
    }
    measured.source = PredictionSource::kMeasured;
    return measured;
  }

  const StepProfile& profile_;
  const ScaleRequest& request_;
  CandidateMaker maker_;
  NamedSchedules schedules_;
  double forward_ = 0, backward_ = 0;
  MeasuredLayout measured_;
  double correction_ = 1.0;
};

}  // namespace

std::string why_no_layout(const ScaleRequest& request, int gpus) {
  const int blocks = request.num_transformer_layers + request.num_mtp_heads;
  return fmt::format(
      "{} GPUs are no data x pipeline parallel with data parallel from {} to {} dividing the {} "
      "micro-batches of a step and pipeline parallel at most {}, the transformer layers{}{}",
      gpus, request.min_data_parallel, request.max_data_parallel,
      request.global_batch / request.micro_batch_size, blocks,
      request.num_mtp_heads > 0 ? " and MTP blocks" : "",
      request.no_ops ? "" : "; No-Ops, which would fill more stages, are forbidden");
}

Result<ScaleTable> build_scale_table(const StepProfile& profile, const ScaleRequest& request) {
  RETURN_IF_ERROR(check_request(request));
  RETURN_IF_ERROR(check_profile(profile, request.num_transformer_layers, request.num_mtp_heads));
  return TableBuilder(profile, request).build();
}

}  // namespace flextrain::planner
