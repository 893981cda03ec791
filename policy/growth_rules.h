// SPDX-License-Identifier: MIT
// Whether a job grows, and to which entry of its scale table: every rule, in numbers alone, so that
// the live controller (policy/growth.cc adds nodes and words) and the simulator ask the same code.
// Pure.
#pragma once

#include <climits>
#include <functional>
#include <optional>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

// In the order in which they are asked; the first that refuses is the answer.
enum class GrowthRule {
  kGrow,  // none refuses
  kNotSteady,
  kAtMax,
  kNoTable,
  kQuietHours,
  kQueueNotEmpty,
  kFailurePause,
  kCooldown,
  kScalingsPerHour,
  kNoIdle,
  kUserCap,
  kAccountCap,
  kIdleReserve,
  kNoEntry,
  kGuard,
  kGate,
};

struct PoolFacts {  // what is the same for every job of a tick
  double now = 0;
  bool quiet = false;      // quiet hours
  bool jobs_wait = false;  // for GPUs alone
  int idle_gpus = 0;       // of the whole pool, less what this tick's growths took
};

struct JobFacts {
  bool steady = true;
  int base_gpus = 0, held_gpus = 0;
  int max_gpus = 0;      // the user's; 0 = none
  int fitting_gpus = 0;  // idle ones that it could take
  const std::vector<TableEntry>* table = nullptr;
  // The most that a cap lets it add, and which one; without one, everything.
  int allowed_gpus = INT_MAX;
  GrowthRule allowed_by = GrowthRule::kGrow;
  std::optional<double> remaining_seconds;  // at the present speed
  double age = 0;                           // seconds that it has run
  int scalings_last_hour = 0;
  double grow_overhead = 0, shrink_overhead = 0;  // seconds; 0 = not measured yet
  double last_switch_time = 0, last_failure_time = 0;
  int failures = 0;
};

struct GrowthVerdict {
  GrowthRule rule = GrowthRule::kGrow;
  int cap = 0;                  // the most it may hold
  int most = 0;                 // min(cap, held + idle)
  double pause = 0, since = 0;  // kFailurePause, kCooldown: seconds wanted, seconds passed
  // From kGuard on:
  const TableEntry* entry = nullptr;  // the one weighed
  double now_tokens = 0;              // tokens per second at present
  double speedup = 0, overhead = 0, overhead_back = 0;
  bool overhead_measured = false;
  std::optional<double> remaining;  // R that the guard and the net benefit used
  bool remaining_by_age = false;    // for want of anything better
  double saved = 0;                 // R − R/S
  double lambda = 0;                // arrivals per second that would take the GPUs back
  double value = 0;                 // P(benefit), or the expected net benefit in seconds
};

// λ at a margin of GPUs that stay idle.
using RateAt = std::function<double(int margin)>;

// Seconds until demand exceeds the margin, where the future is known (the simulator's oracle).
using StayAt = std::function<double(int margin)>;

// With `stay`, the net benefit is that of its answer instead of an expectation.
GrowthVerdict judge_growth(const Parameters& parameters, const PoolFacts& pool, const JobFacts& job,
                           const RateAt& rate, const StayAt& stay = {});

}  // namespace flextrain::policy
