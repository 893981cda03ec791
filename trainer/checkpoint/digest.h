// SPDX-License-Identifier: MIT
// One hash over the whole training state, the same for every layout. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/layer_file.h"

namespace flextrain::trainer {

// What training state holds besides tensors.
struct TrainingCursor {
  int64_t step = 0;              // completed steps
  int64_t consumed_samples = 0;  // the data cursor
  int accumulation_scale = 0;    // S in force
  uint64_t seed = 0;             // of the data order
};

// XXH3-128 over weights, moments (names, roles, shapes and value hashes, layers ascending), data
// cursor and scale. 32 hex digits.
std::string state_digest(std::vector<LayerEntry> layers, const TrainingCursor& cursor);

}  // namespace flextrain::trainer
