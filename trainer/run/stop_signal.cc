// SPDX-License-Identifier: MIT
#include "trainer/run/stop_signal.h"

#include <csignal>
#include <ctime>

namespace flextrain::trainer {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

// A handler would be delivered on the stack of whatever runs. oneDNN's kernels use the stack
// pointer as a data register (2.6.3, AVX2 and later), so the kernel would write the signal's frame
// into the heap. A blocked signal is delivered to nobody and stays pending.
void keep_stop_signals() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

bool stop_requested() {
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  return sigismember(&pending, SIGUSR1) == 1 || sigismember(&pending, SIGTERM) == 1;
}

void clear_stop_request() {
  const sigset_t set = stop_signals();
  const timespec at_once{0, 0};
  while (::sigtimedwait(&set, nullptr, &at_once) > 0) {
  }
}

}  // namespace flextrain::trainer
