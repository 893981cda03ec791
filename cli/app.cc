// SPDX-License-Identifier: MIT
#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "cli/columns.h"
#include "cli/doctor.h"
#include "cli/explain.h"
#include "cli/fields.h"
#include "cli/replay.h"
#include "cli/simulate.h"
#include "cli/tide.h"
#include "cli/time_spec.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

constexpr const char* kKinds[] = {"grow", "refuse", "shrink", "abort", "pause", "resume"};

struct Options {
  std::string jobs, user, start, end, format, kind, id;
  bool all = false, no_header = false, parsable = false, json = false, help_format = false;
  bool snapshot = false, replay = false, tide = false;
};

AppResult failure(const Status& status) {
  const int code = status.code() == StatusCode::kInvalidArgument ? 2 : 1;
  return {code, "", fmt::format("sflex: {}\n", printable(status.message()))};
}

Result<std::vector<int64_t>> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  for (const std::string& item : split(text, ',')) {
    if (trim(item).empty()) continue;
    const Result<int64_t> id = parse_int(trim(item));
    if (!id.ok() || *id <= 0 || *id > UINT32_MAX)
      return invalid_argument("'{}' is no job id; write numbers, with commas between several",
                              item);
    ids.push_back(*id);
  }
  if (ids.empty()) return invalid_argument("--jobs names no job");
  return ids;
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The filter of the jobs, decisions and companions queries. As with sacct, what is asked for by id
// or time includes what has ended, and decisions begin at midnight unless a time or id is given.
Result<Json> make_filter(const Options& options, const std::string& what, int64_t now) {
  Json filter = Json::object();
  if (!options.jobs.empty()) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, parse_ids(options.jobs));
    filter["job"] = ids;
  }
  if (!options.user.empty()) filter["user"] = options.user;
  if (!options.kind.empty()) filter["kind"] = to_lower(options.kind);
  int64_t start = 0, end = 0;
  if (!options.end.empty()) {
    ASSIGN_OR_RETURN(end, parse_time(options.end, now));
  }
  if (!options.start.empty()) {
    ASSIGN_OR_RETURN(start, parse_time(options.start, now));
  } else if (what == "decisions" && options.jobs.empty() && !options.all) {
    start = midnight_before(end > 0 ? end : now);
  }
  if (start > 0 && end > 0 && start > end)
    return invalid_argument("--starttime {} is after --endtime {}", format_time(start),
                            format_time(end));
  if (start > 0) filter["start"] = start;
  if (end > 0) filter["end"] = end;
  if (options.all || !options.jobs.empty() || !options.start.empty() || !options.end.empty())
    filter["all"] = true;
  return filter;
}

Result<std::vector<Json>> ask(Environment& environment, const std::string& what, Json filter) {
  ASSIGN_OR_RETURN(const Json body, environment.query({what, std::move(filter)}));
  const Json& rows = member(body, "rows");
  if (!rows.is_array())
    return data_loss(
        "the controller's answer to '{}' holds no rows; are sflex and the controller of "
        "one release?",
        what);
  return std::vector<Json>(rows.begin(), rows.end());
}

AppResult list(Environment& environment, const Listing& listing, const Options& options,
               Json filter) {
  const Result<std::vector<Field>> fields = select_fields(
      listing.fields, options.format.empty() ? listing.default_format : options.format);
  if (!fields.ok()) return failure(fields.status());
  Result<std::vector<Json>> rows = ask(environment, listing.what, std::move(filter));
  if (!rows.ok()) return failure(rows.status());
  if (options.json) return {0, json_text(Json{{"rows", *rows}}), ""};
  return {0, print_table(*fields, *rows, {!options.no_header, options.parsable}), ""};
}

