// SPDX-License-Identifier: MIT
#include "policy/quiet_hours.h"

#include <gtest/gtest.h>

namespace flextrain::policy {
namespace {

// Seconds of the local clock: day 0 is a Monday.
int64_t at(int day, int hour, int minute = 0) {
  return 4 * 86400 + day * 86400 + hour * 3600 + minute * 60;
}

TEST(QuietHours, Spans) {
  const QuietHours daily = *QuietHours::parse("08:00-18:00");
  EXPECT_FALSE(daily.contains(at(0, 7, 59)));
  EXPECT_TRUE(daily.contains(at(0, 8)));
  EXPECT_TRUE(daily.contains(at(6, 17, 59)));
  EXPECT_FALSE(daily.contains(at(6, 18)));
  const QuietHours week = *QuietHours::parse(" mon-Fri 08:00-18:00 , Sat 22:00-02:00");
  EXPECT_TRUE(week.contains(at(4, 12)));
  EXPECT_FALSE(week.contains(at(5, 12)));
  EXPECT_TRUE(week.contains(at(5, 23)));
  EXPECT_TRUE(week.contains(at(6, 1, 59))) << "into Sunday";
  EXPECT_FALSE(week.contains(at(6, 2)));
  EXPECT_FALSE(week.contains(at(5, 1))) << "not from Friday into Saturday";
  EXPECT_TRUE(QuietHours::parse("Sat-Mon 00:00-24:00")->contains(at(6, 3)));
  EXPECT_FALSE(QuietHours::parse("Sat-Mon 00:00-24:00")->contains(at(1, 0)));
  EXPECT_FALSE(QuietHours::parse("")->contains(at(1, 0)));
  EXPECT_TRUE(QuietHours::parse("Wed 23:00-24:00")->contains(-86400 + 23 * 3600)) << "before 1970";
  EXPECT_EQ(week.text(), "mon-Fri 08:00-18:00 , Sat 22:00-02:00");
}

TEST(QuietHours, Refused) {
  for (const char* text :
       {"8-18", "08:00", "08:00-08:00", "Mo 08:00-09:00", "Mon-Tue", "25:00-26:00", "08:60-09:00",
        "24:00-02:00", "08:00-18:00,", "-1:00-02:00"})
    EXPECT_FALSE(QuietHours::parse(text).ok()) << text;
}

}  // namespace
}  // namespace flextrain::policy
