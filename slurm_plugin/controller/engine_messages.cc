// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that answers what agents send.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/text.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

// Of few agents: below the 30 s that many middle boxes grant an idle connection.
constexpr int64_t kPollSeconds = 25;
// Of many: every message costs a quarter of a millisecond of slurmctld's process, most of it for
// its credential.
constexpr int64_t kPollsPerSecond = 4, kMostPollSeconds = 60;
constexpr int64_t kProgressPerSecond = 2, kMostProgressSeconds = 300;

bool same_size(const std::vector<protocol::Allocation>& a,
               const std::vector<protocol::Allocation>& b) {
  std::map<std::pair<uint32_t, std::string>, int> gpus;
  for (const protocol::Allocation& allocation : a) {
    gpus[{allocation.job_id, allocation.host}] += allocation.gpus;
  }
  for (const protocol::Allocation& allocation : b) {
    gpus[{allocation.job_id, allocation.host}] -= allocation.gpus;
  }
  return std::all_of(gpus.begin(), gpus.end(), [](const auto& entry) { return entry.second == 0; });
}

Status only_own(const std::vector<protocol::Allocation>& allocations, uint32_t job_id) {
  for (const protocol::Allocation& allocation : allocations) {
    if (allocation.job_id != job_id) {
      return invalid_argument("job {} registers GPUs of job {}", job_id, allocation.job_id);
    }
  }
  if (allocations.empty()) return invalid_argument("the registration names no allocation");
  return {};
}

}  // namespace

protocol::Envelope Engine::response_to(const protocol::JobIdentity& job) const {
  protocol::Envelope response;
  response.controller_epoch = epoch_;
  response.job = job;
  response.body = Json::object();
  return response;
}

void Engine::answer(const Request& request, Json body) const {
  protocol::Envelope response = response_to(request.envelope.job);
  response.body = std::move(body);
  request.reply->send(std::move(response));
}

void Engine::refuse(const Request& request, const Status& why) const {
  log_debug("{} of uid {} refused: {}", request.envelope.type, request.caller.uid, why.message());
  protocol::Envelope response = response_to(request.envelope.job);
  response.error = why.message();
  request.reply->send(std::move(response));
}

bool Engine::may_speak_for(const protocol::Caller& caller, uint32_t owner) const {
  return caller.uid == owner || caller.uid == 0 || caller.uid == options_.slurm_uid;
}

protocol::Envelope Engine::no_order(const protocol::JobIdentity& job) const {
  protocol::Envelope response = response_to(job);
  protocol::Order none;
  none.progress_seconds = progress_pace();
  response.body = protocol::to_json(none);
  return response;
}

// A lost poll must not look like a lost agent: two fit into AgentTimeout, three while there are few
// agents.
int Engine::poll_time() const {
  const int64_t few = std::min(kPollSeconds, config_.agent_timeout / 3);
  const auto many = std::min({static_cast<int64_t>(jobs_.size()) / kPollsPerSecond,
                              kMostPollSeconds, config_.agent_timeout / 2});
  return static_cast<int>(std::max(few, many));
}

int Engine::progress_pace() const {
  return static_cast<int>(
      std::min(static_cast<int64_t>(jobs_.size()) / kProgressPerSecond, kMostProgressSeconds));
}

void Engine::handle(const protocol::Envelope& envelope, const protocol::Caller& caller,
                    const protocol::ReplyPtr& reply) {
  mind_clock();
  dispatch({envelope, caller, reply});
  mind_deafness();
}

