// SPDX-License-Identifier: MIT
#include "agent/agent_main.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/companion.h"
#include "agent/control_dir.h"
#include "agent/controller_link.h"
#include "agent/guard.h"
#include "agent/launcher.h"
#include "agent/output_relay.h"
#include "agent/process.h"
#include "agent/rank_commands.h"
#include "agent/registration.h"
#include "agent/slurm_job.h"
#include "agent/supervisor.h"
#include "agent/words.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "protocol/discovery.h"
#include "protocol/endpoint_server.h"

namespace flextrain::agent {
namespace {

constexpr int kUsage = 64;  // sysexits(3) EX_USAGE
constexpr int kFingerprintSeconds = 120;
constexpr std::chrono::minutes kNoticeWait{10};
constexpr std::chrono::seconds kControlDirPatience{5};  // for a killed agent to be gone

struct RunArguments {
  int ranks = 1;
  std::string control_dir, srun_args, mpirun_args, mpirun = "mpirun", fingerprint_command, numerics;
  int max_restarts = 3;
  double restart_delay = 1;
  double stall_limit = 0, busy_limit = 1800;
  bool no_controller = false, verbose = false;
};

struct CompanionArguments {
  uint32_t base = 0;
  std::string intent, fingerprint_command;
  int lease = 300;
  bool verbose = false;
};

int complain(const Status& status, int code) {
  fmt::print(stderr, "flextrain-agent: {}\n", status.message());
  return code;
}

// Signals are read from a signalfd by one thread; none may be delivered elsewhere.
void block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a log or control file at its limit ends nothing
}

// The base agent's door for its companions.
Result<std::unique_ptr<protocol::EndpointServer>> open_notice_door(
    std::shared_ptr<protocol::Authenticator> auth, EventQueue& events) {
  protocol::EndpointOptions options;
  options.port = 0;
  options.workers = 1;
  options.max_connections = 256;
  options.max_body_bytes = size_t{64} << 10;
  options.max_deferred = kNoticeWait;
  options.stop_timeout = std::chrono::milliseconds(500);
  return protocol::EndpointServer::start(
      options, std::move(auth),
      [&events](const protocol::Envelope& request, const protocol::Caller& caller,
                const protocol::ReplyPtr& reply) {
        if (caller.uid != ::getuid() && caller.uid != 0) {
          reply->send(protocol::error_response("this agent belongs to another user"));
          return;
        }
        auto notice = protocol::from_json<protocol::NoticeRequest>(request.body);
        if (request.type != protocol::kNotice || !notice.ok()) {
          reply->send(protocol::error_response("a base agent takes notices only"));
          return;
        }
        Event event;
        event.kind = Event::Kind::kNotice;
        event.notice = std::move(*notice);
        event.reply = reply;
        events.push(std::move(event));
      });
}

Result<SlurmJob> job_as_slurm_says() {
  ASSIGN_OR_RETURN(SlurmJob job, own_slurm_job());
  if (job.identity.submit_time == 0) {
    return unavailable("Slurm does not tell this job's submit time (is slurmctld up?)");
  }
  return job;
}

LinkOptions link_options(const SlurmJob& job, std::shared_ptr<protocol::Authenticator> auth) {
  LinkOptions options;
  options.job = job.identity;
  options.auth = std::move(auth);
  options.locate = [] { return protocol::discover_controller(); };
  options.identify = []() -> Result<protocol::JobIdentity> {
    ASSIGN_OR_RETURN(const SlurmJob again, job_as_slurm_says());
    return again.identity;
  };
  return options;
}

int run_base(const RunArguments& arguments, const std::vector<std::string>& command,
             const AgentDependencies& dependencies) {
  const bool in_slurm = ::getenv("SLURM_JOB_ID") != nullptr;
  SlurmJob job = local_job(arguments.ranks);
  if (in_slurm) {
    Result<SlurmJob> own = own_slurm_job();
    if (!own.ok()) return complain(own.status(), kUsage);
    job = std::move(*own);
  }
  MpirunOptions mpirun;
  mpirun.in_slurm = in_slurm;
  mpirun.mpirun = arguments.mpirun;
  mpirun.quiet = !arguments.verbose;
  mpirun.srun_args = arguments.srun_args;
  Result<std::vector<std::string>> words = split_words(arguments.mpirun_args);
  if (!words.ok()) return complain(words.status().with_context("--mpirun-args"), kUsage);
  mpirun.mpirun_args = std::move(*words);
  if (const auto check = split_words(arguments.srun_args); !check.ok()) {
    return complain(check.status().with_context("--srun-args"), kUsage);
  }
  Result<std::string> self = own_path();
  if (!self.ok()) return complain(self.status(), 1);
  mpirun.agent_path = std::move(*self);
  const std::unique_ptr<Launcher> launcher = make_mpirun_launcher(std::move(mpirun));

  Result<ControlDir> control_dir = ControlDir::open(arguments.control_dir, job.identity);
  if (!control_dir.ok()) return complain(control_dir.status(), 1);
  const Result<FileLock> alone = FileLock::acquire(control_dir->lock_path(), kControlDirPatience);
  if (!alone.ok()) return complain(alone.status(), 1);
  control_dir->remove_former_launch();

  EventQueue events;
  std::unique_ptr<protocol::EndpointServer> door;
  std::unique_ptr<ControllerLink> link;
  SupervisorOptions options;
  options.job = job;
  options.command = command;
  options.max_restarts = arguments.max_restarts;
  options.first_backoff =
      std::chrono::milliseconds(static_cast<int64_t>(arguments.restart_delay * 1000));
  options.liveness = {arguments.stall_limit, arguments.busy_limit};
  options.end_rank_steps = [in_slurm](const std::set<uint32_t>& jobs) {
    if (in_slurm) end_rank_steps(jobs);
  };
  options.own_job = [in_slurm]() -> Result<SlurmJob> {
    if (!in_slurm) return not_found("no Slurm job");
    return job_as_slurm_says();
  };
  options.running_jobs = [](const std::set<uint32_t>& jobs) { return running_jobs(jobs); };
  if (in_slurm && !arguments.no_controller) {
    const auto auth = dependencies.make_auth();
    if (!auth.ok()) {
      log_warning("supervising only: {}", auth.status().message());
    } else {
      auto opened = open_notice_door(*auth, events);
      if (opened.ok()) {
        door = std::move(*opened);
      } else {
        log_warning("companions cannot reach this agent: {}", opened.status().message());
      }
      std::vector<std::string> fingerprint = default_fingerprint_command(command);
      if (!arguments.fingerprint_command.empty()) {
        fingerprint = {"/bin/sh", "-c", arguments.fingerprint_command};
      }
      options.registration = base_registration(
          job, fingerprint, door ? fmt::format("{}:{}", job.own_host, door->port()) : "");
      options.registration.numerics =
          arguments.numerics.empty() ? numerics_of_command(command) : arguments.numerics;
      if (!job.has_gpus) {
        for (auto& allocation : options.registration.allocations) allocation.gpus = 0;
      }
      LinkOptions link_of_base = link_options(job, *auth);
      const AgentState former = control_dir->load_state();
      link_of_base.epoch = former.epoch;
      link_of_base.last_sequence = former.last_sequence;
      link =
          std::make_unique<ControllerLink>(std::move(link_of_base), options.registration, events);
      link->start();
    }
  }
  const OutputRelay relay;
  int code = 0;
  {
    Supervisor supervisor(std::move(options), *control_dir, *launcher, link.get(), events);
    code = supervisor.run();
  }
  if (door) door->stop();
  link.reset();
  if (code == kExitComplete || code == kExitCheckpointed) {
    control_dir->remove();
  } else {
    log_info("what trainer and agent told each other stays in {}", control_dir->path());
  }
  return code;
}

int run_companion_command(const CompanionArguments& arguments,
                          const std::vector<std::string>& fingerprint_words,
                          const AgentDependencies& dependencies) {
  const Result<SlurmJob> job = own_slurm_job();
  if (!job.ok()) return complain(job.status(), kUsage);
  const auto auth = dependencies.make_auth();
  if (!auth.ok()) return complain(auth.status(), 1);

  protocol::RegisterRequest registration;
  registration.role = protocol::AgentRole::kCompanion;
  registration.base_job_id = arguments.base;
  registration.intent_id = arguments.intent;
  registration.allocations = job->allocations;
  registration.agent_version = FLEXTRAIN_VERSION;
  std::vector<std::string> words = fingerprint_words;
  if (words.empty() && !arguments.fingerprint_command.empty()) {
    words = {"/bin/sh", "-c", arguments.fingerprint_command};
  }
  if (!words.empty()) {
    Result<std::string> line = first_output_line(words, kFingerprintSeconds);
    if (!line.ok()) return complain(line.status().with_context("numerics fingerprint"), 1);
    registration.fingerprint = std::move(*line);
  }

  EventQueue events;
  CompanionOptions options;
  options.job = job->identity;
  options.auth = *auth;
  options.first_lease = std::chrono::seconds(arguments.lease);
  const char* address = ::getenv(protocol::kNoticeAddressVariable);
  options.notice_address = address == nullptr ? "" : address;
  ControllerLink link(link_options(*job, *auth), std::move(registration), events);
  link.start();
  return run_companion(options, link, events);
}

}  // namespace

