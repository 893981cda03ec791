// SPDX-License-Identifier: MIT
// The two hidden subcommands that a launch is made of. Both replace this process and return only
// an exit code for what went wrong.
#pragma once

#include <string>
#include <vector>

namespace flextrain::agent {

// `flextrain-agent rsh HOST WORDS…`: mpirun's rsh agent. Runs the words by a shell in a step of the
// Slurm job that owns HOST (FLEXTRAIN_LAUNCH_MAP).
int run_rsh(const std::vector<std::string>& words);

// `flextrain-agent rank [--inside] -- CMD…`: one rank. Steps over into the rank's own job where the
// host's daemon belongs to another one, then narrows *_VISIBLE_DEVICES to the rank's device.
int run_rank(const std::vector<std::string>& words);

}  // namespace flextrain::agent
