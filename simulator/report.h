// SPDX-License-Identifier: MIT
// What runs measured, as text: table and CSV. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/measures.h"

namespace flextrain::simulator {

struct ReportedRun {
  Measures measures;
  uint64_t seed = 0;   // of the draws; 0 = the trace's own
  double seconds = 0;  // of processor time
};

// One scenario over one or more runs (traces or seeds).
struct ScenarioReport {
  std::string name;
  std::vector<ReportedRun> runs;
  std::string layout = "pool";      // of `runs`: "pool", or "286x8"
  std::vector<ReportedRun> pooled;  // the same runs on one pool, where `runs` are on nodes
};

// One line per scenario; with several runs the means, and below them each column's lowest and
// highest value. With `size_classes` the same per size of the elastic jobs. Where the runs are on
// nodes, a second table says what fragmentation costs.
std::string print_report(const std::vector<ScenarioReport>& reports, bool size_classes);

// Every measure of every run, and those of its size classes: policy,run,seed,gpus,layout,….
// `gpus` is "all" or the size; what a size class does not have is empty.
std::string report_csv(const std::vector<ScenarioReport>& reports);

}  // namespace flextrain::simulator
