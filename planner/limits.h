// SPDX-License-Identifier: MIT
// Upper bounds on what the planner accepts, so that a damaged or hostile Plan cannot make a reader
// allocate without end. Far above any model or cluster in use. Internal to planner/.
#pragma once

#include <cstdint>

namespace flextrain::planner {

inline constexpr int kMaxLayers = 1024;  // transformer layers
inline constexpr int kMaxMtpHeads = 16;
inline constexpr int kMaxLayerId = kMaxLayers + 1 + 2 * kMaxMtpHeads;
inline constexpr int kMaxChunks = 2048;           // stages × virtual stages of one pipeline
inline constexpr int kMaxRanks = 1 << 20;         // of a Plan
inline constexpr int kMaxMicroBatches = 1 << 20;  // of one pipeline
// stages × virtual stages × micro-batches of one pipeline: what a schedule's size grows with.
inline constexpr int64_t kMaxUnitsOfWork = int64_t{1} << 21;

}  // namespace flextrain::planner
