// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "base/text.h"

namespace flextrain {
namespace {

void stderr_sink(LogLevel level, std::string_view line) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  std::fprintf(stderr, "flextrain: %s: %.*s\n", kNames[static_cast<int>(level)],
               static_cast<int>(line.size()), line.data());
}

std::atomic<LogSink> current_sink{&stderr_sink};
std::atomic<LogLevel> minimum_level{LogLevel::kInfo};

}  // namespace

void set_log_sink(LogSink sink) { current_sink = sink != nullptr ? sink : &stderr_sink; }
void set_log_level(LogLevel minimum) { minimum_level = minimum; }
bool log_enabled(LogLevel level) { return level >= minimum_level.load(); }

void log_line(LogLevel level, std::string_view line) noexcept {
  try {
    if (log_enabled(level)) current_sink.load()(level, printable(line));
  } catch (...) {  // sinks must not throw; if one does, the line is lost and the process lives
  }
}

}  // namespace flextrain
