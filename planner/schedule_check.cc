// SPDX-License-Identifier: MIT
// check_schedule: a static pass over each stage's list (every action once, in a possible order, in
// a slot of its own), then a simulation with rendezvous sends.
#include <algorithm>
#include <cmath>
#include <deque>

#include "planner/limits.h"
#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

constexpr unsigned bit(ActionKind kind) { return 1U << static_cast<unsigned>(kind); }

std::string describe(const Action& action) {
  std::string text = fmt::format("{} of micro-batch {}, chunk {}", action_kind_name(action.kind),
                                 action.micro_batch, action.chunk);
  if (action.peer >= 0) text += fmt::format(", peer {}", action.peer);
  return text;
}

bool is_transfer(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kRecvForward ||
         kind == ActionKind::kSendBackward || kind == ActionKind::kRecvBackward;
}

// Walks one stage's list and keeps, for every (chunk, micro-batch), the set of actions done.
class StageChecker {
 public:
  StageChecker(const ScheduleShape& shape, int stage, bool split_backward, const ActionCosts& costs)
      : shape_(shape),
        stage_(stage),
        split_backward_(split_backward),
        costs_(costs),
        done_(static_cast<size_t>(shape.virtual_stages) * shape.micro_batches, 0),
        slot_of_(done_.size(), -1),
        owner_of_(done_.size(), -1),
        reduced_(shape.virtual_stages, false) {}

