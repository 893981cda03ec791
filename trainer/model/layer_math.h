// SPDX-License-Identifier: MIT
// Forward and backward of each kind of layer for one micro-batch of fixed shape
// (micro_batch_size × sequence tokens): the shape, and with it every bit, never depends on the
// layout.
#pragma once

#include <memory>
#include <vector>

#include "planner/plan.h"
#include "trainer/backend/backend.h"
#include "trainer/config/train_config.h"
#include "trainer/model/gradient_sink.h"
#include "trainer/model/parameters.h"

namespace flextrain::trainer {

using planner::Recompute;

// Where a layer's saved tensors are: `kept` from forward to backward, `again` (recomputed ones)
// only from recompute() to the backward.
struct SavedTensors {
  Tensor kept, again;
  Recompute recompute = Recompute::kNone;
};

class LayerMath {
 public:
  // Allocates scratch for the kinds of layers named. kResourceExhausted when memory is short.
  struct Kinds {
    bool block = false, head = false;
    bool mtp = false;  // its block; block must be set too
  };
  static Result<std::unique_ptr<LayerMath>> make(Backend& backend, const ModelConfig& model,
                                                 int micro_batch_size, Kinds kinds);

  int64_t rows() const { return rows_; }
  // Floats of one activation hop, [rows, hidden].
  int64_t activation_size() const { return rows_ * model_.hidden; }
  // Floats a layer keeps from forward to backward, besides its input and output; and those that are
  // computed again.
  int64_t saved_size(planner::LayerId layer, Recompute recompute = Recompute::kNone) const;
  int64_t again_size(planner::LayerId layer, Recompute recompute) const {
    return saved_size(layer) - saved_size(layer, recompute);
  }
  // For the planner. Floats of scratch for layers of a kind; floats of a layer's largest weight
  // gradient.
  int64_t scratch_size(planner::LayerId layer) const;
  int64_t largest_gradient_of(planner::LayerId layer) const;
  // Floats of the largest single weight gradient among the kinds.
  int64_t largest_gradient() const;

  // `weights` and `gradients` are the layer's flat buffers.
  void embedding_forward(Tensor weights, Tensor tokens, Tensor out);
  void embedding_backward(Tensor tokens, Tensor out_grad, Tensor gradients, GradientSink& sink);

  // `gate`: when the part ran that selective recomputation does again.
  struct GateTime {
    Event begun, ended;
  };
  void block_forward(Tensor weights, Tensor x, Tensor out, const SavedTensors& saved,
                     GateTime* gate = nullptr);
  // Fills saved.again from the input and what was kept, bit for bit as forward had it.
  void block_recompute(Tensor weights, Tensor x, const SavedTensors& saved);
  // `grad` is the output's gradient and becomes the input's. `between`: where the weight gradients
  // begin.
  void block_backward(Tensor weights, Tensor x, const SavedTensors& saved, Tensor grad,
                      Tensor gradients, GradientSink& sink, bool first, Event* between = nullptr);
  // The same in two parts, bit for bit (zero-bubble schedules: Qi et al. 2024): the gradient by the
  // input, with those of the two norms, which fall out of it; then those of the matrices. What the
  // second part needs of the first is kept in `kept`, block_kept_size() floats.
  int64_t block_kept_size() const;
  void block_backward_input(Tensor weights, Tensor x, const SavedTensors& saved, Tensor grad,
                            Tensor kept, Tensor gradients, GradientSink& sink, bool first);
  void block_backward_weight(Tensor weights, Tensor x, const SavedTensors& saved, Tensor kept,
                             Tensor gradients, GradientSink& sink, bool first);

  // Loss and, with want_grad, everything of the backward that needs the logits: they are the
  // largest tensor there is and are never kept. `matrix` is the head's or, tied, the embedding's;
  // its gradient is complete after forward, the norm's after backward. row_loss: rows doubles.
  // head_backward adds to `grad`, which comes from what follows the head, or is zero.
  void head_forward(Tensor weights, Tensor matrix, Tensor x, Tensor targets, Tensor saved,
                    Tensor row_loss, float grad_scale, bool want_grad, Tensor matrix_gradient,
                    GradientSink* sink, bool first);
  void head_backward(Tensor weights, Tensor x, Tensor saved, Tensor grad, Tensor gradients,
                     GradientSink& sink, bool first);

