// SPDX-License-Identifier: MIT
#include "simulator/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace flextrain::simulator {
namespace {

constexpr int kNameWidth = 26;

struct Column {
  const char* head;
  int width, decimals;
  bool percent;
  double (*value)(const Measures&);
};

constexpr Column kColumns[] = {
    {"njct", 8, 3, false, [](const Measures& m) { return m.njct; }},
    {"nrun", 8, 3, false, [](const Measures& m) { return m.nrun; }},
    {"slower", 9, 1, true, [](const Measures& m) { return m.slower; }},
    {"late", 8, 1, true, [](const Measures& m) { return m.late; }},
    {"longer", 9, 1, true, [](const Measures& m) { return m.longer; }},
    {"queue s", 9, 1, false, [](const Measures& m) { return m.queue_mean; }},
    {"p95 s", 9, 1, false, [](const Measures& m) { return m.queue_p95; }},
    {">60s", 9, 2, true, [](const Measures& m) { return m.queue_over_60; }},
    {"w60", 8, 3, false, [](const Measures& m) { return m.w60; }},
    {"util", 8, 1, true, [](const Measures& m) { return m.utilisation; }},
    {"growths", 9, 0, false, [](const Measures& m) { return static_cast<double>(m.growths); }},
    {"switches/job", 14, 2, false, [](const Measures& m) { return m.switches_per_job; }},
    {"pause GPUh", 12, 0, false, [](const Measures& m) { return m.pause_gpu_hours; }},
};

struct ClassColumn {
  const char* head;
  int width, decimals;
  bool percent;
  double (*value)(const SizeClass&);
};

constexpr ClassColumn kClassColumns[] = {
    {"jobs", 9, 0, false, [](const SizeClass& c) { return static_cast<double>(c.jobs); }},
    {"njct", 8, 3, false, [](const SizeClass& c) { return c.njct; }},
    {"nrun", 8, 3, false, [](const SizeClass& c) { return c.nrun; }},
    {"slower", 9, 1, true, [](const SizeClass& c) { return c.slower; }},
};

struct CostColumn {
  const char* head;
  int width, decimals;
  bool percent, pooled;  // pooled: of the run on one pool
  double (*value)(const Measures&);
};

double completion_hours(const Measures& m) {
  return m.elastic_jobs > 0 ? m.completion_mean / 3600 : std::nan("");
}

constexpr CostColumn kCostColumns[] = {
    {"jct h", 9, 2, false, false, completion_hours},
    {"in a pool", 11, 2, false, true, completion_hours},
    {"queue s", 10, 1, false, false, [](const Measures& m) { return m.queue_mean; }},
    {"in a pool", 11, 1, false, true, [](const Measures& m) { return m.queue_mean; }},
    {">60s", 10, 2, true, false, [](const Measures& m) { return m.queue_over_60; }},
    {"in a pool", 11, 2, true, true, [](const Measures& m) { return m.queue_over_60; }},
    {"node jobs s", 13, 1, false, false, [](const Measures& m) { return m.wide_queue_mean; }},
    {"in a pool", 11, 1, false, true, [](const Measures& m) { return m.wide_queue_mean; }},
    {"stranded", 10, 1, true, false, [](const Measures& m) { return m.stranded; }},
    {"head waits h", 14, 1, false, false,
     [](const Measures& m) { return m.fragmented_wait_hours; }},
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}
double lowest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double highest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

template <class AnyColumn>
std::string cell(const AnyColumn& column, double value) {
  if (std::isnan(value)) return fmt::format("{:>{}}", "-", column.width);
  return column.percent ? fmt::format("{:>{}.{}f}%", 100 * value, column.width - 1, column.decimals)
                        : fmt::format("{:>{}.{}f}", value, column.width, column.decimals);
}

// The rows of one scenario, or of one of its size classes; `title` begins the first one.
template <class AnyColumn, size_t kCount, class Value>
std::string rows(const AnyColumn (&columns)[kCount], const std::string& title, int indent,
                 const std::vector<Value>& runs) {
  struct Row {
    std::string title;
    double (*of)(const std::vector<double>&);
  };
  std::vector<Row> list{{title, mean}};
  if (runs.size() > 1) {
    list.push_back({"  lowest", lowest});
    list.push_back({"  highest", highest});
  }
  std::string out;
  for (const Row& row : list) {
    out += fmt::format("{:<{}}", row.title, indent);
    for (const AnyColumn& column : columns) {
      std::vector<double> values;
      for (const Value& run : runs) values.push_back(column.value(run));
      out += cell(column, row.of(values));
    }
    out += "\n";
  }
  return out;
}

template <class AnyColumn, size_t kCount>
std::string heads(const AnyColumn (&columns)[kCount]) {
  std::string out;
  for (const AnyColumn& column : columns) out += fmt::format("{:>{}}", column.head, column.width);
  return out + "\n";
}

// Means over the runs.
std::string cost_table(const std::vector<ScenarioReport>& reports) {
  std::string out = fmt::format(
      "\nWhat fragmentation costs: on nodes, and with the same GPUs in one pool. jct: from arrival "
      "to "
      "end of elastic jobs;\nstranded: of the idle GPUs, those on partly used nodes; head waits: "
      "GPUs enough, but not on the nodes that it needs\n{:<{}}",
      "policy", kNameWidth);
  out += heads(kCostColumns);
  for (const ScenarioReport& report : reports) {
    out += fmt::format("{:<{}}", report.name, kNameWidth);
    for (const CostColumn& column : kCostColumns) {
      std::vector<double> values;
      for (const ReportedRun& run : column.pooled ? report.pooled : report.runs)
        values.push_back(column.value(run.measures));
      out += cell(column, mean(values));
    }
    out += "\n";
  }
  return out;
}

std::string csv_lines(const std::string& policy, const std::string& layout,
                      const std::vector<ReportedRun>& runs) {
  std::string out;
  for (size_t at = 0; at < runs.size(); ++at) {
    const ReportedRun& run = runs[at];
    const Measures& m = run.measures;
    const std::string name = fmt::format("{},{},{}", policy, at + 1, run.seed);
    out += fmt::format(
        "{},all,{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.3f},{:.3f},{:.6f},{:.3f},{:.3f},{:."
        "6f},"
        "{:.6f},{:.6f},{:.6f},{},{},{:.4f},{:.1f},{:.1f},{:.6f},{:.3f},{:.3f}\n",
        name, layout, m.elastic_jobs, m.rigid_jobs, m.njct, m.nrun, m.slower, m.late, m.longer,
        m.queue_mean, m.queue_p95, m.queue_over_60, m.base_queue_mean, m.base_queue_p95,
        m.base_queue_over_60, m.rq, m.w60, m.utilisation, m.growths, m.shrinks, m.switches_per_job,
        m.pause_gpu_hours, m.completion_mean, m.stranded, m.fragmented_wait_hours, run.seconds);
    for (const SizeClass& size : m.classes)
      out += fmt::format("{},{},{},{},,{:.6f},{:.6f},{:.6f}{}\n", name, size.gpus, layout,
                         size.jobs, size.njct, size.nrun, size.slower, std::string(19, ','));
  }
  return out;
}

}  // namespace

