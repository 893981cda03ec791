// SPDX-License-Identifier: MIT
// Placement of layers on stages with No-Ops (FlexTrain §No-Op layers). Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "planner/plan.h"

namespace flextrain::planner {

// chunks[stage][virtual stage] = layer ids in execution order, No-Ops included.
using LayerPlacement = std::vector<std::vector<std::vector<LayerId>>>;

struct PlacementRequest {
  int num_transformer_layers = 1, num_mtp_heads = 0;
  int pipeline_parallel = 1, virtual_stages = 1;
  ChunkOrder order = ChunkOrder::kLoop;
  // One relative time per layer id, or empty (transformer layers 1, the others costed units of
  // their own: defaults in the .cc with their reason).
  std::vector<double> costs;
  bool no_ops = true;         // false: every chunk must hold a layer, nothing is padded
  bool empty_stages = false;  // with No-Ops: more stages than transformer layers and MTP blocks
};

// Places all global layers on pipeline_parallel stages × virtual_stages chunks, contiguous in
// execution order, minimising the largest stage cost. Every chunk holds the same number of
// positions (all layers but embedding and head, and No-Ops), so any PP degree works for any L; a
// stage may hold No-Ops alone, or the loss alone. Deterministic.
// Errors: kInvalidArgument for more stages than the request allows, non-positive values or wrong
// costs.
Result<LayerPlacement> place_layers(const PlacementRequest& request);
Result<LayerPlacement> place_layers(int num_transformer_layers, int pipeline_parallel,
                                    int virtual_stages, const std::vector<double>& costs);

}  // namespace flextrain::planner