  // A block of multi-token prediction (mtp_math.cc). `ahead` are the tokens that many positions
  // ahead, -1 beyond the sequence, with the embedding's matrix and the gradient that is added to.
  struct MtpTokens {
    Tensor tokens, table, table_gradient;
  };
  void mtp_forward(Tensor weights, Tensor x, const MtpTokens& ahead, Tensor out,
                   const SavedTensors& saved, GateTime* gate = nullptr);
  void mtp_recompute(Tensor weights, const SavedTensors& saved);
  void mtp_backward(Tensor weights, Tensor x, const MtpTokens& ahead, const SavedTensors& saved,
                    Tensor grad, Tensor gradients, GradientSink& sink, bool first,
                    Event* between = nullptr);
  // In two parts as a block's; `kept` has mtp_kept_size() floats.
  int64_t mtp_kept_size() const { return block_kept_size() + rows_ * hidden_; }
  void mtp_backward_input(Tensor weights, Tensor x, const MtpTokens& ahead,
                          const SavedTensors& saved, Tensor grad, Tensor kept, Tensor gradients,
                          GradientSink& sink, bool first);
  void mtp_backward_weight(Tensor weights, Tensor x, const MtpTokens& ahead,
                           const SavedTensors& saved, Tensor kept, Tensor gradients,
                           GradientSink& sink, bool first);

 private:
  LayerMath(Backend& backend, const ModelConfig& model, int micro_batch_size);
  Status allocate(Kinds kinds);
  Status make_rotation();

  // Views into a layer's `saved` tensor.
  struct BlockSaved {
    Tensor inverse_rms1, qkv, attention, log_sum, mid, inverse_rms2, gate_up;
  };
  BlockSaved block_saved(const SavedTensors& saved) const;
  // Flat positions of a block's parameters.
  struct BlockParameters {
    Tensor norm1, qkv, wo, norm2, gate_up, down;
  };
  BlockParameters block_parameters(Tensor flat) const;
  // Gradients of the block's output, of the residual between its halves, and of what the two large
  // projections gave.
  struct BlockKept {
    Tensor out_grad, mid_grad, gate_up_grad, qkv_grad;
  };
  BlockKept block_kept(Tensor kept) const;
  void weight_gradients(const BlockParameters& w, Tensor x, const BlockSaved& s, const BlockKept& k,
                        Tensor gradients, GradientSink& sink, bool first);
  struct HeadSaved {
    Tensor inverse_rms, norm_grad;
  };
  HeadSaved head_saved(Tensor saved) const;
  struct MtpSaved {
    Tensor projected, inverse_rms_hidden, inverse_rms_embedding;
    SavedTensors block;
  };
  int64_t mtp_saved_size() const;  // besides the block's
  MtpSaved mtp_saved(const SavedTensors& saved) const;
  struct MtpParameters {
    Tensor hidden_norm, embedding_norm, hidden_projection, embedding_projection;
  };
  MtpParameters mtp_parameters(Tensor flat) const;
  Tensor mtp_projected_grad(Tensor kept) const {
    return kept.slice(block_kept_size(), rows_ * hidden_);
  }
  float norm_eps() const { return static_cast<float>(model_.norm_eps); }
  void up_to_attention(const BlockParameters& w, Tensor x, const BlockSaved& s);
  void up_to_gate(const BlockParameters& w, const BlockSaved& s);

  Backend& backend_;
  const ModelConfig model_;
  Kinds kinds_;
  int64_t rows_, hidden_, ffn_, vocab_;
  AttentionShape attention_;
  LinearShape qkv_shape_, wo_shape_, gate_up_shape_, down_shape_, head_shape_, mtp_shape_;
  Tensor cosine_, sine_;
  Tensor normed_, normed_grad_, activated_, activated_grad_, attention_grad_, kept_, logits_;
  Tensor embedded_, embedded_grad_;  // MTP
};

}  // namespace flextrain::trainer
