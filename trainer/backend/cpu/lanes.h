// SPDX-License-Identifier: MIT
// Fixed-width vectors for the CPU kernels.
//
// A kernel is written once in 16 float lanes and compiled for several instruction sets
// (FLEXTRAIN_CLONES). The order of operations is spelt out in the source and contraction is off, so
// every clone gives the same bits; a narrower machine just needs more instructions per vector.
#pragma once

#include <cstdint>
#include <cstring>

// Sanitizer builds take the plain version: instrumented ifunc resolvers run before the runtime is
// up. A test compiles the kernels once per instruction set and defines the macro empty.
#ifndef FLEXTRAIN_CLONES
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FLEXTRAIN_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLEXTRAIN_CLONES
#endif
#endif
#define FLEXTRAIN_INLINE static inline __attribute__((always_inline))

namespace flextrain::trainer {

inline constexpr int64_t kLanes = 16;
using F16 = float __attribute__((vector_size(64)));
using I16 = int32_t __attribute__((vector_size(64)));
using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using D8 = double __attribute__((vector_size(64)));
using L8 = int64_t __attribute__((vector_size(64)));

template <typename V, typename T>
FLEXTRAIN_INLINE V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename V, typename T>
FLEXTRAIN_INLINE void store(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}
// The first `count` lanes from memory, the others `fill`.
FLEXTRAIN_INLINE F16 load_part(const float* from, int64_t count, float fill) {
  F16 v = fill - F16{};
  std::memcpy(&v, from, static_cast<size_t>(count) * sizeof(float));
  return v;
}
FLEXTRAIN_INLINE void store_part(float* to, F16 v, int64_t count) {
  std::memcpy(to, &v, static_cast<size_t>(count) * sizeof(float));
}

FLEXTRAIN_INLINE F16 max16(F16 a, F16 b) { return a > b ? a : b; }

// Sum and maximum of the lanes, halving: the order every clone keeps.
FLEXTRAIN_INLINE float sum_lanes(F16 v) {
  float lane[16];
  std::memcpy(lane, &v, sizeof v);
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}
FLEXTRAIN_INLINE float max_lanes(F16 v) {
  float lane[16];
  std::memcpy(lane, &v, sizeof v);
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] = lane[i] > lane[i + step] ? lane[i] : lane[i + step];
  return lane[0];
}
FLEXTRAIN_INLINE double sum_lanes(D8 v) {
  double lane[8];
  std::memcpy(lane, &v, sizeof v);
  for (int step = 4; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}

// e^x per lane, within 2 units in the last place; 0 below -87, x is capped at 88. NaN stays NaN.
// x = n·ln 2 + r with |r| ≤ ln 2 / 2, then the Taylor series of degree 7 in r (remainder 5e-9) and
// 2^n by its bits. Own code because libm's expf differs with the machine's FMA unit.
FLEXTRAIN_INLINE F16 exp16(F16 x) {
  const F16 zero = {};
  const float kRounder = 12582912.0f;  // 1.5·2^23: adding it rounds to an integer
  const float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  F16 y = x > 88.0f ? zero + 88.0f : x;
  y = y < -87.0f ? zero - 87.0f : y;
  const F16 shifted = y * 1.44269504088896341f + kRounder;
  const F16 n = shifted - kRounder;
  F16 r = y - n * kLn2High;
  r = r - n * kLn2Low;
  F16 p = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
  p = p * r + (1.0f / 120.0f);
  p = p * r + (1.0f / 24.0f);
  p = p * r + (1.0f / 6.0f);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I16 bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - 0x4B400000 + 127) << 23;
  F16 power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.0f ? zero : p * power;
}

}  // namespace flextrain::trainer
