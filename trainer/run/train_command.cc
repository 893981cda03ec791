// SPDX-License-Identifier: MIT
// flextrain-trainer train: opens the session, trains, and turns the outcome into an exit code.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/hold_point.h"
#include "trainer/run/session.h"
#include "trainer/run/step_clock.h"
#include "trainer/run/stop_signal.h"
#include "trainer/run/train_loop.h"

namespace flextrain::trainer {
namespace {

// Longer than a trainer that was told to leave needs to save a small state; a dead node's locks may
// outlive it on NFS, then the agent tries again.
constexpr std::chrono::seconds kLockPatience{45};
// A file system that has become read-only or stale is back when somebody has seen to it; until then
// a trainer that gave up would cost the job.
constexpr std::chrono::minutes kStoragePatience{10};
constexpr std::chrono::milliseconds kStoragePoll{500};

// A run has held this lock before, so that it is not the configuration that keeps this one out.
bool may_pass(const std::string& lock_path) {
  if (::access(lock_path.c_str(), W_OK) == 0) return true;
  return errno != ENOENT && errno != EACCES && errno != EPERM && errno != ENOTDIR;
}

Result<FileLock> lock_checkpoint_dir(const std::string& dir) {
  const std::string path = checkpoint_lock_path(dir);
  const bool known = may_pass(path);
  const auto end = std::chrono::steady_clock::now() + kStoragePatience;
  for (bool told = false;; told = true) {
    Result<FileLock> taken = FileLock::acquire(path, kLockPatience, stop_requested);
    if (taken.ok() || taken.status().code() == StatusCode::kUnavailable ||
        taken.status().code() == StatusCode::kAborted || !known ||
        std::chrono::steady_clock::now() >= end) {
      return taken;
    }
    if (!told) {
      log_warning("checkpoint.dir: {}; waiting until it can be written, {} minutes at most",
                  taken.status().message(), kStoragePatience.count());
    }
    if (stop_requested()) return aborted("told to stop while waiting for '{}'", path);
    std::this_thread::sleep_for(kStoragePoll);
  }
}

const Stopwatch kSinceStart;  // of this process, MPI's start included

// Rank 0 takes the checkpoint directory for this run alone, tidies it and applies --fresh and
// `resume`. That it can be written is found out here and not after hours, at the first save.
Status prepare_checkpoint_dir(const TrainConfig& config, const TrainOptions& options,
                              const ControlDir& control, std::optional<FileLock>& lock) {
  FileSystem& files = posix_file_system();
  // To begin again at the first step, because a mount is away, could cost a month.
  const Status gone = unavailable(
      "checkpoint.dir: '{}' holds no checkpoint, but this job has saved there: is its file system "
      "away? (To begin afresh, submit the job anew.)",
      config.checkpoint_dir);
  if (control.has_saved() && !files.exists(config.checkpoint_dir)) return gone;
  if (options.require_checkpoint && !files.exists(config.checkpoint_dir)) {
    return not_found("resume: '{}' holds no checkpoint; begin with `train`", config.checkpoint_dir);
  }
  RETURN_IF_ERROR(make_directories(config.checkpoint_dir).with_context("checkpoint.dir"));
  Result<FileLock> taken = lock_checkpoint_dir(config.checkpoint_dir);
  if (!taken.ok()) return taken.status().with_context("checkpoint.dir");
  lock.emplace(*std::move(taken));
  RETURN_IF_ERROR(clean_leftovers(files, config.checkpoint_dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   list_checkpoints(files, config.checkpoint_dir));
  if (control.has_saved() && names.empty()) return gone;
  if (options.fresh && !names.empty()) {
    return already_exists(
        "--fresh: '{}' holds checkpoints (newest {}); move them away or set another checkpoint.dir",
        config.checkpoint_dir, names.front());
  }
  if (options.require_checkpoint && names.empty()) {
    return not_found("resume: '{}' holds no checkpoint; begin with `train`", config.checkpoint_dir);
  }
  return {};
}

// Fresh weights, or the newest intact checkpoint.
Result<TrainingCursor> load_state(Communicator& world, const TrainOptions& options,
                                  const Session& session, Engine& engine, const ControlDir& control,
                                  std::optional<FileLock>& lock) {
  const Status ready =
      world.rank() == 0 ? prepare_checkpoint_dir(session.config, options, control, lock) : Status();
  RETURN_IF_ERROR(agree(world, ready));
  ASSIGN_OR_RETURN(const LoadReport report, load_checkpoint(posix_file_system(), world, engine,
                                                            session.config, session.fingerprint));
  for (const std::string& damage : report.damages) {
    log_warning("damaged checkpoint passed over: {}", damage);
  }
  if (!report.manifest.has_value()) {
    RETURN_IF_ERROR(agree(world, engine.initialize()));
    return TrainingCursor{0, 0, engine.accumulation_scale(), session.config.seed};
  }
  const Manifest& manifest = *report.manifest;
  if (world.rank() == 0) {
    fmt::print("resuming from '{}' (step {}, saved under {})\n", report.path, manifest.cursor.step,
               planner::plan_summary(manifest.plan));
    std::fflush(stdout);
  }
  if (manifest.cursor.seed != session.config.seed || manifest.data_hash != session.data_hash) {
    log_warning("seed or data differ from those of '{}': from here on the data order is another",
                report.path);
  }
  TrainingCursor cursor = manifest.cursor;
  cursor.seed = session.config.seed;
  return cursor;
}

Result<int> train(Communicator& world, const TrainOptions& options, ControlDir& control) {
  const double connected = kSinceStart.seconds();
  ASSIGN_OR_RETURN(const Session session, open_session(world, options, control));
  std::this_thread::sleep_for(std::chrono::duration<double>(session.config.init_seconds));
  const bool root = world.rank() == 0;
  if (root) control.write_fingerprint(session.fingerprint);
  Result<std::unique_ptr<Engine>> engine = make_engine(session.config, session.plan, world);
  RETURN_IF_ERROR(agree(world, engine.status()));
  if (root) {
    fmt::print("{}; numerics {} ({})\n", planner::plan_summary(session.plan),
               planner::numerics_name(session.config.numerics), session.fingerprint);
    control.mark("init");
  }
  HoldPoint(session.config.hold_dir).wait(fmt::format("init-{}", world.size()));
  const double prepared = kSinceStart.seconds();
  std::optional<FileLock> lock;  // rank 0's, to the end of the run
  ASSIGN_OR_RETURN(const TrainingCursor cursor,
                   load_state(world, options, session, **engine, control, lock));
  if (root) control.mark("load");
  if (cursor.step >= session.config.steps) {
    if (root) {
      fmt::print("training is complete: step {} of {}\n", cursor.step, session.config.steps);
      control.mark("stop");
    }
    return kExitComplete;
  }
  // Connections are opened rank by rank, state is read by the byte.
  const std::vector<planner::StartPhase> phases = {
      {"connect", connected, planner::PhaseScaling::kPerGpu},
      {"prepare", prepared - connected, planner::PhaseScaling::kFixed},
      {"load", kSinceStart.seconds() - prepared, planner::PhaseScaling::kPerByte}};
  TrainLoop loop(world, session, **engine, control, cursor, phases);
  const Result<LoopEnd> end = loop.run();
  if (!end.ok()) {
    std::fflush(stdout);
    if (world.size() == 1) return end.status();
    // Other ranks may be inside a collective: nothing but an abort reaches them.
    log_error("rank {}: {}", world.rank(), end.status().message());
    abort_world(exit_code_for(end.status()));
  }
  // Before the barrier: mpirun ends the others as soon as the first rank has left with a non-zero
  // code.
  if (root) control.mark("stop");
  RETURN_IF_ERROR(world.barrier());
  switch (*end) {
    case LoopEnd::kComplete:
      return kExitComplete;
    case LoopEnd::kStopRequested:
      return kExitCheckpointed;
    case LoopEnd::kNotSaved:
      break;
  }
  return kExitNotSaved;
}

}  // namespace

int train_command(Communicator& world, const TrainOptions& options) {
  ControlDir control =
      world.rank() == 0 ? ControlDir::from_environment() : ControlDir(std::string());
  const Result<int> code = train(world, options, control);
  if (code.ok()) return *code;
  // These failures are agreed on: every rank is here.
  if (code.status().code() == StatusCode::kAborted && stop_requested()) {
    if (world.rank() == 0) log_info("{}", code.status().message());
    return kExitCheckpointed;
  }
  if (world.rank() == 0) log_error("{}", code.status().message());
  return exit_code_for(code.status());
}

}  // namespace flextrain::trainer
