// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's records → cluster.h's. No RPC here.
#pragma once

#include <slurm/slurm.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

// "n[1-3],x" → {"n1","n2","n3","x"}; nullptr, "" and "(null)" → {}.
std::vector<std::string> expand_hostlist(const char* text);

// Whether a job may be started on a node in this state (NODE_STATE_*), and the state in words.
bool node_state_usable(uint32_t state);

// Names of users for one sweep over the jobs: each is looked up once, where Slurm does not say it.
// Through LDAP or a file, a look-up for each of 10,000 jobs was most of a sweep's time.
class UserNames {
 public:
  using LookUp = std::function<std::string(uint32_t uid)>;
  UserNames();  // looks up in the system's user database
  explicit UserNames(LookUp look_up) : look_up_(std::move(look_up)) {}
  const std::string& of(const slurm_job_info_t& job);

 private:
  LookUp look_up_;
  std::unordered_map<uint32_t, std::string> names_;
};

// `node_names` is slurmctld's node table in its own order ("" for a node that is hidden).
JobRecord job_record(const slurm_job_info_t& job, const std::vector<std::string>& node_names,
                     UserNames& users);
NodeRecord node_record(const node_info_t& node);
PartitionRecord partition_record(const partition_info_t& partition);
ReservationRecord reservation_record(const reserve_info_t& reservation);

}  // namespace flextrain::slurm_plugin
