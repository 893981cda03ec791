// SPDX-License-Identifier: MIT
#include "planner/schedule_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "planner/list_scheduler.h"
#include "planner/order_run.h"

namespace flextrain::planner {
namespace {

// Ends closer than this share count as equal.
constexpr double kSlack = 1e-9;
constexpr int64_t kAskEvery = 64;         // expansions between two looks at the clock
constexpr size_t kMostOpenNodes = 50000;  // memory of the best-first search
constexpr int64_t kProofPlacements = 100000;

bool shorter(double a, double b) { return a < b * (1 - kSlack); }

class Search {
 public:
  Search(const PipelineCosts& costs, const SearchOptions& options)
      : costs_(costs),
        options_(options),
        bound_(makespan_lower_bound(costs)),
        budget_(options.max_expansions) {}

  Result<SearchResult> run() {
    RETURN_IF_ERROR(start());
    if (!at_bound()) {
      if (options_.method == SearchMethod::kBestFirst) {
        RETURN_IF_ERROR(best_first());
        if (small() && !at_bound()) {
          const int64_t nodes = result_.expansions;
          budget_ = nodes + kProofPlacements;
          prove();
          result_.expansions = nodes;
        }
      } else {
        prove();
      }
    }
    result_.best.lower_bound = bound_;
    result_.optimal = at_bound();
    return std::move(result_);
  }

 private:
  bool at_bound() const { return !shorter(bound_, result_.best.report.makespan); }
  // Few enough computations for a depth-first search to try all orders in a moment.
  bool small() const {
    return costs_.shape.chunks() * costs_.shape.micro_batches <= 16 && options_.max_expansions > 0;
  }
  bool may_go_on() {
    if (at_bound() || result_.expansions >= budget_) return false;
    if (options_.out_of_time && result_.expansions % kAskEvery == 0 && options_.out_of_time()) {
      stopped_ = true;
    }
    return !stopped_;
  }

  // The best closed form.
  Status start() {
    Status refused;
    bool found = false;
    for (const ScheduleFamily family : kAllFamilies) {
      if (family == ScheduleFamily::kSearched) continue;
      if (family == ScheduleFamily::kVShape &&
          (costs_.shape.order != ChunkOrder::kV || costs_.shape.virtual_stages != 2)) {
        continue;
      }
      Result<MadeSchedule> made = make_schedule(family, costs_);
      if (!made.ok()) {
        if (made.status().code() == StatusCode::kInvalidArgument) return made.status();
        refused = made.status();
        continue;
      }
      if (found && !shorter(made->report.makespan, result_.best.report.makespan)) continue;
      result_.best = std::move(*made);
      found = true;
    }
    if (!found) return refused;
    result_.progress.push_back({0, result_.best.report.makespan, bound_});
    return {};
  }

  // Turns complete orders into lists and keeps them when they are better.
  Status consider(const Orders& orders, bool split) {
    OrderRun run = run_orders(costs_.shape, orders, WorkTimes(costs_, split), false);
    if (!run.stuck.empty() || !shorter(run.makespan, result_.best.report.makespan)) return {};
    ASSIGN_OR_RETURN(ScheduleReport report,
                     check_schedule(run.schedule, costs_.shape, action_costs(costs_, split)));
    if (!shorter(report.makespan, result_.best.report.makespan)) return {};
    for (size_t stage = 0; stage < costs_.memory_cap.size(); ++stage) {
      if (report.peak_memory[stage] > costs_.memory_cap[stage] * (1 + kSlack)) return {};
    }
    result_.best.actions = std::move(run.schedule);
    result_.best.report = std::move(report);
    result_.best.family = ScheduleFamily::kSearched;
    result_.best.split_backward = split;
    result_.progress.push_back({result_.expansions, result_.best.report.makespan, bound_});
    return {};
  }

  struct Node {
    double bound = 0, parent_makespan = 0;
    int64_t order = 0;  // older first, so that the search is deterministic
    size_t rules = 0;
    std::vector<Deviation> deviations;
    bool operator>(const Node& other) const {
      if (bound != other.bound) return bound > other.bound;
      if (parent_makespan != other.parent_makespan) {
        return parent_makespan > other.parent_makespan;
      }
      return order > other.order;
    }
  };

