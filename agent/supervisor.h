// SPDX-License-Identifier: MIT
// The base agent's heart: keeps one trainer running over the GPUs the job has, moves it when the
// controller orders so, and survives whatever goes wrong with companions.
//
//              first step                       order, notice, user's signal
//   launching ───────────▶ running ───────────────────────────────▶ stopping (USR1 sent)
//    ▲ │ ▲                   │ exit 0/78, or 85 nobody of us asked for     │ exit
//    │ │ └─── backoff ◀──────┤ ▶ done                                     ├─ user's ─▶ done (85)
//    │ │ too late,           │ exit: a companion died ─▶ launching        │
//    │ ▼ superseded          ▼ over what is left                          │
//    └ killing ◀─────────────────────────────── launching over the target ◀┘
//
// A switch that does not reach its first step goes back to the last layout that did; a job never
// dies of one: where that does not start either (no space in /tmp, checkpoints that cannot be
// reached), it is tried again for restart_window. Exit codes: 0 trained, 85 checkpointed on the
// user's signal, 78 as the trainer said; 74 when the user's signal came but nothing could be saved;
// others: the trainer's, after its restarts were used up.
//
// A trainer that hangs (liveness.h) is killed in any state and goes on from its last checkpoint.
// All times are a steady clock's; those that the trainer writes are turned into it.
//
// One thread. supervisor.cc: loop, signals, launches. supervisor_exit.cc: how a trainer ended and
// what follows. supervisor_switch.cc: orders and switches.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/control_dir.h"
#include "agent/controller_link.h"
#include "agent/event_queue.h"
#include "agent/launcher.h"
#include "agent/liveness.h"
#include "agent/process.h"
#include "agent/slurm_job.h"

namespace flextrain::agent {

// Seconds of the steady clock: what durations here are made of.
double steady_seconds();

inline constexpr int kExitComplete = 0;
inline constexpr int kExitCheckpointed = 85;
inline constexpr int kExitBadConfiguration = 78;
inline constexpr int kExitNotSaved = 74;  // told to stop, but no checkpoint could be made

struct SupervisorOptions {
  SlurmJob job;
  std::vector<std::string> command;
  protocol::RegisterRequest registration;  // without the fingerprint, which the trainer tells
  int max_restarts = 3;                    // of a failing trainer, within restart_window
  std::chrono::seconds restart_window{600};
  std::chrono::milliseconds first_backoff{1'000}, last_backoff{60'000};
  std::chrono::milliseconds tick{50};
  LivenessLimits liveness;
  std::chrono::seconds node_patience{1800};  // for a base node that does not answer
  // See slurm_job.h; replaced in tests.
  std::function<Result<std::set<uint32_t>>(const std::set<uint32_t>&)> running_jobs;
  std::function<void(const std::set<uint32_t>&)> end_rank_steps;
  std::function<Result<SlurmJob>()> own_job;  // as Slurm says now; fails when it does not answer
};

class Supervisor {
 public:
  // `link` may be null: supervise only. SIGUSR1, SIGTERM, SIGINT, SIGHUP and SIGCHLD must be
  // blocked in every thread of the process.
  Supervisor(SupervisorOptions options, ControlDir& control_dir, const Launcher& launcher,
             ControllerLink* link, EventQueue& events);
  ~Supervisor();

  // Runs the job to its end; the agent's exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kLaunching, kRunning, kStopping, kKilling, kBackoff, kDone };

  // One move of the trainer, ordered by the controller or our own.
  struct Switch {
    enum class Kind { kGrow, kShrink, kRecover };
    Kind kind = Kind::kGrow;
    std::string order_id;  // "" = our own
    std::string reason;    // why, for our own
    Layout target;
    Clock::time_point deadline = Clock::time_point::max();
    std::string failure;  // set: go back (grow), or try the base (others)
    bool left_reported = false;
    // Steady seconds; 0 = not yet
    double signalled = 0, last_step = 0, saved = 0, exited = 0, ready = 0, loaded = 0;
  };

  // supervisor.cc
  void wait_for_events();
  void handle_signal(int number);
  void look_at_stragglers();
  void tick();
  void read_trainer_files();
  double when(double trainer_time) const;
  void back_off(Clock::time_point now);
  void look_at_own_job();
  void nodes_missing(Clock::time_point now, const std::string& answer);
  void check_liveness(Clock::time_point now);
  void on_save_failed(const std::string& reason);
  void launch(Layout layout, std::string_view why);
  void launch_failed(const Status& status);
  void ask_to_stop();
  void kill_trainer();

