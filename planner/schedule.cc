// SPDX-License-Identifier: MIT
// Making schedules.
//
// Freedom from deadlock is by construction. First each stage gets an order of its computations
// (warm-up forwards, then one forward and one backward in turn, then the rest), and the orders are
// run on an ideal time line (forward 1, backward 2, transfers 0). Every computation and every
// transfer, the Send and its Recv as ONE event, then has a place in one global order: by time, a
// transfer at the end of the computation that made it. A stage's list is what it takes part in, in
// that global order. Under rendezvous sends the first event that has not happened can always happen
// (all earlier ones have, on all stages), so no execution can get stuck, whatever the real times.
// For the same reason messages between two stages are sent and received in the same order.
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

// Computations of one stage with their begins on the ideal time line.
struct StageRun {
  std::vector<Compute> order;
  std::vector<int64_t> begin;
  int64_t now = 0;
};

constexpr int64_t kForwardTime = 1, kBackwardTime = 2;

// Runs the orders on the ideal time line. Returns the stages that are stuck (none = complete).
std::vector<int> run_ideal(const Shape& shape, std::vector<StageRun>& runs) {
  const size_t cells =
      static_cast<size_t>(shape.last_position() + 1) * static_cast<size_t>(shape.micro_batches);
  std::vector<int64_t> forward_end(cells, -1), backward_end(cells, -1);
  const auto cell = [&](int position, int micro_batch) {
    return static_cast<size_t>(position) * shape.micro_batches + micro_batch;
  };
  // When the input of a computation is there; -1 while it is not.
  const auto ready = [&](int stage, const Compute& compute) -> int64_t {
    const int position = shape.position(stage, compute.chunk);
    if (!compute.backward) {
      return position == 0 ? 0 : forward_end[cell(position - 1, compute.micro_batch)];
    }
    const int64_t own = forward_end[cell(position, compute.micro_batch)];
    if (position == shape.last_position() || own < 0) return own;
    const int64_t next = backward_end[cell(position + 1, compute.micro_batch)];
    return next < 0 ? -1 : std::max(own, next);
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < shape.stages; ++stage) {
      StageRun& run = runs[stage];
      while (run.begin.size() < run.order.size()) {
        const Compute& compute = run.order[run.begin.size()];
        const int64_t input = ready(stage, compute);
        if (input < 0) break;
        const int64_t begin = std::max(run.now, input);
        run.begin.push_back(begin);
        run.now = begin + (compute.backward ? kBackwardTime : kForwardTime);
        auto& ends = compute.backward ? backward_end : forward_end;
        ends[cell(shape.position(stage, compute.chunk), compute.micro_batch)] = run.now;
        progress = true;
      }
    }
  }
  std::vector<int> stuck;
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (runs[stage].begin.size() < runs[stage].order.size()) stuck.push_back(stage);
  }
  return stuck;
}

// The computations of all stages with `warm_up` forwards before the first backward. With a last
// group that is not full a stage may need more warm-up than asked for: then it gets it, one at a
// time, until the run completes. That ends at the latest when all forwards precede all backwards,
// an order that always completes because both directions have the same order on all stages.
std::vector<StageRun> order_computations(const Shape& shape, std::vector<int> warm_up) {
  const std::vector<Compute> forwards = direction_order(shape, false);
  const std::vector<Compute> backwards = direction_order(shape, true);
  const int total = shape.per_stage();
  for (;;) {
    std::vector<StageRun> runs(shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int ahead = std::min(warm_up[stage], total);
      std::vector<Compute>& order = runs[stage].order;
      order.reserve(2 * static_cast<size_t>(total));
      order.insert(order.end(), forwards.begin(), forwards.begin() + ahead);
      for (int i = ahead; i < total; ++i) {
        order.push_back(forwards[i]);
        order.push_back(backwards[i - ahead]);
      }
      order.insert(order.end(), backwards.begin() + (total - ahead), backwards.end());
    }
    const std::vector<int> stuck = run_ideal(shape, runs);
    if (stuck.empty()) return runs;
    for (const int stage : stuck) ++warm_up[stage];
  }
}

// One event of the global order; a transfer stands for a Send and its Recv.
struct Event {
  int64_t time = 0;
  bool is_compute = false;  // transfers first at equal times
  int stage = 0;            // of the computation
  Compute compute;
};

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

  Schedule run(const std::vector<StageRun>& runs) {
    std::vector<Event> events;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageRun& run = runs[stage];
      for (size_t i = 0; i < run.order.size(); ++i) {
        const Compute& compute = run.order[i];
        events.push_back({run.begin[i], true, stage, compute});
        if (peer_position(stage, compute) < 0) continue;
        const int64_t took = compute.backward ? kBackwardTime : kForwardTime;
        events.push_back({run.begin[i] + took, false, stage, compute});
      }
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::pair(a.time, a.is_compute) < std::pair(b.time, b.is_compute);
    });
    for (const Event& event : events) {
      if (event.is_compute) {
        compute(event.stage, event.compute);
      } else {
        transfer(event.stage, event.compute);
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
  // Where the result of a computation goes: a position on another stage, or -1.
  int peer_position(int stage, const Compute& compute) const {
    if (shape_.stages == 1) return -1;
    const int position = shape_.position(stage, compute.chunk);
    if (compute.backward) return position - 1;
    return position == shape_.last_position() ? -1 : position + 1;
  }

  int& slot_of(int position, int micro_batch) {
    return slot_of_[static_cast<size_t>(position) * shape_.micro_batches + micro_batch];
  }

  void compute(int stage, const Compute& compute) {
    int& slot = slot_of(shape_.position(stage, compute.chunk), compute.micro_batch);
    if (slot < 0) slot = pools_[stage].acquire();
    schedule_[stage].push_back({compute.backward ? ActionKind::kBackward : ActionKind::kForward,
                                compute.micro_batch, compute.chunk, -1, slot});
    if (compute.backward && peer_position(stage, compute) < 0) pools_[stage].release(slot);
  }

  void transfer(int stage, const Compute& compute) {
    const int own_slot = slot_of(shape_.position(stage, compute.chunk), compute.micro_batch);
    const int position = peer_position(stage, compute);
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
  return Emitter(shape).run(order_computations(shape, std::move(warm_up)));
}

Result<Schedule> make_gpipe(int stages, int virtual_stages, int micro_batches) {
  RETURN_IF_ERROR(check_shape(stages, virtual_stages, micro_batches));
  const Shape shape{stages, virtual_stages, micro_batches};
  return Emitter(shape).run(order_computations(shape, std::vector<int>(stages, shape.per_stage())));
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
