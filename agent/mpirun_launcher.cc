// SPDX-License-Identifier: MIT
// One mpirun over several Slurm jobs: its own Slurm support is switched off, and its daemons are
// started by `flextrain-agent rsh HOST …`, which runs them in a step of the job that owns the host.
// orte_leave_session_attached is mandatory: without it orted leaves its step (measured).
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "agent/launcher.h"
#include "agent/network.h"
#include "agent/words.h"
#include "base/log.h"

namespace flextrain::agent {
namespace {

class MpirunLauncher : public Launcher {
 public:
  explicit MpirunLauncher(MpirunOptions options) : options_(std::move(options)) {}

  Result<ProcessSpec> prepare(const LaunchSpec& spec) const override {
    if (spec.map.num_ranks() < 1) return invalid_argument("no GPU to launch on");
    ProcessSpec process;
    std::vector<std::string>& argv = process.argv;
    RETURN_IF_ERROR(find_program(options_.mpirun).status());
    // By the name as it was given: a full path means --prefix to mpirun.
    argv = {options_.agent_path, "guard", std::to_string(::getpid()),
            options_.mpirun,     "-np",   std::to_string(spec.map.num_ranks()),
            "--bind-to",         "none"};
    if (::geteuid() == 0) argv.emplace_back("--allow-run-as-root");
    // Exit code 85 is no accident worth 15 lines of the user's log at every switch.
    if (options_.quiet) argv.emplace_back("--quiet");
    // Ranks that still run when one has ended with 85 are past the checkpoint (the contract): no
    // second of grace per signal, which somebody waits for at every shrink.
    mca(argv, "odls_base_sigkill_timeout", "0");
    if (options_.in_slurm) {
      argv.insert(argv.end(), {"--host", spec.map.mpirun_hosts()});
      mca(argv, "ras", "^slurm,gridengine,tm,lsf");
      mca(argv, "plm", "rsh");
      mca(argv, "plm_rsh_agent", options_.agent_path + " rsh");
      mca(argv, "plm_rsh_no_tree_spawn", "1");
      mca(argv, "orte_leave_session_attached", "1");
      mca(argv, "routed", "direct");
      // A node that loses power must be noticed in seconds, not in the default 300.
      mca(argv, "oob_tcp_keepalive_time", "5");
      mca(argv, "oob_tcp_keepalive_intvl", "2");
      mca(argv, "oob_tcp_keepalive_probes", "3");
      if (spec.map.hosts().size() > 1) {
        const Result<std::string> networks = networks_of_hosts(spec.map.hosts());
        if (networks.ok()) {
          mca(argv, "oob_tcp_if_include", *networks);
          mca(argv, "btl_tcp_if_include", *networks);
        } else {
          log_warning("mpirun chooses the network itself: {}", networks.status().message());
        }
      }
    } else {
      argv.insert(argv.end(), {"--host", spec.map.mpirun_hosts(), "--oversubscribe"});
    }
    int most = 0;
    for (const std::string& host : spec.map.hosts()) most = std::max(most, spec.map.ranks_on(host));
    // Waiting ranks must let the computing ones have the core.
    if (most > static_cast<int>(std::thread::hardware_concurrency())) {
      mca(argv, "mpi_yield_when_idle", "1");
    }
    argv.insert(argv.end(), options_.mpirun_args.begin(), options_.mpirun_args.end());

    process.environment = environment_without_job();
    // Later entries would not replace earlier ones in execve's list: take ours out first.
    const auto set = [&](const std::string& name, const std::string& value) {
      std::erase_if(process.environment,
                    [&](const std::string& entry) { return entry.starts_with(name + "="); });
      process.environment.push_back(name + "=" + value);
      argv.insert(argv.end(), {"-x", name});
    };
    set("FLEXTRAIN_CONTROL_DIR", spec.control_dir);
    set("FLEXTRAIN_AGENT", "1");
    set("FLEXTRAIN_LAUNCH_MAP", spec.map.to_text());
    set("FLEXTRAIN_BIND_GPUS", spec.has_gpus ? "1" : "0");
    set("FLEXTRAIN_SRUN_ARGS", options_.srun_args);
    argv.insert(argv.end(), {options_.agent_path, "rank", "--"});
    argv.insert(argv.end(), spec.command.begin(), spec.command.end());
    return process;
  }

  std::optional<ProcessSpec> probe(
      const std::vector<protocol::Allocation>& allocations) const override {
    if (!options_.in_slurm || allocations.size() < 2) return std::nullopt;
    ProcessSpec process;
    std::string hosts;
    for (const auto& allocation : allocations)
      hosts += (hosts.empty() ? "" : ",") + allocation.host;
    const std::string count = std::to_string(allocations.size());
    process.argv = {"srun",
                    "--jobid=" + std::to_string(allocations.front().job_id),
                    "--nodelist=" + hosts,
                    "--nodes=" + count,
                    "--ntasks=" + count,
                    "--ntasks-per-node=1",
                    "--overlap",
                    "--mem=0",
                    "--gres=none",
                    "--mpi=none",
                    "--cpu-bind=none",
                    "--quiet"};
    if (const auto more = split_words(options_.srun_args); more.ok()) {
      process.argv.insert(process.argv.end(), more->begin(), more->end());
    }
    process.argv.emplace_back("true");
    process.environment = environment_without_job();
    return process;
  }

 private:
  static std::vector<std::string> environment_without_job() {
    std::vector<std::string> environment = own_environment();
    std::erase_if(environment, [](const std::string& entry) {
      return is_slurm_variable(std::string_view(entry).substr(0, entry.find('=')));
    });
    return environment;
  }
  // The user's own value for a parameter stands.
  void mca(std::vector<std::string>& argv, const std::string& name,
           const std::string& value) const {
    const auto& given = options_.mpirun_args;
    if (std::find(given.begin(), given.end(), name) != given.end()) return;
    argv.insert(argv.end(), {"--mca", name, value});
  }

  const MpirunOptions options_;
};

}  // namespace

std::unique_ptr<Launcher> make_mpirun_launcher(MpirunOptions options) {
  return std::make_unique<MpirunLauncher>(std::move(options));
}

}  // namespace flextrain::agent
