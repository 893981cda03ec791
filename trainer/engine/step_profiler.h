// SPDX-License-Identifier: MIT
// Times of layers and actions: sums for the StepProfile, events for the trace.
//
// A layer's time is the backend's (events) plus injected delay; actions and whole steps are wall
// time.
#pragma once

#include <array>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"
#include "trainer/comm/communicator.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

double wall_seconds();  // monotonic

class StepProfiler {
 public:
  // `events` bounds the trace of one step; slow_layer, slow_factor and layer_seconds: TrainConfig.
  // split_backward: Wgrad comes apart from Backward.
  StepProfiler(int layers, size_t events, int slow_layer, double slow_factor,
               double layer_seconds = 0, bool split_backward = false);

  void begin_step(bool record);
  // Drops what the step has recorded so far (it is done again).
  void restart_step();
  void end_step();

  // One layer's part took `seconds`; injects the configured delay, once for a Forward, a Wgrad or a
  // Recompute, and for a Backward once or, where it includes the weight gradients, twice.
  enum class Part { kForward, kBackward, kWgrad, kRecompute };
  static constexpr size_t kParts = 4;
  void end_layer(planner::LayerId layer, Part part, double seconds);
  // Around an action, in seconds since the step began.
  double now() const { return wall_seconds() - step_begin_; }
  void end_action(const planner::Action& action, int chunk_layers, double begun);

  const std::vector<TraceEvent>& trace() const { return trace_; }

  // Collective. `mine` has this rank's static and activation bytes for the layers it saves, and the
  // layout; times are filled in from all ranks.
  Result<planner::StepProfile> gather(planner::StepProfile mine, Communicator& world) const;

 private:
  struct LayerTimes {
    std::array<double, kParts> seconds{}, count{};
  };
  struct Sums {
    std::vector<LayerTimes> layers;
    double transfer = 0;  // smallest seen: the others contain waiting; 0 = none seen
    double reduce = 0, optimizer = 0, step = 0;
    int steps = 0;
  };
  void add_step();

  int slow_layer_;
  double slow_factor_, layer_seconds_;
  bool split_backward_;
  bool record_ = false;
  double step_begin_ = 0;
  Sums step_, total_;
  std::vector<TraceEvent> trace_;
};

}  // namespace flextrain::trainer
