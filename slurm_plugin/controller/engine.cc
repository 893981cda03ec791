// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/text.h"
#include "policy/snapshot_json.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kSameErrorSeconds = 300;
constexpr size_t kMaxLoggedErrors = 200;
constexpr size_t kMaxArrivals = 100'000;
constexpr size_t kMaxKeptJobs = 20'000;

template <typename T>
T decoded(const Json& json, T otherwise) {
  if (json.is_null()) return otherwise;
  return protocol::from_json<T>(json).value_or(std::move(otherwise));
}

Json allocations_json(const std::vector<protocol::Allocation>& allocations) {
  protocol::ReportRequest carrier;
  carrier.allocations = allocations;
  return protocol::to_json(carrier).at("allocations");
}

std::vector<protocol::Allocation> allocations_of(const Json& json) {
  if (!json.is_array()) return {};
  return decoded(Json{{"allocations", json}}, protocol::ReportRequest{}).allocations;
}

}  // namespace

Engine::Engine(ControllerConfig config, Cluster& cluster, store::Store& store, Options options)
    : config_(std::move(config)), cluster_(cluster), store_(store), options_(std::move(options)) {}

Status Engine::load() {
  mind_clock();
  // The time of day: agents refuse an older epoch, and ignore an order they have had in this one.
  // Were a lost database to begin at 1 again, no agent that runs would obey any more.
  ASSIGN_OR_RETURN(epoch_, store_.next_epoch(now()));
  started_ = observed_since_ = now();
  ASSIGN_OR_RETURN(const auto arrivals, store_.queries().arrivals_since(now() - arrival_history()));
  for (const store::ArrivalRow& row : arrivals) {
    observed_since_ = std::min(observed_since_, row.submit_time);
    arrivals_[{row.job_id, row.submit_time}] = {static_cast<double>(row.submit_time), row.gpus};
  }
  ASSIGN_OR_RETURN(holds_, store_.queries().holds());
  ASSIGN_OR_RETURN(const auto intents, store_.queries().open_intents());
  store::Filter active;
  active.active_only = true;
  ASSIGN_OR_RETURN(const auto rows, store_.queries().jobs(active));
  for (const store::ElasticJobRow& row : rows) {
    auto job = std::make_unique<ManagedJob>();
    job->row = row;
    job->state = parse_elastic_state(row.state).value_or(ElasticState::kStarting);
    if (job->state == ElasticState::kEnded) continue;
    job->registration = decoded(row.registration, protocol::RegisterRequest{});
    job->trainer = allocations_of(row.allocations);
    job->last_heard = now();
    ASSIGN_OR_RETURN(const auto companions, store_.queries().companions_of(row.key, true));
    for (const store::CompanionRow& companion : companions) {
      Companion& entry = job->companions[companion.job_id];
      entry.row = companion;
      entry.started = companion.start_time != 0;
      entry.allocations = decoded(companion.registration, protocol::RegisterRequest{}).allocations;
    }
    for (const store::IntentRow& intent : intents) {
      if (intent.job == row.key) job->intent = intent;
      last_sequence_ = std::max(last_sequence_, intent.sequence);
    }
    if (const auto table = store_.queries().scale_table(row.key); table.ok()) {
      job->table = read_scale_table(table->table).value_or({});
    }
    if (auto progress = store_.queries().progress(row.key); progress.ok()) {
      job->progress = std::move(progress).value();
    }
    store::Filter recent;
    recent.job_ids = {row.key.job_id};
    recent.start = now() - 3600;
    ASSIGN_OR_RETURN(const auto scalings, store_.queries().scalings(recent));
    for (const store::ScalingRow& scaling : scalings) {
      if (scaling.job == row.key && scaling.outcome == "done") {
        job->switch_times.push_back(scaling.end);
      }
    }
    job->deadline = deadline_of(*job);
    if (job->intent && job->intent->deadline != 0 && job->intent->stage == row.state) {
      job->deadline = job->intent->deadline;
    }
    jobs_.push_back(std::move(job));
    settle(*jobs_.back());
  }
  log_info("controller epoch {}: {} open jobs, {} open switches", epoch_, jobs_.size(),
           intents.size());
  return {};
}

