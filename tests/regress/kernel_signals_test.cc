// SPDX-License-Identifier: MIT
// What went wrong: the trainer's handler of SIGUSR1 ran on the stack of whatever was computing, but
// oneDNN's kernels use the stack pointer as a data register. Now and then the agent's request to
// save and leave wrote a signal frame into the heap: "munmap_chunk(): invalid pointer", in about
// three of a hundred switches.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "trainer/backend/cpu/matmul.h"
#include "trainer/run/stop_signal.h"

namespace flextrain::trainer {
namespace {

TEST(KernelSignals, RequestsToStopDoNotTouchARunningKernel) {
  keep_stop_signals();
  Matmul matmul;
  ASSERT_TRUE(matmul.open().ok());
  std::atomic<bool> ended = false;
  std::thread sender([&] {
    for (bool usr1 = true; !ended; usr1 = !usr1) {
      ::kill(::getpid(), usr1 ? SIGUSR1 : SIGTERM);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  // The products of attention: 128 tokens, heads of 32 out of a packed projection of 256 columns.
  constexpr int64_t kTokens = 128, kHead = 32, kWidth = 256;
  const MatmulShape scores{kTokens, kTokens, kHead, kWidth, 1, 1, kWidth, kTokens, false};
  const MatmulShape out{kTokens, kHead, kTokens, kTokens, 1, kWidth, 1, kTokens, false};
  MatmulShape key_grad{kTokens, kHead, kTokens, 1, kTokens, kWidth, 1, kWidth, true};
  const std::vector<float> a(kTokens * kWidth, 1.0f), b(kTokens * kWidth, 2.0f);
  std::vector<float> c(kTokens * kWidth);
  Status status;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (status.ok() && std::chrono::steady_clock::now() < end) {
    clear_stop_request();
    for (const MatmulShape& shape : {scores, out, key_grad}) {
      if (status.ok()) status = matmul.run(shape, a.data(), b.data(), c.data());
    }
    // The heap is checked where it is used.
    std::vector<std::vector<float>> blocks;
    for (size_t size = 16; size < 4096; size *= 2) blocks.emplace_back(size);
  }
  ended = true;
  sender.join();
  ASSERT_TRUE(status.ok()) << status.message();
  key_grad.accumulate = false;
  ASSERT_TRUE(matmul.run(key_grad, a.data(), b.data(), c.data()).ok());
  EXPECT_EQ(c[0], 2.0f * kTokens);
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(stop_requested());
  clear_stop_request();
  EXPECT_FALSE(stop_requested());
}

}  // namespace
}  // namespace flextrain::trainer
