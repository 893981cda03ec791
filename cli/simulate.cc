// SPDX-License-Identifier: MIT
#include "cli/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "policy/settings.h"
#include "simulator/drawing.h"
#include "simulator/read_trace.h"
#include "simulator/report.h"
#include "simulator/scenario.h"

namespace flextrain::cli {
namespace {

using namespace simulator;

constexpr double kDay = 86400;

Result<std::vector<int>> parse_sizes(const std::string& text) {
  std::vector<int> sizes;
  if (to_lower(text) == "any") return sizes;
  for (const std::string& item : split(text, ',')) {
    const Result<int64_t> size = parse_int(trim(item));
    if (!size.ok() || *size < 1 || *size > 1'000'000)
      return invalid_argument("--sizes: '{}' is no GPU count; write 32,64 or any", item);
    sizes.push_back(static_cast<int>(*size));
  }
  return sizes;
}

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& item : split(text, ','))
    if (!trim(item).empty()) names.emplace_back(trim(item));
  return names;
}

Result<PauseModel> parse_pause(const std::string& text) {
  std::vector<double> seconds;
  for (const std::string& item : split(text, ',')) {
    const Result<double> value = parse_double(trim(item));
    if (!value.ok() || !(*value >= 0 && *value <= kDay))
      return invalid_argument("--pause: '{}' is no number of seconds up to a day", item);
    seconds.push_back(*value);
  }
  if (seconds.size() == 1) return PauseModel{seconds[0], seconds[0], seconds[0]};
  if (seconds.size() == 3) return PauseModel{seconds[0], seconds[1], seconds[2]};
  return invalid_argument(
      "--pause takes one number of seconds, or three: up to 32, up to 64 and more GPUs");
}

Status parse_layout(const SimulateOptions& options, ReplayOptions& common) {
  if (options.nodes.empty()) {
    if (options.gpus < 1)
      return invalid_argument("--gpus N with at least 1, or --nodes NxG, says what there is");
    common.gpus = options.gpus;
    return {};
  }
  if (options.gpus != 0) return invalid_argument("--gpus and --nodes exclude each other");
  const std::vector<std::string> parts = split(to_lower(options.nodes), 'x');
  constexpr int64_t kMostNodes = 100'000, kMostPerNode = 1024;
  const Result<int64_t> nodes = parse_int(trim(parts.front())),
                        gpus = parse_int(trim(parts.back()));
  if (parts.size() != 2 || !nodes.ok() || !gpus.ok() || *nodes < 1 || *nodes > kMostNodes ||
      *gpus < 1 || *gpus > kMostPerNode)
    return invalid_argument(
        "--nodes: '{}' is no layout; write 286x8 for 286 nodes of 8 GPUs (at most {} of {})",
        options.nodes, kMostNodes, kMostPerNode);
  common.gpus = static_cast<int>(*nodes * *gpus);
  common.node_gpus = common.wide_gpus = static_cast<int>(*gpus);
  return {};
}

Result<ReplayOptions> common_options(const SimulateOptions& options) {
  ReplayOptions common;
  RETURN_IF_ERROR(parse_layout(options, common));
  if (!(options.share >= 0 && options.share <= 1))
    return invalid_argument("--share must be between 0 and 1");
  if (!(options.tick >= 1 && options.tick <= kDay))
    return invalid_argument("--tick must be from 1 s to a day");
  if (!(options.hand_over >= 0 && options.hand_over <= kDay))
    return invalid_argument("--hand-over must be from 0 s to a day");
  if (!(options.warm_up_days >= 0)) return invalid_argument("--warm-up must be at least 0 days");
  common.elastic_share = options.share;
  common.hand_over = options.hand_over;
  common.tick = options.tick;
  ASSIGN_OR_RETURN(common.elastic_sizes, parse_sizes(options.sizes));
  common.elastic_users = parse_names(options.users);
  common.elastic_accounts = parse_names(options.accounts);
  ASSIGN_OR_RETURN(common.pause, parse_pause(options.pause));
  if (options.mode != "pp" && options.mode != "dp+pp")
    return invalid_argument("--mode is pp or dp+pp, not '{}'", options.mode);
  if (options.remaining == "limit") {
    common.remaining = KnownRemaining::kLimit;
  } else if (options.remaining == "nothing") {
    common.remaining = KnownRemaining::kNothing;
  } else if (options.remaining != "exact") {
    return invalid_argument("--remaining is exact, limit or nothing, not '{}'", options.remaining);
  }
  common.mode = options.mode == "pp" ? ScaleMode::kPipeline : ScaleMode::kDataAndPipeline;
  return common;
}

