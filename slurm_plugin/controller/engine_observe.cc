// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that takes in what the cluster shows: jobs, companions, what waits.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "slurm_plugin/controller/companion_request.h"
#include "slurm_plugin/controller/engine.h"
#include "slurm_plugin/controller/waiting.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kLostJobsPause = 60;

bool has_ended(const JobRecord* record) {
  return record == nullptr || record->state == JobState::kEnded ||
         record->state == JobState::kCompleting || record->state == JobState::kPending;
}

// Whether the waiting job would start once its offers are free of others: a job that Slurm is about
// to start anyway is no reason to give up a growth.
bool fits(const policy::WaitingJob& job, const policy::SharedList<policy::NodeOffer>& offers) {
  int nodes = 0, gpus = 0;
  for (const policy::NodeOffer& offer : offers) {
    if (job.gpus_per_node > 0 && offer.gpus < job.gpus_per_node) continue;
    ++nodes;
    gpus += job.gpus_per_node > 0 ? job.gpus_per_node : offer.gpus;
  }
  return nodes >= job.nodes && gpus >= job.gpus;
}

int most_gpus(const protocol::ElasticRequest& request, int base_gpus,
              const ControllerConfig& config) {
  return std::min(protocol::max_gpus(request, base_gpus),
                  static_cast<int>(config.policy.max_growth * base_gpus + 1e-9));
}

// When somebody else wants this node: a pending job by backfill's plan, or a reservation. 0 =
// never.
int64_t lease_cap(const ClusterView& view, const std::map<std::string, int64_t>& planned,
                  const std::string& node, const std::string& own_reservation) {
  int64_t cap = 0;
  if (const auto plan = planned.find(node); plan != planned.end()) cap = plan->second;
  for (const ReservationRecord& reservation : view.reservations) {
    if (reservation.name == own_reservation || reservation.start_time <= view.now) continue;
    if (std::find(reservation.nodes.begin(), reservation.nodes.end(), node) ==
        reservation.nodes.end()) {
      continue;
    }
    cap = cap == 0 ? reservation.start_time : std::min(cap, reservation.start_time);
  }
  return cap;
}

}  // namespace

ManagedJob* Engine::adopt(const JobRecord& record) {
  if (record.state != JobState::kRunning && record.state != JobState::kSuspended) return nullptr;
  if (!config_.enabled || !elastic_partition(config_, record.partition)) return nullptr;
  const auto request = protocol::from_comment(record.admin_comment);
  if (!request.ok()) {
    if (malformed_.insert(record.job_id).second) {
      log_warning("job {} is not elastic: {}", record.job_id, request.status().message());
    }
    return nullptr;
  }
  if (!*request || record.gpus_allocated <= 0) return nullptr;
  if (protocol::companion_from_comment(record.admin_comment)) return nullptr;
  const store::JobKey key{cluster_name(), record.job_id, record.submit_time, record.restart_count};
  for (const auto& job : jobs_) {
    if (job->row.key == key) return finished(job->state) ? nullptr : job.get();
  }
  // A run that had been closed is not opened again: its agent has said bye or the store knows
  // better.
  const auto known = store_.queries().job(key);
  if (known.ok() && known->end_time != 0) return nullptr;
  auto job = std::make_unique<ManagedJob>();
  job->row.key = key;
  job->row.user = record.user_name;
  job->row.user_id = record.user_id;
  job->row.group_id = record.group_id;
  job->row.name = record.name;
  job->row.account = record.account;
  job->row.partition = record.partition;
  job->row.mode = protocol::elastic_mode_name((*request)->mode);
  job->row.base_gpus = record.gpus_allocated;
  job->row.held_gpus = record.gpus_allocated;
  job->row.max_gpus = most_gpus(**request, record.gpus_allocated, config_);
  job->row.state = elastic_state_name(job->state);
  job->row.first_seen = now();
  job->row.start_time = record.start_time;
  job->record = record;
  job->request = **request;
  job->last_heard = now();
  job->deadline = deadline_of(*job);
  log_info("job {} of {}: elastic ({}), {} GPUs, at most {}", record.job_id, record.user_name,
           job->row.mode, job->row.base_gpus, job->row.max_gpus);
  carry_hold(key, record.user_id);
  persist(*job);
  jobs_.push_back(std::move(job));
  return jobs_.back().get();
}

