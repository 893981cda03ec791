// SPDX-License-Identifier: MIT
// Kernels that reduce over rows: norms and softmaxes.
#include <cmath>
#include <limits>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/lanes.h"

namespace flextrain::trainer::kernels {
namespace {

// Lanes of element products, then summed: one fixed order whatever the length.
FLEXTRAIN_INLINE float dot(const float* a, const float* b, int64_t size) {
  F16 sum = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) sum += load<F16>(a + i) * load<F16>(b + i);
  if (i < size) sum += load_part(a + i, size - i, 0.0f) * load_part(b + i, size - i, 0.0f);
  return sum_lanes(sum);
}

FLEXTRAIN_INLINE float row_maximum(const float* row, int64_t size) {
  const float lowest = -std::numeric_limits<float>::infinity();
  F16 top = load_part(row, size < kLanes ? size : kLanes, lowest);
  int64_t i = kLanes;
  for (; i + kLanes <= size; i += kLanes) top = max16(top, load<F16>(row + i));
  if (i < size) top = max16(top, load_part(row + i, size - i, lowest));
  return max_lanes(top);
}

// Replaces row[i] by exp(scale·row[i] - shift) where `write`, and returns the sum.
template <bool kWrite>
FLEXTRAIN_INLINE float exponentials(float* row, int64_t size, float scale, float shift) {
  const float lowest = -std::numeric_limits<float>::infinity();
  F16 sum = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const F16 e = exp16(load<F16>(row + i) * scale - shift);
    sum += e;
    if constexpr (kWrite) store(row + i, e);
  }
  if (i < size) {
    const F16 e = exp16(load_part(row + i, size - i, lowest) * scale - shift);
    sum += e;
    if constexpr (kWrite) store_part(row + i, e, size - i);
  }
  return sum_lanes(sum);
}

FLEXTRAIN_INLINE void multiply(float* row, int64_t size, float factor) {
  for (int64_t i = 0; i < size; ++i) row[i] *= factor;
}

// log of a positive float; long double is x87 code, the same on every x86-64 machine.
double exact_log(float x) { return static_cast<double>(std::log(static_cast<long double>(x))); }

}  // namespace

FLEXTRAIN_CLONES void rms_norm_forward(const float* x, const float* weight, float* y,
                                       float* inverse_rms, int64_t rows, int64_t width, float eps) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * width;
    float* __restrict out = y + row * width;
    const float mean = dot(in, in, width) / static_cast<float>(width);
    const float inverse = 1.0f / std::sqrt(mean + eps);
    inverse_rms[row] = inverse;
    for (int64_t i = 0; i < width; ++i) out[i] = in[i] * inverse * weight[i];
  }
}

// With n = x·inverse and g = y_grad·weight: x_grad += inverse·(g - n·mean(g·n)).
FLEXTRAIN_CLONES void rms_norm_backward(const float* x, const float* weight,
                                        const float* inverse_rms, const float* y_grad,
                                        float* x_grad, float* weight_grad, int64_t rows,
                                        int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * width;
    const float* grad = y_grad + row * width;
    float* __restrict out = x_grad + row * width;
    float* __restrict w_grad = weight_grad;
    const float inverse = inverse_rms[row];
    F16 sum = {};
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes)
      sum += load<F16>(grad + i) * load<F16>(weight + i) * load<F16>(in + i);
    if (i < width)
      sum += load_part(grad + i, width - i, 0.0f) * load_part(weight + i, width - i, 0.0f) *
             load_part(in + i, width - i, 0.0f);
    const float mean = sum_lanes(sum) * inverse / static_cast<float>(width);
    for (int64_t j = 0; j < width; ++j) {
      const float normed = in[j] * inverse;
      out[j] += inverse * (grad[j] * weight[j] - normed * mean);
      w_grad[j] += grad[j] * normed;
    }
  }
}

FLEXTRAIN_CLONES void softmax_cross_entropy(float* logits, const int32_t* targets, double* row_loss,
                                            int64_t rows, int64_t vocab, float grad_scale,
                                            bool want_grad) {
  for (int64_t row = 0; row < rows; ++row) {
    float* logit = logits + row * vocab;
    const int32_t target = targets[row];
    if (target < 0) {
      row_loss[row] = 0;
      if (want_grad) std::memset(logit, 0, static_cast<size_t>(vocab) * sizeof(float));
      continue;
    }
    const float top = row_maximum(logit, vocab), chosen = logit[target];
    const float sum = want_grad ? exponentials<true>(logit, vocab, 1.0f, top)
                                : exponentials<false>(logit, vocab, 1.0f, top);
    row_loss[row] = exact_log(sum) - (static_cast<double>(chosen) - static_cast<double>(top));
    if (!want_grad) continue;
    multiply(logit, vocab, grad_scale / sum);
    logit[target] -= grad_scale;
  }
}

FLEXTRAIN_CLONES void causal_softmax(float* scores, float* log_sum, int64_t length, int64_t stride,
                                     float scale) {
  for (int64_t i = 0; i < length; ++i) {
    float* row = scores + i * stride;
    const int64_t valid = i + 1;
    const float shift = row_maximum(row, valid) * scale;
    const float sum = exponentials<true>(row, valid, scale, shift);
    log_sum[i] = static_cast<float>(static_cast<double>(shift) + exact_log(sum));
    multiply(row, valid, 1.0f / sum);
    std::memset(row + valid, 0, static_cast<size_t>(stride - valid) * sizeof(float));
  }
}

FLEXTRAIN_CLONES void causal_probabilities(float* scores, const float* log_sum, int64_t length,
                                           int64_t stride, float scale) {
  for (int64_t i = 0; i < length; ++i) {
    float* row = scores + i * stride;
    const int64_t valid = i + 1;
    exponentials<true>(row, valid, scale, log_sum[i]);
    std::memset(row + valid, 0, static_cast<size_t>(stride - valid) * sizeof(float));
  }
}

FLEXTRAIN_CLONES void causal_softmax_backward(const float* probabilities, float* probability_grad,
                                              const float* out, const float* out_grad,
                                              int64_t out_stride, int64_t head_dim, int64_t length,
                                              int64_t stride, float scale) {
  for (int64_t i = 0; i < length; ++i) {
    const float* p = probabilities + i * stride;
    float* __restrict grad = probability_grad + i * stride;
    const float mean = dot(out_grad + i * out_stride, out + i * out_stride, head_dim);
    const int64_t valid = i + 1;
    for (int64_t j = 0; j < valid; ++j) grad[j] = p[j] * (grad[j] - mean) * scale;
    std::memset(grad + valid, 0, static_cast<size_t>(stride - valid) * sizeof(float));
  }
}

}  // namespace flextrain::trainer::kernels
