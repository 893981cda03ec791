// SPDX-License-Identifier: MIT
#include "cli/time_spec.h"

#include <cmath>
#include <ctime>
#include <optional>

#include "base/text.h"

namespace flextrain::cli {
namespace {

std::tm local(int64_t time) {
  const auto value = static_cast<std::time_t>(time);
  std::tm fields = {};
  ::localtime_r(&value, &fields);
  return fields;
}

int64_t unix_time(std::tm fields) {
  fields.tm_isdst = -1;  // let mktime find out
  return std::mktime(&fields);
}

// Digits only, of a length in [least, most]; removes them from `text`.
std::optional<int> take_number(std::string_view& text, size_t least, size_t most) {
  size_t length = 0;
  int value = 0;
  while (length < text.size() && length < most && text[length] >= '0' && text[length] <= '9')
    value = value * 10 + (text[length++] - '0');
  if (length < least) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

struct Clock {
  int hour = 0, minute = 0, second = 0;
};

// HH:MM[:SS][ AM|PM], the whole text.
std::optional<Clock> parse_clock(std::string_view text) {
  const auto hour = take_number(text, 1, 2);
  if (!hour || !take(text, ':')) return std::nullopt;
  const auto minute = take_number(text, 2, 2);
  if (!minute) return std::nullopt;
  int second = 0;
  if (take(text, ':')) {
    const auto value = take_number(text, 2, 2);
    if (!value) return std::nullopt;
    second = *value;
  }
  Clock clock{*hour, *minute, second};
  const std::string half = to_lower(trim(text));
  if (half == "am" || half == "pm") {
    if (clock.hour < 1 || clock.hour > 12) return std::nullopt;
    clock.hour = clock.hour % 12 + (half == "pm" ? 12 : 0);
  } else if (!half.empty()) {
    return std::nullopt;
  }
  if (clock.hour > 23 || clock.minute > 59 || clock.second > 59) return std::nullopt;
  return clock;
}

// A calendar day that exists, at that time.
std::optional<int64_t> on_day(int year, int month, int day, Clock clock) {
  std::tm fields = {};
  fields.tm_year = year - 1900;
  fields.tm_mon = month - 1;
  fields.tm_mday = day;
  fields.tm_hour = clock.hour;
  fields.tm_min = clock.minute;
  fields.tm_sec = clock.second;
  fields.tm_isdst = -1;
  const std::time_t time = std::mktime(&fields);
  // mktime normalises 31 February to March.
  if (time == -1 || fields.tm_mon != month - 1 || fields.tm_mday != day) return std::nullopt;
  return time;
}

std::optional<int64_t> parse_iso(std::string_view text) {
  const auto year = take_number(text, 4, 4);
  if (!year || !take(text, '-')) return std::nullopt;
  const auto month = take_number(text, 1, 2);
  if (!month || !take(text, '-')) return std::nullopt;
  const auto day = take_number(text, 1, 2);
  if (!day) return std::nullopt;
  Clock clock;
  if (!text.empty()) {
    if (!take(text, 'T') && !take(text, ' ')) return std::nullopt;
    const auto parsed = parse_clock(text);
    if (!parsed) return std::nullopt;
    clock = *parsed;
  }
  return on_day(*year, *month, *day, clock);
}

// MM/DD[/YY][-HH:MM[:SS]], MM.DD[.YY]…, MMDD[YY][-HH:MM[:SS]].
std::optional<int64_t> parse_us_date(std::string_view text, int64_t now) {
  const auto month = take_number(text, 1, 2);
  if (!month) return std::nullopt;
  const char separator = text.empty() ? ' ' : text[0];
  const bool separated = separator == '/' || separator == '.';
  if (separated) text.remove_prefix(1);
  const auto day = take_number(text, separated ? 1 : 2, 2);
  if (!day) return std::nullopt;
  int year = local(now).tm_year + 1900;
  if (separated ? take(text, separator) : (!text.empty() && text[0] >= '0' && text[0] <= '9')) {
    const auto value = take_number(text, 2, 2);
    if (!value) return std::nullopt;
    year = 2000 + *value;
  }
  Clock clock;
  if (!text.empty()) {
    if (!take(text, '-')) return std::nullopt;
    const auto parsed = parse_clock(text);
    if (!parsed) return std::nullopt;
    clock = *parsed;
  }
  return on_day(year, *month, *day, clock);
}

// COUNT[unit] in seconds.
std::optional<int64_t> parse_span(std::string_view text) {
  const auto count = take_number(text, 1, 9);
  if (!count) return std::nullopt;
  static constexpr struct {
    std::string_view name;
    int64_t seconds;
  } kUnits[] = {
      {"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"days", 86400}, {"weeks", 7 * 86400}};
  const std::string unit = to_lower(trim(text));
  if (unit.empty()) return *count;
  for (const auto& known : kUnits)
    if (known.name.substr(0, unit.size()) == unit) return *count * known.seconds;
  return std::nullopt;
}

}  // namespace

int64_t midnight_before(int64_t now) {
  std::tm fields = local(now);
  fields.tm_hour = fields.tm_min = fields.tm_sec = 0;
  return unix_time(fields);
}

Result<int64_t> parse_time(std::string_view given, int64_t now) {
  const std::string_view text = trim(given);
  const std::string lower = to_lower(text);
  const Status bad = invalid_argument(
      "'{}' is no time; write HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]], MM/DD[/YY][-HH:MM[:SS]], today, "
      "or now-2hours",
      given);
  if (text.empty()) return bad;

  std::string_view span = lower;
  if (lower.rfind("now", 0) == 0) span.remove_prefix(3);
  span = trim(span);
  if (span.empty()) return now;
  if (span[0] == '+' || span[0] == '-') {
    const auto seconds = parse_span(trim(span.substr(1)));
    if (!seconds) return bad;
    return span[0] == '+' ? now + *seconds : now - *seconds;
  }

  const int64_t midnight = midnight_before(now);
  const auto past = [&](Clock clock) {
    std::tm fields = local(midnight);
    fields.tm_hour = clock.hour;
    fields.tm_min = clock.minute;
    fields.tm_sec = clock.second;
    if (unix_time(fields) > now) --fields.tm_mday;
    return unix_time(fields);
  };
  if (lower == "today" || lower == "midnight") return midnight;
  if (lower == "tomorrow") {
    std::tm fields = local(midnight);
    ++fields.tm_mday;
    return unix_time(fields);
  }
  if (lower == "noon") return past({12, 0, 0});
  if (lower == "fika") return past({15, 0, 0});
  if (lower == "teatime") return past({16, 0, 0});
  if (const auto clock = parse_clock(text)) return past(*clock);
  if (const auto time = parse_iso(text)) return *time;
  if (text.size() >= 9 && text.find_first_not_of("0123456789") == std::string_view::npos)
    return parse_int(text);
  if (const auto time = parse_us_date(text, now)) return *time;
  return bad;
}

std::string format_time(int64_t time) {
  if (time <= 0) return "Unknown";
  const std::tm fields = local(time);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &fields);
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "Unknown";
  const int64_t total = std::llround(seconds);
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}", total / 3600 % 24, total / 60 % 60, total % 60);
  return total >= 86400 ? fmt::format("{}-{}", total / 86400, clock) : clock;
}

}  // namespace flextrain::cli