  Status run(const StageActions& actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (const Status status = step(actions[i]); !status.ok()) {
        return status.with_context(
            fmt::format("schedule: stage {}, action {} ({})", stage_, i, describe(actions[i])));
      }
    }
    for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) {
      for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
        const unsigned missing = required(chunk) & ~done(chunk, micro_batch);
        if (missing == 0) continue;
        int kind = 0;
        while ((missing & (1U << kind)) == 0) ++kind;
        return invalid_argument("schedule: stage {} lacks the {} of micro-batch {}, chunk {}",
                                stage_, action_kind_name(static_cast<ActionKind>(kind)),
                                micro_batch, chunk);
      }
    }
    if (!stepped_) return invalid_argument("schedule: stage {} lacks the Step", stage_);
    return {};
  }

  int peak_slots() const { return peak_; }
  double peak_memory() const { return peak_memory_; }

 private:
  size_t cell(int chunk, int micro_batch) const {
    return static_cast<size_t>(chunk) * shape_.micro_batches + micro_batch;
  }
  unsigned done(int chunk, int micro_batch) const { return done_[cell(chunk, micro_batch)]; }
  bool has(const Action& action, ActionKind kind) const {
    return (done(action.chunk, action.micro_batch) & bit(kind)) != 0;
  }
  bool remote_input(int chunk) const {
    const int previous = shape_.previous_stage(stage_, chunk);
    return previous >= 0 && previous != stage_;
  }
  bool remote_output(int chunk) const {
    const int next = shape_.next_stage(stage_, chunk);
    return next >= 0 && next != stage_;
  }

  // What every micro-batch of a chunk needs.
  unsigned required(int chunk) const {
    unsigned set = bit(ActionKind::kForward) | bit(ActionKind::kBackward);
    if (split_backward_) set |= bit(ActionKind::kWgrad);
    if (remote_input(chunk)) set |= bit(ActionKind::kRecvForward) | bit(ActionKind::kSendBackward);
    if (remote_output(chunk)) set |= bit(ActionKind::kSendForward) | bit(ActionKind::kRecvBackward);
    return set;
  }

  Status step(const Action& action) {
    if (stepped_) return invalid_argument("comes after the Step");
    if (action.chunk < 0 || action.chunk >= shape_.virtual_stages) {
      return invalid_argument("the stage has chunks 0 ... {}", shape_.virtual_stages - 1);
    }
    if (!is_transfer(action.kind) && action.peer != -1) {
      return invalid_argument("only Send and Recv have a peer");
    }
    if (action.kind == ActionKind::kReduce) return reduce(action);
    if (action.kind == ActionKind::kStep) {
      const auto left = std::find(reduced_.begin(), reduced_.end(), false);
      if (left != reduced_.end()) {
        return invalid_argument("comes before the Reduce of chunk {}", left - reduced_.begin());
      }
      stepped_ = true;
      return {};
    }
    if (action.micro_batch < 0 || action.micro_batch >= shape_.micro_batches) {
      return invalid_argument("the pipeline has micro-batches 0 ... {}", shape_.micro_batches - 1);
    }
    if (action.slot < 0 || static_cast<size_t>(action.slot) >= owner_of_.size()) {
      return invalid_argument("slot {} is not one of 0 ... {}", action.slot, owner_of_.size() - 1);
    }
    if (has(action, action.kind)) return invalid_argument("is done twice");
    RETURN_IF_ERROR(inputs_there(action));
    RETURN_IF_ERROR(take_slot(action));
    unsigned& done = done_[cell(action.chunk, action.micro_batch)];
    hold_memory(action, done);
    done |= bit(action.kind);
    // The slot holds input, saved tensors and gradients: free when nothing of them is needed.
    if ((done & required(action.chunk)) == required(action.chunk)) {
      owner_of_[action.slot] = -1;
      --in_use_;
    }
    return {};
  }

  double of(const PerChunk& table, int chunk, double scalar) const {
    return table.empty() ? scalar : table[stage_][chunk];
  }

  void hold_memory(const Action& action, unsigned done) {
    const int chunk = action.chunk;
    const double kept = of(costs_.wgrad_kept_of, chunk, costs_.wgrad_kept);
    const double recomputed =
        (done & bit(ActionKind::kRecompute)) != 0 || action.kind == ActionKind::kRecompute
            ? of(costs_.recomputed_of, chunk, costs_.recomputed)
            : 0;
    switch (action.kind) {
      case ActionKind::kForward:
        memory_ += of(costs_.activation_of, chunk, costs_.activation);
        break;
      case ActionKind::kRecompute:
        memory_ += recomputed;
        break;
      case ActionKind::kBackward:
        memory_ -= of(costs_.activation_of, chunk, costs_.activation) + recomputed;
        if (split_backward_) memory_ += kept;
        break;
      case ActionKind::kWgrad:
        memory_ -= kept;
        break;
      default:
        break;
    }
    peak_memory_ = std::max(peak_memory_, memory_);
  }

  Status reduce(const Action& action) {
    if (reduced_[action.chunk]) return invalid_argument("is done twice");
    const ActionKind last = split_backward_ ? ActionKind::kWgrad : ActionKind::kBackward;
    for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
      if ((done(action.chunk, micro_batch) & bit(last)) != 0) continue;
      return invalid_argument("comes before the {} of micro-batch {}", action_kind_name(last),
                              micro_batch);
    }
    reduced_[action.chunk] = true;
    return {};
  }

  Status needs(const Action& action, ActionKind kind) const {
    if (has(action, kind)) return {};
    return invalid_argument("its {} does not come before it", action_kind_name(kind));
  }

  Status check_peer(const Action& action, int expected) const {
    if (expected < 0 || expected == stage_) {
      return invalid_argument("there is no other stage to talk to on that side");
    }
    if (action.peer == expected) return {};
    return invalid_argument("its peer must be stage {}", expected);
  }

  Status inputs_there(const Action& action) const {
    const int previous = shape_.previous_stage(stage_, action.chunk);
    const int next = shape_.next_stage(stage_, action.chunk);
    switch (action.kind) {
      case ActionKind::kRecvForward:
        return check_peer(action, previous);
      case ActionKind::kForward:
        if (remote_input(action.chunk)) return needs(action, ActionKind::kRecvForward);
        if (previous == stage_ &&
            (done(action.chunk - 1, action.micro_batch) & bit(ActionKind::kForward)) == 0) {
          return invalid_argument("the Forward of chunk {} does not come before it",
                                  action.chunk - 1);
        }
        return {};
      case ActionKind::kSendForward:
        RETURN_IF_ERROR(check_peer(action, next));
        return needs(action, ActionKind::kForward);
      case ActionKind::kRecvBackward:
        RETURN_IF_ERROR(check_peer(action, next));
        return needs(action, ActionKind::kForward);
      case ActionKind::kRecompute:
        if (has(action, ActionKind::kBackward)) return invalid_argument("its Backward is done");
        return needs(action, ActionKind::kForward);
      case ActionKind::kBackward:
        RETURN_IF_ERROR(needs(action, ActionKind::kForward));
        if (remote_output(action.chunk)) return needs(action, ActionKind::kRecvBackward);
        if (next == stage_ &&
            (done(action.chunk + 1, action.micro_batch) & bit(ActionKind::kBackward)) == 0) {
          return invalid_argument("the Backward of chunk {} does not come before it",
                                  action.chunk + 1);
        }
        return {};
      case ActionKind::kSendBackward:
        RETURN_IF_ERROR(check_peer(action, previous));
        return needs(action, ActionKind::kBackward);
      case ActionKind::kWgrad:
        return needs(action, ActionKind::kBackward);
      case ActionKind::kReduce:
      case ActionKind::kStep:
        return {};
    }
    return invalid_argument("unknown action");
  }

  // The first action of a micro-batch on a chunk takes a free slot, the others must name it.
  Status take_slot(const Action& action) {
    const int id = static_cast<int>(cell(action.chunk, action.micro_batch));
    int& slot = slot_of_[id];
    if (slot < 0) {
      int& owner = owner_of_[action.slot];
      if (owner >= 0) {
        return invalid_argument("slot {} is still in use by micro-batch {}, chunk {}", action.slot,
                                owner % shape_.micro_batches, owner / shape_.micro_batches);
      }
      owner = id;
      slot = action.slot;
      peak_ = std::max(peak_, ++in_use_);
      return {};
    }
    if (slot == action.slot) return {};
    return invalid_argument("names slot {}, but its tensors are in slot {}", action.slot, slot);
  }

  ScheduleShape shape_;
  int stage_;
  bool split_backward_;
  const ActionCosts& costs_;
  std::vector<unsigned> done_;  // [chunk][micro-batch] → bits of ActionKind
  std::vector<int> slot_of_;    // [chunk][micro-batch] → slot
  std::vector<int> owner_of_;   // [slot] → chunk·m + micro-batch, -1 = free
  std::vector<bool> reduced_;
  bool stepped_ = false;
  int in_use_ = 0, peak_ = 0;
  double memory_ = 0, peak_memory_ = 0;
};

