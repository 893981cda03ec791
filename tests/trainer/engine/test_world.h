// SPDX-License-Identifier: MIT
// The one-process communicator of a test program: MPI starts once per process.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/comm/communicator.h"

namespace flextrain::trainer {

inline Communicator& test_world() {
  static const std::unique_ptr<Communicator> world = [] {
    int argc = 0;
    char** argv = nullptr;
    auto opened = open_world(&argc, &argv);
    if (!opened.ok()) {
      ADD_FAILURE() << opened.status().to_string();
      std::abort();
    }
    std::atexit([] { close_world(); });
    return std::move(opened).value();
  }();
  return *world;
}

}  // namespace flextrain::trainer
