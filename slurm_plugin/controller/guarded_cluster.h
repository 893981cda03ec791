// SPDX-License-Identifier: GPL-2.0-or-later
// A Cluster that begins no call any more once a flag is set: after SIGTERM slurmctld answers no
// RPC, and each would retry for 9–18 s.
#pragma once

#include <atomic>
#include <string>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

class GuardedCluster : public Cluster {
 public:
  GuardedCluster(Cluster& inner, const std::atomic<bool>& stopping)
      : inner_(inner), stopping_(stopping), name_(inner.cluster_name()) {}

  Result<ClusterView> observe() override {
    if (stopping_) return stopped();
    return inner_.observe();
  }
  Result<JobRecord> job(uint32_t job_id) override {
    if (stopping_) return stopped();
    return inner_.job(job_id);
  }
  Result<uint32_t> submit_companion(const CompanionRequest& request) override {
    if (stopping_) return stopped();
    return inner_.submit_companion(request);
  }
  Status cancel(uint32_t job_id) override { return stopping_ ? stopped() : inner_.cancel(job_id); }
  Status set_time_limit(uint32_t job_id, int64_t seconds) override {
    return stopping_ ? stopped() : inner_.set_time_limit(job_id, seconds);
  }
  Status set_admin_comment(uint32_t job_id, const std::string& text) override {
    return stopping_ ? stopped() : inner_.set_admin_comment(job_id, text);
  }
  std::string cluster_name() const override { return name_; }

 private:
  static Status stopped() { return aborted("the controller is stopping"); }

  Cluster& inner_;
  const std::atomic<bool>& stopping_;
  const std::string name_;
};

}  // namespace flextrain::slurm_plugin
