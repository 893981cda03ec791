// SPDX-License-Identifier: MIT
// Times of layers and actions: sums for the StepProfile, events for the trace.
//
// A layer's time is the backend's (events) plus injected delay; actions and whole steps are in the
// backend's clock_seconds(): wall time on a real device.
#pragma once

#include <array>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "trainer/backend/backend.h"
#include "trainer/engine/action_memory.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

class StepProfiler {
 public:
  // `events` bounds the trace of one step; slow_layer, slow_factor and layer_seconds: TrainConfig.
  StepProfiler(Backend& backend, int layers, size_t events, int slow_layer, double slow_factor,
               double layer_seconds = 0);

  // `slowed`: whether the injected delays apply.
  void begin_step(bool record, bool slowed);
  // Forgets the steps measured so far.
  void restart() { total_ = empty_; }
  // Drops what the step has recorded so far (it is done again).
  void restart_step();
  void end_step();

  // One layer's part took `seconds`; injects the configured delay. A Backward that includes the
  // weight gradients is reported as both.
  enum class Part { kForward, kBackward, kWgrad, kRecompute, kSelective };
  static constexpr size_t kParts = 5;
  void end_layer(planner::LayerId layer, Part part, double seconds);
  // Of a Forward, what selective recomputation would do again.
  void note_selective(planner::LayerId layer, double seconds);
  // Around an action, in seconds since the step began.
  double now() const { return backend_.clock_seconds() - step_begin_; }
  void end_action(const planner::Action& action, int chunk_layers, double begun,
                  const ActionMemory& memory);
  // Of a Send or Recv besides: which message it was, by the ranks it joined and its tag.
  void end_message(int from, int to, int tag, double begun);
  // Of the gradients, which count with the optimiser: both stream through what a rank holds.
  void end_norms(double begun);
  // All ranks agreed on something: on the gradients' scale, on loss and norm.
  enum class Control { kScale, kLoss };
  void end_control(Control control, double begun);

  const std::vector<TraceEvent>& trace() const { return trace_; }

  // What one rank has measured; trainer/engine/profile_gather.h makes a StepProfile of all of them.
  struct LayerTimes {
    std::array<double, kParts> seconds{}, count{};
    void add(Part part, double spent) {
      seconds[static_cast<size_t>(part)] += spent;
      count[static_cast<size_t>(part)] += 1;
    }
  };
  struct Message {
    int from = 0, to = 0, tag = 0;
    double seconds = 0;
  };
  struct Measured {
    std::vector<LayerTimes> layers;
    std::vector<Message> messages;    // in the order of this rank's actions
    std::array<double, 2> control{};  // the least of the steps
    double reduce = 0, optimizer = 0, step = 0;
    int steps = 0;
  };
  const Measured& measured() const { return total_; }

 private:
  void add_step();

  Backend& backend_;
  int slow_layer_;
  double slow_factor_, layer_seconds_;
  bool record_ = false, slowed_ = true;
  double step_begin_ = 0;
  Measured step_, total_, empty_;
  std::vector<TraceEvent> trace_;
};

}  // namespace flextrain::trainer
