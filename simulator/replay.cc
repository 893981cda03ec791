// SPDX-License-Identifier: MIT
#include "simulator/replay.h"

#include <algorithm>
#include <cmath>

#include "policy/throughput.h"
#include "simulator/replay_run.h"

namespace flextrain::simulator {

namespace {

// Which of `names` are among `wanted`; empty when anything is.
std::vector<char> among(const std::vector<std::string>& names,
                        const std::vector<std::string>& wanted) {
  std::vector<char> list;
  if (wanted.empty()) return list;
  for (const std::string& name : names)
    list.push_back(std::find(wanted.begin(), wanted.end(), name) != wanted.end() ? 1 : 0);
  return list;
}

}  // namespace

Replay::Replay(const Trace& trace, const ReplayOptions& options, const ReplayResult* rigid)
    : trace_(trace), options_(options), rigid_(rigid), forecaster_(options.policy, trace.epoch) {
  if (options.oracle && rigid != nullptr) stay_ = [this](int margin) { return stays(margin); };
  rate_ = [this](int margin) { return forecaster_.rate(trace_.epoch + now_, margin); };
  result_.jobs.resize(trace.jobs.size());
  slot_.assign(trace.jobs.size(), -1);
  elastic_user_ = among(trace.users, options.elastic_users);
  elastic_account_ = among(trace.accounts, options.elastic_accounts);
  pool_ = options.node_gpus > 0
              ? make_node_pool(options.gpus / options.node_gpus, options.node_gpus,
                               trace.jobs.size(), options.policy)
              : make_pool(options.gpus, options.policy);
}

ReplayResult Replay::run(const std::function<void(double)>& progress) {
  const auto& jobs = trace_.jobs;
  double next_tick = 0, next_progress = 0;
  while (next_ < jobs.size() || !ends_.empty() || !queue_.empty()) {
    const double arrival = next_ < jobs.size() ? jobs[next_].arrival : kForever;
    const double end = ends_.empty() ? kForever : ends_.top().time;
    const double pass = changed_ && queue_.size() > 1 ? last_pass_ + options_.backfill : kForever;
    pass_time(std::min({arrival, end, std::max(now_, pass), pool_->next_hand_over(), next_tick}));
    if (end <= now_) end_jobs();
    pool_->hand_over(now_);
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

// What is held, free and waited for during it.
void Replay::pass_time(double until) {
  const double seconds = until - now_;
  now_ = until;
  if (next_ < trace_.jobs.size()) {
    result_.busy_gpu_seconds += seconds * (options_.gpus - pool_->free());
    result_.stranded_gpu_seconds += seconds * pool_->stranded();
    if (!queue_.empty() &&
        job(queue_.front()).gpus <= pool_->free() + pool_->coming() + pool_->expanded() &&
        !pool_->fits_at_most(job(queue_.front()).gpus))
      result_.fragmented_wait_seconds += seconds;
  }
  for (; next_sample_ <= now_; next_sample_ += result_.idle_step) {
    result_.idle.push_back(static_cast<float>(pool_->free()));
    forecaster_.add_idle(trace_.epoch + next_sample_,
                         pool_->free() + pool_->expanded() + pool_->coming());
  }
}

bool Replay::is_elastic(const TraceJob& job) const {
  if (!(job.draw < options_.elastic_share)) return false;
  const auto may = [](const std::vector<char>& list, int index) {
    return list.empty() || list[static_cast<size_t>(index)] != 0;
  };
  if (!may(elastic_user_, job.user) || !may(elastic_account_, job.account)) return false;
  const auto& sizes = options_.elastic_sizes;
  return sizes.empty() || std::find(sizes.begin(), sizes.end(), job.gpus) != sizes.end();
}

void Replay::end_jobs() {
  while (!ends_.empty() && ends_.top().time <= now_) {
    const End end = ends_.top();
    ends_.pop();
    const auto index = static_cast<size_t>(end.job);
    const int base = trace_.jobs[index].gpus;
    int held = base;
    if (result_.jobs[index].elastic) {
      const int slot = slot_[index];
      if (slot < 0) continue;  // an end that a switch moved
      const Running& ended = elastic_[static_cast<size_t>(slot)];
      if (ended.version != end.version) continue;
      held = ended.held;
      if (now_ < ended.paused_until)
        result_.pause_gpu_seconds -= held * (ended.paused_until - now_);
      leave(slot);
    }
    changed_ = true;
    pool_->end(end.job, base, held);
    note_placement(end.job);
    result_.jobs[index].end = now_;
    result_.makespan = now_;
    const auto at =
        std::lower_bound(limits_.begin(), limits_.end(), std::pair(limit_end(end.job), end.job));
    limits_.erase(at);
  }
}

void Replay::leave(int slot) {  // keeps elastic_ dense
  slot_[static_cast<size_t>(elastic_[static_cast<size_t>(slot)].job)] = -1;
  if (static_cast<size_t>(slot) + 1 != elastic_.size()) {
    elastic_[static_cast<size_t>(slot)] = elastic_.back();
    slot_[static_cast<size_t>(elastic_[static_cast<size_t>(slot)].job)] = slot;
  }
  elastic_.pop_back();
}

void Replay::arrive() {
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

void Replay::start(int index) {
  const TraceJob& started = job(index);
  JobOutcome& outcome = result_.jobs[static_cast<size_t>(index)];
  outcome.start = now_;
  outcome.elastic = options_.elastic && is_elastic(started);
  pool_->start(index, started.gpus);
  note_placement(index);
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
  ends_.push({now_ + started.duration, index, 0});
  const std::pair<double, int> limit(limit_end(index), index);
  limits_.insert(std::lower_bound(limits_.begin(), limits_.end(), limit), limit);
}

// The queue's head while it fits, with what elastic jobs can give back.
void Replay::start_in_order() {
  size_t started = 0;
  while (started < queue_.size() && make_room(job(queue_[started]).gpus, nullptr))
    start(queue_[started++]);
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(started));
}

// False too while what was reclaimed is being handed over, and where the job would move `shadow`.
bool Replay::make_room(int gpus, const Shadow* shadow) {
  std::vector<GiveBack> plan;
  if (!pool_->fits(gpus)) {
    if (pool_->fits_soon(gpus) || !pool_->fits_at_most(gpus)) return false;
    std::vector<ExpandedJob> jobs;
    for (const Running& candidate : elastic_)
      if (candidate.held > candidate.base)
        jobs.push_back(
            {candidate.job, candidate.base, candidate.held, candidate.table, remaining(candidate)});
    plan = pool_->plan_reclaim(gpus, jobs);
  }
  if (shadow != nullptr && !shadow->admits(gpus, plan)) return false;
  for (const GiveBack& give : plan) {
    Running& victim = running(give.job);
    pool_->shrink(give, victim.held, now_, now_ + options_.hand_over);
    resize(victim, give.gpus);
    ++result_.shrinks;
  }
  return plan.empty() || pool_->fits(gpus);
}

void Replay::resize(Running& running, int gpus) {
  const double from = std::max(running.since, running.paused_until);
  if (now_ > from) running.work = std::max(0.0, running.work - (now_ - from) * running.speed);
  if (now_ < running.paused_until)
    result_.pause_gpu_seconds -= running.held * (running.paused_until - now_);
  running.held = gpus;
  running.speed =
      policy::tokens_per_second(*running.table, gpus) / running.table->front().tokens_per_second;
  running.since = now_;
  if (now_ < running.paused_until) running.switches.pop_back();  // was not done
  running.paused_until = now_ + running.pause;
  std::erase_if(running.switches, [&](double done) { return done <= now_ - 3600; });
  running.switches.push_back(running.paused_until);
  result_.pause_gpu_seconds += running.held * running.pause;
  ++result_.jobs[static_cast<size_t>(running.job)].switches;
  ends_.push({running.paused_until + running.work / running.speed, running.job, ++running.version});
  result_.sizes.push_back({running.job, now_, running.held});
  note_placement(running.job);
}

// EASY: the head keeps the moment at which, by run limits, it will fit; later jobs start when
// they do not move it.
void Replay::backfill() {
  const std::unique_ptr<Shadow> shadow = pool_->shadow(job(queue_.front()).gpus);
  double begin = now_;
  for (const auto& [end, index] : limits_) {
    if (shadow->fits()) break;
    shadow->add(index, job(index).gpus);
    begin = end;
  }
  if (!shadow->fits()) begin = kForever;
  std::vector<int> denied;  // sizes that would move the head, as long as nothing starts
  size_t looked = 0;
  for (size_t i = 1; i < queue_.size() && looked < static_cast<size_t>(options_.backfill_depth);
       ++looked) {
    if (pool_->free() + pool_->expanded() <= 0) break;
    const TraceJob& candidate = job(queue_[i]);
    const bool ends_before = now_ + candidate.limit <= begin;
    const int64_t shrinks = result_.shrinks;
    const bool may_fit =
        candidate.gpus <= pool_->free() + pool_->expanded() &&
        (ends_before || (candidate.gpus <= shadow->spare() &&
                         std::find(denied.begin(), denied.end(), candidate.gpus) == denied.end()));
    const bool starts = may_fit && make_room(candidate.gpus, ends_before ? nullptr : shadow.get());
    if (may_fit && !starts && !ends_before) denied.push_back(candidate.gpus);
    if (starts || result_.shrinks != shrinks) denied.clear();
    if (!starts) {
      ++i;
      continue;
    }
    start(queue_[i]);
    if (!ends_before) shadow->take(queue_[i], candidate.gpus);
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
  }
}

double Replay::remaining(const Running& running) const {
  const double from = std::max(running.since, running.paused_until);
  const double left = now_ > from ? running.work - (now_ - from) * running.speed : running.work;
  return left / running.speed;
}

ReplayResult replay(const Trace& trace, const ReplayOptions& options,
                    const std::function<void(double)>& progress, const ReplayResult* rigid) {
  return Replay(trace, options, rigid).run(progress);
}

}  // namespace flextrain::simulator
