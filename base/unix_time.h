// SPDX-License-Identifier: MIT
// The wall clock that agent and trainer compare their marks in.
#pragma once

#include <chrono>

namespace flextrain {

// Seconds since 1970, UTC, with the system clock's fraction. It may jump: for durations inside one
// process use a steady clock.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace flextrain
