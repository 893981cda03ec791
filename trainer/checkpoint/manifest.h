// SPDX-License-Identifier: MIT
// manifest.json of a checkpoint: everything but the tensors. Its last line of defence is a checksum
// over its own content. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "planner/plan.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/layer_file.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct Manifest {
  static constexpr int kVersion = 1;
  TrainingCursor cursor;
  std::string fingerprint;  // numerics fingerprint of the run that saved
  std::string data_hash;    // of the token stream's source
  TrainConfig config;
  planner::Plan plan;              // layout of the run that saved; No-Ops keep their positions
  std::vector<LayerEntry> layers;  // ascending, one per global layer 0 … L+1
  std::string digest;
};

std::string manifest_to_text(const Manifest& manifest);
// kDataLoss for anything that is not exactly what manifest_to_text wrote; kFailedPrecondition for a
// format version this release does not know.
Result<Manifest> manifest_from_text(std::string_view text);

}  // namespace flextrain::trainer
