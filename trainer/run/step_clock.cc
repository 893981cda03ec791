// SPDX-License-Identifier: MIT
#include "trainer/run/step_clock.h"

#include <algorithm>
#include <thread>

#include "trainer/run/stop_signal.h"

namespace flextrain::trainer {
namespace {
constexpr double kSlice = 0.02;  // seconds between looks at the stop flag
}

void sleep_until(const Stopwatch& watch, double seconds) {
  for (double left = seconds - watch.seconds(); left > 0 && !stop_requested();
       left = seconds - watch.seconds()) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kSlice)));
  }
}

}  // namespace flextrain::trainer
