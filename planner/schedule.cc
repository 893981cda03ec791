// SPDX-License-Identifier: MIT
// Making schedules.
//
// Freedom from deadlock is by construction. First each stage gets an order of its computations
// (warm-up forwards, then one forward and one backward in turn, then the rest). The orders are run
// on an ideal time line (forward 1, backward 2, transfers 0), on which a transfer happens when
// neither side computes. Every computation and every transfer, the Send and its Recv as ONE event,
// thereby gets a place in one global order, and a stage's list is what it takes part in, in that
// order. Under rendezvous sends the first event that has not happened can always happen (all
// earlier ones have, on all stages), so no execution gets stuck, whatever the real times. For the
// same reason messages between two stages are sent and received in the same order.
#include "planner/schedule.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "planner/limits.h"

namespace flextrain::planner {
namespace {

constexpr std::array<std::string_view, 10> kActionNames = {
    "Forward",      "Backward",     "Wgrad",     "SendForward", "RecvForward",
    "SendBackward", "RecvBackward", "Recompute", "Reduce",      "Step"};

struct Shape {
  int stages, virtual_stages, micro_batches;

  int per_stage() const { return virtual_stages * micro_batches; }
  // Position of a chunk in the order of execution over the pipeline.
  int position(int stage, int chunk) const { return chunk * stages + stage; }
  int last_position() const { return stages * virtual_stages - 1; }
};

struct Compute {
  bool backward = false;
  int micro_batch = 0, chunk = 0;
};

// The order of one direction on every stage: groups of `stages` micro-batches run through all
// chunks before the next group begins (the last group may be smaller); with one chunk, simply all
// micro-batches. Per chunk the micro-batches always ascend, so fp32 sums do not depend on the
// schedule.
std::vector<Compute> direction_order(const Shape& shape, bool backward) {
  std::vector<Compute> order;
  order.reserve(shape.per_stage());
  for (int begin = 0; begin < shape.micro_batches; begin += shape.stages) {
    const int end = std::min(begin + shape.stages, shape.micro_batches);
    for (int c = 0; c < shape.virtual_stages; ++c) {
      const int chunk = backward ? shape.virtual_stages - 1 - c : c;
      for (int micro_batch = begin; micro_batch < end; ++micro_batch) {
        order.push_back({backward, micro_batch, chunk});
      }
    }
  }
  return order;
}

constexpr int64_t kForwardTime = 1, kBackwardTime = 2;

int64_t duration(const Compute& compute) { return compute.backward ? kBackwardTime : kForwardTime; }

// Where the result of a computation goes: a position in the order of execution, or -1.
int target_position(const Shape& shape, int stage, const Compute& compute) {
  const int position = shape.position(stage, compute.chunk);
  if (compute.backward) return position - 1;
  return position == shape.last_position() ? -1 : position + 1;
}

// One event of the global order; a transfer stands for a Send and its Recv.
struct Event {
  bool is_transfer = false;
  int stage = 0;  // that computes or sends
  Compute compute;
};

// Whether a stage whose receiver is computing waits for it before it computes on. With kAlways a
// Send stands right after its computation and no output outlives the next computation; with kNever
// the Send moves to the first moment at which neither side computes.
enum class Waiting { kAlways, kNever };

struct Run {
  std::vector<Event> events;
  int64_t makespan = 0;
  std::vector<int> stuck;  // stages that cannot go on; empty = complete
};

// Runs the orders on the ideal time line.
class IdealRun {
 public:
  using Orders = std::vector<std::vector<Compute>>;

  IdealRun(const Shape& shape, const Orders& orders, Waiting waiting)
      : shape_(shape), orders_(orders), waiting_(waiting), stages_(shape.stages) {
    const size_t cells =
        static_cast<size_t>(shape.last_position() + 1) * static_cast<size_t>(shape.micro_batches);
    for (auto& arrived : arrived_) arrived.assign(cells, false);
    forward_done_.assign(cells, false);
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      arrived_[0][cell(0, micro_batch)] = true;
      arrived_[1][cell(shape.last_position(), micro_batch)] = true;
    }
  }

  Run run() {
    for (;;) {
      for (int stage = 0; stage < shape_.stages; ++stage) finish(stage);
      for (int stage = 0; stage < shape_.stages; ++stage) hand_over(stage);
      for (int stage = 0; stage < shape_.stages; ++stage) start(stage);
      int64_t next = -1;
      for (const StageState& state : stages_) {
        if (state.computing && (next < 0 || state.end < next)) next = state.end;
      }
      if (next < 0) break;
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
    bool computing = false;
    int64_t end = 0;
    std::vector<Compute> outbox;  // results not handed over yet
  };

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }
  std::vector<bool>& arrived(const Compute& compute) { return arrived_[compute.backward ? 1 : 0]; }

