// SPDX-License-Identifier: MIT
// Forward and backward of each kind of layer for one micro-batch of fixed shape
// (micro_batch_size × sequence tokens): the shape, and with it every bit, never depends on the
// layout.
#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/config/train_config.h"
#include "trainer/model/gradient_sink.h"
#include "trainer/model/parameters.h"

namespace flextrain::trainer {

class LayerMath {
 public:
  // Allocates scratch for the kinds of layers named. kResourceExhausted when memory is short.
  struct Kinds {
    bool block = false, head = false;
  };
  static Result<std::unique_ptr<LayerMath>> make(Backend& backend, const ModelConfig& model,
                                                 int micro_batch_size, Kinds kinds);

  int64_t rows() const { return rows_; }
  // Floats of one activation hop, [rows, hidden].
  int64_t activation_size() const { return rows_ * model_.hidden; }
  // Floats a layer keeps from forward to backward, besides its input and output.
  int64_t saved_size(planner::LayerId layer) const;
  // Floats of the largest single weight gradient among the kinds.
  int64_t largest_gradient() const;

  // `weights` and `gradients` are the layer's flat buffers, `saved` a tensor of saved_size().
  void embedding_forward(Tensor weights, Tensor tokens, Tensor out);
  void embedding_backward(Tensor tokens, Tensor out_grad, Tensor gradients, GradientSink& sink);

  void block_forward(Tensor weights, Tensor x, Tensor out, Tensor saved);
  // `grad` is the output's gradient and becomes the input's.
  void block_backward(Tensor weights, Tensor x, Tensor saved, Tensor grad, Tensor gradients,
                      GradientSink& sink, bool first);

  // Loss and, with want_grad, everything of the backward that needs the logits: they are the
  // largest tensor there is and are never kept. `matrix` is the head's or, tied, the embedding's;
  // its gradient is complete after forward, the norm's after backward. row_loss: rows doubles.
  void head_forward(Tensor weights, Tensor matrix, Tensor x, Tensor targets, Tensor saved,
                    Tensor row_loss, float grad_scale, bool want_grad, Tensor matrix_gradient,
                    GradientSink* sink, bool first);
  void head_backward(Tensor weights, Tensor x, Tensor saved, Tensor grad, Tensor gradients,
                     GradientSink& sink, bool first);

 private:
  LayerMath(Backend& backend, const ModelConfig& model, int micro_batch_size);
  Status allocate(Kinds kinds);
  Status make_rotation();

  // Views into a layer's `saved` tensor.
  struct BlockSaved {
    Tensor inverse_rms1, qkv, attention, log_sum, mid, inverse_rms2, gate_up;
  };
  BlockSaved block_saved(Tensor saved) const;
  struct HeadSaved {
    Tensor inverse_rms, norm_grad;
  };
  HeadSaved head_saved(Tensor saved) const;
  // Flat positions of a block's parameters.
  struct BlockParameters {
    Tensor norm1, qkv, wo, norm2, gate_up, down;
  };
  BlockParameters block_parameters(Tensor flat) const;

  Backend& backend_;
  const ModelConfig model_;
  Kinds kinds_;
  int64_t rows_, hidden_, ffn_, vocab_;
  AttentionShape attention_;
  LinearShape qkv_shape_, wo_shape_, gate_up_shape_, down_shape_, head_shape_;
  Tensor cosine_, sine_;
  Tensor normed_, normed_grad_, activated_, activated_grad_, gate_up_grad_, attention_grad_,
      qkv_grad_, logits_;
};

}  // namespace flextrain::trainer
