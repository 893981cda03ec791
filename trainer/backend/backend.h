// SPDX-License-Identifier: MIT
// trainer/backend: memory and the table of operations a model is made of. Knows no model, no Plan,
// no other rank. One implementation per kind of device; all pass one test suite together with a
// plain, readable reference (tests/trainer/backend).
//
// Operations are enqueued on the backend's one stream, in order, and return at once or not, as the
// device likes. Errors are sticky: the first one is kept, later operations do nothing, and
// synchronize() reports it. Tensors are row-major. Not thread-safe.
//
// Determinism: for given shapes an operation's bits depend on its inputs alone, never on earlier
// calls, on addresses or on a thread count.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "trainer/backend/tensor.h"

namespace flextrain::trainer {

struct LinearShape {
  int64_t rows = 0, in = 0, out = 0;
  auto operator<=>(const LinearShape&) const = default;
};

// Rows are sequences·length; the packed projection has, per row, `heads` query heads, `kv_heads`
// key heads and `kv_heads` value heads of `head_dim` each. heads % kv_heads == 0, head_dim even.
struct AttentionShape {
  int64_t sequences = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rows() const { return sequences * length; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t out_width() const { return heads * head_dim; }
  auto operator<=>(const AttentionShape&) const = default;
};

// Fixed-point accumulation: value·2^scale, rounded to nearest even, is added as an integer. A value
// whose scaled magnitude is not below 2^limit_exponent adds nothing and raises the status tensor
// (one int64): kFoldSaturated, or kFoldNotFinite for an infinity or NaN.
struct FoldParams {
  int scale = 44;
  int limit_exponent = 50;
};
inline constexpr int64_t kFoldSaturated = 1, kFoldNotFinite = 2;

// AdamW (Loshchilov and Hutter 2019) with decoupled weight decay:
//   g = gradient·grad_scale; m += (1-β1)(g-m); v += (1-β2)(g²-v);
//   w -= lr·( (m·correction1) / (√(v·correction2) + eps) + weight_decay·w )
struct AdamParams {
  float learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float correction1 = 1, correction2 = 1;  // 1/(1-β^t)
  double grad_scale = 1;                   // clipping, and 2^-S for int64 gradients
};

// A moment of the stream, from record_event(); meaningful only to its Backend.
struct Event {
  double seconds = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // What decides this backend's bits: "cpu;onednn-2.6.3;avx512_core_bf16".
  virtual std::string fingerprint() const = 0;
  // False where operations take their time but compute nothing (trainer/emulation): what is read
  // back is zero, and nobody need prepare values.
  virtual bool holds_values() const { return true; }

  // Would `bytes` more ever fit this device's memory? kInvalidArgument with both figures: more than
  // a machine has would end in the kernel's out-of-memory killer, without a word.
  virtual Status check_room(double bytes) const {
    (void)bytes;
    return {};
  }
  // Zero-filled memory that lives as long as the backend. kResourceExhausted when there is none,
  // kInvalidArgument as check_room().
  virtual Result<Tensor> allocate(DType dtype, int64_t size) = 0;
  virtual int64_t allocated_bytes() const = 0;

  // Host ↔ tensor; sizes must agree. Downloads wait for what was enqueued before.
  virtual void upload(Tensor to, std::span<const float> from) = 0;
  virtual void upload(Tensor to, std::span<const int32_t> from) = 0;
  virtual void download(Tensor from, std::span<float> to) = 0;
  virtual void download(Tensor from, std::span<double> to) = 0;
  virtual void download(Tensor from, std::span<int64_t> to) = 0;
  // The memory as the Communicator of this device takes it: host memory here, device memory for a
  // device backend. Nobody else may look inside. Waits for what was enqueued before.
  virtual std::span<float> communication_f32(Tensor tensor) = 0;
  virtual std::span<int64_t> communication_i64(Tensor tensor) = 0;

  // The first error since the start, if any; waits for what was enqueued.
  virtual Status synchronize() = 0;

  // The clock that steps and actions are timed by, seconds from some moment on: wall time, or an
  // emulated device's own.
  virtual double clock_seconds() const;
  // Lets so much of that time pass; others may use the core.
  virtual void pause(double seconds);

  // Time this device worked between two events: on the CPU this thread's CPU time, so that ranks
  // that share a core measure what each would take on a core of its own. May wait.
  virtual Event record_event() = 0;
  virtual double seconds_between(Event begin, Event end) = 0;

  virtual void fill_zero(Tensor tensor) = 0;
  virtual void copy(Tensor to, Tensor from) = 0;
  // out = a + b, elementwise; out may be a or b. The residual connection and its gradient.
  virtual void add(Tensor a, Tensor b, Tensor out) = 0;

