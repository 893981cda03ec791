// SPDX-License-Identifier: MIT
#include "simulator/drawing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/svg.h"

namespace flextrain::simulator {
namespace {

constexpr double kLeft = 70, kPlot = 1000, kRight = 30, kTideHeight = 260, kJobHeight = 130;
constexpr double kAbove = 30, kBelow = 22;  // of every plot: title, and labels of the time
constexpr size_t kMostJobs = 3;             // that are drawn unasked
constexpr double kHour = 3600, kDay = 86400;

// Colour-blind-safe hues (Okabe and Ito 2008), black for the first run, which is the rigid one.
constexpr const char* kColours[] = {"#000000", "#e69f00", "#56b4e9", "#009e73",
                                    "#d55e00", "#0072b2", "#cc79a7", "#999999"};
const char* colour(size_t run) { return kColours[run % std::size(kColours)]; }

// Values over time in a frame with both axes labelled.
class Plot {
 public:
  Plot(Svg& svg, double top, double height, double begin, double end, int most)
      : svg_(svg), top_(top), height_(height), begin_(begin), end_(end), most_(most) {
    svg_.box(kLeft, top_, kPlot, height_, {.stroke = "#bbbbbb"});
    svg_.text(kLeft - 6, top_ + 10, std::to_string(most), {.anchor = "end"});
    svg_.text(kLeft - 6, top_ + height_, "0", {.anchor = "end"});
  }
  SvgPoint at(double time, double gpus) const {
    return {kLeft + kPlot * (time - begin_) / (end_ - begin_), top_ + height_ * (1 - gpus / most_)};
  }
  // About ten labels, in steps that people count in.
  void label_time() {
    const double span = end_ - begin_;
    const bool days = span >= 3 * kDay;
    const double unit = days ? kDay : kHour;
    double step = unit;
    for (const double factor : {0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 7.0, 12.0, 14.0, 28.0, 91.0}) {
      step = factor * unit;
      if (span / step <= 12) break;
    }
    for (double time = 0; time <= span * (1 + 1e-9); time += step) {
      const SvgPoint mark = at(begin_ + time, 0);
      svg_.line({mark, {mark.x, mark.y + 4}}, "#bbbbbb");
      svg_.text(mark.x, mark.y + 16, fmt::format("{:g} {}", time / unit, days ? "d" : "h"),
                {.anchor = "middle"});
    }
  }
  // Means over the width of a point.
  void curve(const std::vector<float>& values, double step, const char* colour) {
    constexpr size_t kPoints = 2000;
    std::vector<SvgPoint> points;
    const size_t count = std::min(kPoints, values.size());
    for (size_t p = 0; p < count; ++p) {
      const size_t first = p * values.size() / count, last = (p + 1) * values.size() / count;
      const double sum = std::accumulate(values.begin() + static_cast<ptrdiff_t>(first),
                                         values.begin() + static_cast<ptrdiff_t>(last), 0.0);
      points.push_back(at(static_cast<double>(first) * step, sum / double(last - first)));
    }
    svg_.line(points, colour);
  }

 private:
  Svg& svg_;
  const double top_, height_, begin_, end_;
  const int most_;
};

// Idle GPUs at each hour of the week, from Monday, 00:00, on: the mean, or what a share of the
// samples is below.
class Week {
 public:
  static constexpr size_t kHours = 168;

  Week(const std::vector<float>& idle, double step, double epoch) : samples_(kHours) {
    for (size_t at = 0; at < idle.size(); ++at) {
      const auto hour = static_cast<int64_t>((epoch + static_cast<double>(at) * step) / kHour);
      // 1970-01-01 was a Thursday.
      samples_[static_cast<size_t>((hour + 3 * 24) % 168)].push_back(idle[at]);
    }
    for (std::vector<float>& hour : samples_) std::sort(hour.begin(), hour.end());
  }
  std::vector<float> mean() const {
    return of([](const std::vector<float>& hour) {
      return std::accumulate(hour.begin(), hour.end(), 0.0F) / static_cast<float>(hour.size());
    });
  }
  std::vector<float> quantile(double share) const {
    return of([share](const std::vector<float>& hour) {
      return hour[static_cast<size_t>(share * static_cast<double>(hour.size() - 1))];
    });
  }