  // supervisor_exit.cc
  void on_exit(int code);
  void on_exit_of_stopping(int code);
  void on_exit_of_launching(int code);
  void on_exit_of_running(int code);
  void on_exit_of_killed(int code);
  void on_exit_of_hung(int code);
  void on_first_step(double time);
  void restart_later(int code, bool before_first_step);
  bool wait_for_start() const;
  void finish(int code, std::string reason);
  bool user_stop_possible() const;

  // supervisor_switch.cc
  void handle_event(Event event);
  void handle_order(Event event);
  void handle_notice(Event event);
  void begin_switch(Switch next);
  void continue_switch();
  void fail_switch(std::string reason);
  void confirm_switch(double first_step);
  void report_left();
  void report_failure(const Switch& failed, std::string reason);
  void report_moved(std::string reason);
  void send_report(protocol::ReportRequest report);
  void recover(const std::set<uint32_t>& lost, std::string reason);
  protocol::PhaseSeconds phases_of(const Switch& done, double first_step) const;
  std::string why_refused(const protocol::Order& order) const;
  Layout base_layout() const;
  Layout without(const Layout& layout, const std::set<uint32_t>& lost) const;
  std::set<uint32_t> companions_of(const Layout& layout) const;
  std::set<uint32_t> lost_companions() const;  // of current_, as far as Slurm says
  bool holds_doomed(const Layout& layout) const;
  void answer_notices();
  void update_state_text();

  const SupervisorOptions options_;
  SlurmJob job_;  // its nodes may become fewer
  ControlDir& control_dir_;
  const Launcher& launcher_;
  ControllerLink* const link_;
  EventQueue& events_;
  int signal_fd_ = -1;

  State state_ = State::kLaunching;
  std::optional<Process> process_;
  Layout current_;  // what runs or is being launched
  Layout good_;     // last layout that made a step
  Json base_plan_;  // of the base alone, null = the trainer's default
  std::optional<Switch> switch_;
  // A shrink whose first launch on the base failed: reported when a restart makes its first step.
  std::optional<Switch> late_;
  std::optional<Event> pending_order_;  // came before the first step
  std::set<uint32_t> doomed_;           // companions that Slurm calls back
  std::vector<protocol::ReplyPtr> notices_;
  AgentState kept_;
  std::vector<protocol::Allocation> told_;  // allocations of the last report, {} = none yet

  bool user_stop_ = false;
  int interrupts_ = 0;          // SIGINTs so far
  bool trainer_ready_ = false;  // it has said "init": its signal handlers stand
  Clock::time_point last_turn_, launched_, asked_, killed_, backoff_until_;
  double looked_ = 0;  // steady seconds of the last look into the trainer's files
  Liveness liveness_;
  std::string hung_;       // why the trainer that is being killed was taken for hung
  std::string not_saved_;  // why there is no checkpoint on the user's signal
  int failed_saves_ = 0;   // on the user's signal
  std::optional<Clock::time_point> left_;  // it said so, with all saved
  bool saved_on_stop_ = false;             // it has saved since it was told to stop
  int64_t hang_step_ = -1;                 // highest step at which it hung
  int hangs_ = 0;                          // without getting further
  bool blind_ = false;                     // the control folder cannot be written
  Clock::time_point given_up_;             // a switch whose checkpoint failed
  // What an mpirun that ended in order leaves: its srun clients, which are still to be told that
  // their steps have ended. Killed before, they leave Slurm's daemons trying for 3 s, in which the
  // node of a companion that has ended stays COMPLETING and takes nobody (measured).
  std::vector<std::pair<Stragglers, Clock::time_point>> stragglers_;
  std::optional<Process> probe_;
  Clock::time_point probed_;
  std::optional<Clock::time_point> missing_since_;  // a base node does not answer
  Layout backoff_layout_;
  std::vector<Clock::time_point> restarts_;
  int failures_before_step_ = 0;
  // When a trainer that had made steps was first moved since its last one: until it makes the next,
  // what keeps it from starting is waited for.
  std::optional<Clock::time_point> moved_;
  int last_exit_ = 0;

  protocol::RegisterRequest registration_;
  protocol::ProgressRequest progress_;
  bool have_progress_ = false;
  int64_t last_step_ = -1;
  double last_step_time_ = 0;
  Json table_;
  int exit_code_ = 0;
  std::string exit_reason_;
};

}  // namespace flextrain::agent
