// SPDX-License-Identifier: MIT
// Pipeline schedules as action lists, and their checker. Pure.
//
// A schedule is, per stage of one pipeline, the list of actions that stage executes in order. All
// ranks of a stage's tensor-parallel group execute the same list. Sends are rendezvous: a Send ends
// only when its Recv has begun, and the checker proves freedom from deadlock under that rule.
//
// A slot (numbered per stage, over all its chunks) belongs to one micro-batch of one chunk from its
// RecvForward (or Forward on the first chunk) to the last of its Backward, SendForward and
// SendBackward. What is sent and received lives in it: the input, the output, the incoming and the
// outgoing gradient. Between a Recv and the computation that needs it, and (interleaved 1F1B) also
// between a computation and its Send, other computations may stand; so buffers are per slot.
// Between two stages messages are sent and received in the same order.
#pragma once

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

// 1F1B (PipeDream-flush), interleaved when virtual_stages > 1, and GPipe (all forwards, then all
// backwards). Each list ends with Reduce (per chunk) and Step. Slots are reused as soon as their
// backward is done. Errors: kInvalidArgument for non-positive values.
Result<Schedule> make_1f1b(int stages, int virtual_stages, int micro_batches);
Result<Schedule> make_gpipe(int stages, int virtual_stages, int micro_batches);

// The schedule of one pipeline of a Plan, by its name or its explicit actions.
Result<Schedule> schedule_of(const Plan& plan, int pipeline);

struct ActionCosts {  // seconds; per chunk when the vectors are set, else the scalars
  double forward = 1.0, backward = 2.0, wgrad = 0.0, transfer = 0.0, reduce = 0.0, step = 0.0;
  std::vector<std::vector<double>> forward_of, backward_of;  // [stage][virtual stage]
};

struct TimedAction {
  Action action;
  double begin = 0, end = 0;  // seconds
};

struct ScheduleReport {
  double makespan = 0;                             // seconds, latest end over all stages
  std::vector<int> peak_slots;                     // per stage, activation slots in use at once
  std::vector<double> idle;                        // per stage, seconds without work before its end
  std::vector<std::vector<TimedAction>> timeline;  // per stage
};

// Simulates the lists with rendezvous sends. kFailedPrecondition with stage, position and action
// when it deadlocks; kInvalidArgument when a Send has no matching Recv, a Backward precedes its
// Forward, a micro-batch is missing or doubled, or a slot is reused while in use.
Result<ScheduleReport> check_schedule(const Schedule& schedule, int virtual_stages,
                                      int micro_batches, const ActionCosts& costs);

}  // namespace flextrain::planner
