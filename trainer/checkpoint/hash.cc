// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace flextrain::trainer {

std::string xxh3_hex(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace flextrain::trainer
