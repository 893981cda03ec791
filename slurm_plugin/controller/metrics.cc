// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/decision_rules.h"

namespace flextrain::slurm_plugin {
namespace {

// Writes families in the order of the specification: metadata, then samples.
class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // Of a family with a unit the name ends in it.
  void family(std::string_view name, std::string_view type, std::string_view help,
              std::string_view unit = "") {
    name_ = name;
    text_ += fmt::format("# TYPE {} {}\n", name, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n", name, help);
  }
  void sample(std::string_view suffix, const Labels& labels, double value) {
    text_ += name_;
    text_ += suffix;
    for (size_t i = 0; i < labels.size(); ++i) {
      text_ += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first,
                           escaped(labels[i].second));
    }
    if (!labels.empty()) text_ += '}';
    text_ += fmt::format(" {}\n", std::isfinite(value) ? value : 0.0);
  }
  void gauge(std::string_view name, double value, std::string_view help,
             std::string_view unit = "") {
    family(name, "gauge", help, unit);
    sample("", {}, value);
  }
  void counter(std::string_view name, double value, std::string_view help) {
    family(name, "counter", help);
    sample("_total", {}, value);
  }
  std::string end() && { return std::move(text_) + "# EOF\n"; }

 private:
  static std::string escaped(std::string_view value) {
    std::string out;
    for (const char c : value) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
    return out;
  }

