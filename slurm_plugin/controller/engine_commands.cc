// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that people speak to: who holds a job back from growing, and until when.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

bool is_of(const store::HoldRow& hold, const store::JobKey& key) {
  return hold.job_id == key.job_id && hold.submit_time == key.submit_time &&
         hold.cluster == key.cluster;
}

const store::HoldRow* find_hold(const std::vector<store::HoldRow>& holds,
                                const store::JobKey& key) {
  const auto found = std::find_if(holds.begin(), holds.end(),
                                  [&](const store::HoldRow& hold) { return is_of(hold, key); });
  return found == holds.end() ? nullptr : &*found;
}

}  // namespace

bool Engine::is_admin(uid_t uid) const { return uid == 0 || uid == options_.slurm_uid; }

// In the order in which a person would want to know.
Hold Engine::hold_of(const ManagedJob& job) const {
  const uint32_t id = job.row.key.job_id;
  if (const store::HoldRow* own = find_hold(holds_, job.row.key); own != nullptr) {
    return {"paused", fmt::format("{} paused job {}; `sflex resume {}` lets it grow again",
                                  own->user, id, id)};
  }
  if (const store::HoldRow* all = find_hold(holds_, all_jobs()); all != nullptr) {
    return {"paused",
            fmt::format("{} paused all jobs; `sflex resume all` lets them grow again", all->user)};
  }
  if (config_.max_scaling_failures > 0 && job.row.failures >= config_.max_scaling_failures) {
    return {"left-alone",
            fmt::format("{} switches of job {} failed in a row (MaxScalingFailures): it is left "
                        "alone until `sflex resume {}`",
                        job.row.failures, id, id)};
  }
  if (const std::string off = off_reason(job); !off.empty()) return {"switched-off", off};
  if (!store_fault_.empty()) {
    return {"database", fmt::format("no growth that cannot be recorded: {}", store_fault_)};
  }
  if (!hold_all_.rule.empty()) return hold_all_;
  if (now() < no_growth_before_) {
    return {"lost-companions",
            fmt::format("slurmctld lost companions when it was restarted: no growth for {} s, "
                        "until the nodes have ended them",
                        no_growth_before_ - now())};
  }
  return {};
}

// Why this job may hold nothing beyond its base, "" when it may.
std::string Engine::off_reason(const ManagedJob& job) const {
  if (!config_.enabled) return "elasticity was switched off (Enabled=no in flextrain.conf)";
  if (!elastic_partition(config_, job.record.partition)) {
    return fmt::format("elasticity was switched off in partition {} (Partitions in flextrain.conf)",
                       job.record.partition);
  }
  return "";
}

store::JobKey Engine::all_jobs() const { return {cluster_name(), 0, 0, 0}; }

void Engine::handle_command(const Request& request) {
  const auto body = protocol::from_json<protocol::CommandRequest>(request.envelope.body);
  if (!body.ok()) {
    refuse(request, body.status());
    return;
  }
  const uid_t uid = request.caller.uid;
  ManagedJob* job = nullptr;
  if (body->job_id == 0) {
    if (!is_admin(uid)) {
      refuse(request,
             permission_denied("only root and SlurmUser may {} all jobs; name one of yours",
                               body->action));
      return;
    }
  } else {
    job = current(body->job_id);
    if (job == nullptr || !may_speak_for(request.caller, job->row.user_id)) {
      refuse(request, not_found("there is no running elastic job {} of yours", body->job_id));
      return;
    }
  }
  // No look-up of names here: it may wait for a directory server.
  const std::string who = job != nullptr && uid == job->row.user_id ? job->row.user
                          : uid == 0                                ? "root"
                                                                    : "SlurmUser";
  const Result<std::string> done =
      body->action == "pause" ? pause(job, uid, who) : resume(job, uid, who);
  if (!done.ok()) {
    refuse(request, done.status());
    return;
  }
  log_info("{} (uid {}): {} {}: {}", who, uid, body->action,
           job == nullptr ? "all" : std::to_string(body->job_id), *done);
  wants_tick_ = true;
  answer(request, {{"message", *done}});
}

