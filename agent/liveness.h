// SPDX-License-Identifier: MIT
// Whether a trainer still shows signs of life, or hangs. Pure: the caller brings the time.
//
// Signs are steps and the marks of phases.jsonl. Steps come regularly, so a missing one is noticed
// soon; starting up, saving and evaluating are announced by marks and may take long.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace flextrain::agent {

struct LivenessLimits {
  double step = 0;     // seconds without a step; 0 = 20 times the slowest, at least a minute
  double busy = 1800;  // seconds without a sign while starting up, saving or evaluating
};

class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Liveness(LivenessLimits limits) : limits_(limits) {}

  void launched(Time now);                        // a new trainer: starting up
  void marked(std::string_view phase, Time now);  // a line of phases.jsonl (docs/agent-contract.md)
  void stepped(double step_seconds, Time now);    // it reported a new step
  void excuse(Time now) { last_sign_ = now; }     // nobody could have seen a sign until now

  bool saving() const { return doing_ == Doing::kSaving; }

  double limit() const;  // seconds of silence that are allowed now
  // Seconds of silence, when longer than allowed.
  std::optional<double> hangs(Time now) const;

 private:
  enum class Doing { kStarting, kStepping, kSaving, kEvaluating };

  LivenessLimits limits_;
  Doing doing_ = Doing::kStarting;
  int steps_since_mark_ = 0;
  double slowest_ = 0;  // seconds; of recent steps
  Time last_sign_;
};

}  // namespace flextrain::agent