  // out[r,:] = table[tokens[r],:]; a negative token gives a zero row and no gradient.
  virtual void embedding_forward(Tensor table, Tensor tokens, Tensor out, int64_t width) = 0;
  // table_grad[tokens[r],:] += out_grad[r,:], rows in order.
  virtual void embedding_backward(Tensor tokens, Tensor out_grad, Tensor table_grad,
                                  int64_t width) = 0;
  // The same into fixed point: each row is an addend of its own.
  virtual void embedding_fold(Tensor tokens, Tensor out_grad, Tensor accumulator, int64_t width,
                              const FoldParams& params, Tensor status) = 0;

  // y[r,:] = x[r,:]·weight / rms, rms² = mean(x[r,:]²) + eps; inverse_rms[r] is kept for backward.
  // (Zhang and Sennrich 2019)
  virtual void rms_norm_forward(Tensor x, Tensor weight, Tensor y, Tensor inverse_rms,
                                int64_t width, float eps) = 0;
  // x_grad += the gradient by x (it joins the residual path); weight_grad = or += by `accumulate`.
  virtual void rms_norm_backward(Tensor x, Tensor weight, Tensor inverse_rms, Tensor y_grad,
                                 Tensor x_grad, Tensor weight_grad, int64_t width,
                                 bool accumulate) = 0;

  // y[rows,out] = x[rows,in] · weight[out,in]ᵀ and its two gradients.
  virtual void linear_forward(Tensor x, Tensor weight, Tensor y, const LinearShape& shape) = 0;
  virtual void linear_backward_input(Tensor y_grad, Tensor weight, Tensor x_grad,
                                     const LinearShape& shape) = 0;
  // weight_grad = or += y_gradᵀ · x, by `accumulate`.
  virtual void linear_backward_weight(Tensor y_grad, Tensor x, Tensor weight_grad,
                                      const LinearShape& shape, bool accumulate) = 0;

  // Rotates the query and key heads of a packed projection in place (Su et al. 2021; pairs are
  // (i, i + head_dim/2)). cosine and sine are [length, head_dim/2]. `inverse` rotates back: that is
  // the gradient.
  virtual void rope(Tensor qkv, Tensor cosine, Tensor sine, const AttentionShape& shape,
                    bool inverse) = 0;
  // Causal softmax(q·kᵀ/√head_dim)·v per head; query head h uses key/value head
  // h·kv_heads/heads. log_sum [sequences·heads·length] is kept for backward.
  virtual void attention_forward(Tensor qkv, Tensor out, Tensor log_sum,
                                 const AttentionShape& shape) = 0;
  virtual void attention_backward(Tensor qkv, Tensor out, Tensor log_sum, Tensor out_grad,
                                  Tensor qkv_grad, const AttentionShape& shape) = 0;

  // gate_up is [rows, 2·width], gate first: activated = silu(gate)·up (Shazeer 2020).
  virtual void swiglu_forward(Tensor gate_up, Tensor activated, int64_t width) = 0;
  // Also writes `activated` again, which backward needs and forward need not keep.
  virtual void swiglu_backward(Tensor gate_up, Tensor activated_grad, Tensor gate_up_grad,
                               Tensor activated, int64_t width) = 0;

  // Fused softmax and cross-entropy. row_loss[r] (double) = -log p(target); 0 where target < 0.
  // With want_grad, logits become their gradient times `grad_scale` (1 / valid tokens of the whole
  // batch), 0 in rows without a target.
  virtual void softmax_cross_entropy(Tensor logits, Tensor targets, Tensor row_loss, int64_t vocab,
                                     float grad_scale, bool want_grad) = 0;

  // accumulator += fixed point of gradient; `first` overwrites instead.
  virtual void fold(Tensor gradient, Tensor accumulator, const FoldParams& params, bool first,
                    Tensor status) = 0;
  // sum[0] (double) = Σ values², values float32, or int64 times 2^-scale. Order fixed by size
  // alone.
  virtual void sum_of_squares(Tensor values, int scale, Tensor sum) = 0;
  // gradient is float32, or int64 with grad_scale including 2^-S.
  virtual void adamw(Tensor weight, Tensor first_moment, Tensor second_moment, Tensor gradient,
                     const AdamParams& params) = 0;
};

// oneDNN for matrix products, own kernels for the rest; one thread. kInternal when oneDNN cannot
// start.
Result<std::unique_ptr<Backend>> make_cpu_backend();
// Its fingerprint() without making one.
std::string cpu_backend_fingerprint();

}  // namespace flextrain::trainer
