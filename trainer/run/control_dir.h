// SPDX-License-Identifier: MIT
// The files of docs/agent-contract.md. Used by rank 0 alone. When they cannot be written that is
// said once and training goes on: the agent sees by their absence.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"

namespace flextrain::trainer {

struct Progress {
  int64_t step = 0, total_steps = 0, consumed_samples = 0;
  double loss = 0, tokens_per_second = 0, step_seconds = 0;
  int gpus = 0;
  std::string plan_id;
};

struct ElasticBounds {  // request.json
  int max_gpus = 1;
  std::string elastic_mode;  // "pp" or "dp+pp"
  std::string device_type;
  int64_t memory_limit_bytes = 0;
};

class ControlDir {
 public:
  // "" = no agent: every call does nothing.
  explicit ControlDir(std::string path) : path_(std::move(path)) {}
  static ControlDir from_environment();  // FLEXTRAIN_CONTROL_DIR

  bool present() const { return !path_.empty(); }
  // Nothing when the agent wrote none; an error when it is there but cannot be used.
  Result<std::optional<planner::Plan>> plan() const;
  Result<std::optional<ElasticBounds>> request() const;

  void write_fingerprint(const std::string& fingerprint) const;
  // A checkpoint is in place. Told to the trainers after this one (has_saved), not to the agent.
  void note_saved() const;
  bool has_saved() const;
  // At most every 0.5 s unless `always`.
  void write_progress(const Progress& progress, bool always);
  void write_profile(const planner::StepProfile& profile) const;
  void write_scale_table(const planner::ScaleTable& table) const;
  // Appends a line to phases.jsonl; its names: docs/agent-contract.md. `reason` goes with
  // "save_failed".
  void mark(const std::string& phase, const std::string& reason = "") const;

 private:
  void write(const std::string& name, const std::string& text) const;
  void tell(const Status& written) const;  // one line when writing begins to fail, one when it ends
  std::string path_;
  // Steady: a clock that is set back must not silence the progress.
  std::optional<std::chrono::steady_clock::time_point> last_progress_;
  mutable bool failing_ = false;
};

Result<ElasticBounds> elastic_bounds_from_text(const std::string& text);

}  // namespace flextrain::trainer
