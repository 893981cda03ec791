// SPDX-License-Identifier: MIT
#include "planner/named_schedules.h"

#include <algorithm>

namespace flextrain::planner {
namespace {

int most_workspaces(const StageActions& actions, const ScheduleShape& shape, bool split) {
  std::vector<bool> open(static_cast<size_t>(shape.virtual_stages) * shape.micro_batches);
  int now = 0, most = 0;
  for (const Action& action : actions) {
    const bool opens =
        action.kind == ActionKind::kRecompute || (split && action.kind == ActionKind::kBackward);
    const bool closes = action.kind == (split ? ActionKind::kWgrad : ActionKind::kBackward);
    if (!opens && !closes) continue;
    const auto at = static_cast<size_t>(action.chunk) * shape.micro_batches +
                    static_cast<size_t>(action.micro_batch);
    if (at >= open.size()) continue;  // an explicit list is the checker's business
    if (opens && !open[at]) {
      open[at] = true;
      most = std::max(most, ++now);
    }
    if (closes && open[at]) {
      open[at] = false;
      --now;
    }
  }
  return most;
}

// Slots are handed out from 0 on, the lowest free one first (planner/order_run.cc).
int most_slots(const StageActions& actions) {
  int most = 0;
  for (const Action& action : actions) most = std::max(most, action.slot + 1);
  return most;
}

}  // namespace

PipelineCosts named_costs(const Plan& plan, const Pipeline& pipeline, const ScheduleShape& shape) {
  PipelineCosts costs = uniform_costs(shape, ChunkCosts{});
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      const auto& layers = pipeline.stages[stage].chunks[chunk];
      const bool recompute = std::any_of(layers.begin(), layers.end(), [&](LayerId layer) {
        return layer != kNoOp && plan.recompute[layer] != Recompute::kNone;
      });
      if (recompute) costs.chunks[stage][chunk].recompute = costs.chunks[stage][chunk].forward;
    }
  }
  return costs;
}

NamedSchedule describe_schedule(Schedule actions, const ScheduleShape& shape) {
  NamedSchedule described;
  described.split_backward =
      std::any_of(actions[0].begin(), actions[0].end(),
                  [](const Action& action) { return action.kind == ActionKind::kWgrad; });
  for (const StageActions& stage : actions) {
    described.slots.push_back(most_slots(stage));
    described.workspaces.push_back(most_workspaces(stage, shape, described.split_backward));
  }
  described.actions = std::move(actions);
  return described;
}

Result<std::shared_ptr<const NamedSchedule>> NamedSchedules::of(const Plan& plan, int index) {
  ASSIGN_OR_RETURN(const ScheduleShape shape, shape_of(plan, index));
  RETURN_IF_ERROR(check_shape(shape));
  if (plan.schedule == "explicit") {
    ASSIGN_OR_RETURN(Schedule actions, schedule_of(plan, index));
    return std::make_shared<const NamedSchedule>(describe_schedule(std::move(actions), shape));
  }
  ASSIGN_OR_RETURN(const ScheduleFamily family, parse_plan_schedule(plan.schedule));
  const PipelineCosts costs = named_costs(plan, plan.pipelines[index], shape);
  std::string recomputes;
  for (const auto& row : costs.chunks) {
    for (const ChunkCosts& chunk : row) recomputes += chunk.recompute > 0 ? 'R' : '-';
  }
  Key key{family,      shape.stages,         shape.virtual_stages, shape.micro_batches,
          shape.order, std::move(recomputes)};
  std::shared_ptr<const NamedSchedule>& made = made_[key];
  if (made != nullptr) return made;
  Result<Schedule> actions = [&]() -> Result<Schedule> {
    if (family != ScheduleFamily::kVShape) return make_actions(family, costs);
    std::get<3>(key) = deciding_micro_batches(shape);
    auto known = rules_.find(key);
    if (known == rules_.end()) {
      ASSIGN_OR_RETURN(ListRules rules, v_shape_rules(costs, VObjective::kMakespan));
      known = rules_.emplace(std::move(key), std::move(rules)).first;
    }
    return v_shape_by(costs, known->second);
  }();
  RETURN_IF_ERROR(actions.status());
  made = std::make_shared<const NamedSchedule>(describe_schedule(std::move(*actions), shape));
  return made;
}

}  // namespace flextrain::planner
