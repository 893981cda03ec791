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
#include <thread>
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
constexpr seconds kStragglerPatience{1};
constexpr milliseconds kStragglerTurn{10};
constexpr seconds kLeavePatience{10};  // from the mark "stop" to the end of the launcher
constexpr seconds kSuspended{5};       // between two turns of the loop: somebody stopped us
constexpr seconds kProbePatience{30};  // for a step on every base node
constexpr seconds kProbePause{10};
constexpr int kInterruptsToKill = 3;
constexpr int kSavesOnSignal = 3;  // tries on the user's signal

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Supervisor::Supervisor(SupervisorOptions options, ControlDir& control_dir, const Launcher& launcher,
                       ControllerLink* link, EventQueue& events)
    : options_(std::move(options)),
      job_(options_.job),
      control_dir_(control_dir),
      launcher_(launcher),
      link_(link),
      events_(events),
      kept_(control_dir.load_state()),
      liveness_(options_.liveness),
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
  probe_.reset();
  answer_notices();
  for (; !stragglers_.empty(); look_at_stragglers()) std::this_thread::sleep_for(kStragglerTurn);
  return exit_code_;
}

void Supervisor::wait_for_events() {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {events_.fd(), POLLIN, 0}};
  ::poll(fds, 2, static_cast<int>(options_.tick.count()));
  // Slurm suspends all of a job, this process too: the trainer could not step meanwhile.
  const Clock::time_point now = Clock::now();
  if (now - last_turn_ > kSuspended) liveness_.excuse(now);
  last_turn_ = now;
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

// Those that have ended are forgotten, those whose time is over killed.
void Supervisor::look_at_stragglers() {
  std::erase_if(stragglers_, [](auto& entry) {
    auto& [stragglers, end] = entry;
    const bool late = stragglers.any() && Clock::now() > end;
    if (late) stragglers.kill();
    return late || !stragglers.any();
  });
}

void Supervisor::tick() {
  look_at_stragglers();
  read_trainer_files();
  if (process_) {
    const pid_t session = process_->pid();
    if (const auto code = process_->poll_exit({kExitComplete, kExitCheckpointed})) {
      process_.reset();
      stragglers_.emplace_back(Stragglers(session), Clock::now() + kStragglerPatience);
      read_trainer_files();  // what it wrote last
      on_exit(*code);
      return;
    }
  }
  const Clock::time_point now = Clock::now();
  check_liveness(now);
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
      if (left_ && now - *left_ > kLeavePatience) {
        // All is saved; somebody waits. A stopped daemon keeps mpirun from ending.
        hung_ = "the trainer has saved but does not leave";
        log_warning("{}: it is killed", hung_);
        kill_trainer();
        break;
      }
      if (now - asked_ > kRepeatSignal && !left_) ask_to_stop();
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
      back_off(now);
      break;
    case State::kRunning:
    case State::kDone:
      break;
  }
}

// Kills a trainer that gives no sign of life. Who is to blame on_exit_of_hung() asks.
void Supervisor::check_liveness(Clock::time_point now) {
  if (!process_ || state_ == State::kKilling || state_ == State::kBackoff) return;
  if (now - last_turn_ > kSuspended) return liveness_.excuse(now);  // stopped in this very turn
  const std::optional<double> silent = liveness_.hangs(now);
  if (!silent) return;
  if (const Status writable = control_dir_.check_writable(); !writable.ok()) {
    // Nor can the trainer write there: its silence says nothing.
    if (!std::exchange(blind_, true)) {
      log_warning("whether the trainer hangs cannot be told: {}", writable.message());
    }
    return liveness_.excuse(now);
  }
  blind_ = false;
  hung_ = fmt::format("the trainer hangs: no {} for {:.0f} s",
                      state_ == State::kLaunching ? "sign of life" : "step", *silent);
  log_warning("{}; it is killed and goes on from its last checkpoint", hung_);
  if (state_ == State::kStopping && user_stop_ && !saved_on_stop_) not_saved_ = hung_;
  if (switch_ && switch_->failure.empty() &&
      (state_ == State::kLaunching || switch_->kind == Switch::Kind::kGrow)) {
    switch_->failure = hung_;
  }
  kill_trainer();
}

// The trainer was told to stop, could not save, and steps on (docs/agent-contract.md).
void Supervisor::on_save_failed(const std::string& reason) {
  asked_ = Clock::now();  // the next try in a while
  if (user_stop_) {
    if (++failed_saves_ < kSavesOnSignal) return;
    not_saved_ = reason;
    log_error("nothing can be saved: {}", reason);
    return kill_trainer();
  }
  if (!switch_) return;
  if (switch_->kind != Switch::Kind::kGrow) {
    // Somebody waits for the companions: tried again until the order's time is over.
    if (switch_->kind == Switch::Kind::kShrink) {
      switch_->reason = fmt::format("the trainer could not save: {}", reason);
    }
    return;
  }
  given_up_ = Clock::now();
  const Switch failed = *std::exchange(switch_, std::nullopt);
  log_warning("order {} is given up, the trainer could not save: {}", failed.order_id, reason);
  state_ = State::kRunning;
  report_failure(failed, fmt::format("the trainer could not save: {}", reason));
  update_state_text();
}

