// SPDX-License-Identifier: MIT
#include "planner/fixed_orders.h"

#include <algorithm>
#include <utility>

namespace flextrain::planner {
namespace {

int per_stage(const ScheduleShape& shape) { return shape.virtual_stages * shape.micro_batches; }

// The order of one direction on every stage: groups of `stages` micro-batches run through all
// chunks before the next group begins (the last group may be smaller); with one chunk, simply all
// micro-batches. Per chunk the micro-batches always ascend, so fp32 sums do not depend on the
// schedule.
std::vector<Compute> direction_order(const ScheduleShape& shape, Work work) {
  std::vector<Compute> order;
  order.reserve(per_stage(shape));
  for (int begin = 0; begin < shape.micro_batches; begin += shape.stages) {
    const int end = std::min(begin + shape.stages, shape.micro_batches);
    for (int c = 0; c < shape.virtual_stages; ++c) {
      const int chunk = work == Work::kBackward ? shape.virtual_stages - 1 - c : c;
      for (int micro_batch = begin; micro_batch < end; ++micro_batch) {
        order.push_back({work, micro_batch, chunk});
      }
    }
  }
  return order;
}

void push_backward(const PipelineCosts& costs, int stage, const Compute& backward,
                   std::vector<Compute>& order) {
  if (costs.chunks[stage][backward.chunk].recompute > 0) {
    order.push_back({Work::kRecompute, backward.micro_batch, backward.chunk});
  }
  order.push_back(backward);
}

// The best run of all stages with `warm_up` forwards before the first backward. With a last group
// that is not full a stage may need more warm-up than asked for: then it gets it, one at a time,
// until the run completes. That ends at the latest when all forwards precede all backwards, an
// order that always completes because each direction has the same order on all stages.
Schedule run_with_warm_up(const PipelineCosts& costs, std::vector<int> warm_up) {
  const ScheduleShape& shape = costs.shape;
  const std::vector<Compute> forwards = direction_order(shape, Work::kForward);
  const std::vector<Compute> backwards = direction_order(shape, Work::kBackward);
  const int total = per_stage(shape);
  const WorkTimes times(costs, false);
  for (;;) {
    Orders orders(shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int ahead = std::min(warm_up[stage], total);
      std::vector<Compute>& order = orders[stage];
      order.reserve(3 * static_cast<size_t>(total));
      order.insert(order.end(), forwards.begin(), forwards.begin() + ahead);
      for (int i = ahead; i < total; ++i) {
        order.push_back(forwards[i]);
        push_backward(costs, stage, backwards[i - ahead], order);
      }
      for (int i = total - ahead; i < total; ++i) {
        push_backward(costs, stage, backwards[i], order);
      }
    }
    // Plain schedules lose nothing by waiting; interleaved ones do.
    OrderRun run = run_orders(shape, orders, times, shape.virtual_stages == 1);
    if (run.stuck.empty()) return std::move(run.schedule);
    for (const int stage : run.stuck) ++warm_up[stage];
  }
}

}  // namespace

Schedule run_1f1b(const PipelineCosts& costs) {
  const ScheduleShape& shape = costs.shape;
  std::vector<int> warm_up(shape.stages);
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int later = shape.stages - 1 - stage;
    // Plain: the forwards that the later stages need before the first backward comes back.
    // Interleaved: twice that (the next group's first chunk fills the gaps), plus one group for
    // each chunk before the last (Megatron-LM, SC 2021, §2.2).
    warm_up[stage] =
        shape.virtual_stages == 1 ? later : 2 * later + (shape.virtual_stages - 1) * shape.stages;
  }
  return run_with_warm_up(costs, std::move(warm_up));
}

Schedule run_gpipe(const PipelineCosts& costs) {
  return run_with_warm_up(costs, std::vector<int>(costs.shape.stages, per_stage(costs.shape)));
}

Schedule run_memory_min(const PipelineCosts& costs) {
  const ScheduleShape& shape = costs.shape;
  Orders orders(shape.stages);
  for (int stage = 0; stage < shape.stages; ++stage) {
    orders[stage].reserve(3 * static_cast<size_t>(per_stage(shape)));
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
        orders[stage].push_back({Work::kForward, micro_batch, chunk});
      }
      for (int chunk = shape.virtual_stages - 1; chunk >= 0; --chunk) {
        push_backward(costs, stage, {Work::kBackward, micro_batch, chunk}, orders[stage]);
      }
    }
  }
  return run_orders(shape, orders, WorkTimes(costs, false), false).schedule;
}

}  // namespace flextrain::planner
