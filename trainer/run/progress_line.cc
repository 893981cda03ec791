// SPDX-License-Identifier: MIT
#include "trainer/run/progress_line.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace flextrain::trainer {
namespace {
constexpr double kTerminalInterval = 0.1, kLogInterval = 10;  // seconds

// mpirun gives its ranks a pseudo-terminal as stdout wherever its own output goes, but a pipe as
// stderr: only both together are a person's terminal. FLEXTRAIN_PROGRESS = "terminal" or "lines"
// decides over this guess.
bool is_terminal(std::FILE* out) {
  const char* wish = std::getenv("FLEXTRAIN_PROGRESS");
  if (wish != nullptr && std::string_view(wish) == "terminal") return true;
  if (wish != nullptr && std::string_view(wish) == "lines") return false;
  return ::isatty(::fileno(out)) == 1 && ::isatty(STDERR_FILENO) == 1;
}
}  // namespace

std::string duration_text(double seconds) {
  const auto all = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  const int64_t hours = all / 3600, minutes = all / 60 % 60, rest = all % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string progress_text(const ProgressFigures& f) {
  const double left = static_cast<double>(f.total_steps - f.step) * f.step_seconds;
  return fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  ETA {}  GPUs {}", f.step,
                     f.total_steps, f.loss, f.tokens_per_second, duration_text(left), f.gpus);
}

ProgressLine::ProgressLine(std::FILE* out) : out_(out), terminal_(is_terminal(out)) {}

void ProgressLine::show(const ProgressFigures& figures, bool always) {
  const double interval = terminal_ ? kTerminalInterval : kLogInterval;
  if (shown_ && !always && since_last_.seconds() < interval) return;
  since_last_.restart();
  shown_ = true;
  const std::string text = progress_text(figures);
  if (terminal_) {
    std::fprintf(out_, "\r%s\x1b[K", text.c_str());
    open_ = true;
  } else {
    std::fprintf(out_, "%s\n", text.c_str());
  }
  std::fflush(out_);
}

void ProgressLine::finish() {
  if (open_) {
    std::fputc('\n', out_);
    std::fflush(out_);
  }
  open_ = false;
}

}  // namespace flextrain::trainer
