// SPDX-License-Identifier: MIT
#include <algorithm>

#include "simulator/replay_run.h"

namespace flextrain::simulator {

std::optional<double> Replay::known_remaining(const Running& running) const {
  switch (options_.remaining) {
    case KnownRemaining::kExact:
      return remaining(running);
    case KnownRemaining::kLimit:
      return std::max(0.0, limit_end(running.job) - now_);
    case KnownRemaining::kNothing:
      break;
  }
  return std::nullopt;
}

// Seconds until the rigid run's demand has risen by more than `margin` GPUs from what it is now.
double Replay::stays(int margin) const {
  const auto& idle = rigid_->idle;
  const auto now = static_cast<size_t>(now_ / rigid_->idle_step);
  if (now >= idle.size()) return kForever;
  const float least = idle[now] - static_cast<float>(margin);
  for (size_t at = now + 1; at < idle.size(); ++at)
    if (idle[at] < least) return static_cast<double>(at) * rigid_->idle_step - now_;
  return kForever;
}

void Replay::grow_to(Running& running, const policy::TableEntry& entry) {
  pool_->grow(running.job, entry.gpus - running.held);
  resize(running, entry.gpus);
  ++result_.growths;
}

// ElasticFlow's way: one entry at a time to the job that gains most throughput per GPU; a job
// switches once.
void Replay::fill() {
  std::map<int, const policy::TableEntry*> target;
  int idle = pool_->free();
  while (true) {
    int best = -1;
    double best_gain = 0;
    const policy::TableEntry* best_entry = nullptr;
    for (const Running& running : elastic_) {
      if (now_ < running.paused_until) continue;
      const auto chosen = target.find(running.job);
      const int held = chosen == target.end() ? running.held : chosen->second->gpus;
      const double speed =
          chosen == target.end() ? running.speed : chosen->second->tokens_per_second;
      for (const policy::TableEntry& entry : *running.table) {
        if (entry.gpus <= held) continue;
        if (entry.gpus - held > idle || entry.gpus > options_.policy.max_growth * running.base)
          break;
        const double gain = running.base * (entry.tokens_per_second - speed) / (entry.gpus - held);
        if (gain > best_gain || (gain == best_gain && gain > 0 && running.job < best)) {
          best = running.job;
          best_gain = gain;
          best_entry = &entry;
        }
        break;  // the next entry only
      }
    }
    if (best_entry == nullptr) break;
    const auto chosen = target.find(best);
    idle -= best_entry->gpus - (chosen == target.end() ? running(best).held : chosen->second->gpus);
    target[best] = best_entry;
  }
  for (const auto& [index, entry] : target) {
    Running& chosen = running(index);
    // On nodes not all that is idle fits.
    const int most = std::min(entry->gpus, chosen.held + pool_->fitting(index));
    const policy::TableEntry* reached = nullptr;
    for (const policy::TableEntry& smaller : *chosen.table)
      if (smaller.gpus > chosen.held && smaller.gpus <= most) reached = &smaller;
    if (reached != nullptr) grow_to(chosen, *reached);
  }
}

void Replay::grow() {
  // What is being handed over has its taker.
  if (pool_->free() <= 0 || pool_->coming() > 0 ||
      (options_.policy.require_empty_queue && !queue_.empty()))
    return;
  if (options_.marginal_filling) return fill();
  order_.clear();
  for (const Running& running : elastic_) order_.emplace_back(running.held, running.job);
  std::sort(order_.begin(), order_.end());
  policy::PoolFacts pool;
  pool.now = trace_.epoch + now_;
  pool.jobs_wait = !queue_.empty();
  for (const auto& [held, index] : order_) {
    if (pool_->free() <= 0) break;
    Running& candidate = running(index);
    if (candidate.held >= candidate.table->back().gpus) continue;
    pool.idle_gpus = pool_->free();
    policy::JobFacts facts;
    facts.steady = now_ >= candidate.paused_until;
    facts.base_gpus = candidate.base;
    facts.held_gpus = candidate.held;
    facts.fitting_gpus = pool_->fitting(index);
    facts.table = candidate.table;
    facts.remaining_seconds = known_remaining(candidate);
    facts.age = now_ - result_.jobs[static_cast<size_t>(index)].start;
    facts.grow_overhead = facts.shrink_overhead = candidate.pause;
    const policy::GrowthVerdict verdict =
        policy::judge_growth(options_.policy, pool, facts, rate_, stay_);
    if (verdict.rule == policy::GrowthRule::kGrow)
      grow_to(candidate, *verdict.entry);
    else if (verdict.entry != nullptr)
      ++result_.refused;
  }
}

}  // namespace flextrain::simulator
