// SPDX-License-Identifier: MIT
#include "planner/v_schedule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/list_scheduler.h"

namespace flextrain::planner {
namespace {

// Activations of a chunk that the tightest stage's cap holds, at most 1F1B's.
int activations_within(const PipelineCosts& costs) {
  int most = 2 * costs.shape.stages;
  for (size_t stage = 0; stage < costs.memory_cap.size(); ++stage) {
    const double both = least_memory(costs, static_cast<int>(stage), true);
    if (both <= 0) continue;
    const double held = 2 * costs.memory_cap[stage] / both * (1 + 1e-9);
    if (held < most) most = static_cast<int>(held);
  }
  return std::max(most, 2);
}

struct Candidate {
  ListRules rules;
  double main = 0, other = 0;  // the objective, then the other one
  bool better_than(const Candidate& than) const {
    return main != than.main ? main < than.main : other < than.other;
  }
};

// The same credits on all stages: how far the way down may run ahead, and the way up.
std::vector<ListRules> candidates(const PipelineCosts& costs, int activations) {
  const ScheduleShape& shape = costs.shape;
  std::set<int> down, up;
  for (const double share : {1.0, 0.85, 0.75, 0.6, 0.5}) {
    down.insert(std::max(1, static_cast<int>(std::lround(share * activations))));
  }
  for (const double share : {0.25, 0.4, 0.5, 0.6, 0.75, 0.9}) {
    up.insert(std::max(1, static_cast<int>(std::lround(share * activations))));
  }
  std::vector<ListRules> all;
  for (const Preference preference : {Preference::kBackward, Preference::kForward}) {
    for (const bool deep_backward : {true, false}) {
      for (const int ahead : down) {
        for (const int back : up) {
          ListRules rules;
          rules.activations = activations;
          rules.stages.assign(shape.stages, {preference, Pick::kLater, deep_backward});
          rules.credits.assign(shape.stages, ahead);
          rules.credits.resize(shape.chunks(), back);
          all.push_back(std::move(rules));
        }
      }
    }
  }
  return all;
}

}  // namespace

Result<Schedule> make_v_shape(const PipelineCosts& costs, VObjective objective) {
  const ScheduleShape& shape = costs.shape;
  if (shape.order != ChunkOrder::kV || shape.virtual_stages != 2) {
    return invalid_argument(
        "schedule: v-shape needs two chunks per stage in order V, not {} in order {}",
        shape.virtual_stages, shape.order == ChunkOrder::kV ? "V" : "loop");
  }
  // The steady state repeats: few micro-batches tell which rules are good.
  PipelineCosts trial = costs;
  trial.shape.micro_batches = std::min(shape.micro_batches, 3 * shape.stages);
  Candidate best;
  bool found = false;
  Status refused;
  for (ListRules& rules : candidates(costs, activations_within(costs))) {
    const Result<ListRun> run = list_orders(trial, rules);
    if (!run.ok()) {
      refused = run.status();
      continue;
    }
    Candidate candidate{std::move(rules), run->makespan, run->longest_span};
    if (objective == VObjective::kLongestSpan) std::swap(candidate.main, candidate.other);
    if (found && !candidate.better_than(best)) continue;
    best = std::move(candidate);
    found = true;
  }
  if (!found) return refused;
  ASSIGN_OR_RETURN(const ListRun run, list_orders(costs, best.rules));
  OrderRun result = run_orders(shape, run.orders, WorkTimes(costs, true), false);
  if (!result.stuck.empty()) return internal_error("schedule: an order cannot be run");
  return std::move(result.schedule);
}

}  // namespace flextrain::planner
