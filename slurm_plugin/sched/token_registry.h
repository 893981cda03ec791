// SPDX-License-Identifier: GPL-2.0-or-later
// Which jobs are elastic, as the controller last saw them: job_modify needs a job's token without
// an RPC (slurmctld holds its locks there, and its job record is opaque to us). Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "slurm_plugin/cluster/cluster.h"

namespace flextrain::slurm_plugin {

class TokenRegistry {
 public:
  // Replaces everything by what `view` shows.
  void update(const ClusterView& view);
  // `job` is a job as scontrol names it: "12", of an array "12_3" or "12_[4-9]". "" = not elastic.
  std::string token_of(std::string_view job) const;

 private:
  mutable std::mutex mutex_;
  // By job id and, as all tasks of an array have one token, by array job id.
  std::unordered_map<uint32_t, std::string> tokens_;
};

}  // namespace flextrain::slurm_plugin