  Status best_first() {
    std::vector<ListRules> roots;
    for (const bool split : {true, false}) {
      for (const Preference preference :
           {Preference::kBackward, Preference::kForward, Preference::kWgrad}) {
        if (!split && preference == Preference::kWgrad) continue;
        for (const Pick pick : {Pick::kLater, Pick::kEarlier}) {
          if (pick == Pick::kEarlier && costs_.shape.virtual_stages == 1) continue;
          ListRules rules;
          rules.split_backward = split;
          rules.stages.assign(costs_.shape.stages, {preference, pick, true});
          if (split) rules.patience = 0.5;
          roots.push_back(std::move(rules));
        }
      }
    }
    std::priority_queue<Node, std::vector<Node>, std::greater<>> open;
    int64_t order = 0;
    for (size_t i = 0; i < roots.size(); ++i) open.push({bound_, 0, order++, i, {}});
    bool dropped = false;
    while (!open.empty() && may_go_on()) {
      const Node node = open.top();
      open.pop();
      if (!shorter(node.bound, result_.best.report.makespan)) continue;
      ++result_.expansions;
      const ListRules& rules = roots[node.rules];
      const Result<ListRun> run = list_orders(costs_, rules, node.deviations);
      if (!run.ok()) continue;  // the caps stop this one
      RETURN_IF_ERROR(consider(run->orders, rules.split_backward));
      const int first = node.deviations.empty() ? 0 : node.deviations.back().decision + 1;
      for (int at = first; at < static_cast<int>(run->decisions.size()); ++at) {
        const Decision& decision = run->decisions[at];
        if (!shorter(decision.bound, result_.best.report.makespan)) break;  // bounds only grow
        for (int rank = 1; rank < decision.options; ++rank) {
          if (open.size() >= kMostOpenNodes) {
            dropped = true;
            break;
          }
          Node child{std::max(bound_, decision.bound), run->makespan, order++, node.rules,
                     node.deviations};
          child.deviations.push_back({at, rank});
          open.push(std::move(child));
        }
      }
    }
    result_.exhausted = open.empty() && !dropped && !stopped_;
    return {};
  }

  // --- Algorithm 1 ---

  // Both kinds of backward. When everything has been tried, nothing ends before the best known or
  // before what an order that was found ends at on the time line, on which a hop keeps nobody busy.
  // A Recompute is only tried right before its Backward, so with one nothing is proved.
  void prove() {
    const bool before = std::exchange(result_.exhausted, false);
    for (const bool split : {true, false}) depth_first(split);
    const bool tried_all = result_.exhausted;
    result_.exhausted |= before;
    if (!tried_all) return;
    for (const auto& row : costs_.chunks) {
      for (const ChunkCosts& chunk : row) {
        if (chunk.recompute > 0) return;
      }
    }
    const double proved = std::min(result_.best.report.makespan * (1 - kSlack), least_complete_);
    if (proved <= bound_) return;
    bound_ = proved;
    result_.progress.push_back({result_.expansions, result_.best.report.makespan, bound_});
  }

  struct Ready {
    double start = 0;
    Work work = Work::kForward;
    int position = 0;
  };
  struct Placed {  // to take back
    Ready node;
    double free_before = 0, memory_before = 0;
  };

  struct Partial {
    std::vector<double> free, memory, left;        // per stage: time, bytes, work to do
    std::vector<int> forwards, backwards, wgrads;  // per position
    std::vector<double> forward_end, backward_end;
    Orders orders;
  };

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * costs_.shape.micro_batches + micro_batch;
  }
  const ChunkCosts& chunk(int position) const {
    return costs_.chunks[costs_.shape.stage_at(position)][costs_.shape.chunk_at(position)];
  }
  double hop(int position) const {  // between it and the next
    const ScheduleShape& shape = costs_.shape;
    return shape.stage_at(position) == shape.stage_at(position + 1) ? 0 : chunk(position).transfer;
  }