  std::string text_, name_;
};

// What `sflex diag` shows, by its keys.
class Diag {
 public:
  explicit Diag(const Json& row) : row_(row) {}
  double number(const char* key) const {
    const auto found = row_.find(key);
    return found != row_.end() && found->is_number() ? found->get<double>() : 0;
  }
  std::string text(const char* key) const {
    const auto found = row_.find(key);
    return found != row_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  bool flag(const char* key) const {
    const auto found = row_.find(key);
    return found != row_.end() && found->is_boolean() && found->get<bool>();
  }

 private:
  const Json& row_;
};

double sum_of(const Json& rows, const char* key) {
  double sum = 0;
  for (const Json& row : rows) sum += Diag(row).number(key);
  return sum;
}

// Rules of the controller itself, beside the policy's.
constexpr policy::DecisionRule kOwnRules[] = {
    {policy::DecisionKind::kShrink, "lease-end"},
    {policy::DecisionKind::kShrink, "disabled"},
    {policy::DecisionKind::kRefuseGrow, "paused"},
    {policy::DecisionKind::kRefuseGrow, "left-alone"},
    {policy::DecisionKind::kRefuseGrow, "switched-off"},
    {policy::DecisionKind::kRefuseGrow, "database"},
    {policy::DecisionKind::kRefuseGrow, "watchdog"},
    {policy::DecisionKind::kRefuseGrow, "lost-companions"},
};

// Every kind and rule from the beginning, so that a first one is seen as an increase.
EngineCounters::Count decisions_of(const EngineCounters& counters) {
  EngineCounters::Count all = counters.decisions;
  const auto add = [&](const auto& rules) {
    for (const policy::DecisionRule& rule : rules) {
      all.try_emplace({std::string(policy::decision_kind_name(rule.kind)), std::string(rule.name)},
                      0);
    }
  };
  add(policy::kDecisionRules);
  add(kOwnRules);
  return all;
}

double count_of(const EngineCounters::Count& counters, const char* kind, const char* outcome) {
  const auto found = counters.find({kind, outcome});
  return found == counters.end() ? 0 : static_cast<double>(found->second);
}

void controller_families(Exposition& out, const Diag& diag) {
  out.family("flextrain_build", "info", "Releases.");
  const std::string version = diag.text("version"), slurm = diag.text("slurm_version");
  out.sample("_info", {{"version", version}, {"slurm_version", slurm}}, 1);
  out.gauge("flextrain_start_timestamp_seconds", diag.number("started"),
            "When the controller began.", "seconds");
  out.gauge("flextrain_elastic", diag.flag("elastic") ? 1 : 0,
            "1 while jobs may grow, 0 while elasticity is off (sflex diag says why).");
  out.gauge("flextrain_resident_memory_bytes", diag.number("memory_bytes"),
            "Resident memory of all of slurmctld.", "bytes");
}

void pace_families(Exposition& out, const Diag& diag) {
  out.family("flextrain_tick_seconds", "summary",
             "Rounds of the controller; quantiles of the last 512.", "seconds");
  out.sample("", {{"quantile", "0.5"}}, diag.number("tick_p50_seconds"));
  out.sample("", {{"quantile", "0.99"}}, diag.number("tick_p99_seconds"));
  out.sample("_sum", {}, diag.number("tick_sum_seconds"));
  out.sample("_count", {}, diag.number("tick_count"));
  out.gauge("flextrain_longest_tick_seconds", diag.number("tick_max_seconds"), "The longest round.",
            "seconds");
  out.gauge("flextrain_last_tick_timestamp_seconds", diag.number("last_tick"),
            "When the last round began.", "seconds");
  out.counter("flextrain_rpcs", diag.number("rpcs"), "Calls of slurmctld's interface.");
  out.gauge("flextrain_slowest_rpc_seconds", diag.number("rpc_slowest_seconds"),
            "The slowest of these calls.", "seconds");
  const std::string watchdog = diag.text("watchdog");
  out.gauge("flextrain_watchdog_tripped", watchdog.empty() || watchdog == "ok" ? 0 : 1,
            "1 while a slow round or call keeps jobs from growing.");
  out.counter("flextrain_watchdog_trips", diag.number("watchdog_trips"),
              "How often that has begun.");
  out.counter("flextrain_clock_jumps", diag.number("clock_jumps"), "Times the clock was set.");
  out.gauge("flextrain_database_fault", diag.text("database_fault").empty() ? 0 : 1,
            "1 while the database does not take what is written.");
}

void work_families(Exposition& out, const Diag& diag, const LiveState& live) {
  out.family("flextrain_decisions", "counter",
             "Decisions, every round's, by the rule that decided.");
  for (const auto& [of, count] : decisions_of(live.counters)) {
    out.sample("_total", {{"kind", of.first}, {"rule", of.second}}, static_cast<double>(count));
  }
  out.family("flextrain_scalings", "counter", "Scalings that have ended, by what came of them.");
  for (const char* kind : {"grow", "shrink"}) {
    for (const char* outcome : {"done", "rolled-back", "failed"}) {
      out.sample("_total", {{"kind", kind}, {"outcome", outcome}},
                 count_of(live.counters.scalings, kind, outcome));
    }
  }
  out.gauge("flextrain_elastic_jobs", diag.number("jobs"), "Elastic jobs that run.");
  out.gauge("flextrain_agents", diag.number("agents"), "Of these, with an agent that registered.");
  out.gauge("flextrain_companions", diag.number("companions"), "Companion jobs.");
  out.gauge("flextrain_paused_jobs", diag.number("paused_jobs"), "Elastic jobs that are paused.");
  out.gauge("flextrain_left_alone_jobs", diag.number("left_alone_jobs"),
            "Elastic jobs left alone after failures in a row.");
  out.gauge("flextrain_gpus", sum_of(*live.idle, "gpus"), "GPUs of all nodes.");
  out.gauge("flextrain_allocated_gpus", sum_of(*live.idle, "allocated"), "Of these, held by jobs.");
  out.gauge("flextrain_expanded_gpus", sum_of(*live.idle, "expanded"),
            "Of these, held by companions.");
  out.gauge("flextrain_idle_gpus", sum_of(*live.idle, "idle"), "GPUs that a growth could use now.");
}

void endpoint_families(Exposition& out, const Diag& diag) {
  out.gauge("flextrain_endpoint_connections", diag.number("connections"),
            "Connections of agents and sflex.");
  out.gauge("flextrain_endpoint_waiting_requests", diag.number("waiting_requests"),
            "Requests that wait for their answer (long polls).");
  out.counter("flextrain_endpoint_requests", diag.number("requests"), "Requests so far.");
  out.counter("flextrain_endpoint_refused_requests", diag.number("refused_requests"),
              "Requests refused: credentials, sizes, nonsense.");
  out.counter("flextrain_endpoint_timed_out_requests", diag.number("timed_out_requests"),
              "Requests that were not answered in time.");
  out.gauge("flextrain_queued_messages", diag.number("message_queue"),
            "Messages of agents that wait for the controller.");
  out.gauge("flextrain_queued_queries", diag.number("query_queue"),
            "Questions of sflex that wait for an answer.");
}

}  // namespace

std::string render_metrics(const Json& row, const LiveState& live) {
  const Diag diag(row);
  Exposition out;
  controller_families(out, diag);
  work_families(out, diag, live);
  pace_families(out, diag);
  endpoint_families(out, diag);
  return std::move(out).end();
}

}  // namespace flextrain::slurm_plugin
