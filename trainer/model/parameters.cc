// SPDX-License-Identifier: MIT
#include "trainer/model/parameters.h"

#include <cmath>

namespace flextrain::trainer {
namespace {

void append(std::vector<Parameter>& list, std::string name, std::vector<int64_t> shape,
            double init_std) {
  Parameter p;
  p.name = std::move(name);
  p.offset = list.empty() ? 0 : list.back().offset + list.back().size;
  p.size = 1;
  for (int64_t extent : shape) p.size *= extent;
  p.decay = shape.size() > 1;
  p.init_std = init_std;
  p.shape = std::move(shape);
  list.push_back(std::move(p));
}

}  // namespace

LayerKind layer_kind(const ModelConfig& model, planner::LayerId layer) {
  const planner::LayerId head = head_layer(model);
  if (layer == 0) return LayerKind::kEmbedding;
  if (layer < head) return LayerKind::kBlock;
  if (layer == head) return LayerKind::kHead;
  return (layer - head) % 2 == 1 ? LayerKind::kMtpBlock : LayerKind::kMtpLoss;
}

int mtp_depth(const ModelConfig& model, planner::LayerId layer) {
  const planner::LayerId head = head_layer(model);
  return layer <= head ? 0 : (layer - head + 1) / 2;
}

bool uses_layer(const ModelConfig& model, planner::LayerId layer, planner::LayerId other) {
  const LayerKind kind = layer_kind(model, layer);
  if (other == 0) return kind == LayerKind::kMtpBlock || (model.tied_head && has_loss(kind));
  return other == head_layer(model) && kind == LayerKind::kMtpLoss && !model.tied_head;
}

std::vector<Parameter> layer_parameters(const ModelConfig& model, planner::LayerId layer) {
  std::vector<Parameter> list;
  const int64_t hidden = model.hidden, ffn = model.ffn, head_dim = model.hidden / model.heads;
  const int64_t kv_width = model.kv_heads * head_dim, vocab = model.vocab;
  const double std = model.init_std;
  const LayerKind kind = layer_kind(model, layer);
  if (kind == LayerKind::kEmbedding) {
    append(list, "embedding.weight", {vocab, hidden}, std);
  } else if (has_loss(kind)) {
    append(list, "norm.weight", {hidden}, 0);
    if (kind == LayerKind::kHead && !model.tied_head)
      append(list, "head.weight", {vocab, hidden}, std);
  } else {
    // Projections back into the residual path shrink with depth (Radford et al. 2019, GPT-2 §2.3).
    const double residual_std = std / std::sqrt(2.0 * model.layers);
    append(list, "attention_norm.weight", {hidden}, 0);
    append(list, "attention.wq.weight", {hidden, hidden}, std);
    append(list, "attention.wk.weight", {kv_width, hidden}, std);
    append(list, "attention.wv.weight", {kv_width, hidden}, std);
    append(list, "attention.wo.weight", {hidden, hidden}, residual_std);
    append(list, "ffn_norm.weight", {hidden}, 0);
    append(list, "ffn.gate.weight", {ffn, hidden}, std);
    append(list, "ffn.up.weight", {ffn, hidden}, std);
    append(list, "ffn.down.weight", {hidden, ffn}, residual_std);
    if (kind == LayerKind::kMtpBlock) {
      append(list, "hidden_norm.weight", {hidden}, 0);
      append(list, "embedding_norm.weight", {hidden}, 0);
      append(list, "hidden_projection.weight", {hidden, hidden}, std);
      append(list, "embedding_projection.weight", {hidden, hidden}, std);
    }
  }
  return list;
}

int64_t parameter_count(const std::vector<Parameter>& parameters) {
  return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size;
}

}  // namespace flextrain::trainer
