// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that keeps its own time when the machine's clock is set, and when the process
// could not listen: a deadline is so many seconds of work, not a time of day. Leases are Slurm's
// and in Slurm's time; they are renewed by it.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kJumpSeconds = 5;  // NTP's slewing stays far below that
constexpr int64_t kDeafSeconds = 5;

void shift(int64_t& time, int64_t seconds) {
  if (time != 0) time += seconds;
}

}  // namespace

int64_t Engine::now() const {
  return clock_known_ ? options_.steady() + clock_offset_ : options_.clock();
}

// Before everything else a call does.
void Engine::mind_clock() {
  if (!options_.steady) return;
  const int64_t steady = options_.steady(), offset = options_.clock() - steady;
  if (!clock_known_) {
    clock_known_ = true;
    clock_offset_ = offset;
    listened_ = steady;
    return;
  }
  // now() stands on this offset, so that the time of day cannot jump within a call.
  const int64_t jump = offset - std::exchange(clock_offset_, offset);
  if (std::abs(jump) >= kJumpSeconds) {
    ++clock_jumps_;
    log_warning("the clock was set by {:+} s: the controller's own times move with it", jump);
    shift_times(jump);
    shorten_leases_ = shorten_leases_ || jump < 0;
    wants_tick_ = true;
  }
  // The worker looks every TickSeconds at least; what is beyond, the process did not run.
  const int64_t away = steady - listened_ - config_.tick_seconds;
  listened_ = steady;
  if (away >= kDeafSeconds) excuse(away);
}

// After a call: while it ran, nobody's messages were read.
void Engine::mind_deafness() {
  if (!options_.steady || !clock_known_) return;
  const int64_t steady = options_.steady(), deaf = steady - listened_;
  listened_ = steady;
  if (deaf >= kDeafSeconds) excuse(deaf);
}

// For so long nobody could be heard: it counts as nobody's silence or slowness.
void Engine::excuse(int64_t seconds) {
  log_info("the controller could not listen for {} s; no agent's time runs out by that", seconds);
  for (const auto& job : jobs_) {
    job->last_heard = std::min(now(), job->last_heard + seconds);
    shift(job->deadline, seconds);
    shift(job->size_mismatch_since, seconds);
    if (job->intent) shift(job->intent->deadline, seconds);
  }
}

void Engine::shift_times(int64_t seconds) {
  for (const auto& job : jobs_) {
    job->last_heard += seconds;
    shift(job->deadline, seconds);
    shift(job->size_mismatch_since, seconds);
    shift(job->row.last_switch_time, seconds);
    shift(job->row.last_failure_time, seconds);
    for (int64_t& time : job->switch_times) time += seconds;
    if (job->progress) shift(job->progress->time, seconds);
    if (job->intent) {
      shift(job->intent->created, seconds);
      shift(job->intent->deadline, seconds);
    }
    persist(*job);
  }
  shift(no_growth_before_, seconds);
  shift(observed_since_, seconds);
  for (auto& [text, time] : logged_errors_) time += seconds;
  for (auto& [key, arrival] : arrivals_) arrival.time += static_cast<double>(seconds);
  forecaster_.reset();
}

}  // namespace flextrain::slurm_plugin