  double duration(const Ready& node, bool split) const {
    const ChunkCosts& costs = chunk(node.position);
    if (node.work == Work::kForward) return costs.forward;
    if (node.work == Work::kWgrad) return costs.wgrad;
    return costs.recompute + costs.backward + (split ? 0 : costs.wgrad);
  }

  // Ready computations, best first: the one that can start earliest, of equals Backward before
  // Forward before Wgrad, then the later chunk.
  std::vector<Ready> ready_nodes(const Partial& state, bool split) const {
    const ScheduleShape& shape = costs_.shape;
    std::vector<Ready> ready;
    for (int at = 0; at < shape.chunks(); ++at) {
      const double free = state.free[shape.stage_at(at)];
      if (state.forwards[at] < shape.micro_batches &&
          (at == 0 || state.forwards[at] < state.forwards[at - 1])) {
        const double input =
            at == 0 ? 0 : state.forward_end[cell(at - 1, state.forwards[at])] + hop(at - 1);
        ready.push_back({std::max(free, input), Work::kForward, at});
      }
      const bool last = at == shape.last_position();
      if (state.backwards[at] < state.forwards[at] &&
          (last || state.backwards[at] < state.backwards[at + 1])) {
        const double input = last ? state.forward_end[cell(at, state.backwards[at])]
                                  : state.backward_end[cell(at + 1, state.backwards[at])] + hop(at);
        ready.push_back({std::max(free, input), Work::kBackward, at});
      }
      if (split && state.wgrads[at] < state.backwards[at]) {
        ready.push_back({free, Work::kWgrad, at});
      }
    }
    const auto urgency = [](Work work) {
      return work == Work::kBackward ? 0 : work == Work::kForward ? 1 : 2;
    };
    std::sort(ready.begin(), ready.end(), [&](const Ready& a, const Ready& b) {
      if (a.start != b.start) return a.start < b.start;
      if (a.work != b.work) return urgency(a.work) < urgency(b.work);
      return a.position > b.position;
    });
    return ready;
  }

  double memory_after(const Partial& state, const Ready& node, bool split, double& peak) const {
    const ChunkCosts& costs = chunk(node.position);
    double now = state.memory[costs_.shape.stage_at(node.position)];
    peak = now;
    switch (node.work) {
      case Work::kForward:
        now += costs.activation;
        break;
      case Work::kBackward:
        if (costs.recompute > 0) peak += costs.recomputed;
        now += (split ? costs.wgrad_kept : 0) - costs.activation;
        break;
      case Work::kWgrad:
        now -= costs.wgrad_kept;
        break;
      case Work::kRecompute:
        break;
    }
    peak = std::max(peak, now);
    return now;
  }

  void depth_first(bool split) {
    const ScheduleShape& shape = costs_.shape;
    Partial state;
    state.free.assign(shape.stages, 0);
    state.memory = state.left = state.free;
    state.forwards.assign(shape.chunks(), 0);
    state.backwards = state.wgrads = state.forwards;
    state.forward_end.assign(cell(shape.chunks(), 0), 0);
    state.backward_end = state.forward_end;
    state.orders.resize(shape.stages);
    for (int at = 0; at < shape.chunks(); ++at) {
      const ChunkCosts& costs = chunk(at);
      state.left[shape.stage_at(at)] +=
          (costs.forward + costs.recompute + costs.backward + costs.wgrad) * shape.micro_batches;
    }
    struct Level {
      std::vector<Ready> ready;
      size_t next = 0;
      Placed placed;  // what led to the level below
    };
    const size_t nodes = cell(shape.chunks(), 0) * (split ? 3 : 2);
    std::vector<Level> levels;
    levels.push_back({ready_nodes(state, split), 0, {}});
    while (!levels.empty() && may_go_on()) {
      Level& level = levels.back();
      if (level.next == level.ready.size()) {
        levels.pop_back();
        if (!levels.empty()) take_back(state, levels.back().placed, split);
        continue;
      }
      const Ready node = level.ready[level.next++];
      if (!place(state, node, split, level.placed)) continue;
      ++result_.expansions;
      if (levels.size() == nodes) {
        least_complete_ =
            std::min(least_complete_, *std::max_element(state.free.begin(), state.free.end()));
        if (!consider(state.orders, split).ok()) return;
        take_back(state, level.placed, split);
        continue;
      }
      levels.push_back({ready_nodes(state, split), 0, {}});
    }
    if (levels.empty() && split) exhausted_split_ = true;
    if (levels.empty() && !split) result_.exhausted = exhausted_split_;
  }

