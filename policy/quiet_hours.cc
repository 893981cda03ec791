// SPDX-License-Identifier: MIT
#include "policy/quiet_hours.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace flextrain::policy {
namespace {

constexpr int kMinutesOfDay = 24 * 60;
constexpr std::string_view kDays[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr unsigned kEveryDay = 0x7f;

std::optional<int> day(std::string_view text) {
  const auto* const found = std::find(std::begin(kDays), std::end(kDays), to_lower(trim(text)));
  if (found == std::end(kDays)) return std::nullopt;
  return static_cast<int>(found - std::begin(kDays));
}

// "Mon", "Mon-Fri", "Sat-Mon"; 0 = none of these.
unsigned days(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = day(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : day(text.substr(dash + 1));
  if (!first || !last) return 0;
  unsigned mask = 0;
  for (int at = *first;; at = (at + 1) % 7) {
    mask |= 1U << at;
    if (at == *last) return mask;
  }
}

// Minutes of the day; 24:00 is the end of one.
std::optional<int> minutes(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const Result<int64_t> hour = parse_int(text.substr(0, colon));
  const Result<int64_t> minute = parse_int(text.substr(colon + 1));
  if (!hour.ok() || !minute.ok() || *hour < 0 || *minute < 0 || *minute > 59 ||
      *hour * 60 + *minute > kMinutesOfDay)
    return std::nullopt;
  return static_cast<int>(*hour * 60 + *minute);
}

}  // namespace

Result<QuietHours::Span> QuietHours::parse_span(std::string_view text) {
  const auto wrong = [&] {
    return invalid_argument("'{}' is no span of hours; write 08:00-18:00 or Mon-Fri 08:00-18:00",
                            text);
  };
  Span span{kEveryDay, 0, 0};
  std::string_view hours = trim(text);
  if (const size_t blank = hours.find(' '); blank != std::string_view::npos) {
    span.days = days(hours.substr(0, blank));
    hours = trim(hours.substr(blank + 1));
  }
  const size_t dash = hours.find('-');
  if (span.days == 0 || dash == std::string_view::npos) return wrong();
  const auto begin = minutes(trim(hours.substr(0, dash)));
  const auto end = minutes(trim(hours.substr(dash + 1)));
  if (!begin || !end || *begin == kMinutesOfDay || *begin == *end) return wrong();
  span.begin = *begin;
  span.end = *end;
  return span;
}

Result<QuietHours> QuietHours::parse(std::string_view text) {
  QuietHours quiet;
  quiet.text_ = trim(text);
  if (quiet.text_.empty()) return quiet;
  for (const std::string& item : split(quiet.text_, ',')) {
    ASSIGN_OR_RETURN(const Span span, parse_span(item));
    quiet.spans_.push_back(span);
  }
  return quiet;
}

bool QuietHours::contains(int64_t local_seconds) const {
  constexpr int64_t kDay = 86400;
  const int64_t day_number = (local_seconds - ((local_seconds % kDay) + kDay) % kDay) / kDay;
  const auto minute = static_cast<int>((local_seconds - day_number * kDay) / 60);
  const auto weekday = static_cast<int>(((day_number + 3) % 7 + 7) % 7);  // 1970-01-01: a Thursday
  const int yesterday = (weekday + 6) % 7;
  return std::any_of(spans_.begin(), spans_.end(), [&](const Span& span) {
    const bool today = (span.days >> weekday & 1) != 0;
    if (span.end > span.begin) return today && minute >= span.begin && minute < span.end;
    return (today && minute >= span.begin) ||
           ((span.days >> yesterday & 1) != 0 && minute < span.end);
  });
}

}  // namespace flextrain::policy