Result<std::string> Engine::pause(ManagedJob* job, uid_t uid, const std::string& who) {
  const store::JobKey key = job == nullptr ? all_jobs() : job->row.key;
  const std::string subject =
      job == nullptr ? "all jobs" : fmt::format("job {}", job->row.key.job_id);
  if (const store::HoldRow* old = find_hold(holds_, key);
      old != nullptr && (old->by_operator || !is_admin(uid))) {
    return fmt::format("{} had been paused by {} before", subject, old->user);
  }
  const store::HoldRow hold{
      key.cluster,   key.job_id, key.submit_time, static_cast<uint32_t>(uid), who,
      is_admin(uid), now()};
  RETURN_IF_ERROR(store_.transaction([&]() -> Status {
    RETURN_IF_ERROR(store_.put_hold(hold));
    return store_.record_decision(command_row("pause", job, uid, who)).status();
  }));
  std::erase_if(holds_, [&](const store::HoldRow& old) { return is_of(old, key); });
  holds_.push_back(hold);
  return fmt::format("{}: no growth until resumed; what is held is kept until others need it",
                     subject);
}

Result<std::string> Engine::resume(ManagedJob* job, uid_t uid, const std::string& who) {
  const store::JobKey key = job == nullptr ? all_jobs() : job->row.key;
  const store::HoldRow* old = find_hold(holds_, key);
  if (old != nullptr && old->by_operator && !is_admin(uid)) {
    return permission_denied("job {} was paused by the operator ({}): ask there", key.job_id,
                             old->user);
  }
  std::vector<ManagedJob*> failed;  // they may try again at once
  for (const auto& other : jobs_) {
    if ((job == nullptr || other.get() == job) && other->row.failures > 0) {
      failed.push_back(other.get());
    }
  }
  if (old == nullptr && failed.empty()) {
    const store::HoldRow* all = find_hold(holds_, all_jobs());
    if (job != nullptr && all != nullptr) {
      return failed_precondition("all jobs are paused by {}: only `sflex resume all` ends that",
                                 all->user);
    }
    return std::string("nothing to do: neither paused nor left alone");
  }
  RETURN_IF_ERROR(store_.transaction([&]() -> Status {
    RETURN_IF_ERROR(
        store_.remove_hold({key.cluster, key.job_id, key.submit_time, 0, "", false, 0}));
    for (const ManagedJob* one : failed) {
      store::ElasticJobRow row = one->row;
      row.failures = 0;
      RETURN_IF_ERROR(store_.put_job(row));
    }
    return store_.record_decision(command_row("resume", job, uid, who)).status();
  }));
  std::erase_if(holds_, [&](const store::HoldRow& hold) { return is_of(hold, key); });
  for (ManagedJob* one : failed) one->row.failures = 0;
  std::string text =
      job == nullptr ? "all jobs may grow again" : fmt::format("job {} may grow again", key.job_id);
  if (job == nullptr && !holds_.empty()) {
    text += fmt::format(", but the {} that were paused one by one", holds_.size());
  } else if (const store::HoldRow* all = find_hold(holds_, all_jobs()); all != nullptr) {
    text += fmt::format(" once {} has resumed all jobs", all->user);
  }
  return text;
}

// A requeue gives a job another submit time (and the next restart count): the hold goes with it.
void Engine::carry_hold(const store::JobKey& key, uint32_t user_id) {
  const auto old = std::find_if(holds_.begin(), holds_.end(), [&](const store::HoldRow& hold) {
    return hold.job_id == key.job_id && hold.cluster == key.cluster;
  });
  if (key.restart_count == 0 || old == holds_.end() || old->submit_time == key.submit_time) return;
  // A number that was given anew is somebody else's job, or at least no requeue of this one.
  const auto before = store_.queries().latest_job(key.job_id);
  if (!before.ok() || before->user_id != user_id || before->key.submit_time != old->submit_time) {
    return;
  }
  const store::HoldRow gone = *old;
  old->submit_time = key.submit_time;
  note_error(store_.transaction([&]() -> Status {
    RETURN_IF_ERROR(store_.remove_hold(gone));
    return store_.put_hold(*old);
  }),
             "storing a pause");
}

store::DecisionRow Engine::command_row(std::string_view action, const ManagedJob* job, uid_t uid,
                                       const std::string& who) const {
  store::DecisionRow row;
  row.kind = action;
  row.rule = "command";
  row.inputs = {{"uid", static_cast<double>(uid)}};
  row.first_time = row.last_time = now();
  if (job != nullptr) {
    row.job = job->row.key;
    row.user = job->row.user;
    row.from_gpus = row.to_gpus = job->held_gpus();
    row.inputs["failures"] = job->row.failures;
  }
  row.reason = fmt::format("{} (uid {}) said: {} {}", who, uid, action,
                           job == nullptr ? "all" : std::to_string(job->row.key.job_id));
  return row;
}

}  // namespace flextrain::slurm_plugin
