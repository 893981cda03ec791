// SPDX-License-Identifier: MIT
// trainer/model: the Llama-style layers, made of Backend operations. Owns what a layer's parameters
// are and how its forward and backward go; knows no Plan and no other rank.
//
// A layer's parameters lie in one flat buffer, in the order below, so that projections of the same
// input are one matrix product (wq, wk, wv; gate, up).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct Parameter {
  std::string name;  // "attention.wq.weight"; never mentions a rank or stage
  std::vector<int64_t> shape;
  int64_t offset = 0, size = 0;  // elements, in the layer's flat buffer
  bool decay = true;             // matrices decay, norm weights do not
  double init_std = 0;           // 0 = all ones
};

// Layer ids: 0 embedding, 1 … layers blocks, layers + 1 head.
inline planner::LayerId head_layer(const ModelConfig& model) { return model.layers + 1; }

// The parameters of one layer. A tied head has its norm only: the matrix belongs to layer 0.
std::vector<Parameter> layer_parameters(const ModelConfig& model, planner::LayerId layer);
int64_t parameter_count(const std::vector<Parameter>& parameters);

// Fresh values of one parameter: a pure function of (seed, layer, parameter name).
std::vector<float> initial_values(const Parameter& parameter, uint64_t seed,
                                  planner::LayerId layer);

}  // namespace flextrain::trainer
