// SPDX-License-Identifier: MIT
#include "planner/v_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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
  bool operator<(const Candidate& than) const {
    return main != than.main ? main < than.main : other < than.other;
  }
};

// Searches the rules of the list scheduler: first the same credits on all stages (how far the way
// down may run ahead, and the way up), then single changes to the best of those.
class RuleSearch {
 public:
  RuleSearch(const PipelineCosts& costs, VObjective objective)
      : costs_(costs), objective_(objective), activations_(activations_within(costs)) {
    for (const auto& row : costs.chunks) {
      double work = 0;
      for (const ChunkCosts& chunk : row) {
        work += chunk.forward + chunk.recompute + chunk.backward + chunk.wgrad;
      }
      least_ = std::max(least_, work * costs.shape.micro_batches);
    }
    if (objective != VObjective::kMakespan) return;
    least_ = makespan_lower_bound(costs);
    // Where one evaluation is dear the search ends a little above the bound.
    if (work_of_one() > kDear) close_enough_ = work_of_one() > 3 * kDear ? 0.025 : 0.01;
  }

  Result<ListRules> run() {
    known();
    if (best_.empty() || !done(*std::min_element(best_.begin(), best_.end()))) grid();
    if (best_.empty()) return refused_;
    std::stable_sort(best_.begin(), best_.end());
    best_.resize(std::min(best_.size(), kStarts));
    improve();
    return std::min_element(best_.begin(), best_.end())->rules;
  }

 private:
  static constexpr size_t kStarts = 6;
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr double kMostWork = 4e5;  // computations placed, for either part
  static constexpr double kDear = 6000;

  bool done(const Candidate& candidate) const {
    return candidate.main <= least_ * (1 + close_enough_);
  }
  double work_of_one() const { return 6.0 * costs_.shape.stages * costs_.shape.micro_batches; }

  // False also for one that is given up: it would end later than `worth`.
  bool evaluate(Candidate& candidate, double worth) {
    candidate.rules.give_up = objective_ == VObjective::kMakespan ? worth : kNever;
    const Result<ListRun> run = list_orders(costs_, candidate.rules);
    if (!run.ok()) {
      refused_ = run.status();
      return false;
    }
    candidate.rules.give_up = kNever;
    if (run->given_up) return false;
    candidate.main = run->makespan;
    candidate.other = run->longest_span;
    if (objective_ == VObjective::kLongestSpan) std::swap(candidate.main, candidate.other);
    return true;
  }

  int least_credits(int position) const {
    return costs_.memory_cap.empty() && position < costs_.shape.stages
               ? least_credits_down(costs_.shape.stages)
               : 1;
  }

  // How many evaluations the bound on the work allows.
  int evaluations() const {
    return static_cast<int>(std::clamp(kMostWork / work_of_one(), 24.0, 600.0));
  }

  Candidate with(Preference preference, bool deep_backward, int down, int up) const {
    Candidate candidate;
    ListRules& rules = candidate.rules;
    // Bytes count where there is a cap; a micro-batch's share that Backward frees may then be used
    // before its Wgrad.
    if (costs_.memory_cap.empty()) rules.activations = activations_;
    rules.stages.assign(costs_.shape.stages, {preference, Pick::kLater, deep_backward});
    rules.credits.assign(costs_.shape.stages, down);
    rules.credits.resize(costs_.shape.chunks(), up);
    return candidate;
  }

  // Shares of the activations that reach the bound with equal costs, for most shapes one of them.
  void known() {
    if (objective_ != VObjective::kMakespan || !costs_.memory_cap.empty()) return;
    for (const double up : {0.5, 0.3125, 0.375, 0.25}) {
      for (const int down : {activations_, least_credits_down(costs_.shape.stages)}) {
        const int back = std::max(1, static_cast<int>(std::lround(up * activations_)));
        Candidate candidate = with(Preference::kBackward, true, down, back);
        if (evaluate(candidate, kNever)) best_.push_back(std::move(candidate));
        if (!best_.empty() && done(best_.back())) return;
      }
    }
  }

  // What is worse than all that `improve` starts from does not matter.
  double worst_start() const {
    if (best_.size() < kStarts) return kNever;
    std::vector<double> mains;
    for (const Candidate& candidate : best_) mains.push_back(candidate.main);
    std::nth_element(mains.begin(), mains.begin() + (kStarts - 1), mains.end());
    return mains[kStarts - 1];
  }

