// SPDX-License-Identifier: MIT
// trace.json: what every rank did in the last profiled step, for chrome://tracing or Perfetto, and
// under which Plan, so that it can be laid beside what was predicted of that.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "trainer/comm/communicator.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

// One rank's events as a JSON array text: a row (pid = pipeline, tid = rank) of the trace.
std::string trace_rows(const planner::Plan& plan, int rank, const std::vector<TraceEvent>& events);

// The file's text from the rows of all ranks.
std::string trace_text(const planner::Plan& plan, const std::vector<std::string>& rows_of_ranks);

// Collective: rank 0 gathers all rows and writes `path`.
Status write_trace(Communicator& world, const planner::Plan& plan,
                   const std::vector<TraceEvent>& events, const std::string& path);

// A trace.json read back: its Plan and what pipeline 0 did. `idle` and the peaks stay empty. Each
// rank's clock begins with its step; a transfer's time includes the waiting for the other side.
struct MeasuredTimeline {
  planner::Plan plan;
  planner::ScheduleReport report;
};
Result<MeasuredTimeline> read_trace(const std::string& path);

}  // namespace flextrain::trainer
