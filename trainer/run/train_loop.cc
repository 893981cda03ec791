// SPDX-License-Identifier: MIT
#include "trainer/run/train_loop.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/log.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/run/known_profiles.h"
#include "trainer/run/measured_steps.h"
#include "trainer/run/plan_choice.h"
#include "trainer/run/stop_signal.h"
#include "trainer/run/trace_file.h"

namespace flextrain::trainer {
namespace {
constexpr double kReportPause = 1.0;  // seconds between looks for the agent's bounds
constexpr int kSaveTries = 3;         // of a state that nothing comes after
constexpr std::chrono::seconds kSavePause{1};
constexpr double kDrift = 0.25;  // the table is old when steps are so far off
}  // namespace

TrainLoop::TrainLoop(Communicator& world, const Session& session, Engine& engine,
                     ControlDir& control, const TrainingCursor& cursor,
                     std::vector<planner::StartPhase> start_phases)
    : world_(world),
      session_(session),
      config_(session.config),
      engine_(engine),
      control_(control),
      cursor_(cursor),
      first_step_(cursor.step),
      saved_step_(cursor.step),
      plan_(session.plan),
      plan_id_(planner::plan_id(session.plan)),
      profile_from_(cursor.step),
      progress_(stdout),
      hold_(config_.hold_dir),
      start_phases_(std::move(start_phases)) {
  if (is_root()) measured_steps_ = read_measured_steps(config_);
}

Status TrainLoop::open_metrics() {
  Status status;
  if (is_root()) {
    Result<MetricsFile> file =
        MetricsFile::open(config_.output_dir + "/metrics.jsonl", cursor_.step);
    if (file.ok()) {
      metrics_.emplace(*std::move(file));
    } else if (file.status().code() == StatusCode::kUnavailable ||
               file.status().code() == StatusCode::kAborted) {
      status = file.status();  // another run's
    } else {
      metrics_.emplace(
          MetricsFile::waiting_for(config_.output_dir + "/metrics.jsonl", cursor_.step));
    }
  }
  return agree(world_, status);
}

Result<LoopEnd> TrainLoop::run() {
  RETURN_IF_ERROR(open_metrics());
  report_known_profile();
  while (cursor_.step < config_.steps) {
    const Stopwatch watch;
    ASSIGN_OR_RETURN(const StepResult result, one_step());
    note_step_seconds(watch.seconds());
    // Every rank paces itself: sleeping is kinder to a shared core than waiting for a message.
    sleep_until(watch, std::max(config_.min_step_seconds, hold_.step_seconds()));
    const double seconds = watch.seconds();
    if (cursor_.step == first_step_ + 1 && is_root()) control_.mark("first_step");
    ASSIGN_OR_RETURN(const std::optional<double> eval_loss, evaluate_if_due());
    RETURN_IF_ERROR(report_step(result, seconds, eval_loss));
    RETURN_IF_ERROR(profile_if_complete());
    if (unreported_profile_ && since_report_.seconds() >= kReportPause) report_profile();
    ASSIGN_OR_RETURN(const Decision decision, decide(result.any_flag));
    if (decision.profile) {
      engine_.restart_profile();
      profile_from_ = cursor_.step - 1;
    }
    if (!decision.save) continue;
    // Before the save: the agent takes it as the end of the last step when it measures the switch.
    if (decision.stop && is_root()) control_.write_progress(last_progress_, true);
    if (cursor_.step >= config_.steps) {
      ASSIGN_OR_RETURN(const bool saved, save_end());
      if (saved) break;
      if (is_root()) log_error("training is complete, but its end could not be saved");
      return LoopEnd::kNotSaved;
    }
    ASSIGN_OR_RETURN(const bool saved, save(decision));
    if (!decision.stop) continue;
    if (saved) {
      say_what_is_missing();
      return LoopEnd::kStopRequested;
    }
    ASSIGN_OR_RETURN(const bool leave, stop_in_vain());
    if (leave) return LoopEnd::kNotSaved;
  }
  if (is_root()) progress_.finish();
  say_what_is_missing();
  return LoopEnd::kComplete;
}

Result<StepResult> TrainLoop::one_step() {
  const int64_t done = cursor_.step - profile_from_;
  const bool profile = done >= 1 && done <= config_.profile_steps;
  const bool clock_asks = is_root() && config_.checkpoint_every_seconds > 0 &&
                          since_save_.seconds() >= config_.checkpoint_every_seconds;
  ASSIGN_OR_RETURN(const StepResult result,
                   engine_.train_step(cursor_.step, cursor_.consumed_samples, session_.dataset,
                                      stop_requested() || clock_asks || wants_profile_, profile));
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    return failed_precondition(
        "step {}: loss {}, gradient norm {}: training has diverged. Checkpoints are as they were; "
        "resume from one with a lower optimizer.learning_rate",
        cursor_.step + 1, result.loss, result.grad_norm);
  }
  cursor_.step += 1;
  cursor_.consumed_samples += config_.global_batch;
  cursor_.accumulation_scale = result.accumulation_scale;
  return result;
}