AppResult run_listing(Environment& environment, const Listing& listing, const Options& options) {
  if (options.help_format) return {0, help_format(listing.fields), ""};
  Json filter = Json::object();
  if (listing.what == "table") {
    if (options.id.empty()) return failure(invalid_argument("table needs a job id"));
    const Result<std::vector<int64_t>> ids = parse_ids(options.id);
    if (!ids.ok()) return failure(ids.status());
    if (ids->size() != 1) return failure(invalid_argument("table shows one job at a time"));
    filter["job"] = *ids;
  } else if (listing.what != "idle") {
    Result<Json> made = make_filter(options, listing.what, environment.now());
    if (!made.ok()) return failure(made.status());
    filter = std::move(*made);
  }
  return list(environment, listing, options, std::move(filter));
}

AppResult run_explain(Environment& environment, const Options& options) {
  const Result<int64_t> id = parse_int(trim(options.id));
  if (!id.ok() || *id <= 0)
    return failure(
        invalid_argument("'{}' is no decision id; `sflex decisions` lists them", options.id));
  const Result<std::vector<Json>> rows = ask(environment, "explain", Json{{"id", *id}});
  if (!rows.ok()) return failure(rows.status());
  if (rows->empty()) return failure(not_found("there is no decision {}", *id));
  Json row = rows->front();
  if (options.json) return {0, json_text(row), ""};
  std::string out = explain_decision(row);
  int code = 0;
  if (options.replay) {
    const Result<Replayed> replayed = replay_decision(row);
    if (!replayed.ok()) return failure(replayed.status());
    out += replayed->text;
    code = replayed->same ? 0 : 1;
  }
  if (options.snapshot) {
    const Json& snapshot = member(row, "snapshot");
    out += snapshot.is_null()
               ? "\nSnapshot\n  not shown: only root and SlurmUser see everybody's jobs\n"
               : "\nSnapshot\n" + json_text(snapshot);
  }
  return {code, out, ""};
}

AppResult run_tide(Environment& environment, const Options& options) {
  const int64_t now = environment.now();
  Json filter = {{"start", now - int64_t{7} * 86400}};
  for (const auto& [text, name] : {std::pair(options.start, "start"), {options.end, "end"}}) {
    if (text.empty()) continue;
    const Result<int64_t> time = parse_time(text, now);
    if (!time.ok()) return failure(time.status());
    filter[name] = *time;
  }
  const Result<std::vector<Json>> rows = ask(environment, "tide", filter);
  if (!rows.ok()) return failure(rows.status());
  return {0, options.json ? json_text(Json{{"rows", *rows}}) : draw_tide(*rows), ""};
}

AppResult run_command(Environment& environment, const std::string& action, const Options& options) {
  protocol::CommandRequest request;
  request.action = action;
  if (to_lower(trim(options.id)) != "all") {
    const Result<std::vector<int64_t>> ids = parse_ids(options.id);
    if (!ids.ok() || ids->size() != 1)
      return failure(invalid_argument("'{}' is neither a job id nor 'all'", options.id));
    request.job_id = static_cast<uint32_t>(ids->front());
  }
  const Result<Json> body = environment.command(request);
  if (!body.ok()) return failure(body.status());
  return {0, printable(text_of(*body, "message")) + "\n", ""};
}

AppResult run_metrics(Environment& environment) {
  const Result<std::vector<Json>> rows = ask(environment, "metrics", Json::object());
  if (!rows.ok()) return failure(rows.status());
  if (rows->empty()) return failure(data_loss("the controller's answer holds no metrics"));
  return {0, text_of(rows->front(), "text"), ""};
}

AppResult run_diag(Environment& environment, const Options& options) {
  const Result<std::vector<Json>> rows = ask(environment, "diag", Json::object());
  if (!rows.ok()) return failure(rows.status());
  if (options.json) return {0, json_text(Json{{"rows", *rows}}), ""};
  std::string out;
  for (const Json& row : *rows) {
    if (!row.is_object()) continue;
    for (const auto& [key, value] : row.items()) {
      const bool time = key == "started" || key == "last_tick" || key == "last_error_time" ||
                        key == "rpc_slowest_time";
      const std::string text = value.is_string()         ? value.get<std::string>()
                               : time                    ? format_time(int_of(row, key))
                               : value.is_number_float() ? number_text(value.get<double>(), 6)
                                                         : value.dump();
      out += fmt::format("{}: {}\n", printable(key), printable(text));
    }
  }
  return {0, out, ""};
}

