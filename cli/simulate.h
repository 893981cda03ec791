// SPDX-License-Identifier: MIT
// `sflex simulate`: what elasticity would have done with a trace's jobs.
#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/environment.h"

namespace flextrain::cli {

struct SimulateOptions {
  std::vector<std::string> traces;  // paths, "-" = standard input
  int gpus = 0;                     // of one pool, or
  std::string nodes;                // "NxG"
  std::string policies = "rigid,flextrain-paper,none,elasticflow,recommended,oracle,frictionless";
  std::string sizes = "32,64,256", mode = "dp+pp", pause = "180,300,480";
  std::string users, accounts;  // with commas between; "" = anybody's
  double share = 1, hand_over = 0, tick = 60, warm_up_days = 0;
  std::string remaining = "exact";
  std::vector<std::string> settings;  // "Key=Value" of flextrain.conf
  std::string seeds = "1";            // "N": 1 … N, "A-B"; "1" = the trace's own draws
  std::string csv, svg;               // files to write
  std::string svg_jobs;               // ids, "" = those that switched most
  bool classes = false, quiet = false;
};

AppResult run_simulate(Environment& environment, const SimulateOptions& options);

}  // namespace flextrain::cli