void Engine::dispatch(const Request& request) {
  const protocol::Envelope& envelope = request.envelope;
  const protocol::Caller& caller = request.caller;
  if (envelope.type == protocol::kCommand) {  // sflex names a job, not a run of one cluster
    handle_command(request);
    return;
  }
  // Slurm spells cluster names in lower case wherever it compares them.
  if (to_lower(envelope.job.cluster) != cluster_name()) {
    refuse(request, failed_precondition("this is the controller of cluster '{}', not of '{}'",
                                        cluster_name(), envelope.job.cluster));
    return;
  }
  if (envelope.controller_epoch > epoch_) {
    refuse(request, failed_precondition("the agent knows epoch {}, this controller is epoch {}",
                                        envelope.controller_epoch, epoch_));
    return;
  }
  if (envelope.type == protocol::kRegister) {
    handle_register(request);
    return;
  }
  ManagedJob* job = find(envelope.job);
  if (job != nullptr) {
    if (!may_speak_for(caller, job->row.user_id)) {
      refuse(request, permission_denied("job {} is not yours", envelope.job.job_id));
      return;
    }
    handle_base(request, *job);
    return;
  }
  for (const auto& base : jobs_) {
    const auto found = base->companions.find(envelope.job.job_id);
    if (found == base->companions.end() ||
        found->second.row.submit_time != envelope.job.submit_time) {
      continue;
    }
    if (!may_speak_for(caller, base->row.user_id)) break;
    handle_companion(request, *base, found->second);
    return;
  }
  // The same words for "unknown" and "another user's": neither may be probed.
  refuse(request, not_found("job {} is not registered here", envelope.job.job_id));
}

void Engine::handle_register(const Request& request) {
  auto body = protocol::from_json<protocol::RegisterRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  const protocol::JobIdentity& identity = request.envelope.job;
  if (const Status own = only_own(body->allocations, identity.job_id); !own.ok()) {
    refuse(request, own);
    return;
  }
  if (body->role == protocol::AgentRole::kCompanion) {
    handle_register_companion(request, *body);
    return;
  }
  ManagedJob* job = find(identity);
  protocol::RegisterResponse response;
  if (job == nullptr) {
    // Started since the last look, or not elastic at all.
    const Result<JobRecord> record = cluster_.job(identity.job_id);
    if (!record.ok()) {
      refuse(request, record.status());
      return;
    }
    if (!may_speak_for(request.caller, record->user_id)) {
      refuse(request, permission_denied("job {} is not yours", identity.job_id));
      return;
    }
    if (record->submit_time != identity.submit_time ||
        record->restart_count != identity.restart_count) {
      refuse(request, failed_precondition(
                          "job {} was submitted at {} (restart {}), the agent belongs to {} ({})",
                          identity.job_id, record->submit_time, record->restart_count,
                          identity.submit_time, identity.restart_count));
      return;
    }
    job = config_.enabled ? adopt(*record) : nullptr;
    if (job == nullptr) {
      const auto token = protocol::from_comment(record->admin_comment);
      response.reason = !config_.enabled ? "elasticity is off (Enabled=no in flextrain.conf)"
                        : !token.ok()    ? token.status().message()
                        : !*token        ? "submitted without --elastic"
                        : record->gpus_allocated <= 0 ? "the job has no GPUs"
                        : !elastic_partition(config_, record->partition)
                            ? fmt::format("elasticity is off in partition {}", record->partition)
                            : "the job does not run";
      answer(request, protocol::to_json(response));
      return;
    }
  } else if (!may_speak_for(request.caller, job->row.user_id)) {
    refuse(request, permission_denied("job {} is not yours", identity.job_id));
    return;
  }
  job->registration = *body;
  job->row.registration = request.envelope.body;
  job->row.registered = true;
  job->row.fingerprint = body->fingerprint;
  job->row.numerics = body->numerics;
  job->row.agent_version = body->agent_version;
  job->row.agent_path = body->agent_path;
  job->row.work_dir = body->work_dir;
  job->last_heard = now();
  apply(*job, ElasticEvent::kAgentRegistered, "");
  persist(*job);
  check_companions(*job);  // a growth may have waited for this fingerprint
  response.elastic = true;
  response.max_gpus = job->row.max_gpus;
  response.elastic_mode = job->row.mode;
  response.poll_seconds = job->poll_seconds = poll_time();
  response.progress_seconds = progress_pace();
  answer(request, protocol::to_json(response));
}

