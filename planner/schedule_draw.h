// SPDX-License-Identifier: MIT
// Draws a simulated schedule: as terminal text, as SVG, and as a Chrome trace (chrome://tracing,
// Perfetto). Pure: texts in, texts out. One row per stage, time to the right.
//
// Text: F, B, W, R for Forward, Backward, Wgrad, Recompute with the micro-batch's last digit, in
// lower case for odd chunks; '>' and '<' for time spent in transfers forward and backward; '.' for
// waiting.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/scale_table.h"
#include "planner/schedule.h"

namespace flextrain::planner {

// What is drawn for a Plan: one of its pipelines on the costs of a profile.
Result<ScheduleReport> simulate_pipeline(const StepProfile& profile, const Plan& plan,
                                         int pipeline);
// Share of all stages' time until the last one ends that is spent computing, 0 … 1.
double busy_share(const ScheduleReport& report);

// At most `columns` characters of time; one unit is chosen so that everything fits, or `end`
// seconds are (so that two drawings have one scale).
std::string schedule_as_text(const ScheduleReport& report, int columns, double end = 0);

struct Drawing {
  ScheduleReport report;
  std::string title;
};
// One below the other, on one time scale.
std::string schedules_as_svg(const std::vector<Drawing>& drawings);
// Complete JSON document, a process per drawing; times in microseconds, as the format wants.
std::string schedules_as_chrome_trace(const std::vector<Drawing>& drawings);

}  // namespace flextrain::planner
