// SPDX-License-Identifier: MIT
// The hidden subcommand that stands between the agent and mpirun, and ends mpirun's session when
// the agent dies. The kernel's own parent-death signal is not enough: a process with several
// threads sends it once for every thread that held its children, and Open MPI's mpirun takes a
// second SIGTERM within five seconds as "leave at once", its ranks running on (measured: 6 of 130
// killed agents). Owns one child; reads and writes nothing else.
#pragma once

#include <string>
#include <vector>

namespace flextrain::agent {

// `flextrain-agent guard AGENT_PID CMD…`, started with a parent-death signal and as the leader of
// its session. Runs CMD in that session, passes the agent's signals on and exits with CMD's code as
// a shell gives it (128 + signal; 127: CMD could not be run). When the agent is gone CMD gets one
// SIGTERM and 5 s; then nothing of the session is left.
int run_guard(const std::vector<std::string>& words);

}  // namespace flextrain::agent