void Engine::sync_jobs(const ClusterView& view, const Index& index) {
  std::erase_if(malformed_, [&](uint32_t id) { return !index.contains(id); });
  for (const JobRecord& record : view.jobs) {
    newest_job_id_ = std::max(newest_job_id_, record.job_id);
    if (!record.admin_comment.empty()) adopt(record);
  }
  // By number: transitions do not add jobs.
  for (const auto& job : jobs_) {
    const auto found = index.find(job->row.key.job_id);
    sync_base(*job, found == index.end() ? nullptr : found->second);
    sync_companions(*job, index);
  }
}

void Engine::sync_base(ManagedJob& job, const JobRecord* record) {
  const bool same_run = record != nullptr && record->submit_time == job.row.key.submit_time &&
                        record->restart_count == job.row.key.restart_count;
  if (same_run && !has_ended(record)) {
    job.record = *record;
    follow_smaller_base(job);
    return;
  }
  if (job.state == ElasticState::kEnded) return;
  if (job.state != ElasticState::kEnding) {
    std::string why = "the job has ended";
    if (record != nullptr && (record->requeued || record->state == JobState::kPending)) {
      why = "the job was requeued";
    }
    job.row.end_time = now();
    if (same_run) {
      job.row.exit_code = record->exit_code;
      if (record->end_time > 0) job.row.end_time = std::min(record->end_time, now());
    }
    job.row.end_reason = why;
    job.row.registered = false;
    apply(job, ElasticEvent::kBaseEnded, why);
  }
}

// Its owner gave nodes of the base up (scontrol update NumNodes=). The agent finds out when its
// trainer dies, and registers anew with what is left.
void Engine::follow_smaller_base(ManagedJob& job) {
  const int gpus = job.record.gpus_allocated;
  if (gpus <= 0 || gpus >= job.row.base_gpus || finished(job.state)) return;
  const std::string why = fmt::format("its base has {} of its {} GPUs left: nodes were given up",
                                      gpus, job.row.base_gpus);
  log_info("job {}: {}", job.row.key.job_id, why);
  job.row.base_gpus = gpus;
  job.row.max_gpus = most_gpus(job.request, gpus, config_);
  const std::vector<std::string>& nodes = job.record.nodes;
  std::erase_if(job.registration.allocations, [&](const protocol::Allocation& allocation) {
    return std::find(nodes.begin(), nodes.end(), allocation.host) == nodes.end();
  });
  persist(job);
  // What was decided counts on the GPUs that are gone. An order that the agent has is left to it.
  if (!job.ordered.empty()) return;
  job.counts_as_failure = false;
  if (job.state == ElasticState::kCompanionsPending) {
    apply(job, ElasticEvent::kCompanionsFailed, why);
  } else if (ordered(job.state)) {
    apply(job, ElasticEvent::kSwitchFailed, why);
  }
  job.counts_as_failure = true;
}

void Engine::sync_companions(ManagedJob& job, const Index& index) {
  for (auto& [id, companion] : job.companions) {
    const auto found = index.find(id);
    sync_companion(job, companion, found == index.end() ? nullptr : found->second);
  }
  drop_ended_companions(job);
}

