// SPDX-License-Identifier: MIT
// How much of a rank's memory is in use before and after each action of its list. Pure.
//
// The buffers are taken once, at the start (ChunkExecutor); what of them is in use follows from the
// list: a slot from the first action of a micro-batch on a chunk to the last one that names it, a
// workspace from the Recompute, or the split Backward, to the last action that reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/engine/rank_layout.h"

namespace flextrain::trainer {

struct ActionMemory {
  int64_t before = 0, after = 0;  // bytes
};

// What one micro-batch of a chunk takes: saved tensors, input, output and their gradients; what is
// computed again or kept from the input gradient to the weight gradients.
struct ChunkBytes {
  int64_t slot = 0, workspace = 0;
};

// One per action of `layout.actions`; `fixed` is in use all the time. At the end of the list all of
// it is free again but `fixed`.
std::vector<ActionMemory> action_memory(const RankLayout& layout,
                                        const std::vector<ChunkBytes>& chunks, int64_t fixed);

}  // namespace flextrain::trainer
