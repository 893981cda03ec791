// SPDX-License-Identifier: MIT
#include "agent/liveness.h"

#include <algorithm>

namespace flextrain::agent {
namespace {

constexpr double kSlowestFactor = 20;
constexpr double kFloor = 60;    // seconds; a busy machine or file system is no hang
constexpr double kDecay = 0.99;  // per step: one slow step is forgotten after some hundred

}  // namespace

void Liveness::launched(Time now) {
  doing_ = Doing::kStarting;
  steps_since_mark_ = 0;
  slowest_ = 0;
  last_sign_ = now;
}

void Liveness::marked(std::string_view phase, Time now) {
  last_sign_ = now;
  steps_since_mark_ = 0;
  if (phase == "saving") {
    doing_ = Doing::kSaving;
  } else if (phase == "evaluating") {
    doing_ = Doing::kEvaluating;
  } else if (phase == "first_step" || phase == "save" || phase == "save_failed" ||
             phase == "periodic_save_failed" || phase == "evaluated") {
    doing_ = Doing::kStepping;
  }
}

void Liveness::stepped(double step_seconds, Time now) {
  last_sign_ = now;
  slowest_ = std::max(step_seconds, slowest_ * kDecay);
  // A step may be read after the mark that followed it; a second one ends a save for sure.
  if (doing_ == Doing::kStarting || ++steps_since_mark_ > 1) doing_ = Doing::kStepping;
}

double Liveness::limit() const {
  const double step = limits_.step > 0 ? limits_.step : std::max(kFloor, kSlowestFactor * slowest_);
  return doing_ == Doing::kStepping ? step : std::max(step, limits_.busy);
}

std::optional<double> Liveness::hangs(Time now) const {
  const double silent = std::chrono::duration<double>(now - last_sign_).count();
  if (silent <= limit()) return std::nullopt;
  return silent;
}

}  // namespace flextrain::agent
