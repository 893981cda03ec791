// SPDX-License-Identifier: MIT
// Fixed-point accumulation, norms and AdamW.
#include <cmath>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/cpu/lanes.h"

namespace flextrain::trainer::kernels {
namespace {

constexpr int64_t kHalf = 8;

// Rounds to nearest even: below 2^23 by adding and taking away 2^23 with x's sign; at and above it
// a float has no fraction.
FLEXTRAIN_INLINE F8 round8(F8 x) {
  const F8 zero = {};
  const float kWhole = 8388608.0f;
  const F8 magnitude = x < 0.0f ? -x : x;
  const F8 shift = x < 0.0f ? zero - kWhole : zero + kWhole;
  return magnitude < kWhole ? (x + shift) - shift : x;
}

int64_t worst_of(const float* gradient, int64_t size, float factor, float limit) {
  int64_t worst = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (!std::isfinite(gradient[i])) return kFoldNotFinite;
    if (!(std::fabs(gradient[i] * factor) < limit)) worst = kFoldSaturated;
  }
  return worst;
}

template <typename Gradient>
FLEXTRAIN_INLINE void adamw_loop(float* __restrict weight, float* __restrict first_moment,
                                 float* __restrict second_moment,
                                 const Gradient* __restrict gradient, int64_t size,
                                 const AdamParams& params) {
  const float lr = params.learning_rate, eps = params.eps, decay = params.weight_decay;
  const float gain1 = 1.0f - params.beta1, gain2 = 1.0f - params.beta2;
  const float c1 = params.correction1, c2 = params.correction2;
  const double scale = params.grad_scale;
  for (int64_t i = 0; i < size; ++i) {
    const float g = static_cast<float>(static_cast<double>(gradient[i]) * scale);
    const float m = first_moment[i] + gain1 * (g - first_moment[i]);
    const float v = second_moment[i] + gain2 * (g * g - second_moment[i]);
    first_moment[i] = m;
    second_moment[i] = v;
    weight[i] -= lr * (m * c1 / (std::sqrt(v * c2) + eps) + decay * weight[i]);
  }
}

}  // namespace

FLEXTRAIN_CLONES int64_t fold(const float* gradient, int64_t* accumulator, int64_t size,
                              const FoldParams& params, bool first) {
  const float factor = std::ldexp(1.0f, params.scale);
  const float limit = std::ldexp(1.0f, params.limit_exponent);
  const F8 zero = {};
  I8 bad = {};
  for (int64_t i = 0; i < size; i += kHalf) {
    const int64_t count = size - i < kHalf ? size - i : kHalf;
    F8 x = {};
    L8 sum = {};
    if (count == kHalf) {
      x = load<F8>(gradient + i);
      if (!first) sum = load<L8>(accumulator + i);
    } else {
      std::memcpy(&x, gradient + i, static_cast<size_t>(count) * sizeof(float));
      if (!first) std::memcpy(&sum, accumulator + i, static_cast<size_t>(count) * sizeof(int64_t));
    }
    x *= factor;
    const I8 good = (x < limit) & (x > -limit);  // false for NaN
    bad |= ~good;
    x = good ? x : zero;
    sum += __builtin_convertvector(round8(x), L8);
    if (count == kHalf)
      store(accumulator + i, sum);
    else
      std::memcpy(accumulator + i, &sum, static_cast<size_t>(count) * sizeof(int64_t));
  }
  for (int lane = 0; lane < kHalf; ++lane)
    if (bad[lane]) return worst_of(gradient, size, factor, limit);
  return 0;
}

FLEXTRAIN_CLONES double sum_of_squares(const float* values, int64_t size) {
  D8 sum = {};
  int64_t i = 0;
  for (; i < size; i += kHalf) {
    F8 x = {};
    std::memcpy(&x, values + i,
                static_cast<size_t>(size - i < kHalf ? size - i : kHalf) * sizeof(float));
    const D8 d = __builtin_convertvector(x, D8);
    sum += d * d;
  }
  return sum_lanes(sum);
}

FLEXTRAIN_CLONES double sum_of_squares(const int64_t* values, int64_t size, int scale) {
  const double unit = std::ldexp(1.0, -scale);
  D8 sum = {};
  int64_t i = 0;
  for (; i < size; i += kHalf) {
    L8 x = {};
    std::memcpy(&x, values + i,
                static_cast<size_t>(size - i < kHalf ? size - i : kHalf) * sizeof(int64_t));
    const D8 d = __builtin_convertvector(x, D8) * unit;
    sum += d * d;
  }
  return sum_lanes(sum);
}

FLEXTRAIN_CLONES void adamw(float* weight, float* first_moment, float* second_moment,
                            const float* gradient, int64_t size, const AdamParams& params) {
  adamw_loop(weight, first_moment, second_moment, gradient, size, params);
}

FLEXTRAIN_CLONES void adamw(float* weight, float* first_moment, float* second_moment,
                            const int64_t* gradient, int64_t size, const AdamParams& params) {
  adamw_loop(weight, first_moment, second_moment, gradient, size, params);
}

}  // namespace flextrain::trainer::kernels
