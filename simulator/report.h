// SPDX-License-Identifier: MIT
// Runs as text: table, CSV, SVG. Pure.
#pragma once

#include <string>
#include <vector>

#include "simulator/scenario.h"

namespace flextrain::simulator {

// One scenario over one or more runs (traces or seeds).
struct ScenarioReport {
  std::string name, meaning;
  std::vector<Measures> runs;
  std::vector<double> seconds;
};

// One line per scenario; mean, and with several runs "± standard deviation" for the ratios.
std::string print_report(const std::vector<ScenarioReport>& reports, bool size_classes);

// Every measure of every run: policy,run,njct,….
std::string report_csv(const std::vector<ScenarioReport>& reports);

// Idle GPUs over the days of the trace (one line per scenario), and the sizes of a few elastic jobs
// under the last scenario, those with most switches.
std::string report_svg(const Trace& trace, const std::vector<ScenarioRun>& runs, int gpus);

}  // namespace flextrain::simulator
