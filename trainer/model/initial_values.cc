// SPDX-License-Identifier: MIT
// Initial parameter values, each a function of seed and position alone, so no layout changes them.
#include <cmath>

#include "trainer/model/parameters.h"

namespace flextrain::trainer {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t name_key(const std::string& name) {
  uint64_t key = 0xCBF29CE484222325u;  // FNV-1a
  for (unsigned char c : name) key = (key ^ c) * 0x100000001B3u;
  return key;
}

// Eight uniform 16-bit numbers summed: close to a normal with bounded tails, and integer work only,
// so the same on every machine.
int64_t sum_of_eight(uint64_t key, uint64_t index) {
  int64_t sum = 0;
  for (uint64_t half = 0; half < 2; ++half) {
    const uint64_t bits = mix(key + 2 * index + half);
    for (int shift = 0; shift < 64; shift += 16)
      sum += static_cast<int64_t>((bits >> shift) & 0xFFFF);
  }
  return sum;
}

}  // namespace

std::vector<float> initial_values(const Parameter& parameter, uint64_t seed,
                                  planner::LayerId layer) {
  std::vector<float> values(static_cast<size_t>(parameter.size), 1.0f);
  if (parameter.init_std == 0) return values;
  const uint64_t key =
      mix(mix(mix(seed) ^ static_cast<uint64_t>(layer)) ^ name_key(parameter.name));
  const double mean = 8 * 65535.0 / 2, deviation = std::sqrt(8 * (65536.0 * 65536.0 - 1) / 12);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<double>(sum_of_eight(key, i)) - mean) / deviation *
                                   parameter.init_std);
  return values;
}

}  // namespace flextrain::trainer
