// SPDX-License-Identifier: MIT
#include "trainer/run/plan_choice.h"

#include <algorithm>
#include <limits>

#include "base/bounded_json.h"
#include "base/json.h"
#include "planner/predict.h"
#include "trainer/config/config_reader.h"
#include "trainer/run/step_clock.h"

namespace flextrain::trainer {
namespace {
constexpr double kSearchSeconds = 10;  // training waits for it
}  // namespace

Result<planner::Plan> regular_plan(const TrainConfig& config, int pipeline_parallel,
                                   int data_parallel, const std::vector<double>& layer_costs) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.no_ops = config.no_ops;
  layout.empty_stages = config.no_ops;  // who asks for so many stages gets them
  layout.data_parallel = data_parallel;
  layout.pipeline_parallel = pipeline_parallel;
  // One stage has nothing to interleave and no V.
  const bool alone = pipeline_parallel == 1, v_shape = config.schedule == "v-shape";
  layout.virtual_stages = alone ? 1 : v_shape ? 2 : std::max(1, config.virtual_stages);
  layout.global_batch = config.global_batch;
  layout.micro_batch_size = config.micro_batch_size;
  layout.numerics = config.numerics;
  // What a profile decides begins as 1F1B, and keeps everything.
  const bool open = config.schedule == "searched" || config.schedule == "auto";
  layout.schedule = open ? "1f1b" : alone && v_shape ? "zb-1p" : config.schedule;
  if (config.recompute != "auto") {
    ASSIGN_OR_RETURN(layout.recompute, planner::parse_recompute(config.recompute));
  }
  layout.layer_costs = layer_costs;
  ASSIGN_OR_RETURN(planner::Plan plan, planner::make_regular_plan(layout));
  if (config.memory_cap_bytes > 0 && !alone) {
    plan.schedule = "memory-min";
    plan.id = planner::plan_id(plan);
  }
  return plan;
}

bool wants_made_schedule(const TrainConfig& config, const planner::Plan& plan) {
  if (plan.schedule == "explicit") return false;
  const bool deep =
      std::any_of(plan.pipelines.begin(), plan.pipelines.end(),
                  [](const planner::Pipeline& pipeline) { return pipeline.stages.size() > 1; });
  if (config.schedule == "auto") return deep && plan.chunk_order == planner::ChunkOrder::kLoop;
  return deep && (config.schedule == "searched" || config.memory_cap_bytes > 0);
}

namespace {

// Of the named schedules that go with the Plan's placement and recomputation the fastest that keeps
// the cap; another one than the Plan's own only when it gains enough to change for.
Result<planner::PlannedSchedule> choose_named(const TrainConfig& config,
                                              const planner::StepProfile& profile,
                                              const planner::Plan& plan) {
  constexpr double kWorthIt = 0.02;
  const planner::MeasuredLayout measured = planner::measured_layout(profile, plan);
  planner::PlannedSchedule best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const char* schedule : {"1f1b", "zb-1p", "gpipe", "memory-min"}) {
    planner::Plan other = plan;
    other.schedule = schedule;
    ASSIGN_OR_RETURN(const planner::Prediction predicted,
                     planner::predict(profile, measured, other));
    const bool own = plan.schedule == schedule;
    if (own) best.given_makespan = predicted.step_seconds;
    if (config.memory_cap_bytes > 0 && predicted.peak_memory_bytes > config.memory_cap_bytes) {
      continue;
    }
    // The running one has the benefit of the doubt.
    const double weighed = predicted.step_seconds * (own ? 1 - kWorthIt : 1);
    if (weighed >= best_seconds) continue;
    best_seconds = weighed;
    best.makespan = predicted.step_seconds;
    best.text = fmt::format("{}, a step of {:.4g} s predicted", schedule, predicted.step_seconds);
    best.plan = std::move(other);
  }
  if (best.text.empty()) {
    return invalid_argument(
        "parallel.memory_cap_bytes ({}) is too small for every schedule of this layout",
        config.memory_cap_bytes);
  }
  best.plan.id = planner::plan_id(best.plan);
  return best;
}

}  // namespace

Result<planner::PlannedSchedule> make_schedule_for(const TrainConfig& config,
                                                   const planner::StepProfile& profile,
                                                   const planner::Plan& plan) {
  if (config.schedule == "auto") return choose_named(config, profile, plan);
  planner::ScheduleWish wish;
  wish.schedule = config.schedule;
  wish.memory_cap_bytes = config.memory_cap_bytes;
  const Stopwatch watch;
  wish.out_of_time = [&watch] { return watch.seconds() > kSearchSeconds; };
  Result<planner::PlannedSchedule> made = planner::plan_schedule(profile, plan, wish);
  if (!made.ok() && made.status().code() == StatusCode::kResourceExhausted) {
    return invalid_argument("parallel.memory_cap_bytes ({}) is too small for every schedule: {}",
                            config.memory_cap_bytes, made.status().message());
  }
  return made;
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
  // By itself no deeper than there are blocks; as deep as asked for.
  const int deepest = pp > 0 ? pp : config.model.layers + config.model.mtp_num_layers;
  for (int stages = std::min(ranks, deepest); stages >= 1; --stages) {
    if (ranks % stages != 0 || micro_batches % (ranks / stages) != 0) continue;
    if ((pp > 0 && stages != pp) || (dp > 0 && ranks / stages != dp)) continue;
    return regular_plan(config, stages, ranks / stages, layer_costs);
  }
  return invalid_argument(
      "{} ranks cannot be used: no pipeline degree up to model.layers ({}) divides them so that "
      "the "
      "rest, as data parallelism, divides the {} micro-batches of a step{}",
      ranks, deepest, micro_batches,
      pp > 0   ? fmt::format(" (parallel.pipeline_parallel = {})", pp)
      : dp > 0 ? fmt::format(" (parallel.data_parallel = {})", dp)
               : "");
}

Result<planner::Plan> read_plan(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_input_file(path, size_t{64} << 20));
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
  if (plan.num_mtp_heads != config.model.mtp_num_layers) {
    return invalid_argument("the Plan is for {} MTP heads, model.mtp_num_layers is {}",
                            plan.num_mtp_heads, config.model.mtp_num_layers);
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
