// SPDX-License-Identifier: MIT
#include "planner/order_run.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>

#include "planner/earliest_stage.h"

namespace flextrain::planner {
namespace {

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

// A set of stages that is walked in ascending order.
class StageSet {
 public:
  explicit StageSet(int stages) : words_((static_cast<size_t>(stages) + 63) / 64) {}
  void insert(int stage) { words_[at(stage)] |= bit(stage); }
  void erase(int stage) { words_[at(stage)] &= ~bit(stage); }
  // Calls `visit` with each stage that is in the set when it is its turn.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t word = 0; word < words_.size(); ++word) {
      for (uint64_t left = words_[word]; left != 0;) {
        const int offset = std::countr_zero(left);
        visit(static_cast<int>(64 * word) + offset);
        left = offset == 63 ? 0 : words_[word] & (~uint64_t{0} << (offset + 1));
      }
    }
  }

 private:
  static size_t at(int stage) { return static_cast<size_t>(stage) / 64; }
  static uint64_t bit(int stage) { return uint64_t{1} << (static_cast<unsigned>(stage) % 64); }
  std::vector<uint64_t> words_;
};

// Runs the orders on the time line. At each moment first what ends then, then transfers, then what
// can begin, each in the order of the stages; only stages for which something has changed are
// asked.
class TimeLine {
 public:
  TimeLine(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times,
           Waiting waiting)
      : shape_(shape),
        orders_(orders),
        times_(times),
        waiting_(waiting),
        stages_(shape.stages),
        senders_(shape.stages),
        changed_(shape.stages),
        ends_(shape.stages) {
    const size_t cells =
        static_cast<size_t>(shape.chunks()) * static_cast<size_t>(shape.micro_batches);
    seen_.assign(cells, 0);
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      seen_[cell(0, micro_batch)] |= kForwardIn;
      seen_[cell(shape.last_position(), micro_batch)] |= kBackwardIn;
    }
    size_t events = 0;
    for (const auto& order : orders) events += order.size();
    result_.events.reserve(2 * events);
    for (int stage = 0; stage < shape.stages; ++stage) changed_.insert(stage);
  }

  Run run() {
    for (;;) {
      while (ends_.time() <= now_) {
        const int stage = ends_.stage();
        ends_.set(stage, EarliestStage::kNever);
        finish(stage);
      }
      // A transfer that takes no time frees both sides for the next one.
      for (bool moved = true; moved;) {
        moved = false;
        senders_.each([&](int stage) { moved |= hand_over(stage); });
      }
      changed_.each([&](int stage) {
        start(stage);
        changed_.erase(stage);
      });
      if (ends_.time() == EarliestStage::kNever) break;
      now_ = ends_.time();
    }
    result_.makespan = now_;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      if (stages_[stage].next < orders_[stage].size()) result_.stuck.push_back(stage);
    }
    return std::move(result_);
  }

 private:
  // Of a position and micro-batch: what is there, what is computed.
  enum Seen : uint8_t { kForwardIn = 1, kBackwardIn = 2, kForwardDone = 4, kBackwardDone = 8 };
  struct StageState {
    size_t next = 0;  // index into the order
    bool busy = false, computing = false;
    std::vector<Compute> outbox;  // results not handed over yet
    std::vector<Compute> inbox;   // on its way here: arrives when the stage is free again
  };

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }
  size_t own_cell(int stage, const Compute& compute) const {
    return cell(shape_.position(stage, compute.chunk), compute.micro_batch);
  }
  static uint8_t input_of(Work work) { return work == Work::kForward ? kForwardIn : kBackwardIn; }

  void keep_busy(int stage, double seconds) {
    stages_[stage].busy = true;
    ends_.set(stage, now_ + seconds);
  }

  void arrive(int position, const Compute& compute) {
    seen_[cell(position, compute.micro_batch)] |= input_of(compute.work);
    changed_.insert(shape_.stage_at(position));
  }

  void finish(int stage) {
    StageState& state = stages_[stage];
    state.busy = false;
    changed_.insert(stage);
    if (!state.computing) {
      for (const Compute& compute : state.inbox) {
        seen_[own_cell(stage, compute)] |= input_of(compute.work);
      }
      state.inbox.clear();
      return;
    }
    state.computing = false;
    const Compute& compute = orders_[stage][state.next - 1];
    if (compute.work == Work::kForward) seen_[own_cell(stage, compute)] |= kForwardDone;
    if (compute.work == Work::kBackward) seen_[own_cell(stage, compute)] |= kBackwardDone;
    const int target = target_position(shape_, stage, compute);
    if (target < 0) return;
    if (shape_.stage_at(target) == stage) {
      arrive(target, compute);
    } else {
      state.outbox.push_back(compute);
      senders_.insert(stage);
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
      changed_.insert(stage);
      const int chunk = compute.work == Work::kForward ? compute.chunk : shape_.chunk_at(target);
      const double hop = times_.hop(compute.work == Work::kForward ? stage : receiver, chunk);
      if (hop <= 0) {
        arrive(target, compute);
        continue;
      }
      keep_busy(stage, hop);
      keep_busy(receiver, hop);
      stages_[receiver].inbox.push_back(
          {compute.work, compute.micro_batch, shape_.chunk_at(target)});
    }
    if (state.outbox.empty()) senders_.erase(stage);
    return moved;
  }

  bool ready(int stage, const Compute& compute) const {
    const uint8_t seen = seen_[own_cell(stage, compute)];
    switch (compute.work) {
      case Work::kForward:
        return (seen & kForwardIn) != 0;
      case Work::kBackward:
        return (seen & kBackwardIn) != 0 && (seen & kForwardDone) != 0;
      case Work::kWgrad:
        return (seen & kBackwardDone) != 0;
      case Work::kRecompute:
        return (seen & kForwardDone) != 0;
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
    state.computing = true;
    keep_busy(stage, times_.of(stage, compute));
    ++state.next;
    result_.events.push_back({false, stage, compute});
  }

  const ScheduleShape& shape_;
  const Orders& orders_;
  const WorkTimes& times_;
  Waiting waiting_;
  std::vector<StageState> stages_;
  StageSet senders_, changed_;  // with something to hand over; that may now do something else
  std::vector<uint8_t> seen_;   // [position and micro-batch], bits of Seen
  EarliestStage ends_;          // of what keeps a stage busy
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

double earliest_end(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times) {
  const auto cell = [&shape](int position, int micro_batch) {
    return static_cast<size_t>(position) * shape.micro_batches + micro_batch;
  };
  // When inputs arrive and computations end; below 0 = not yet.
  std::vector<double> forward_in(cell(shape.chunks(), 0), -1),
      backward_in = forward_in, forward_end = forward_in, backward_end = forward_in;
  for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
    forward_in[cell(0, micro_batch)] = backward_in[cell(shape.last_position(), micro_batch)] = 0;
  }
  std::vector<size_t> next(static_cast<size_t>(shape.stages), 0);
  std::vector<double> free(next.size(), 0);
  std::vector<int> open;
  for (int stage = shape.stages - 1; stage >= 0; --stage) open.push_back(stage);
  while (!open.empty()) {
    const int stage = open.back();
    open.pop_back();
    for (; next[stage] < orders[stage].size(); ++next[stage]) {
      const Compute& compute = orders[stage][next[stage]];
      const int position = shape.position(stage, compute.chunk);
      const size_t at = cell(position, compute.micro_batch);
      double input = forward_end[at];
      if (compute.work == Work::kForward) input = forward_in[at];
      if (compute.work == Work::kWgrad) input = backward_end[at];
      if (compute.work == Work::kBackward) {
        input = input < 0 || backward_in[at] < 0 ? -1 : std::max(input, backward_in[at]);
      }
      if (input < 0) break;
      const double end = std::max(free[stage], input) + times.of(stage, compute);
      free[stage] = end;
      if (compute.work == Work::kForward) forward_end[at] = end;
      if (compute.work == Work::kBackward) backward_end[at] = end;
      const int target = target_position(shape, stage, compute);
      if (target < 0) continue;
      const int other = shape.stage_at(target), before = std::min(position, target);
      const double hop =
          other == stage ? 0 : times.hop(shape.stage_at(before), shape.chunk_at(before));
      auto& inputs = compute.work == Work::kForward ? forward_in : backward_in;
      inputs[cell(target, compute.micro_batch)] = end + hop;
      if (other != stage) open.push_back(other);
    }
  }
  return *std::max_element(free.begin(), free.end());
}

OrderRun run_orders(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times,
                    bool send_at_once) {
  Run best = TimeLine(shape, orders, times, Waiting::kAlways).run();
  OrderRun result;
  result.stuck = best.stuck;
  result.makespan = best.makespan;
  if (!best.stuck.empty()) return result;
  if (!send_at_once) {
    const double least = earliest_end(shape, orders, times);
    for (const Waiting waiting : {Waiting::kWhenNeeded, Waiting::kNever}) {
      if (best.makespan <= least) break;
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