void Engine::sync_companion(ManagedJob& job, Companion& companion, const JobRecord* record) {
  store::CompanionRow& row = companion.row;
  const store::CompanionRow before = row;
  if (record == nullptr && first_look_ && row.state != kCompanionEnded) {
    // Stored as alive, and unknown to a slurmctld that keeps ended jobs for minutes.
    no_growth_before_ = now() + kLostJobsPause;
  }
  if (record == nullptr || record->state == JobState::kEnded) {
    row.end_time = record != nullptr && record->end_time > 0 ? record->end_time : now();
    if (row.end_reason.empty()) row.end_reason = "ended by itself";
    row.state = kCompanionEnded;
  } else if (record->state == JobState::kCompleting) {
    // Its GPUs are not free yet, and it is of no use any more.
    companion.started = true;
    if (!companion.leaving()) row.end_reason = "ended by itself";
  } else if (record->state != JobState::kPending) {
    companion.started = true;
    row.start_time = record->start_time;
    if (record->end_time > 0) row.lease_end = record->end_time;
    if (row.state == kCompanionSubmitted) row.state = kCompanionRunning;
  }
  const bool gone = record == nullptr || record->state == JobState::kEnded ||
                    record->state == JobState::kCompleting;
  if (row.state != before.state || row.lease_end != before.lease_end ||
      row.start_time != before.start_time) {
    note_error(store_.put_companion(row), "storing a companion");
  }
  if (!gone || before.state == kCompanionLeaving || before.state == kCompanionEnded) return;
  // Lost unasked.
  if (row.state != kCompanionEnded) {
    row.state = kCompanionLeaving;
    companion.cancel_sent = true;  // it is completing already
    note_error(store_.put_companion(row), "storing a companion");
  }
  const std::string why =
      fmt::format("companion {} on {} {}", row.job_id, row.node, row.end_reason);
  if (job.state == ElasticState::kCompanionsPending && job.of_intent(companion)) {
    apply(job, ElasticEvent::kCompanionsFailed, why);
  } else if (job.state == ElasticState::kSwitching && job.of_intent(companion) &&
             job.ordered.empty()) {
    apply(job, ElasticEvent::kSwitchFailed, why);  // the agent has not had the order yet
  } else if (job.uses(row.job_id)) {
    apply(job, ElasticEvent::kCompanionLost, why);
  }
}

void Engine::drop_ended_companions(ManagedJob& job) {
  const size_t before = job.companions.size();
  std::erase_if(job.companions,
                [](const auto& entry) { return entry.second.row.state == kCompanionEnded; });
  if (job.companions.size() == before) return;
  // What the trainer uses can only be what there is.
  std::erase_if(job.trainer, [&](const protocol::Allocation& allocation) {
    return allocation.job_id != job.row.key.job_id && !job.companions.contains(allocation.job_id);
  });
  wants_tick_ = true;
  persist(job);
  if (!job.any_leaving()) apply(job, ElasticEvent::kReleased, job.why);
}

// Companions in Slurm that no run claims: submitted just before a crash, or of a base that is gone.
void Engine::sweep_orphans(const ClusterView& view) {
  for (const JobRecord& record : view.jobs) {
    const auto tag = protocol::companion_from_comment(record.admin_comment);
    if (!tag || record.state == JobState::kEnded || record.state == JobState::kCompleting) continue;
    const bool claimed = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return job->companions.contains(record.job_id);
    });
    if (claimed) continue;
    ManagedJob* job = current(tag->base_job_id);
    if (job != nullptr && job->state == ElasticState::kCompanionsPending && job->intent &&
        job->intent->id == tag->intent_id) {
      for (const policy::NodeOffer& offer : offers_from_json(job->intent->take)) {
        const bool here = record.required_nodes == offer.node ||
                          (!record.nodes.empty() && record.nodes.front() == offer.node);
        const bool taken =
            std::any_of(job->companions.begin(), job->companions.end(),
                        [&](const auto& entry) { return entry.second.row.node == offer.node; });
        if (!here || taken) continue;
        Companion companion;
        companion.row = {.cluster = job->row.key.cluster,
                         .job_id = record.job_id,
                         .submit_time = record.submit_time,
                         .base = job->row.key,
                         .intent_id = tag->intent_id,
                         .node = offer.node,
                         .gpus = offer.gpus,
                         .state = std::string(kCompanionSubmitted),
                         .fingerprint = "",
                         .registration = {},
                         .start_time = 0,
                         .lease_end = 0,
                         .end_time = 0,
                         .end_reason = ""};
        log_info("job {}: companion {} found again", job->row.key.job_id, record.job_id);
        sync_companion(*job, job->companions.emplace(record.job_id, companion).first->second,
                       &record);
        note_error(store_.put_companion(job->companions.at(record.job_id).row),
                   "storing a companion");
        break;
      }
      if (job->companions.contains(record.job_id)) continue;
    }
    log_warning("companion {} of job {} belongs to nobody: cancelled", record.job_id,
                tag->base_job_id);
    note_error(cluster_.cancel(record.job_id), "cancelling an orphaned companion");
  }
}