// A crash can fall between any two writes: bring state and intent into agreement.
void Engine::settle(ManagedJob& job) {
  const bool wants_grow = growing(job.state);
  const bool wants_shrink = job.state == ElasticState::kShrinking;
  const bool fits = job.intent && ((wants_grow && job.intent->kind == "grow") ||
                                   (wants_shrink && job.intent->kind == "shrink"));
  if (fits) {
    job.resubmit = job.state == ElasticState::kCompanionsPending;
    return;
  }
  if (job.intent) {
    // The state moved on, the end of the intent was not stored.
    job.why = "the controller restarted while this ended";
    job.counts_as_failure = false;
    const bool reached = job.held_gpus() == job.intent->to_gpus;
    finish_intent(job, reached ? "done" : "rolled-back");
    job.counts_as_failure = true;
  }
  if (wants_grow || wants_shrink) {
    job.state = ElasticState::kReleasing;
    job.row.state = elastic_state_name(job.state);
    job.deadline = deadline_of(job);
    act(job, ElasticAction::kReleaseUnused);
    persist(job);
  }
}

void Engine::tick() {
  mind_clock();
  round();
  mind_deafness();
}

void Engine::round() {
  ++ticks_;
  last_tick_ = now();
  mind_store();
  Result<ClusterView> observed = cluster_.observe();
  if (!observed.ok()) {
    note_error(observed.status(), "observing the cluster");
    return;
  }
  ClusterView& view = *observed;
  view.now = now();  // one clock for leases, deadlines and the policy
  Index index;
  for (const JobRecord& record : view.jobs) index[record.job_id] = &record;
  sync_jobs(view, index);
  first_look_ = false;
  news_ = false;
  sweep_orphans(view);
  for (const auto& job : jobs_) {
    check_agent(*job);
    check_size(*job);
    if (job->resubmit) {
      job->resubmit = false;
      apply(*job, ElasticEvent::kGrowDecided, "taken up again");
    }
    check_companions(*job);
    check_deadline(*job);
    cancel_leaving(*job);
  }
  renew_leases(view);
  record_arrivals(view);
  record_idle(view);
  decide_and_act(view);
  persist_progress();
  forget_ended();
  publish(std::make_shared<const Json>(idle_rows(view)));
  if (!store_.fault().ok()) return;
  const auto retention = store_.retention_if_due(
      now(), store::Retention{.days = static_cast<int>(config_.retention_days)});
  if (!retention.ok()) note_error(retention.status(), "retention");
}

void Engine::tend() {
  mind_clock();
  mind_store();
  for (const auto& job : jobs_) {
    check_agent(*job);
    check_size(*job);
    check_deadline(*job);
    job->hold = hold_of(*job);
  }
  persist_progress();
  publish(live_->idle);
}

void Engine::glance() {
  mind_clock();
  for (const auto& job : jobs_) {
    const bool pending = job->state == ElasticState::kCompanionsPending;
    if (!pending && !job->any_leaving()) continue;
    for (auto& [id, companion] : job->companions) {
      if (!companion.leaving() && !(pending && job->of_intent(companion))) continue;
      const Result<JobRecord> record = cluster_.job(id);
      if (!record.ok() && record.status().code() != StatusCode::kNotFound) {
        note_error(record.status(), "looking at a companion");
        return;  // the cluster is away
      }
      sync_companion(*job, companion, record.ok() ? &*record : nullptr);
    }
    drop_ended_companions(*job);
    check_companions(*job);
    check_deadline(*job);
    cancel_leaving(*job);
  }
}

bool Engine::in_transition() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
    return job->state == ElasticState::kCompanionsPending || job->any_leaving();
  });
}

bool Engine::pressing() const {
  return news_ || std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
           return !job->companions.empty() || job->intent.has_value();
         });
}

bool Engine::wants_tick() {
  news_ = news_ || wants_tick_;
  return std::exchange(wants_tick_, false);
}

