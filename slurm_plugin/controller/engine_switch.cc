// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that carries decisions out: companions, orders, and what follows a report.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "slurm_plugin/controller/companion_request.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

// The agent rolls back by itself when an order's time is over; its word of that comes first.
constexpr int64_t kReportSlackSeconds = 10;

int gpus_of(const std::vector<protocol::Allocation>& allocations) {
  int gpus = 0;
  for (const protocol::Allocation& allocation : allocations) gpus += allocation.gpus;
  return gpus;
}

// The newest measurement counts half: overheads drift with the model's size and the file system.
void blend(double& average, double measured) {
  if (measured <= 0) return;
  average = average <= 0 ? measured : 0.5 * (average + measured);
}

}  // namespace

int64_t Engine::deadline_of(const ManagedJob& job) const {
  switch (job.state) {
    case ElasticState::kStarting:
      return now() + config_.agent_timeout;
    case ElasticState::kCompanionsPending:
      return now() + config_.companion_start_timeout;
    case ElasticState::kSwitching:
      // GPUs that nobody uses yet: an agent that lives has fetched the order long before.
      if (job.ordered.empty()) {
        return now() + std::min(config_.grow_timeout, config_.agent_timeout) + kReportSlackSeconds;
      }
      return now() + config_.grow_timeout + kReportSlackSeconds;
    case ElasticState::kShrinking:
      return now() + config_.shrink_timeout + kReportSlackSeconds;
    case ElasticState::kReleasing:
    case ElasticState::kRollingBack:
    case ElasticState::kRecovering:
    case ElasticState::kEnding:
      return now() + config_.shrink_timeout;
    case ElasticState::kSteady:
    case ElasticState::kEnded:
      return 0;
  }
  return 0;
}

void Engine::apply(ManagedJob& job, ElasticEvent event, std::string why) {
  const Transition transition = elastic_transition(job.state, event);
  if (transition.next == job.state && transition.actions.empty()) {
    job.counts_as_failure = true;
    return;
  }
  log_info("job {}: {} --{}--> {}{}{}", job.row.key.job_id, elastic_state_name(job.state),
           elastic_event_name(event), elastic_state_name(transition.next), why.empty() ? "" : ": ",
           why);
  const bool moved = transition.next != job.state;
  job.state = transition.next;
  job.why = std::move(why);
  if (moved || event == ElasticEvent::kDeadline) job.deadline = deadline_of(job);
  job.row.state = elastic_state_name(job.state);
  job.row.state_reason = job.why;
  if (job.intent) {
    job.intent->stage = job.row.state;
    job.intent->deadline = job.deadline;
    job.intent->updated = now();
  }
  // Every action changes memory and rows only, except those that end in an RPC; these may be
  // repeated. So the new state is stored before them, and again with what they did.
  persist(job);
  for (const ElasticAction action : transition.actions) act(job, action);
  job.counts_as_failure = true;
  cancel_leaving(job);
  persist(job);
  // Nothing to wait for.
  if (!job.any_leaving() &&
      (job.state == ElasticState::kReleasing || job.state == ElasticState::kRollingBack ||
       job.state == ElasticState::kEnding)) {
    apply(job, ElasticEvent::kReleased, job.why);
  }
}

void Engine::act(ManagedJob& job, ElasticAction action) {
  switch (action) {
    case ElasticAction::kSubmitCompanions:
      submit_companions(job);
      return;
    case ElasticAction::kSendOrder:
      send_order(job);
      return;
    case ElasticAction::kAdoptSize:
      adopt_size(job);
      return;
    case ElasticAction::kReleaseIntent:
      for (auto& [id, companion] : job.companions) {
        if (job.of_intent(companion)) leave(job, companion);
      }
      return;
    case ElasticAction::kReleaseGivenBack:
      for (const uint32_t id : job.given_back()) {
        if (const auto found = job.companions.find(id); found != job.companions.end()) {
          leave(job, found->second);
        }
      }
      return;
    case ElasticAction::kReleaseUnused:
      for (auto& [id, companion] : job.companions) {
        if (!job.uses(id)) leave(job, companion);
      }
      return;
    case ElasticAction::kReleaseAll:
      for (auto& [id, companion] : job.companions) leave(job, companion);
      return;
    case ElasticAction::kFinishDone:
      finish_intent(job, "done");
      return;
    case ElasticAction::kFinishRolledBack:
      finish_intent(job, "rolled-back");
      return;
    case ElasticAction::kFinishFailed:
      finish_intent(job, "failed");
      return;
    case ElasticAction::kCloseJob:
      close(job);
      return;
  }
}

