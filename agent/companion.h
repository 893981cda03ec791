// SPDX-License-Identifier: MIT
// The agent of a companion job: holds its node's GPUs until it is released, its lease passes, or
// Slurm wants them back, which it tells the base agent first.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/controller_link.h"
#include "agent/event_queue.h"
#include "protocol/auth.h"

namespace flextrain::agent {

struct CompanionOptions {
  protocol::JobIdentity job;
  std::string notice_address;  // "host:port" of the base agent, "" = unknown
  std::shared_ptr<protocol::Authenticator> auth;
  std::chrono::seconds first_lease{300};     // until the controller names another
  std::chrono::seconds notice_timeout{600};  // how long the base may take to leave
};

// Signals as for Supervisor. Returns the exit code: 0 released or left in order, 1 the lease passed
// or the controller does not know this companion.
int run_companion(const CompanionOptions& options, ControllerLink& link, EventQueue& events);

}  // namespace flextrain::agent
