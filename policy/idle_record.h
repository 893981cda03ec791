// SPDX-License-Identifier: MIT
// The idle curve as observed, and how long GPUs stay idle by it. Pure: time is an argument. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

constexpr double kIdleHistory = 14 * 86400;  // seconds that a record remembers

class IdleRecord {
 public:
  explicit IdleRecord(double local_offset_seconds = 0) : local_offset_(local_offset_seconds) {}

  // GPUs that no base and no rigid job holds at `time`; samples come in order, those within a
  // minute of the last are left out.
  void add(double time, int gpus);

  // For every step of the margin: of the moments in the last 4 hours and within an hour of this
  // time of day on the last 14 days of its class (weekday or weekend), how often the curve fell by
  // more than the margin within the next 4 hours, over the time it took or was watched. nullopt
  // while less than an hour was watched in all. Refreshed every 10 minutes.
  const Forecast* forecast(double now);

 private:
  struct Sample {
    double time = 0;
    int gpus = 0;
  };
  size_t first_after(double time) const;
  void watch(double begin, double end, std::vector<double>& seconds, std::vector<int>& ends) const;

  const double local_offset_;
  std::vector<Sample> samples_;  // by time
  Forecast forecast_;
  bool known_ = false;
  double made_at_ = -1e18;
};

}  // namespace flextrain::policy
