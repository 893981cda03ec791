// SPDX-License-Identifier: MIT
#include "policy/idle_record.h"

#include <algorithm>
#include <cmath>

#include "policy/forecast.h"

namespace flextrain::policy {
namespace {

constexpr double kDaySeconds = 86400, kHourSeconds = 3600;
constexpr double kStep = 60, kRefresh = 600;
constexpr double kHorizon = 4 * kHourSeconds, kRecent = 4 * kHourSeconds, kHalfWidth = kHourSeconds;
constexpr double kBetweenStarts = 300;
constexpr int kMostSteps = 256;  // of the margin

}  // namespace

void IdleRecord::add(double time, int gpus) {
  if (!samples_.empty() && time < samples_.back().time + kStep) return;
  samples_.push_back({time, gpus});
  if (time - samples_.front().time > 2 * kIdleHistory)
    samples_.erase(samples_.begin(),
                   samples_.begin() + static_cast<ptrdiff_t>(first_after(time - kIdleHistory)));
}

size_t IdleRecord::first_after(double time) const {
  return static_cast<size_t>(
      std::upper_bound(samples_.begin(), samples_.end(), time,
                       [](double t, const Sample& sample) { return t < sample.time; }) -
      samples_.begin());
}

// Adds, for moments in [begin, end], the time until the curve had fallen by more than each margin.
void IdleRecord::watch(double begin, double end, std::vector<double>& seconds,
                       std::vector<int>& ends) const {
  double next = begin;
  for (size_t at = first_after(begin - 1); at < samples_.size() && samples_[at].time <= end; ++at) {
    if (samples_[at].time < next) continue;
    const Sample& start = samples_[at];
    next = start.time + kBetweenStarts;
    size_t step = 0;  // margins below 8·step have been passed
    double watched = 0;
    for (size_t later = at + 1; later < samples_.size() && step < seconds.size(); ++later) {
      watched = std::min(samples_[later].time - start.time, kHorizon);
      if (watched >= kHorizon) break;
      const int fall = start.gpus - samples_[later].gpus;
      for (; step < seconds.size() && fall > static_cast<int>(step) * kForecastBucket; ++step) {
        seconds[step] += watched;
        ++ends[step];
      }
    }
    for (; step < seconds.size(); ++step) seconds[step] += watched;
  }
}

const Forecast* IdleRecord::forecast(double now) {
  if (now >= made_at_ && now - made_at_ < kRefresh) return known_ ? &forecast_ : nullptr;
  made_at_ = now;
  int most = 0;
  for (const Sample& sample : samples_) most = std::max(most, sample.gpus);
  const auto steps = static_cast<size_t>(std::clamp(most / kForecastBucket + 2, 1, kMostSteps));
  std::vector<double> seconds(steps, 0);
  std::vector<int> ends(steps, 0);
  watch(now - kRecent, now, seconds, ends);
  const double today = std::floor((now + local_offset_) / kDaySeconds);
  for (double back = 1; back * kDaySeconds <= kIdleHistory; ++back) {
    if (is_weekend(today - back) != is_weekend(today)) continue;
    watch(now - back * kDaySeconds - kHalfWidth, now - back * kDaySeconds + kHalfWidth, seconds,
          ends);
  }
  known_ = seconds.back() >= kHourSeconds;
  if (!known_) return nullptr;
  forecast_ = {};
  forecast_.arrivals = ends.front();
  forecast_.seconds = seconds.front();
  // What outlasted a small fall outlasts a large one: no rate is above the one before it.
  for (size_t step = 0; step < steps; ++step) {
    const double rate = seconds[step] > 0 ? ends[step] / seconds[step] : 0;
    forecast_.per_second.push_back(step == 0 ? rate : std::min(rate, forecast_.per_second.back()));
  }
  return &forecast_;
}

}  // namespace flextrain::policy
