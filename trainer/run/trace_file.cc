// SPDX-License-Identifier: MIT
#include "trainer/run/trace_file.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_number.h"
#include "planner/schedule.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/config/config_reader.h"

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
                      {"slot", action.slot},
                      {"memory_before", event.memory_before},
                      {"memory_after", event.memory_after}}}});
    // A curve above the rows, one per rank.
    rows.push_back({{"name", fmt::format("memory of rank {}, MB", rank)},
                    {"ph", "C"},
                    {"ts", event.end * 1e6},
                    {"pid", at.pipeline},
                    {"tid", rank},
                    {"args", {{"in use", static_cast<double>(event.memory_after) / 1e6}}}});
  }
  return rows.dump();
}

std::string trace_text(const planner::Plan& plan, const std::vector<std::string>& rows_of_ranks) {
  std::string text =
      "{\"displayTimeUnit\": \"ms\", \"flextrain_plan\": " + planner::plan_to_json(plan).dump() +
      ",\n\"traceEvents\": [\n";
  bool first = true;
  for (const std::string& rows : rows_of_ranks) {
    if (rows.size() <= 2) continue;
    if (!first) text += ",\n";
    first = false;
    text += rows.substr(1, rows.size() - 2);  // without its brackets
  }
  return text + "\n]}\n";
}

Status write_trace(Communicator& world, const planner::Plan& plan,
                   const std::vector<TraceEvent>& events, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   world.gather_bytes(trace_rows(plan, world.rank(), events), 0));
  return agree(world,
               world.rank() == 0 ? write_file_atomically(path, trace_text(plan, all)) : Status());
}

namespace {

// Adds one event of pipeline 0.
Status add_event(const Json& event, const planner::Plan& plan, planner::ScheduleReport& report) {
  if (event.at("ph") != "X" || event.at("pid") != 0) return {};
  ASSIGN_OR_RETURN(const planner::RankPosition at,
                   planner::find_rank(plan, whole_number<int>(event.at("tid"))));
  planner::TimedAction timed;
  ASSIGN_OR_RETURN(timed.action.kind,
                   planner::parse_action_kind(event.at("cat").get<std::string>()));
  const Json& args = event.at("args");
  timed.action.micro_batch = whole_number<int>(args.at("micro_batch"));
  timed.action.chunk = whole_number<int>(args.at("chunk"));
  timed.action.peer = whole_number<int>(args.at("peer"));
  timed.action.slot = whole_number<int>(args.at("slot"));
  timed.begin = event.at("ts").get<double>() / 1e6;
  timed.end = timed.begin + event.at("dur").get<double>() / 1e6;
  constexpr double kLongestStep = 1e9;  // seconds
  if (at.pipeline != 0 || timed.action.micro_batch < 0 || timed.action.chunk < 0 ||
      !(timed.begin >= 0) || !(timed.end >= timed.begin) || timed.end > kLongestStep) {
    return data_loss("an event is none of its Plan's");
  }
  // Reduction and optimiser are the step's, not the schedule's.
  if (timed.action.kind != planner::ActionKind::kReduce &&
      timed.action.kind != planner::ActionKind::kStep) {
    report.makespan = std::max(report.makespan, timed.end);
  }
  report.timeline[static_cast<size_t>(at.stage)].push_back(timed);
  return {};
}

}  // namespace

Result<MeasuredTimeline> read_trace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_input_file(path, size_t{256} << 20));
  ASSIGN_OR_RETURN(const Json json, parse_bounded_json(text, path));
  if (!json.is_object() || !json.contains("flextrain_plan") || !json.contains("traceEvents")) {
    return data_loss("'{}' is no trace of flextrain-trainer", path);
  }
  MeasuredTimeline measured;
  Result<planner::Plan> plan = planner::plan_from_json(json["flextrain_plan"]);
  if (!plan.ok()) return plan.status().with_context(path);
  measured.plan = *std::move(plan);
  measured.report.timeline.resize(measured.plan.pipelines[0].stages.size());
  Status status;
  const Result<bool> read = decode_json(path, [&] {
    for (const Json& event : json["traceEvents"]) {
      status = add_event(event, measured.plan, measured.report);
      if (!status.ok()) break;
    }
    return true;
  });
  RETURN_IF_ERROR(read.status());
  if (!status.ok()) return status.with_context(path);
  return measured;
}

}  // namespace flextrain::trainer