// A name that no job has is a slip of the pen.
Status check_names(const char* option, const std::vector<std::string>& wanted,
                   const std::vector<std::string>& names, const std::string& trace) {
  for (const std::string& name : wanted)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return invalid_argument("{}: no job of {} is of {}", option, trace, name);
  return {};
}

// The draws to run, 0 = the trace's own.
Result<std::vector<uint64_t>> parse_seeds(const std::string& text) {
  constexpr int64_t kMost = 1000;
  const size_t dash = text.find('-');
  const Result<int64_t> first =
      dash == std::string::npos ? Result<int64_t>(1) : parse_int(trim(text.substr(0, dash)));
  const Result<int64_t> last =
      parse_int(trim(dash == std::string::npos ? text : text.substr(dash + 1)));
  if (!first.ok() || !last.ok() || *first < 1 || *last < *first || *last - *first >= kMost)
    return invalid_argument("--seeds: '{}' is neither a count from 1 to {} nor a range such as 5-8",
                            text, kMost);
  if (dash == std::string::npos && *last == 1) return std::vector<uint64_t>{0};
  std::vector<uint64_t> seeds;
  for (int64_t seed = *first; seed <= *last; ++seed) seeds.push_back(static_cast<uint64_t>(seed));
  return seeds;
}

Result<std::vector<int64_t>> parse_drawn_jobs(const SimulateOptions& options) {
  std::vector<int64_t> ids;
  if (options.svg_jobs.empty()) return ids;
  if (options.svg.empty())
    return invalid_argument("--svg-jobs says what --svg draws; give --svg FILE");
  for (const std::string& item : split(options.svg_jobs, ',')) {
    const Result<int64_t> id = parse_int(trim(item));
    if (!id.ok() || *id < 0) return invalid_argument("--svg-jobs: '{}' is no job id", item);
    ids.push_back(*id);
  }
  return ids;
}

// Key=Value of flextrain.conf. Some keys mean nothing to a replay: it knows every pause, nothing
// fails, and its queue is looked through as Slurm's backfill would.
Status apply_setting(policy::Parameters& policy, const std::string& setting) {
  static constexpr std::string_view kMeaningless[] = {"QueueDepth", "DefaultOverheadSeconds",
                                                      "RetryAfterFailureSeconds"};
  const size_t equals = setting.find('=');
  const std::string key = to_lower(trim(setting.substr(0, equals)));
  std::vector<std::string> names;
  for (const auto& known : policy::settings()) {
    if (std::find(std::begin(kMeaningless), std::end(kMeaningless), known.name) !=
        std::end(kMeaningless))
      continue;
    names.push_back(known.name);
    if (to_lower(known.name) != key || equals == std::string::npos) continue;
    return known.set(policy, std::string(trim(std::string_view(setting).substr(equals + 1))))
        .with_context(fmt::format("--set {}", setting));
  }
  return invalid_argument("--set {}: one of {} with =VALUE is expected", setting,
                          fmt::join(names, ", "));
}

AppResult refused(const Status& status) {
  return {2, "", fmt::format("sflex simulate: {}\n", printable(status.message()))};
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

}  // namespace