Result<TrainLoop::Decision> TrainLoop::decide(bool any_flag) {
  Decision decision;
  decision.save =
      cursor_.step >= config_.steps ||
      (config_.checkpoint_every_steps > 0 && cursor_.step % config_.checkpoint_every_steps == 0);
  if (!any_flag) return decision;
  // Some rank asked before this step; what for, all learn here.
  int64_t asked[2] = {stop_requested() ? 1 : 0, wants_profile_ ? 1 : 0};
  RETURN_IF_ERROR(world_.all_reduce(std::span<int64_t>(asked), ReduceOp::kMax));
  decision.stop = asked[0] != 0;
  decision.profile = asked[1] != 0;
  wants_profile_ = false;
  // Who asks for a profile alone asks for no checkpoint; one that is due as well comes next time.
  if (decision.stop || !decision.profile) decision.save = true;
  return decision;
}

Result<std::optional<double>> TrainLoop::evaluate_if_due() {
  const bool due = config_.eval_every > 0 &&
                   (cursor_.step % config_.eval_every == 0 || cursor_.step == config_.steps);
  if (!due) return std::optional<double>();
  if (is_root()) control_.mark("evaluating");
  ASSIGN_OR_RETURN(const double loss, engine_.evaluate(session_.dataset, config_.eval_sequences));
  if (is_root()) control_.mark("evaluated");
  return std::optional<double>(loss);
}

Status TrainLoop::report_step(const StepResult& result, double seconds,
                              std::optional<double> eval_loss) {
  if (!is_root()) return {};
  const int gpus = world_.size();
  const double rate = static_cast<double>(result.tokens) / seconds;
  StepMetrics metrics;
  metrics.step = cursor_.step;
  metrics.consumed_samples = cursor_.consumed_samples;
  metrics.loss = result.loss;
  metrics.learning_rate = result.learning_rate;
  metrics.grad_norm = result.grad_norm;
  metrics.tokens_per_second = rate;
  metrics.step_seconds = seconds;
  metrics.gpus = gpus;
  metrics.plan_id = plan_id_;
  metrics.eval_loss = eval_loss;
  metrics.mtp_losses = result.mtp_losses;
  // Not worth a training: the lines wait for room.
  const bool waited = metrics_->waiting() > 0;
  const Status appended = metrics_->append(metrics);
  if (appended.ok() == waited) {
    progress_.finish();
    if (waited) {
      log_info("metrics.jsonl is written again, no line is missing");
    } else {
      log_warning("{}; training goes on, the lines are kept until there is room",
                  appended.message());
    }
  }
  const bool last = cursor_.step == config_.steps;
  progress_.show({cursor_.step, config_.steps, result.loss, rate, seconds, gpus},
                 last || eval_loss.has_value());
  if (eval_loss.has_value()) {
    progress_.finish();
    fmt::print("step {}/{}  evaluation loss {:.4f}\n", cursor_.step, config_.steps, *eval_loss);
    std::fflush(stdout);
  }
  last_progress_ = {cursor_.step, config_.steps, cursor_.consumed_samples,
                    result.loss,  rate,          seconds,
                    gpus,         plan_id_};
  control_.write_progress(last_progress_, last);
  return {};
}

