// SPDX-License-Identifier: MIT
#include "protocol/byte_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace flextrain::protocol {
namespace {

constexpr size_t kFree = ByteBudget::kFreeBytes;

TEST(ByteBudget, SmallOnesCostNothing) {
  ByteBudget budget(0);
  std::vector<std::unique_ptr<ByteBudget::Share>> shares;
  for (int i = 0; i < 100; ++i) {
    shares.push_back(std::make_unique<ByteBudget::Share>());
    EXPECT_TRUE(budget.add(*shares.back(), "a", kFree));
  }
  EXPECT_FALSE(budget.add(*shares.back(), "a", 1));
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ByteBudget, OneAddressGetsAQuarter) {
  ByteBudget budget(4000);
  ByteBudget::Share a, a2, b;
  EXPECT_TRUE(budget.add(a, "a", kFree + 400));
  EXPECT_TRUE(budget.add(a, "a", 600));
  EXPECT_FALSE(budget.add(a, "a", 1));
  EXPECT_FALSE(budget.add(a2, "a", kFree + 1));
  EXPECT_TRUE(budget.add(b, "b", kFree + 1000));
  EXPECT_EQ(budget.used(), 2000u);
  a.release();
  a.release();
  EXPECT_EQ(budget.used(), 1000u);
  EXPECT_TRUE(budget.add(a2, "a", kFree + 1000));
}

TEST(ByteBudget, ThePoolIsTheMost) {
  ByteBudget budget(4000);
  ByteBudget::Share shares[5];
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(budget.add(shares[i], std::to_string(i), kFree + 1000));
  }
  EXPECT_FALSE(budget.add(shares[4], "4", kFree + 1));
  EXPECT_TRUE(budget.add(shares[4], "4", kFree)) << "what was refused is not counted";
}

TEST(ByteBudget, AShareMayBecomeLessOrMore) {
  ByteBudget budget(4000);
  ByteBudget::Share share, other;
  EXPECT_TRUE(budget.set(share, "a", kFree + 800));
  EXPECT_TRUE(budget.set(share, "a", kFree + 1000));
  EXPECT_EQ(budget.used(), 1000u);
  EXPECT_FALSE(budget.set(share, "a", kFree + 1001));
  EXPECT_FALSE(budget.add(other, "a", kFree + 1));
  EXPECT_TRUE(budget.set(share, "a", kFree + 300));
  EXPECT_EQ(budget.used(), 300u);
  EXPECT_TRUE(budget.add(other, "a", kFree + 700));
  EXPECT_TRUE(budget.set(share, "a", 5));
  EXPECT_EQ(budget.used(), 700u);
  share.release();
  EXPECT_TRUE(budget.add(share, "a", kFree + 300)) << "nothing is left of what was released";
}

TEST(ByteBudget, AShareGivesBackWhenItGoes) {
  ByteBudget budget(4000);
  {
    ByteBudget::Share share;
    EXPECT_TRUE(budget.add(share, "a", kFree + 1000));
  }
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace flextrain::protocol
