// SPDX-License-Identifier: MIT
// The schedules that Plans name: their lists follow from the Plan alone, so who looks at many Plans
// keeps them. Internal to planner/; pure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "planner/schedule_family.h"
#include "planner/v_schedule.h"

namespace flextrain::planner {

// The costs that a named schedule is made for: every chunk alike, as they must follow from the Plan
// alone. A chunk with a layer to recompute does its forward again, as long as the first one.
PipelineCosts named_costs(const Plan& plan, const Pipeline& pipeline, const ScheduleShape& shape);

struct NamedSchedule {
  Schedule actions;
  bool split_backward = false;
  // Per stage, most at once: slots, and micro-batches between their Recompute (or, split, their
  // Backward) and the last action that needs what was computed there.
  std::vector<int> slots, workspaces;
};
NamedSchedule describe_schedule(Schedule actions, const ScheduleShape& shape);

class NamedSchedules {
 public:
  // An explicit one is not kept.
  Result<std::shared_ptr<const NamedSchedule>> of(const Plan& plan, int pipeline);
  // Forgets the lists; what was expensive to find out and is small stays.
  void forget_lists() { made_.clear(); }

 private:
  // Family, stages, virtual stages, micro-batches, order, which chunks have a Recompute.
  using Key = std::tuple<ScheduleFamily, int, int, int, ChunkOrder, std::string>;
  std::map<Key, std::shared_ptr<const NamedSchedule>> made_;
  std::map<Key, ListRules> rules_;  // of V shapes, of so many micro-batches as decide them
};

}  // namespace flextrain::planner