void TrainLoop::say_what_is_missing() const {
  if (!is_root() || metrics_->waiting() == 0) return;
  log_error("the last {} lines of metrics.jsonl could not be written; the checkpoint is complete",
            metrics_->waiting());
}

Status TrainLoop::profile_if_complete() {
  if (config_.profile_steps == 0 || cursor_.step - profile_from_ != config_.profile_steps + 1) {
    return {};
  }
  ASSIGN_OR_RETURN(planner::StepProfile profile, engine_.profile());
  // What the first step takes longer: kernels are made, connections opened.
  profile.start_phases = start_phases_;
  if (!profile.start_phases.empty()) {
    profile.start_phases.push_back({"first step",
                                    std::max(0.0, first_step_seconds_ - profile.step_seconds),
                                    planner::PhaseScaling::kFixed});
  }
  if (is_root()) {
    const Status written = write_profile(config_, profile, control_);
    if (!written.ok()) log_warning("no profile: {}", written.message());
    const Status kept = write_known_profile(config_, plan_id_, profile);
    if (!kept.ok()) log_warning("known_profiles.json: {}", kept.message());
    unreported_profile_ = profile;
    profiled_plan_ = plan_;
    report_profile();
  }
  if (config_.trace) {
    const Status traced =
        write_trace(world_, plan_, engine_.trace(), config_.output_dir + "/trace.json");
    if (!traced.ok()) log_warning("no trace: {}", traced.message());
  }
  return improve_schedule(profile);
}

Status TrainLoop::improve_schedule(const planner::StepProfile& profile) {
  if (schedule_made_ || !wants_made_schedule(config_, plan_)) return {};
  schedule_made_ = true;
  const auto make = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const planner::PlannedSchedule made,
                     make_schedule_for(config_, profile, plan_));
    progress_.finish();
    fmt::print("step {}/{}  {} schedule: {}; {} had {:g}\n", cursor_.step, config_.steps,
               config_.schedule, made.text, plan_.schedule, made.given_makespan);
    std::fflush(stdout);
    return planner::plan_to_json(made.plan).dump();
  };
  const Result<std::string> text = share(world_, 0, is_root() ? make() : Result<std::string>(""));
  if (!text.ok()) {
    if (is_root()) {
      progress_.finish();
      log_warning("{}; training goes on with {}", text.status().message(), plan_.schedule);
    }
    return {};
  }
  ASSIGN_OR_RETURN(const Json json, parse_json(*text, "schedule"));
  ASSIGN_OR_RETURN(planner::Plan plan, planner::plan_from_json(json));
  if (plan.id == plan_id_) return {};
  RETURN_IF_ERROR(engine_.change_schedule(plan));
  plan_ = std::move(plan);
  plan_id_ = planner::plan_id(plan_);
  profile_from_ = cursor_.step;
  return {};
}

// From an earlier run of this job, or its last time at this size: until this run's own profile, by
// which whatever is stale is replaced.
void TrainLoop::report_known_profile() {
  if (!is_root()) return;
  unreported_profile_ = read_known_profile(config_, plan_id_);
  if (!unreported_profile_.has_value()) return;
  log_info("the scale table begins with the profile of an earlier run with this plan");
  profiled_plan_ = plan_;
  report_profile();
}

// The agent writes its bounds when its controller answers, which may be long after the profile.
void TrainLoop::report_profile() {
  since_report_.restart();
  Result<std::optional<planner::ScaleTable>> reported =
      report_scale_table(config_, profiled_plan_, *unreported_profile_, measured_steps_, control_);
  if (!reported.ok()) log_warning("no scale table: {}", reported.status().message());
  if (reported.ok() && !reported->has_value()) return;
  if (reported.ok()) table_ = *std::move(reported);
  remeasure_.steps_since_profile = 0;
  unreported_profile_.reset();
}

