// SPDX-License-Identifier: MIT
#include "trainer/data/sampler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace flextrain::trainer {
namespace {

TEST(Sampler, EveryKeyGivesAPermutation) {
  for (const int64_t count : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const uint64_t key : {0ULL, 1ULL, 0xffffffffffffffffULL}) {
      std::vector<bool> seen(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = permuted_index(key, i, count);
        ASSERT_GE(at, 0);
        ASSERT_LT(at, count);
        ASSERT_FALSE(seen[static_cast<size_t>(at)]) << "count " << count << " index " << i;
        seen[static_cast<size_t>(at)] = true;
      }
    }
  }
}

TEST(Sampler, EpochsVisitEveryWindowOnceInDifferentOrders) {
  constexpr int64_t kWindows = 500;
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t sample = 0; sample < 3 * kWindows; ++sample) {
    epochs[static_cast<size_t>(sample / kWindows)].push_back(window_of_sample(9, sample, kWindows));
  }
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 500u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Sampler, SeedsGiveUnrelatedOrders) {
  constexpr int64_t kWindows = 1000;
  int equal = 0;
  for (int64_t i = 0; i < kWindows; ++i) {
    equal += window_of_sample(1, i, kWindows) == window_of_sample(2, i, kWindows);
  }
  EXPECT_LT(equal, 15);  // about 1 is expected by chance
}

// Half of the windows in the first half of an epoch would come from the first half of the text if
// the order is a fair shuffle; 5 standard deviations of slack.
TEST(Sampler, OrderIsShuffled) {
  constexpr int64_t kWindows = 4000;
  int low = 0;
  for (int64_t i = 0; i < kWindows / 2; ++i) {
    low += window_of_sample(3, i, kWindows) < kWindows / 2;
  }
  EXPECT_NEAR(low, 1000, 80);
}

// The order is part of a checkpoint's meaning: a change of it silently repeats and skips data.
TEST(Sampler, OrderIsPinned) {
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 8; ++i) first.push_back(window_of_sample(1, i, 1000));
  EXPECT_EQ(first, (std::vector<int64_t>{130, 860, 462, 713, 163, 668, 336, 143}));
}

}  // namespace
}  // namespace flextrain::trainer
