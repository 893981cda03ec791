// SPDX-License-Identifier: MIT
// What more GPUs do for a job of a trace: its scale table and its pause. Pure.
#pragma once

#include <vector>

#include "policy/policy.h"

namespace flextrain::simulator {

enum class ScaleMode { kPipeline, kDataAndPipeline };  // --elastic=pp, dp+pp

// Throughput relative to the initial size. dp+pp: 92.5 % efficiency per doubling at 2x, 3x and 4x.
// pp: the model of FlexTrain, v = ⌈L/p⌉, T = m·v + (p−1) + (v−1)·max(0, p−m), for every pipeline
// depth p up to 4x the initial one; entries that are 5 % faster than the last kept are kept. The
// three models (24, 48 and 61 layers) stand for jobs of up to 32, up to 64 and more GPUs.
std::vector<policy::TableEntry> scale_table(ScaleMode mode, int gpus);

// Seconds of pause per switch for the three size classes.
struct PauseModel {
  double small = 180, medium = 300, large = 480;  // <= 32, <= 64, more GPUs
  double of(int gpus) const { return gpus <= 32 ? small : gpus <= 64 ? medium : large; }
};

}  // namespace flextrain::simulator