void add_output_options(CLI::App& command, Options& options) {
  command.add_option("-o,--format", options.format, "Fields, as NAME[%WIDTH],…");
  command.add_flag("-n,--noheader", options.no_header, "No header");
  command.add_flag("-P,--parsable2", options.parsable, "'|' between the fields, nothing cut");
  command.add_flag("--json", options.json, "The rows as JSON");
  command.add_flag("--helpformat", options.help_format, "Names the fields");
}

void add_filter_options(CLI::App& command, Options& options) {
  command.add_option("-j,--jobs", options.jobs, "Only these jobs, with commas between");
  command.add_option("-u,--user", options.user, "Only this user's");
  command.add_option("-S,--starttime", options.start,
                     "Not before this time: HH:MM, YYYY-MM-DD[THH:MM[:SS]], now-2hours …");
  command.add_option("-E,--endtime", options.end, "Not after this time");
  command.add_flag("-a,--all", options.all, "Also what has ended");
}

void add_simulate_options(CLI::App& command, SimulateOptions& options) {
  command
      .add_option("TRACE", options.traces,
                  "Job traces: `sacct -P` of a site (docs/scheduling.md has the command), or CSV; "
                  "- reads standard input: xzcat t.csv.xz | sflex simulate -")
      ->required();
  command.add_option("--gpus", options.gpus, "GPUs, any of which serves any job");
  command.add_option("--nodes", options.nodes,
                     "Instead of --gpus: NxG, N nodes of G GPUs; says what fragmentation costs");
  command.add_option("--policies", options.policies, "Which, with commas between")
      ->capture_default_str();
  command.add_option("--share", options.share, "Share of the eligible jobs that is elastic")
      ->capture_default_str();
  command.add_option("--sizes", options.sizes, "GPU counts of eligible jobs, or any")
      ->capture_default_str();
  command.add_option("--users", options.users, "Whose jobs are eligible; else everybody's");
  command.add_option("--accounts", options.accounts, "Of which accounts; else of all");
  command.add_option("--mode", options.mode, "Scale tables: pp or dp+pp")->capture_default_str();
  command
      .add_option("--pause", options.pause,
                  "Seconds a switch stops a job: one number, or one for jobs of up to 32, up to "
                  "64 and more GPUs")
      ->capture_default_str();
  command
      .add_option("--hand-over", options.hand_over,
                  "Seconds from a reclaim until its GPUs are free")
      ->capture_default_str();
  command.add_option("--tick", options.tick, "Seconds between looks for growth")
      ->capture_default_str();
  command
      .add_option("--remaining", options.remaining,
                  "What the guard knows of the time a job still runs: exact, its limit, or nothing")
      ->capture_default_str();
  command.add_option("--set", options.settings,
                     "Key=Value of flextrain.conf, for every policy; may be repeated");
  command.add_option("--warm-up", options.warm_up_days, "Days at the start that do not count")
      ->capture_default_str();
  command
      .add_option("--seeds", options.seeds,
                  "Choices of who is elastic, for the spread: a count, or A-B; 1 = the trace's own")
      ->capture_default_str();
  command.add_flag("--classes", options.classes, "Also per size of the job");
  command.add_option("--csv", options.csv, "Writes every measure of every run");
  command.add_option("--svg", options.svg,
                     "Draws the first run's idle GPUs over time and the sizes of a few jobs");
  command.add_option("--svg-jobs", options.svg_jobs,
                     "Whose sizes, ids with commas between; else those that switched most");
  command.add_flag("-q,--quiet", options.quiet, "No progress bar");
}

