// SPDX-License-Identifier: MIT
#include "cli/time_spec.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace flextrain::cli {
namespace {

class TimeSpec : public ::testing::Test {
 protected:
  TimeSpec() {
    ::setenv("TZ", "Europe/Berlin", 1);
    ::tzset();
  }
  ~TimeSpec() override {
    ::unsetenv("TZ");
    ::tzset();
  }
  // 2026-11-29T18:20:05 in Berlin.
  const int64_t now_ = 1795972805;
  std::string parsed(std::string_view text) {
    const Result<int64_t> time = parse_time(text, now_);
    return time.ok() ? format_time(*time) : "no time";
  }
};

TEST_F(TimeSpec, Table) {
  ASSERT_EQ(format_time(now_), "2026-11-29T18:20:05");
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {
      {"now", "2026-11-29T18:20:05"},
      {"now-2hours", "2026-11-29T16:20:05"},
      {"now-2h", "2026-11-29T16:20:05"},
      {"now-90", "2026-11-29T18:18:35"},
      {"now+30minutes", "2026-11-29T18:50:05"},
      {"NOW - 1days", "2026-11-28T18:20:05"},
      {"-1weeks", "2026-11-22T18:20:05"},
      {"today", "2026-11-29T00:00:00"},
      {"midnight", "2026-11-29T00:00:00"},
      {"noon", "2026-11-29T12:00:00"},
      {"teatime", "2026-11-29T16:00:00"},
      {"tomorrow", "2026-11-30T00:00:00"},
      {"18:20", "2026-11-29T18:20:00"},
      {"18:21", "2026-11-28T18:21:00"},  // still to come: yesterday's
      {"6:05:09", "2026-11-29T06:05:09"},
      {"6:05 PM", "2026-11-29T18:05:00"},
      {"12:30 am", "2026-11-29T00:30:00"},
      {"2026-11-01", "2026-11-01T00:00:00"},
      {"2026-11-01T08:30", "2026-11-01T08:30:00"},
      {"2026-11-01T08:30:15", "2026-11-01T08:30:15"},
      {"2026-07-01T12:00", "2026-07-01T12:00:00"},  // summer time
      {"11/02", "2026-11-02T00:00:00"},
      {"11/02/25-07:00", "2025-11-02T07:00:00"},
      {"11.02.25", "2025-11-02T00:00:00"},
      {"1102", "2026-11-02T00:00:00"},
      {"110225", "2025-11-02T00:00:00"},
      {"1795972805", "2026-11-29T18:20:05"},
      {"", "no time"},
      {"yesterdayish", "no time"},
      {"25:00", "no time"},
      {"12:60", "no time"},
      {"13:00 pm", "no time"},
      {"2026-02-31", "no time"},
      {"2026-13-01", "no time"},
      {"2026-11-01T", "no time"},
      {"2026-11-01T08", "no time"},
      {"now-", "no time"},
      {"now-2fortnights", "no time"},
      {"now2hours", "no time"},
      {"12", "no time"},
      {"18:20x", "no time"},
  };
  for (const auto& c : kCases) EXPECT_EQ(parsed(c.text), c.expected) << "'" << c.text << "'";
}

TEST_F(TimeSpec, MessageNamesTheText) {
  const Status status = parse_time("soon", now_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'soon'"), std::string::npos);
}

TEST(Duration, AsSlurmWritesIt) {
  EXPECT_EQ(format_duration(0), "00:00:00");
  EXPECT_EQ(format_duration(59.6), "00:01:00");
  EXPECT_EQ(format_duration(3661), "01:01:01");
  EXPECT_EQ(format_duration(2 * 86400 + 5), "2-00:00:05");
  EXPECT_EQ(format_duration(-1), "Unknown");
  EXPECT_EQ(format_time(0), "Unknown");
}

}  // namespace
}  // namespace flextrain::cli
