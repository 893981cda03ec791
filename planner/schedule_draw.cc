// SPDX-License-Identifier: MIT
#include "planner/schedule_draw.h"

#include <algorithm>
#include <cmath>

#include "base/svg.h"
#include "planner/predict.h"

namespace flextrain::planner {
namespace {

bool is_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
         kind == ActionKind::kWgrad || kind == ActionKind::kRecompute;
}

bool is_transfer(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kRecvForward ||
         kind == ActionKind::kSendBackward || kind == ActionKind::kRecvBackward;
}

char letter(const Action& action) {
  char c = 'R';
  if (action.kind == ActionKind::kForward) c = 'F';
  if (action.kind == ActionKind::kBackward) c = 'B';
  if (action.kind == ActionKind::kWgrad) c = 'W';
  return action.chunk % 2 == 0 ? c : static_cast<char>(c - 'A' + 'a');
}

// Colour-blind-safe hues (Okabe and Ito 2008); odd chunks are paler.
const char* colour(const Action& action) {
  const bool odd = action.chunk % 2 == 1;
  switch (action.kind) {
    case ActionKind::kForward:
      return odd ? "#9ad0f5" : "#56b4e9";
    case ActionKind::kBackward:
      return odd ? "#7fcfb5" : "#009e73";
    case ActionKind::kWgrad:
      return odd ? "#f5cf80" : "#e69f00";
    case ActionKind::kRecompute:
      return odd ? "#e3b8d0" : "#cc79a7";
    default:
      return "#999999";
  }
}

double end_of(const ScheduleReport& report) { return report.makespan > 0 ? report.makespan : 1; }

// The shortest computation: what one character should be able to show.
double shortest_compute(const ScheduleReport& report) {
  double shortest = end_of(report);
  for (const auto& row : report.timeline) {
    for (const TimedAction& timed : row) {
      if (is_compute(timed.action.kind) && timed.end > timed.begin) {
        shortest = std::min(shortest, timed.end - timed.begin);
      }
    }
  }
  return shortest;
}

}  // namespace

Result<ScheduleReport> simulate_pipeline(const StepProfile& profile, const Plan& plan,
                                         int pipeline) {
  RETURN_IF_ERROR(check_profile(profile, plan.num_transformer_layers, plan.num_mtp_heads));
  ASSIGN_OR_RETURN(const Schedule schedule, schedule_of(plan, pipeline));
  const bool split = std::any_of(schedule[0].begin(), schedule[0].end(), [](const Action& action) {
    return action.kind == ActionKind::kWgrad;
  });
  const PipelineCosts costs = pipeline_costs(profile, plan, pipeline);
  return check_schedule(schedule, costs.shape, action_costs(costs, split));
}

double busy_share(const ScheduleReport& report) {
  double busy = 0;
  for (const auto& row : report.timeline) {
    for (const TimedAction& timed : row) {
      if (is_compute(timed.action.kind)) busy += timed.end - timed.begin;
    }
  }
  return busy / (end_of(report) * static_cast<double>(std::max<size_t>(report.timeline.size(), 1)));
}

std::string schedule_as_text(const ScheduleReport& report, int columns, double end) {
  columns = std::clamp(columns, 10, 10000);
  // Two characters for the shortest computation when there is room, else what fits.
  const double unit =
      end > 0 ? end / columns : std::max(shortest_compute(report) / 2, end_of(report) / columns);
  const auto column = [&](double time) { return static_cast<size_t>(std::lround(time / unit)); };
  const size_t width = column(report.makespan);
  std::string text;
  for (size_t stage = 0; stage < report.timeline.size(); ++stage) {
    std::string row(width, '.');
    for (const TimedAction& timed : report.timeline[stage]) {
      const size_t begin = column(timed.begin), stop = std::min(column(timed.end), width);
      if (stop <= begin) continue;
      if (is_transfer(timed.action.kind)) {
        const bool forward = timed.action.kind == ActionKind::kSendForward ||
                             timed.action.kind == ActionKind::kRecvForward;
        row.replace(begin, stop - begin, stop - begin, forward ? '>' : '<');
      } else if (is_compute(timed.action.kind)) {
        row.replace(begin, stop - begin, stop - begin, '-');
        row[begin] = letter(timed.action);
        if (stop - begin > 1) {
          row[begin + 1] = static_cast<char>('0' + timed.action.micro_batch % 10);
        }
      }
    }
    text += fmt::format("{:>3} |{}|\n", stage, row);
  }
  return text;
}

