// SPDX-License-Identifier: MIT
#include "planner/list_scheduler.h"

#include <algorithm>
#include <limits>

#include "planner/earliest_stage.h"

namespace flextrain::planner {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Most that one micro-batch of a chunk holds at any time between its Forward and its release.
double largest_hold(const ChunkCosts& chunk, bool split_backward) {
  const double before = chunk.activation + chunk.recomputed;
  return split_backward ? std::max(before, chunk.wgrad_kept) : before;
}

class ListScheduler {
 public:
  // `deviations` null: nothing is recorded.
  ListScheduler(const PipelineCosts& costs, const ListRules& rules,
                const std::vector<Deviation>* deviations)
      : deviations_(deviations),
        bounded_(deviations != nullptr || rules.give_up < EarliestStage::kNever),
        costs_(costs),
        shape_(costs.shape),
        rules_(rules),
        times_(costs, rules.split_backward),
        stages_(shape_.stages),
        positions_(shape_.chunks()),
        wake_ups_(shape_.stages) {
    for (int position = 0; position < shape_.chunks(); ++position) {
      positions_[position].stage = shape_.stage_at(position);
      positions_[position].chunk = shape_.chunk_at(position);
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) {
        place_of_.push_back(shape_.position(stage, chunk));
      }
    }
    const size_t cells = static_cast<size_t>(shape_.chunks()) * shape_.micro_batches;
    forward_ready_.assign(cells, kUnknown);
    backward_ready_.assign(cells, kUnknown);
    std::fill_n(forward_ready_.begin(), shape_.micro_batches, 0.0);
    orders_.resize(shape_.stages);
    if (bounded_) {
      for (int stage = 0; stage < shape_.stages; ++stage) {
        double work = 0;
        for (const ChunkCosts& chunk : costs.chunks[stage]) {
          work += chunk.forward + chunk.recompute + chunk.backward + chunk.wgrad;
        }
        stages_[stage].end_bound = work * shape_.micro_batches;
        bound_ = std::max(bound_, stages_[stage].end_bound);
      }
    }
    const size_t works = static_cast<size_t>(shape_.virtual_stages) * shape_.micro_batches;
    for (auto& order : orders_) order.reserve((rules.split_backward ? 4 : 3) * works);
  }

  ListRun run() {
    for (int stage = 0; stage < shape_.stages; ++stage) wake_ups_.set(stage, 0);
    ListRun result;
    while (wake_ups_.time() != EarliestStage::kNever) {
      step(wake_ups_.stage(), wake_ups_.time());
      if (bound_ <= rules_.give_up * (1 + 1e-9)) continue;  // rounding
      result.given_up = true;
      return result;
    }
    for (const StageState& state : stages_) {
      result.makespan = std::max(result.makespan, state.free_at);
      result.longest_span = std::max(result.longest_span, state.free_at - state.first_begin);
    }
    result.orders = std::move(orders_);
    result.decisions = std::move(decisions_);
    return result;
  }

 private:
  struct StageState {
    double free_at = 0, first_begin = 0;
    double memory = 0;
    double end_bound = 0;  // all its work and the idling so far
    int activations = 0;
  };
  struct PositionState {
    int forwards = 0, backwards = 0, wgrads = 0;  // done
    int stage = 0, chunk = 0;
  };
  struct Choice {
    Work work = Work::kForward;
    int chunk = -1;
  };

