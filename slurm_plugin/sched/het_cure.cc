// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/het_cure.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "base/log.h"
#include "slurm_plugin/sched/slurm_internal.h"

namespace flextrain::slurm_plugin {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kBackfill = "sched/backfill";
constexpr time_t kMark = 1;  // no time slurmctld would write; 0 is what its caches begin with
constexpr int kTries = 60;
constexpr milliseconds kPause{500};
constexpr std::chrono::microseconds kPoll{200};
constexpr milliseconds kListenPoll{2};
constexpr milliseconds kProbeAfter{5000};
constexpr milliseconds kMendFor{10000};

// Of slurm_errno.h's ranges: 1000 and 5000 are the transport's; 2000 is a verdict of slurmctld.
bool is_connection_error(int error) {
  return (error >= 1000 && error < 2000) || (error >= 5000 && error < 6000) ||
         error == ESLURM_IN_STANDBY_MODE;
}

// Another thread of slurmctld writes it.
time_t last_update() { return *const_cast<volatile time_t*>(&slurm_conf.last_update); }

bool answers() {
  partition_info_msg_t* partitions = nullptr;
  const bool yes = slurm_load_partitions(0, &partitions, SHOW_ALL) == SLURM_SUCCESS;
  if (partitions) slurm_free_partition_info_msg(partitions);
  return yes;
}

// Whether any process here listens on the TCP port slurmctld will serve. Asked of the kernel, since
// a connection tried in vain would make the API pause for a second, with the name borrowed.
bool is_listening(uint16_t first, uint16_t count) {
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::FILE* table = std::fopen(path, "re");
    if (!table) continue;
    bool found = false;
    char line[512];
    while (!found && std::fgets(line, sizeof line, table)) {
      unsigned port = 0, state = 0;
      constexpr unsigned kListen = 0x0a;
      if (std::sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &port, &state) != 2) {
        continue;
      }
      found = state == kListen && port >= first && port < unsigned{first} + count;
    }
    std::fclose(table);
    if (found) return true;
  }
  return false;
}

// The error of submitting a heterogeneous job that cannot be: its component has a field longer
// than slurmctld takes, which it says in one line and without making a job.
int submit_impossible_het_job() {
  job_desc_msg_t component;
  slurm_init_job_desc_msg(&component);
  component.name = const_cast<char*>("flextrain-asks");
  std::string too_long(2000, 'x');
  component.wckey = too_long.data();
  component.script = const_cast<char*>("#!/bin/sh\n");
  auto* components = slurm_list_create(nullptr);
  slurm_list_append(components, &component);
  submit_response_msg_t* reply = nullptr;
  const int rc = slurm_submit_batch_het_job(components, &reply);
  const int error = rc == SLURM_SUCCESS ? 0 : slurm_get_errno();
  if (reply) slurm_free_submit_response_response_msg(reply);
  slurm_list_destroy(components);
  return error;
}

// Holds off a re-read of slurm.conf meanwhile.
class ConfigurationLock {
 public:
  ConfigurationLock() {
    if (slurm_conf_lock && slurm_conf_unlock) slurm_conf_lock();
  }
  ~ConfigurationLock() {
    if (slurm_conf_lock && slurm_conf_unlock) slurm_conf_unlock();
  }
  ConfigurationLock(const ConfigurationLock&) = delete;
  ConfigurationLock& operator=(const ConfigurationLock&) = delete;
};

}  // namespace

void HetCure::start(std::shared_ptr<const std::atomic<bool>> stopping) {
  if (state_ == State::kDone) return;
  if (!slurm_conf.schedtype || std::strcmp(slurm_conf.schedtype, kBackfill) == 0) return;
  slurm_conf.last_update = kMark;
  state_ = State::kWaiting;
  std::thread([this, stopping = std::move(stopping)] {
    try {
      run(*stopping);
    } catch (...) { /* nothing there throws; slurmctld must not die of it */
    }
  }).detach();
}

// False when slurmctld shuts down instead.
bool HetCure::wait_for_configuration(const std::atomic<bool>& stopping) {
  auto probe = Clock::now() + kProbeAfter;
  while (last_update() == kMark) {
    if (stopping) return false;
    std::this_thread::sleep_for(kPoll);
    // A release that reads its configuration before it loads us: it answers, so it is through.
    if (Clock::now() < probe) continue;
    if (answers()) return true;
    probe = Clock::now() + kProbeAfter;
  }
  return !stopping;
}

void HetCure::run(const std::atomic<bool>& stopping) {
  if (!wait_for_configuration(stopping)) return;
  {
    const ConfigurationLock lock;
    own_ = slurm_conf.schedtype;
    borrowed_ = slurm_xstrdup(kBackfill);
    slurm_conf.schedtype = borrowed_;
    state_ = State::kBorrowed;
  }
  const auto served_by = Clock::now() + kProbeAfter;
  while (!is_listening(slurm_conf.slurmctld_port, slurm_conf.slurmctld_port_count) && !stopping &&
         Clock::now() < served_by) {
    std::this_thread::sleep_for(kListenPoll);
  }
  int error = SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR;
  for (int i = 0; i < kTries && is_connection_error(error) && !stopping; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    error = submit_impossible_het_job();
  }
  give_name_back();
  if (stopping) return;
  if (error == ESLURM_NOT_SUPPORTED) {
    log_warning("slurmctld keeps refusing heterogeneous jobs under SchedulerType=sched/flextrain");
  } else if (is_connection_error(error)) {
    log_warning(
        "slurmctld could not be asked to accept heterogeneous jobs: {}; if it refuses them, "
        "restart it",
        slurm_strerror(error));
  } else {
    log_debug("heterogeneous jobs are accepted ({})", slurm_strerror(error));
  }
  const auto end = Clock::now() + kMendFor;
  while (reconfigured_ && Clock::now() < end && !stopping) {
    std::this_thread::sleep_for(milliseconds(100));
    mend_name();
  }
}

void HetCure::give_name_back() {
  const ConfigurationLock lock;
  if (slurm_conf.schedtype == borrowed_) slurm_conf.schedtype = own_;
  state_ = State::kDone;
}

void HetCure::mend_name() {
  const ConfigurationLock lock;
  if (slurm_conf.schedtype && std::strcmp(slurm_conf.schedtype, kBackfill) == 0) {
    slurm_conf.schedtype = slurm_xstrdup("sched/flextrain");
  }
}

void HetCure::note_reconfigure() {
  if (state_ == State::kBorrowed) reconfigured_ = true;
}

}  // namespace flextrain::slurm_plugin
