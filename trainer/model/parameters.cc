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

std::vector<Parameter> layer_parameters(const ModelConfig& model, planner::LayerId layer) {
  std::vector<Parameter> list;
  const int64_t hidden = model.hidden, ffn = model.ffn, head_dim = model.hidden / model.heads;
  const int64_t kv_width = model.kv_heads * head_dim, vocab = model.vocab;
  const double std = model.init_std;
  if (layer == 0) {
    append(list, "embedding.weight", {vocab, hidden}, std);
  } else if (layer == head_layer(model)) {
    append(list, "norm.weight", {hidden}, 0);
    if (!model.tied_head) append(list, "head.weight", {vocab, hidden}, std);
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
  }
  return list;
}

int64_t parameter_count(const std::vector<Parameter>& parameters) {
  return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size;
}

}  // namespace flextrain::trainer
