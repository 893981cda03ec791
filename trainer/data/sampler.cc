// SPDX-License-Identifier: MIT
#include "trainer/data/sampler.h"

#include <bit>

namespace flextrain::trainer {
namespace {

constexpr int kRounds = 6;

// Multiply-xor-shift avalanche; odd constants from the digits of pi and e keep it a bijection.
uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x243f6a8885a308d3ULL;
  x ^= x >> 29;
  x *= 0xb7e151628aed2a6bULL;
  x ^= x >> 32;
  return x;
}

}  // namespace

int64_t permuted_index(uint64_t key, int64_t index, int64_t count) {
  if (count <= 1) return 0;
  const int bits = std::bit_width(static_cast<uint64_t>(count - 1));
  const int half = (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix(mix(key + round * 0x9e3779b97f4a7c15ULL) ^ right) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

int64_t window_of_sample(uint64_t seed, int64_t sample, int64_t windows) {
  const int64_t epoch = sample / windows;
  const uint64_t key = mix(mix(seed + 1) + static_cast<uint64_t>(epoch));
  return permuted_index(key, sample % windows, windows);
}

}  // namespace flextrain::trainer
