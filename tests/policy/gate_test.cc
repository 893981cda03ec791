// SPDX-License-Identifier: MIT
#include "policy/gate.h"

#include <cmath>

#include "policy/forecast.h"
#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

TEST(Gate, NamesRoundTrip) {
  for (const Gate gate :
       {Gate::kNone, Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack, Gate::kNetBenefit})
    EXPECT_EQ(*parse_gate(gate_name(gate)), gate);
  EXPECT_EQ(*parse_gate(" Break-Even "), Gate::kBreakEven);
  EXPECT_EQ(parse_gate("poisson").status().code(), StatusCode::kInvalidArgument);
}

// Worked out by hand: at 300 s and S = 2 the printed gate admits λ up to 12.3 per hour, the other
// two 3.06 and 2.04 (P_th = 0.6).
TEST(Gate, LargestAdmittedRate) {
  const auto admitted = [](Gate gate, double per_hour) {
    return benefit_probability(gate, per_hour / 3600, 300, 2) > 0.6;
  };
  EXPECT_TRUE(admitted(Gate::kPrinted, 12.2));
  EXPECT_FALSE(admitted(Gate::kPrinted, 12.3));
  EXPECT_TRUE(admitted(Gate::kBreakEven, 3.06));
  EXPECT_FALSE(admitted(Gate::kBreakEven, 3.07));
  EXPECT_TRUE(admitted(Gate::kBreakEvenTakeBack, 2.04));
  EXPECT_FALSE(admitted(Gate::kBreakEvenTakeBack, 2.05));
  EXPECT_TRUE(admitted(Gate::kNone, 1e9));
}

TEST(Gate, FasterIsNeverWorse) {
  for (const Gate gate : {Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack})
    for (double speedup = 1.01; speedup < 4; speedup += 0.1)
      EXPECT_LE(benefit_probability(gate, 0.001, 300, speedup),
                benefit_probability(gate, 0.001, 300, speedup + 0.1))
          << gate_name(gate) << " at " << speedup;
}

// Against an integral done step by step.
TEST(Gate, NetBenefitIsTheExpectation) {
  const double O = 300, Od = 120, R = 5000, S = 2.4, full = O + R / S;
  for (const double rate : {1e-6, 1e-4, 1e-3, 0.05}) {
    double sum = 0;
    const double step = 0.01;
    for (double t = step / 2; t < full; t += step)
      sum += rate * std::exp(-rate * t) * (S * std::max(0.0, t - O) - t - Od) * step;
    sum += std::exp(-rate * full) * (R - full);
    EXPECT_NEAR(net_benefit(rate, O, Od, R, S), sum, 1e-3 * std::max(1.0, std::abs(sum))) << rate;
  }
  EXPECT_DOUBLE_EQ(net_benefit(0, O, Od, R, S), R - full);
}

Parameters trailing(int min_gpus) {
  Parameters parameters;
  parameters.forecast = ForecastKind::kTrailing;
  parameters.arrival_min_gpus = min_gpus;
  return parameters;
}

TEST(Forecast, TrailingCountsTheWindowOnly) {
  ArrivalRecord record(trailing(8), kNow - 100 * 3600);
  for (const Arrival& arrival : {Arrival{kNow + 5, 64},  // of the future: a clock that jumped
                                 Arrival{kNow, 64}, Arrival{kNow - 100, 7},  // too small
                                 Arrival{kNow - 8 * 3600 + 1, 8},            // just in the window
                                 Arrival{kNow - 8 * 3600, 8}})               // just out of it
    record.add(arrival);
  const Forecast forecast = record.forecast(kNow);
  EXPECT_EQ(forecast.arrivals, 2);
  EXPECT_DOUBLE_EQ(forecast.rate(0), 2.0 / (8 * 3600));
  EXPECT_DOUBLE_EQ(forecast.rate(1000), 2.0 / (8 * 3600)) << "no margin helps";
}

TEST(Forecast, AtTheStartElapsedTimeButAtLeastAnHour) {
  const auto seconds = [](double observed_since) {
    ArrivalRecord record(Parameters{}, observed_since);
    record.add({kNow - 10, 1});
    return record.forecast(kNow).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(kNow - 60), 3600);
  EXPECT_DOUBLE_EQ(seconds(kNow - 2 * 3600), 2 * 3600);
  EXPECT_DOUBLE_EQ(seconds(kNow - 20 * 3600), 8 * 3600);
  EXPECT_DOUBLE_EQ(seconds(kNow + 100), 3600) << "a clock that was set back";
}

TEST(Forecast, ThinnedByTheSizesThatDoNotFit) {
  ArrivalRecord record(Parameters{}, kNow - 100 * 3600);
  for (const int gpus : {1, 8, 9, 16, 32, 32, 64, 256}) record.add({kNow - 100, gpus});
  const Forecast forecast = record.forecast(kNow);
  const double base = 8.0 / (8 * 3600);
  EXPECT_DOUBLE_EQ(forecast.rate(0), base);
  EXPECT_DOUBLE_EQ(forecast.rate(7), base) << "below 8 every arrival counts";
  EXPECT_DOUBLE_EQ(forecast.rate(8), base * 6 / 8);
  EXPECT_DOUBLE_EQ(forecast.rate(16), base * 4 / 8);
  EXPECT_DOUBLE_EQ(forecast.rate(63), base * 2 / 8) << "margins count in steps of 8";
  EXPECT_DOUBLE_EQ(forecast.rate(64), base * 1 / 8);
  EXPECT_DOUBLE_EQ(forecast.rate(256), 0);
  EXPECT_DOUBLE_EQ(forecast.rate(100000), 0);
  for (int margin = 0; margin < 300; ++margin)
    EXPECT_DOUBLE_EQ(record.rate(kNow, margin), forecast.rate(margin));
}

// 10 arrivals an hour at noon of weekdays, 1 at other hours: after three weeks the seasonal rate at
// noon is near 10 although the last hour had 1, the trailing one is not.
TEST(Forecast, SeasonalKnowsTheTimeOfDay) {
  Parameters parameters;
  parameters.forecast = ForecastKind::kSeasonal;
  constexpr double kMonday = 345600;
  ArrivalRecord record(parameters, kMonday);
  for (int day = 0; day < 28; ++day)
    for (int hour = 0; hour < 24; ++hour) {
      const bool busy = hour == 12 && day % 7 < 5;
      for (int i = 0; i < (busy ? 10 : 1); ++i)
        record.add({kMonday + day * 86400.0 + hour * 3600 + i * 300, 8});
    }
  const double noon = kMonday + 28 * 86400.0 + 12.5 * 3600;  // a Monday that has not been seen
  EXPECT_NEAR(record.forecast(noon).rate(0) * 3600, (4 * 10 + 0) / 5.0, 1e-9);
  const double night = kMonday + 28 * 86400.0 + 3.5 * 3600;
  EXPECT_NEAR(record.forecast(night).rate(0) * 3600, (4 * 1 + 0) / 5.0, 1e-9);
  const double saturday = kMonday + 26 * 86400.0 + 12.5 * 3600;
  EXPECT_LT(record.forecast(saturday).rate(0) * 3600, 1.1) << "weekends have their own rate";
}

}  // namespace
}  // namespace flextrain::policy
