// SPDX-License-Identifier: MIT
// Addresses of an emulated device's memory: numbers that no host allocation ever has (the upper
// half belongs to the kernel), so that nothing can read there by mistake and a Communicator can
// tell a tensor, which has a size alone, from control data, which have values.
#pragma once

#include <cstdint>

namespace flextrain::trainer {

inline constexpr uintptr_t kEmulatedMemory = uintptr_t{1} << 63;

inline bool is_emulated_memory(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & kEmulatedMemory) != 0;
}

}  // namespace flextrain::trainer
