// SPDX-License-Identifier: MIT
#include "trainer/run/trace_file.h"

#include "base/file.h"
#include "base/json.h"
#include "planner/schedule.h"
#include "trainer/checkpoint/collective.h"

namespace flextrain::trainer {

std::string trace_rows(const planner::Plan& plan, int rank, const std::vector<TraceEvent>& events) {
  const planner::RankPosition at = planner::find_rank(plan, rank).value_or(planner::RankPosition{});
  Json rows = Json::array();
  rows.push_back({{"name", "process_name"},
                  {"ph", "M"},
                  {"pid", at.pipeline},
                  {"tid", rank},
                  {"args", {{"name", fmt::format("pipeline {}", at.pipeline)}}}});
  rows.push_back({{"name", "thread_name"},
                  {"ph", "M"},
                  {"pid", at.pipeline},
                  {"tid", rank},
                  {"args", {{"name", fmt::format("stage {} (rank {})", at.stage, rank)}}}});
  for (const TraceEvent& event : events) {
    const planner::Action& action = event.action;
    const std::string kind(planner::action_kind_name(action.kind));
    rows.push_back({{"name", fmt::format("{} {}", kind, action.micro_batch)},
                    {"cat", kind},
                    {"ph", "X"},
                    {"ts", event.begin * 1e6},  // microseconds
                    {"dur", (event.end - event.begin) * 1e6},
                    {"pid", at.pipeline},
                    {"tid", rank},
                    {"args",
                     {{"micro_batch", action.micro_batch},
                      {"chunk", action.chunk},
                      {"layers", event.chunk_layers},
                      {"peer", action.peer},
                      {"slot", action.slot}}}});
  }
  return rows.dump();
}

Status write_trace(Communicator& world, const planner::Plan& plan,
                   const std::vector<TraceEvent>& events, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   world.gather_bytes(trace_rows(plan, world.rank(), events), 0));
  Status written;
  if (world.rank() == 0) {
    std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    bool first = true;
    for (const std::string& rows : all) {
      if (rows.size() <= 2) continue;
      if (!first) text += ",\n";
      first = false;
      text += rows.substr(1, rows.size() - 2);  // without its brackets
    }
    written = write_file_atomically(path, text + "\n]}\n");
  }
  return agree(world, written);
}

}  // namespace flextrain::trainer