int agent_main(int argc, char** argv, const AgentDependencies& dependencies) {
  keep_standard_streams();
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "guard" || words[0] == "rsh" || words[0] == "rank")) {
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    if (words[0] == "guard") return run_guard(rest);
    return words[0] == "rsh" ? run_rsh(rest) : run_rank(rest);
  }
  // Everything after "--" is the user's and never ours to parse.
  std::vector<std::string> command;
  if (const auto dashes = std::find(words.begin(), words.end(), "--"); dashes != words.end()) {
    command.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }

  RunArguments run;
  CompanionArguments companion;
  CLI::App app("Runs one training job elastically under Slurm (docs/agent.md)", "flextrain-agent");
  app.set_version_flag("--version", FLEXTRAIN_VERSION);
  app.require_subcommand(1);
  CLI::App* run_app = app.add_subcommand(
      "run", "Run CMD on every GPU of this job; in a batch script: flextrain-agent run -- CMD …");
  run_app->add_option("--ranks", run.ranks, "outside Slurm: ranks on this machine")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  run_app->add_option("--control-dir", run.control_dir,
                      "folder shared with the trainer (default: under TMPDIR)");
  run_app->add_option("--srun-args", run.srun_args, "more options for every srun step");
  run_app->add_option("--mpirun-args", run.mpirun_args, "more options for mpirun");
  run_app->add_option("--mpirun", run.mpirun, "mpirun to use")->capture_default_str();
  run_app
      ->add_option("--max-restarts", run.max_restarts,
                   "restarts of a failing trainer within 10 minutes")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  const auto number = [](const std::string& text) {  // a NaN is in every range
    return parse_double(text).ok() ? std::string() : "'" + text + "' is not a number";
  };
  run_app
      ->add_option("--restart-delay", run.restart_delay,
                   "seconds before the first restart, doubled each time")
      ->check(CLI::Range(0.0, 3600.0))
      ->check(number)
      ->capture_default_str();
  run_app
      ->add_option("--stall-limit", run.stall_limit,
                   "seconds without a step before the trainer counts as hung and is restarted "
                   "(0: 20 times its slowest step, at least 60)")
      ->check(CLI::Range(0.0, 1e7))
      ->check(number)
      ->capture_default_str();
  run_app
      ->add_option("--busy-limit", run.busy_limit,
                   "the same while it starts up, saves or evaluates")
      ->check(CLI::Range(1.0, 1e7))
      ->check(number)
      ->capture_default_str();
  run_app->add_option("--fingerprint-cmd", run.fingerprint_command,
                      "shell command that prints a node's numerics fingerprint (default for "
                      "flextrain-trainer: its own)");
  run_app->add_option("--numerics", run.numerics, "exact or fp32 (default: as job.toml says)")
      ->check(CLI::IsMember({"exact", "fp32"}));
  run_app->add_flag("--no-controller", run.no_controller, "supervise only");
  run_app->add_flag("-v,--verbose", run.verbose, "log more, mpirun's remarks included");
  CLI::App* companion_app =
      app.add_subcommand("companion", "Hold a companion job (the controller starts these)");
  companion_app->add_option("--base,--base-job", companion.base, "job id of the base")->required();
  companion_app->add_option("--intent", companion.intent, "the growth it belongs to")->required();
  companion_app->add_option("--fingerprint-cmd", companion.fingerprint_command,
                            "shell command that prints this node's numerics fingerprint; or its "
                            "words after --");
  companion_app
      ->add_option("--lease", companion.lease,
                   "seconds to hold on before the controller names its own")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  companion_app->add_flag("-v,--verbose", companion.verbose, "log more");

  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  if (run.verbose || companion.verbose) set_log_level(LogLevel::kDebug);
  block_signals();
  try {
    if (run_app->parsed()) {
      if (command.empty()) {
        return complain(invalid_argument("nothing to run: flextrain-agent run [options] -- CMD …"),
                        kUsage);
      }
      return run_base(run, command, dependencies);
    }
    return run_companion_command(companion, command, dependencies);
  } catch (const std::exception& error) {  // out of memory and the like
    return complain(internal_error("unexpected failure: {}", error.what()), 1);
  }
}

}  // namespace flextrain::agent
