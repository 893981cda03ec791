// SPDX-License-Identifier: MIT
// How ranks are started over base and companion allocations. An interface, so that other ways than
// mpirun can be added; the supervisor knows only this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/launch_map.h"
#include "agent/process.h"
#include "base/status.h"

namespace flextrain::agent {

struct LaunchSpec {
  LaunchMap map;
  bool has_gpus = false;             // give each rank one of its job's devices
  std::vector<std::string> command;  // what every rank runs
  std::string control_dir;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  // The one local process that starts all ranks, forwards SIGUSR1 to them, and ends with the first
  // exit code that is not 0. Reads the environment, resolves host names; starts nothing.
  virtual Result<ProcessSpec> prepare(const LaunchSpec& spec) const = 0;
  // A short program that ends with 0 when ranks can be started on all these hosts of one job;
  // nullopt when there is nothing to ask (they are all here).
  virtual std::optional<ProcessSpec> probe(
      const std::vector<protocol::Allocation>& allocations) const = 0;
};

struct MpirunOptions {
  std::string agent_path;  // of this program, reachable under this path on every host
  std::string mpirun = "mpirun";
  std::vector<std::string> mpirun_args;  // placed before the program; win over ours
  std::string srun_args;                 // for every srun step, as words
  bool quiet = true;                     // keep mpirun's own remarks out of the log
  bool in_slurm = false;                 // false: all ranks on this machine, no rsh agent
};
std::unique_ptr<Launcher> make_mpirun_launcher(MpirunOptions options);

}  // namespace flextrain::agent
