// SPDX-License-Identifier: MIT
// Pipeline schedules as action lists, and their checker. Pure.
//
// A schedule is, per stage of one pipeline, the list of actions that stage executes in order. All
// ranks of a stage's tensor-parallel group execute the same list. Sends are rendezvous: a Send ends
// only when its Recv has begun, and the checker proves freedom from deadlock under that rule.
//
// Backward computes the input gradient and the weight gradients, except in a schedule with split
// backward (it has Wgrad actions, then one for every chunk and micro-batch): there it computes the
// input gradient alone and Wgrad the weight gradients. Recompute does a chunk's forward again from
// its saved input, before its Backward, for the layers whose activations were not kept.
//
// A slot (numbered per stage, over all its chunks) belongs to one micro-batch of one chunk from its
// RecvForward (or Forward on the first chunk) to the last of its Backward, Wgrad, SendForward and
// SendBackward. What is sent and received lives in it: the input, the output, the incoming and the
// outgoing gradient. Between a Recv and the computation that needs it, and (interleaved 1F1B) also
// between a computation and its Send, other computations may stand; so buffers are per slot.
// Between two stages messages are sent and received in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"

namespace flextrain::planner {

using StageActions = std::vector<Action>;
using Schedule = std::vector<StageActions>;  // one list per stage

std::string_view action_kind_name(ActionKind kind);  // "Forward", "SendForward", …
Result<ActionKind> parse_action_kind(std::string_view name);

// What a pipeline's schedule is about: its chunks, in the order of execution.
struct ScheduleShape {
  int stages = 1, virtual_stages = 1, micro_batches = 1;
  ChunkOrder order = ChunkOrder::kLoop;

  // Position of a chunk in the order of execution, 0 … last_position().
  int position(int stage, int chunk) const {
    return chunk * stages + (turned(chunk) ? stages - 1 - stage : stage);
  }
  int chunk_at(int position) const { return position / stages; }
  int stage_at(int position) const {
    const int offset = position % stages;
    return turned(chunk_at(position)) ? stages - 1 - offset : offset;
  }
  int last_position() const { return stages * virtual_stages - 1; }
  int chunks() const { return stages * virtual_stages; }
  // The stage before and after a chunk in the order of execution, -1 at the ends. May be the same
  // stage (a V's turn, a pipeline of one stage): then nothing is sent.
  int previous_stage(int stage, int chunk) const {
    const int at = position(stage, chunk);
    return at == 0 ? -1 : stage_at(at - 1);
  }
  int next_stage(int stage, int chunk) const {
    const int at = position(stage, chunk);
    return at == last_position() ? -1 : stage_at(at + 1);
  }
  bool turned(int chunk) const { return order == ChunkOrder::kV && chunk % 2 == 1; }
  bool operator==(const ScheduleShape&) const = default;
};
// kInvalidArgument for non-positive values or more than planner/limits.h allows.
Status check_shape(const ScheduleShape& shape);

// The shape of one pipeline of a Plan; it must exist and have stages.
Result<ScheduleShape> shape_of(const Plan& plan, int pipeline);

// 1F1B (PipeDream-flush), interleaved when virtual_stages > 1, and GPipe (all forwards, then all
// backwards). Each list ends with Reduce (per chunk) and Step. Slots are reused as soon as their
// backward is done. Errors: kInvalidArgument for non-positive values.
Result<Schedule> make_1f1b(int stages, int virtual_stages, int micro_batches);
Result<Schedule> make_gpipe(int stages, int virtual_stages, int micro_batches);

// The schedule of one pipeline of a Plan, by its name (planner/schedule_family.h) or its explicit
// actions. A named one gets a Recompute before each Backward of a chunk that has a layer to
// recompute.
Result<Schedule> schedule_of(const Plan& plan, int pipeline);

using PerChunk = std::vector<std::vector<double>>;  // [stage][chunk]

// Durations in seconds and memory in bytes; per chunk where the table is set, else the scalar. A
// Recompute costs recompute_of, without it as much as the Forward.
struct ActionCosts {
  double forward = 1.0, backward = 2.0, wgrad = 0.0, transfer = 0.0, reduce = 0.0, step = 0.0;
  PerChunk forward_of, backward_of, wgrad_of, recompute_of;
  PerChunk transfer_of;  // between a chunk and the one after it in the order of execution
  // What Forward leaves until Backward (with split backward: what of it Backward leaves until
  // Wgrad), and what Recompute adds until Backward (with split backward: until Wgrad).
  double activation = 1.0, wgrad_kept = 1.0, recomputed = 0.0;
  PerChunk activation_of, wgrad_kept_of, recomputed_of;
};

struct TimedAction {
  Action action;
  double begin = 0, end = 0;  // seconds
};

struct ScheduleReport {
  double makespan = 0;                             // seconds, latest end over all stages
  double longest_span = 0;                         // over stages: first computation to its end
  std::vector<int> peak_slots;                     // per stage, activation slots in use at once
  std::vector<double> peak_memory;                 // per stage, bytes (ActionCosts)
  std::vector<double> idle;                        // per stage, seconds without work before its end
  std::vector<std::vector<TimedAction>> timeline;  // per stage
};

// Simulates the lists with rendezvous sends. kFailedPrecondition with stage, position and action
// when it deadlocks; kInvalidArgument when a Send has no matching Recv, a Backward precedes its
// Forward, a micro-batch is missing or doubled, a slot is reused while in use, or a cost is no
// finite number >= 0.
Result<ScheduleReport> check_schedule(const Schedule& schedule, const ScheduleShape& shape,
                                      const ActionCosts& costs);
inline Result<ScheduleReport> check_schedule(const Schedule& schedule, int virtual_stages,
                                             int micro_batches, const ActionCosts& costs) {
  return check_schedule(schedule,
                        {static_cast<int>(schedule.size()), virtual_stages, micro_batches}, costs);
}

}  // namespace flextrain::planner