AppResult run_simulate(Environment& environment, const SimulateOptions& options) {
  const Result<ReplayOptions> common = common_options(options);
  if (!common.ok()) return refused(common.status());
  std::vector<Scenario> scenarios;
  if (trim(options.policies).empty())
    return refused(
        invalid_argument("--policies names none; {} are there", fmt::join(scenario_names(), ", ")));
  for (const std::string& name : split(options.policies, ',')) {
    Result<Scenario> scenario = make_scenario(trim(name), *common);
    if (!scenario.ok()) return refused(scenario.status());
    for (const std::string& setting : options.settings)
      if (const Status status = apply_setting(scenario->options.policy, setting); !status.ok())
        return refused(status);
    scenarios.push_back(std::move(*scenario));
  }
  const Result<std::vector<uint64_t>> seeds = parse_seeds(options.seeds);
  if (!seeds.ok()) return refused(seeds.status());
  const Result<std::vector<int64_t>> drawn = parse_drawn_jobs(options);
  if (!drawn.ok()) return refused(drawn.status());
  std::vector<ScenarioReport> reports;
  std::string svg, notes;
  const int gpus = common->gpus, node_gpus = common->node_gpus;
  std::vector<Scenario> pooled = scenarios;
  for (Scenario& scenario : pooled) scenario.options.node_gpus = 0;
  const size_t layouts = node_gpus > 0 ? 2 : 1;
  const size_t runs = options.traces.size() * seeds->size() * layouts;
  const std::string layout =
      node_gpus > 0 ? fmt::format("{}x{}", gpus / node_gpus, node_gpus) : "pool";
  size_t done = 0;
  int64_t elastic_jobs = 0;
  for (const std::string& path : options.traces) {
    const std::string name = path == "-" ? "standard input" : path;
    const Result<std::string> text =
        path == "-" ? environment.standard_input() : environment.read_file(path);
    if (!text.ok()) return refused(text.status());
    Result<ReadTrace> read = read_trace(*text, name, {});
    if (!read.ok()) return refused(read.status());
    Trace& trace = read->trace;
    for (const Status& status :
         {check_names("--users", common->elastic_users, trace.users, name),
          check_names("--accounts", common->elastic_accounts, trace.accounts, name)})
      if (!status.ok()) return refused(status);
    if (read->left_out > 0)
      notes += fmt::format("{}: {} of {} jobs left out: no GPUs, or did not run to an end\n", name,
                           read->left_out, read->lines);
    const auto too_large = std::count_if(trace.jobs.begin(), trace.jobs.end(),
                                         [&](const auto& job) { return job.gpus > gpus; });
    if (too_large > 0)
      notes += fmt::format("{}: {} jobs left out: more than {} GPUs\n", name, too_large, gpus);
    for (const uint64_t seed : *seeds) {
      if (seed != 0) redraw(trace, seed);
      const auto run_all = [&](const std::vector<Scenario>& list) {
        const auto results =
            run_scenarios(trace, list, options.warm_up_days * kDay, cpu_seconds, [&](double share) {
              if (!options.quiet)
                environment.progress((static_cast<double>(done) + share) /
                                     static_cast<double>(runs));
            });
        ++done;
        return results;
      };
      const auto results = run_all(scenarios);
      const Measures& counted = results.back().measures;
      if (counted.elastic_jobs + counted.rigid_jobs == 0)
        return refused(invalid_argument("--warm-up {:g}: no job of {} arrives after so many days",
                                        options.warm_up_days, name));
      elastic_jobs += counted.elastic_jobs;
      const bool first = reports.empty();
      for (size_t i = 0; i < results.size(); ++i) {
        if (first) reports.push_back({results[i].name, {}, layout, {}});
        reports[i].runs.push_back({results[i].measures, seed, results[i].seconds});
      }
      if (node_gpus > 0) {
        const auto in_a_pool = run_all(pooled);
        for (size_t i = 0; i < in_a_pool.size(); ++i)
          reports[i].pooled.push_back({in_a_pool[i].measures, seed, in_a_pool[i].seconds});
      }
      if (!first || options.svg.empty()) continue;
      Result<std::string> drawing = draw_runs(trace, results, gpus, *drawn);
      if (!drawing.ok()) return refused(drawing.status());
      svg = std::move(*drawing);
    }
  }
  const bool growing =
      std::any_of(scenarios.begin(), scenarios.end(),
                  [](const Scenario& scenario) { return scenario.options.elastic; });
  if (growing && elastic_jobs == 0)
    notes +=
        "no job is elastic, and every policy does what rigid does: --sizes, --share, --users and "
        "--accounts choose who is\n";
  for (const auto& [path, content] :
       {std::pair(options.csv, report_csv(reports)), std::pair(options.svg, svg)}) {
    if (path.empty()) continue;
    if (const Status status = environment.write_file(path, content); !status.ok())
      return {1, "", fmt::format("sflex simulate: {}\n", printable(status.message()))};
  }
  const Measures& first = reports.back().runs.front().measures;
  const size_t repeats = runs / layouts;
  const std::string out =
      fmt::format("{} elastic and {} rigid jobs on {}{}\n\n", first.elastic_jobs, first.rigid_jobs,
                  node_gpus > 0 ? fmt::format("{} nodes of {} GPUs", gpus / node_gpus, node_gpus)
                                : fmt::format("{} GPUs", gpus),
                  repeats > 1 ? fmt::format(", the first of {} runs", repeats) : "");
  return {0, out + print_report(reports, options.classes), notes};
}

}  // namespace flextrain::cli
