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
// switches once. Quiet hours, caps, cooldown and the bound on scalings hold as for everybody.
void Replay::fill(policy::PoolFacts pool) {
  policy::Parameters ungated = options_.policy;
  ungated.gate = policy::Gate::kNone;
  ungated.remaining_time_guard = false;
  policy::Caps caps = this->caps();
  struct Candidate {
    const Running* running = nullptr;
    const policy::TableEntry* target = nullptr;  // nullptr = as it is
  };
  std::map<int, Candidate> candidates;  // by job
  int idle = pool.idle_gpus = pool_->free();
  for (const Running& running : elastic_) {
    const policy::Allowance allowance = caps.left(user_of(running), account_of(running));
    if (policy::judge_growth(ungated, pool, facts_of(running, allowance), rate_).rule ==
        policy::GrowthRule::kGrow)
      candidates[running.job] = {&running, nullptr};
  }
  const auto held = [](const Candidate& candidate) {
    return candidate.target == nullptr ? candidate.running->held : candidate.target->gpus;
  };
  while (true) {
    Candidate* best = nullptr;
    double best_gain = 0;
    const policy::TableEntry* best_entry = nullptr;
    for (auto& [index, candidate] : candidates) {
      const Running& running = *candidate.running;
      const double speed =
          candidate.target == nullptr ? running.speed : candidate.target->tokens_per_second;
      const int holds = held(candidate);
      // The next entry only.
      const auto entry = std::find_if(running.table->begin(), running.table->end(),
                                      [&](const auto& larger) { return larger.gpus > holds; });
      if (entry == running.table->end()) continue;
      const int more = entry->gpus - holds;
      if (more > idle || entry->gpus > options_.policy.max_growth * running.base ||
          more > caps.left(user_of(running), account_of(running)).gpus)
        continue;
      const double gain = running.base * (entry->tokens_per_second - speed) / more;
      if (gain <= best_gain) continue;
      best = &candidate;
      best_gain = gain;
      best_entry = &*entry;
    }
    if (best == nullptr) break;
    const int more = best_entry->gpus - held(*best);
    idle -= more;
    caps.add_growth(user_of(*best->running), account_of(*best->running), more);
    best->target = best_entry;
  }
  for (const auto& [index, candidate] : candidates) {
    if (candidate.target == nullptr) continue;
    Running& chosen = running(index);
    // On nodes not all that is idle fits.
    const int most = std::min(candidate.target->gpus, chosen.held + pool_->fitting(index));
    const policy::TableEntry* reached = nullptr;
    for (const policy::TableEntry& smaller : *chosen.table)
      if (smaller.gpus > chosen.held && smaller.gpus <= most) reached = &smaller;
    if (reached != nullptr) grow_to(chosen, *reached);
  }
}

const std::string& Replay::user_of(const Running& running) const {
  static const std::string kNone;
  const auto user = static_cast<size_t>(job(running.job).user);
  return user < trace_.users.size() ? trace_.users[user] : kNone;
}

const std::string& Replay::account_of(const Running& running) const {
  static const std::string kNone;
  const auto account = static_cast<size_t>(job(running.job).account);
  return account < trace_.accounts.size() ? trace_.accounts[account] : kNone;
}

policy::Caps Replay::caps() const {
  const policy::Parameters& policy = options_.policy;
  policy::Caps caps(policy, pool_->free());
  if (policy.user_max_expanded == 0 && policy.account_max_expanded == 0 && policy.idle_reserve <= 0)
    return caps;
  for (const Running& running : elastic_)
    caps.add_held(user_of(running), account_of(running), running.held - running.base);
  return caps;
}

policy::JobFacts Replay::facts_of(const Running& running,
                                  const policy::Allowance& allowance) const {
  policy::JobFacts facts;
  facts.steady = now_ >= running.paused_until;
  facts.base_gpus = running.base;
  facts.held_gpus = running.held;
  facts.fitting_gpus = pool_->fitting(running.job);
  facts.allowed_gpus = allowance.gpus;
  facts.allowed_by = allowance.rule;
  facts.table = running.table;
  facts.remaining_seconds = known_remaining(running);
  facts.age = now_ - result_.jobs[static_cast<size_t>(running.job)].start;
  facts.grow_overhead = facts.shrink_overhead = running.pause;
  if (!running.switches.empty()) facts.last_switch_time = trace_.epoch + running.switches.back();
  facts.scalings_last_hour =
      static_cast<int>(std::count_if(running.switches.begin(), running.switches.end(),
                                     [&](double done) { return done > now_ - 3600; }));
  return facts;
}

void Replay::grow() {
  // What is being handed over has its taker.
  if (pool_->free() <= 0 || pool_->coming() > 0 ||
      (options_.policy.require_empty_queue && !queue_.empty()))
    return;
  policy::PoolFacts pool;
  pool.now = trace_.epoch + now_;
  pool.jobs_wait = !queue_.empty();
  pool.quiet = options_.policy.quiet_hours.contains(static_cast<int64_t>(pool.now));
  if (options_.marginal_filling) return fill(pool);
  order_.clear();
  for (const Running& running : elastic_) order_.emplace_back(running.held, running.job);
  std::sort(order_.begin(), order_.end());
  policy::Caps caps = this->caps();
  for (const auto& [held, index] : order_) {
    if (pool_->free() <= 0) break;
    Running& candidate = running(index);
    if (candidate.held >= candidate.table->back().gpus) continue;
    pool.idle_gpus = pool_->free();
    const std::string &user = user_of(candidate), &account = account_of(candidate);
    const policy::GrowthVerdict verdict = policy::judge_growth(
        options_.policy, pool, facts_of(candidate, caps.left(user, account)), rate_, stay_);
    if (verdict.rule == policy::GrowthRule::kGrow) {
      caps.add_growth(user, account, verdict.entry->gpus - candidate.held);
      grow_to(candidate, *verdict.entry);
    } else if (verdict.entry != nullptr) {
      ++result_.refused;
    }
  }
}

}  // namespace flextrain::simulator
