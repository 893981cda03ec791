// SPDX-License-Identifier: MIT
#include "agent/liveness.h"

#include <gtest/gtest.h>

namespace flextrain::agent {
namespace {

class LivenessTest : public ::testing::Test {
 protected:
  static Liveness::Time at(double seconds) {
    return Liveness::Time(std::chrono::hours(1) +
                          std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  }
};

TEST_F(LivenessTest, TheLimitFollowsTheStepTimeAboveAFloor) {
  Liveness liveness({});
  liveness.launched(at(0));
  EXPECT_FALSE(liveness.hangs(at(1799)));
  EXPECT_TRUE(liveness.hangs(at(1801)));
  liveness.marked("first_step", at(100));
  liveness.stepped(0.5, at(100));
  EXPECT_EQ(liveness.limit(), 60);
  EXPECT_FALSE(liveness.hangs(at(159)));
  EXPECT_NEAR(liveness.hangs(at(161)).value_or(0), 61, 1e-6);
  liveness.stepped(30, at(130));
  EXPECT_EQ(liveness.limit(), 600);
  for (int i = 0; i < 500; ++i) liveness.stepped(1, at(131));
  EXPECT_EQ(liveness.limit(), 60) << "one slow step is forgotten";
}

TEST_F(LivenessTest, WhatIsAnnouncedMayTakeLong) {
  Liveness liveness({10, 100});
  liveness.launched(at(0));
  liveness.stepped(1, at(1));
  EXPECT_TRUE(liveness.hangs(at(12)));
  for (const auto& [begin, end] :
       {std::pair{"saving", "save"}, std::pair{"saving", "save_failed"},
        std::pair{"saving", "periodic_save_failed"}, std::pair{"evaluating", "evaluated"}}) {
    liveness.marked(begin, at(20));
    liveness.stepped(1, at(20));  // the step before it, read late
    EXPECT_EQ(liveness.saving(), begin == std::string_view("saving"));
    EXPECT_FALSE(liveness.hangs(at(119))) << begin;
    EXPECT_TRUE(liveness.hangs(at(121))) << begin;
    liveness.marked(end, at(30));
    EXPECT_FALSE(liveness.saving()) << end;
    EXPECT_TRUE(liveness.hangs(at(41))) << end;
  }
  liveness.marked("saving", at(50));
  liveness.stepped(1, at(51));
  liveness.stepped(1, at(52));  // it steps: the save is over, whatever was said
  EXPECT_TRUE(liveness.hangs(at(63)));
  EXPECT_FALSE(liveness.saving());
  liveness.excuse(at(63));
  EXPECT_FALSE(liveness.hangs(at(72)));
}

TEST_F(LivenessTest, PreparationIsASignOfLife) {
  Liveness liveness({10, 100});
  liveness.launched(at(0));
  liveness.marked("preparing", at(90));
  EXPECT_FALSE(liveness.hangs(at(189)));
  EXPECT_TRUE(liveness.hangs(at(191)));
}

}  // namespace
}  // namespace flextrain::agent
