// SPDX-License-Identifier: MIT
#include "agent/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/unix_time.h"

namespace flextrain::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kRepeatSignal{5};     // a lost signal must not cost the user's checkpoint
constexpr seconds kSignalPatience{30};  // for a trainer that never says "init"
constexpr seconds kKillPatience{5};     // from SIGTERM to SIGKILL
constexpr int kMaxFailuresBeforeStep = 3;
constexpr int kInterruptsToKill = 3;

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, ControlDir& control_dir, const Launcher& launcher,
                       ControllerLink* link, EventQueue& events)
    : options_(std::move(options)),
      control_dir_(control_dir),
      launcher_(launcher),
      link_(link),
      events_(events),
      kept_(control_dir.load_state()),
      registration_(options_.registration) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  good_ = base_layout();
  // Whatever an earlier agent of this run had grown to is gone with its trainer.
  kept_.layout = good_;
}

Supervisor::~Supervisor() {
  if (signal_fd_ >= 0) ::close(signal_fd_);
}

int Supervisor::run() {
  if (signal_fd_ < 0 || events_.fd() < 0) {
    log_error("cannot watch for signals: {}", std::strerror(errno));
    return 1;
  }
  launch(base_layout(), "start");
  while (state_ != State::kDone) {
    wait_for_events();
    for (Event& event : events_.take_all()) {
      if (state_ != State::kDone) handle_event(std::move(event));
    }
    if (state_ != State::kDone) tick();
  }
  process_.reset();
  answer_notices();
  return exit_code_;
}

void Supervisor::wait_for_events() {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {events_.fd(), POLLIN, 0}};
  ::poll(fds, 2, static_cast<int>(options_.tick.count()));
  signalfd_siginfo info{};
  while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) handle_signal(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::handle_signal(int number) {
  if (state_ == State::kDone) return;
  // A person at the keyboard who insists, while the trainer hangs.
  if (number == SIGINT && ++interrupts_ == kInterruptsToKill && user_stop_ && process_) {
    log_warning("interrupted {} times: the trainer is killed, its last checkpoint stands",
                interrupts_);
    return kill_trainer();
  }
  if (user_stop_) return;  // a second one changes nothing
  user_stop_ = true;
  log_info("signal {}: checkpointing, then leaving with exit code {}", strsignal(number),
           kExitCheckpointed);
  switch (state_) {
    case State::kRunning:
      state_ = State::kStopping;
      ask_to_stop();
      break;
    case State::kLaunching:
      // A switch has just made a checkpoint; nothing is gained by waiting for another.
      if (switch_) {
        kill_trainer();
      } else if (user_stop_possible()) {
        state_ = State::kStopping;
        ask_to_stop();
      }  // else tick() asks once its handlers stand
      break;
    case State::kBackoff:
      finish(kExitCheckpointed, "the user's signal; the last checkpoint stands");
      break;
    case State::kStopping:
    case State::kKilling:
    case State::kDone:
      break;
  }
}

bool Supervisor::user_stop_possible() const { return trainer_ready_; }

void Supervisor::ask_to_stop() {
  asked_ = Clock::now();
  if (!process_) return;
  process_->signal(SIGUSR1);
  process_->signal(SIGCONT);  // a stopped mpirun would never pass it on
}

void Supervisor::kill_trainer() {
  state_ = State::kKilling;
  killed_ = Clock::now();
  if (process_) process_->signal(SIGTERM);
}

void Supervisor::tick() {
  read_trainer_files();
  if (process_) {
    if (const std::optional<int> code = process_->poll_exit()) {
      process_.reset();
      read_trainer_files();  // what it wrote last
      on_exit(*code);
      return;
    }
  }
  const Clock::time_point now = Clock::now();
  switch (state_) {
    case State::kLaunching:
      if (user_stop_ && user_stop_possible()) {
        state_ = State::kStopping;
        ask_to_stop();
      } else if (user_stop_ && now - launched_ > kSignalPatience) {
        kill_trainer();
      } else if (switch_ && now > switch_->deadline) {
        switch_->failure = "no first step within the order's time";
        kill_trainer();
      }
      break;
    case State::kStopping:
      if (now - asked_ > kRepeatSignal) ask_to_stop();
      if (!user_stop_ && switch_ && now > switch_->deadline) {
        if (switch_->kind == Switch::Kind::kGrow) {
          // It may well be saving: wait, then go on as before.
          switch_->failure = "the trainer did not checkpoint within the order's time";
        } else {
          log_warning(
              "the trainer does not checkpoint; it is killed and resumes from its last one");
          kill_trainer();
        }
        switch_->deadline = Clock::time_point::max();
      }
      break;
    case State::kKilling:
      if (now - killed_ > kKillPatience && process_) process_->signal_group(SIGKILL);
      break;
    case State::kBackoff:
      if (now >= backoff_until_) launch(backoff_layout_, "restart");
      break;
    case State::kRunning:
    case State::kDone:
      break;
  }
}

void Supervisor::read_trainer_files() {
  double first_step = 0;
  if (state_ == State::kLaunching || state_ == State::kStopping || state_ == State::kKilling) {
    for (const PhaseMark& mark : control_dir_.new_phases()) {
      if (mark.phase == "save" && switch_ && switch_->saved == 0) switch_->saved = mark.time;
      if (state_ != State::kLaunching) continue;
      if (mark.phase == "init") {
        trainer_ready_ = true;
        if (switch_) switch_->ready = mark.time;
      }
      if (mark.phase == "load" && switch_) switch_->loaded = mark.time;
      if (mark.phase == "first_step") first_step = mark.time;
    }
  }
  if (std::optional<TrainerProgress> progress = control_dir_.new_progress()) {
    if (progress->message.step != last_step_) {
      last_step_ = progress->message.step;
      last_step_time_ = progress->time;
    }
    progress_ = std::move(progress->message);
    have_progress_ = true;
    // A trainer that writes no phases has made its first step when its progress is new.
    if (state_ == State::kLaunching && first_step == 0 && progress->time > launched_wall_ &&
        progress_.step > 0) {
      first_step = progress->time;
    }
    update_state_text();
  }
  if (first_step > 0 && state_ == State::kLaunching) on_first_step(first_step);
  if (link_ == nullptr) return;
  if (const auto fingerprint = control_dir_.new_fingerprint()) {
    if (*fingerprint != registration_.fingerprint) {
      registration_.fingerprint = *fingerprint;
      link_->set_registration(registration_);
    }
  }
  if (std::optional<Json> table = control_dir_.new_scale_table()) {
    table_ = std::move(*table);
    link_->set_scale_table({table_, control_dir_.profile().value_or(Json())});
  }
}

void Supervisor::launch(Layout layout, std::string_view why) {
  current_ = std::move(layout);
  state_ = State::kLaunching;
  trainer_ready_ = false;
  launched_ = Clock::now();
  Status status = control_dir_.prepare_launch(current_);
  if (status.ok()) {
    LaunchSpec spec;
    spec.map = LaunchMap::build(current_.allocations, options_.job.own_host);
    spec.has_gpus = options_.job.has_gpus;
    spec.command = options_.command;
    spec.control_dir = control_dir_.path();
    Result<ProcessSpec> prepared = launcher_.prepare(spec);
    if (prepared.ok()) {
      log_info("{}: {} ranks on {}", why, spec.map.num_ranks(), spec.map.mpirun_hosts());
      launched_wall_ = unix_seconds();
      Result<Process> process = Process::start(*prepared);
      if (process.ok()) {
        process_ = std::move(*process);
      } else {
        status = process.status();
      }
    } else {
      status = prepared.status();
    }
  }
  update_state_text();
  if (!status.ok()) launch_failed(status);
}

// Nothing was started. The back-off keeps this from recursing.
void Supervisor::launch_failed(const Status& status) {
  log_error("cannot launch: {}", status.to_string());
  if (switch_) {
    fail_switch(fmt::format("cannot launch: {}", status.message()));
  } else {
    restart_later(1, /*before_first_step=*/true);
  }
}

void Supervisor::on_exit(int code) {
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
      if (code == kExitComplete) {
        finish(kExitComplete, "training complete");
      } else if (user_stop_) {
        finish(kExitCheckpointed, "the user's signal; the last checkpoint stands");
      } else if (switch_) {
        if (switch_->exited == 0) switch_->exited = unix_seconds();
        continue_switch();
      } else {
        recover({}, fmt::format("the trainer was stopped (exit {})", code));
      }
      break;
    case State::kBackoff:
    case State::kDone:
      break;
  }
}