void TrainLoop::note_window() {
  const auto middle = window_.begin() + static_cast<std::ptrdiff_t>(window_.size() / 2);
  std::nth_element(window_.begin(), middle, window_.end());
  remeasure_.step_seconds_now = *middle;
  window_.clear();
  // The best window counts: what a busy moment adds is no property of the size.
  if (best_median_ > 0 && remeasure_.step_seconds_now >= best_median_) return;
  best_median_ = remeasure_.step_seconds_now;
  const Status written =
      write_measured_step(config_, measured_steps_, {world_.size(), best_median_});
  if (!written.ok()) log_warning("measured_steps.json: {}", written.message());
}

void TrainLoop::note_step_seconds(double seconds) {
  if (!is_root()) return;
  if (cursor_.step == first_step_ + 1) {
    first_step_seconds_ = seconds;
    return;
  }
  ++remeasure_.steps_since_profile;
  window_.push_back(seconds);
  if (std::ssize(window_) >= config_.step_window) note_window();
  if (!table_.has_value() || unreported_profile_.has_value()) return;
  const planner::RemeasureDecision decision =
      planner::when_to_remeasure(*table_, remeasure_, kDrift);
  if (!decision.now) return;
  log_info("the profile is taken again: {}", decision.reason);
  // What earlier windows had is as old as the profile.
  if (decision.drifted) best_median_ = 0;
  wants_profile_ = true;
  ++remeasure_.profiles_taken;
  remeasure_.steps_since_profile = 0;
}

Result<bool> TrainLoop::save(const Decision& decision) {
  since_save_.restart();
  if (saved_step_ == cursor_.step) return true;
  const Stopwatch watch;
  if (is_root()) control_.mark("saving");
  HoldingFileSystem files(posix_file_system(), hold_,
                          cursor_.step >= config_.steps ? "last-save"
                          : decision.stop               ? "save"
                                                        : "");
  const Result<std::string> digest = save_checkpoint(
      files, world_, engine_, config_, plan_, {cursor_, session_.fingerprint, session_.data_hash});
  if (is_root()) progress_.finish();
  if (!digest.ok()) {
    // The old checkpoints are untouched; a disk may have room again at the next try.
    if (is_root()) {
      log_error("{}; training goes on", digest.status().message());
      control_.mark(decision.stop ? "save_failed" : "periodic_save_failed",
                    digest.status().message());
    }
    return false;
  }
  saved_step_ = cursor_.step;
  if (is_root()) {
    control_.mark("save");
    control_.note_saved();
    fmt::print("step {}/{}  checkpoint saved in {:.2f} s, digest {}\n", cursor_.step, config_.steps,
               watch.seconds(), *digest);
    std::fflush(stdout);
    const Status kept = apply_retention(
        posix_file_system(), config_.checkpoint_dir, fmt::format("step-{}", cursor_.step),
        config_.checkpoint_keep, config_.checkpoint_disk_budget_bytes);
    if (!kept.ok()) log_warning("retention: {}", kept.message());
  }
  return true;
}

// No later save makes good for this one.
Result<bool> TrainLoop::save_end() {
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(const bool saved, save({.stop = false, .save = true}));
    if (saved || tries == kSaveTries) return saved;
    std::this_thread::sleep_for(kSavePause);
  }
}

// Told to stop, but nothing is saved. True: leave all the same.
Result<bool> TrainLoop::stop_in_vain() {
  int64_t agent[1] = {is_root() && control_.present() ? 1 : 0};
  RETURN_IF_ERROR(world_.all_reduce(std::span<int64_t>(agent), ReduceOp::kMax));
  if (agent[0] != 0) {
    clear_stop_request();
    return false;
  }
  if (++failed_stops_ < kSaveTries) {
    std::this_thread::sleep_for(kSavePause);
    return false;
  }
  if (is_root()) log_error("told to stop, but nothing can be saved: the last checkpoint stands");
  return true;
}

}  // namespace flextrain::trainer
