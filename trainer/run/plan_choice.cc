// SPDX-License-Identifier: MIT
#include "trainer/run/plan_choice.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/file.h"
#include "base/json.h"

namespace flextrain::trainer {

Result<planner::Plan> regular_plan(const TrainConfig& config, int pipeline_parallel,
                                   int data_parallel, const std::vector<double>& layer_costs) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.data_parallel = data_parallel;
  layout.pipeline_parallel = pipeline_parallel;
  // One stage has nothing to interleave and no V.
  const bool alone = pipeline_parallel == 1, v_shape = config.schedule == "v-shape";
  layout.virtual_stages = alone ? 1 : v_shape ? 2 : config.virtual_stages;
  layout.global_batch = config.global_batch;
  layout.micro_batch_size = config.micro_batch_size;
  layout.numerics = config.numerics;
  layout.schedule = alone && v_shape ? "zb-1p" : config.schedule;
  layout.layer_costs = layer_costs;
  return planner::make_regular_plan(layout);
}

Result<planner::Plan> default_plan(const TrainConfig& config, int ranks,
                                   const std::vector<double>& layer_costs) {
  const int pp = config.pipeline_parallel, dp = config.data_parallel;
  if (pp > 0 && dp > 0) {
    if (pp * dp != ranks) {
      return invalid_argument(
          "parallel.pipeline_parallel ({}) x parallel.data_parallel ({}) = {}, but there are {} "
          "ranks; set one of them to 0 to have it chosen",
          pp, dp, pp * dp, ranks);
    }
    return regular_plan(config, pp, dp, layer_costs);
  }
  const int micro_batches = config.global_batch / config.micro_batch_size;
  for (int stages = std::min(ranks, config.model.layers); stages >= 1; --stages) {
    if (ranks % stages != 0 || micro_batches % (ranks / stages) != 0) continue;
    if ((pp > 0 && stages != pp) || (dp > 0 && ranks / stages != dp)) continue;
    return regular_plan(config, stages, ranks / stages, layer_costs);
  }
  return invalid_argument(
      "{} ranks cannot be used: no pipeline degree up to model.layers ({}) divides them so that "
      "the "
      "rest, as data parallelism, divides the {} micro-batches of a step{}",
      ranks, config.model.layers, micro_batches,
      pp > 0   ? fmt::format(" (parallel.pipeline_parallel = {})", pp)
      : dp > 0 ? fmt::format(" (parallel.data_parallel = {})", dp)
               : "");
}

Result<planner::Plan> read_plan(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, size_t{64} << 20));
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(text, path));
  Result<planner::Plan> plan = planner::plan_from_json(json);
  if (!plan.ok()) return plan.status().with_context(path);
  return plan;
}

Status check_plan(const planner::Plan& plan, const TrainConfig& config, int ranks) {
  RETURN_IF_ERROR(planner::validate_plan(plan));
  if (planner::num_ranks(plan) != ranks) {
    return invalid_argument("the Plan {} needs {} ranks, but {} were started",
                            planner::plan_summary(plan), planner::num_ranks(plan), ranks);
  }
  if (plan.num_transformer_layers != config.model.layers) {
    return invalid_argument("the Plan is for {} transformer layers, model.layers is {}",
                            plan.num_transformer_layers, config.model.layers);
  }
  if (plan.micro_batch_size != config.micro_batch_size) {
    return invalid_argument(
        "the Plan's micro-batches have {} sequences, "
        "training.micro_batch_size is {}",
        plan.micro_batch_size, config.micro_batch_size);
  }
  if (planner::total_micro_batches(plan) * plan.micro_batch_size != config.global_batch) {
    return invalid_argument(
        "the Plan's micro-batches are {} sequences in all, "
        "training.global_batch is {}",
        planner::total_micro_batches(plan) * plan.micro_batch_size, config.global_batch);
  }
  if (plan.numerics != config.numerics) {
    return invalid_argument("the Plan's numerics are '{}', training.numerics is '{}'",
                            planner::numerics_name(plan.numerics),
                            planner::numerics_name(config.numerics));
  }
  return {};
}

std::vector<double> layer_costs_of(const planner::StepProfile& profile) {
  std::vector<double> costs;
  for (const planner::LayerProfile& layer : profile.layers) {
    costs.push_back(layer.forward + layer.backward);
  }
  return costs;
}

}  // namespace flextrain::trainer
