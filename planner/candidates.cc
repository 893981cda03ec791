// SPDX-License-Identifier: MIT
#include "planner/candidates.h"

#include <algorithm>
#include <set>

#include "planner/limits.h"

namespace flextrain::planner {

CandidateMaker::CandidateMaker(const StepProfile& profile, const ScaleRequest& request)
    : profile_(profile), request_(request) {
  for (const LayerProfile& layer : profile.layers) {
    costs_.push_back(layer.forward + layer.backward);
    forward_ += layer.forward;
    backward_ += layer.backward;
    selective_ += layer.selective_seconds;
  }
}

void CandidateMaker::add(int dp, int pp, std::vector<Candidate>& to) {
  std::set<int> stage_counts(request_.virtual_stages.begin(), request_.virtual_stages.end());
  if (stage_counts.empty()) stage_counts = {1, profile_.virtual_stages};
  std::vector<std::string> schedules = request_.schedules;
  if (schedules.empty()) schedules = {request_.schedule};
  std::vector<Recompute> recomputes = request_.recompute;
  if (recomputes.empty()) recomputes = {Recompute::kNone};
  const int blocks = request_.num_transformer_layers + request_.num_mtp_heads;
  std::set<std::tuple<int, std::string, Recompute>> seen;
  for (const std::string& schedule : schedules) {
    for (int virtual_stages : stage_counts) {
      // A V has two chunks; one stage has one.
      if (schedule == "v-shape") virtual_stages = 2;
      if (pp == 1) virtual_stages = 1;
      if (pp == 1 && schedule == "v-shape") continue;
      const int64_t chunks = int64_t{pp} * virtual_stages;
      if (chunks > kMaxChunks) continue;
      // Chunks of No-Ops alone cost messages and save nothing.
      if (virtual_stages > 1 && chunks > blocks) continue;
      for (const Recompute recompute : recomputes) {
        if (!seen.emplace(virtual_stages, schedule, recompute).second) continue;
        Candidate candidate{dp, pp, virtual_stages, schedule, recompute, 0};
        candidate.estimate = estimate(candidate);
        to.push_back(std::move(candidate));
      }
    }
  }
}

RegularLayout CandidateMaker::layout(const Candidate& candidate) const {
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
  layout.layer_costs = costs_;
  layout.no_ops = request_.no_ops;
  layout.empty_stages = request_.no_ops;  // the measured layout may have some
  return layout;
}

Result<Plan> CandidateMaker::pipeline(const Candidate& candidate) {
  const ChunkOrder order = candidate.schedule == "v-shape" ? ChunkOrder::kV : ChunkOrder::kLoop;
  const PlacementKey key{candidate.pipeline_parallel, candidate.virtual_stages, order};
  auto placed = placed_.find(key);
  if (placed == placed_.end()) {
    RegularLayout one = layout(candidate);
    one.data_parallel = 1;
    one.global_batch = one.micro_batch_size;
    ASSIGN_OR_RETURN(Plan made, make_regular_plan(one));
    placed = placed_.emplace(key, std::move(made)).first;
  }
  Plan plan = placed->second;
  plan.id.clear();
  plan.schedule = candidate.schedule;
  plan.pipelines.front().micro_batches =
      request_.global_batch / (candidate.data_parallel * request_.micro_batch_size);
  for (LayerId layer = 1; layer < num_layers(plan); ++layer) {
    if (is_block(plan, layer)) plan.recompute[layer] = candidate.recompute;
  }
  return plan;
}

// Work and transfers of the fullest stage, the bubble that the schedule's closed form has with
// equal stages, and the least that comes after the last stage.
double CandidateMaker::estimate(const Candidate& c) {
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
double CandidateMaker::fullest_stage(const Candidate& c) {
  const ChunkOrder order = c.schedule == "v-shape" ? ChunkOrder::kV : ChunkOrder::kLoop;
  const auto [known, is_new] =
      fullest_stage_.try_emplace({c.pipeline_parallel, c.virtual_stages, order}, 0.0);
  if (!is_new) return known->second;
  double fullest = (forward_ + backward_) / c.pipeline_parallel;
  if (const Result<Plan> plan = pipeline(c); plan.ok()) {
    for (const Stage& stage : plan->pipelines.front().stages) {
      double sum = 0;
      for (const auto& chunk : stage.chunks) {
        for (const LayerId layer : chunk) sum += layer == kNoOp ? 0 : costs_[layer];
      }
      fullest = std::max(fullest, sum);
    }
  }
  return known->second = fullest;
}

}  // namespace flextrain::planner
