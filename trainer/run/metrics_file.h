// SPDX-License-Identifier: MIT
// metrics.jsonl: one JSON line per step, each step once over all restarts. Rank 0 alone.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/status.h"

namespace flextrain::trainer {

struct StepMetrics {
  int64_t step = 0;  // completed steps, from 1
  int64_t consumed_samples = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, tokens_per_second = 0, step_seconds = 0;
  int gpus = 0;
  std::string plan_id;
  std::optional<double> eval_loss;
  std::vector<double> mtp_losses;  // per depth
};

class MetricsFile {
 public:
  // Opens PATH for appending and first takes out every line of a step after `last_step` (steps that
  // a crash undid) and every line that is not whole; they go to PATH.undone, so that a run with
  // another checkpoint.dir but the same output.dir loses nothing. PATH.lock keeps two runs from
  // doing so at once (kUnavailable; kAborted after a stop signal).
  static Result<MetricsFile> open(const std::string& path, int64_t last_step);
  // For a file that cannot be opened now: its lines wait, and each append tries to open it, at most
  // every 5 s.
  static MetricsFile waiting_for(const std::string& path, int64_t last_step);
  MetricsFile(MetricsFile&& other) noexcept;
  ~MetricsFile();
  // One write per line, so that readers see whole lines. When it fails (a full disk) the line waits
  // and is written before the next one: the caller may warn and go on. Beyond 32 MiB of waiting
  // lines the oldest are given up.
  Status append(const StepMetrics& metrics);
  // Lines that wait.
  int64_t waiting() const { return waiting_lines_; }

 private:
  MetricsFile(std::string path, int64_t last_step)
      : path_(std::move(path)), last_step_(last_step) {}
  Status attach(std::chrono::seconds patience);

  int fd_ = -1;
  std::string path_;
  int64_t last_step_;
  std::optional<FileLock> lock_;
  std::chrono::steady_clock::time_point tried_;  // to open it
  std::string waiting_;
  int64_t waiting_lines_ = 0;
};

// The lines of `text` with a step up to `last_step`, and the others.
struct SplitMetrics {
  std::string kept, undone;
};
SplitMetrics split_metrics(const std::string& text, int64_t last_step);

}  // namespace flextrain::trainer
