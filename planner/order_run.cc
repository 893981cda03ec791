// SPDX-License-Identifier: MIT
#include "planner/order_run.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace flextrain::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Where the result of a computation goes: a position in the order of execution, or -1.
int target_position(const ScheduleShape& shape, int stage, const Compute& compute) {
  const int position = shape.position(stage, compute.chunk);
  if (compute.work == Work::kForward) return position == shape.last_position() ? -1 : position + 1;
  return compute.work == Work::kBackward ? position - 1 : -1;
}

// One event of the global order; a transfer stands for a Send and its Recv.
struct Event {
  bool is_transfer = false;
  int stage = 0;  // that computes or sends
  Compute compute;
};

// Whether a stage with a result to send whose receiver is computing waits for it before it computes
// on: always; when the receiver can do nothing before it has it; never.
enum class Waiting { kAlways, kWhenNeeded, kNever };

struct Run {
  std::vector<Event> events;
  double makespan = 0;
  std::vector<int> stuck;
};

// Runs the orders on the time line.
class TimeLine {
 public:
  TimeLine(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times,
           Waiting waiting)
      : shape_(shape), orders_(orders), times_(times), waiting_(waiting), stages_(shape.stages) {
    const size_t cells =
        static_cast<size_t>(shape.chunks()) * static_cast<size_t>(shape.micro_batches);
    for (auto* flags : {&forward_in_, &backward_in_, &forward_done_, &backward_done_}) {
      flags->assign(cells, false);
    }
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      forward_in_[cell(0, micro_batch)] = true;
      backward_in_[cell(shape.last_position(), micro_batch)] = true;
    }
    size_t events = 0;
    for (const auto& order : orders) events += order.size();
    result_.events.reserve(2 * events);
  }

  Run run() {
    for (;;) {
      for (int stage = 0; stage < shape_.stages; ++stage) finish(stage);
      // A transfer that takes no time frees both sides for the next one.
      for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < shape_.stages; ++stage) moved |= hand_over(stage);
      }
      for (int stage = 0; stage < shape_.stages; ++stage) start(stage);
      double next = kNever;
      for (const StageState& state : stages_) {
        if (state.busy) next = std::min(next, state.end);
      }
      if (next == kNever) break;
      now_ = next;
    }
    result_.makespan = now_;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      if (stages_[stage].next < orders_[stage].size()) result_.stuck.push_back(stage);
    }
    return std::move(result_);
  }

 private:
  struct StageState {
    size_t next = 0;  // index into the order
    bool busy = false, computing = false;
    double end = 0;
    std::vector<Compute> outbox;  // results not handed over yet
    std::vector<Compute> inbox;   // on its way here: arrives at `end`
  };

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }
  size_t own_cell(int stage, const Compute& compute) const {
    return cell(shape_.position(stage, compute.chunk), compute.micro_batch);
  }

  void arrive(int stage, const Compute& compute) {
    auto& flags = compute.work == Work::kForward ? forward_in_ : backward_in_;
    flags[cell(target_position(shape_, stage, compute), compute.micro_batch)] = true;
  }

  void finish(int stage) {
    StageState& state = stages_[stage];
    if (!state.busy || state.end > now_) return;
    state.busy = false;
    if (!state.computing) {
      for (const Compute& compute : state.inbox) {
        auto& flags = compute.work == Work::kForward ? forward_in_ : backward_in_;
        flags[own_cell(stage, compute)] = true;
      }
      state.inbox.clear();
      return;
    }
    state.computing = false;
    const Compute& compute = orders_[stage][state.next - 1];
    if (compute.work == Work::kForward) forward_done_[own_cell(stage, compute)] = true;
    if (compute.work == Work::kBackward) backward_done_[own_cell(stage, compute)] = true;
    const int target = target_position(shape_, stage, compute);
    if (target < 0) return;
    if (shape_.stage_at(target) == stage) {
      arrive(stage, compute);
    } else {
      state.outbox.push_back(compute);
    }
  }

  bool hand_over(int stage) {
    StageState& state = stages_[stage];
    bool moved = false;
    for (size_t i = 0; i < state.outbox.size() && !state.busy;) {
      const Compute compute = state.outbox[i];
      const int target = target_position(shape_, stage, compute);
      const int receiver = shape_.stage_at(target);
      if (stages_[receiver].busy) {
        ++i;
        continue;
      }
      result_.events.push_back({true, stage, compute});
      state.outbox.erase(state.outbox.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
      const int chunk = compute.work == Work::kForward ? compute.chunk : shape_.chunk_at(target);
      const double hop = times_.hop(compute.work == Work::kForward ? stage : receiver, chunk);
      if (hop <= 0) {
        arrive(stage, compute);
        continue;
      }
      StageState& other = stages_[receiver];
      state.busy = other.busy = true;
      state.end = other.end = now_ + hop;
      other.inbox.push_back({compute.work, compute.micro_batch, shape_.chunk_at(target)});
    }
    return moved;
  }

  bool ready(int stage, const Compute& compute) const {
    const size_t own = own_cell(stage, compute);
    switch (compute.work) {
      case Work::kForward:
        return forward_in_[own];
      case Work::kBackward:
        return backward_in_[own] && forward_done_[own];
      case Work::kWgrad:
        return backward_done_[own];
      case Work::kRecompute:
        return forward_done_[own];
    }
    return false;
  }

  // Whether the receiver of `result` needs it for what it computes next.
  bool needed(int stage, const Compute& result) const {
    const int target = target_position(shape_, stage, result);
    const int receiver = shape_.stage_at(target);
    const size_t next = stages_[receiver].next;
    if (next >= orders_[receiver].size()) return false;
    const Compute& waiting = orders_[receiver][next];
    return waiting.work == result.work && waiting.micro_batch == result.micro_batch &&
           waiting.chunk == shape_.chunk_at(target);
  }

  void start(int stage) {
    StageState& state = stages_[stage];
    if (state.busy || state.next == orders_[stage].size()) return;
    const Compute& compute = orders_[stage][state.next];
    if (!ready(stage, compute)) return;
    if (waiting_ == Waiting::kAlways && !state.outbox.empty()) return;
    if (waiting_ == Waiting::kWhenNeeded &&
        std::any_of(state.outbox.begin(), state.outbox.end(),
                    [&](const Compute& result) { return needed(stage, result); })) {
      return;
    }
    state.busy = state.computing = true;
    state.end = now_ + times_.of(stage, compute);
    ++state.next;
    result_.events.push_back({false, stage, compute});
  }

  const ScheduleShape& shape_;
  const Orders& orders_;
  const WorkTimes& times_;
  Waiting waiting_;
  std::vector<StageState> stages_;
  // [position and micro-batch]: input there, gradient there, computed.
  std::vector<bool> forward_in_, backward_in_, forward_done_, backward_done_;
  double now_ = 0;
  Run result_;
};