// Waits for the next launch. On several nodes it is asked first whether all of them are there: a
// node that has died fails every launch until Slurm notices and requeues the job.
void Supervisor::back_off(Clock::time_point now) {
  if (probe_) {
    const std::optional<int> code = probe_->poll_exit();
    if (!code && now - probed_ <= kProbePatience) return;
    probe_.reset();
    if (!code || *code != 0) return nodes_missing(now, control_dir_.probe_answer());
    if (std::exchange(missing_since_, std::nullopt))
      log_info("every node of the job answers again");
    return launch(backoff_layout_, "restart");
  }
  if (now < backoff_until_) return;
  look_at_own_job();
  std::optional<ProcessSpec> spec = launcher_.probe(backoff_layout_.allocations);
  if (!spec) return launch(backoff_layout_, "restart");
  spec->output_file = control_dir_.probe_log();
  Result<Process> process = Process::start(*spec);
  if (!process.ok()) return launch(backoff_layout_, "restart");
  probe_ = std::move(*process);
  probed_ = now;
}

// The owner may have given nodes up (scontrol update): what is left is the base from now on.
void Supervisor::look_at_own_job() {
  if (job_.allocations.size() < 2) return;
  const Result<SlurmJob> own = options_.own_job();
  if (!own.ok() || own->allocations.empty() || own->allocations.size() >= job_.allocations.size()) {
    return;
  }
  for (const auto& left : own->allocations) {
    if (std::find(job_.allocations.begin(), job_.allocations.end(), left) ==
        job_.allocations.end()) {
      return;
    }
  }
  log_warning("the job has {} of its {} nodes left and goes on with these", own->allocations.size(),
              job_.allocations.size());
  job_.allocations = own->allocations;
  base_plan_ = Json();  // was for more GPUs
  backoff_layout_ = base_layout();
  good_ = base_layout();
  registration_.allocations = job_.allocations;
  if (!job_.has_gpus) {
    for (auto& allocation : registration_.allocations) allocation.gpus = 0;
  }
  if (link_ != nullptr) link_->set_registration(registration_);
}

void Supervisor::nodes_missing(Clock::time_point now, const std::string& answer) {
  const std::string what =
      "a node of the job does not answer" + (answer.empty() ? "" : " (" + answer + ")");
  if (!missing_since_) {
    missing_since_ = now;
    log_warning("{}: waiting until it does or Slurm requeues or ends the job, {} s at most", what,
                options_.node_patience.count());
  } else if (now - *missing_since_ > options_.node_patience) {
    return finish(last_exit_ == 0 ? 1 : last_exit_, what);
  }
  backoff_until_ = now + kProbePause;
}

// A moment of the trainer's clock as steady seconds. Its clock may be set meanwhile: then the
// moment lies between the last look and now all the same.
double Supervisor::when(double trainer_time) const {
  const double now = steady_seconds();
  const double age = unix_seconds() - trainer_time;
  return age >= 0 && now - age >= looked_ - 1 ? now - age : now;
}

void Supervisor::read_trainer_files() {
  double first_step = 0;
  std::string save_failed;
  const bool was_saving = liveness_.saving();
  for (const PhaseMark& mark : control_dir_.new_phases()) {
    liveness_.marked(mark.phase, Clock::now());
    const double time = when(mark.time);
    if (mark.phase == "save_failed") save_failed = mark.reason;
    if (mark.phase == "save" && state_ == State::kStopping) saved_on_stop_ = true;
    if (mark.phase == "stop" && state_ == State::kStopping && saved_on_stop_) left_ = Clock::now();
    if (mark.phase == "save" && switch_ && switch_->saved == 0) switch_->saved = time;
    if (state_ != State::kLaunching) continue;
    if (mark.phase == "init") {
      trainer_ready_ = true;
      if (switch_) switch_->ready = time;
    }
    if (mark.phase == "load" && switch_) switch_->loaded = time;
    if (mark.phase == "first_step") first_step = time;
  }
  if (std::optional<TrainerProgress> progress = control_dir_.new_progress()) {
    if (progress->message.step != last_step_) {
      last_step_ = progress->message.step;
      last_step_time_ = when(progress->time);
      liveness_.stepped(progress->message.step_seconds, Clock::now());
    }
    progress_ = std::move(progress->message);
    have_progress_ = true;
    // A trainer that writes no phases has made its first step when its progress is new.
    if (state_ == State::kLaunching && first_step == 0 && progress_.step > 0) {
      first_step = when(progress->time);
    }
    update_state_text();
  } else if (liveness_.saving() != was_saving) {
    update_state_text();
  }
  looked_ = steady_seconds();
  if (!save_failed.empty() && state_ == State::kStopping) on_save_failed(save_failed);
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
  liveness_.launched(launched_);
  saved_on_stop_ = false;
  left_.reset();
  Status status = control_dir_.prepare_launch(current_);
  if (status.ok()) {
    LaunchSpec spec;
    spec.map = LaunchMap::build(current_.allocations, job_.own_host);
    spec.has_gpus = job_.has_gpus;
    spec.command = options_.command;
    spec.control_dir = control_dir_.path();
    Result<ProcessSpec> prepared = launcher_.prepare(spec);
    if (prepared.ok()) {
      log_info("{}: {} ranks on {}", why, spec.map.num_ranks(), spec.map.mpirun_hosts());
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

}  // namespace flextrain::agent