void Supervisor::on_exit_of_stopping(int code) {
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (user_stop_) {
    return finish(code, code == kExitCheckpointed ? "checkpointed on the user's signal"
                                                  : "the trainer failed to checkpoint");
  }
  if (!switch_) return finish(code, "the trainer stopped");  // cannot be: nobody asked
  switch_->exited = unix_seconds();
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
  if (code == kExitBadConfiguration) return finish(code, "the trainer refuses its configuration");
  restart_later(code, /*before_first_step=*/true);
}

void Supervisor::on_exit_of_running(int code) {
  if (code == kExitComplete) return finish(kExitComplete, "training complete");
  if (code == kExitBadConfiguration) return finish(code, "the trainer refuses its configuration");
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
  // Ranks can be signalled without us: by scancel --signal, or by Slurm at a time limit.
  if (code == kExitCheckpointed) return finish(code, "checkpointed on a signal to the trainer");
  restart_later(code, /*before_first_step=*/false);
}

void Supervisor::on_first_step(double time) {
  state_ = State::kRunning;
  failures_before_step_ = 0;
  good_ = current_;
  kept_.layout = good_;
  if (companions_of(good_).empty()) base_plan_ = good_.plan;
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
  const int used = static_cast<int>(restarts_.size());
  if (used >= options_.max_restarts || failures_before_step_ >= kMaxFailuresBeforeStep) {
    return finish(code == 0 ? 1 : code,
                  failures_before_step_ >= kMaxFailuresBeforeStep
                      ? fmt::format("the trainer failed {} times before its first step; last exit "
                                    "code {}",
                                    failures_before_step_, code)
                      : fmt::format("the trainer failed again after {} restarts; last exit code {}",
                                    used, code));
  }
  restarts_.push_back(now);
  const milliseconds pause = std::min(options_.last_backoff, options_.first_backoff * (1 << used));
  log_warning(
      "the trainer ended with exit code {}; restart {} of {} from its last checkpoint in {} s",
      code, used + 1, options_.max_restarts, static_cast<double>(pause.count()) / 1000.0);
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
