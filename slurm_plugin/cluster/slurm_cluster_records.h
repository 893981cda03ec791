// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's records → cluster.h's. No RPC here.
#pragma once

#include <slurm/slurm.h>

#include <string>
#include <vector>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

// "n[1-3],x" → {"n1","n2","n3","x"}; nullptr, "" and "(null)" → {}.
std::vector<std::string> expand_hostlist(const char* text);

// Whether a job may be started on a node in this state (NODE_STATE_*), and the state in words.
bool node_state_usable(uint32_t state);

// `node_names` is slurmctld's node table in its own order ("" for a node that is hidden).
JobRecord job_record(const slurm_job_info_t& job, const std::vector<std::string>& node_names);
NodeRecord node_record(const node_info_t& node);
PartitionRecord partition_record(const partition_info_t& partition);
ReservationRecord reservation_record(const reserve_info_t& reservation);

}  // namespace flextrain::slurm_plugin
