// SPDX-License-Identifier: GPL-2.0-or-later
// A cluster in memory for tests: nodes with GPUs, CPUs and memory; strict FIFO within the queue's
// order (priority, then age), a gang starts whole or not at all, and nothing overtakes a blocked
// job; leases end jobs; time moves only by advance(). Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

class FakeCluster : public Cluster {
 public:
  explicit FakeCluster(int64_t now, std::string name = "fake")
      : now_(now), name_(std::move(name)) {}

  // Set-up.
  void add_partition(const std::string& name);  // holds every node added afterwards
  NodeRecord& add_node(const std::string& name, int gpus, int cpus = 64,
                       int64_t memory_mib = 256 << 10);
  // `record` needs the request and the owner; id, submit time and state are set here.
  uint32_t submit(JobRecord record);

  // Time and events of the world. Each ends with a scheduling pass.
  void advance(int64_t seconds);
  void set_clock(int64_t by);  // the time of day jumps; nothing happens meanwhile
  void purge();                // ended jobs are forgotten, as after MinJobAge
  void finish(uint32_t job_id, int exit_code = 0);  // the job ends by itself
  void requeue(uint32_t job_id);                    // same id, restart count + 1, submitted now
  void forget(uint32_t job_id);                     // as a slurmctld that died before saving it
  void suspend(uint32_t job_id, bool stop);         // or resume; it keeps what it holds
  void fail_node(const std::string& name);          // its jobs end, it is down
  void return_node(const std::string& name);
  // Out of the configuration, by a reconfigure: unknown from now on. Its jobs end with it, or are
  // still listed on it, as until slurmctld has ended them.
  void remove_node(const std::string& name, bool jobs_end = true);
  // Its owner gives a node of the running job up (scontrol update NumNodes=).
  void give_up_node(uint32_t job_id, const std::string& name);

  // Faults.
  void hold_companions(bool hold);                // companions stay pending
  void fail_submissions(bool fail);               // submit_companion says kUnavailable
  void fail_observation(bool fail);               // observe says kUnavailable
  void complete_slowly(int64_t seconds);          // cancelled jobs complete for so long
  std::function<void(const char* call)> on_call;  // before every Cluster call

  // Inspection.
  int64_t now() const;
  JobRecord find(uint32_t job_id) const;  // also ended ones; job_id 0 when never seen
  std::vector<JobRecord> companions(bool alive_only = true) const;
  std::vector<CompanionRequest> requests() const;
  std::vector<uint32_t> cancelled() const;

  // Cluster
  Result<ClusterView> observe() override;
  Result<JobRecord> job(uint32_t job_id) override;
  Result<uint32_t> submit_companion(const CompanionRequest& request) override;
  Status cancel(uint32_t job_id) override;
  Status set_time_limit(uint32_t job_id, int64_t seconds) override;
  Status set_admin_comment(uint32_t job_id, const std::string& text) override;
  std::string cluster_name() const override { return name_; }

 private:
  void schedule();
  bool try_start(JobRecord& job);
  void release(JobRecord& job);
  void end(JobRecord& job, int exit_code);
  NodeRecord* node(const std::string& name);
  void called(const char* call);

  mutable std::mutex mutex_;
  int64_t now_;
  const std::string name_;
  uint32_t next_id_ = 100;
  std::vector<std::unique_ptr<NodeRecord>> nodes_;
  std::vector<PartitionRecord> partitions_;
  std::map<uint32_t, JobRecord> jobs_;
  std::map<uint32_t, int64_t> completing_until_;
  std::vector<CompanionRequest> requests_;
  std::vector<uint32_t> cancelled_;
  bool hold_companions_ = false, fail_submissions_ = false, fail_observation_ = false;
  int64_t completing_seconds_ = 0;
};

}  // namespace flextrain::slurm_plugin