void Engine::check_agent(ManagedJob& job) {
  if (finished(job.state) || !job.row.registered) return;
  const bool suspended = job.record.state == JobState::kSuspended;
  // A suspended one cannot speak, and on its base it keeps nothing from anybody. Companions it
  // would hold unused for as long as it sleeps.
  if (suspended && job.companions.empty()) job.last_heard = now();
  if (now() - job.last_heard <= config_.agent_timeout) return;
  job.row.registered = false;
  apply(job, ElasticEvent::kAgentGone,
        fmt::format("{} for {} s",
                    suspended ? "the job has been suspended" : "its agent has been silent",
                    now() - job.last_heard));
}

void Engine::check_deadline(ManagedJob& job) {
  if (job.deadline == 0 || now() < job.deadline) return;
  std::string why = "it took too long";
  switch (job.state) {
    case ElasticState::kCompanionsPending: {
      why = fmt::format("not all companions were ready within {} s:",
                        config_.companion_start_timeout);
      for (const auto& [id, companion] : job.companions) {
        if (job.of_intent(companion)) {
          why += fmt::format(
              " {} on {} is {}{};", id, companion.row.node, companion.row.state,
              companion.row.state == kCompanionRegistered && companion.row.fingerprint.empty()
                  ? " without a fingerprint"
                  : "");
        }
      }
      why.pop_back();
      break;
    }
    case ElasticState::kSwitching:
      why = job.ordered.empty()
                ? "the agent did not fetch the order"
                : fmt::format("the agent did not confirm within {} s", config_.grow_timeout);
      break;
    case ElasticState::kShrinking:
      why = fmt::format("the agent did not confirm within {} s; the companions are cancelled",
                        config_.shrink_timeout);
      break;
    case ElasticState::kRecovering:
      why = "the agent did not report after the loss of a companion";
      break;
    case ElasticState::kStarting:
      why = "no agent has registered";
      break;
    default:
      break;
  }
  apply(job, ElasticEvent::kDeadline, why);
  if (job.state == ElasticState::kStarting) job.deadline = deadline_of(job);
}

// The trainer says for a while that it runs at the base's size although companions are booked as
// used: an agent that was started anew inside its job knows nothing of them.
void Engine::check_size(ManagedJob& job) {
  if (job.size_mismatch_since == 0 || job.state != ElasticState::kSteady) return;
  if (now() - job.size_mismatch_since < config_.agent_timeout / 3) return;
  job.reported = job.registration.allocations;
  apply(job, ElasticEvent::kTrainerMoved, "the trainer runs without its companions");
}

void Engine::renew_leases(const ClusterView& view) {
  const auto planned = planned_starts(view);
  for (const auto& job : jobs_) {
    if (finished(job->state) || job->state == ElasticState::kStarting) continue;
    for (auto& [id, companion] : job->companions) {
      if (companion.leaving() || !companion.started) continue;
      int64_t end = extended_lease(
          view.now, companion.row.start_time, companion.row.lease_end,
          lease_cap(view, planned, companion.row.node, job->record.reservation), config_);
      if (end == 0 && shorten_leases_) {
        end = shortened_lease(view.now, companion.row.start_time, companion.row.lease_end, config_);
      }
      if (end == 0) continue;
      const Status status = cluster_.set_time_limit(id, end - companion.row.start_time);
      note_error(status, "renewing a lease");
      if (status.ok()) {
        companion.row.lease_end = end;
        note_error(store_.put_companion(companion.row), "storing a companion");
      }
    }
  }
  shorten_leases_ = false;
}

