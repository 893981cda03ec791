// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/watchdog.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/log.h"

namespace flextrain::slurm_plugin {
namespace {

double seconds(Watchdog::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Watchdog::Span::Span(Watchdog& watchdog, const char* what, bool tick) : watchdog_(watchdog) {
  const std::lock_guard lock(watchdog.mutex_);
  watchdog.running_ = what;
  watchdog.running_tick_ = tick;
  watchdog.begin_ = Clock::now();
}

Watchdog::Span::~Span() {
  Watchdog& dog = watchdog_;
  std::unique_lock lock(dog.mutex_);
  const double took = seconds(Clock::now() - dog.begin_);
  const bool late = took > seconds(dog.limit_);
  if (late) dog.trip(took);
  if (dog.running_tick_) {
    dog.ticks_.add(took);
    if (!late && !dog.reason_.empty() && ++dog.good_ticks_ >= kGoodTicks) {
      dog.reason_.clear();
      dog.line_ =
          fmt::format("watchdog: {} ticks in a row were in time, jobs may grow again", kGoodTicks);
      dog.line_is_bad_ = false;
    }
  }
  dog.running_ = nullptr;
  dog.say(lock);
}

void Watchdog::set_limit(std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
}

void Watchdog::check(Clock::time_point now) {
  std::unique_lock lock(mutex_);
  if (running_ == nullptr) return;
  const double running_for = seconds(now - begin_);
  if (running_for > seconds(limit_)) trip(running_for);
  say(lock);
}

void Watchdog::reset() {
  std::unique_lock lock(mutex_);
  if (reason_.empty()) return;
  reason_.clear();
  line_ = "watchdog: begins anew, jobs may grow again";
  line_is_bad_ = false;
  say(lock);
}

void Watchdog::trip(double took) {
  good_ticks_ = 0;
  const bool before = !reason_.empty();
  reason_ = fmt::format("a {} took {:.1f} s, more than TickLimitSeconds ({:g} s)", running_, took,
                        seconds(limit_));
  if (before) return;
  ++trips_;
  line_ = fmt::format(
      "watchdog: {}: no growth until {} ticks in a row are in time; nothing is taken from anybody, "
      "`sflex diag` shows what is slow",
      reason_, kGoodTicks);
  line_is_bad_ = true;
}

void Watchdog::say(std::unique_lock<std::mutex>& lock) {
  if (line_.empty()) return;
  const std::string line = std::exchange(line_, {});
  const bool bad = line_is_bad_;
  lock.unlock();  // the log may be slow
  if (bad) {
    log_error("{}", line);
  } else {
    log_info("{}", line);
  }
}

void Watchdog::note_rpc(const char* call, Clock::duration took) {
  const int64_t now = std::time(nullptr);
  const std::lock_guard lock(mutex_);
  ++rpcs_;
  if (seconds(took) < slowest_rpc_seconds_) return;
  slowest_rpc_ = call;
  slowest_rpc_seconds_ = seconds(took);
  slowest_rpc_time_ = now;
}

std::string Watchdog::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Json Watchdog::report() const {
  const std::lock_guard lock(mutex_);
  Json report = ticks_.report("tick");
  report["rpcs"] = rpcs_;
  report["rpc_slowest"] = slowest_rpc_;
  report["rpc_slowest_seconds"] = slowest_rpc_seconds_;
  report["rpc_slowest_time"] = slowest_rpc_time_;
  report["running"] = running_ == nullptr ? std::string()
                                          : fmt::format("{} for {:.1f} s", running_,
                                                        seconds(Clock::now() - begin_));
  report["watchdog"] = reason_.empty() ? "ok" : "tripped: " + reason_;
  report["watchdog_trips"] = trips_;
  return report;
}

}  // namespace flextrain::slurm_plugin
