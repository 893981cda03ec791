// SPDX-License-Identifier: MIT
// check_schedule: a static pass over each stage's list (every action once, in a possible order, in
// a slot of its own), then a simulation with rendezvous sends.
#include <algorithm>
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

struct Shape {
  int stages, virtual_stages, micro_batches;

  // The stage before and after a chunk in the order of execution, -1 at the ends.
  int previous_stage(int stage, int chunk) const {
    if (stage > 0) return stage - 1;
    return chunk > 0 ? stages - 1 : -1;
  }
  int next_stage(int stage, int chunk) const {
    if (stage < stages - 1) return stage + 1;
    return chunk < virtual_stages - 1 ? 0 : -1;
  }
  // The chunk index there.
  int previous_chunk(int stage, int chunk) const { return stage > 0 ? chunk : chunk - 1; }
  int next_chunk(int stage, int chunk) const { return stage < stages - 1 ? chunk : chunk + 1; }
};

// Walks one stage's list and keeps, for every (chunk, micro-batch), the set of actions done.
class StageChecker {
 public:
  StageChecker(const Shape& shape, int stage, bool split_backward)
      : shape_(shape),
        stage_(stage),
        split_backward_(split_backward),
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
    done |= bit(action.kind);
    // The slot holds input, saved tensors and gradients: free when nothing of them is needed.
    if ((done & required(action.chunk)) == required(action.chunk)) {
      owner_of_[action.slot] = -1;
      --in_use_;
    }
    return {};
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

  Shape shape_;
  int stage_;
  bool split_backward_;
  std::vector<unsigned> done_;  // [chunk][micro-batch] → bits of ActionKind
  std::vector<int> slot_of_;    // [chunk][micro-batch] → slot
  std::vector<int> owner_of_;   // [slot] → chunk·m + micro-batch, -1 = free
  std::vector<bool> reduced_;
  bool stepped_ = false;
  int in_use_ = 0, peak_ = 0;
};

class Simulator {
 public:
  Simulator(const Shape& shape, const Schedule& schedule, const ActionCosts& costs)
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
        finish(stage, begin, costs_.transfer);
        finish(peer, begin, costs_.transfer);
        runnable.push_back(peer);
      }
    }
    return verdict();
  }

  ScheduleReport take_report() {
    report_.idle.assign(shape_.stages, 0.0);
    for (int stage = 0; stage < shape_.stages; ++stage) {
      double busy = 0;
      for (const TimedAction& timed : report_.timeline[stage]) busy += timed.end - timed.begin;
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
      case ActionKind::kRecompute:
        return of(costs_.forward_of, costs_.forward);
      case ActionKind::kBackward:
        return of(costs_.backward_of, costs_.backward);
      case ActionKind::kWgrad:
        return costs_.wgrad;
      case ActionKind::kReduce:
        return costs_.reduce;
      case ActionKind::kStep:
        return costs_.step;
      default:
        return 0;
    }
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
    switch (mine.kind) {
      case ActionKind::kSendForward:
        return other->kind == ActionKind::kRecvForward &&
               other->chunk == shape_.next_chunk(stage, mine.chunk);
      case ActionKind::kRecvForward:
        return other->kind == ActionKind::kSendForward &&
               other->chunk == shape_.previous_chunk(stage, mine.chunk);
      case ActionKind::kSendBackward:
        return other->kind == ActionKind::kRecvBackward &&
               other->chunk == shape_.previous_chunk(stage, mine.chunk);
      case ActionKind::kRecvBackward:
        return other->kind == ActionKind::kSendBackward &&
               other->chunk == shape_.next_chunk(stage, mine.chunk);
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

  Shape shape_;
  const Schedule& schedule_;
  const ActionCosts& costs_;
  std::vector<size_t> at_;
  std::vector<double> now_;
  ScheduleReport report_;
};

Status check_costs(const Shape& shape, const ActionCosts& costs) {
  for (const auto* table : {&costs.forward_of, &costs.backward_of}) {
    if (table->empty()) continue;
    bool fits = table->size() == static_cast<size_t>(shape.stages);
    for (const auto& row : *table) {
      fits = fits && row.size() == static_cast<size_t>(shape.virtual_stages);
    }
    if (!fits) {
      return invalid_argument("schedule: costs per chunk must be {} stages x {} virtual stages",
                              shape.stages, shape.virtual_stages);
    }
  }
  return {};
}

}  // namespace

Result<ScheduleReport> check_schedule(const Schedule& schedule, int virtual_stages,
                                      int micro_batches, const ActionCosts& costs) {
  if (schedule.empty() || schedule.size() > static_cast<size_t>(kMaxChunks) || virtual_stages < 1 ||
      micro_batches < 1 || virtual_stages > kMaxChunks ||
      static_cast<int64_t>(schedule.size()) * virtual_stages * micro_batches > kMaxUnitsOfWork) {
    return invalid_argument(
        "schedule: {} stages x {} virtual stages x {} micro-batches, each must be at least 1 and "
        "their product at most {}",
        schedule.size(), virtual_stages, micro_batches, kMaxUnitsOfWork);
  }
  const Shape shape{static_cast<int>(schedule.size()), virtual_stages, micro_batches};
  RETURN_IF_ERROR(check_costs(shape, costs));
  // One Wgrad anywhere means that Backward does not include the weight gradients.
  const bool split_backward =
      std::any_of(schedule.begin(), schedule.end(), [](const StageActions& actions) {
        return std::any_of(actions.begin(), actions.end(),
                           [](const Action& action) { return action.kind == ActionKind::kWgrad; });
      });
  std::vector<int> peaks;
  for (int stage = 0; stage < shape.stages; ++stage) {
    StageChecker checker(shape, stage, split_backward);
    RETURN_IF_ERROR(checker.run(schedule[stage]));
    peaks.push_back(checker.peak_slots());
  }
  Simulator simulator(shape, schedule, costs);
  RETURN_IF_ERROR(simulator.run());
  ScheduleReport report = simulator.take_report();
  report.peak_slots = std::move(peaks);
  return report;
}

}  // namespace flextrain::planner
