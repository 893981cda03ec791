// SPDX-License-Identifier: MIT
// From orders of computations to action lists. Internal to planner/; pure.
//
// Freedom from deadlock is by construction. Each stage's order of computations is run on a time
// line, on which a transfer happens when neither side computes. Every computation and every
// transfer, the Send and its Recv as ONE event, thereby gets a place in one global order, and a
// stage's list is what it takes part in, in that order. Under rendezvous sends the first event that
// has not happened can always happen (all earlier ones have, on all stages), so no execution gets
// stuck, whatever the real times. For the same reason messages between two stages are sent and
// received in the same order.
#pragma once

#include <vector>

#include "planner/schedule.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

enum class Work : uint8_t { kForward, kBackward, kWgrad, kRecompute };
struct Compute {
  Work work = Work::kForward;
  int micro_batch = 0, chunk = 0;
};
using Orders = std::vector<std::vector<Compute>>;  // per stage

// How long the computations and hops last on the time line.
class WorkTimes {
 public:
  explicit WorkTimes(const PipelineCosts& costs, bool split_backward)
      : costs_(&costs), split_(split_backward) {}
  double of(int stage, const Compute& compute) const {
    const ChunkCosts& chunk = costs_->chunks[stage][compute.chunk];
    switch (compute.work) {
      case Work::kForward:
        return chunk.forward;
      case Work::kBackward:
        return split_ ? chunk.backward : chunk.backward + chunk.wgrad;
      case Work::kWgrad:
        return chunk.wgrad;
      case Work::kRecompute:
        return chunk.recompute;
    }
    return 0;
  }
  // Of the hop between a chunk and the next in the order of execution.
  double hop(int stage, int chunk) const { return costs_->chunks[stage][chunk].transfer; }

 private:
  const PipelineCosts* costs_;
  bool split_;
};

struct OrderRun {
  Schedule schedule;       // complete lists, with Reduce and Step
  double makespan = 0;     // on the time line
  std::vector<int> stuck;  // stages whose order cannot be finished; empty = complete
};

// When the orders end if a hop delays its message and keeps nobody busy: no run ends earlier.
double earliest_end(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times);

// The best of the ways to place the transfers. With `send_at_once` a Send always stands right after
// its computation (no output outlives the next one).
OrderRun run_orders(const ScheduleShape& shape, const Orders& orders, const WorkTimes& times,
                    bool send_at_once);

}  // namespace flextrain::planner
