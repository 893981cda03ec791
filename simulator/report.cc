// SPDX-License-Identifier: MIT
#include "simulator/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

namespace flextrain::simulator {
namespace {

using Field = double (*)(const Measures&);

struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread(const std::vector<Measures>& runs, Field field) {
  Spread result;
  for (const Measures& run : runs) result.mean += field(run);
  result.mean /= static_cast<double>(runs.size());
  if (runs.size() < 2) return result;
  for (const Measures& run : runs) result.deviation += std::pow(field(run) - result.mean, 2);
  result.deviation = std::sqrt(result.deviation / static_cast<double>(runs.size() - 1));
  return result;
}

std::string ratio(const std::vector<Measures>& runs, Field field) {
  const Spread value = spread(runs, field);
  return runs.size() < 2 ? fmt::format("{:.3f}", value.mean)
                         : fmt::format("{:.3f} ± {:.3f}", value.mean, value.deviation);
}

// fmt counts the bytes of ±, so the padding is done here.
std::string padded(const std::string& text, size_t width) {
  const auto letters = static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
  return std::string(width > letters ? width - letters : 0, ' ') + text;
}

constexpr std::array<const char*, 4> kColours = {"#7a7a7a", "#1f77b4", "#d62728", "#2ca02c"};

// A polyline of at most `points` means over [0, values).
std::string line(const std::vector<float>& values, size_t points, double left, double top,
                 double width, double height, double most, const char* colour) {
  std::string path;
  const size_t count = std::min(points, values.size());
  for (size_t p = 0; p < count; ++p) {
    const size_t begin = p * values.size() / count, end = (p + 1) * values.size() / count;
    const double mean = std::accumulate(values.begin() + static_cast<ptrdiff_t>(begin),
                                        values.begin() + static_cast<ptrdiff_t>(end), 0.0) /
                        static_cast<double>(end - begin);
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ",
                        left + width * static_cast<double>(p) / static_cast<double>(count),
                        top + height * (1 - mean / most));
  }
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1\" points=\"{}\"/>\n",
                     colour, path);
}

std::string label(double x, double y, std::string_view text, const char* colour = "#222") {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" font-family=\"sans-serif\" "
      "fill=\"{}\">{}</text>\n",
      x, y, colour, text);
}

}  // namespace

std::string print_report(const std::vector<ScenarioReport>& reports, bool size_classes) {
  std::string out = fmt::format("{:<26}", "policy");
  for (const char* head : {"njct", "nrun"}) out += padded(head, 16);
  for (const char* head : {"slower", "longer", "queue s", "p95 s", ">60s", "w60", "util", "growths",
                           "switches/job", "pause GPUh"})
    out += padded(head, std::string_view(head).size() > 8 ? 13 : 9);
  out += "\n";
  for (const ScenarioReport& report : reports) {
    const auto mean = [&](Field field) { return spread(report.runs, field).mean; };
    out += fmt::format("{:<26}", report.name);
    out += padded(ratio(report.runs, [](const Measures& m) { return m.njct; }), 16);
    out += padded(ratio(report.runs, [](const Measures& m) { return m.nrun; }), 16);
    out += fmt::format("{:>8.1f}%", 100 * mean([](const Measures& m) { return m.slower; }));
    out += fmt::format("{:>8.1f}%", 100 * mean([](const Measures& m) { return m.longer; }));
    out += fmt::format("{:>9.1f}", mean([](const Measures& m) { return m.queue_mean; }));
    out += fmt::format("{:>9.1f}", mean([](const Measures& m) { return m.queue_p95; }));
    out += fmt::format("{:>8.2f}%", 100 * mean([](const Measures& m) { return m.queue_over_60; }));
    out += fmt::format("{:>9.3f}", mean([](const Measures& m) { return m.w60; }));
    out += fmt::format("{:>8.1f}%", 100 * mean([](const Measures& m) { return m.utilisation; }));
    out += fmt::format("{:>9.0f}",
                       mean([](const Measures& m) { return static_cast<double>(m.growths); }));
    out += fmt::format("{:>13.2f}", mean([](const Measures& m) { return m.switches_per_job; }));
    out += fmt::format("{:>13.0f}\n", mean([](const Measures& m) { return m.pause_gpu_hours; }));
  }
  if (!size_classes) return out;
  out += fmt::format("\n{:<26}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "policy", "GPUs", "jobs", "njct",
                     "nrun", "slower");
  for (const ScenarioReport& report : reports) {
    std::map<int, std::vector<SizeClass>> classes;
    for (const Measures& run : report.runs)
      for (const SizeClass& size : run.classes) classes[size.gpus].push_back(size);
    for (const auto& [gpus, list] : classes) {
      double jobs = 0, njct = 0, nrun = 0, slower = 0;
      for (const SizeClass& size : list) {
        jobs += static_cast<double>(size.jobs);
        njct += size.njct;
        nrun += size.nrun;
        slower += size.slower;
      }
      const auto count = static_cast<double>(list.size());
      out += fmt::format("{:<26}{:>9}{:>9.0f}{:>9.3f}{:>9.3f}{:>8.1f}%\n", report.name, gpus,
                         jobs / count, njct / count, nrun / count, 100 * slower / count);
    }
  }
  return out;
}

