// SPDX-License-Identifier: MIT
#include "protocol/replay_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace flextrain::protocol {
namespace {

using namespace std::chrono_literals;

TEST(ReplayGuard, ANonceIsGoodOncePerUser) {
  ReplayGuard guard(300s);
  const auto now = ReplayGuard::Clock::now();
  EXPECT_TRUE(guard.first_time(1001, "a", now));
  EXPECT_FALSE(guard.first_time(1001, "a", now));
  EXPECT_FALSE(guard.first_time(1001, "a", now + 299s));
  EXPECT_TRUE(guard.first_time(1001, "b", now));
  EXPECT_TRUE(guard.first_time(1002, "a", now)) << "another user's nonces are his own";
}

TEST(ReplayGuard, ForgetsWhatNoCredentialCanBring) {
  ReplayGuard guard(300s);
  const auto now = ReplayGuard::Clock::now();
  EXPECT_TRUE(guard.first_time(1, "a", now));
  EXPECT_TRUE(guard.first_time(1, "a", now + 301s));
}

TEST(ReplayGuard, RemembersABoundedNumber) {
  ReplayGuard guard(300s);
  const auto now = ReplayGuard::Clock::now();
  for (size_t i = 0; i <= ReplayGuard::kMostNonces; ++i) {
    ASSERT_TRUE(guard.first_time(1, std::to_string(i), now));
  }
  EXPECT_TRUE(guard.first_time(1, "0", now)) << "the oldest is forgotten first";
  EXPECT_FALSE(guard.first_time(1, std::to_string(ReplayGuard::kMostNonces), now));
}

}  // namespace
}  // namespace flextrain::protocol
