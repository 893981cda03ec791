// SPDX-License-Identifier: MIT
// Steps, evaluation, checkpoints and reports, from a loaded engine to the end or a stop request.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/engine/engine.h"
#include "trainer/run/hold_point.h"
#include "trainer/run/metrics_file.h"
#include "trainer/run/profile_report.h"
#include "trainer/run/progress_line.h"
#include "trainer/run/session.h"

namespace flextrain::trainer {

// Why the loop ended without an error.
enum class LoopEnd { kComplete, kStopRequested, kNotSaved };

class TrainLoop {
 public:
  // Everything passed outlives the loop; `cursor` is where the engine's state stands,
  // `start_phases` what this start took so far, for the profile.
  TrainLoop(Communicator& world, const Session& session, Engine& engine, ControlDir& control,
            const TrainingCursor& cursor, std::vector<planner::StartPhase> start_phases);

  // Collective. Runs until the last step, or saves and returns at the first step boundary after any
  // rank caught a stop signal. A save that fails ends nothing: under an agent, which decides, steps
  // go on until the next signal; else it is tried again, and then kNotSaved. An error may be this
  // rank's alone: the caller must take the whole job down.
  Result<LoopEnd> run();

 private:
  struct Decision {  // the same on all ranks
    bool stop = false;
    bool save = false;
    bool profile = false;  // measure again
  };
  Status open_metrics();
  Result<StepResult> one_step();
  Result<Decision> decide(bool any_flag);
  Result<std::optional<double>> evaluate_if_due();
  Status report_step(const StepResult& result, double seconds, std::optional<double> eval_loss);
  void say_what_is_missing() const;
  Status profile_if_complete();
  // Where wants_made_schedule(): rank 0 makes it from the profile, all change to it. Once.
  Status improve_schedule(const planner::StepProfile& profile);
  void report_known_profile();
  void report_profile();
  // Rank 0: keeps the step's time; whether the table should be made anew.
  void note_step_seconds(double seconds);
  void note_window();
  // True when the state is on disk.
  Result<bool> save(const Decision& decision);
  Result<bool> save_end();
  Result<bool> stop_in_vain();
  bool is_root() const { return world_.rank() == 0; }

  Communicator& world_;
  const Session& session_;
  const TrainConfig& config_;
  Engine& engine_;
  ControlDir& control_;
  TrainingCursor cursor_;
  const int64_t first_step_;
  int64_t saved_step_;
  planner::Plan plan_;  // the running one
  std::string plan_id_;
  bool schedule_made_ = false;
  int64_t profile_from_;                // the step after which the profile began
  std::optional<MetricsFile> metrics_;  // rank 0
  ProgressLine progress_;
  const HoldPoint hold_;
  Progress last_progress_;
  Stopwatch since_save_, since_report_;
  int failed_stops_ = 0;  // in a row
  // Rank 0.
  std::optional<planner::StepProfile> unreported_profile_;  // no scale table of it yet
  planner::Plan profiled_plan_;                             // its
  std::optional<planner::ScaleTable> table_;                // the last reported one
  std::vector<planner::MeasuredStep> measured_steps_;       // of all sizes so far
  std::vector<double> window_;                              // the last steps' seconds
  double best_median_ = 0;                                  // of this process's windows, 0 = none
  planner::RemeasureState remeasure_;
  bool wants_profile_ = false;
  std::vector<planner::StartPhase> start_phases_;
  double first_step_seconds_ = 0;
};

}  // namespace flextrain::trainer
