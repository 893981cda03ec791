// SPDX-License-Identifier: GPL-2.0-or-later
// How long the controller's work takes, and a watchdog that says when it takes too long. Owns the
// figures; logs the two lines that tell of a change; touches nothing else.
//
// The worker puts a Span around everything it does; the monitor thread calls check(), so that a
// call that hangs is noticed while it hangs. Once tripped it stays so for kGoodTicks ticks within
// the limit, or until reset(). Thread-safe; the lock is held for some instructions only.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/json.h"
#include "slurm_plugin/controller/durations.h"

namespace flextrain::slurm_plugin {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kGoodTicks = 3;

  // One piece of work, from construction to destruction; never two at once. `what`: a literal.
  class Span {
   public:
    Span(Watchdog& watchdog, const char* what, bool tick = false);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Watchdog& watchdog_;
  };

  void set_limit(std::chrono::milliseconds limit);
  void check(Clock::time_point now = Clock::now());  // trips when the running Span is over its time
  void reset();                                      // as good as new, e.g. at a reconfigure
  void note_rpc(const char* call, Clock::duration took);

  // "" while everything is within its time, else one sentence.
  std::string reason() const;
  // What `sflex diag` shows: tick_…, rpc_…, watchdog…, docs/sflex.md.
  Json report() const;

 private:
  void trip(double seconds);  // with the lock held; fills line_
  void say(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::chrono::milliseconds limit_{20'000};
  const char* running_ = nullptr;
  bool running_tick_ = false;
  Clock::time_point begin_;
  std::string reason_;  // "" = not tripped
  int good_ticks_ = 0;
  int64_t trips_ = 0;
  std::string line_;  // to be logged once the lock is released
  bool line_is_bad_ = false;
  Durations ticks_;
  int64_t rpcs_ = 0;
  const char* slowest_rpc_ = "";
  double slowest_rpc_seconds_ = 0;
  int64_t slowest_rpc_time_ = 0;  // unix seconds
};

}  // namespace flextrain::slurm_plugin