std::string report_csv(const std::vector<ScenarioReport>& reports) {
  std::string out =
      "policy,run,elastic_jobs,rigid_jobs,njct,nrun,slower,longer,queue_mean_s,queue_p95_s,queue_"
      "over_60,"
      "rigid_run_queue_mean_s,rigid_run_queue_p95_s,rigid_run_queue_over_60,rq,w60,utilisation,"
      "growths,shrinks,switches_per_job,pause_gpu_hours,seconds\n";
  for (const ScenarioReport& report : reports)
    for (size_t run = 0; run < report.runs.size(); ++run) {
      const Measures& m = report.runs[run];
      out += fmt::format(
          "{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{:.3f},{:.3f},{:.6f},{:.3f},{:.3f},{:.6f},{:.6f}"
          ","
          "{:.6f},{:.6f},{},{},{:.4f},{:.1f},{:.3f}\n",
          report.name, run + 1, m.elastic_jobs, m.rigid_jobs, m.njct, m.nrun, m.slower, m.longer,
          m.queue_mean, m.queue_p95, m.queue_over_60, m.base_queue_mean, m.base_queue_p95,
          m.base_queue_over_60, m.rq, m.w60, m.utilisation, m.growths, m.shrinks,
          m.switches_per_job, m.pause_gpu_hours,
          run < report.seconds.size() ? report.seconds[run] : 0.0);
    }
  return out;
}

std::string report_svg(const Trace& trace, const std::vector<ScenarioRun>& runs, int gpus) {
  constexpr double kWidth = 1100, kLeft = 60, kPlot = 1000, kHeight = 240, kJobHeight = 110;
  constexpr size_t kJobs = 3;
  const ReplayResult& last = runs.back().result;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < last.jobs.size(); ++i)
    if (last.jobs[i].switches > 0) chosen.push_back(i);
  std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
    return last.jobs[a].switches > last.jobs[b].switches;
  });
  chosen.resize(std::min(chosen.size(), kJobs));
  const double total = kHeight + 80 + static_cast<double>(chosen.size()) * (kJobHeight + 50);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, total);
  const auto frame = [&](double top, double height) {
    return fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#bbb\"/>\n",
        kLeft, top, kPlot, height);
  };
  double top = 30;
  size_t longest = 0;
  for (const ScenarioRun& run : runs) longest = std::max(longest, run.result.idle.size());
  const double days = static_cast<double>(longest) * last.idle_step / 86400;
  out += label(kLeft, 18, fmt::format("Idle GPUs of {} over {:.1f} days", gpus, days));
  out +=
      frame(top, kHeight) + label(5, top + 10, std::to_string(gpus)) + label(5, top + kHeight, "0");
  for (size_t i = 0; i < runs.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    out += line(runs[i].result.idle, 2000, kLeft, top, kPlot, kHeight, gpus, colour);
    out +=
        label(kLeft + 10 + static_cast<double>(i) * 190, top + kHeight + 18, runs[i].name, colour);
  }
  top += kHeight + 50;
  for (const size_t job : chosen) {
    const double begin = last.jobs[job].start, end = last.jobs[job].end;
    const int base = trace.jobs[job].gpus;
    int most = base;
    for (const SizeChange& change : last.sizes)
      if (change.job == static_cast<int64_t>(job)) most = std::max(most, change.gpus);
    const auto x = [&](double time) { return kLeft + kPlot * (time - begin) / (end - begin); };
    const auto y = [&](int held) { return top + kJobHeight * (1 - double(held) / most); };
    std::string path = fmt::format("{:.1f},{:.1f}", x(begin), y(base));
    int held = base;
    for (const SizeChange& change : last.sizes) {
      if (change.job != static_cast<int64_t>(job)) continue;
      path +=
          fmt::format(" {0:.1f},{1:.1f} {0:.1f},{2:.1f}", x(change.time), y(held), y(change.gpus));
      held = change.gpus;
    }
    path += fmt::format(" {:.1f},{:.1f}", x(end), y(held));
    out += label(kLeft, top - 6,
                 fmt::format("Job {} under {}: GPUs over {:.1f} h", trace.jobs[job].id,
                             runs.back().name, (end - begin) / 3600));
    out += frame(top, kJobHeight) + label(5, top + 10, std::to_string(most)) +
           label(5, top + kJobHeight, "0");
    out += fmt::format(
        "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"1.5\" points=\"{}\"/>\n", path);
    top += kJobHeight + 50;
  }
  return out + "</svg>\n";
}

}  // namespace flextrain::simulator
