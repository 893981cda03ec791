// SPDX-License-Identifier: GPL-2.0-or-later
// The queue as the policy sees it: which pending jobs only GPUs keep from starting. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/fit.h"

namespace flextrain::slurm_plugin {

enum class WaitKind {
  kNone,   // no GPU job, not pending, a companion
  kGpus,   // waits for GPUs alone, as far as Slurm says
  kOther,  // a GPU job that is held, depends, is limited, is not eligible …
};
WaitKind classify_waiting(const JobRecord& job, int64_t now);

struct WaitingView {
  std::vector<policy::WaitingJob> waiting;  // in Slurm's order, `depth` at most
  int more_waiting = 0;                     // behind those
  int other_waiting_gpu_jobs = 0;
};

// `promised`: GPUs on their way back that the policy does not see as leaving companions; they count
// as idle for waiting jobs, or one job would make several victims. `taken`: as in fit.h.
WaitingView waiting_view(const ClusterView& view, const NodeAmounts& taken,
                         const NodeAmounts& promised, size_t depth);

// The earliest moment at which a pending job is planned to start on each node, in the future.
std::map<std::string, int64_t> planned_starts(const ClusterView& view);

}  // namespace flextrain::slurm_plugin
