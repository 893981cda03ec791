// SPDX-License-Identifier: GPL-2.0-or-later
// From what is known to what the policy is asked, and its answers as rows. Pure.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/json.h"
#include "policy/policy.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/controller_config.h"
#include "slurm_plugin/controller/fit.h"
#include "slurm_plugin/controller/managed_job.h"
#include "store/rows.h"

namespace flextrain::slurm_plugin {

using ManagedJobs = std::vector<std::unique_ptr<ManagedJob>>;

struct InFlight {
  NodeAmounts taken;     // companions submitted, not started
  NodeAmounts promised;  // companions of ending runs, on their way back to Slurm
};
InFlight in_flight(const ManagedJobs& jobs);

// "" when the job may be ordered to switch, else why not.
std::string not_steady_reason(const ManagedJob& job);

// Seconds left at the present speed: from the trainer's progress, bounded by the run limit; nullopt
// when neither is known. `source`: which of them, policy::ElasticJobView::remaining_source.
struct Remaining {
  std::optional<double> seconds;
  std::string source;
};
Remaining remaining_time(const ManagedJob& job, int64_t now);

// Without the forecast.
policy::Snapshot build_snapshot(const ClusterView& view, const ManagedJobs& jobs,
                                const ControllerConfig& config);

// Local time − UTC at `now`.
int64_t local_offset_seconds(int64_t now);

Json offers_to_json(const std::vector<policy::NodeOffer>& offers);
std::vector<policy::NodeOffer> offers_from_json(const Json& json);
store::DecisionRow decision_row(const policy::Decision& decision, const ManagedJob* job,
                                int64_t now);

}  // namespace flextrain::slurm_plugin
