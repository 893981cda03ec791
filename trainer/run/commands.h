// SPDX-License-Identifier: MIT
// trainer/run: the flextrain-trainer program. Owns the process: command line, signals, the training
// loop, the files people and the agent read (docs/agent-contract.md). Each command returns the
// process's exit code; messages go to stderr, results to stdout.
#pragma once

#include <string>
#include <vector>

#include "trainer/comm/communicator.h"

namespace flextrain::trainer {

struct TrainOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // --set section.key=value
  std::string plan_file;               // --plan, "" = none
  bool fresh = false;                  // refuse to continue from checkpoints
  bool require_checkpoint = false;     // `resume`
};
// Collective over `world`.
int train_command(Communicator& world, const TrainOptions& options);

struct BenchOptions {
  TrainOptions train;
  int steps = 10;
  bool compare = false;  // also other layouts of these ranks, with what the profile foretells
};
// Times steps without touching checkpoints or metrics. Collective over `world`.
int bench_command(Communicator& world, const BenchOptions& options);

// Prints this node's numerics fingerprint for the job, one line (companions report it).
int fingerprint_command(const std::string& job_file, const std::vector<std::string>& overrides);

int digest_command(const std::string& checkpoint);

struct ReshardOptions {
  std::string checkpoint;
  std::string plan_file;  // or the next two
  int pipeline_parallel = 0, data_parallel = 1;
  bool dry_run = false;  // show, write nothing
};
int reshard_command(const ReshardOptions& options);

struct PlanOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  int gpus = 0;              // 0 only with `measured`
  std::string profile_file;  // "" = output.dir/profile.json when it exists
  std::string output_file;   // the Plan as JSON, for train --plan; "" = not written
  bool show = false;         // draw the schedule
  bool measured = false;     // with show: the last run's Plan, with what was measured of it
  std::string trace_file;    // of that run, "" = output.dir/trace.json
  std::string show_files;  // with show: path without its ending for .svg and .trace.json, "" = none
};
int plan_command(const PlanOptions& options);

struct RehearseOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  std::string cluster_file;  // etc/devices/*.toml
  int gpus = 0;              // 0 = as many as the Plan has
  std::string plan_file;     // "" = [parallel]'s
  int steps = 4;
  std::vector<int> sizes;  // also tried, under the Plans that the scale table has for them
  std::string output_dir;  // profile.json, scale_table.json, trace.json; "" = not written
};
// The job on an emulated cluster; no MPI, no data.
int rehearse_command(const RehearseOptions& options);

}  // namespace flextrain::trainer
