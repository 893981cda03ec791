// SPDX-License-Identifier: MIT
// The ways to use a GPU count: layouts, schedules, virtual stages, recomputations, about how long a
// step takes and what it needs at least. Internal to planner/; pure.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/predict.h"
#include "planner/scale_table.h"

namespace flextrain::planner {

struct Candidate {
  int data_parallel = 1, pipeline_parallel = 1, virtual_stages = 1;
  std::string schedule;
  Recompute recompute = Recompute::kNone;
  double estimate = 0;  // seconds of a step, by closed forms: only orders the candidates
};

// Keeps what candidates share. Profile and request outlive it.
class CandidateMaker {
 public:
  CandidateMaker(const StepProfile& profile, const ScaleRequest& request);
  // What estimates scale reduction and optimiser by.
  void set_measured(const MeasuredLayout& measured) { measured_ = measured; }

  // Everything the request asks for on dp pipelines of pp stages.
  void add(int data_parallel, int pipeline_parallel, std::vector<Candidate>& to);
  // The layers placed by their measured costs.
  RegularLayout layout(const Candidate& candidate) const;
  // One of the candidate's pipelines, which are alike; its id is not set.
  Result<Plan> pipeline(const Candidate& candidate);

 private:
  double estimate(const Candidate& candidate);
  double fullest_stage(const Candidate& candidate);

  const StepProfile& profile_;
  const ScaleRequest& request_;
  std::vector<double> costs_;  // forward + backward per layer
  double forward_ = 0, backward_ = 0, selective_ = 0;
  MeasuredLayout measured_;
  // By PP, virtual stages and order: how the layers are placed, whatever schedule and
  // recomputation.
  using PlacementKey = std::tuple<int, int, ChunkOrder>;
  std::map<PlacementKey, Plan> placed_;
  std::map<PlacementKey, double> fullest_stage_;
};

}  // namespace flextrain::planner