 private:
  template <class Measure>
  std::vector<float> of(const Measure& measure) const {
    std::vector<float> list;
    for (const std::vector<float>& hour : samples_) list.push_back(measure(hour));
    return list;
  }
  std::vector<std::vector<float>> samples_;  // by hour of the week; each sorted
};

void draw_week(Svg& svg, double top, double height, const Trace& trace,
               const std::vector<ScenarioRun>& runs, size_t samples, int gpus) {
  svg.text(kLeft, top - 8,
           "Idle GPUs over the hours of the week: means; grey: the lowest and highest tenth of the "
           "rigid run",
           {.size = 13});
  constexpr double kWeek = 7 * kDay;
  Plot plot(svg, top, height, 0, kWeek, gpus);
  constexpr const char* kDays[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
  for (size_t day = 0; day < 7; ++day) {
    const SvgPoint midnight = plot.at(static_cast<double>(day) * kDay, 0);
    svg.line({midnight, {midnight.x, midnight.y + 4}}, "#bbbbbb");
    svg.text(plot.at((static_cast<double>(day) + 0.5) * kDay, 0).x, midnight.y + 16, kDays[day],
             {.anchor = "middle"});
  }
  for (size_t run = 0; run < runs.size(); ++run) {
    std::vector<float> idle = runs[run].result.idle;
    idle.resize(std::min(idle.size(), samples));
    const Week week(idle, runs[run].result.idle_step, trace.epoch);
    if (run == 0)
      for (const double share : {0.1, 0.9}) plot.curve(week.quantile(share), kHour, "#cccccc");
    plot.curve(week.mean(), kHour, colour(run));
  }
}

std::vector<SizeChange> changes_of(const ReplayResult& result, size_t job) {
  std::vector<SizeChange> list;
  for (const SizeChange& change : result.sizes)
    if (change.job == static_cast<int64_t>(job)) list.push_back(change);
  return list;
}

void draw_job(Svg& svg, double top, const Trace& trace, const std::vector<ScenarioRun>& runs,
              size_t job) {
  const TraceJob& asked = trace.jobs[job];
  double end = asked.arrival;
  int most = asked.gpus;
  std::vector<std::vector<SizeChange>> changes;
  for (const ScenarioRun& run : runs) {
    changes.push_back(changes_of(run.result, job));
    for (const SizeChange& change : changes.back()) most = std::max(most, change.gpus);
    end = std::max(end, run.result.jobs[job].end);
  }
  svg.text(kLeft, top - 8,
           fmt::format("Job {}: its GPUs from its arrival, day {:.2f} of the trace, on", asked.id,
                       asked.arrival / kDay),
           {.size = 13});
  Plot plot(svg, top, kJobHeight, asked.arrival, std::max(end, asked.arrival + 1), most);
  plot.label_time();
  for (size_t run = 0; run < runs.size(); ++run) {
    const JobOutcome& outcome = runs[run].result.jobs[job];
    int held = asked.gpus;
    std::vector<SvgPoint> points{plot.at(outcome.start, 0), plot.at(outcome.start, held)};
    for (const SizeChange& change : changes[run]) {
      points.push_back(plot.at(change.time, held));
      held = change.gpus;
      points.push_back(plot.at(change.time, held));
    }
    points.push_back(plot.at(outcome.end, held));
    points.push_back(plot.at(outcome.end, 0));
    svg.line(points, colour(run), 1.5);
  }
}

Result<std::vector<size_t>> choose_jobs(const Trace& trace, const ReplayResult& last,
                                        const std::vector<int64_t>& ids) {
  std::vector<size_t> chosen;
  for (const int64_t id : ids) {
    const auto found = std::find_if(trace.jobs.begin(), trace.jobs.end(),
                                    [&](const TraceJob& job) { return job.id == id; });
    if (found == trace.jobs.end()) return invalid_argument("{} has no job {}", trace.name, id);
    chosen.push_back(static_cast<size_t>(found - trace.jobs.begin()));
  }
  if (!ids.empty()) return chosen;
  for (size_t i = 0; i < last.jobs.size(); ++i)
    if (last.jobs[i].switches > 0) chosen.push_back(i);
  std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
    return last.jobs[a].switches > last.jobs[b].switches;
  });
  chosen.resize(std::min(chosen.size(), kMostJobs));
  return chosen;
}

}  // namespace

Result<std::string> draw_runs(const Trace& trace, const std::vector<ScenarioRun>& runs, int gpus,
                              const std::vector<int64_t>& jobs) {
  ASSIGN_OR_RETURN(const std::vector<size_t> chosen, choose_jobs(trace, runs.back().result, jobs));
  constexpr double kLegend = 26, kJob = kAbove + kJobHeight + kBelow;
  const double step = runs.front().result.idle_step;
  // What comes after the last arrival is no tide.
  const double last = trace.jobs.empty() ? 0 : trace.jobs.back().arrival;
  size_t samples = 1;
  for (const ScenarioRun& run : runs) samples = std::max(samples, run.result.idle.size());
  samples = std::min(samples, static_cast<size_t>(last / step) + 2);
  const bool weekly = static_cast<double>(samples) * step >= 7 * kDay;
  const double week = weekly ? kJob : 0;
  Svg svg(kLeft + kPlot + kRight, kAbove + kTideHeight + kBelow + kLegend + week +
                                      static_cast<double>(chosen.size()) * kJob + 8);
  svg.text(kLeft, kAbove - 8, fmt::format("Idle GPUs of {} over the days of the trace", gpus),
           {.size = 13});
  Plot tide(svg, kAbove, kTideHeight, 0, static_cast<double>(samples) * step, gpus);
  tide.label_time();
  double x = kLeft;
  const double legend = kAbove + kTideHeight + kBelow + 14;
  for (size_t run = 0; run < runs.size(); ++run) {
    std::vector<float> idle = runs[run].result.idle;
    idle.resize(std::min(idle.size(), samples));
    tide.curve(idle, step, colour(run));
    svg.box(x, legend - 9, 10, 10, {.fill = colour(run)});
    svg.text(x + 14, legend, runs[run].name);
    x += kPlot / static_cast<double>(std::max<size_t>(runs.size(), 4));
  }
  double top = kAbove + kTideHeight + kBelow + kLegend + kAbove;
  if (weekly) {
    draw_week(svg, top, kJobHeight, trace, runs, samples, gpus);
    top += kJob;
  }
  for (const size_t job : chosen) {
    draw_job(svg, top, trace, runs, job);
    top += kJob;
  }
  return svg.document();
}

}  // namespace flextrain::simulator
