// SPDX-License-Identifier: MIT
// The order of the training data: a pure function of (seed, consumed samples). Nothing to save, and
// the same for every layout. Pure, thread-safe.
#pragma once

#include <cstdint>

namespace flextrain::trainer {

// Position `index` of a pseudo-random permutation of 0 … count-1 that `key` selects: a keyed
// Feistel network over the next power of four, walked along its cycle until it lands below `count`
// (each walk ends, because the network is a bijection). Preconditions: 0 ≤ index < count.
int64_t permuted_index(uint64_t key, int64_t index, int64_t count);

// Which of `windows` text windows is training sample `sample` (0, 1, 2, … over the whole run).
// Every epoch visits each window exactly once in an order of its own.
int64_t window_of_sample(uint64_t seed, int64_t sample, int64_t windows);

}  // namespace flextrain::trainer