namespace {

constexpr double kRow = 24, kGap = 4, kLeft = 70, kTop = 34, kWidth = 1100;

void add_panel(const Drawing& drawing, double top, double scale, Svg& svg) {
  svg.text(kLeft, top + 20, drawing.title, {.size = 14});
  for (size_t stage = 0; stage < drawing.report.timeline.size(); ++stage) {
    const double y = top + kTop + static_cast<double>(stage) * (kRow + kGap);
    svg.text(8, y + 16, fmt::format("stage {}", stage));
    svg.box(kLeft, y, kWidth, kRow, {.fill = "#f0f0f0"});
    for (const TimedAction& timed : drawing.report.timeline[stage]) {
      const double width = (timed.end - timed.begin) * scale;
      if (width <= 0) continue;
      const Action& action = timed.action;
      const double x = kLeft + timed.begin * scale;
      svg.box(x, y, width, kRow,
              {.fill = colour(action),
               .stroke = "white",
               .stroke_width = 0.5,
               .tooltip =
                   fmt::format("{} {} chunk {}: {:.6g} to {:.6g} s", action_kind_name(action.kind),
                               action.micro_batch, action.chunk, timed.begin, timed.end)});
      if (is_compute(action.kind) && width >= 9)
        svg.text(x + width / 2, y + 16, std::to_string(action.micro_batch), {.anchor = "middle"});
    }
  }
}

double panel_height(const Drawing& drawing) {
  return kTop + static_cast<double>(drawing.report.timeline.size()) * (kRow + kGap);
}

}  // namespace

std::string schedules_as_svg(const std::vector<Drawing>& drawings) {
  double height = 30, end = 0;
  for (const Drawing& drawing : drawings) {
    height += panel_height(drawing);
    end = std::max(end, end_of(drawing.report));
  }
  const double scale = kWidth / std::max(end, 1e-300);
  Svg svg(kLeft + kWidth + 20, height);
  double top = 0;
  for (const Drawing& drawing : drawings) {
    add_panel(drawing, top, scale, svg);
    top += panel_height(drawing);
  }
  const double legend = height - 12;
  double x = kLeft;
  for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward, ActionKind::kWgrad,
                                ActionKind::kRecompute, ActionKind::kSendForward}) {
    Action action;
    action.kind = kind;
    const std::string name(kind == ActionKind::kSendForward ? "transfer" : action_kind_name(kind));
    svg.box(x, legend - 10, 12, 12, {.fill = colour(action)});
    svg.text(x + 16, legend, name);
    x += 100;
  }
  svg.text(x, legend, fmt::format("odd chunks paler; {:.6g} s in all", end));
  return svg.document();
}

std::string schedules_as_chrome_trace(const std::vector<Drawing>& drawings) {
  Json events = Json::array();
  for (size_t process = 0; process < drawings.size(); ++process) {
    const auto& [report, title] = drawings[process];
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", title}}}});
    for (size_t stage = 0; stage < report.timeline.size(); ++stage) {
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", process},
                        {"tid", stage},
                        {"args", {{"name", fmt::format("stage {}", stage)}}}});
      for (const TimedAction& timed : report.timeline[stage]) {
        if (timed.end <= timed.begin) continue;
        const Action& action = timed.action;
        events.push_back(
            {{"name", fmt::format("{} {}", action_kind_name(action.kind), action.micro_batch)},
             {"cat", action_kind_name(action.kind)},
             {"ph", "X"},
             {"ts", timed.begin * 1e6},
             {"dur", (timed.end - timed.begin) * 1e6},
             {"pid", process},
             {"tid", stage},
             {"args",
              {{"micro_batch", action.micro_batch},
               {"chunk", action.chunk},
               {"peer", action.peer},
               {"slot", action.slot}}}});
      }
    }
  }
  const Json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace flextrain::planner
