// SPDX-License-Identifier: MIT
#include "planner/schedule.h"

#include <algorithm>
#include <array>

#include "planner/fixed_orders.h"
#include "planner/limits.h"
#include "planner/named_schedules.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {
namespace {

constexpr std::array<std::string_view, 10> kActionNames = {
    "Forward",      "Backward",     "Wgrad",     "SendForward", "RecvForward",
    "SendBackward", "RecvBackward", "Recompute", "Reduce",      "Step"};

}  // namespace

Status check_shape(const ScheduleShape& shape) {
  if (shape.stages < 1 || shape.virtual_stages < 1 || shape.micro_batches < 1) {
    return invalid_argument(
        "schedule: {} stages x {} virtual stages x {} micro-batches, each must be at least 1",
        shape.stages, shape.virtual_stages, shape.micro_batches);
  }
  if (shape.stages > kMaxChunks / shape.virtual_stages ||
      int64_t{shape.stages} * shape.virtual_stages * shape.micro_batches > kMaxUnitsOfWork) {
    return invalid_argument(
        "schedule: {} stages x {} virtual stages x {} micro-batches is more than {} chunks or {} "
        "chunks x micro-batches",
        shape.stages, shape.virtual_stages, shape.micro_batches, kMaxChunks, kMaxUnitsOfWork);
  }
  return {};
}

std::string_view action_kind_name(ActionKind kind) {
  return kActionNames[static_cast<size_t>(kind)];
}

Result<ActionKind> parse_action_kind(std::string_view name) {
  const auto found = std::find(kActionNames.begin(), kActionNames.end(), name);
  if (found == kActionNames.end()) return invalid_argument("action '{}' is unknown", name);
  return static_cast<ActionKind>(found - kActionNames.begin());
}

Result<ScheduleShape> shape_of(const Plan& plan, int pipeline) {
  if (pipeline < 0 || pipeline >= static_cast<int>(plan.pipelines.size())) {
    return invalid_argument("the Plan has no pipeline {}", pipeline);
  }
  const Pipeline& chosen = plan.pipelines[pipeline];
  if (chosen.stages.empty()) return invalid_argument("pipeline {} has no stages", pipeline);
  return ScheduleShape{static_cast<int>(chosen.stages.size()),
                       static_cast<int>(chosen.stages.front().chunks.size()), chosen.micro_batches,
                       plan.chunk_order};
}

Result<Schedule> make_1f1b(int stages, int virtual_stages, int micro_batches) {
  const ScheduleShape shape{stages, virtual_stages, micro_batches};
  RETURN_IF_ERROR(check_shape(shape));
  return run_1f1b(uniform_costs(shape, {}));
}

Result<Schedule> make_gpipe(int stages, int virtual_stages, int micro_batches) {
  const ScheduleShape shape{stages, virtual_stages, micro_batches};
  RETURN_IF_ERROR(check_shape(shape));
  return run_gpipe(uniform_costs(shape, {}));
}

Result<Schedule> schedule_of(const Plan& plan, int pipeline) {
  ASSIGN_OR_RETURN(const ScheduleShape shape, shape_of(plan, pipeline));
  if (plan.schedule == "explicit") {
    if (pipeline >= static_cast<int>(plan.explicit_actions.size())) {
      return invalid_argument("the Plan has no explicit actions for pipeline {}", pipeline);
    }
    return plan.explicit_actions[pipeline];
  }
  ASSIGN_OR_RETURN(const ScheduleFamily family, parse_plan_schedule(plan.schedule));
  return make_actions(family, named_costs(plan, plan.pipelines[pipeline], shape));
}

}  // namespace flextrain::planner
