// SPDX-License-Identifier: MIT
// The tensors of the layers this rank holds: weights, moments, gradient accumulators. Nothing of
// other layers.
#pragma once

#include <map>
#include <vector>

#include "base/status.h"
#include "trainer/backend/backend.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/rank_layout.h"
#include "trainer/model/parameters.h"

namespace flextrain::trainer {

struct StoredLayer {
  HeldLayer held;
  std::vector<Parameter> parameters;
  Tensor weights, first_moment, second_moment;  // float32, flat
  Tensor gradients;                             // int64 (exact) or float32, flat
};

class LayerStore {
 public:
  static Result<LayerStore> make(Backend& backend, const TrainConfig& config,
                                 const std::vector<HeldLayer>& held);

  std::vector<StoredLayer>& layers() { return layers_; }
  const std::vector<StoredLayer>& layers() const { return layers_; }
  bool holds(planner::LayerId layer) const { return index_.contains(layer); }
  StoredLayer& layer(planner::LayerId id) { return layers_[index_.at(id)]; }

  Status initialize(uint64_t seed);
  Result<LayerState> export_layer(planner::LayerId layer) const;
  // kInvalidArgument names a tensor that is missing, unknown or of another shape; nothing is
  // changed then.
  Status import_layer(const LayerState& state);
  // Bytes of weights, moments and gradients of one layer.
  int64_t static_bytes(planner::LayerId layer) const;
  // Of them: moments; gradients.
  int64_t optimizer_bytes(planner::LayerId layer) const;
  int64_t gradient_bytes(planner::LayerId layer) const;

 private:
  Backend* backend_ = nullptr;
  std::vector<StoredLayer> layers_;  // ascending
  std::map<planner::LayerId, size_t> index_;
};

}  // namespace flextrain::trainer
