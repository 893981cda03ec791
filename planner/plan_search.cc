// SPDX-License-Identifier: MIT
#include "planner/plan_search.h"

#include <algorithm>

#include "planner/predict.h"
#include "planner/schedule_draw.h"
#include "planner/schedule_search.h"

namespace flextrain::planner {
namespace {

// A chunk of No-Ops takes no time, but the makers want an order of times: this share of the
// longest.
constexpr double kSmallestShare = 1e-6;

Result<PipelineCosts> capped_costs(const StepProfile& profile, const Plan& plan, int index,
                                   int64_t cap) {
  PipelineCosts costs = pipeline_costs(profile, plan, index);
  double longest = 0;
  for (const auto& row : costs.chunks) {
    for (const ChunkCosts& chunk : row)
      longest = std::max({longest, chunk.forward, chunk.backward});
  }
  for (auto& row : costs.chunks) {
    for (ChunkCosts& chunk : row) {
      for (double* time : {&chunk.forward, &chunk.backward}) {
        *time = std::max(*time, longest * kSmallestShare);
      }
    }
  }
  if (cap == 0) return costs;
  for (size_t s = 0; s < plan.pipelines[index].stages.size(); ++s) {
    const Stage& stage = plan.pipelines[index].stages[s];
    int64_t fixed = 0;
    for (const LayerId layer : held_layers(profile, stage)) {
      fixed += profile.layers[layer].static_bytes;
    }
    fixed /= static_cast<int64_t>(stage.ranks.size());
    if (fixed >= cap) {
      return resource_exhausted(
          "stage {} of pipeline {} holds {} bytes of weights, gradients and moments alone, the "
          "memory cap is {}",
          s, index, fixed, cap);
    }
    costs.memory_cap.push_back(static_cast<double>(cap - fixed));
  }
  return costs;
}

struct Made {
  MadeSchedule schedule;
  std::string text;
};

Result<Made> make_one(const PipelineCosts& costs, const ScheduleWish& wish) {
  if (wish.schedule == family_name(ScheduleFamily::kSearched)) {
    SearchOptions options;
    options.max_expansions = wish.max_expansions;
    options.out_of_time = wish.out_of_time;
    ASSIGN_OR_RETURN(SearchResult found, search_schedule(costs, options));
    std::string text = search_summary(found);
    return Made{std::move(found.best), std::move(text)};
  }
  ASSIGN_OR_RETURN(const ScheduleFamily family, parse_family(wish.schedule));
  ASSIGN_OR_RETURN(MadeSchedule schedule, make_schedule(family, costs));
  std::string text = fmt::format("makespan {:g} (lower bound {:g}), {}", schedule.report.makespan,
                                 schedule.lower_bound, wish.schedule);
  return Made{std::move(schedule), std::move(text)};
}

}  // namespace

Result<PlannedSchedule> plan_schedule(const StepProfile& profile, const Plan& plan,
                                      const ScheduleWish& wish) {
  RETURN_IF_ERROR(validate_plan(plan));
  RETURN_IF_ERROR(check_profile(profile, plan.num_transformer_layers, plan.num_mtp_heads));
  if (wish.memory_cap_bytes < 0) {
    return invalid_argument("schedule: a memory cap of {} bytes, must be 0 (none) or more",
                            wish.memory_cap_bytes);
  }
  PlannedSchedule result;
  result.plan = plan;
  result.plan.schedule = "explicit";
  result.plan.explicit_actions.clear();
  PipelineCosts last_costs;
  for (int index = 0; index < static_cast<int>(plan.pipelines.size()); ++index) {
    ASSIGN_OR_RETURN(const ScheduleReport given, simulate_pipeline(profile, plan, index));
    result.given_makespan = std::max(result.given_makespan, given.makespan);
    ASSIGN_OR_RETURN(PipelineCosts costs,
                     capped_costs(profile, plan, index, wish.memory_cap_bytes));
    // Pipelines of a regular Plan are alike.
    if (index > 0 && costs.shape == last_costs.shape && costs.chunks == last_costs.chunks &&
        costs.memory_cap == last_costs.memory_cap) {
      result.plan.explicit_actions.push_back(result.plan.explicit_actions.back());
      continue;
    }
    ASSIGN_OR_RETURN(Made made, make_one(costs, wish));
    if (made.schedule.report.makespan > result.makespan) {
      result.makespan = made.schedule.report.makespan;
      result.text = std::move(made.text);
    }
    result.lower_bound = std::max(result.lower_bound, made.schedule.lower_bound);
    result.plan.explicit_actions.push_back(std::move(made.schedule.actions));
    last_costs = std::move(costs);
  }
  RETURN_IF_ERROR(validate_plan(result.plan));
  result.plan.id = plan_id(result.plan);
  return result;
}

}  // namespace flextrain::planner
