// SPDX-License-Identifier: MIT
// The part of Supervisor that decides what follows the end of a trainer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/supervisor.h"
#include "base/log.h"

namespace flextrain::agent {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxFailuresBeforeStep = 3;
constexpr int kExitUnfinished = 1;               // instead of a 0 that cannot be
constexpr std::chrono::seconds kLateSignal{30};  // of a switch that was given up

}  // namespace

void Supervisor::on_exit(int code) {
  // mpirun also ends with 0 when one of its daemons cannot reach it and no rank has ever run.
  if (code == kExitComplete && have_progress_ && progress_.step < progress_.total_steps) {
    log_warning("the trainer ended with exit code 0 at step {} of {}: taken for a failure",
                progress_.step, progress_.total_steps);
    code = kExitUnfinished;
  }
  if (code == kExitComplete && !control_dir_.started()) {
    log_warning("mpirun ended with exit code 0, but no rank has started: taken for a failure");
    code = kExitUnfinished;
  }
  last_exit_ = code;
  const State was = state_;
  answer_notices();
  switch (was) {
    case State::kStopping:
      on_exit_of_stopping(code);
      break;
    case State::kLaunching:
      on_exit_of_launching(code);
      break;
    case State::kRunning:
      on_exit_of_running(code);
      break;
    case State::kKilling:
      on_exit_of_killed(code);
      break;
    case State::kBackoff:
    case State::kDone:
      break;
  }
}

void Supervisor::on_exit_of_killed(int code) {
  const std::string hung = std::exchange(hung_, "");
  if (!hung.empty()) {
    // A launcher that was killed cannot end what it started on other nodes.
    std::set<uint32_t> jobs = companions_of(current_);
    jobs.insert(job_.identity.job_id);
    options_.end_rank_steps(jobs);
  }
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (user_stop_ && !not_saved_.empty()) {
    return finish(
        kExitNotSaved,
        fmt::format("no checkpoint on the user's signal: {}; the last one stands", not_saved_));
  }
  if (user_stop_) return finish(kExitCheckpointed, "the user's signal; the last checkpoint stands");
  if (switch_) {
    if (switch_->exited == 0) switch_->exited = steady_seconds();
    return continue_switch();
  }
  if (!hung.empty()) {
    hung_ = hung;
    return on_exit_of_hung(code);
  }
  recover({}, fmt::format("the trainer was stopped (exit {})", code));
}

// It hung without a switch. Tries are bounded: one that hangs again where it hung before will do so
// for ever.
void Supervisor::on_exit_of_hung(int code) {
  const std::string reason = std::exchange(hung_, "");
  if (last_step_ > hang_step_) hangs_ = 0;
  hang_step_ = std::max(hang_step_, last_step_);
  if (++hangs_ > options_.max_restarts) {
    return finish(code == 0 ? 1 : code,
                  fmt::format("the trainer hung {} times without getting further", hangs_));
  }
  const std::set<uint32_t> used = companions_of(current_);
  if (used.empty()) return restart_later(code, /*before_first_step=*/false);
  const std::set<uint32_t> lost = lost_companions();
  recover(lost.empty() ? used : lost, reason);
}

void Supervisor::on_exit_of_stopping(int code) {
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (user_stop_) {
    return finish(code, code == kExitCheckpointed ? "checkpointed on the user's signal"
                                                  : "the trainer failed to checkpoint");
  }
  if (!switch_) return finish(code, "the trainer stopped");  // cannot be: nobody asked
  switch_->exited = steady_seconds();
  if (code != kExitCheckpointed && switch_->failure.empty()) {
    const std::string failure =
        fmt::format("the trainer ended with exit code {} instead of a checkpoint", code);
    if (switch_->kind == Switch::Kind::kGrow) {
      switch_->failure = failure;
    } else {  // the companions go in any case; the last checkpoint serves
      log_warning("{}; it resumes from its last one", failure);
    }
  }
  continue_switch();
}

void Supervisor::on_exit_of_launching(int code) {
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (user_stop_) return finish(kExitCheckpointed, "the user's signal before the first step");
  if (switch_) {
    return fail_switch(
        fmt::format("the trainer ended with exit code {} before its first step", code));
  }
  if (code == kExitCheckpointed) return finish(code, "checkpointed on a signal to the trainer");
  // What was good enough for steps is not refused for itself.
  if (code == kExitBadConfiguration && !wait_for_start()) {
    return finish(code, "the trainer refuses its configuration");
  }
  restart_later(code, /*before_first_step=*/true);
}

