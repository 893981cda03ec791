// SPDX-License-Identifier: MIT
// Deviations by seed: the same numbers in every run, for every order of asking.
#pragma once

#include <cstdint>

namespace flextrain::trainer {

// Finaliser of SplitMix64 (Steele, Lea and Flood 2014).
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// About normal, mean 0, standard deviation 1, within ±3.5: the sum of four uniform numbers.
inline double deviation(uint64_t key) {
  const uint64_t bits = mix_bits(key);
  const double sum = static_cast<double>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                         ((bits >> 32) & 0xffff) + (bits >> 48));
  constexpr double kUnit = 65536.0, kScale = 1.7320508075688772;  // each has variance 1/12
  return (sum / kUnit - 2.0) * kScale;
}

// A duration's factor, 1 on average.
inline double noisy_factor(double relative, uint64_t key) {
  if (relative <= 0) return 1;
  const double factor = 1 + relative * deviation(key);
  return factor > 0.05 ? factor : 0.05;
}

}  // namespace flextrain::trainer
