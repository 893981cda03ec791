// SPDX-License-Identifier: MIT
// Kernels that work value by value or row by row, in 16 lanes (kernels.h).
#include <algorithm>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/lanes.h"

namespace flextrain::trainer::kernels {
namespace {

FLEXTRAIN_INLINE F16 sigmoid16(F16 x) { return 1.0f / (1.0f + exp16(-x)); }

// The first `count` of 16 lanes at column i; full vectors take the short way.
FLEXTRAIN_INLINE F16 load_up_to(const float* from, int64_t count) {
  return count >= kLanes ? load<F16>(from) : load_part(from, count, 0.0f);
}
FLEXTRAIN_INLINE void store_up_to(float* to, F16 v, int64_t count) {
  if (count >= kLanes)
    store(to, v);
  else
    store_part(to, v, count);
}

}  // namespace

FLEXTRAIN_CLONES void add(const float* a, const float* b, float* out, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes)
    store_up_to(out + i, load_up_to(a + i, size - i) + load_up_to(b + i, size - i), size - i);
}

FLEXTRAIN_CLONES void rope(float* qkv, const float* cosine, const float* sine,
                           const AttentionShape& shape, bool inverse) {
  const int64_t half = shape.head_dim / 2, rotated_heads = shape.heads + shape.kv_heads;
  const float sign = inverse ? -1.0f : 1.0f;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const float* c = cosine + row % shape.length * half;
    const float* s = sine + row % shape.length * half;
    for (int64_t head = 0; head < rotated_heads; ++head) {
      float* __restrict low = qkv + row * shape.qkv_width() + head * shape.head_dim;
      float* __restrict high = low + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i], turn = sign * s[i];
        low[i] = a * c[i] - b * turn;
        high[i] = b * c[i] + a * turn;
      }
    }
  }
}

FLEXTRAIN_CLONES void swiglu_forward(const float* gate_up, float* activated, int64_t rows,
                                     int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* gate = gate_up + row * 2 * width;
    const float* up = gate + width;
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t count = width - i;
      const F16 g = load_up_to(gate + i, count);
      store_up_to(activated + row * width + i, g * sigmoid16(g) * load_up_to(up + i, count), count);
    }
  }
}

// d silu(g)/dg = σ(g)·(1 + g·(1 - σ(g)))
FLEXTRAIN_CLONES void swiglu_backward(const float* gate_up, const float* activated_grad,
                                      float* gate_up_grad, float* activated, int64_t rows,
                                      int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* gate = gate_up + row * 2 * width;
    const float* up = gate + width;
    float* gate_grad = gate_up_grad + row * 2 * width;
    float* up_grad = gate_grad + width;
    for (int64_t i = 0; i < width; i += kLanes) {
      const int64_t count = width - i;
      const F16 g = load_up_to(gate + i, count), u = load_up_to(up + i, count);
      const F16 d = load_up_to(activated_grad + row * width + i, count);
      const F16 s = sigmoid16(g), silu = g * s;
      store_up_to(gate_grad + i, d * u * (s * (1.0f + g * (1.0f - s))), count);
      store_up_to(up_grad + i, d * silu, count);
      store_up_to(activated + row * width + i, silu * u, count);
    }
  }
}

}  // namespace flextrain::trainer::kernels