class Simulator {
 public:
  Simulator(const ScheduleShape& shape, const Schedule& schedule, const ActionCosts& costs)
      : shape_(shape), schedule_(schedule), costs_(costs), at_(shape.stages), now_(shape.stages) {
    report_.timeline.resize(shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage) {
      report_.timeline[stage].reserve(schedule[stage].size());
    }
  }

  // A stage runs until it stands before a transfer whose other side is not there yet; whoever
  // arrives second carries both over and wakes the first.
  Status run() {
    std::deque<int> runnable;
    for (int stage = 0; stage < shape_.stages; ++stage) runnable.push_back(stage);
    while (!runnable.empty()) {
      const int stage = runnable.front();
      runnable.pop_front();
      while (const Action* action = current(stage)) {
        if (!is_transfer(action->kind)) {
          finish(stage, now_[stage], cost(stage, *action));
          continue;
        }
        const int peer = action->peer;
        if (!partners(stage, *action)) break;
        const double begin = std::max(now_[stage], now_[peer]);
        const double hop = hop_seconds(stage, *action);
        finish(stage, begin, hop);
        finish(peer, begin, hop);
        runnable.push_back(peer);
      }
    }
    return verdict();
  }

  ScheduleReport take_report() {
    report_.idle.assign(shape_.stages, 0.0);
    for (int stage = 0; stage < shape_.stages; ++stage) {
      double busy = 0;
      double first = now_[stage], last = 0;
      for (const TimedAction& timed : report_.timeline[stage]) {
        busy += timed.end - timed.begin;
        if (is_transfer(timed.action.kind)) continue;
        first = std::min(first, timed.begin);
        last = timed.end;
      }
      report_.longest_span = std::max(report_.longest_span, last - first);
      report_.idle[stage] = std::max(0.0, now_[stage] - busy);
      report_.makespan = std::max(report_.makespan, now_[stage]);
    }
    return std::move(report_);
  }

 private:
  const Action* current(int stage) const {
    return at_[stage] < schedule_[stage].size() ? &schedule_[stage][at_[stage]] : nullptr;
  }

  double cost(int stage, const Action& action) const {
    const auto of = [&](const std::vector<std::vector<double>>& table, double scalar) {
      return table.empty() ? scalar : table[stage][action.chunk];
    };
    switch (action.kind) {
      case ActionKind::kForward:
        return of(costs_.forward_of, costs_.forward);
      case ActionKind::kRecompute:
        return of(costs_.recompute_of, of(costs_.forward_of, costs_.forward));
      case ActionKind::kBackward:
        return of(costs_.backward_of, costs_.backward);
      case ActionKind::kWgrad:
        return of(costs_.wgrad_of, costs_.wgrad);
      case ActionKind::kReduce:
        return costs_.reduce;
      case ActionKind::kStep:
        return costs_.step;
      default:
        return 0;
    }
  }

