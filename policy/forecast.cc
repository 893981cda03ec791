// SPDX-License-Identifier: MIT
#include "policy/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace flextrain::policy {
namespace {

constexpr double kHour = 3600, kDay = 86400;
constexpr double kNever = -1e18;
constexpr double kSizeHistory = 7 * kDay, kSizeRefresh = 1800;
constexpr int kSeasonDays = 21;
constexpr double kSeasonHalfWidth = 1800, kPriorHours = 4;

}  // namespace

bool is_weekend(double day) {
  const auto weekday = static_cast<int64_t>(day) % 7;  // 1970-01-01 was a Thursday
  return weekday == 2 || weekday == 3;
}

std::string_view forecast_name(ForecastKind kind) {
  switch (kind) {
    case ForecastKind::kTrailing:
      return "trailing";
    case ForecastKind::kThinned:
      return "thinned";
    case ForecastKind::kSeasonal:
      return "seasonal";
    case ForecastKind::kIdle:
      return "idle";
  }
  return "unknown";
}

Result<ForecastKind> parse_forecast(std::string_view text) {
  for (const ForecastKind kind : {ForecastKind::kTrailing, ForecastKind::kThinned,
                                  ForecastKind::kSeasonal, ForecastKind::kIdle})
    if (to_lower(trim(text)) == forecast_name(kind)) return kind;
  return invalid_argument("'{}' is no forecast; one of trailing, thinned, seasonal, idle", text);
}

double Forecast::rate(int margin) const {
  if (per_second.empty()) return 0;
  const size_t at = static_cast<size_t>(std::max(margin, 0)) / kForecastBucket;
  return per_second[std::min(at, per_second.size() - 1)];
}

double forecast_history_seconds(const Parameters& parameters) {
  double seconds = static_cast<double>(parameters.arrival_window_seconds);
  if (parameters.forecast != ForecastKind::kTrailing) seconds = std::max(seconds, kSizeHistory);
  if (parameters.forecast == ForecastKind::kSeasonal)
    seconds = std::max(seconds, (kSeasonDays + 1) * kDay);
  return seconds;
}

ArrivalRecord::ArrivalRecord(const Parameters& parameters, double observed_since,
                             double local_offset_seconds)
    : parameters_(parameters),
      observed_since_(observed_since),
      local_offset_(local_offset_seconds) {}

void ArrivalRecord::add(const Arrival& arrival) {
  base_at_ = kNever;
  const auto later = [](double time, const Arrival& other) { return time < other.time; };
  if (arrivals_.empty() || arrivals_.back().time <= arrival.time) {
    arrivals_.push_back(arrival);
  } else {
    arrivals_.insert(std::upper_bound(arrivals_.begin(), arrivals_.end(), arrival.time, later),
                     arrival);
  }
  // Forget in large steps: twice the history at most.
  const double history = forecast_history_seconds(parameters_);
  if (arrivals_.back().time - arrivals_.front().time > 2 * history)
    arrivals_.erase(
        arrivals_.begin(),
        arrivals_.begin() + static_cast<ptrdiff_t>(first_after(arrivals_.back().time - history)));
}

size_t ArrivalRecord::first_after(double time) const {
  const auto later = [](double t, const Arrival& other) { return t < other.time; };
  return static_cast<size_t>(std::upper_bound(arrivals_.begin(), arrivals_.end(), time, later) -
                             arrivals_.begin());
}

double ArrivalRecord::seasonal_rate(double now) const {
  const double local = now + local_offset_;
  const double today = std::floor(local / kDay);
  double count = 0, seconds = 0;
  for (int back = 1; back <= kSeasonDays; ++back) {
    if (is_weekend(today - back) != is_weekend(today)) continue;
    const double centre = now - back * kDay;
    if (centre - kSeasonHalfWidth < observed_since_) break;
    count += static_cast<double>(first_after(centre + kSeasonHalfWidth) -
                                 first_after(centre - kSeasonHalfWidth));
    seconds += 2 * kSeasonHalfWidth;
  }
  const double hour = static_cast<double>(first_after(now) - first_after(now - kHour));
  if (seconds == 0) return -1;
  return (count / seconds * kPriorHours * kHour + hour) / ((kPriorHours + 1) * kHour);
}

