// SPDX-License-Identifier: MIT
// What was seen of arrivals, and the rate at which it lets expect GPUs to be taken back. Pure: time
// is an argument. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/idle_record.h"
#include "policy/policy.h"

namespace flextrain::policy {

// GPUs per step of a Forecast.
constexpr int kForecastBucket = 8;

// `day`: days since 1970-01-01.
bool is_weekend(double day);

// How far back arrivals matter for a forecast, seconds: what a caller must keep and add again after
// a restart.
double forecast_history_seconds(const Parameters& parameters);

// The arrivals of the last forecast_history_seconds. Times are unix seconds; `local_offset_seconds`
// (local time − UTC) turns them into times of day for the seasonal rate.
class ArrivalRecord {
 public:
  ArrivalRecord(const Parameters& parameters, double observed_since,
                double local_offset_seconds = 0);

  // In any order; late ones are sorted in.
  void add(const Arrival& arrival);

  // λ at `now`, which must not go back by more than the kept history. Trailing rate: arrivals in
  // (now − window, now] over the window, or at the start over the time observed, but at least an
  // hour. Thinned: that of all arrivals × P(size > margin) over the sizes of the last 7 days in
  // steps of 8 GPUs, refreshed every 30 minutes. Seasonal: arrivals within ± 30 minutes of this
  // time of day over the last 21 days of its class (weekday or weekend), as a Gamma prior worth 4
  // hours, updated with the last hour; thinned alike.
  Forecast forecast(double now);

  // λ at `now` for one margin: forecast(now).rate(margin) without making all of it.
  double rate(double now, int margin);

 private:
  size_t first_after(double time) const;  // index of the first arrival later than `time`
  double base_rate(double now);           // of the last `now` remembered
  double count_base_rate(double now);
  double seasonal_rate(double now) const;
  void refresh_sizes(double now);
  double survival(int margin) const;

  Parameters parameters_;
  double observed_since_, local_offset_;
  std::vector<Arrival> arrivals_;  // by time
  std::vector<double> survival_;   // P(size > 8i)
  double sizes_at_ = -1e18;        // when survival_ was made
  double base_at_ = -1e18, base_ = 0;
  int counted_ = 0;
  double over_ = 0;
};

// λ by whatever Parameters::forecast says; `idle` falls back on the thinned arrivals until enough
// of the idle curve was seen.
class Forecaster {
 public:
  Forecaster(const Parameters& parameters, double observed_since, double local_offset_seconds = 0);

  void add(const Arrival& arrival) { arrivals_.add(arrival); }
  void add_idle(double time, int gpus) {
    if (by_idle_) idle_.add(time, gpus);
  }
  Forecast forecast(double now);
  double rate(double now, int margin);  // forecast(now).rate(margin), without making all of it

 private:
  ArrivalRecord arrivals_;
  IdleRecord idle_;
  const bool by_idle_;
};

}  // namespace flextrain::policy
