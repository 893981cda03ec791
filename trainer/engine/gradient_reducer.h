// SPDX-License-Identifier: MIT
// Sums gradients over the ranks that hold a layer, layers ascending on every rank: one global
// order, so the collectives cannot wait for each other in a circle.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/communicator.h"
#include "trainer/engine/layer_store.h"

namespace flextrain::trainer {

class GradientReducer {
 public:
  // Collective over the ranks of each group; builds one communicator per distinct group.
  static Result<GradientReducer> make(Backend& backend, Communicator& world,
                                      const std::vector<StoredLayer>& layers);
  Status reduce(std::vector<StoredLayer>& layers);

 private:
  Backend* backend_ = nullptr;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace flextrain::trainer
