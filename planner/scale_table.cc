// SPDX-License-Identifier: MIT
#include "planner/scale_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "planner/limits.h"
#include "planner/placement.h"
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
      : profile_(profile), request_(request) {
    for (const LayerProfile& layer : profile.layers) {
      costs_.push_back(layer.forward + layer.backward);
      forward_ += layer.forward;
      backward_ += layer.backward;
      selective_ += layer.selective_seconds;
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
        add_candidates(dp, pp, by_gpus[pp * dp]);
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
  // One way to use a GPU count, and about how long a step takes (closed forms).
  struct Candidate {
    int data_parallel = 1, pipeline_parallel = 1, virtual_stages = 1;
    std::string schedule;
    Recompute recompute = Recompute::kNone;
    double estimate = 0;
  };

  int measured_gpus() const { return profile_.pipeline_parallel * profile_.data_parallel; }

  void add_candidates(int dp, int pp, std::vector<Candidate>& to) {
    std::set<int> stage_counts(request_.virtual_stages.begin(), request_.virtual_stages.end());
    if (stage_counts.empty()) stage_counts = {1, profile_.virtual_stages};
    std::vector<std::string> schedules = request_.schedules;
    if (schedules.empty()) schedules = {request_.schedule};
    std::vector<Recompute> recomputes = request_.recompute;
    if (recomputes.empty()) recomputes = {Recompute::kNone};
    std::set<std::tuple<int, std::string, Recompute>> seen;
    for (const std::string& schedule : schedules) {
      for (int virtual_stages : stage_counts) {
        // A V has two chunks; one stage has one.
        if (schedule == "v-shape") virtual_stages = 2;
        if (pp == 1) virtual_stages = 1;
        if (pp == 1 && schedule == "v-shape") continue;
        if (int64_t{pp} * virtual_stages > kMaxChunks) continue;
        for (const Recompute recompute : recomputes) {
          if (!seen.emplace(virtual_stages, schedule, recompute).second) continue;
          Candidate candidate{dp, pp, virtual_stages, schedule, recompute, 0};
          candidate.estimate = estimate(candidate);
          to.push_back(std::move(candidate));
        }
      }
    }
  }

  // Work and transfers of the fullest stage, the bubble that the schedule's closed form has with
  // equal stages, and the least that comes after the last stage. Only orders the candidates; what
  // counts is the simulation.
  double estimate(const Candidate& c) {
    const double m = static_cast<double>(request_.global_batch) /
                     (static_cast<double>(c.data_parallel) * request_.micro_batch_size);
    const double p = c.pipeline_parallel;
    double again = 0;
    if (c.recompute == Recompute::kFull) again = forward_;
    if (c.recompute == Recompute::kSelective) again = selective_;
    const double work = forward_ + backward_, stage = (work + again) / p;
    const double fullest = fullest_stage(c) * (work + again) / work;
    double bubble = stage;
    if (c.schedule == "1f1b") bubble /= c.virtual_stages;
    if (c.schedule == "zb-1p" || c.schedule == "v-shape") {
      bubble = (forward_ + again) / p / c.virtual_stages;
    }
    if (c.schedule == "memory-min") bubble = m * stage;
    // Every stage with a neighbour sends or receives twice per chunk and micro-batch.
    const double hop =
        profile_.transfer_seconds > 0 ? profile_.transfer_seconds : profile_.far_transfer_seconds;
    const double transfers = p > 1 ? 2 * c.virtual_stages * hop : 0;
    return m * (fullest + transfers) + (p - 1) * bubble +
           least_tail_seconds(profile_, measured_, c.pipeline_parallel, c.data_parallel);
  }

  // Of the placement that the candidate gets; the same for all its schedules and recomputations.
  double fullest_stage(const Candidate& c) {
    const ChunkOrder order = c.schedule == "v-shape" ? ChunkOrder::kV : ChunkOrder::kLoop;
    const auto [known, is_new] =
        fullest_stage_.try_emplace({c.pipeline_parallel, c.virtual_stages, order}, 0.0);
    if (!is_new) return known->second;
    PlacementRequest request;
    request.num_transformer_layers = request_.num_transformer_layers;
    request.num_mtp_heads = request_.num_mtp_heads;
    request.pipeline_parallel = c.pipeline_parallel;
    request.virtual_stages = c.virtual_stages;
    request.order = order;
    request.costs = costs_;
    const Result<LayerPlacement> placed = place_layers(request);
    double fullest = (forward_ + backward_) / c.pipeline_parallel;
    if (placed.ok()) {
      for (const auto& stage : *placed) {
        double sum = 0;
        for (const auto& chunk : stage) {
          for (const LayerId layer : chunk) sum += layer == kNoOp ? 0 : costs_[layer];
        }
        fullest = std::max(fullest, sum);
      }
    }
    return known->second = fullest;
  }

  RegularLayout layout(const Candidate& candidate) const {
    RegularLayout layout;
    layout.num_transformer_layers = request_.num_transformer_layers;
    layout.num_mtp_heads = request_.num_mtp_heads;
    layout.data_parallel = candidate.data_parallel;
    layout.pipeline_parallel = candidate.pipeline_parallel;
    layout.virtual_stages = candidate.virtual_stages;
    layout.global_batch = request_.global_batch;
    layout.micro_batch_size = request_.micro_batch_size;
    layout.numerics = request_.numerics;
    layout.schedule = candidate.schedule;
    layout.recompute = candidate.recompute;
    return layout;
  }

  Result<Plan> costed_plan(const Candidate& candidate) const {
    RegularLayout costed = layout(candidate);
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
      ASSIGN_OR_RETURN(plan, make_regular_plan(layout(measured_candidate())));
    }
    measured_ = measured_layout(profile_, plan);
    ASSIGN_OR_RETURN(const Prediction prediction, predict(profile_, measured_, plan));
    if (profile_.step_seconds > 0) correction_ = profile_.step_seconds / prediction.step_seconds;
    return {};
  }

  Candidate measured_candidate() const {
    return {profile_.data_parallel, profile_.pipeline_parallel, profile_.virtual_stages,
            request_.schedule,      Recompute::kNone,           0};
  }

  // One pipeline stands for all: they are alike.
  Result<Prediction> prediction_of(const Candidate& candidate) const {
    RegularLayout one = layout(candidate);
    one.data_parallel = 1;
    one.global_batch /= candidate.data_parallel;
    one.layer_costs = costs_;
    ASSIGN_OR_RETURN(const Plan plan, make_regular_plan(one));
    return predict(profile_, measured_, plan, {candidate.data_parallel, request_.zero_stage});
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

  // The fastest that fits. Candidates are simulated in the order of their estimates until some
  // that fit have been seen: the estimates differ from the simulation by the unevenness of the
  // stages, seldom by more than a few places in the order.
  Result<std::optional<ScaleEntry>> best_entry(std::vector<Candidate>& candidates) const {
    std::stable_sort(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.estimate < b.estimate; });
    constexpr int kEnough = 2;
    const Candidate* best = nullptr;
    Prediction prediction;
    int fitting = 0;
    for (const Candidate& candidate : candidates) {
      // The estimates leave out how the stages' unevenness adds to the bubble: the rest is slower.
      if (best != nullptr && candidate.estimate >= prediction.step_seconds) break;
      ASSIGN_OR_RETURN(const Prediction found, prediction_of(candidate));
      if (request_.memory_limit_bytes > 0 &&
          found.peak_memory_bytes > request_.memory_limit_bytes) {
        continue;
      }
      if (best == nullptr || found.step_seconds < prediction.step_seconds) {
        best = &candidate;
        prediction = found;
      }
      if (++fitting == kEnough) break;
    }
    if (best == nullptr) return std::optional<ScaleEntry>();
    ASSIGN_OR_RETURN(ScaleEntry result, entry(*best, prediction));
    return std::optional<ScaleEntry>(std::move(result));
  }

  // The job runs on this count now, so it stays whatever limits say.
  Result<ScaleEntry> measured_entry() const {
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
  std::vector<double> costs_;  // forward + backward per layer
  double forward_ = 0, backward_ = 0, selective_ = 0;
  std::map<std::tuple<int, int, ChunkOrder>, double> fullest_stage_;  // by PP, virtual stages
  MeasuredLayout measured_;
  double correction_ = 1.0;
};

}  // namespace

Result<ScaleTable> build_scale_table(const StepProfile& profile, const ScaleRequest& request) {
  RETURN_IF_ERROR(check_request(request));
  RETURN_IF_ERROR(check_profile(profile, request.num_transformer_layers, request.num_mtp_heads));
  return TableBuilder(profile, request).build();
}

}  // namespace flextrain::planner
