// SPDX-License-Identifier: MIT
// What a base agent tells the controller of itself, so that a companion's batch script can run the
// same way: environment, limits, folder, and how to ask for a numerics fingerprint.
#pragma once

#include <string>
#include <vector>

#include "agent/slurm_job.h"
#include "base/status.h"
#include "protocol/messages.h"

namespace flextrain::agent {

// Absolute path of this program.
Result<std::string> own_path();

// For `flextrain-trainer train JOB.toml …`: {program, "fingerprint", "JOB.toml"}; else {}.
std::vector<std::string> default_fingerprint_command(const std::vector<std::string>& command);

// training.numerics of the job.toml in a flextrain-trainer command; "exact" where it is not said.
std::string numerics_of_command(const std::vector<std::string>& command);

// Everything but fingerprint and numerics. `notice_address` "host:port" goes into the environment.
protocol::RegisterRequest base_registration(const SlurmJob& job,
                                            const std::vector<std::string>& fingerprint_command,
                                            const std::string& notice_address);

// Variables that a companion may inherit: none of Slurm's, none of a launch's, all valid UTF-8.
std::map<std::string, std::string> inheritable(const std::vector<std::string>& environment);

}  // namespace flextrain::agent