double ArrivalRecord::base_rate(double now) {
  if (now == base_at_) return base_;
  base_at_ = now;
  return base_ = count_base_rate(now);
}

double ArrivalRecord::count_base_rate(double now) {
  const auto window = static_cast<double>(std::max<int64_t>(parameters_.arrival_window_seconds, 1));
  over_ = std::min(window, std::max(kHour, now - observed_since_));
  const size_t begin = first_after(now - window), end = first_after(now);
  if (parameters_.forecast == ForecastKind::kTrailing) {
    counted_ = 0;
    for (size_t i = begin; i < end; ++i)
      counted_ += arrivals_[i].gpus >= parameters_.arrival_min_gpus ? 1 : 0;
  } else {
    counted_ = static_cast<int>(end - begin);
  }
  if (parameters_.forecast == ForecastKind::kSeasonal)
    if (const double rate = seasonal_rate(now); rate >= 0) return rate;
  return counted_ / over_;
}

void ArrivalRecord::refresh_sizes(double now) {
  if (now >= sizes_at_ && now - sizes_at_ < kSizeRefresh) return;
  sizes_at_ = now;
  std::vector<double> larger;  // count of sizes > 8i
  const size_t end = first_after(now);
  double total = 0;
  for (size_t i = first_after(now - kSizeHistory); i < end; ++i) {
    // Sizes larger than 8i for i = 0 … ⌈size/8⌉ − 1.
    const auto last = static_cast<size_t>((std::max(arrivals_[i].gpus, 1) - 1) / kForecastBucket);
    if (larger.size() <= last) larger.resize(last + 1, 0);
    larger[last] += 1;
    total += 1;
  }
  for (size_t i = larger.size(); i > 1; --i) larger[i - 2] += larger[i - 1];
  for (double& count : larger) count /= total;
  larger.push_back(0);
  survival_ = std::move(larger);
}

double ArrivalRecord::survival(int margin) const {
  if (margin < kForecastBucket) return 1;
  const size_t at = static_cast<size_t>(margin) / kForecastBucket;
  return survival_[std::min(at, survival_.size() - 1)];
}

double ArrivalRecord::rate(double now, int margin) {
  const double base = base_rate(now);
  if (parameters_.forecast == ForecastKind::kTrailing) return base;
  refresh_sizes(now);
  return base * survival(margin);
}

Forecast ArrivalRecord::forecast(double now) {
  Forecast forecast;
  const double base = base_rate(now);
  forecast.arrivals = counted_;
  forecast.seconds = over_;
  forecast.per_second = {base};
  if (parameters_.forecast == ForecastKind::kTrailing) return forecast;
  refresh_sizes(now);
  for (size_t i = 1; i < survival_.size(); ++i) forecast.per_second.push_back(base * survival_[i]);
  if (forecast.per_second.size() == 1) forecast.per_second.push_back(0);
  return forecast;
}

Forecaster::Forecaster(const Parameters& parameters, double observed_since,
                       double local_offset_seconds)
    : arrivals_(parameters, observed_since, local_offset_seconds),
      idle_(local_offset_seconds),
      by_idle_(parameters.forecast == ForecastKind::kIdle) {}

Forecast Forecaster::forecast(double now) {
  const Forecast* idle = by_idle_ ? idle_.forecast(now) : nullptr;
  return idle != nullptr ? *idle : arrivals_.forecast(now);
}

double Forecaster::rate(double now, int margin) {
  const Forecast* idle = by_idle_ ? idle_.forecast(now) : nullptr;
  return idle != nullptr ? idle->rate(margin) : arrivals_.rate(now, margin);
}

}  // namespace flextrain::policy