  void finish(int stage) {
    StageState& state = stages_[stage];
    if (!state.computing || state.end > now_) return;
    state.computing = false;
    const Compute& compute = orders_[stage][state.next - 1];
    if (!compute.backward) {
      forward_done_[cell(shape_.position(stage, compute.chunk), compute.micro_batch)] = true;
    }
    const int target = target_position(shape_, stage, compute);
    if (target < 0) return;
    if (target % shape_.stages == stage) {
      arrived(compute)[cell(target, compute.micro_batch)] = true;
    } else {
      state.outbox.push_back(compute);
    }
  }

  void hand_over(int stage) {
    StageState& state = stages_[stage];
    if (state.computing) return;
    std::erase_if(state.outbox, [&](const Compute& compute) {
      const int target = target_position(shape_, stage, compute);
      if (stages_[target % shape_.stages].computing) return false;
      arrived(compute)[cell(target, compute.micro_batch)] = true;
      result_.events.push_back({true, stage, compute});
      return true;
    });
  }

  void start(int stage) {
    StageState& state = stages_[stage];
    if (state.computing || state.next == orders_[stage].size()) return;
    const Compute& compute = orders_[stage][state.next];
    const size_t own = cell(shape_.position(stage, compute.chunk), compute.micro_batch);
    if (!arrived(compute)[own] || (compute.backward && !forward_done_[own])) return;
    if (waiting_ == Waiting::kAlways && !state.outbox.empty()) return;
    state.computing = true;
    state.end = now_ + duration(compute);
    ++state.next;
    result_.events.push_back({false, stage, compute});
  }

  Shape shape_;
  const Orders& orders_;
  Waiting waiting_;
  std::vector<StageState> stages_;
  std::array<std::vector<bool>, 2> arrived_;  // [backward][position and micro-batch]: input there
  std::vector<bool> forward_done_;
  int64_t now_ = 0;
  Run result_;
};

// The best run of all stages with `warm_up` forwards before the first backward. With a last group
// that is not full a stage may need more warm-up than asked for: then it gets it, one at a time,
// until the run completes. That ends at the latest when all forwards precede all backwards, an
// order that always completes because each direction has the same order on all stages.
std::vector<Event> global_order(const Shape& shape, std::vector<int> warm_up) {
  const std::vector<Compute> forwards = direction_order(shape, false);
  const std::vector<Compute> backwards = direction_order(shape, true);
  const int total = shape.per_stage();
  for (;;) {
    IdealRun::Orders orders(shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int ahead = std::min(warm_up[stage], total);
      std::vector<Compute>& order = orders[stage];
      order.reserve(2 * static_cast<size_t>(total));
      order.insert(order.end(), forwards.begin(), forwards.begin() + ahead);
      for (int i = ahead; i < total; ++i) {
        order.push_back(forwards[i]);
        order.push_back(backwards[i - ahead]);
      }
      order.insert(order.end(), backwards.begin() + (total - ahead), backwards.end());
    }
    Run run = IdealRun(shape, orders, Waiting::kAlways).run();
    if (run.stuck.empty()) {
      // Plain 1F1B loses nothing by waiting; interleaved does.
      if (shape.virtual_stages == 1) return std::move(run.events);
      Run late = IdealRun(shape, orders, Waiting::kNever).run();
      return std::move(late.makespan < run.makespan ? late.events : run.events);
    }
    for (const int stage : run.stuck) ++warm_up[stage];
  }
}

// Hands out the smallest free slot of a stage.
class SlotPool {
 public:
  int acquire() {
    if (free_.empty()) return used_++;
    const int slot = *free_.begin();
    free_.erase(free_.begin());
    return slot;
  }
  void release(int slot) { free_.insert(slot); }

 private:
  std::set<int> free_;
  int used_ = 0;
};

class Emitter {
 public:
  explicit Emitter(const Shape& shape)
      : shape_(shape),
        schedule_(shape.stages),
        pools_(shape.stages),
        slot_of_(static_cast<size_t>(shape.last_position() + 1) * shape.micro_batches, -1) {}