void Engine::decide_and_act(const ClusterView& view) {
  for (const auto& job : jobs_) job->hold = hold_of(*job);
  policy::Snapshot snapshot = build_snapshot(view, jobs_, config_);
  snapshot.forecast = forecast(snapshot);
  give_up_growths(snapshot);
  std::vector<policy::Decision> decisions;
  if (config_.enabled) {
    const auto begin = std::chrono::steady_clock::now();
    decisions = policy::decide(snapshot, config_.policy);
    decide_times_.add(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  // These come first: whoever has one is left out of the others.
  const auto put_first = [&](std::vector<policy::Decision> own) {
    std::erase_if(decisions, [&](const policy::Decision& decision) {
      return decision.job_id != 0 && std::any_of(own.begin(), own.end(), [&](const auto& mine) {
               return mine.job_id == decision.job_id;
             });
    });
    decisions.insert(decisions.begin(), own.begin(), own.end());
  };
  put_first(lease_shrinks(snapshot, decisions));
  put_first(forced_shrinks());
  std::vector<store::DecisionRow> rows;
  for (const policy::Decision& decision : decisions) {
    rows.push_back(decision_row(decision, current(decision.job_id), view.now));
    ++counters_.decisions[{rows.back().kind, rows.back().rule}];
  }
  const auto ids =
      decision_log_.record([&] { return policy::snapshot_to_json(snapshot, config_.policy); },
                           std::move(rows), view.now);
  note_error(ids.status(), "storing decisions");
  for (size_t at = 0; at < decisions.size(); ++at) {
    const policy::Decision& decision = decisions[at];
    if (decision.kind != policy::DecisionKind::kGrow &&
        decision.kind != policy::DecisionKind::kShrink) {
      continue;
    }
    // What cannot be explained later is not done; but no full disk keeps a waiting job's GPUs.
    if (!ids.ok() && decision.kind == policy::DecisionKind::kGrow) continue;
    ManagedJob* job = current(decision.job_id);
    if (job == nullptr || !not_steady_reason(*job).empty()) continue;
    begin_intent(*job, decision, ids.ok() ? (*ids)[at] : 0);
  }
}

void Engine::begin_intent(ManagedJob& job, const policy::Decision& decision, int64_t decision_id) {
  const bool grow = decision.kind == policy::DecisionKind::kGrow;
  if (grow ? decision.take.empty() : decision.give_back.empty()) return;
  store::IntentRow intent;
  intent.id = random_hex_id();
  intent.job = job.row.key;
  intent.kind = grow ? "grow" : "shrink";
  intent.for_job = decision.for_job;
  intent.from_gpus = decision.from_gpus;
  intent.to_gpus = decision.to_gpus;
  intent.take = offers_to_json(decision.take);
  intent.give_back = decision.give_back;
  intent.plan = job.table.plan_for(decision.to_gpus);
  intent.decision_id = decision_id;
  intent.created = intent.updated = now();
  // Stored before anything is done: after a crash the open intent is what must converge.
  if (const Status status = store_.put_intent(intent); !status.ok()) {
    note_error(status, "storing an intent");
    if (grow) return;
  }
  job.intent = std::move(intent);
  apply(job, grow ? ElasticEvent::kGrowDecided : ElasticEvent::kShrinkDecided, decision.reason);
}

void Engine::record_arrivals(const ClusterView& view) {
  std::vector<store::ArrivalRow> rows;
  for (const JobRecord& record : view.jobs) {
    if (record.gpus_requested <= 0 || record.submit_time < observed_since_) continue;
    if (record.submit_time < view.now - arrival_history()) continue;
    if (arrivals_.contains({record.job_id, record.submit_time})) continue;
    if (protocol::companion_from_comment(record.admin_comment)) continue;
    const auto request = protocol::from_comment(record.admin_comment);
    const bool elastic = request.ok() && request->has_value();
    const policy::Arrival arrival{static_cast<double>(record.submit_time), record.gpus_requested};
    arrivals_[{record.job_id, record.submit_time}] = arrival;
    if (forecaster_) forecaster_->add(arrival);
    rows.push_back(
        {cluster_name(), record.job_id, record.submit_time, record.gpus_requested, elastic});
  }
  if (!rows.empty()) note_error(store_.record_arrivals(rows), "storing arrivals");
  // The oldest ids go first: over a storm the rate is known well enough.
  while (arrivals_.size() > kMaxArrivals) arrivals_.erase(arrivals_.begin());
  std::erase_if(arrivals_, [&](const auto& entry) {
    return entry.second.time < static_cast<double>(view.now - arrival_history());
  });
}

void Engine::persist(ManagedJob& job) {
  job.row.allocations =
      allocations_json(job.trainer.empty() ? job.registration.allocations : job.trainer);
  job.row.held_gpus = job.held_gpus();
  job.row.updated = now();
  const store::ElasticJobRow row = stored_row(job);
  note_error(store_.transaction([&]() -> Status {
    RETURN_IF_ERROR(store_.put_job(row));
    return job.intent ? store_.put_intent(*job.intent) : Status();
  }),
             "storing a job");
}

// An ending run stays open in the store until nothing is left to do for it.
store::ElasticJobRow Engine::stored_row(const ManagedJob& job) {
  store::ElasticJobRow row = job.row;
  if (job.state != ElasticState::kEnded) row.end_time = 0;
  return row;
}

void Engine::persist_progress() {
  const bool any =
      std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->progress_dirty; });
  if (!any) return;
  const Status status = store_.transaction([&]() -> Status {
    for (const auto& job : jobs_) {
      if (job->progress_dirty) RETURN_IF_ERROR(store_.put_progress(*job->progress));
    }
    return {};
  });
  note_error(status, "storing progress");
  if (!status.ok()) return;
  for (const auto& job : jobs_) job->progress_dirty = false;
}

