// SPDX-License-Identifier: GPL-2.0-or-later
// slurm_plugin/cluster: what the controller sees of the resource manager and does to it. The Slurm
// implementation is slurm_cluster.*, the one of the tests fake_cluster.*. The only users of
// slurm/*.h here are slurm_cluster*.
//
// Every call may block for some milliseconds on an RPC and must never be made while slurmctld holds
// its locks (slurmctld would wait for itself): only the controller's own thread calls a Cluster.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace flextrain::slurm_plugin {

enum class JobState { kPending, kConfiguring, kRunning, kSuspended, kCompleting, kEnded };

struct JobRecord {
  uint32_t job_id = 0;
  uint32_t het_job_id = 0, array_job_id = 0;  // 0 = none
  uint32_t user_id = 0, group_id = 0;
  std::string name, user_name, account, qos,
      partition;  // partition: the one it runs in, or the list
  JobState state = JobState::kPending;
  bool requeued = false;     // ended, but will run again
  bool held = false;         // priority 0
  std::string state_reason;  // Slurm's words: "Resources", "Priority", …
  std::string admin_comment, comment;
  int64_t submit_time = 0, eligible_time = 0, start_time = 0,
          end_time = 0;  // unix s, 0 = unknown;
                         // of a pending job start_time is backfill's plan when it has one
  int restart_count = 0;
  int64_t time_limit_seconds = 0;  // 0 = unlimited
  uint32_t priority = 0;
  // Request
  int nodes_requested = 0;  // minimum
  int gpus_requested = 0;   // total, 0 = no GPU job
  int cpus_requested = 0;
  std::string gres_type;                                                    // "" = any GPU type
  std::string tres_per_node, tres_per_job, tres_per_task, tres_per_socket;  // as asked for
  std::string features, excluded_nodes, required_nodes, reservation;        // Slurm's syntax
  int64_t memory_per_node_mib = 0, memory_per_cpu_mib = 0;                  // 0 = not asked for
  bool exclusive = false;
  // Allocation, empty unless running
  std::vector<std::string> nodes;
  std::map<std::string, int> gpus_on_node, cpus_on_node;
  int gpus_allocated = 0;
  std::string batch_host, work_dir;
  std::string planned_nodes;  // of a pending job, hostlist, where backfill plans it ("" = unknown)
  int exit_code = 0;
};

struct NodeRecord {
  std::string name, address;
  // Up, responding, not drained/draining/planned/reserved/powered down/failing.
  bool usable = false;
  // The same, but that backfill keeps it for a pending job: idle for the queue, not for a
  // companion. Slurm's words do not tell: with another flag beside it (COMPLETING) it is not in
  // them.
  bool planned = false;
  std::string state;  // Slurm's words, for people
  std::vector<std::string> features, partitions;
  std::string gres_type;  // of its GPUs, "" when untyped
  int gpus = 0, gpus_allocated = 0;
  int cpus = 0, cpus_allocated = 0;
  int64_t memory_mib = 0, memory_allocated_mib = 0;
};

struct PartitionRecord {
  std::string name;
  bool up = false;
  std::vector<std::string> nodes;
  int64_t max_time_seconds = 0;  // 0 = unlimited
  int priority_tier = 1;
  int max_nodes = 0;  // 0 = unlimited
};

struct ReservationRecord {
  std::string name;
  int64_t start_time = 0, end_time = 0;
  std::vector<std::string> nodes;
};

struct ClusterView {
  int64_t now = 0;
  std::vector<JobRecord> jobs;  // pending, running, completing; ended ones may be missing
  std::vector<NodeRecord> nodes;
  std::vector<PartitionRecord> partitions;
  std::vector<ReservationRecord> reservations;
};

// One batch job on one node, on a lease, submitted as the base's owner.
struct CompanionRequest {
  uint32_t user_id = 0, group_id = 0;
  std::string name, account, qos, partition, reservation, node;  // qos may be "" = the default
  std::string features;
  std::string gres;  // e.g. "gres:gpu:4" for tres_per_node
  int cpus = 1;
  int64_t memory_mib = 0;       // 0 = not asked for
  int64_t lease_seconds = 300;  // rounded up to whole minutes, Slurm's unit
  std::string work_dir, script, admin_comment, std_out;
  std::vector<std::string> environment;    // "NAME=value"
  std::map<std::string, int64_t> rlimits;  // carried as SLURM_RLIMIT_* where Slurm takes them
  int umask = 0022;
  int signal_before_end_seconds = 0;  // --signal=B:USR1@N, 0 = none
};

// Slurm as the controller sees and changes it; failures carry Slurm's own words and number.
class Cluster {
 public:
  virtual ~Cluster() = default;
  // Everything, in one sweep (load_jobs, load_node, load_partitions, load_reservations).
  virtual Result<ClusterView> observe() = 0;
  // One job, kNotFound when Slurm has purged it.
  virtual Result<JobRecord> job(uint32_t job_id) = 0;
  // The new job's id.
  virtual Result<uint32_t> submit_companion(const CompanionRequest& request) = 0;
  virtual Status cancel(uint32_t job_id) = 0;  // kNotFound/ended counts as ok
  // New end = start + seconds (whole minutes); raising needs SlurmUser.
  virtual Status set_time_limit(uint32_t job_id, int64_t seconds) = 0;
  // Replaces the whole comment.
  virtual Status set_admin_comment(uint32_t job_id, const std::string& text) = 0;
  virtual std::string cluster_name() const = 0;  // ClusterName of slurm.conf
};

}  // namespace flextrain::slurm_plugin