  // The table is by the chunk before the hop.
  double hop_seconds(int stage, const Action& action) const {
    if (costs_.transfer_of.empty()) return costs_.transfer;
    int position = shape_.position(stage, action.chunk);
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward) {
      --position;
    }
    return costs_.transfer_of[shape_.stage_at(position)][shape_.chunk_at(position)];
  }

  void finish(int stage, double begin, double duration) {
    now_[stage] = begin + duration;
    report_.timeline[stage].push_back({schedule_[stage][at_[stage]], begin, now_[stage]});
    ++at_[stage];
  }

  // Whether the peer stands before the other side of this very transfer.
  bool partners(int stage, const Action& mine) const {
    const Action* other = current(mine.peer);
    if (other == nullptr || other->peer != stage || other->micro_batch != mine.micro_batch) {
      return false;
    }
    const int own = shape_.position(stage, mine.chunk);
    const int others = shape_.position(mine.peer, other->chunk);
    switch (mine.kind) {
      case ActionKind::kSendForward:
        return other->kind == ActionKind::kRecvForward && others == own + 1;
      case ActionKind::kRecvForward:
        return other->kind == ActionKind::kSendForward && others == own - 1;
      case ActionKind::kSendBackward:
        return other->kind == ActionKind::kRecvBackward && others == own - 1;
      case ActionKind::kRecvBackward:
        return other->kind == ActionKind::kSendBackward && others == own + 1;
      default:
        return false;
    }
  }

  Status verdict() const {
    std::string waiting;
    int stuck = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const Action* action = current(stage);
      if (action == nullptr) continue;
      ++stuck;
      if (stuck > 4) continue;
      waiting += fmt::format("{}stage {} at action {} ({})", stuck == 1 ? "" : "; ", stage,
                             at_[stage], describe(*action));
    }
    if (stuck == 0) return {};
    return failed_precondition("schedule: deadlock of {} stages: {}", stuck, waiting);
  }

  ScheduleShape shape_;
  const Schedule& schedule_;
  const ActionCosts& costs_;
  std::vector<size_t> at_;
  std::vector<double> now_;
  ScheduleReport report_;
};

Status check_costs(const ScheduleShape& shape, const ActionCosts& costs) {
  const auto usable = [](double value) { return std::isfinite(value) && value >= 0; };
  bool numbers = true;
  for (const double value :
       {costs.forward, costs.backward, costs.wgrad, costs.transfer, costs.reduce, costs.step,
        costs.activation, costs.wgrad_kept, costs.recomputed}) {
    numbers = numbers && usable(value);
  }
  for (const auto* table :
       {&costs.forward_of, &costs.backward_of, &costs.wgrad_of, &costs.recompute_of,
        &costs.transfer_of, &costs.activation_of, &costs.wgrad_kept_of, &costs.recomputed_of}) {
    if (table->empty()) continue;
    bool fits = table->size() == static_cast<size_t>(shape.stages);
    for (const auto& row : *table) {
      fits = fits && row.size() == static_cast<size_t>(shape.virtual_stages);
      numbers = numbers && std::all_of(row.begin(), row.end(), usable);
    }
    if (!fits) {
      return invalid_argument("schedule: costs per chunk must be {} stages x {} virtual stages",
                              shape.stages, shape.virtual_stages);
    }
  }
  if (!numbers) return invalid_argument("schedule: a cost is no finite number >= 0");
  return {};
}

}  // namespace

Result<ScheduleReport> check_schedule(const Schedule& schedule, const ScheduleShape& shape,
                                      const ActionCosts& costs) {
  RETURN_IF_ERROR(check_shape(shape));
  if (schedule.size() != static_cast<size_t>(shape.stages)) {
    return invalid_argument("schedule: {} lists for {} stages", schedule.size(), shape.stages);
  }
  RETURN_IF_ERROR(check_costs(shape, costs));
  // One Wgrad anywhere means that Backward does not include the weight gradients.
  const bool split_backward =
      std::any_of(schedule.begin(), schedule.end(), [](const StageActions& actions) {
        return std::any_of(actions.begin(), actions.end(),
                           [](const Action& action) { return action.kind == ActionKind::kWgrad; });
      });
  std::vector<int> slots;
  std::vector<double> memory;
  for (int stage = 0; stage < shape.stages; ++stage) {
    StageChecker checker(shape, stage, split_backward, costs);
    RETURN_IF_ERROR(checker.run(schedule[stage]));
    slots.push_back(checker.peak_slots());
    memory.push_back(checker.peak_memory());
  }
  Simulator simulator(shape, schedule, costs);
  RETURN_IF_ERROR(simulator.run());
  ScheduleReport report = simulator.take_report();
  report.peak_slots = std::move(slots);
  report.peak_memory = std::move(memory);
  return report;
}

}  // namespace flextrain::planner
