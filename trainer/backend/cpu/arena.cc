// SPDX-License-Identifier: MIT
#include "trainer/backend/cpu/arena.h"

#include <cstdlib>
#include <cstring>

namespace flextrain::trainer {
namespace {
constexpr int64_t kAlignment = 64;  // a cache line and an AVX-512 vector
}

Arena::~Arena() {
  for (void* block : blocks_) std::free(block);
}

void* Arena::allocate(int64_t bytes) {
  if (bytes < 0) return nullptr;
  const int64_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
  void* block = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (block == nullptr) return nullptr;
  std::memset(block, 0, static_cast<size_t>(rounded));
  blocks_.push_back(block);
  allocated_ += rounded;
  return block;
}

}  // namespace flextrain::trainer