  Schedule run(const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.is_transfer) {
        transfer(event.stage, event.compute);
      } else {
        compute(event.stage, event.compute);
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
  // Whether a backward's gradient goes to another stage, so that its slot is needed for that.
  bool leaves(int stage, const Compute& compute) const {
    return shape_.stages > 1 && target_position(shape_, stage, compute) >= 0;
  }

  size_t cell(int position, int micro_batch) const {
    return static_cast<size_t>(position) * shape_.micro_batches + micro_batch;
  }
  int& slot_of(int position, int micro_batch) { return slot_of_[cell(position, micro_batch)]; }

  void compute(int stage, const Compute& compute) {
    int& slot = slot_of(shape_.position(stage, compute.chunk), compute.micro_batch);
    if (slot < 0) slot = pools_[stage].acquire();
    schedule_[stage].push_back({compute.backward ? ActionKind::kBackward : ActionKind::kForward,
                                compute.micro_batch, compute.chunk, -1, slot});
    if (compute.backward && !leaves(stage, compute)) pools_[stage].release(slot);
  }

  void transfer(int stage, const Compute& compute) {
    const int own_slot = slot_of(shape_.position(stage, compute.chunk), compute.micro_batch);
    const int position = target_position(shape_, stage, compute);
    const int peer = position % shape_.stages;
    int& peer_slot = slot_of(position, compute.micro_batch);
    if (peer_slot < 0) peer_slot = pools_[peer].acquire();
    schedule_[stage].push_back(
        {compute.backward ? ActionKind::kSendBackward : ActionKind::kSendForward,
         compute.micro_batch, compute.chunk, peer, own_slot});
    schedule_[peer].push_back(
        {compute.backward ? ActionKind::kRecvBackward : ActionKind::kRecvForward,
         compute.micro_batch, position / shape_.stages, stage, peer_slot});
    if (compute.backward) pools_[stage].release(own_slot);
  }

  Shape shape_;
  Schedule schedule_;
  std::vector<SlotPool> pools_;
  std::vector<int> slot_of_;  // [position][micro-batch], -1 before its first use
};

Status check_shape(int stages, int virtual_stages, int micro_batches) {
  if (stages < 1 || virtual_stages < 1 || micro_batches < 1) {
    return invalid_argument(
        "schedule: {} stages x {} virtual stages x {} micro-batches, each must be at least 1",
        stages, virtual_stages, micro_batches);
  }
  if (stages > kMaxChunks / virtual_stages ||
      int64_t{stages} * virtual_stages * micro_batches > kMaxUnitsOfWork) {
    return invalid_argument(
        "schedule: {} stages x {} virtual stages x {} micro-batches is more than {} chunks or {} "
        "chunks x micro-batches",
        stages, virtual_stages, micro_batches, kMaxChunks, kMaxUnitsOfWork);
  }
  return {};
}

}  // namespace

std::string_view action_kind_name(ActionKind kind) {
  return kActionNames[static_cast<size_t>(kind)];
}

Result<ActionKind> parse_action_kind(std::string_view name) {
  const auto found = std::find(kActionNames.begin(), kActionNames.end(), name);
  if (found == kActionNames.end()) return invalid_argument("action '{}' is unknown", name);
  return static_cast<ActionKind>(found - kActionNames.begin());
}

Result<Schedule> make_1f1b(int stages, int virtual_stages, int micro_batches) {
  RETURN_IF_ERROR(check_shape(stages, virtual_stages, micro_batches));
  const Shape shape{stages, virtual_stages, micro_batches};
  std::vector<int> warm_up(stages);
  for (int stage = 0; stage < stages; ++stage) {
    // Plain: the forwards that the later stages need before the first backward comes back.
    // Interleaved: twice that (the next group's first chunk fills the gaps), plus one group for
    // each chunk before the last (Megatron-LM, SC 2021, §2.2).
    warm_up[stage] = virtual_stages == 1 ? stages - 1 - stage
                                         : 2 * (stages - 1 - stage) + (virtual_stages - 1) * stages;
  }
  return Emitter(shape).run(global_order(shape, std::move(warm_up)));
}

Result<Schedule> make_gpipe(int stages, int virtual_stages, int micro_batches) {
  RETURN_IF_ERROR(check_shape(stages, virtual_stages, micro_batches));
  const Shape shape{stages, virtual_stages, micro_batches};
  return Emitter(shape).run(global_order(shape, std::vector<int>(stages, shape.per_stage())));
}

Result<Schedule> schedule_of(const Plan& plan, int pipeline) {
  if (pipeline < 0 || pipeline >= static_cast<int>(plan.pipelines.size())) {
    return invalid_argument("the Plan has no pipeline {}", pipeline);
  }
  const Pipeline& chosen = plan.pipelines[pipeline];
  if (chosen.stages.empty()) return invalid_argument("pipeline {} has no stages", pipeline);
  const int stages = static_cast<int>(chosen.stages.size());
  const int virtual_stages = static_cast<int>(chosen.stages.front().chunks.size());
  if (plan.schedule == "1f1b") return make_1f1b(stages, virtual_stages, chosen.micro_batches);
  if (plan.schedule == "gpipe") return make_gpipe(stages, virtual_stages, chosen.micro_batches);
  if (plan.schedule != "explicit") {
    return invalid_argument("schedule '{}' is unknown; use 1f1b, gpipe or explicit", plan.schedule);
  }
  if (pipeline >= static_cast<int>(plan.explicit_actions.size())) {
    return invalid_argument("the Plan has no explicit actions for pipeline {}", pipeline);
  }
  return plan.explicit_actions[pipeline];
}

}  // namespace flextrain::planner