std::string print_report(const std::vector<ScenarioReport>& reports, bool size_classes) {
  std::string out = fmt::format("{:<{}}", "policy", kNameWidth) + heads(kColumns);
  for (const ScenarioReport& report : reports) {
    std::vector<Measures> runs;
    for (const ReportedRun& run : report.runs) runs.push_back(run.measures);
    out += rows(kColumns, report.name, kNameWidth, runs);
  }
  const bool nodes = !reports.empty() && !reports.front().pooled.empty();
  const std::string cost = nodes ? cost_table(reports) : "";
  if (!size_classes) return out + cost;
  constexpr int kSizeWidth = 9;
  out += fmt::format("\n{:<{}}{:>{}}", "policy", kNameWidth, "GPUs", kSizeWidth) +
         heads(kClassColumns);
  for (const ScenarioReport& report : reports) {
    std::map<int, std::vector<SizeClass>> classes;
    for (const ReportedRun& run : report.runs)
      for (const SizeClass& size : run.measures.classes) classes[size.gpus].push_back(size);
    for (const auto& [gpus, runs] : classes)
      out += rows(kClassColumns,
                  fmt::format("{:<{}}{:>{}}", report.name, kNameWidth, gpus, kSizeWidth),
                  kNameWidth + kSizeWidth, runs);
  }
  return out + cost;
}

std::string report_csv(const std::vector<ScenarioReport>& reports) {
  std::string out =
      "policy,run,seed,gpus,layout,elastic_jobs,rigid_jobs,njct,nrun,slower,late,longer,"
      "queue_mean_s,queue_p95_s,queue_over_60,rigid_run_queue_mean_s,rigid_run_queue_p95_s,"
      "rigid_run_queue_over_60,rq,w60,utilisation,growths,shrinks,switches_per_job,pause_gpu_hours,"
      "completion_mean_s,stranded,fragmented_wait_hours,seconds\n";
  for (const ScenarioReport& report : reports)
    out += csv_lines(report.name, report.layout, report.runs) +
           csv_lines(report.name, "pool", report.pooled);
  return out;
}

}  // namespace flextrain::simulator
