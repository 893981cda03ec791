// SPDX-License-Identifier: MIT
#include "trainer/backend/backend.h"

#include <ctime>

namespace flextrain::trainer {

double Backend::clock_seconds() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Backend::pause(double seconds) {
  timespec wait{static_cast<time_t>(seconds), 0};
  wait.tv_nsec = static_cast<long>((seconds - static_cast<double>(wait.tv_sec)) * 1e9);
  while (nanosleep(&wait, &wait) != 0) {
  }
}

}  // namespace flextrain::trainer
