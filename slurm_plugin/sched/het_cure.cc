// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/het_cure.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "slurm_plugin/sched/slurm_internal.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr const char* kBackfill = "sched/backfill";
constexpr int kTries = 60;
constexpr auto kPause = std::chrono::milliseconds(500);

// Of slurm_errno.h's ranges: 1000 and 5000 are the transport's; 2000 is a verdict of slurmctld.
bool is_connection_error(int error) {
  return (error >= 1000 && error < 2000) || (error >= 5000 && error < 6000) ||
         error == ESLURM_IN_STANDBY_MODE;
}

// The error of submitting a heterogeneous job of no components.
int submit_empty_het_job() {
  auto* components = slurm_list_create(nullptr);
  submit_response_msg_t* reply = nullptr;
  const int rc = slurm_submit_batch_het_job(components, &reply);
  const int error = rc == SLURM_SUCCESS ? 0 : slurm_get_errno();
  if (reply) slurm_free_submit_response_response_msg(reply);
  slurm_list_destroy(components);
  return error;
}

}  // namespace

void HetCure::start(std::shared_ptr<const std::atomic<bool>> stopping) {
  if (state_ == State::kDone) return;
  if (!slurm_conf.schedtype || std::strcmp(slurm_conf.schedtype, kBackfill) == 0) return;
  own_ = slurm_conf.schedtype;
  borrowed_ = slurm_xstrdup(kBackfill);
  slurm_conf.schedtype = borrowed_;
  state_ = State::kBorrowed;
  std::thread([this, stopping = std::move(stopping)] {
    try {
      prime(*stopping);
    } catch (...) { /* nothing there throws; slurmctld must not die of it */
    }
  }).detach();
}

void HetCure::prime(const std::atomic<bool>& stopping) {
  int error = SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR;
  for (int i = 0; i < kTries && is_connection_error(error); ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    if (stopping) return;
    error = submit_empty_het_job();
  }
  give_name_back();
  if (error == ESLURM_NOT_SUPPORTED) {
    log_warning("slurmctld keeps refusing heterogeneous jobs under SchedulerType=sched/flextrain");
  } else if (is_connection_error(error)) {
    log_warning(
        "slurmctld could not be asked to accept heterogeneous jobs: {}; if they are refused, "
        "restart it",
        slurm_strerror(error));
  } else {
    log_debug("heterogeneous jobs are accepted");
  }
}

void HetCure::give_name_back() {
  if (slurm_conf_lock && slurm_conf_unlock) slurm_conf_lock();
  if (slurm_conf.schedtype == borrowed_) slurm_conf.schedtype = own_;
  state_ = State::kDone;
  if (slurm_conf_lock && slurm_conf_unlock) slurm_conf_unlock();
}

void HetCure::after_reconfigure() {
  // Also called at start-up, before the thread is through: the name must stay borrowed then.
  if (state_ != State::kDone || !borrowed_) return;
  if (slurm_conf.schedtype && std::strcmp(slurm_conf.schedtype, kBackfill) == 0) {
    slurm_conf.schedtype = slurm_xstrdup("sched/flextrain");
  }
}

}  // namespace flextrain::slurm_plugin
