// SPDX-License-Identifier: MIT
#include "planner/schedule_family.h"

#include <algorithm>
#include <cmath>

#include "planner/fixed_orders.h"
#include "planner/list_scheduler.h"
#include "planner/v_schedule.h"

namespace flextrain::planner {
namespace {

// Micro-batches that 1F1B holds on its first stage, in activations of one chunk: what zb-1p may
// hold. Plain: one per stage; interleaved: its warm-up and one more.
int activations_of_1f1b(const ScheduleShape& shape) {
  const int p = shape.stages, v = shape.virtual_stages;
  const int held = v == 1 ? p : 2 * (p - 1) + (v - 1) * p + 1;
  return std::min(held, v * shape.micro_batches);
}

// The best of the rule's variants under these very costs. `ahead`: 1F1B's micro-batches in flight
// times this are admitted besides, as plain 1F1B has them (one per later stage and its own).
Result<Schedule> best_listed(const PipelineCosts& costs, int ahead) {
  const ScheduleShape& shape = costs.shape;
  Status refused;
  OrderRun best;
  bool found = false;
  const double least = makespan_lower_bound(costs);
  const std::pair<Preference, Pick> variants[] = {{Preference::kForward, Pick::kLater},
                                                  {Preference::kBackward, Pick::kLater},
                                                  {Preference::kForward, Pick::kEarlier},
                                                  {Preference::kBackward, Pick::kEarlier}};
  for (const auto& [preference, pick] : variants) {
    if (pick == Pick::kEarlier && shape.virtual_stages == 1) continue;
    for (const double patience : {0.0, 0.5}) {
      if (found && best.makespan <= least * (1 + 1e-12)) break;
      ListRules rules;
      rules.activations = std::max(ahead * activations_of_1f1b(shape), shape.virtual_stages);
      rules.stages.assign(shape.stages, {preference, pick, pick == Pick::kLater});
      rules.patience = patience;
      if (shape.virtual_stages == 1) {
        for (int stage = 0; stage < shape.stages; ++stage) {
          rules.credits.push_back(ahead * (shape.stages - stage) - (ahead - 1));
        }
      }
      const Result<ListRun> listed = list_orders(costs, rules);
      if (!listed.ok()) {
        refused = listed.status();
        continue;
      }
      const WorkTimes times(costs, true);
      if (found && earliest_end(shape, listed->orders, times) >= best.makespan) continue;
      OrderRun run = run_orders(shape, listed->orders, times, false);
      if (!run.stuck.empty()) return internal_error("schedule: an order cannot be run");
      if (found && run.makespan >= best.makespan) continue;
      best = std::move(run);
      found = true;
    }
  }
  if (!found) return refused;
  return std::move(best.schedule);
}

Status check_caps(const PipelineCosts& costs, const ScheduleReport& report, ScheduleFamily family) {
  for (size_t stage = 0; stage < costs.memory_cap.size(); ++stage) {
    if (report.peak_memory[stage] <= costs.memory_cap[stage] * (1 + 1e-9)) continue;
    return resource_exhausted("schedule: {} needs {:g} on stage {}, its memory cap is {:g}",
                              family_name(family), report.peak_memory[stage], stage,
                              costs.memory_cap[stage]);
  }
  return {};
}

}  // namespace

std::string_view family_name(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::kGpipe:
      return "gpipe";
    case ScheduleFamily::k1F1B:
      return "1f1b";
    case ScheduleFamily::kMemoryMin:
      return "memory-min";
    case ScheduleFamily::kZb1p:
      return "zb-1p";
    case ScheduleFamily::kZb2p:
      return "zb-2p";
    case ScheduleFamily::kVShape:
      return "v-shape";
    case ScheduleFamily::kSearched:
      return "searched";
  }
  return "";
}

Result<ScheduleFamily> parse_family(std::string_view name) {
  for (const ScheduleFamily family : kAllFamilies) {
    if (family_name(family) == name) return family;
  }
  return invalid_argument(
      "schedule '{}' is unknown; use gpipe, 1f1b, memory-min, zb-1p, zb-2p, v-shape or searched",
      name);
}

Result<ScheduleFamily> parse_plan_schedule(std::string_view name) {
  for (const ScheduleFamily family : kAllFamilies) {
    if (family_name(family) != name) continue;
    if (family == ScheduleFamily::kZb2p) {
      return invalid_argument(
          "schedule 'zb-2p' is a planner result only: it gains nothing until the optimiser can "
          "step before the gradient norm is known and roll back; use zb-1p");
    }
    if (family == ScheduleFamily::kSearched) {
      return invalid_argument("schedule 'searched' depends on measured costs; give it as explicit");
    }
    return family;
  }
  return invalid_argument(
      "schedule '{}' is unknown; use 1f1b, gpipe, memory-min, zb-1p, v-shape or explicit", name);
}

bool splits_backward(ScheduleFamily family) {
  return family == ScheduleFamily::kZb1p || family == ScheduleFamily::kZb2p ||
         family == ScheduleFamily::kVShape;
}

Result<Schedule> make_actions(ScheduleFamily family, const PipelineCosts& costs) {
  RETURN_IF_ERROR(check_shape(costs.shape));
  switch (family) {
    case ScheduleFamily::kGpipe:
      return run_gpipe(costs);
    case ScheduleFamily::k1F1B:
      return run_1f1b(costs);
    case ScheduleFamily::kMemoryMin:
      return run_memory_min(costs);
    case ScheduleFamily::kZb1p:
      return best_listed(costs, 1);
    case ScheduleFamily::kZb2p:
      return best_listed(costs, 2);
    case ScheduleFamily::kVShape:
      return make_v_shape(costs, VObjective::kMakespan);
    case ScheduleFamily::kSearched:
      break;
  }
  return invalid_argument("schedule: '{}' is made by search_schedule", family_name(family));
}

Result<MadeSchedule> make_schedule(ScheduleFamily family, const PipelineCosts& costs) {
  RETURN_IF_ERROR(check_pipeline_costs(costs));
  MadeSchedule made;
  made.family = family;
  made.shape = costs.shape;
  made.split_backward = splits_backward(family);
  ASSIGN_OR_RETURN(made.actions, make_actions(family, costs));
  ASSIGN_OR_RETURN(made.report, check_schedule(made.actions, costs.shape,
                                               action_costs(costs, made.split_backward)));
  RETURN_IF_ERROR(check_caps(costs, made.report, family));
  made.lower_bound = makespan_lower_bound(costs);
  return made;
}

}  // namespace flextrain::planner
