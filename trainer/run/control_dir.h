// SPDX-License-Identifier: MIT
// The files of docs/agent-contract.md. Used by rank 0 alone. A file that cannot be written is
// warned about and training goes on: the agent sees by its absence.
#pragma once

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
  // At most every 0.5 s unless `always`.
  void write_progress(const Progress& progress, bool always);
  void write_profile(const planner::StepProfile& profile) const;
  void write_scale_table(const planner::ScaleTable& table) const;
  // Appends to phases.jsonl: "init", "load", "first_step", "save" or "stop" has ended.
  void phase_ended(const std::string& phase) const;

 private:
  void write(const std::string& name, const std::string& text) const;
  std::string path_;
  double last_progress_ = 0;  // unix seconds
};

Result<ElasticBounds> elastic_bounds_from_text(const std::string& text);

}  // namespace flextrain::trainer
