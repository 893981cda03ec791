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

// Layer ids: 0 embedding, 1 … L blocks, L + 1 head, then per depth d of multi-token prediction its
// block, L + 2d, and its loss, L + 2d + 1 (planner/plan.h).
inline planner::LayerId head_layer(const ModelConfig& model) { return model.layers + 1; }
enum class LayerKind : uint8_t { kEmbedding, kBlock, kHead, kMtpBlock, kMtpLoss };
LayerKind layer_kind(const ModelConfig& model, planner::LayerId layer);
inline bool is_block(LayerKind kind) {
  return kind == LayerKind::kBlock || kind == LayerKind::kMtpBlock;
}
// Layers with a loss hand their input on as it is.
inline bool has_loss(LayerKind kind) {
  return kind == LayerKind::kHead || kind == LayerKind::kMtpLoss;
}
// How many tokens further ahead than the head a layer predicts: d, 0 for all layers before.
int mtp_depth(const ModelConfig& model, planner::LayerId layer);
// Other layers whose parameters a layer works with: the embedding's matrix, the head's.
bool uses_layer(const ModelConfig& model, planner::LayerId layer, planner::LayerId other);

// The parameters of one layer. A tied head has its norm only: the matrix belongs to layer 0. MTP
// layers share embedding and head matrix with the model (as DeepSeek-V3's do).
std::vector<Parameter> layer_parameters(const ModelConfig& model, planner::LayerId layer);
int64_t parameter_count(const std::vector<Parameter>& parameters);

// Fresh values of one parameter: a pure function of (seed, layer, parameter name).
std::vector<float> initial_values(const Parameter& parameter, uint64_t seed,
                                  planner::LayerId layer);

}  // namespace flextrain::trainer
