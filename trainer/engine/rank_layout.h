// SPDX-License-Identifier: MIT
// What a Plan means for one rank: its chunks, its action list with peers as ranks, which layers it
// holds and saves, and with whom it sums their gradients. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct RankAction {
  planner::Action action;
  int peer_rank = -1;  // of a Send/Recv
  int tag = 0;         // the same on both sides, different for every message in flight
  // Of a Recompute, Backward or Wgrad: where what the first of them makes waits for the last of
  // them; -1 where Backward does it all and nothing waits.
  int workspace = -1;
  bool recomputed = false;  // of a Backward: a Recompute action came before it
  // Where a V turns, the neighbour chunk is this rank's own and nothing is sent: the slot of the
  // chunk before, whose output a Forward takes, or to which a Backward hands its gradient; else -1.
  int turn_slot = -1;
};

struct RankChunk {
  std::vector<planner::LayerId> layers;    // in execution order, without No-Ops
  int position = 0;                        // in the pipeline's order of execution
  int previous_rank = -1, next_rank = -1;  // of the neighbour positions; this rank's own at a turn
};

struct HeldLayer {
  planner::LayerId layer = 0;
  bool saves = false;             // this rank writes it into checkpoints
  std::vector<int> reduce_ranks;  // who sums its gradients, this rank included
};

struct RankLayout {
  planner::RankPosition position;
  int pipelines = 1;
  int64_t first_micro_batch = 0;  // of this pipeline, counted over the global batch
  int micro_batches = 0;          // of this pipeline
  int64_t total_micro_batches = 0;
  std::vector<RankChunk> chunks;
  int head_position = 0;  // of the chunk with the head: what MTP adds comes after it
  std::vector<RankAction> actions;
  int slots = 0, workspaces = 0;
  bool split_backward = false;  // the pipeline's schedule has Wgrad actions (planner/schedule.h)
  // Ascending. Who holds a layer that works with another one's matrix holds that one too: layer 0
  // (tied heads, MTP blocks), the head (MTP losses).
  std::vector<HeldLayer> held;
};

// kInvalidArgument names what the Plan asks for and this engine or this config cannot do (tensor
// parallel above 1, other sizes than the config's, …).
Result<RankLayout> make_rank_layout(const TrainConfig& config, const planner::Plan& plan, int rank);

// The tag of micro-batch `micro_batch`'s message that crosses from position `producer` onwards
// (forward) or back to it (backward).
int message_tag(int64_t micro_batch, int producer, bool backward);

}  // namespace flextrain::trainer
