// SPDX-License-Identifier: MIT
#include "trainer/run/stop_signal.h"

#include <csignal>

namespace flextrain::trainer {
namespace {

volatile std::sig_atomic_t stop_flag = 0;

void on_signal(int) { stop_flag = 1; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return stop_flag != 0; }

void clear_stop_request() { stop_flag = 0; }

}  // namespace flextrain::trainer