void Engine::handle_register_companion(const Request& request,
                                       const protocol::RegisterRequest& body) {
  const protocol::JobIdentity& identity = request.envelope.job;
  ManagedJob* job = current(body.base_job_id);
  const bool known = job != nullptr && job->companions.contains(identity.job_id) &&
                     may_speak_for(request.caller, job->row.user_id);
  if (!known) {
    protocol::RegisterResponse response;
    response.reason = fmt::format("job {} has no companion {}", body.base_job_id, identity.job_id);
    answer(request, protocol::to_json(response));
    return;
  }
  Companion& companion = job->companions.at(identity.job_id);
  if (companion.row.submit_time != identity.submit_time ||
      companion.row.intent_id != body.intent_id) {
    refuse(request,
           failed_precondition("companion {} is not the one that was submitted", identity.job_id));
    return;
  }
  companion.allocations = body.allocations;
  companion.row.registration = request.envelope.body;
  companion.row.fingerprint = body.fingerprint;
  companion.started = true;
  if (!companion.leaving()) companion.row.state = kCompanionRegistered;
  if (companion.row.start_time == 0) companion.row.start_time = now();
  note_error(store_.put_companion(companion.row), "storing a companion");
  protocol::RegisterResponse response;
  response.elastic = !companion.leaving();
  if (companion.leaving()) response.reason = companion.row.end_reason;
  response.max_gpus = job->row.max_gpus;
  response.elastic_mode = job->row.mode;
  response.poll_seconds = static_cast<int>(kPollSeconds);
  response.lease_seconds = static_cast<int>(config_.lease_seconds);
  answer(request, protocol::to_json(response));
  check_companions(*job);
}

void Engine::handle_base(const Request& request, ManagedJob& job) {
  const std::string& type = request.envelope.type;
  if (type == protocol::kBye) {
    handle_bye(request, job);
    return;
  }
  if (!job.row.registered) {
    refuse(request, failed_precondition("not registered: register again"));
    return;
  }
  job.last_heard = now();
  if (type == protocol::kScaleTable) {
    handle_scale_table(request, job);
  } else if (type == protocol::kProgress) {
    handle_progress(request, job);
  } else if (type == protocol::kPoll) {
    handle_poll(request, job);
  } else if (type == protocol::kReport) {
    handle_report(request, job);
  } else {
    refuse(request, invalid_argument("no such request: '{}'", type));
  }
}

void Engine::handle_scale_table(const Request& request, ManagedJob& job) {
  const auto body = protocol::from_json<protocol::ScaleTableRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  auto table = read_scale_table(body->table);
  if (!table.ok()) {
    refuse(request, table.status());
    return;
  }
  const Status stored = store_.put_scale_table({job.row.key, now(), body->table, body->profile});
  if (!stored.ok()) {
    note_error(stored, "storing a scale table");
    refuse(request, stored);  // the agent sends it again
    return;
  }
  log_info("job {}: scale table of {} sizes, {} kept", job.row.key.job_id, table->plans.size(),
           table->entries.size());
  job.table = std::move(table).value();
  news_ = true;
  answer(request, Json::object());
}

void Engine::handle_progress(const Request& request, ManagedJob& job) {
  const auto body = protocol::from_json<protocol::ProgressRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  take_progress(job, *body);
  answer(request, Json::object());
}

void Engine::take_progress(ManagedJob& job, const protocol::ProgressRequest& told) {
  job.progress = store::ProgressRow{job.row.key,       now(),     told.step,
                                    told.total_steps,  told.loss, told.tokens_per_second,
                                    told.step_seconds, told.gpus, told.plan_id,
                                    told.state};
  job.progress_dirty = true;
  if (!told.plan_id.empty()) job.row.plan_id = told.plan_id;
  const bool steps =
      told.state == protocol::kTrainerRunning || told.state == protocol::kTrainerSaving;
  const bool alone = told.gpus == job.row.base_gpus && steps &&
                     job.held_gpus() > job.row.base_gpus && job.state == ElasticState::kSteady;
  if (!alone) {
    job.size_mismatch_since = 0;
  } else if (job.size_mismatch_since == 0) {
    job.size_mismatch_since = now();
  }
}

void Engine::handle_poll(const Request& request, ManagedJob& job) {
  const auto body = protocol::from_json<protocol::PollRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  if (body->progress) take_progress(job, *body->progress);
  if (job.parked.reply) job.parked.reply->send(no_order(request.envelope.job));
  job.parked = {request.reply, body->last_sequence};
  request.reply->send_after(std::chrono::seconds(job.poll_seconds), no_order(request.envelope.job));
  offer_order(job);
}

