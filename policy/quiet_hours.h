// SPDX-License-Identifier: MIT
// Times of the week in which no job grows. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::policy {

class QuietHours {
 public:
  // "08:00-18:00" every day, "Mon-Fri 08:00-18:00", "Sat 22:00-06:00" (into the next day); several
  // with commas between. Empty: never.
  static Result<QuietHours> parse(std::string_view text);

  // `local_seconds`: seconds since 1970-01-01 00:00 of the local clock.
  bool contains(int64_t local_seconds) const;
  const std::string& text() const { return text_; }
  bool operator==(const QuietHours&) const = default;

 private:
  struct Span {
    unsigned days = 0;       // bit 0 = Monday: the day on which it begins
    int begin = 0, end = 0;  // minutes of the day; end <= begin: of the next day
    bool operator==(const Span&) const = default;
  };
  static Result<Span> parse_span(std::string_view text);

  std::string text_;
  std::vector<Span> spans_;
};

}  // namespace flextrain::policy
