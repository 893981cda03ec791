// SPDX-License-Identifier: MIT
#include "trainer/model/layer_math.h"

#include <algorithm>
#include <cmath>

namespace flextrain::trainer {
namespace {

// Cuts consecutive slices off a flat tensor.
class Cutter {
 public:
  explicit Cutter(Tensor flat) : flat_(flat) {}
  Tensor next(int64_t size) {
    const Tensor part = flat_.slice(offset_, size);
    offset_ += size;
    return part;
  }

 private:
  Tensor flat_;
  int64_t offset_ = 0;
};

}  // namespace

LayerMath::LayerMath(Backend& backend, const ModelConfig& model, int micro_batch_size)
    : backend_(backend),
      model_(model),
      rows_(int64_t{micro_batch_size} * model.sequence),
      hidden_(model.hidden),
      ffn_(model.ffn),
      vocab_(model.vocab),
      attention_{micro_batch_size, model.sequence, model.heads, model.kv_heads,
                 model.hidden / model.heads},
      qkv_shape_{rows_, hidden_, attention_.qkv_width()},
      wo_shape_{rows_, attention_.out_width(), hidden_},
      gate_up_shape_{rows_, hidden_, 2 * ffn_},
      down_shape_{rows_, ffn_, hidden_},
      head_shape_{rows_, hidden_, vocab_},
      mtp_shape_{rows_, hidden_, hidden_} {}

Result<std::unique_ptr<LayerMath>> LayerMath::make(Backend& backend, const ModelConfig& model,
                                                   int micro_batch_size, Kinds kinds) {
  std::unique_ptr<LayerMath> math(new LayerMath(backend, model, micro_batch_size));
  RETURN_IF_ERROR(math->allocate(kinds));
  return math;
}

Status LayerMath::allocate(Kinds kinds) {
  kinds_ = kinds;
  struct Need {
    Tensor* tensor;
    int64_t size;
    bool wanted;
  };
  const bool any = kinds.block || kinds.head;
  const Need needs[] = {{&normed_, rows_ * hidden_, any},
                        {&normed_grad_, rows_ * hidden_, kinds.block},
                        {&activated_, rows_ * ffn_, kinds.block},
                        {&activated_grad_, rows_ * ffn_, kinds.block},
                        {&attention_grad_, rows_ * attention_.out_width(), kinds.block},
                        {&kept_, kinds.mtp ? mtp_kept_size() : block_kept_size(), kinds.block},
                        {&embedded_, rows_ * hidden_, kinds.mtp},
                        {&embedded_grad_, rows_ * hidden_, kinds.mtp},
                        {&logits_, rows_ * vocab_, kinds.head}};
  for (const Need& need : needs) {
    if (!need.wanted) continue;
    ASSIGN_OR_RETURN(*need.tensor, backend_.allocate(DType::kFloat32, need.size));
  }
  return kinds.block ? make_rotation() : Status();
}

// Angles position · theta^(-2i/head_dim) (Su et al. 2021). long double is x87 code without variants
// per machine, so the tables are the same everywhere.
Status LayerMath::make_rotation() {
  const int64_t half = attention_.head_dim / 2, size = attention_.length * half;
  ASSIGN_OR_RETURN(cosine_, backend_.allocate(DType::kFloat32, size));
  ASSIGN_OR_RETURN(sine_, backend_.allocate(DType::kFloat32, size));
  if (!backend_.holds_values()) return {};
  std::vector<float> cosine(static_cast<size_t>(size)), sine(cosine.size());
  for (int64_t i = 0; i < half; ++i) {
    const long double exponent = -2.0L * i / attention_.head_dim;
    const long double frequency = std::pow(static_cast<long double>(model_.rope_theta), exponent);
    for (int64_t position = 0; position < attention_.length; ++position) {
      const auto at = static_cast<size_t>(position * half + i);
      cosine[at] = static_cast<float>(std::cos(position * frequency));
      sine[at] = static_cast<float>(std::sin(position * frequency));
    }
  }
  backend_.upload(cosine_, std::span<const float>(cosine));
  backend_.upload(sine_, std::span<const float>(sine));
  return {};
}

int64_t LayerMath::saved_size(planner::LayerId layer, Recompute recompute) const {
  const LayerKind kind = layer_kind(model_, layer);
  if (kind == LayerKind::kEmbedding) return 0;
  if (has_loss(kind)) return rows_ + rows_ * hidden_;
  const int64_t always = kind == LayerKind::kMtpBlock ? mtp_saved_size() : 0;
  if (recompute == Recompute::kFull) return always;
  return always + 2 * rows_ + rows_ * (attention_.qkv_width() + attention_.out_width()) +
         rows_ * attention_.heads + rows_ * hidden_ +
         (recompute == Recompute::kSelective ? 0 : rows_ * 2 * ffn_);
}

int64_t LayerMath::largest_gradient() const {
  int64_t largest = hidden_;
  if (kinds_.block)
    for (const LinearShape& shape : {qkv_shape_, wo_shape_, gate_up_shape_, down_shape_})
      largest = std::max(largest, shape.in * shape.out);
  if (kinds_.head) largest = std::max(largest, vocab_ * hidden_);
  return largest;
}

int64_t LayerMath::largest_gradient_of(planner::LayerId layer) const {
  if (layer == 0) return hidden_;
  if (has_loss(layer_kind(model_, layer))) return vocab_ * hidden_;
  int64_t largest = hidden_;
  for (const LinearShape& shape : {qkv_shape_, wo_shape_, gate_up_shape_, down_shape_})
    largest = std::max(largest, shape.in * shape.out);
  return largest;
}

// As allocate() takes it. What both kinds share counts for each.
int64_t LayerMath::scratch_size(planner::LayerId layer) const {
  const LayerKind kind = layer_kind(model_, layer);
  if (kind == LayerKind::kEmbedding) return 0;
  if (has_loss(kind)) return rows_ * (hidden_ + vocab_);
  const int64_t mtp = kind == LayerKind::kMtpBlock ? 3 * rows_ * hidden_ : 0;
  return rows_ * (2 * hidden_ + 2 * ffn_ + attention_.out_width()) + block_kept_size() + mtp +
         attention_.length * attention_.head_dim;
}

LayerMath::BlockSaved LayerMath::block_saved(const SavedTensors& saved) const {
  Cutter kept(saved.kept), again(saved.again);
  const auto next = [&](int64_t size, bool selective) {
    const bool recomputed = saved.recompute == Recompute::kFull ||
                            (selective && saved.recompute == Recompute::kSelective);
    return recomputed ? again.next(size) : kept.next(size);
  };
  BlockSaved parts;
  parts.qkv = next(rows_ * attention_.qkv_width(), false);
  parts.attention = next(rows_ * attention_.out_width(), false);
  parts.mid = next(rows_ * hidden_, false);
  parts.log_sum = next(rows_ * attention_.heads, false);
  parts.inverse_rms1 = next(rows_, false);
  parts.inverse_rms2 = next(rows_, false);
  parts.gate_up = next(rows_ * 2 * ffn_, true);
  return parts;
}

int64_t LayerMath::block_kept_size() const {
  return rows_ * (2 * hidden_ + 2 * ffn_ + attention_.qkv_width());
}

LayerMath::BlockKept LayerMath::block_kept(Tensor kept) const {
  Cutter cut(kept);
  BlockKept parts;
  parts.gate_up_grad = cut.next(rows_ * 2 * ffn_);
  parts.qkv_grad = cut.next(rows_ * attention_.qkv_width());
  parts.out_grad = cut.next(rows_ * hidden_);
  parts.mid_grad = cut.next(rows_ * hidden_);
  return parts;
}

LayerMath::HeadSaved LayerMath::head_saved(Tensor saved) const {
  Cutter cut(saved);
  HeadSaved parts;
  parts.norm_grad = cut.next(rows_ * hidden_);
  parts.inverse_rms = cut.next(rows_);
  return parts;
}

LayerMath::BlockParameters LayerMath::block_parameters(Tensor flat) const {
  Cutter cut(flat);
  BlockParameters parts;
  parts.norm1 = cut.next(hidden_);
  parts.qkv = cut.next(qkv_shape_.in * qkv_shape_.out);
  parts.wo = cut.next(wo_shape_.in * wo_shape_.out);
  parts.norm2 = cut.next(hidden_);
  parts.gate_up = cut.next(gate_up_shape_.in * gate_up_shape_.out);
  parts.down = cut.next(down_shape_.in * down_shape_.out);
  return parts;
}

void LayerMath::embedding_forward(Tensor weights, Tensor tokens, Tensor out) {
  backend_.embedding_forward(weights, tokens, out, hidden_);
}

void LayerMath::embedding_backward(Tensor tokens, Tensor out_grad, Tensor gradients,
                                   GradientSink& sink) {
  sink.embedding(tokens, out_grad, gradients, hidden_);
}

void LayerMath::up_to_attention(const BlockParameters& w, Tensor x, const BlockSaved& s) {
  backend_.rms_norm_forward(x, w.norm1, normed_, s.inverse_rms1, hidden_, norm_eps());
  backend_.linear_forward(normed_, w.qkv, s.qkv, qkv_shape_);
  backend_.rope(s.qkv, cosine_, sine_, attention_, false);
  backend_.attention_forward(s.qkv, s.attention, s.log_sum, attention_);
  backend_.linear_forward(s.attention, w.wo, s.mid, wo_shape_);
  backend_.add(s.mid, x, s.mid);
}

void LayerMath::up_to_gate(const BlockParameters& w, const BlockSaved& s) {
  backend_.rms_norm_forward(s.mid, w.norm2, normed_, s.inverse_rms2, hidden_, norm_eps());
  backend_.linear_forward(normed_, w.gate_up, s.gate_up, gate_up_shape_);
}

void LayerMath::block_forward(Tensor weights, Tensor x, Tensor out, const SavedTensors& saved,
                              GateTime* gate) {
  const BlockParameters w = block_parameters(weights);
  const BlockSaved s = block_saved(saved);
  up_to_attention(w, x, s);
  if (gate != nullptr) gate->begun = backend_.record_event();
  up_to_gate(w, s);
  if (gate != nullptr) gate->ended = backend_.record_event();
  backend_.swiglu_forward(s.gate_up, activated_, ffn_);
  backend_.linear_forward(activated_, w.down, out, down_shape_);
  backend_.add(out, s.mid, out);
}

void LayerMath::block_recompute(Tensor weights, Tensor x, const SavedTensors& saved) {
  if (saved.recompute == Recompute::kNone) return;
  const BlockParameters w = block_parameters(weights);
  const BlockSaved s = block_saved(saved);
  if (saved.recompute == Recompute::kFull) up_to_attention(w, x, s);
  up_to_gate(w, s);
}

void LayerMath::block_backward(Tensor weights, Tensor x, const SavedTensors& saved, Tensor grad,
                               Tensor gradients, GradientSink& sink, bool first, Event* between) {
  block_backward_input(weights, x, saved, grad, kept_, gradients, sink, first);
  if (between != nullptr) *between = backend_.record_event();
  // activated_ is still what the first part left there.
  weight_gradients(block_parameters(weights), x, block_saved(saved), block_kept(kept_), gradients,
                   sink, first);
}

void LayerMath::block_backward_input(Tensor weights, Tensor x, const SavedTensors& saved,
                                     Tensor grad, Tensor kept, Tensor gradients, GradientSink& sink,
                                     bool first) {
  const BlockParameters w = block_parameters(weights), g = block_parameters(gradients);
  const BlockSaved s = block_saved(saved);
  const BlockKept k = block_kept(kept);
  // Feed-forward half.
  backend_.copy(k.out_grad, grad);
  backend_.linear_backward_input(grad, w.down, activated_grad_, down_shape_);
  backend_.swiglu_backward(s.gate_up, activated_grad_, k.gate_up_grad, activated_, ffn_);
  backend_.linear_backward_input(k.gate_up_grad, w.gate_up, normed_grad_, gate_up_shape_);
  sink.rms_norm(s.mid, w.norm2, s.inverse_rms2, normed_grad_, grad, g.norm2, first);
  // Attention half.
  backend_.copy(k.mid_grad, grad);
  backend_.linear_backward_input(grad, w.wo, attention_grad_, wo_shape_);
  backend_.attention_backward(s.qkv, s.attention, s.log_sum, attention_grad_, k.qkv_grad,
                              attention_);
  backend_.rope(k.qkv_grad, cosine_, sine_, attention_, true);
  backend_.linear_backward_input(k.qkv_grad, w.qkv, normed_grad_, qkv_shape_);
  sink.rms_norm(x, w.norm1, s.inverse_rms1, normed_grad_, grad, g.norm1, first);
}

void LayerMath::block_backward_weight(Tensor weights, Tensor x, const SavedTensors& saved,
                                      Tensor kept, Tensor gradients, GradientSink& sink,
                                      bool first) {
  const BlockSaved s = block_saved(saved);
  backend_.swiglu_forward(s.gate_up, activated_, ffn_);
  weight_gradients(block_parameters(weights), x, s, block_kept(kept), gradients, sink, first);
}

// Takes `activated_`; the normed inputs are made again rather than kept.
void LayerMath::weight_gradients(const BlockParameters& w, Tensor x, const BlockSaved& s,
                                 const BlockKept& k, Tensor gradients, GradientSink& sink,
                                 bool first) {
  const BlockParameters g = block_parameters(gradients);
  sink.linear(k.out_grad, activated_, g.down, down_shape_, first);
  backend_.rms_norm_forward(s.mid, w.norm2, normed_, s.inverse_rms2, hidden_, norm_eps());
  sink.linear(k.gate_up_grad, normed_, g.gate_up, gate_up_shape_, first);
  sink.linear(k.mid_grad, s.attention, g.wo, wo_shape_, first);
  backend_.rms_norm_forward(x, w.norm1, normed_, s.inverse_rms1, hidden_, norm_eps());
  sink.linear(k.qkv_grad, normed_, g.qkv, qkv_shape_, first);
}

void LayerMath::head_forward(Tensor weights, Tensor matrix, Tensor x, Tensor targets, Tensor saved,
                             Tensor row_loss, float grad_scale, bool want_grad,
                             Tensor matrix_gradient, GradientSink* sink, bool first) {
  const HeadSaved s = head_saved(saved);
  backend_.rms_norm_forward(x, weights.slice(0, hidden_), normed_, s.inverse_rms, hidden_,
                            norm_eps());
  backend_.linear_forward(normed_, matrix, logits_, head_shape_);
  backend_.softmax_cross_entropy(logits_, targets, row_loss, vocab_, grad_scale, want_grad);
  if (!want_grad) return;
  backend_.linear_backward_input(logits_, matrix, s.norm_grad, head_shape_);
  sink->linear(logits_, normed_, matrix_gradient, head_shape_, first);
}

void LayerMath::head_backward(Tensor weights, Tensor x, Tensor saved, Tensor grad, Tensor gradients,
                              GradientSink& sink, bool first) {
  const HeadSaved s = head_saved(saved);
  sink.rms_norm(x, weights.slice(0, hidden_), s.inverse_rms, s.norm_grad, grad,
                gradients.slice(0, hidden_), first);
}

}  // namespace flextrain::trainer
