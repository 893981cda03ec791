// SPDX-License-Identifier: MIT
#include "policy/gate.h"

#include <cmath>

#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

TEST(Gate, NamesRoundTrip) {
  for (const Gate gate : {Gate::kNone, Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack})
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

TEST(ArrivalRate, CountsTheWindowOnly) {
  Parameters parameters;
  parameters.arrival_min_gpus = 8;
  Snapshot snapshot = empty_snapshot();
  snapshot.arrivals = {{kNow - 8 * 3600, 8},      // just out of the window
                       {kNow - 8 * 3600 + 1, 8},  // just in it
                       {kNow - 100, 7},           // too small
                       {kNow, 64},
                       {kNow + 5, 64}};  // of the future: a clock that jumped
  const ArrivalRate rate = arrival_rate(snapshot, parameters);
  EXPECT_EQ(rate.arrivals, 2);
  EXPECT_DOUBLE_EQ(rate.per_second, 2.0 / (8 * 3600));
}

TEST(ArrivalRate, AtTheStartElapsedTimeButAtLeastAnHour) {
  const Parameters parameters;
  Snapshot snapshot = empty_snapshot();
  snapshot.arrivals = {{kNow - 10, 1}};
  snapshot.observed_since = kNow - 60;
  EXPECT_DOUBLE_EQ(arrival_rate(snapshot, parameters).seconds, 3600);
  snapshot.observed_since = kNow - 2 * 3600;
  EXPECT_DOUBLE_EQ(arrival_rate(snapshot, parameters).seconds, 2 * 3600);
  snapshot.observed_since = kNow - 20 * 3600;
  EXPECT_DOUBLE_EQ(arrival_rate(snapshot, parameters).seconds, 8 * 3600);
  snapshot.observed_since = kNow + 100;  // a clock that was set back
  EXPECT_DOUBLE_EQ(arrival_rate(snapshot, parameters).seconds, 3600);
}

}  // namespace
}  // namespace flextrain::policy
