// SPDX-License-Identifier: MIT
// Host memory of the CPU backend: zero-filled, 64-byte aligned, freed all at once. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace flextrain::trainer {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // nullptr when the system has no memory left. A request of 0 bytes gets a valid address.
  void* allocate(int64_t bytes);
  int64_t allocated_bytes() const { return allocated_; }

 private:
  std::vector<void*> blocks_;
  int64_t allocated_ = 0;
};

}  // namespace flextrain::trainer
