// SPDX-License-Identifier: MIT
#include "simulator/replay.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <queue>

#include "policy/forecast.h"
#include "policy/growth_rules.h"
#include "policy/throughput.h"
#include "policy/victims.h"

namespace flextrain::simulator {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

struct Running {  // an elastic job
  int job = 0;
  int base = 0, held = 0;
  const std::vector<policy::TableEntry>* table = nullptr;
  double work = 0;   // seconds at the base size that are left at `since`
  double speed = 1;  // relative to the base
  double since = 0;  // of `work`
  double paused_until = 0;
  double pause = 0;  // seconds per switch
  double last_switch = 0;
  int version = 0;  // of its end event
};

struct End {
  double time = 0;
  int job = 0, version = 0;
  bool operator>(const End& other) const {
    return time != other.time ? time > other.time : job > other.job;
  }
};

struct HandOver {  // GPUs of a shrink, free from `time` on
  double time = 0;
  int gpus = 0;
};

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options, const ReplayResult* rigid)
      : trace_(trace),
        options_(options),
        rigid_(rigid),
        forecaster_(options.policy, trace.epoch),
        free_(options.gpus) {
    if (options.oracle && rigid != nullptr) stay_ = [this](int margin) { return stays(margin); };
    result_.jobs.resize(trace.jobs.size());
    slot_.assign(trace.jobs.size(), -1);
    rate_ = [this](int margin) { return forecaster_.rate(trace_.epoch + now_, margin); };
  }

  ReplayResult run(const std::function<void(double)>& progress) {
    const auto& jobs = trace_.jobs;
    double next_tick = 0, next_sample = 0, next_progress = 0;
    while (next_ < jobs.size() || !ends_.empty() || !queue_.empty()) {
      const double arrival = next_ < jobs.size() ? jobs[next_].arrival : kForever;
      const double end = ends_.empty() ? kForever : ends_.top().time;
      const double pass = changed_ && queue_.size() > 1 ? last_pass_ + options_.backfill : kForever;
      const double handed = coming_.empty() ? kForever : coming_.front().time;
      const double before = now_;
      now_ = std::min({arrival, end, std::max(now_, pass), handed, next_tick});
      if (next_ < jobs.size())
        result_.busy_gpu_seconds += (now_ - before) * (options_.gpus - free_);
      while (next_sample <= now_) {
        result_.idle.push_back(static_cast<float>(free_));
        forecaster_.add_idle(trace_.epoch + next_sample, free_ + expanded_ + coming_gpus_);
        next_sample += result_.idle_step;
      }
      if (end <= now_) end_jobs();
      while (!coming_.empty() && coming_.front().time <= now_) {
        free_ += coming_.front().gpus;
        coming_gpus_ -= coming_.front().gpus;
        coming_.pop_front();
      }
      if (arrival <= now_) arrive();
      start_in_order();
      // Something changed, and the last pass was long enough ago.
      if (changed_ && queue_.size() > 1 && now_ >= last_pass_ + options_.backfill) {
        backfill();
        last_pass_ = now_;
        changed_ = false;
      }
      if (next_tick <= now_) {
        if (options_.elastic && !elastic_.empty()) grow();
        next_tick += options_.tick;
      }
      if (progress && now_ >= next_progress && !jobs.empty()) {
        progress(static_cast<double>(next_) / static_cast<double>(jobs.size()));
        next_progress = now_ + 86400;
      }
    }
    return std::move(result_);
  }

 private:
  const TraceJob& job(int index) const { return trace_.jobs[static_cast<size_t>(index)]; }

  bool is_elastic(const TraceJob& job) const {
    if (!(job.draw < options_.elastic_share)) return false;
    const auto& sizes = options_.elastic_sizes;
    return sizes.empty() || std::find(sizes.begin(), sizes.end(), job.gpus) != sizes.end();
  }

  void end_jobs() {
    while (!ends_.empty() && ends_.top().time <= now_) {
      const End end = ends_.top();
      ends_.pop();
      const auto index = static_cast<size_t>(end.job);
      int held = trace_.jobs[index].gpus;
      if (result_.jobs[index].elastic) {
        const int slot = slot_[index];
        if (slot < 0) continue;  // an end that a switch moved
        Running& running = elastic_[static_cast<size_t>(slot)];
        if (running.version != end.version) continue;
        held = running.held;
        expanded_ -= held - running.base;
        if (now_ < running.paused_until)
          result_.pause_gpu_seconds -= held * (running.paused_until - now_);
        leave(slot);
      }
      changed_ = true;
      free_ += held;
      result_.jobs[index].end = now_;
      result_.makespan = now_;
      const auto at =
          std::lower_bound(limits_.begin(), limits_.end(), std::pair(limit_end(end.job), end.job));
      limits_.erase(at);
    }
  }

  void leave(int slot) {  // keeps elastic_ dense
    slot_[static_cast<size_t>(elastic_[static_cast<size_t>(slot)].job)] = -1;
    if (static_cast<size_t>(slot) + 1 != elastic_.size()) {
      elastic_[static_cast<size_t>(slot)] = elastic_.back();
      slot_[static_cast<size_t>(elastic_[static_cast<size_t>(slot)].job)] = slot;
    }
    elastic_.pop_back();
  }

  double limit_end(int index) const {
    return result_.jobs[static_cast<size_t>(index)].start + job(index).limit;
  }

  void arrive() {
    for (; next_ < trace_.jobs.size() && trace_.jobs[next_].arrival <= now_; ++next_) {
      const TraceJob& arrived = trace_.jobs[next_];
      if (arrived.gpus > options_.gpus) {
        ++result_.never_fit;
        continue;
      }
      forecaster_.add({trace_.epoch + arrived.arrival, arrived.gpus});
      queue_.push_back(static_cast<int>(next_));
      changed_ = true;
    }
  }

  void start(int index) {
    const TraceJob& started = job(index);
    JobOutcome& outcome = result_.jobs[static_cast<size_t>(index)];
    outcome.start = now_;
    outcome.elastic = options_.elastic && is_elastic(started);
    free_ -= started.gpus;
    int version = 0;
    if (outcome.elastic) {
      Running running;
      running.job = index;
      running.base = running.held = started.gpus;
      auto& table = tables_[started.gpus];
      if (table.empty()) table = scale_table(options_.mode, started.gpus);
      running.table = &table;
      running.work = started.duration;
      running.since = now_;
      running.pause = options_.pause.of(started.gpus);
      slot_[static_cast<size_t>(index)] = static_cast<int>(elastic_.size());
      elastic_.push_back(running);
    }
    ends_.push({now_ + started.duration, index, version});
    const std::pair<double, int> limit(limit_end(index), index);
    limits_.insert(std::lower_bound(limits_.begin(), limits_.end(), limit), limit);
  }

  // The queue's head while it fits, with what elastic jobs can give back.
  void start_in_order() {
    size_t started = 0;
    while (started < queue_.size() && make_room(job(queue_[started]).gpus))
      start(queue_[started++]);
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(started));
  }

  // False too while what was reclaimed is being handed over.
  bool make_room(int gpus) {
    if (gpus <= free_) return true;
    const int within_reach = free_ + coming_gpus_;
    if (gpus <= within_reach || gpus > within_reach + expanded_) return false;
    reclaim(gpus - within_reach);
    return gpus <= free_;
  }

  void reclaim(int need) {
    std::vector<policy::VictimFacts> victims;
    std::vector<int> jobs;
    for (const Running& running : elastic_) {
      if (running.held <= running.base) continue;
      victims.push_back({static_cast<uint32_t>(running.job), running.held - running.base,
                         policy::is_spared(options_.policy, remaining(running), false)});
      jobs.push_back(running.job);
    }
    for (const size_t victim : policy::victim_order(options_.policy.victims, victims, need)) {
      if (need <= 0) break;
      Running& running = elastic_[static_cast<size_t>(slot_[static_cast<size_t>(jobs[victim])])];
      const int most = std::max(running.base, running.held - need);
      const policy::TableEntry* entry = policy::best_within(*running.table, most);
      need -= running.held - entry->gpus;
      resize(running, *entry);
      ++result_.shrinks;
    }
  }

  void resize(Running& running, const policy::TableEntry& entry) {
    const double from = std::max(running.since, running.paused_until);
    if (now_ > from) running.work = std::max(0.0, running.work - (now_ - from) * running.speed);
    if (now_ < running.paused_until)
      result_.pause_gpu_seconds -= running.held * (running.paused_until - now_);
    const int delta = entry.gpus - running.held;
    if (delta < 0 && options_.hand_over > 0) {
      coming_.push_back({now_ + options_.hand_over, -delta});
      coming_gpus_ -= delta;
    } else {
      free_ -= delta;
    }
    expanded_ += delta;
    running.held = entry.gpus;
    running.speed = entry.tokens_per_second / running.table->front().tokens_per_second;
    running.since = now_;
    running.paused_until = now_ + running.pause;
    running.last_switch = now_;
    result_.pause_gpu_seconds += running.held * running.pause;
    ++result_.jobs[static_cast<size_t>(running.job)].switches;
    ends_.push(
        {running.paused_until + running.work / running.speed, running.job, ++running.version});
    result_.sizes.push_back({running.job, now_, running.held});
  }

  // EASY: the head keeps the moment at which, by run limits, it will fit; later jobs start when
  // they do not move it.
  void backfill() {
    const int need = job(queue_.front()).gpus;
    int available = free_ + coming_gpus_ + expanded_;
    double shadow = now_;
    for (const auto& [end, index] : limits_) {
      if (available >= need) break;
      available += job(index).gpus;
      shadow = end;
    }
    if (available < need) shadow = kForever;
    int extra = available - need;
    size_t looked = 0;
    for (size_t i = 1; i < queue_.size() && looked < static_cast<size_t>(options_.backfill_depth);
         ++looked) {
      if (free_ + expanded_ <= 0) break;
      const TraceJob& candidate = job(queue_[i]);
      const bool ends_before = now_ + candidate.limit <= shadow;
      if (candidate.gpus <= free_ + expanded_ && (ends_before || candidate.gpus <= extra) &&
          make_room(candidate.gpus)) {
        if (!ends_before) extra -= candidate.gpus;
        start(queue_[i]);
        queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  double remaining(const Running& running) const {
    const double from = std::max(running.since, running.paused_until);
    const double left = now_ > from ? running.work - (now_ - from) * running.speed : running.work;
    return left / running.speed;
  }

  std::optional<double> known_remaining(const Running& running) const {
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
  double stays(int margin) const {
    const auto& idle = rigid_->idle;
    const auto now = static_cast<size_t>(now_ / rigid_->idle_step);
    if (now >= idle.size()) return kForever;
    const float least = idle[now] - static_cast<float>(margin);
    for (size_t at = now + 1; at < idle.size(); ++at)
      if (idle[at] < least) return static_cast<double>(at) * rigid_->idle_step - now_;
    return kForever;
  }

  // ElasticFlow's way: one entry at a time to the job that gains most throughput per GPU; a job
  // switches once.
  void fill() {
    std::map<int, const policy::TableEntry*> target;
    int idle = free_;
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
          if (entry.gpus - held > idle) break;
          const double gain =
              running.base * (entry.tokens_per_second - speed) / (entry.gpus - held);
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
      const Running& running = elastic_[static_cast<size_t>(slot_[static_cast<size_t>(best)])];
      idle -= best_entry->gpus - (chosen == target.end() ? running.held : chosen->second->gpus);
      target[best] = best_entry;
    }
    for (const auto& [index, entry] : target) {
      resize(elastic_[static_cast<size_t>(slot_[static_cast<size_t>(index)])], *entry);
      ++result_.growths;
    }
  }

  void grow() {
    // What is being handed over has its taker.
    if (free_ <= 0 || coming_gpus_ > 0 || (options_.policy.require_empty_queue && !queue_.empty()))
      return;
    order_.clear();
    for (const Running& running : elastic_) order_.emplace_back(running.held, running.job);
    std::sort(order_.begin(), order_.end());
    if (options_.marginal_filling) return fill();
    policy::PoolFacts pool;
    pool.now = trace_.epoch + now_;
    pool.jobs_wait = !queue_.empty();
    for (const auto& [held, index] : order_) {
      if (free_ <= 0) break;
      Running& running = elastic_[static_cast<size_t>(slot_[static_cast<size_t>(index)])];
      if (running.held >= running.table->back().gpus) continue;
      pool.idle_gpus = free_;
      policy::JobFacts facts;
      facts.steady = now_ >= running.paused_until;
      facts.base_gpus = running.base;
      facts.held_gpus = running.held;
      facts.fitting_gpus = free_;
      facts.table = running.table;
      facts.remaining_seconds = known_remaining(running);
      facts.age = now_ - result_.jobs[static_cast<size_t>(index)].start;
      facts.grow_overhead = facts.shrink_overhead = running.pause;
      const policy::GrowthVerdict verdict =
          policy::judge_growth(options_.policy, pool, facts, rate_, stay_);
      if (verdict.rule == policy::GrowthRule::kGrow) {
        resize(running, *verdict.entry);
        ++result_.growths;
      } else if (verdict.entry != nullptr) {
        ++result_.refused;
      }
    }
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  const ReplayResult* rigid_;
  policy::Forecaster forecaster_;
  policy::RateAt rate_;
  policy::StayAt stay_;  // empty unless an oracle decides
  ReplayResult result_;
  double now_ = 0, last_pass_ = -kForever;
  bool changed_ = false;  // since the last backfill pass
  size_t next_ = 0;       // arrival
  int free_ = 0, expanded_ = 0, coming_gpus_ = 0;
  std::deque<HandOver> coming_;
  std::vector<int> queue_;        // in order of arrival
  std::vector<Running> elastic_;  // running, no order
  std::vector<int> slot_;         // job → index in elastic_, or −1
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<std::pair<double, int>> limits_;  // end by run limit, job; ascending
  std::map<int, std::vector<policy::TableEntry>> tables_;
  std::vector<std::pair<int, int>> order_;
};

}  // namespace

ReplayResult replay(const Trace& trace, const ReplayOptions& options,
                    const std::function<void(double)>& progress, const ReplayResult* rigid) {
  return Replay(trace, options, rigid).run(progress);
}

}  // namespace flextrain::simulator
