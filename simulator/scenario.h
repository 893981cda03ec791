// SPDX-License-Identifier: MIT
// The policies that a trace is compared under. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "simulator/measures.h"
#include "simulator/replay.h"

namespace flextrain::simulator {

struct Scenario {
  std::string name, meaning;
  ReplayOptions options;
};

// Names, in the order in which they are shown: rigid, flextrain-paper, none, elasticflow,
// recommended, recommended-no-queue-rule, oracle, frictionless.
std::vector<std::string> scenario_names();

// `common` gives the pool, the elastic jobs and the pauses; the scenario sets the policy.
Result<Scenario> make_scenario(std::string_view name, const ReplayOptions& common);

struct ScenarioRun {
  std::string name;
  Measures measures;
  ReplayResult result;
  double seconds = 0;  // of processor time
};

// Runs the scenarios over the trace, the rigid run first, whether asked for or not. `clock` gives
// seconds; `progress` gets the share done in [0, 1]. Both may be empty.
std::vector<ScenarioRun> run_scenarios(const Trace& trace, const std::vector<Scenario>& scenarios,
                                       double warm_up, const std::function<double()>& clock,
                                       const std::function<void(double)>& progress);

}  // namespace flextrain::simulator