// A trainer that made steps until it was moved would still make them: it is the machine that does
// not let it start, and that may pass.
bool Supervisor::wait_for_start() const {
  return moved_ && Clock::now() - *moved_ < options_.restart_window;
}

void Supervisor::on_exit_of_running(int code) {
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (code == kExitBadConfiguration) return finish(code, "the trainer refuses its configuration");
  look_at_own_job();
  const std::set<uint32_t> used = companions_of(current_);
  if (!used.empty()) {
    const std::set<uint32_t> lost = lost_companions();
    if (code != kExitCheckpointed || !lost.empty()) {
      // Slurm may not know yet that a node is dead: with no culprit named, the base alone is safe.
      return recover(
          lost.empty() ? used : lost,
          lost.empty() ? fmt::format("the trainer ended with exit code {} while grown", code)
                       : fmt::format("companion {} ended", fmt::to_string(fmt::join(lost, ", "))));
    }
  }
  if (code == kExitCheckpointed && given_up_ != Clock::time_point() &&
      Clock::now() - given_up_ < kLateSignal) {
    return launch(current_, "again after a late signal of a switch that was given up");
  }
  // Ranks can be signalled without us: by scancel --signal, or by Slurm at a time limit.
  if (code == kExitCheckpointed) return finish(code, "checkpointed on a signal to the trainer");
  restart_later(code, /*before_first_step=*/false);
}

void Supervisor::on_first_step(double time) {
  state_ = State::kRunning;
  failures_before_step_ = 0;
  moved_.reset();
  good_ = current_;
  kept_.layout = good_;
  if (companions_of(good_).empty()) base_plan_ = good_.plan;
  if (!switch_) switch_ = std::exchange(late_, std::nullopt);
  if (switch_) confirm_switch(time);
  if (const Status saved = control_dir_.save_state(kept_); !saved.ok()) {
    log_warning("the agent's state is not kept: {}", saved.message());
  }
  update_state_text();
  if (user_stop_) {
    state_ = State::kStopping;
    ask_to_stop();
  } else if (holds_doomed(current_)) {
    recover(doomed_, "Slurm calls a companion back");
  } else if (pending_order_) {
    handle_order(*std::exchange(pending_order_, std::nullopt));
  }
}

void Supervisor::restart_later(int code, bool before_first_step) {
  const Clock::time_point now = Clock::now();
  std::erase_if(restarts_, [&](Clock::time_point t) { return now - t > options_.restart_window; });
  if (before_first_step) ++failures_before_step_;
  const bool waits = before_first_step && wait_for_start();
  const int used = waits ? failures_before_step_ - 1 : static_cast<int>(restarts_.size());
  if (!waits &&
      (used >= options_.max_restarts || failures_before_step_ >= kMaxFailuresBeforeStep)) {
    return finish(code == 0 ? 1 : code,
                  failures_before_step_ >= kMaxFailuresBeforeStep
                      ? fmt::format("the trainer failed {} times before its first step; last exit "
                                    "code {}",
                                    failures_before_step_, code)
                      : fmt::format("the trainer failed again after {} restarts; last exit code {}",
                                    used, code));
  }
  const milliseconds pause =
      std::min(options_.last_backoff, options_.first_backoff * (1 << std::min(used, 16)));
  const double seconds = static_cast<double>(pause.count()) / 1000.0;
  if (waits) {
    log_warning(
        "the trainer, which ran until it was moved, ended with exit code {} before its first step; "
        "tried again in {} s, for {} s since then at most",
        code, seconds, options_.restart_window.count());
  } else {
    restarts_.push_back(now);
    log_warning(
        "the trainer ended with exit code {}; restart {} of {} from its last checkpoint in {} s",
        code, used + 1, options_.max_restarts, seconds);
  }
  state_ = State::kBackoff;
  backoff_until_ = now + pause;
  backoff_layout_ = base_layout();
  report_moved(fmt::format("the trainer failed (exit code {}) and restarts on the base", code));
  update_state_text();
}

void Supervisor::finish(int code, std::string reason) {
  log_info("{} (exit code {})", reason, code);
  if (switch_ && !switch_->order_id.empty() && !switch_->left_reported) {
    report_failure(*switch_, reason);
  }
  switch_.reset();
  exit_code_ = code;
  exit_reason_ = std::move(reason);
  state_ = State::kDone;
  update_state_text();
  if (link_ != nullptr) link_->stop({code, exit_reason_}, milliseconds(3000));
}

}  // namespace flextrain::agent
