// SPDX-License-Identifier: MIT
// The program's command line and how its parts are put together.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "protocol/auth.h"

namespace flextrain::agent {

struct AgentDependencies {  // what tests replace
  std::function<Result<std::shared_ptr<protocol::Authenticator>>()> make_auth;
};

// The whole of main(): parses, runs one subcommand, returns its exit code. Must be called before
// any other thread exists, as it blocks signals for all of them.
int agent_main(int argc, char** argv, const AgentDependencies& dependencies);

}  // namespace flextrain::agent
