// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/core.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "slurm_plugin/cluster/gres_text.h"
#include "slurm_plugin/sched/plugin_core.h"
#include "slurm_plugin/sched/slurm_internal.h"
#include "slurm_plugin/spank/transport.h"
#include "slurm_plugin/submit/elastic_check.h"

namespace flextrain::slurm_plugin {
namespace {

std::string text(const char* value) { return value ? value : ""; }

int given(uint32_t value) {
  return value == NO_VAL || value == INFINITE ? 0 : static_cast<int>(value & 0x7fffffff);
}
int given16(uint16_t value) { return value == NO_VAL16 || value == INFINITE16 ? 0 : value; }

// The value of `name` in the job control environment; some releases put "SPANK_" before it.
std::optional<std::string> control_value(const job_desc_msg_t& job, const char* name) {
  const std::string wanted = std::string(name) + "=";
  for (uint32_t i = 0; job.spank_job_env && i < job.spank_job_env_size; ++i) {
    const std::string line = text(job.spank_job_env[i]);
    std::string_view rest = line;
    if (rest.starts_with("SPANK_")) rest.remove_prefix(6);
    if (rest.starts_with(wanted)) return std::string(rest.substr(wanted.size()));
  }
  return std::nullopt;
}

Submission submission_of(const job_desc_msg_t& job, uint32_t submit_uid) {
  Submission submission;
  submission.elastic = control_value(job, kElasticName);
  submission.elastic_max = control_value(job, kElasticMaxName);
  submission.batch = job.script != nullptr || job.script_buf != nullptr;
  submission.heterogeneous = job.het_job_offset != NO_VAL;
  const std::string per_job = text(job.tres_per_job), per_node = text(job.tres_per_node),
                    per_socket = text(job.tres_per_socket), per_task = text(job.tres_per_task);
  submission.gpus = requested_gpus({.per_job = per_job,
                                    .per_node = per_node,
                                    .per_socket = per_socket,
                                    .per_task = per_task,
                                    .nodes = given(job.min_nodes),
                                    .tasks = given(job.num_tasks),
                                    .tasks_per_node = given16(job.ntasks_per_node),
                                    .sockets_per_node = given16(job.sockets_per_node)})
                        .count;
  std::string partition = text(job.partition);
  if (partition.empty() && &default_part_name) partition = text(default_part_name);
  for (const std::string& name : split(partition, ',')) {
    if (!name.empty()) submission.partitions.push_back(name);
  }
  submission.admin_comment = text(job.admin_comment);
  submission.privileged = submit_uid == 0 || submit_uid == slurm_conf.slurm_user_id;
  return submission;
}

void replace(char*& field, const std::string& value) {
  slurm_xfree(reinterpret_cast<void**>(&field));
  field = slurm_xstrdup(value.c_str());
}

}  // namespace
}  // namespace flextrain::slurm_plugin

using namespace flextrain;
using namespace flextrain::slurm_plugin;

// One fault of ours must never be one of slurmctld's.
template <typename Function>
static int guarded(const char* what, int on_fault, Function&& function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    slurm_error("flextrain: %s: %s", what, error.what());
  } catch (...) {
    slurm_error("flextrain: %s: unknown fault", what);
  }
  return on_fault;
}

int flextrain_core_sched_init() noexcept {
  return guarded("start", SLURM_ERROR, [] {
    PluginCore& core = PluginCore::instance();
    core.read_settings(text(slurm_conf.slurm_conf));
    if (core.start_scheduling({text(slurm_conf.cluster_name), text(slurm_conf.slurm_conf),
                               slurm_conf.slurm_user_id})) {
      return SLURM_SUCCESS;
    }
    log_error("neither InnerScheduler nor sched/backfill could be loaded");
    return SLURM_ERROR;
  });
}

void flextrain_core_sched_fini() noexcept {
  guarded("stop", SLURM_SUCCESS, [] {
    PluginCore::instance().stop_scheduling();
    return SLURM_SUCCESS;
  });
}

int flextrain_core_sched_reconfig() noexcept {
  return guarded("reconfigure", SLURM_SUCCESS, [] {
    PluginCore& core = PluginCore::instance();
    core.read_settings(text(slurm_conf.slurm_conf));
    return core.reconfigure();
  });
}

int flextrain_core_submit_init() noexcept {
  return guarded("start of job_submit", SLURM_SUCCESS, [] {
    PluginCore::instance().read_settings(text(slurm_conf.slurm_conf));
    return SLURM_SUCCESS;
  });
}

int flextrain_core_job_submit(job_desc_msg_t* job, uint32_t submit_uid, char** message) noexcept {
  return guarded("job_submit", SLURM_SUCCESS, [&]() -> int {
    PluginCore& core = PluginCore::instance();
    const Verdict verdict = check_submission(submission_of(*job, submit_uid), core.settings());
    if (!verdict.refusal.empty()) {
      if (message) *message = slurm_xstrdup(verdict.refusal.c_str());
      return EINVAL;
    }
    if (verdict.admin_comment) replace(job->admin_comment, *verdict.admin_comment);
    if (!verdict.note.empty() && message) *message = slurm_xstrdup(verdict.note.c_str());
    if (verdict.wake) core.wake();
    return SLURM_SUCCESS;
  });
}

int flextrain_core_job_modify(job_desc_msg_t* change, uint32_t update_uid) noexcept {
  return guarded("job_modify", SLURM_SUCCESS, [&]() -> int {
    PluginCore& core = PluginCore::instance();
    if (change->admin_comment) {
      const std::string job =
          change->job_id_str ? change->job_id_str : std::to_string(change->job_id);
      if (const auto kept = keep_token(change->admin_comment, core.tokens().token_of(job))) {
        replace(change->admin_comment, *kept);
      }
    }
    // A job may now need more or fewer GPUs, or be released. SlurmUser is the controller itself.
    if (update_uid != slurm_conf.slurm_user_id) core.wake();
    return SLURM_SUCCESS;
  });
}