void Engine::submit_companions(ManagedJob& job) {
  if (!job.intent) return;
  for (const policy::NodeOffer& offer : offers_from_json(job.intent->take)) {
    const bool there =
        std::any_of(job.companions.begin(), job.companions.end(), [&](const auto& entry) {
          return job.of_intent(entry.second) && entry.second.row.node == offer.node;
        });
    if (there) continue;
    const CompanionRequest request =
        make_companion_request(job.record, job.registration, offer, job.intent->id, config_, now());
    const Result<uint32_t> id = cluster_.submit_companion(request);
    if (!id.ok()) {
      // Seen by check_companions at once: one is missing that nobody will submit.
      job.why = fmt::format("the companion on {} could not be submitted: {}", offer.node,
                            id.status().message());
      note_error(id.status(), "submitting a companion");
      apply(job, ElasticEvent::kCompanionsFailed, job.why);
      return;
    }
    Companion companion;
    companion.row.cluster = job.row.key.cluster;
    companion.row.job_id = *id;
    const Result<JobRecord> record = cluster_.job(*id);
    companion.row.submit_time = record.ok() ? record->submit_time : now();
    companion.row.base = job.row.key;
    companion.row.intent_id = job.intent->id;
    companion.row.node = offer.node;
    companion.row.gpus = offer.gpus;
    companion.row.state = kCompanionSubmitted;
    note_error(store_.put_companion(companion.row), "storing a companion");
    log_info("job {}: companion {} submitted for {} GPUs on {}", job.row.key.job_id, *id,
             offer.gpus, offer.node);
    job.companions[*id] = std::move(companion);
  }
}

// Whether a pending growth can go on, must wait or has failed.
void Engine::check_companions(ManagedJob& job) {
  if (job.state != ElasticState::kCompanionsPending || !job.intent) return;
  size_t ready = 0;
  for (auto& [id, companion] : job.companions) {
    if (!job.of_intent(companion) || companion.row.state != kCompanionRegistered) continue;
    if (job.registration.numerics == "exact") {
      if (companion.row.fingerprint.empty() || job.row.fingerprint.empty()) continue;
      if (companion.row.fingerprint != job.row.fingerprint) {
        companion.row.end_reason = "numerics fingerprint differs";
        apply(job, ElasticEvent::kCompanionsFailed,
              fmt::format("companion {} on {} has the numerics fingerprint '{}', the job has '{}': "
                          "numerics = exact would not hold",
                          id, companion.row.node, companion.row.fingerprint, job.row.fingerprint));
        return;
      }
    }
    ++ready;
  }
  if (ready == offers_from_json(job.intent->take).size()) {
    job.companions_seconds = static_cast<double>(now() - job.intent->created);
    apply(job, ElasticEvent::kCompanionsReady, "");
  }
}

Result<protocol::Order> Engine::build_order(ManagedJob& job) const {
  protocol::Order order;
  const bool grow = job.intent->kind == "grow";
  order.kind = grow ? protocol::OrderKind::kGrow : protocol::OrderKind::kShrink;
  order.order_id = job.intent->id;
  order.timeout_seconds = static_cast<int>(grow ? config_.grow_timeout : config_.shrink_timeout);
  order.allocations = job.registration.allocations;
  const std::set<uint32_t> given_back = job.given_back();
  for (const auto& [id, companion] : job.companions) {
    const bool joins = job.of_intent(companion);
    if (companion.leaving() || given_back.contains(id) || !(job.uses(id) || joins)) continue;
    if (companion.allocations.empty()) {
      order.allocations.push_back({id, companion.row.node, companion.row.gpus, ""});
    } else {
      order.allocations.insert(order.allocations.end(), companion.allocations.begin(),
                               companion.allocations.end());
    }
  }
  // The Plan is for exactly to_gpus. A table without an entry for all that is left leaves some
  // GPUs of the last companions out.
  int surplus = gpus_of(order.allocations) - job.intent->to_gpus;
  while (surplus > 0 && order.allocations.size() > 1) {
    protocol::Allocation& last = order.allocations.back();
    if (last.job_id == job.row.key.job_id) break;
    const int less = std::min(surplus, last.gpus);
    last.gpus -= less;
    surplus -= less;
    if (last.gpus == 0) order.allocations.pop_back();
  }
  if (surplus != 0) {
    return internal_error("the allocations hold {} GPUs, the decision was for {}",
                          gpus_of(order.allocations), job.intent->to_gpus);
  }
  order.plan = job.intent->plan;
  return order;
}

void Engine::send_order(ManagedJob& job) {
  if (!job.intent) return;
  if (job.intent->sequence == 0) {
    const Result<int64_t> sequence = store_.next_sequence();
    note_error(sequence.status(), "taking an order's sequence");
    // Agents compare sequences within one epoch only: without the store, memory is enough.
    // When the store is back it counts on from where it failed: never a number that was used.
    last_sequence_ = std::max(last_sequence_ + 1, sequence.value_or(0));
    job.intent->sequence = last_sequence_;
  }
  persist(job);
  offer_order(job);
}

