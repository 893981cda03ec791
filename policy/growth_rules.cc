// SPDX-License-Identifier: MIT
#include "policy/growth_rules.h"

#include <algorithm>
#include <cmath>

#include "policy/gate.h"
#include "policy/throughput.h"

namespace flextrain::policy {
namespace {

GrowthRule pausing(const Parameters& parameters, const PoolFacts& pool, const JobFacts& job,
                   GrowthVerdict& verdict) {
  if (job.failures > 0 && job.last_failure_time > 0) {
    const int doublings = std::clamp(job.failures - 1, 0, 6);
    verdict.since = pool.now - job.last_failure_time;
    verdict.pause = static_cast<double>(parameters.retry_after_failure_seconds << doublings);
    if (verdict.since < verdict.pause) return GrowthRule::kFailurePause;
  }
  if (parameters.cooldown_seconds > 0 && job.last_switch_time > 0) {
    verdict.since = pool.now - job.last_switch_time;
    verdict.pause = static_cast<double>(parameters.cooldown_seconds);
    if (verdict.since < verdict.pause) return GrowthRule::kCooldown;
  }
  if (parameters.max_scalings_per_hour > 0 &&
      job.scalings_last_hour >= parameters.max_scalings_per_hour)
    return GrowthRule::kScalingsPerHour;
  return GrowthRule::kGrow;
}

// The rules that need no table entry.
GrowthRule before_entry(const Parameters& parameters, const PoolFacts& pool, const JobFacts& job,
                        GrowthVerdict& verdict) {
  if (!job.steady) return GrowthRule::kNotSteady;
  const int by_factor = static_cast<int>(std::floor(parameters.max_growth * job.base_gpus + 1e-9));
  verdict.cap = job.max_gpus > 0 ? std::min(job.max_gpus, by_factor) : by_factor;
  if (job.held_gpus >= verdict.cap) return GrowthRule::kAtMax;
  if (job.table == nullptr || job.table->empty()) return GrowthRule::kNoTable;
  if (pool.quiet) return GrowthRule::kQuietHours;
  if (parameters.require_empty_queue && pool.jobs_wait) return GrowthRule::kQueueNotEmpty;
  if (const GrowthRule rule = pausing(parameters, pool, job, verdict); rule != GrowthRule::kGrow)
    return rule;
  if (job.fitting_gpus <= 0) return GrowthRule::kNoIdle;
  if (job.allowed_gpus <= 0) return job.allowed_by;
  verdict.most =
      std::min(verdict.cap, job.held_gpus + std::min(job.fitting_gpus, job.allowed_gpus));
  return GrowthRule::kGrow;
}

// Guard and gate for one entry; true when both let it grow.
bool weigh(const Parameters& parameters, const PoolFacts& pool, const JobFacts& job,
           const RateAt& rate, const StayAt& stay, const TableEntry& entry,
           GrowthVerdict& verdict) {
  verdict.entry = &entry;
  verdict.speedup = entry.tokens_per_second / verdict.now_tokens;
  verdict.rule = GrowthRule::kGrow;
  if (parameters.gate != Gate::kNone) {
    const int margin = pool.idle_gpus - (entry.gpus - job.held_gpus);
    verdict.lambda = rate(margin);
    const double remaining = *verdict.remaining;
    if (parameters.gate != Gate::kNetBenefit)
      verdict.value =
          benefit_probability(parameters.gate, verdict.lambda, verdict.overhead, verdict.speedup);
    else if (stay)
      verdict.value = net_benefit_of_stay(stay(margin), verdict.overhead, verdict.overhead_back,
                                          remaining, verdict.speedup);
    else
      verdict.value = net_benefit(verdict.lambda, verdict.overhead, verdict.overhead_back,
                                  remaining, verdict.speedup);
  }
  if (verdict.remaining) verdict.saved = *verdict.remaining * (1 - 1 / verdict.speedup);
  if (parameters.remaining_time_guard && verdict.remaining && !(verdict.saved > verdict.overhead))
    verdict.rule = GrowthRule::kGuard;
  else if (parameters.gate == Gate::kNetBenefit ? !(verdict.value > 0)
           : parameters.gate != Gate::kNone     ? !(verdict.value > parameters.gate_probability)
                                                : false)
    verdict.rule = GrowthRule::kGate;
  return verdict.rule == GrowthRule::kGrow;
}

}  // namespace

GrowthVerdict judge_growth(const Parameters& parameters, const PoolFacts& pool, const JobFacts& job,
                           const RateAt& rate, const StayAt& stay) {
  GrowthVerdict verdict;
  verdict.rule = before_entry(parameters, pool, job, verdict);
  if (verdict.rule != GrowthRule::kGrow) return verdict;
  verdict.now_tokens = tokens_per_second(*job.table, job.held_gpus);
  verdict.overhead_measured = job.grow_overhead > 0;
  verdict.overhead =
      verdict.overhead_measured ? job.grow_overhead : parameters.default_overhead_seconds;
  verdict.overhead_back = job.shrink_overhead > 0 ? job.shrink_overhead : verdict.overhead;
  verdict.remaining_by_age = !job.remaining_seconds;
  verdict.remaining = job.remaining_seconds.value_or(job.age);
  const auto fits = [&](const TableEntry& entry) {
    return entry.gpus > job.held_gpus && entry.gpus <= verdict.most &&
           entry.tokens_per_second > verdict.now_tokens;
  };
  if (parameters.gate == Gate::kNetBenefit && verdict.now_tokens > 0) {
    // The entry with the largest expected benefit; of those that fail, the last to be weighed.
    std::optional<GrowthVerdict> best;
    for (const TableEntry& entry : *job.table) {
      if (!fits(entry)) continue;
      if (weigh(parameters, pool, job, rate, stay, entry, verdict) &&
          (!best || verdict.value > best->value))
        best = verdict;
    }
    if (best) return *best;
  } else {
    const TableEntry* fastest = nullptr;
    for (const TableEntry& entry : *job.table)
      if (fits(entry) &&
          (fastest == nullptr || entry.tokens_per_second > fastest->tokens_per_second))
        fastest = &entry;
    if (fastest != nullptr && verdict.now_tokens > 0)
      weigh(parameters, pool, job, rate, stay, *fastest, verdict);
  }
  if (verdict.entry == nullptr)
    verdict.rule = job.allowed_gpus < job.fitting_gpus ? job.allowed_by : GrowthRule::kNoEntry;
  return verdict;
}

}  // namespace flextrain::policy
