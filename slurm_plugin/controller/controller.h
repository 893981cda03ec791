// SPDX-License-Identifier: GPL-2.0-or-later
// slurm_plugin/controller: observe → decide → act → record, and the endpoint the agents and sflex
// talk to. Owns the threads, the database and the port; touches Slurm only through a Cluster.
//
// Threads: one worker that opens the database, calls the Cluster and runs every decision and every
// message; one that answers sflex; one that watches the worker; the endpoint's own, which only
// queue for these (controller_impl.h). No exception leaves them.
//
// Inside slurmctld: create() and start() only set up memory and threads, so
// init() may call them; after stop() no further RPC begins, and a worker that hangs in one is left
// behind, holding everything it still uses. Link the plugin with -Wl,-z,nodelete.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "protocol/auth.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/controller_config.h"

namespace flextrain::slurm_plugin {

struct ControllerDependencies {
  // Called once, on the worker thread. An error is logged and tried again at every tick.
  std::function<Result<std::unique_ptr<Cluster>>()> make_cluster;
  // Unix seconds; default: the system clock. Called from the worker.
  std::function<int64_t()> clock;
  // Seconds of a clock that nobody sets, to notice jumps of `clock`; with a `clock` of the caller's
  // and none here, jumps are not looked for.
  std::function<int64_t()> steady;
  // Called on the worker thread before anything else, e.g. to prime slurmctld's het-job cache.
  std::function<void()> on_worker_start;
  // How bodies are proven; null = munge.
  std::shared_ptr<protocol::Authenticator> auth;
  // SlurmUser, beside root an administrator towards sflex; 0 = this process's own user.
  uid_t slurm_uid = 0;
  // Shown by `sflex diag`.
  std::string config_file, slurm_version;
};

// Thread-safe.
class Controller {
 public:
  // Checks the configuration; starts nothing.
  static Result<std::unique_ptr<Controller>> create(const ControllerConfig& config,
                                                    ControllerDependencies dependencies);
  ~Controller();  // stop() with 2 s unless stopped

  // Starts the threads and returns at once. What fails later (database, port) is logged, shown by
  // `sflex diag` and tried again; jobs run on without elasticity meanwhile.
  Status start();

  // No RPC begins after this call. True when the threads ended within `deadline`; false when one is
  // still inside an RPC: it then ends by itself when that returns, and touches nothing outside.
  bool stop(std::chrono::milliseconds deadline);

  // A job was submitted or ended: look at the queue soon. Never blocks, never calls Slurm; safe
  // under slurmctld's locks and from any thread.
  void wake() noexcept;

  // Takes effect at the next tick; the port and the database path only at the next start. Never
  // blocks on the worker.
  Status reconfigure(const ControllerConfig& config);

  // The port the endpoint listens on, 0 while it does not.
  int port() const;

 private:
  struct Impl;
  explicit Controller(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace flextrain::slurm_plugin