// Hands the open order to the agent's long poll, when one waits and has not had it.
void Engine::offer_order(ManagedJob& job) {
  if (!ordered(job.state) || !job.intent || job.intent->sequence == 0) return;
  if (!job.parked.reply || job.parked.last_sequence >= job.intent->sequence) return;
  const Result<protocol::Order> order = build_order(job);
  if (!order.ok()) {
    note_error(order.status(), fmt::format("ordering job {}", job.row.key.job_id));
    return;
  }
  const bool first = job.ordered.empty();
  job.ordered = order->allocations;
  if (first && job.state == ElasticState::kSwitching) {  // its own time begins now
    job.deadline = job.intent->deadline = deadline_of(job);
    persist(job);
  }
  protocol::Envelope response = response_to(identity_of(job));
  response.sequence = job.intent->sequence;
  response.body = protocol::to_json(*order);
  log_info("job {}: order {} to {} {} → {} GPUs", job.row.key.job_id, job.intent->sequence,
           job.intent->kind, job.intent->from_gpus, job.intent->to_gpus);
  job.parked.reply->send(std::move(response));
  job.parked.reply.reset();
}

void Engine::adopt_size(ManagedJob& job) {
  std::vector<protocol::Allocation> used = job.reported;
  if (used.empty() &&
      (job.state == ElasticState::kReleasing || job.state == ElasticState::kShrinking)) {
    used = job.ordered;
  }
  job.reported.clear();
  if (used.empty()) return;  // the report named nothing: as before
  job.trainer.clear();
  for (const protocol::Allocation& allocation : used) {
    const bool own = allocation.job_id == job.row.key.job_id;
    if (own || job.companions.contains(allocation.job_id)) job.trainer.push_back(allocation);
  }
  job.size_mismatch_since = 0;
}

void Engine::leave(ManagedJob& job, Companion& companion) {
  // What has ended does not leave again: its GPUs, free already, would count twice for a round.
  if (companion.leaving() || companion.row.state == kCompanionEnded) return;
  companion.row.state = kCompanionLeaving;
  if (companion.row.end_reason.empty()) companion.row.end_reason = job.why;
  note_error(store_.put_companion(companion.row), "storing a companion");
}

void Engine::cancel_leaving(ManagedJob& job) {
  for (auto& [id, companion] : job.companions) {
    if (!companion.leaving() || companion.cancel_sent) continue;
    if (companion.parked) {
      protocol::Envelope response =
          response_to({job.row.key.cluster, id, companion.row.submit_time, 0});
      protocol::Order order;
      order.kind = protocol::OrderKind::kRelease;
      response.body = protocol::to_json(order);
      companion.parked->send(std::move(response));
      companion.parked.reset();
    }
    const Status status = cluster_.cancel(id);
    note_error(status, "cancelling a companion");
    companion.cancel_sent = status.ok();  // else again at the next look
  }
}

void Engine::finish_intent(ManagedJob& job, std::string_view outcome) {
  if (!job.intent) return;
  const store::IntentRow& intent = *job.intent;
  const bool grow = intent.kind == "grow";
  store::ScalingRow row;
  row.job = job.row.key;
  row.intent_id = intent.id;
  row.kind = intent.kind;
  row.for_job = intent.for_job;
  row.from_gpus = intent.from_gpus;
  row.to_gpus = intent.to_gpus;
  row.begin = intent.created;
  row.end = now();
  row.outcome = outcome;
  ++counters_.scalings[{row.kind, row.outcome}];
  row.reason = outcome == "done" ? "" : job.why;
  row.phases = {job.companions_seconds, job.phases.save,       job.phases.stop, job.phases.launch,
                job.phases.load,        job.phases.first_step, job.phases.total};
  row.decision_id = intent.decision_id;
  if (outcome == "done") {
    blend(grow ? job.row.grow_overhead_seconds : job.row.shrink_overhead_seconds, job.phases.total);
    job.row.last_switch_time = now();
    std::erase_if(job.switch_times, [&](int64_t at) { return at <= now() - 3600; });
    job.switch_times.push_back(now());
    job.row.failures = 0;
    if (const Json& plan = intent.plan; plan.is_object() && plan.contains("id")) {
      if (plan.at("id").is_string()) job.row.plan_id = plan.at("id").get<std::string>();
    }
  } else if (job.counts_as_failure) {
    job.row.last_failure_time = now();
    ++job.row.failures;
  }
  const Result<int64_t> id = store_.finish_intent(intent.id, row);
  if (!id.ok() && id.status().code() != StatusCode::kNotFound) {
    note_error(id.status(), "storing the end of a scaling");
    keep_for_later(row);
  }
  log_info("job {}: {} {} → {} GPUs {}{}{}", job.row.key.job_id, intent.kind, intent.from_gpus,
           intent.to_gpus, outcome, row.reason.empty() ? "" : ": ", row.reason);
  job.intent.reset();
  job.ordered.clear();
  job.phases = {};
  job.companions_seconds = 0;
  wants_tick_ = true;
}

void Engine::close(ManagedJob& job) {
  for (auto& [id, companion] : job.companions) {
    companion.row.state = kCompanionEnded;
    companion.row.end_time = now();
    note_error(store_.put_companion(companion.row), "storing a companion");
  }
  job.companions.clear();
  job.row.end_time = job.row.end_time == 0 ? now() : job.row.end_time;
  job.registration = {};
  job.row.registration = Json();  // the environment is long and of no more use
  if (job.parked.reply) {
    job.parked.reply->send(protocol::error_response("the job has ended"));
    job.parked.reply.reset();
  }
}

}  // namespace flextrain::slurm_plugin