// Companions whose lease runs out because a pending job is planned on their node: the trainer
// leaves in good order before Slurm ends them. Jobs that already have a decision are left to it.
std::vector<policy::Decision> Engine::lease_shrinks(
    const policy::Snapshot& snapshot, const std::vector<policy::Decision>& decisions) {
  std::vector<policy::Decision> shrinks;
  for (const auto& job : jobs_) {
    if (!not_steady_reason(*job).empty()) continue;
    const bool decided =
        std::any_of(decisions.begin(), decisions.end(), [&](const policy::Decision& decision) {
          return decision.job_id == job->row.key.job_id &&
                 decision.kind == policy::DecisionKind::kShrink;
        });
    if (decided) continue;
    policy::Decision shrink;
    double soonest = 0;
    int gpus = 0;
    for (const auto& [id, companion] : job->companions) {
      const auto left = static_cast<double>(companion.row.lease_end - snapshot.now);
      if (!job->uses(id) || companion.leaving() || companion.row.lease_end == 0) continue;
      if (left >= static_cast<double>(config_.renew_seconds)) continue;  // renewed or not yet due
      // The save itself, two looks, and the signal Slurm would send otherwise.
      const double needed = std::max(job->row.shrink_overhead_seconds, 10.0) +
                            2.0 * static_cast<double>(config_.tick_seconds) +
                            static_cast<double>(config_.companion_signal_seconds);
      if (left > needed) continue;
      shrink.give_back.push_back(id);
      gpus += companion.row.gpus;
      soonest = shrink.give_back.size() == 1 ? left : std::min(soonest, left);
    }
    if (shrink.give_back.empty()) continue;
    shrink.kind = policy::DecisionKind::kShrink;
    shrink.job_id = job->row.key.job_id;
    shrink.from_gpus = job->held_gpus();
    const int rest = shrink.from_gpus - gpus;
    const auto best = job->table.best_within(rest);
    shrink.to_gpus = std::max(job->row.base_gpus, best ? best->gpus : rest);
    shrink.rule = "lease-end";
    shrink.inputs = {{"left", soonest}, {"G", gpus}};
    shrink.formula = "left < time to leave";
    shrink.reason = fmt::format(
        "leases of {} companions end in {:.0f} s and are not renewed: a pending job or a "
        "reservation "
        "is planned on their nodes",
        shrink.give_back.size(), soonest);
    shrinks.push_back(std::move(shrink));
  }
  return shrinks;
}

// Where elasticity was switched off every job goes back to its base.
std::vector<policy::Decision> Engine::forced_shrinks() const {
  std::vector<policy::Decision> shrinks;
  for (const auto& job : jobs_) {
    const std::string off = off_reason(*job);
    if (off.empty() || !not_steady_reason(*job).empty()) continue;
    if (job->held_gpus() == job->row.base_gpus) continue;
    policy::Decision shrink;
    shrink.kind = policy::DecisionKind::kShrink;
    shrink.job_id = job->row.key.job_id;
    shrink.from_gpus = job->held_gpus();
    shrink.to_gpus = job->row.base_gpus;
    for (const auto& [id, companion] : job->companions) {
      if (job->uses(id)) shrink.give_back.push_back(id);
    }
    shrink.rule = "disabled";
    shrink.reason = off;
    shrinks.push_back(std::move(shrink));
  }
  return shrinks;
}

// A growth whose companions are not all there yet costs nothing to give up; a job that waits for
// these very nodes goes first.
void Engine::give_up_growths(const policy::Snapshot& snapshot) {
  for (const auto& job : jobs_) {
    if (job->state != ElasticState::kCompanionsPending || !job->intent) continue;
    if (const std::string off = off_reason(*job); !off.empty()) {
      job->counts_as_failure = false;
      apply(*job, ElasticEvent::kCompanionsFailed, off);
      continue;
    }
    for (const policy::WaitingJob& waiting : snapshot.waiting) {
      if (fits(waiting, waiting.offers)) continue;
      // Only where it helps: a job that could not start all the same takes nothing away.
      std::vector<policy::NodeOffer> offers = waiting.offers.items();
      bool wants = false;
      for (const policy::NodeOffer& take : offers_from_json(job->intent->take)) {
        if (std::find(waiting.usable_nodes.begin(), waiting.usable_nodes.end(), take.node) ==
            waiting.usable_nodes.end()) {
          continue;
        }
        wants = true;
        const auto offer =
            std::find_if(offers.begin(), offers.end(),
                         [&](const policy::NodeOffer& o) { return o.node == take.node; });
        if (offer == offers.end()) {
          offers.push_back(take);
        } else {
          offer->gpus += take.gpus;
        }
      }
      if (!wants || !fits(waiting, offers)) continue;
      job->counts_as_failure = false;
      apply(*job, ElasticEvent::kCompanionsFailed,
            fmt::format("job {} waits for {} GPUs", waiting.job_id, waiting.gpus));
      break;
    }
  }
}

}  // namespace flextrain::slurm_plugin
