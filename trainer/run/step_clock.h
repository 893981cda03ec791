// SPDX-License-Identifier: MIT
// Stopwatch and waits of the training loop.
#pragma once

#include <chrono>

namespace flextrain::trainer {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Sleeps until `watch` shows `seconds`, but no longer than until a stop signal comes.
void sleep_until(const Stopwatch& watch, double seconds);

}  // namespace flextrain::trainer