  void grid() {
    const int least = costs_.memory_cap.empty() ? least_credits(0) : std::max(1, activations_ / 2);
    const int downs = activations_ - least + 1;
    const int ups = activations_ - std::max(1, activations_ / 4);
    // Coarser where all of it is too much.
    const int stride = 1 + 4 * downs * ups / evaluations() / 4;
    for (const Preference preference : {Preference::kBackward, Preference::kForward}) {
      for (const bool deep_backward : {true, false}) {
        for (int down = activations_; down >= least; down -= stride) {
          for (int up = std::max(1, activations_ / 4); up < activations_; up += stride) {
            Candidate candidate = with(preference, deep_backward, down, up);
            if (evaluate(candidate, worst_start())) best_.push_back(std::move(candidate));
            if (!best_.empty() && done(best_.back())) return;
          }
        }
      }
    }
  }

  void improve() {
    uint64_t state = 1;              // any fixed seed: equal input, equal schedule
    const auto below = [&](int n) {  // xorshift64* (Vigna 2016)
      state ^= state >> 12;
      state ^= state << 25;
      state ^= state >> 27;
      return static_cast<int>((state * 0x2545F4914F6CDD1DULL >> 33) % static_cast<unsigned>(n));
    };
    const int positions = costs_.shape.chunks(), stages = costs_.shape.stages;
    for (int i = 0; i < evaluations(); ++i) {
      Candidate& base = best_[i % best_.size()];
      if (done(base)) return;
      Candidate changed = base;
      ListRules& rules = changed.rules;
      for (int change = 1 + below(3); change > 0; --change) {
        const int step = below(2) == 0 ? -1 : 1;
        const int position = below(positions);
        StageRule& rule = rules.stages[below(stages)];
        const auto move = [&](int at) {
          rules.credits[at] = std::clamp(rules.credits[at] + step, least_credits(at), activations_);
        };
        const int what = below(10);
        if (what < 6) {
          move(position);
        } else if (what == 6) {
          for (int at = position; at < positions && at / stages == position / stages; ++at)
            move(at);
        } else if (what == 7) {
          rule.preference = static_cast<Preference>(below(3));
        } else if (what == 8) {
          rule.deep_backward = !rule.deep_backward;
        } else {
          rule.forward = static_cast<Pick>(below(3));
        }
      }
      // As good is good enough: the walk crosses plateaus.
      if (evaluate(changed, base.main) && !(base < changed)) base = std::move(changed);
    }
  }

  const PipelineCosts& costs_;
  VObjective objective_;
  int activations_;
  double least_ = 0, close_enough_ = 1e-9;
  Status refused_;
  std::vector<Candidate> best_;
};

}  // namespace

int least_credits_down(int stages) { return static_cast<int>(std::lround(0.8 * 2 * stages)); }

int deciding_micro_batches(const ScheduleShape& shape) {
  return std::min(shape.micro_batches, 2 * shape.stages);
}

Result<ListRules> v_shape_rules(const PipelineCosts& costs, VObjective objective) {
  const ScheduleShape& shape = costs.shape;
  if (shape.order != ChunkOrder::kV || shape.virtual_stages != 2) {
    return invalid_argument(
        "schedule: v-shape needs two chunks per stage in order V, not {} in order {}",
        shape.virtual_stages, shape.order == ChunkOrder::kV ? "V" : "loop");
  }
  PipelineCosts trial = costs;
  trial.shape.micro_batches = deciding_micro_batches(shape);
  return RuleSearch(trial, objective).run();
}

Result<Schedule> v_shape_by(const PipelineCosts& costs, const ListRules& rules) {
  ASSIGN_OR_RETURN(const ListRun run, list_orders(costs, rules));
  OrderRun result = run_orders(costs.shape, run.orders, WorkTimes(costs, true), false);
  if (!result.stuck.empty()) return internal_error("schedule: an order cannot be run");
  return std::move(result.schedule);
}

Result<Schedule> make_v_shape(const PipelineCosts& costs, VObjective objective) {
  ASSIGN_OR_RETURN(const ListRules rules, v_shape_rules(costs, objective));
  return v_shape_by(costs, rules);
}

}  // namespace flextrain::planner
