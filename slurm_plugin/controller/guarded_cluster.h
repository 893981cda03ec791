// SPDX-License-Identifier: GPL-2.0-or-later
// A Cluster that begins no call any more once a flag is set (after SIGTERM slurmctld answers no
// RPC, and each would retry for 9–18 s), and that tells the watchdog how long each call took.
#pragma once

#include <atomic>
#include <string>

#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/watchdog.h"

namespace flextrain::slurm_plugin {

class GuardedCluster : public Cluster {
 public:
  GuardedCluster(Cluster& inner, const std::atomic<bool>& stopping, Watchdog& watchdog)
      : inner_(inner), stopping_(stopping), watchdog_(watchdog), name_(inner.cluster_name()) {}

  Result<ClusterView> observe() override {
    return guarded("observe", [&] { return inner_.observe(); });
  }
  Result<JobRecord> job(uint32_t job_id) override {
    return guarded("job", [&] { return inner_.job(job_id); });
  }
  Result<uint32_t> submit_companion(const CompanionRequest& request) override {
    return guarded("submit", [&] { return inner_.submit_companion(request); });
  }
  Status cancel(uint32_t job_id) override {
    return guarded("cancel", [&] { return inner_.cancel(job_id); });
  }
  Status set_time_limit(uint32_t job_id, int64_t seconds) override {
    return guarded("set time limit", [&] { return inner_.set_time_limit(job_id, seconds); });
  }
  Status set_admin_comment(uint32_t job_id, const std::string& text) override {
    return guarded("set comment", [&] { return inner_.set_admin_comment(job_id, text); });
  }
  std::string cluster_name() const override { return name_; }

 private:
  template <typename Call>
  auto guarded(const char* name, Call&& call) -> decltype(call()) {
    if (stopping_) return aborted("the controller is stopping");
    const auto begin = Watchdog::Clock::now();
    auto result = call();
    watchdog_.note_rpc(name, Watchdog::Clock::now() - begin);
    return result;
  }

  Cluster& inner_;
  const std::atomic<bool>& stopping_;
  Watchdog& watchdog_;
  const std::string name_;
};

}  // namespace flextrain::slurm_plugin
