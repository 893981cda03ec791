// SPDX-License-Identifier: MIT
// A Plan's schedule made for measured costs under a memory cap, as explicit lists. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"

namespace flextrain::planner {

struct ScheduleWish {
  // "searched" (planner/schedule_search.h), or a family to be made for these costs and this cap.
  std::string schedule = "searched";
  int64_t memory_cap_bytes = 0;       // per rank, its static memory included; 0 = none
  int64_t max_expansions = 2000;      // of the search, per pipeline
  std::function<bool()> out_of_time;  // of the search; empty = never
};

struct PlannedSchedule {
  Plan plan;  // the given one with schedule "explicit"
  // Seconds until the last stage of the slowest pipeline ends, reduction and optimiser left out:
  // with these lists, with the given Plan's own schedule, and what no schedule gets below.
  double makespan = 0, given_makespan = 0, lower_bound = 0;
  std::string text;  // of the slowest pipeline, for people: "makespan 0.027 (lower bound …"
};

// kInvalidArgument for a profile that is not the Plan's; kResourceExhausted when the cap is too
// small for every schedule, with the stage and both figures.
Result<PlannedSchedule> plan_schedule(const StepProfile& profile, const Plan& plan,
                                      const ScheduleWish& wish);

}  // namespace flextrain::planner
