// SPDX-License-Identifier: MIT
// flextrain-trainer: reads the command line and calls one of the commands.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/standard_streams.h"
#include "trainer/comm/communicator.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/stop_signal.h"

namespace flextrain::trainer {
namespace {

constexpr int kMostRanks = 1 << 20, kMostRehearsedRanks = 8192;

// For commands whose result is what they print: one that did not arrive is a failure.
int printed(int code) {
  if (stdout_arrived() || code != kExitComplete) return code;
  log_error("the result could not be written to standard output");
  return kExitFailed;
}

// Runs a command over all ranks and leaves MPI in order.
template <typename Command>
int on_all_ranks(int argc, char** argv, Command&& command) {
  Result<std::unique_ptr<Communicator>> world = open_world(&argc, &argv);
  if (!world.ok()) {
    log_error("{}", world.status().message());
    return kExitFailed;
  }
  // One voice: what all ranks agree on, rank 0 says. Errors are everybody's.
  if ((*world)->rank() != 0) set_log_level(LogLevel::kError);
  const int code = command(**world);
  std::fflush(stdout);
  world->reset();
  close_world();
  return code;
}

void add_configuration(CLI::App& app, std::string& job_file, std::vector<std::string>& overrides) {
  app.add_option("JOB.toml", job_file, "configuration (docs/trainer-config.md)")->required();
  app.add_option("--set", overrides, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
}

void add_job_options(CLI::App& app, TrainOptions& options) {
  add_configuration(app, options.job_file, options.overrides);
  app.add_option("--plan", options.plan_file, "execute this Plan (JSON)");
}

int run(int argc, char** argv) {
  CLI::App app("flextrain-trainer: trains a language model under a Plan, elastically");
  app.require_subcommand(1);
  app.set_version_flag("--version", FLEXTRAIN_VERSION);
  TrainOptions train, resume;
  CLI::App* train_app =
      app.add_subcommand("train", "train; continues from the newest intact checkpoint");
  add_job_options(*train_app, train);
  train_app->add_flag("--fresh", train.fresh, "start anew; refused where checkpoints exist");
  CLI::App* resume_app = app.add_subcommand("resume", "like train, but there must be a checkpoint");
  add_job_options(*resume_app, resume);
  resume.require_checkpoint = true;

  std::string checkpoint;
  CLI::App* digest_app = app.add_subcommand("digest", "verify a checkpoint and print its hash");
  digest_app->add_option("CHECKPOINT", checkpoint, "a step-N directory, or one that holds some")
      ->required();

  TrainOptions fingerprint;
  CLI::App* fingerprint_app =
      app.add_subcommand("fingerprint", "print this node's numerics fingerprint for a job");
  add_configuration(*fingerprint_app, fingerprint.job_file, fingerprint.overrides);

  ReshardOptions reshard;
  CLI::App* reshard_app = app.add_subcommand(
      "reshard", "show where the layers go under another layout and make it the checkpoint's Plan");
  reshard_app->add_option("CHECKPOINT", reshard.checkpoint, "as for digest")->required();
  CLI::Option* reshard_plan =
      reshard_app->add_option("--plan", reshard.plan_file, "the layout as a Plan (JSON)");
  CLI::Option* reshard_pp =
      reshard_app->add_option("--pp", reshard.pipeline_parallel, "pipeline degree")
          ->check(CLI::Range(1, kMostRanks))
          ->excludes(reshard_plan);
  reshard_app->add_option("--dp", reshard.data_parallel, "data-parallel degree")
      ->check(CLI::Range(1, kMostRanks))
      ->needs(reshard_pp);
  reshard_app->add_flag("--dry-run", reshard.dry_run, "only show");

  BenchOptions bench;
  CLI::App* bench_app = app.add_subcommand("bench", "time some steps; leaves checkpoints alone");
  add_job_options(*bench_app, bench.train);
  bench_app->add_option("--steps", bench.steps, "timed steps")->check(CLI::Range(1, 1'000'000));
  bench_app->add_flag("--compare", bench.compare,
                      "time other layouts of these ranks too, beside what the profile foretells");

  PlanOptions plan;
  CLI::App* plan_app = app.add_subcommand("plan", "print the Plan and the scale table for N GPUs");
  add_configuration(*plan_app, plan.job_file, plan.overrides);
  plan_app->add_option("--gpus", plan.gpus, "GPUs")->check(CLI::Range(1, kMostRanks));
  plan_app->add_option("--profile", plan.profile_file, "default: output.dir/profile.json");
  plan_app->add_option("-o,--output", plan.output_file, "write the Plan as JSON");
  CLI::Option* show = plan_app->add_flag("--show", plan.show, "draw the schedule of pipeline 0");
  plan_app
      ->add_option("--show-files", plan.show_files,
                   "also write the drawing as PATH.svg and, for chrome://tracing, PATH.trace.json")
      ->needs(show);
  CLI::Option* measured =
      plan_app
          ->add_option("--measured", plan.trace_file,
                       "with --show: the Plan of a run's trace (default: output.dir/trace.json) as "
                       "it was predicted and as it went")
          ->expected(0, 1)
          ->needs(show);

  RehearseOptions rehearse;
  CLI::App* rehearse_app = app.add_subcommand(
      "rehearse", "run the job in virtual time on a cluster that is not there (docs/emulation.md)");
  add_configuration(*rehearse_app, rehearse.job_file, rehearse.overrides);
  rehearse_app
      ->add_option("--cluster", rehearse.cluster_file,
                   "its devices and network (etc/devices/*.toml)")
      ->required();
  CLI::Option* rehearse_plan =
      rehearse_app->add_option("--plan", rehearse.plan_file, "execute this Plan (JSON)");
  CLI::Option* rehearse_gpus = rehearse_app->add_option("--gpus", rehearse.gpus, "GPUs")
                                   ->check(CLI::Range(1, kMostRehearsedRanks));
  rehearse_app->add_option("--steps", rehearse.steps, "timed steps")->check(CLI::Range(1, 10'000));
  rehearse_app
      ->add_option("--try", rehearse.sizes,
                   "also rehearse these sizes under the scale table's Plans and compare")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostRehearsedRanks));
  rehearse_app->add_option("-o,--output", rehearse.output_dir,
                           "folder for profile.json, scale_table.json and trace.json");

  try {
    app.parse(argc, argv);
    if (rehearse_app->parsed() && !*rehearse_plan && !*rehearse_gpus) {
      throw CLI::RequiredError("--gpus or --plan");
    }
    if (reshard_app->parsed() && reshard.plan_file.empty() && reshard.pipeline_parallel == 0) {
      throw CLI::RequiredError("--plan or --pp");
    }
    plan.measured = measured->count() > 0;
    if (plan_app->parsed() && plan.gpus == 0 && !plan.measured) {
      throw CLI::RequiredError("--gpus or --show --measured");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitComplete : kExitUnusable;
  }
  if (digest_app->parsed()) return printed(digest_command(checkpoint));
  if (fingerprint_app->parsed()) {
    return printed(fingerprint_command(fingerprint.job_file, fingerprint.overrides));
  }
  if (reshard_app->parsed()) return printed(reshard_command(reshard));
  if (plan_app->parsed()) return printed(plan_command(plan));
  if (rehearse_app->parsed()) return printed(rehearse_command(rehearse));
  if (bench_app->parsed()) {
    return on_all_ranks(argc, argv,
                        [&](Communicator& w) { return printed(bench_command(w, bench)); });
  }
  // Before MPI starts, so that a request that comes early is kept and not fatal.
  keep_stop_signals();
  const TrainOptions& options = resume_app->parsed() ? resume : train;
  return on_all_ranks(argc, argv, [&](Communicator& w) { return train_command(w, options); });
}

}  // namespace
}  // namespace flextrain::trainer

int main(int argc, char** argv) {
  flextrain::keep_standard_streams();
  // Whoever reads the log may leave; training goes on, and results that nobody got are said.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a failed write, as a full disk is
  try {
    return flextrain::trainer::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flextrain-trainer: %s\n", error.what());
    flextrain::trainer::abort_world(flextrain::trainer::kExitFailed);
  }
}