  // For what arrives. A stage that is busy then looks around when it is done.
  void wake(double time, int stage) {
    if (stages_[stage].free_at <= time && time < wake_ups_.time_of(stage)) {
      wake_ups_.set(stage, time);
    }
  }
  int place(int stage, int chunk) const {
    return place_of_[static_cast<size_t>(stage) * shape_.virtual_stages + chunk];
  }
  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }
  int released(const PositionState& state) const {
    return rules_.split_backward ? state.wgrads : state.backwards;
  }

  bool admitted(int stage, int chunk) const {
    const int position = place(stage, chunk);
    const PositionState& state = positions_[position];
    if (!rules_.credits.empty() && state.forwards - state.backwards >= rules_.credits[position]) {
      return false;
    }
    const bool capped = !costs_.memory_cap.empty();
    if (rules_.activations == 0 && !capped) return true;
    const ChunkCosts& own = costs_.chunks[stage][chunk];
    int later = 0;
    double reserve = 0, recomputed = own.recomputed;
    for (int other = 0; other < shape_.virtual_stages; ++other) {
      const ChunkCosts& costs = costs_.chunks[stage][other];
      recomputed = std::max(recomputed, costs.recomputed);
      const int at = place(stage, other);
      if (at <= position || positions_[at].forwards > released(positions_[at])) continue;
      ++later;
      reserve += largest_hold(costs, rules_.split_backward) - costs.recomputed;
    }
    if (rules_.activations > 0 && stages_[stage].activations + 1 + later > rules_.activations) {
      return false;
    }
    if (!capped) return true;
    const double hold = largest_hold(own, rules_.split_backward) - own.recomputed;
    return stages_[stage].memory + hold + reserve + recomputed <=
           costs_.memory_cap[stage] * (1 + 1e-12);
  }

  // Room for what a Backward (after its Recompute) holds beyond what its Forward left.
  bool fits(int stage, int chunk) const {
    if (costs_.memory_cap.empty()) return true;
    const ChunkCosts& own = costs_.chunks[stage][chunk];
    const double more = largest_hold(own, rules_.split_backward) - own.activation;
    return more <= 0 || stages_[stage].memory + more <= costs_.memory_cap[stage] * (1 + 1e-12);
  }

  double backward_ready(int position) const {
    const int next = positions_[position].backwards;
    return next < positions_[position].forwards ? backward_ready_[cell(position, next)] : kUnknown;
  }
  double forward_ready(int position) const {
    const int next = positions_[position].forwards;
    return next < shape_.micro_batches ? forward_ready_[cell(position, next)] : kUnknown;
  }

  void step(int stage, double now) {
    const StageRule rule = rules_.stages.empty() ? StageRule{} : rules_.stages[stage];
    Choice forward, backward, wgrad;
    double soonest = kUnknown;    // work known to come
    double next_look = kUnknown;  // when there is something new
    for (int index = 0; index < shape_.virtual_stages; ++index) {
      const int chunk = rule.forward == Pick::kEarlier ? index : shape_.virtual_stages - 1 - index;
      const double ready = forward_ready(place(stage, chunk));
      if (ready > now) next_look = std::min(next_look, ready);
      if (ready == kUnknown || !admitted(stage, chunk)) continue;
      if (ready > now) {
        soonest = std::min(soonest, ready);
      } else if (forward.chunk < 0 ||
                 (rule.forward == Pick::kMostCredits &&
                  credits_left(stage, chunk) > credits_left(stage, forward.chunk))) {
        forward = {Work::kForward, chunk};
      }
    }
    for (int index = 0; index < shape_.virtual_stages; ++index) {
      const int chunk = rule.deep_backward ? index : shape_.virtual_stages - 1 - index;
      const int position = place(stage, chunk);
      const double ready = backward_ready(position);
      if (ready > now) next_look = std::min(next_look, ready);
      if (ready != kUnknown && fits(stage, chunk)) {
        if (ready > now) {
          soonest = std::min(soonest, ready);
        } else if (backward.chunk < 0) {
          backward = {Work::kBackward, chunk};
        }
      }
      if (rules_.split_backward && positions_[position].wgrads < positions_[position].backwards &&
          (wgrad.chunk < 0 || oldest_wgrad(stage, chunk) < oldest_wgrad(stage, wgrad.chunk))) {
        wgrad = {Work::kWgrad, chunk};
      }
    }
    const Choice order[3][3] = {
        {backward, forward, wgrad}, {forward, backward, wgrad}, {backward, wgrad, forward}};
    Choice options[3];
    int count = 0;
    for (const Choice& choice : order[static_cast<size_t>(rule.preference)]) {
      if (choice.chunk < 0) continue;
      if (choice.work == Work::kWgrad &&
          soonest < now + rules_.patience * costs_.chunks[stage][choice.chunk].wgrad) {
        continue;
      }
      options[count++] = choice;
    }
    if (count == 0) {  // woken again by what is not known yet
      wake_ups_.set(stage, next_look);
      return;
    }
    execute(stage, now, options[std::min(rank_of_next_decision(count), count - 1)]);
  }

  int rank_of_next_decision(int options) {
    if (deviations_ == nullptr) return 0;
    const int decision = static_cast<int>(decisions_.size());
    decisions_.push_back({options, bound_});
    if (next_deviation_ == deviations_->size()) return 0;
    const Deviation& deviation = (*deviations_)[next_deviation_];
    if (deviation.decision != decision) return 0;
    ++next_deviation_;
    return deviation.rank;
  }

  int credits_left(int stage, int chunk) const {
    if (rules_.credits.empty()) return 0;
    const int position = place(stage, chunk);
    const PositionState& state = positions_[position];
    return rules_.credits[position] - (state.forwards - state.backwards);
  }

  int oldest_wgrad(int stage, int chunk) const { return positions_[place(stage, chunk)].wgrads; }

  void execute(int stage, double now, const Choice& choice) {
    StageState& state = stages_[stage];
    const int position = place(stage, choice.chunk);
    PositionState& at = positions_[position];
    const ChunkCosts& costs = costs_.chunks[stage][choice.chunk];
    std::vector<Compute>& order = orders_[stage];
    double end = now;
    if (order.empty()) state.first_begin = now;
    if (bounded_) {
      state.end_bound += now - state.free_at;
      bound_ = std::max(bound_, state.end_bound);
    }
    switch (choice.work) {
      case Work::kForward: {
        const int micro_batch = at.forwards++;
        order.push_back({Work::kForward, micro_batch, choice.chunk});
        end += costs.forward;
        state.memory += costs.activation;
        ++state.activations;
        if (position == shape_.last_position()) {
          ready_backward(position, micro_batch, end);
        } else {
          const int next = positions_[position + 1].stage;
          const double arrival = next == stage ? end : end + costs.transfer;
          forward_ready_[cell(position + 1, micro_batch)] = arrival;
          wake(arrival, next);
        }
        break;
      }
      case Work::kBackward: {
        const int micro_batch = at.backwards++;
        if (costs.recompute > 0) {
          order.push_back({Work::kRecompute, micro_batch, choice.chunk});
          end += costs.recompute;
        }
        const Compute backward{Work::kBackward, micro_batch, choice.chunk};
        order.push_back(backward);
        end += times_.of(stage, backward);
        state.memory += (rules_.split_backward ? costs.wgrad_kept : 0) - costs.activation;
        if (!rules_.split_backward) --state.activations;
        if (position > 0) {
          const auto [previous, chunk] =
              std::pair(positions_[position - 1].stage, positions_[position - 1].chunk);
          const double hop = previous == stage ? 0 : costs_.chunks[previous][chunk].transfer;
          ready_backward(position - 1, micro_batch, end + hop);
        }
        break;
      }
      case Work::kWgrad:
        order.push_back({Work::kWgrad, at.wgrads++, choice.chunk});
        end += costs.wgrad;
        state.memory -= costs.wgrad_kept;
        --state.activations;
        break;
      case Work::kRecompute:
        break;
    }
    state.free_at = end;
    wake_ups_.set(stage, end);
  }

  void ready_backward(int position, int micro_batch, double time) {
    backward_ready_[cell(position, micro_batch)] = time;
    wake(time, positions_[position].stage);
  }

  const std::vector<Deviation>* deviations_;
  bool bounded_;  // whether bound_ is kept
  size_t next_deviation_ = 0;
  std::vector<Decision> decisions_;
  double bound_ = 0;
  const PipelineCosts& costs_;
  const ScheduleShape shape_;
  const ListRules& rules_;
  WorkTimes times_;
  std::vector<StageState> stages_;
  std::vector<PositionState> positions_;
  std::vector<double> forward_ready_, backward_ready_;  // [position][micro-batch]
  std::vector<int> place_of_;                           // [stage and chunk]
  EarliestStage wake_ups_;
  Orders orders_;
};

}  // namespace