  // False when pruned: no room, or the stage's rest ends too late.
  bool place(Partial& state, const Ready& node, bool split, Placed& placed) {
    const int stage = costs_.shape.stage_at(node.position);
    double peak = 0;
    const double memory = memory_after(state, node, split, peak);
    if (!costs_.memory_cap.empty() && peak > costs_.memory_cap[stage] * (1 + kSlack)) return false;
    // `left` holds all the stage's work from here on.
    if (!shorter(node.start + state.left[stage], result_.best.report.makespan)) return false;
    const double spent = duration(node, split);
    const double end = node.start + spent;
    placed = {node, state.free[stage], state.memory[stage]};
    const int chunk_index = costs_.shape.chunk_at(node.position);
    std::vector<Compute>& order = state.orders[stage];
    switch (node.work) {
      case Work::kForward: {
        const int micro_batch = state.forwards[node.position]++;
        state.forward_end[cell(node.position, micro_batch)] = end;
        order.push_back({Work::kForward, micro_batch, chunk_index});
        break;
      }
      case Work::kBackward: {
        const int micro_batch = state.backwards[node.position]++;
        state.backward_end[cell(node.position, micro_batch)] = end;
        if (chunk(node.position).recompute > 0) {
          order.push_back({Work::kRecompute, micro_batch, chunk_index});
        }
        order.push_back({Work::kBackward, micro_batch, chunk_index});
        break;
      }
      case Work::kWgrad:
        order.push_back({Work::kWgrad, state.wgrads[node.position]++, chunk_index});
        break;
      case Work::kRecompute:
        break;
    }
    state.free[stage] = end;
    state.memory[stage] = memory;
    state.left[stage] -= spent;
    return true;
  }

  void take_back(Partial& state, const Placed& placed, bool split) {
    const Ready& node = placed.node;
    const int stage = costs_.shape.stage_at(node.position);
    std::vector<Compute>& order = state.orders[stage];
    order.pop_back();
    if (node.work == Work::kForward) --state.forwards[node.position];
    if (node.work == Work::kWgrad) --state.wgrads[node.position];
    if (node.work == Work::kBackward) {
      --state.backwards[node.position];
      if (chunk(node.position).recompute > 0) order.pop_back();
    }
    state.free[stage] = placed.free_before;
    state.memory[stage] = placed.memory_before;
    state.left[stage] += duration(node, split);
  }

  const PipelineCosts& costs_;
  const SearchOptions& options_;
  double bound_;
  int64_t budget_;                                                   // expansions
  double least_complete_ = std::numeric_limits<double>::infinity();  // depth-first
  bool stopped_ = false, exhausted_split_ = false;
  SearchResult result_;
};

}  // namespace

Result<SearchResult> search_schedule(const PipelineCosts& costs, const SearchOptions& options) {
  RETURN_IF_ERROR(check_pipeline_costs(costs));
  if (options.max_expansions < 0) {
    return invalid_argument("search: a budget of {} expansions, must be 0 or more",
                            options.max_expansions);
  }
  return Search(costs, options).run();
}

std::string search_summary(const SearchResult& result) {
  const double makespan = result.best.report.makespan, bound = result.best.lower_bound;
  return fmt::format(
      "makespan {:g} (lower bound {:g}, {}) after {} expansions, {}", makespan, bound,
      result.optimal ? "optimal" : fmt::format("gap {:.1f} %", 100 * (makespan / bound - 1)),
      result.expansions, family_name(result.best.family));
}

}  // namespace flextrain::planner
