// SPDX-License-Identifier: MIT
// Multi-token prediction (DeepSeek-V3 2024, §2.2): the block of depth d joins the hidden state it
// gets with the embedding of the token d ahead, each under a norm of its own, by a projection of
// twice the width, and runs a transformer block on it. The projection is kept as its two halves,
// one per input. Its loss layer is a head (layer_math.cc) whose targets lie d further ahead.
#include "trainer/model/layer_math.h"

namespace flextrain::trainer {

int64_t LayerMath::mtp_saved_size() const { return rows_ * hidden_ + 2 * rows_; }

LayerMath::MtpSaved LayerMath::mtp_saved(const SavedTensors& saved) const {
  MtpSaved parts;
  parts.projected = saved.kept.slice(0, rows_ * hidden_);
  parts.inverse_rms_hidden = saved.kept.slice(rows_ * hidden_, rows_);
  parts.inverse_rms_embedding = saved.kept.slice(rows_ * hidden_ + rows_, rows_);
  parts.block = saved;
  parts.block.kept = saved.kept.slice(mtp_saved_size(), saved.kept.size() - mtp_saved_size());
  return parts;
}

// They follow the block's own parameters (parameters.cc).
LayerMath::MtpParameters LayerMath::mtp_parameters(Tensor flat) const {
  const int64_t matrix = hidden_ * hidden_;
  int64_t at = flat.size() - 2 * (hidden_ + matrix);
  const auto next = [&](int64_t size) {
    at += size;
    return flat.slice(at - size, size);
  };
  MtpParameters parts;
  parts.hidden_norm = next(hidden_);
  parts.embedding_norm = next(hidden_);
  parts.hidden_projection = next(matrix);
  parts.embedding_projection = next(matrix);
  return parts;
}

void LayerMath::mtp_forward(Tensor weights, Tensor x, const MtpTokens& ahead, Tensor out,
                            const SavedTensors& saved, GateTime* gate) {
  const MtpParameters w = mtp_parameters(weights);
  const MtpSaved s = mtp_saved(saved);
  backend_.rms_norm_forward(x, w.hidden_norm, normed_, s.inverse_rms_hidden, hidden_, norm_eps());
  backend_.linear_forward(normed_, w.hidden_projection, s.projected, mtp_shape_);
  backend_.embedding_forward(ahead.table, ahead.tokens, embedded_, hidden_);
  backend_.rms_norm_forward(embedded_, w.embedding_norm, normed_, s.inverse_rms_embedding, hidden_,
                            norm_eps());
  backend_.linear_forward(normed_, w.embedding_projection, normed_grad_, mtp_shape_);
  backend_.add(s.projected, normed_grad_, s.projected);
  block_forward(weights, s.projected, out, s.block, gate);
}

void LayerMath::mtp_recompute(Tensor weights, const SavedTensors& saved) {
  const MtpSaved s = mtp_saved(saved);
  block_recompute(weights, s.projected, s.block);
}

void LayerMath::mtp_backward(Tensor weights, Tensor x, const MtpTokens& ahead,
                             const SavedTensors& saved, Tensor grad, Tensor gradients,
                             GradientSink& sink, bool first, Event* between) {
  mtp_backward_input(weights, x, ahead, saved, grad, kept_, gradients, sink, first);
  if (between != nullptr) *between = backend_.record_event();
  mtp_backward_weight(weights, x, ahead, saved, kept_, gradients, sink, first);
}

void LayerMath::mtp_backward_input(Tensor weights, Tensor x, const MtpTokens& ahead,
                                   const SavedTensors& saved, Tensor grad, Tensor kept,
                                   Tensor gradients, GradientSink& sink, bool first) {
  const MtpParameters w = mtp_parameters(weights), g = mtp_parameters(gradients);
  const MtpSaved s = mtp_saved(saved);
  block_backward_input(weights, s.projected, s.block, grad, kept, gradients, sink, first);
  const Tensor projected_grad = mtp_projected_grad(kept);
  backend_.copy(projected_grad, grad);
  // The hidden state has no way around its norm.
  backend_.fill_zero(grad);
  backend_.linear_backward_input(projected_grad, w.hidden_projection, normed_grad_, mtp_shape_);
  sink.rms_norm(x, w.hidden_norm, s.inverse_rms_hidden, normed_grad_, grad, g.hidden_norm, first);
  backend_.embedding_forward(ahead.table, ahead.tokens, embedded_, hidden_);
  backend_.fill_zero(embedded_grad_);
  backend_.linear_backward_input(projected_grad, w.embedding_projection, normed_grad_, mtp_shape_);
  sink.rms_norm(embedded_, w.embedding_norm, s.inverse_rms_embedding, normed_grad_, embedded_grad_,
                g.embedding_norm, first);
  sink.embedding(ahead.tokens, embedded_grad_, ahead.table_gradient, hidden_);
}

void LayerMath::mtp_backward_weight(Tensor weights, Tensor x, const MtpTokens& ahead,
                                    const SavedTensors& saved, Tensor kept, Tensor gradients,
                                    GradientSink& sink, bool first) {
  const MtpParameters w = mtp_parameters(weights), g = mtp_parameters(gradients);
  const MtpSaved s = mtp_saved(saved);
  block_backward_weight(weights, s.projected, s.block, kept, gradients, sink, first);
  const Tensor projected_grad = mtp_projected_grad(kept);
  backend_.rms_norm_forward(x, w.hidden_norm, normed_, s.inverse_rms_hidden, hidden_, norm_eps());
  sink.linear(projected_grad, normed_, g.hidden_projection, mtp_shape_, first);
  backend_.embedding_forward(ahead.table, ahead.tokens, embedded_, hidden_);
  backend_.rms_norm_forward(embedded_, w.embedding_norm, normed_, s.inverse_rms_embedding, hidden_,
                            norm_eps());
  sink.linear(projected_grad, normed_, g.embedding_projection, mtp_shape_, first);
}

}  // namespace flextrain::trainer
