// SPDX-License-Identifier: MIT
// Placement of layers on stages with No-Ops (FlexTrain §No-Op layers). Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "planner/plan.h"

namespace flextrain::planner {

// chunks[stage][virtual stage] = layer ids in execution order, No-Ops included.
using LayerPlacement = std::vector<std::vector<std::vector<LayerId>>>;

// Places the L+2 global layers (embedding, L transformer layers, head) on `pipeline_parallel`
// stages × `virtual_stages` chunks, contiguous in execution order, minimising the largest stage
// cost. `costs` has L+2 relative times or is empty (unit cost per transformer layer, embedding and
// head counted as costed units of their own: defaults in the .cc with their reason). Transformer
// layers plus No-Ops are divisible by pipeline_parallel·virtual_stages: every chunk holds the same
// number of transformer-or-No-Op positions, so any PP degree works for any L. Deterministic.
// Errors: kInvalidArgument for pipeline_parallel > L, non-positive values or wrong costs.
Result<LayerPlacement> place_layers(int num_transformer_layers, int pipeline_parallel,
                                    int virtual_stages, const std::vector<double>& costs);

}  // namespace flextrain::planner