void Engine::forget_ended() {
  // Their ends are still to be stored, within reason.
  if (!store_.fault().ok() && jobs_.size() < kMaxKeptJobs) return;
  std::erase_if(jobs_, [](const auto& job) { return job->state == ElasticState::kEnded; });
}

void Engine::publish(std::shared_ptr<const Json> idle) {
  auto live = std::make_shared<LiveState>();
  live->idle = std::move(idle);
  int companions = 0, agents = 0;
  for (const auto& job : jobs_) {
    agents += job->row.registered ? 1 : 0;
    companions += static_cast<int>(job->companions.size());
    if (!job->hold.rule.empty()) live->holds.emplace_back(job->row.key, job->hold);
  }
  const auto held = [&](std::string_view rule) {
    return std::count_if(live->holds.begin(), live->holds.end(),
                         [&](const auto& entry) { return entry.second.rule == rule; });
  };
  live->diag = {{"cluster", cluster_name()},
                {"epoch", epoch_},
                {"started", started_},
                {"elastic", config_.enabled},
                {"elastic_reason", config_.enabled ? "" : "Enabled=no in flextrain.conf"},
                {"journal_mode", store_.journal_mode()},
                {"schema_version", store_.queries().schema_version()},
                {"database_note", store_.open_note()},
                {"last_tick", last_tick_},
                {"tick_seconds", config_.tick_seconds},
                {"ticks", ticks_},
                {"agents", agents},
                {"jobs", jobs_.size()},
                {"companions", companions},
                {"database_fault", store_fault_},
                {"clock_jumps", clock_jumps_},
                {"paused_jobs", held("paused")},
                {"left_alone_jobs", held("left-alone")},
                {"last_error", last_error_},
                {"last_error_time", last_error_time_}};
  live->counters = counters_;
  live->diag.update(decide_times_.report("decide"));
  live_ = std::move(live);
}

void Engine::note_error(const Status& status, std::string_view doing) {
  if (status.ok()) return;
  last_error_ = fmt::format("{}: {}", doing, status.to_string());
  last_error_time_ = now();
  // A stopping controller refuses every RPC: nothing to tell anybody.
  if (status.code() == StatusCode::kAborted) return;
  if (!store_.fault().ok() && status.message() == store_.fault().message()) {
    note_store_fault(status);
    return;
  }
  std::erase_if(logged_errors_,
                [&](const auto& logged) { return now() - logged.second >= kSameErrorSeconds; });
  if (logged_errors_.size() >= kMaxLoggedErrors) return;
  if (logged_errors_.emplace(last_error_, now()).second) log_warning("{}", last_error_);
}

ManagedJob* Engine::current(uint32_t job_id) {
  for (const auto& job : jobs_) {
    if (job_id != 0 && job->row.key.job_id == job_id && !finished(job->state)) return job.get();
  }
  return nullptr;
}

std::string Engine::cluster_name() const { return to_lower(cluster_.cluster_name()); }

ManagedJob* Engine::find(protocol::JobIdentity identity) {
  identity.cluster = to_lower(identity.cluster);
  for (const auto& job : jobs_) {
    if (identity_of(*job) == identity && !finished(job->state)) return job.get();
  }
  return nullptr;
}

protocol::JobIdentity Engine::identity_of(const ManagedJob& job) {
  return {job.row.key.cluster, job.row.key.job_id, job.row.key.submit_time,
          job.row.key.restart_count};
}

}  // namespace flextrain::slurm_plugin
