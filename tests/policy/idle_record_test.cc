// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "policy/forecast.h"

namespace flextrain::policy {
namespace {

constexpr double kHour = 3600, kDay = 86400;
constexpr double kMonday = 4 * kDay;  // 1970-01-05

// 800 GPUs idle, of which 400 are taken from 8 to 18 o'clock on weekdays.
int day_and_night(double time) {
  const double day = std::floor(time / kDay);
  const double hour = (time - day * kDay) / kHour;
  return !is_weekend(day) && hour >= 8 && hour < 18 ? 400 : 800;
}

TEST(IdleRecord, SeesTheMorningComing) {
  IdleRecord record;
  const double now = kMonday + 15 * kDay + 7 * kHour;  // Tuesday, 7:00
  for (double time = kMonday; time <= now; time += 60) record.add(time, day_and_night(time));
  const Forecast* morning = record.forecast(now);
  ASSERT_NE(morning, nullptr);
  EXPECT_GT(morning->rate(100), 1 / (2 * kHour)) << "400 go within the hour";
  EXPECT_EQ(morning->rate(400), 0) << "never more than 400";
  IdleRecord evening;
  const double night = kMonday + 15 * kDay + 20 * kHour;
  for (double time = kMonday; time <= night; time += 60) evening.add(time, day_and_night(time));
  ASSERT_NE(evening.forecast(night), nullptr);
  EXPECT_LT(evening.forecast(night)->rate(100), 1 / (40 * kHour));
}

TEST(IdleRecord, RatesFallWithTheMargin) {
  IdleRecord record;
  for (int i = 0; i < 3000; ++i) record.add(kMonday + 60.0 * i, 500 + (i * 7919 % 101) - (i % 37));
  const Forecast* forecast = record.forecast(kMonday + 60.0 * 3000);
  ASSERT_NE(forecast, nullptr);
  for (size_t i = 1; i < forecast->per_second.size(); ++i)
    EXPECT_LE(forecast->per_second[i], forecast->per_second[i - 1]);
  EXPECT_GT(forecast->per_second[0], 0);
}

TEST(IdleRecord, KnowsNothingAtFirst) {
  IdleRecord record;
  EXPECT_EQ(record.forecast(kMonday), nullptr);
  record.add(kMonday, 10);
  record.add(kMonday + 600, 10);
  EXPECT_EQ(record.forecast(kMonday + 700), nullptr);
}

TEST(Forecaster, FallsBackOnArrivals) {
  Parameters parameters;
  parameters.forecast = ForecastKind::kIdle;
  Forecaster forecaster(parameters, kMonday);
  for (int i = 0; i < 10; ++i) forecaster.add({kMonday + 60.0 * i, 8});
  EXPECT_NEAR(forecaster.rate(kMonday + kHour, 0), 10 / kHour, 1e-9);
  EXPECT_EQ(forecaster.forecast(kMonday + kHour).arrivals, 10);
}

}  // namespace
}  // namespace flextrain::policy
