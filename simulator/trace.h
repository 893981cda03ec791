// SPDX-License-Identifier: MIT
// simulator: replays a job trace under the live policy's own rules (policy/growth_rules.h,
// policy/victims.h, policy/forecast.h). Touches nothing of a running cluster.
//
// A trace is the jobs of a GPU pool, by arrival.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flextrain::simulator {

struct TraceJob {
  int64_t id = 0;
  double arrival = 0;   // seconds from the start of the trace
  double duration = 0;  // seconds of running at its initial size
  double limit = 0;     // its run limit in seconds
  int gpus = 0;
  double draw = 1;            // uniform in [0, 1): elastic when below the elastic share
  int user = 0, account = 0;  // indices into Trace::users, accounts
};

struct Trace {
  std::string name;
  std::vector<TraceJob> jobs;                // ascending arrival
  std::vector<std::string> users, accounts;  // "" where the trace names none
  // Unix time of second 0, for times of day and weekdays. 345600 is a Monday, 00:00.
  double epoch = 345600;
};

}  // namespace flextrain::simulator