void Engine::handle_report(const Request& request, ManagedJob& job) {
  const auto body = protocol::from_json<protocol::ReportRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  answer(request, Json::object());
  job.reported = body->allocations;
  if (job.intent && ordered(job.state) && body->order_id == job.intent->id) {
    // A shrink is reported twice: when the companions are free, and, with the whole pause measured,
    // after the first step at the new size.
    const bool left_only = job.state == ElasticState::kShrinking && body->phases.total <= 0;
    if (body->done) {
      if (!left_only) job.phases = body->phases;
      apply(job, left_only ? ElasticEvent::kTrainerLeft : ElasticEvent::kSwitchDone,
            job.intent->for_job == 0 ? std::string()
                                     : fmt::format("given back for job {}", job.intent->for_job));
    } else {
      apply(job, ElasticEvent::kSwitchFailed, "the agent rolled back: " + body->reason);
    }
    return;
  }
  if (body->allocations.empty() || same_size(body->allocations, job.trainer) ||
      (job.trainer.empty() && same_size(body->allocations, job.registration.allocations))) {
    // Nothing moved; but an agent that has recovered at its old size says so this way.
    if (job.state == ElasticState::kRecovering) {
      apply(job, ElasticEvent::kTrainerMoved, body->reason);
    }
    return;
  }
  // The trainer left the companions a shrink was about by itself (Slurm told them to go).
  if (job.state == ElasticState::kShrinking && job.intent) {
    const std::set<uint32_t> given_back = job.given_back();
    const bool left = std::none_of(
        body->allocations.begin(), body->allocations.end(),
        [&](const protocol::Allocation& used) { return given_back.contains(used.job_id); });
    if (left) {
      job.phases = body->phases;
      apply(job, ElasticEvent::kSwitchDone, body->reason);
      return;
    }
  }
  if (body->phases.total > 0 && body->done) job.row.last_switch_time = now();
  apply(job, ElasticEvent::kTrainerMoved,
        body->reason.empty() ? "the trainer changed its size by itself" : body->reason);
}

void Engine::handle_bye(const Request& request, ManagedJob& job) {
  const auto body = protocol::from_json<protocol::ByeRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  answer(request, Json::object());
  if (job.parked.reply) {
    job.parked.reply->send(no_order(request.envelope.job));
    job.parked.reply.reset();
  }
  job.row.registered = false;
  job.row.exit_code = body->exit_code;
  job.trainer.clear();
  job.counts_as_failure = body->exit_code != 0;  // work that is done is no failed switch
  apply(job, ElasticEvent::kAgentGone,
        fmt::format("its agent left with code {}{}{}", body->exit_code,
                    body->reason.empty() ? "" : ": ", body->reason));
  persist(job);
}

void Engine::handle_companion(const Request& request, ManagedJob& job, Companion& companion) {
  const std::string& type = request.envelope.type;
  if (type == protocol::kPoll) {
    if (companion.parked) companion.parked->send(no_order(request.envelope.job));
    companion.parked.reset();
    if (companion.leaving()) {
      protocol::Order order;
      order.kind = protocol::OrderKind::kRelease;
      answer(request, protocol::to_json(order));
      return;
    }
    companion.parked = request.reply;
    request.reply->send_after(std::chrono::seconds(kPollSeconds), no_order(request.envelope.job));
    return;
  }
  if (type == protocol::kBye) {
    const auto body = protocol::from_json<protocol::ByeRequest>(request.envelope.body);
    if (!body.ok()) {
      refuse(request, body.status());
      return;
    }
    answer(request, Json::object());
    log_info("job {}: companion {} says bye: {}", job.row.key.job_id, companion.row.job_id,
             body->reason);
    if (companion.row.end_reason.empty()) companion.row.end_reason = body->reason;
    wants_tick_ = true;
    return;
  }
  if (type == protocol::kProgress || type == protocol::kReport) {
    answer(request, Json::object());
    return;
  }
  refuse(request, invalid_argument("a companion sends no '{}'", type));
}

}  // namespace flextrain::slurm_plugin