// Hands out the smallest free slot of a stage.
class SlotPool {
 public:
  int acquire() {
    if (free_.empty()) return used_++;
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void release(int slot) {
    free_.push_back(slot);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }

 private:
  std::vector<int> free_;  // a heap, the smallest on top
  int used_ = 0;
};

class Emitter {
 public:
  Emitter(const ScheduleShape& shape, bool split_backward)
      : shape_(shape),
        schedule_(shape.stages),
        pools_(shape.stages),
        slot_of_(static_cast<size_t>(shape.chunks()) * shape.micro_batches, -1),
        uses_left_(slot_of_.size()) {
    for (int position = 0; position <= shape.last_position(); ++position) {
      const int stage = shape.stage_at(position);
      int uses = split_backward ? 3 : 2;  // Forward, Backward, Wgrad
      if (position > 0 && shape.stage_at(position - 1) != stage) uses += 2;  // input, its gradient
      if (position < shape.last_position() && shape.stage_at(position + 1) != stage) uses += 2;
      std::fill_n(uses_left_.begin() + static_cast<std::ptrdiff_t>(cell(position, 0)),
                  shape.micro_batches, uses);
    }
  }

  Schedule run(const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.is_transfer) {
        transfer(event.stage, event.compute);
      } else {
        add(event.stage, kind_of(event.compute.work), event.compute.micro_batch,
            event.compute.chunk, -1);
      }
    }
    for (StageActions& actions : schedule_) {
      for (int chunk = 0; chunk < shape_.virtual_stages; ++chunk) {
        actions.push_back({ActionKind::kReduce, 0, chunk, -1, 0});
      }
      actions.push_back({ActionKind::kStep, 0, 0, -1, 0});
    }
    return std::move(schedule_);
  }

 private:
  static ActionKind kind_of(Work work) {
    switch (work) {
      case Work::kForward:
        return ActionKind::kForward;
      case Work::kBackward:
        return ActionKind::kBackward;
      case Work::kWgrad:
        return ActionKind::kWgrad;
      case Work::kRecompute:
        return ActionKind::kRecompute;
    }
    return ActionKind::kForward;
  }

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }

  // The slot is taken by the first use and free after the last.
  void add(int stage, ActionKind kind, int micro_batch, int chunk, int peer) {
    const size_t at = cell(shape_.position(stage, chunk), micro_batch);
    if (slot_of_[at] < 0) slot_of_[at] = pools_[stage].acquire();
    schedule_[stage].push_back({kind, micro_batch, chunk, peer, slot_of_[at]});
    if (kind != ActionKind::kRecompute && --uses_left_[at] == 0)
      pools_[stage].release(slot_of_[at]);
  }

  void transfer(int stage, const Compute& compute) {
    const int position = target_position(shape_, stage, compute);
    const int peer = shape_.stage_at(position);
    const bool forward = compute.work == Work::kForward;
    // The receiver first: its slot must not be the one that the sender's stage frees now.
    add(peer, forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward, compute.micro_batch,
        shape_.chunk_at(position), stage);
    add(stage, forward ? ActionKind::kSendForward : ActionKind::kSendBackward, compute.micro_batch,
        compute.chunk, peer);
  }

  const ScheduleShape& shape_;
  Schedule schedule_;
  std::vector<SlotPool> pools_;
  std::vector<int> slot_of_;    // [position][micro-batch], -1 before its first use
  std::vector<int> uses_left_;  // [position][micro-batch]
};

}  // namespace

OrderRun run_orders(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times,
                    bool send_at_once) {
  Run best = TimeLine(shape, orders, times, Waiting::kAlways).run();
  OrderRun result;
  result.stuck = best.stuck;
  result.makespan = best.makespan;
  if (!best.stuck.empty()) return result;
  if (!send_at_once) {
    for (const Waiting waiting : {Waiting::kWhenNeeded, Waiting::kNever}) {
      Run other = TimeLine(shape, orders, times, waiting).run();
      if (other.stuck.empty() && other.makespan < best.makespan) best = std::move(other);
    }
  }
  const bool split = std::any_of(orders.begin(), orders.end(), [](const auto& order) {
    return std::any_of(order.begin(), order.end(),
                       [](const Compute& compute) { return compute.work == Work::kWgrad; });
  });
  result.makespan = best.makespan;
  result.schedule = Emitter(shape, split).run(best.events);
  return result;
}

}  // namespace flextrain::planner
