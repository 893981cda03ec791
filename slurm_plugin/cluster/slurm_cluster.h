// SPDX-License-Identifier: GPL-2.0-or-later
// The Cluster of a real Slurm, over its public API (slurm.h) alone. Runs inside slurmctld, on the
// controller's thread, where every call is an RPC of the daemon to itself, and in stand-alone
// programs linked with -lslurm that have called slurm_init(). One thread uses it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

struct SlurmClusterOptions {
  std::string cluster_name;  // "" = ask slurmctld
  // True when no further RPC may begin: after SIGTERM one would hang for 9 to 18 s.
  std::function<bool()> stopping;
  // Called with every view before observe() returns it.
  std::function<void(const ClusterView&)> on_observe;
};

// kUnavailable when slurmctld does not answer (only asked where cluster_name is "").
Result<std::unique_ptr<Cluster>> make_slurm_cluster(SlurmClusterOptions options);

}  // namespace flextrain::slurm_plugin
