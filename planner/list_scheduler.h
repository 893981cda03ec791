// SPDX-License-Identifier: MIT
// Greedy list scheduling of a pipeline's computations under memory limits. Internal to planner/;
// pure.
//
// Whenever a stage is idle it takes what is ready and admitted, by its rule: as a default a
// Backward, else a Forward, else (split backward) a Wgrad. Forwards are admitted by credits, as in
// flow control: at most so many micro-batches of a chunk between Forward and Backward, at most so
// many (chunk, micro-batch) activations on a stage, at most so many bytes; and never the last room
// that a later chunk of the same stage needs for its first one. So every order completes: the last
// chunk always can (what it holds is released without anybody's help), hence the one before it, and
// so on.
#pragma once

#include <limits>
#include <vector>

#include "base/status.h"
#include "planner/order_run.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

// What an idle stage takes first of what is ready.
enum class Preference : uint8_t {
  kBackward,  // Backward, Forward, Wgrad
  kForward,   // Forward, Backward, Wgrad
  kWgrad,     // Backward, Wgrad, Forward
};
// Which of several chunks' Forwards: the later chunk's, the earlier's, or the one that has most
// credits left.
enum class Pick : uint8_t { kLater, kEarlier, kMostCredits };
struct StageRule {
  Preference preference = Preference::kBackward;
  Pick forward = Pick::kLater;
  bool deep_backward = true;  // of two Backwards the earlier chunk's (nearer its end)
};
struct ListRules {
  bool split_backward = true;
  std::vector<int> credits;  // per position: micro-batches from Forward to Backward; empty = any
  int activations = 0;       // per stage, (chunk, micro-batch) from Forward to Wgrad; 0 = any
  std::vector<StageRule> stages;  // empty = the default on all
  double patience = 0;  // a Wgrad is put off for work that is known to come within this share of
                        // its time
  double give_up = std::numeric_limits<double>::infinity();  // a run that surely ends later
};

// One choice made differently: at the `decision`-th choice of the run (counted over all stages, in
// the order of time) not the first but the `rank`-th option, or the last there is.
struct Deviation {
  int decision = 0, rank = 1;
};
// What a search needs to know of each choice.
struct Decision {
  int options = 1;
  double bound = 0;  // no continuation ends earlier than this
};

struct ListRun {
  Orders orders;
  std::vector<Decision> decisions;  // only when asked for
  // On a time line on which a hop delays its message and keeps nobody busy.
  double makespan = 0, longest_span = 0;
  bool given_up = false;  // then the rest says nothing
};

// kResourceExhausted when a stage's cap cannot hold one micro-batch of each of its chunks.
Result<ListRun> list_orders(const PipelineCosts& costs, const ListRules& rules);
// The same with deviations, ascending by decision; records the decisions.
Result<ListRun> list_orders(const PipelineCosts& costs, const ListRules& rules,
                            const std::vector<Deviation>& deviations);

// Bytes that a stage needs at least for a list schedule: one micro-batch of each chunk.
double least_memory(const PipelineCosts& costs, int stage, bool split_backward);

}  // namespace flextrain::planner
