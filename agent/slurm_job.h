// SPDX-License-Identifier: MIT
// This agent's own Slurm job: identity, hosts, GPUs. Read from the SLURM_* environment and
// `scontrol show job -d`; asks Slurm nothing else.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "protocol/messages.h"

namespace flextrain::agent {

// Slurm's "n[1-3,7],gpu-[01-02]x" → names in order. kInvalidArgument for malformed text.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// SLURM_TASKS_PER_NODE "2(x3),1" → {2,2,2,1}.
Result<std::vector<int>> expand_counts(std::string_view text);

struct SlurmJob {
  protocol::JobIdentity identity;
  std::string own_host;                           // Slurm's name of this node
  std::vector<protocol::Allocation> allocations;  // own host first; gpus = ranks to start there
  bool has_gpus = false;                          // false: a CPU job, `gpus` counts tasks
  std::string device_type;                        // GRES type, "" when untyped
};

using Getenv = std::function<std::string(const char* name)>;  // "" = not set

// From the environment and the output of `scontrol show job -d -o ID` ("" where it could not be
// had; then every node is taken to hold as many GPUs as this one). kNotFound outside a Slurm job.
Result<SlurmJob> read_slurm_job(const Getenv& environment, std::string_view scontrol_output);

// The same for this process; runs scontrol (at most some seconds).
Result<SlurmJob> own_slurm_job();

// Those of `jobs` that Slurm says are running now. kUnavailable when it does not say (then nothing
// is known). Takes at most some seconds.
Result<std::set<uint32_t>> running_jobs(const std::set<uint32_t>& jobs);

// The name of the steps that ranks and mpirun's daemons run in.
inline constexpr const char* kRankStepName = "flextrain-ranks";

// Ends those steps of `jobs` at once, whatever state their processes are in; what Slurm does not
// answer is left to it. Takes at most some seconds.
void end_rank_steps(const std::set<uint32_t>& jobs);

// For jobs outside Slurm: `ranks` ranks on this machine.
SlurmJob local_job(int ranks);

}  // namespace flextrain::agent