double least_memory(const PipelineCosts& costs, int stage, bool split_backward) {
  double hold = 0, recomputed = 0;
  for (const ChunkCosts& chunk : costs.chunks[stage]) {
    hold += largest_hold(chunk, split_backward) - chunk.recomputed;
    recomputed = std::max(recomputed, chunk.recomputed);
  }
  return hold + recomputed;
}

namespace {

Result<ListRun> run_list(const PipelineCosts& costs, const ListRules& rules,
                         const std::vector<Deviation>* deviations) {
  if (!costs.memory_cap.empty()) {
    for (int stage = 0; stage < costs.shape.stages; ++stage) {
      const double least = least_memory(costs, stage, rules.split_backward);
      if (least <= costs.memory_cap[stage] * (1 + 1e-12)) continue;
      return resource_exhausted(
          "schedule: stage {} needs at least {:g} for one micro-batch of each of its chunks, its "
          "memory cap is {:g}",
          stage, least, costs.memory_cap[stage]);
    }
  }
  ListRun run = ListScheduler(costs, rules, deviations).run();
  if (run.given_up) return run;
  for (int stage = 0; stage < costs.shape.stages; ++stage) {
    const auto backwards =
        std::count_if(run.orders[stage].begin(), run.orders[stage].end(),
                      [](const Compute& c) { return c.work == Work::kBackward; });
    if (backwards == int64_t{costs.shape.virtual_stages} * costs.shape.micro_batches) continue;
    return resource_exhausted("schedule: the memory caps let stage {} do only {} of {} backwards",
                              stage, backwards,
                              int64_t{costs.shape.virtual_stages} * costs.shape.micro_batches);
  }
  return run;
}

}  // namespace

Result<ListRun> list_orders(const PipelineCosts& costs, const ListRules& rules) {
  return run_list(costs, rules, nullptr);
}

Result<ListRun> list_orders(const PipelineCosts& costs, const ListRules& rules,
                            const std::vector<Deviation>& deviations) {
  return run_list(costs, rules, &deviations);
}

}  // namespace flextrain::planner
