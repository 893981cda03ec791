// SPDX-License-Identifier: MIT
// One logging front for every module; the process chooses the sink (stderr in programs, Slurm's own
// log inside slurmctld). Thread-safe; never throws. A line stays one line: what foreign text in it
// could forge another one with is shown as '?' (printable() in base/text.h).
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace flextrain {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A sink may be called from any thread and must not throw. The default one writes to stderr.
using LogSink = void (*)(LogLevel level, std::string_view line);
void set_log_sink(LogSink sink);       // nullptr restores the default
void set_log_level(LogLevel minimum);  // default kInfo; applies to every sink
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view line) noexcept;

#define FLEXTRAIN_LOG_FUNCTION(name, level)                                        \
  template <typename... Args>                                                      \
  void name(fmt::format_string<Args...> format, Args&&... args) noexcept {         \
    if (!log_enabled(LogLevel::level)) return;                                     \
    try {                                                                          \
      log_line(LogLevel::level, fmt::format(format, std::forward<Args>(args)...)); \
    } catch (...) { /* a log line is never worth a crash */                        \
    }                                                                              \
  }
FLEXTRAIN_LOG_FUNCTION(log_debug, kDebug)
FLEXTRAIN_LOG_FUNCTION(log_info, kInfo)
FLEXTRAIN_LOG_FUNCTION(log_warning, kWarning)
FLEXTRAIN_LOG_FUNCTION(log_error, kError)
#undef FLEXTRAIN_LOG_FUNCTION

}  // namespace flextrain