AppResult parse_and_run(const std::vector<std::string>& arguments, Environment& environment) {
  CLI::App app{"What flextrain's elastic jobs do, and why.", "sflex"};
  app.set_version_flag("-V,--version", "sflex " FLEXTRAIN_VERSION);
  app.require_subcommand(1);
  Options options;
  CLI::App* jobs = app.add_subcommand("jobs", "The elastic jobs");
  CLI::App* decisions = app.add_subcommand("decisions", "What was decided, and why");
  CLI::App* explain = app.add_subcommand("explain", "One decision in words and numbers");
  CLI::App* table = app.add_subcommand("table", "What a job would gain per GPU count");
  CLI::App* companions = app.add_subcommand("companions", "The jobs that hold the expanded GPUs");
  CLI::App* idle = app.add_subcommand("idle", "Idle GPUs per node");
  CLI::App* pause = app.add_subcommand("pause", "No growth of a job until it is resumed");
  CLI::App* resume =
      app.add_subcommand("resume", "Lets a job grow again that was paused or is left alone");
  CLI::App* diag = app.add_subcommand("diag", "The controller's own state");
  CLI::App* metrics = app.add_subcommand("metrics", "The controller's figures as OpenMetrics text");
  CLI::App* doctor = app.add_subcommand("doctor", "Checks the installation");
  CLI::App* simulate = app.add_subcommand(
      "simulate", "What elasticity would have done with a trace's jobs (docs/scheduling.md)");
  SimulateOptions simulation;
  add_simulate_options(*simulate, simulation);
  for (CLI::App* command : {jobs, decisions, companions}) add_filter_options(*command, options);
  for (CLI::App* command : {jobs, decisions, companions, table, idle})
    add_output_options(*command, options);
  decisions
      ->add_option("-k,--kind", options.kind, "Only grow, refuse, shrink, abort, pause or resume")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kKinds), std::end(kKinds)),
                            CLI::ignore_case));
  explain->add_option("ID", options.id, "Of `sflex decisions`")->required();
  explain->add_flag("--replay", options.replay,
                    "Also asks the policy again with what was stored; 1 when it decides otherwise");
  CLI::Option* tide =
      idle->add_flag("--tide", options.tide, "By hour of the day, drawn; of the last 7 days");
  idle->add_option("-S,--starttime", options.start, "The tide's begin")->needs(tide);
  idle->add_option("-E,--endtime", options.end, "The tide's end")->needs(tide);
  explain->add_flag("--snapshot", options.snapshot, "Also everything the controller saw");
  table->add_option("JOB", options.id, "Id of the elastic job");
  for (CLI::App* command : {pause, resume})
    command->add_option("JOB", options.id, "Id of the elastic job, or 'all' (root and SlurmUser)")
        ->required();
  for (CLI::App* command : {explain, diag, doctor})
    command->add_flag("--json", options.json, "As JSON");

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    return {code == 0 ? 0 : 2, out.str(), err.str()};
  }
  if (simulate->parsed()) return run_simulate(environment, simulation);
  if (jobs->parsed()) return run_listing(environment, jobs_listing(), options);
  if (decisions->parsed()) return run_listing(environment, decisions_listing(), options);
  if (companions->parsed()) return run_listing(environment, companions_listing(), options);
  if (table->parsed()) return run_listing(environment, table_listing(), options);
  if (idle->parsed() && options.tide) return run_tide(environment, options);
  if (idle->parsed()) return run_listing(environment, idle_listing(), options);
  if (explain->parsed()) return run_explain(environment, options);
  if (pause->parsed()) return run_command(environment, "pause", options);
  if (resume->parsed()) return run_command(environment, "resume", options);
  if (metrics->parsed()) return run_metrics(environment);
  if (diag->parsed()) return run_diag(environment, options);
  const std::vector<Finding> findings = examine(environment);
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == FindingLevel::kFault;
  });
  return {healthy ? 0 : 1,
          options.json ? json_text(findings_to_json(findings)) : print_findings(findings), ""};
}

}  // namespace

AppResult run_sflex(const std::vector<std::string>& arguments, Environment& environment) {
  try {  // CLI11 and the standard library may throw
    return parse_and_run(arguments, environment);
  } catch (const std::exception& error) {
    return {1, "", fmt::format("sflex: internal error: {}\n", error.what())};
  }
}

}  // namespace flextrain::cli
